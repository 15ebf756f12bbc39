/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vFlood at a port: which packets go by way of the device that holds them, and what the
 * VM is told. That device's qdisc (qdisc.bpf.c) decides under its lock what is held and
 * what leaves; from here it gets orders in the cb of packets and of copies.
 */
#ifndef EVENKEEL_HOST_VFLOOD_FLOW_H
#define EVENKEEL_HOST_VFLOOD_FLOW_H

#include "../base/flow.h"
#include "order.h"
#include "lock.h"

/* Does a packet have timestamps where bring_up_to_date() writes them? */
static __always_inline bool vflood_has_timestamps(const struct context *c)
{
	const struct packet *p = c->packet;

	return p->tcp_bytes >= PACKET_TCP_BYTES + VFLOOD_TIMESTAMPS_BYTES &&
	       packet_u32(c->head, (u32)p->l4 + PACKET_TCP_BYTES) == VFLOOD_TIMESTAMPS;
}

static __always_inline u32 vflood_ts_val(const struct context *c)
{
	return packet_u32(c->head, (u32)c->packet->l4 + PACKET_TCP_BYTES + 4);
}

/* The state of a flow that vFlood manages here, or NULL. */
static __always_inline struct ek_vflood_flow *vflood_flow_of(const struct context *c,
							     const struct ek_flow *f)
{
	u32 index = f->vflood_index;
	struct ek_vflood_flow *e;

	if (!f->vflood_owner)
		return NULL;
	e = bpf_map_lookup_elem(&vflood_flows, &index);
	if (!e || e->owner != f->vflood_owner ||
	    e->hold_ifindex != c->port->vflood.hold_ifindex)
		return NULL;
	return e;
}

static __always_inline u32 vflood_flow_hash(const struct ek_flow_key *k)
{
	const u32 *word = (const u32 *)k;
	u32 hash = 0;
	u32 i;

	for (i = 0; i < sizeof(*k) / 4; i++) {
		hash = (hash ^ word[i]) * 0x9e3779b1u;
		hash ^= hash >> 15;
	}
	return hash;
}

/* Takes one of the places where a port's flow may be, unless the port has used up its
 * share.
 */
static __always_inline struct ek_vflood_flow *
vflood_flow_claim(const struct ek_flow_key *k, u32 slot, u32 *index)
{
	u32 *managed = bpf_map_lookup_elem(&vflood_managed, &slot);
	u32 first = vflood_flow_hash(k);
	struct ek_vflood_flow *e;
	u32 i;

	if (!managed || *managed >= EK_VFLOOD_PORT_FLOWS)
		return NULL;
	for (i = 0; i < EK_VFLOOD_WAYS; i++) {
		*index = (first + i) & (EK_VFLOOD_FLOWS - 1);
		e = bpf_map_lookup_elem(&vflood_flows, index);
		if (e && !e->owner && !e->is_listed &&
		    !__sync_val_compare_and_swap(&e->owner, 0, VFLOOD_CLAIMED))
			return e;
	}
	return NULL;
}

/* Writes why the packet at hand, or a copy of it, is sent to the holding device. */
static __always_inline void
vflood_send_order(struct __sk_buff *skb, const struct context *c, struct vflood_order o)
{
	o.l4 = c->packet->l4;
	vflood_order_write(skb, &o);
}

/*
 * The SYN-ACK has passed: both ends have said what is needed to manage the flow.
 *
 * Echoes of marks are for the VM's window and not for the host's, and a sender has to
 * heed them (RFC 3168 §6.1.2): such flows are left alone.
 */
