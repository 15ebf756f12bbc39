/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What may be held no longer: it drains, when there is no agent, no mode or no VM any
 * more, or is dropped with its flow.
 */
#ifndef EVENKEEL_HOST_VFLOOD_DRAIN_H
#define EVENKEEL_HOST_VFLOOD_DRAIN_H

#include "queue.h"

#define VFLOOD_TICK_NS 50000000ull /* how often what is held is looked after */
#define VFLOOD_DRAIN_TICK_NS 1000000ull
#define VFLOOD_DRAIN_SEGMENTS 10 /* of each flow at each tick */
#define VFLOOD_DRAIN_TIMEOUT_NS 3000000000ull /* that what drains waits for an ACK */
#define VFLOOD_ALL_PACKETS (1 << 20) /* more than a buffer has segments */
#define VFLOOD_SPLIT_NS 10000000ull /* longer than that no packet takes to be split */

/* Lets out some of what is held, whatever the windows say. */
static __noinline void queue_drain(struct qdisc_port *at, struct ek_vflood_flow *e,
				   u32 index, u32 segments)
{
	struct held *h;
	u32 bytes;
	int i;

	if (e->splitting)
		return;
	bpf_for(i, 0, VFLOOD_RELEASE_PACKETS)
	{
		if (!e->packets || !segments)
			break;
		h = vflood_flow_pop(e, index);
		if (!h)
			break;
		bytes = (u32)(h->range >> 32) - (u32)h->range;
		vflood_drained(&e->flow, &at->vm->vm, (u32)h->range,
			       (u32)(h->range >> 32), at->now_ns / 1000);
		segments -= vflood_segments(&e->flow, bytes) < segments ?
				    vflood_segments(&e->flow, bytes) :
				    segments;
		count(at->count, EK_COUNT_VFLOOD_DRAINED, held_out(at, e, h));
	}
}

/* Drops what is held. */
static __noinline void queue_drop(struct qdisc_port *at, struct ek_vflood_flow *e,
				  u32 index)
{
	struct held *h;
	int i;

	bpf_for(i, 0, VFLOOD_ALL_PACKETS)
	{
		if (!e->packets)
			break;
		h = vflood_flow_pop(e, index);
		if (h)
			held_free(at, h);
	}
	e->packets = 0;
	e->splitting = 0;
}

/* Looks after a flow that holds something. Return: whether it still holds something. */
static __noinline bool vflood_flow_tick(struct qdisc_port *at, struct ek_vflood_flow *e,
					u32 index)
{
	bool is_silent = vflood_flow_is_idle(e, at->now_ns, EK_VFLOOD_IDLE_NS);
	bool is_cut_off = !at->port || e->is_closing; /* from ACKs */
	bool drains = e->is_enforced && !at->may_hold;

	/* The last segment of the packet being split was lost on the way. */
	if (e->splitting && time_since(at->now_ns, e->splitting_ns) > VFLOOD_SPLIT_NS)
		split_done(at, e, index);
	/* Otherwise ACKs let data out, as ever: beyond its windows, the network or the
	 * receiver drops it. */
	if (is_cut_off || is_silent ||
	    (drains && time_since(at->now_ns, e->acked_ns) > VFLOOD_DRAIN_TIMEOUT_NS))
		queue_drain(at, e, index, VFLOOD_DRAIN_SEGMENTS);
	if (is_cut_off || is_silent || drains) {
		at->drains = true;
		if (!e->packets)
			vflood_flow_forget(at, e);
	}
	return e->packets;
}

/* Looks after all flows that hold something. */
static __noinline void tick(struct qdisc_port *at)
{
	u32 next = at->vm->first;
	struct ek_vflood_flow *e;
	u32 index;
	int i;

	at->drains = false;
	at->vm->first = 0;
	bpf_for(i, 0, EK_VFLOOD_FLOWS)
	{
		if (!next)
			break;
		index = next - 1;
		e = bpf_map_lookup_elem(&vflood_flows, &index);
		if (!e)
			break;
		next = e->next;
		e->is_listed = 0;
		vflood_flow_take(at, e);
		if (vflood_flow_tick(at, e, index))
			vflood_flow_list(at, e, index);
		vflood_flow_unlock(e);
	}
	at->vm->tick_ns =
		at->now_ns + (at->drains ? VFLOOD_DRAIN_TICK_NS : VFLOOD_TICK_NS);
}

#endif /* EVENKEEL_HOST_VFLOOD_DRAIN_H */
