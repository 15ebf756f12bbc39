/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What an ACK does to a flow, under the flow's lock (lock.h): in the qdisc, or in to_vm,
 * which leaves ACKs that let something out to the qdisc.
 *
 * A port's account of promised segments is the qdisc's. to_vm adds to another one, which
 * the qdisc takes over at its next turn at a flow.
 */
#ifndef EVENKEEL_HOST_VFLOOD_TURN_H
#define EVENKEEL_HOST_VFLOOD_TURN_H

#include "../base/maps.h"
#include "order.h"
#include "lock.h"

/* A port, as the program that has a turn at its flows sees it. */
struct qdisc_port {
	struct ek_port *port;
	struct ek_counters *count;
	struct ek_vflood_queue *vm;
	struct ek_vflood_port *state;
	u32 slot;
	bool may_hold; /* enforced, and the agent is there */
	bool drains; /* something is let out because it may not be held */
	u32 gone_packets; /* freed without having left */
	u32 gone_bytes;
	u64 now_ns;
};

/* The logic: global functions, which the verifier looks at once. */

__weak __noinline int vflood_flow_acked(struct vflood_flow *f,
					const struct vflood_settings *s,
					const struct vflood_ack *a, u64 now_us)
{
	return f && s && a && vflood_acked(f, s, a, now_us);
}

__weak __noinline int vflood_flow_grant(struct vflood_flow *f, struct vflood_vm *vm,
					const struct vflood_settings *s)
{
	if (f && vm && s && vflood_is_managed(f))
		vflood_grant(f, vm, s);
	return 0;
}

__weak __noinline int vflood_flow_splits(struct vflood_flow *f,
					 const struct vflood_settings *s, u64 range)
{
	u32 seq = (u32)range;

	return f && s && vflood_splits(f, s, seq, (u32)(range >> 32) - seq);
}

__weak __noinline int vflood_flow_leaves(struct vflood_flow *f,
					 const struct vflood_settings *s, u64 first,
					 u64 kind)
{
	struct vflood_range data = { .seq = (u32)first, .end = (u32)(first >> 32) };

	return !f || !s || vflood_leaves(f, s, data, kind == VFLOOD_ORDER_WHOLE);
}

/* Counts changes of a flow's state. */
static __always_inline void count_state(const struct qdisc_port *at,
					const struct vflood_flow *f, u8 before)
{
	if (f->state == before)
		return;
	if (f->state == VFLOOD_PACKET_LOSS)
		count(at->count, EK_COUNT_VFLOOD_LOSSES, 1);
	else if (f->state == VFLOOD_NO_BUFFER)
		count(at->count, EK_COUNT_VFLOOD_NO_BUFFER, 1);
}

/*
 * An ACK comes. The caller then lets out what is held, and calls filter_ack() and
 * flow_tell().
 */
static __always_inline void ack_begins(const struct qdisc_port *at,
				       struct ek_vflood_flow *e,
				       const struct vflood_ack *a)
{
	u8 before = e->flow.state;

	e->seen_ns = at->now_ns;
	e->acked_ns = at->now_ns;
	if (vflood_flow_acked(&e->flow, &at->port->vflood.settings, a, at->now_ns / 1000))
		count(at->count, EK_COUNT_VFLOOD_UNDONE, 1);
	count_state(at, &e->flow, before);
}

/* Tells a flow what its VM may hand over. */
static __always_inline void flow_tell(const struct qdisc_port *at,
				      struct ek_vflood_flow *e, struct vflood_vm *vm)
{
	if (!e->is_closing && (at->may_hold || !e->is_enforced))
		vflood_flow_grant(&e->flow, vm, &at->port->vflood.settings);
}

/*
 * Notes whether the VM need not have an ACK that has let out what it may. @una: the
 * flow's snd_una before it.
 */
static __always_inline void filter_ack(const struct qdisc_port *at,
				       struct ek_vflood_flow *e, u32 una,
				       const struct vflood_ack *a)
{
	bool is_plain = a->is_pure && !a->has_sack;
	struct ack_filter_vm *vm = &at->state->filter;
	u32 limit = at->port->vflood.unread_acks;
	u64 now_us = at->now_ns / 1000;

	e->filtered = 0;
	if (e->is_enforced && at->may_hold && !e->is_closing &&
	    ack_filter_is_needless(&e->flow, una, is_plain) &&
	    ack_filter_keeps(&e->filter, vm, &e->flow, limit, now_us))
		e->filtered = 1ull << 32 | a->ack;
	else
		ack_filter_passes(&e->filter, vm, &e->flow, limit, now_us);
}

#endif /* EVENKEEL_HOST_VFLOOD_TURN_H */