static __noinline void vflood_flow_open(struct context *c, struct ek_flow *f,
					bool synack_from_vm)
{
	const struct vflood_settings *set = &c->port->vflood.settings;
	const struct packet *p = c->packet;
	struct ek_vflood_flow *e;
	u64 now_us = c->now_ns / 1000;
	struct packet_options o;
	u32 index = 0;

	if (c->port->vflood.mode == EK_MODE_OFF || !c->port->vflood.hold_ifindex ||
	    c->port->vflood.passes_over)
		return;
	/* Sent again. */
	if (vflood_flow_of(c, f))
		return;
	if (f->flags & EK_FLOW_NATIVE_ECN) {
		count(c->count, EK_COUNT_VFLOOD_NATIVE_ECN, 1);
		return;
	}
	e = vflood_flow_claim(c->key, c->port->slot, &index);
	if (!e) {
		count(c->count, EK_COUNT_VFLOOD_NO_PLACE, 1);
		return;
	}
	__builtin_memset(&e->flow, 0, sizeof(e->flow));
	__builtin_memset(&e->last, 0, sizeof(e->last));
	__builtin_memset(&e->filter, 0, sizeof(e->filter));
	e->behind_ns = 0;
	e->is_joining = 0;
	__builtin_memset(&e->returns, 0, sizeof(e->returns));
	e->back_acks = 0;
	e->is_direct = 0;
	e->first = 0;
	e->key = *c->key;
	e->hold_ifindex = c->port->vflood.hold_ifindex;
	e->is_closing = 0;
	e->slot = c->port->slot;
	e->is_enforced = c->port->vflood.mode == EK_MODE_ENFORCE;
	e->seen_ns = c->now_ns;
	e->acked_ns = c->now_ns;
	e->clock_ns = c->now_ns;
	if (head_options(c->head, p, &o) && o.permits_sack)
		e->flow.flags |= VFLOOD_HAS_SACK;
	if (synack_from_vm) {
		/* The window comes with the first ACK, before any data can. */
		vflood_peer_syn(&e->flow, 0, flow_scale(f, &f->remote),
				flow_segment_bytes(f), now_us);
		vflood_vm_syn(&e->flow, set, p->seq, now_us);
		vflood_ack_out(&e->flow, p->ack);
	} else {
		vflood_vm_syn(&e->flow, set, p->ack - 1, f->first_ns / 1000);
		vflood_peer_syn(&e->flow, p->window, flow_scale(f, &f->remote),
				flow_segment_bytes(f), now_us);
		vflood_ack_out(&e->flow, p->seq + 1);
	}
	/* Nothing is older than this. */
	e->last.ack = e->flow.ack_sent;
	if (!++e->generation)
		e->generation = 1;
	f->vflood_index = index;
	f->vflood_owner = e->generation;
	vflood_count_managed(e->slot, 1);
	__sync_lock_test_and_set(&e->owner, (u64)e->generation);
	count(c->count, EK_COUNT_VFLOOD_FLOWS, 1);
}

static __always_inline bool vflood_flow_has_key(const struct ek_vflood_flow *e,
						const struct ek_flow_key *k)
{
	const u32 *a = (const u32 *)&e->key, *b = (const u32 *)k;
	u32 differs = 0;
	u32 i;

	for (i = 0; i < sizeof(*k) / 4; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

/*
 * All flows with the packet's addresses and ports are over for the VM, and what is held
 * is for nobody. Those that have left the table of flows may still drain.
 */
static __noinline void vflood_flows_reset(struct __sk_buff *skb, struct context *c)
{
	u32 first = vflood_flow_hash(c->key);
	struct ek_vflood_flow *e;
	u32 index, i;
	u64 owner;

	if (!c->port->vflood.hold_ifindex)
		return;
	for (i = 0; i < EK_VFLOOD_WAYS; i++) {
		index = (first + i) & (EK_VFLOOD_FLOWS - 1);
		e = bpf_map_lookup_elem(&vflood_flows, &index);
		if (!e)
			continue;
		owner = e->owner;
		if (!owner || owner == VFLOOD_CLAIMED ||
		    e->hold_ifindex != c->port->vflood.hold_ifindex ||
		    !vflood_flow_has_key(e, c->key))
			continue;
		vflood_send_order(skb, c,
				  (struct vflood_order){
					  .index = index,
					  .kind = VFLOOD_ORDER_RESET,
					  .c = (u32)owner,
				  });
		bpf_clone_redirect(skb, c->port->vflood.hold_ifindex, 0);
	}
}

/*
 * The flow is over as far as its packets say. Ends it, unless something is still held.
 * What the VM has given up is dropped. What the other end has drains: its reset may be
 * forged.
 *
 * Return: whether it has left the table.
 */
static __noinline bool vflood_flow_close(struct __sk_buff *skb, struct context *c,
					 struct ek_flow *f, bool from_vm)
{
	struct ek_vflood_flow *e = vflood_flow_of(c, f);
	bool is_reset = c->packet->flags & PACKET_RST;

	if (e && e->packets && !is_reset)
		return false;
	if (e) {
		vflood_send_order(skb, c,
				  (struct vflood_order){
					  .index = f->vflood_index,
					  .kind = is_reset && from_vm ?
							  VFLOOD_ORDER_RESET :
							  VFLOOD_ORDER_CLOSE,
					  .c = (u32)e->owner,
				  });
		bpf_clone_redirect(skb, c->port->vflood.hold_ifindex, 0);
	}
	bpf_map_delete_elem(&flows, c->key);
	return true;
}

#endif /* EVENKEEL_HOST_VFLOOD_FLOW_H */
