/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Segments that leave one after the other are joined again, as a sender's own are (GSO):
 * behind the queue they take a pair of veths whose far end does GRO. Each packet costs
 * bridge, network card and receiver the same, however large it is.
 */
#ifndef EVENKEEL_HOST_VFLOOD_JOIN_H
#define EVENKEEL_HOST_VFLOOD_JOIN_H

#include "queue.h"
#include "../base/skb.h"

/*
 * The device that joins data on its way, or 0. Full segments go there, and data that must
 * not overtake them. They overtake nothing: one CPU works on a flow, before they go and
 * after. A large packet that must stay behind is split and joined again, which costs more
 * than joining saves: so no segment goes there for a round trip after one.
 *
 * @is_first: nothing that left before is still on its way to the port
 */
static __always_inline u32 join_of(const struct __sk_buff *skb, struct ek_vflood_flow *e,
				   const struct vflood_order *o, bool is_first,
				   u64 now_ns)
{
	bool is_behind = e->is_joining && !is_first;
	u32 hold_ifindex = e->hold_ifindex;
	struct ek_vflood_device *d;

	e->is_joining = 0;
	if (!is_behind && (skb->gso_size || o->b - o->a < e->flow.mss ||
			   time_since(now_ns, e->behind_ns) < e->flow.srtt_us * 1000ull))
		return 0;
	if (skb->gso_size)
		e->behind_ns = now_ns;
	d = bpf_map_lookup_elem(&vflood_devices, &hold_ifindex);
	if (!d || !d->join_ifindex)
		return 0;
	e->is_joining = 1;
	return d->join_ifindex;
}

#endif /* EVENKEEL_HOST_VFLOOD_JOIN_H */
