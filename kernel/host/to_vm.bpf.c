// SPDX-License-Identifier: GPL-2.0
/*
 * Network -> VM: at the egress of a VM's port. The steps are those of STEPS_TO_VM.
 */
#include "connection.h"
#include "base/window.h"
#include "cera/port.h"
#include "proboscis/marks.h"
#include "proboscis/receive.h"
#include "vflood/ack.h"
#include "vsnoop/data.h"

SEC("tcx/egress")
int to_vm(struct __sk_buff *skb)
{
	struct context c;
	struct way w = { .c = &c, .verdict = TCX_NEXT };

	if (!context_open(&c, skb, SCRATCH_TO_VM))
		return TCX_NEXT;
	/* This program sends it just now, on this CPU. */
	if (c.scratch->is_sending)
		return TCX_NEXT;
	count(c.count, EK_COUNT_PACKETS_TO_VM, 1);
	if (port_sleeps(c.port))
		return TCX_NEXT;
	if (!context_read(skb, &c, false))
		return TCX_NEXT;

#define STEP(name, function)                                                             \
	if (!function##_to_vm(skb, &w))                                                  \
		return w.verdict;
	STEPS_TO_VM(STEP)
#undef STEP
	return w.verdict;
}

char LICENSE[] SEC("license") = "GPL";
