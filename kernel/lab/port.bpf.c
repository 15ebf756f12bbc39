// SPDX-License-Identifier: GPL-2.0
/*
 * A switch's port that marks: at the egress of the lab's shaped device, before
 * its queue.
 *
 * RED with min = max on the instantaneous queue, as switches are set for DCTCP (RFC 8257
 * §3.1): a packet that meets a queue of the threshold or more is marked, or dropped if it
 * is not ECN-capable. The kernels that the lab runs on need not have sch_red. The length
 * is that of the root qdisc, in packets: the lab's are segments.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#define KERNEL __attribute__((preserve_access_index))

struct qdisc_skb_head {
	__u32 qlen;
} KERNEL;

struct Qdisc {
	struct qdisc_skb_head q;
} KERNEL;

struct net_device {
	struct Qdisc *qdisc;
} KERNEL;

struct sk_buff {
	struct net_device *dev;
} KERNEL;

void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

/* Indexes of the map @counts. */
enum { MARKED, DROPPED, COUNTS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

const volatile u32 threshold_segments = 1;

static __always_inline void count(u32 what)
{
	u64 *value = bpf_map_lookup_elem(&counts, &what);

	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC("tcx/egress")
int lab_port(struct __sk_buff *ctx)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);

	if (skb->dev->qdisc->q.qlen < threshold_segments)
		return TCX_NEXT;
	if (!bpf_skb_ecn_set_ce(ctx)) {
		count(DROPPED);
		return TCX_DROP;
	}
	count(MARKED);
	return TCX_NEXT;
}

char LICENSE[] SEC("license") = "GPL";
