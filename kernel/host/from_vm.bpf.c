// SPDX-License-Identifier: GPL-2.0
/*
 * VM -> network: at the ingress of a VM's port. The steps are those of STEPS_FROM_VM.
 *
 * What the program sends goes into the port a second time, by way of the CPU's backlog
 * queue. The packet at hand is then sent after it in the same way, or it would overtake.
 * A packet that comes a second time is recognized by what only this host knows of it,
 * never by its mark, which other programs set and clear:
 *
 *   a probe or a report      the tag that one of this host's keys has signed
 *   a SYN behind its probes  the handshake waits for it (is_behind)
 *   a SYN-ACK                the flow waits for it (EK_FLOW_SYNACK_BEHIND, _RELEASED)
 *   what was held            the flow waits for that range, or an ACK (vflood/returns.h)
 *   a copy of data           it has the addresses of data to the VM (vsnoop/ack.h)
 *
 * Each packet of the VM's uses such an entry up, so that none goes round.
 */
#include "connection.h"
#include "base/window.h"
#include "cera/port.h"
#include "proboscis/answer.h"
#include "proboscis/ecn.h"
#include "proboscis/handshake.h"
#include "vflood/data.h"
#include "vsnoop/ack.h"

SEC("tcx/ingress")
int from_vm(struct __sk_buff *skb)
{
	struct context c;
	struct way w = { .c = &c, .verdict = TCX_NEXT };

	if (!context_open(&c, skb, SCRATCH_FROM_VM))
		return TCX_NEXT;
	count(c.count, EK_COUNT_PACKETS_FROM_VM, 1);
	if (vsnoop_is_on(&c))
		vsnoop_note_mac(skb, &c);
	if (port_sleeps(c.port))
		return TCX_NEXT;
	if (!context_read(skb, &c, true)) {
		cera_account(skb, &c, cera_datagram_header_bytes(skb));
		return TCX_NEXT;
	}

#define STEP(name, function)                                                             \
	if ((!w.is_back || STEP_FROM_VM_##name > STEP_FROM_VM_HOLD) &&                   \
	    !function##_from_vm(skb, &w))                                                \
		return w.verdict;
	STEPS_FROM_VM(STEP)
#undef STEP
	return w.verdict;
}

char LICENSE[] SEC("license") = "GPL";
