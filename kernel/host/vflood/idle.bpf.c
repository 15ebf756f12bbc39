// SPDX-License-Identifier: GPL-2.0
/*
 * Ends vFlood's flows that hold nothing and have said nothing for long, each under the
 * lock of its port's qdisc, to which the order is sent. What a flow sends from then on
 * passes. User space runs this by BPF_PROG_TEST_RUN, with enum ek_idle in cb[].
 */
#include "order.h"
#include "lock.h"

struct idle {
	struct __sk_buff *skb;
	u64 now_ns;
	u64 ns;
	u32 left; /* flows that may be ended yet */
};

/* For bpf_for_each_map_elem(). Return: 0 to go on. */
static long idle_flow(void *map, u32 *index, struct ek_vflood_flow *e, struct idle *s)
{
	struct vflood_order order = { .kind = VFLOOD_ORDER_CLOSE };

	if (!e->owner || e->owner == VFLOOD_CLAIMED || e->packets ||
	    !vflood_flow_is_idle(e, s->now_ns, s->ns))
		return 0;
	order.index = *index;
	order.c = (u32)e->owner;
	vflood_order_write(s->skb, &order);
	/* The order is dropped when it has been read, which is no error. */
	if (bpf_clone_redirect(s->skb, e->hold_ifindex, 0) < 0)
		return 0;
	return !--s->left;
}

/* Return: how many were ended. */
SEC("tc")
int vflood_idle(struct __sk_buff *skb)
{
	struct idle s = {
		.skb = skb,
		.now_ns = bpf_ktime_get_ns(),
		.ns = (u64)skb->cb[EK_IDLE_MS] * 1000000,
		.left = skb->cb[EK_IDLE_FLOWS],
	};
	u32 most = s.left;

	bpf_for_each_map_elem(&vflood_flows, idle_flow, &s, 0);
	return (int)(most - s.left);
}

char LICENSE[] SEC("license") = "GPL";
