/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vSnoop's part in to_vm: data on its way to the port's queue.
 */
#ifndef EVENKEEL_HOST_SNOOP_DATA_H
#define EVENKEEL_HOST_SNOOP_DATA_H

#include "room.h"
#include "snoop.h"

/* A SYN where there is a connection: the VM challenges it (RFC 5961). */
static __noinline void snoop_syn_to_vm(struct context *c)
{
	struct ek_snoop *s = bpf_map_lookup_elem(&snoops, c->key);
	struct ek_snoop_port *port = snoop_port(c);

	if (!s || !port)
		return;
	bpf_spin_lock(&port->lock);
	vsnoop_peer_ack(&s->flow, c->packet->seq, true);
	bpf_spin_unlock(&port->lock);
}

/* Segments of at most @mss that a packet with data is, or will be cut into. */
static __always_inline u32 snoop_segments(const struct __sk_buff *skb, u32 payload_bytes)
{
	u32 size = skb->gso_size;

	return size ? (payload_bytes + size - 1) / size : 1;
}

/* What came of a packet, out of the lock. */
struct snoop_outcome {
	u32 was_told;
	u8 verdict; /* enum vsnoop_verdict */
	u8 was_state;
	u8 state;
	bool is_repeated;
};

static __always_inline void snoop_count(struct context *c, const struct snoop_outcome *o,
					u32 segments)
{
	if (o->verdict == VSNOOP_ACK) {
		count(c->count, EK_COUNT_VSNOOP_EARLY_ACKS, 1);
	} else if (o->state == VSNOOP_NO_BUFFER) {
		count(c->count, EK_COUNT_VSNOOP_NO_BUFFER, segments);
	} else if (o->state == VSNOOP_UNEXPECTED_SEQUENCE && o->was_state != o->state) {
		count(c->count, EK_COUNT_VSNOOP_UNEXPECTED_SEQUENCE, 1);
	}
}

/* The copy that becomes the ACK. Without it the VM's own must pass. */
static __always_inline void snoop_send(struct __sk_buff *skb, struct context *c,
				       struct ek_snoop_port *port, struct ek_snoop *s,
				       const struct snoop_outcome *o)
{
	u32 mark = skb->mark;
	long error;

	skb->mark = o->is_repeated ? EK_MARK_EARLY_AGAIN : EK_MARK_EARLY_ACK;
	error = bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
	skb->mark = mark;
	if (!error)
		return;
	count(c->count, EK_COUNT_VSNOOP_FAILED, 1);
	bpf_spin_lock(&port->lock);
	s->flow.flags |= VSNOOP_ASKED;
	bpf_spin_unlock(&port->lock);
}

/**
 * snoop_to_vm() - a packet of a known flow, at the port's egress
 *
 * After everything that changes it: what is acknowledged is on its way to the queue.
 */
static __noinline void snoop_to_vm(struct __sk_buff *skb, struct context *c,
				   const struct ek_flow *f)
{
	struct ek_snoop *s = bpf_map_lookup_elem(&snoops, c->key);
	struct ek_snoop_port *port = snoop_port(c);
	const struct packet *p = c->packet;
	u32 segments = snoop_segments(skb, p->payload_bytes);
	bool is_fin = p->flags & PACKET_FIN;
	struct snoop_outcome o = {};
	enum ek_place place;
	bool has_place;
	u32 next;

	if (!s || !port)
		return;
	s->last_ns = c->now_ns;
	if (!p->payload_bytes && !is_fin) {
		bpf_spin_lock(&port->lock);
		vsnoop_peer_ack(&s->flow, p->seq, p->flags & (PACKET_RST | PACKET_SYN));
		bpf_spin_unlock(&port->lock);
		return;
	}
	place = port_place(skb, segments + c->port->vsnoop.reserve_segments, false);
	port->place = place;
	has_place = place == EK_PLACE_FREE;
	if (!has_place)
		count(c->count, EK_COUNT_VSNOOP_NO_PLACE, segments);
	/* Nor is there one for what the VM cannot be answered for. */
	if (!snoop_is_usual(c, f) ||
	    (has_timestamps(f) && s->flow.flags & VSNOOP_SEEN_VM && !s->flow.ts_val))
		has_place = false;
	bpf_spin_lock(&port->lock);
	next = s->flow.next;
	o.was_told = s->flow.told;
	o.was_state = s->flow.state;
	o.verdict = vsnoop_data(&s->flow, &port->vm, &c->port->vsnoop.settings, p->seq,
				p->payload_bytes, segments, is_fin, has_place);
	o.state = s->flow.state;
	if (s->flow.told != o.was_told)
		s->told_ts = has_timestamps(f) ? snoop_timestamp(c) : 0;
	bpf_spin_unlock(&port->lock);
	o.is_repeated = !seq_after(p->seq + p->payload_bytes, next);
	snoop_count(c, &o, segments);
	if (o.verdict != VSNOOP_ACK)
		return;
	s->early_acks++;
	if (snoop_enforces(c))
		snoop_send(skb, c, port, s, &o);
}

#endif /* EVENKEEL_HOST_SNOOP_DATA_H */
