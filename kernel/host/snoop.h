/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vSnoop: which data for the VM is acknowledged at once, and which of the VM's
 * ACKs say nothing new after that. algo/vsnoop.h decides.
 *
 * Packets of a flow come by on any CPU, and its flows share their port's queue:
 * the port has one lock, which guards its total and its flows' entries.
 *
 * An early ACK begins as a copy of the data packet that goes into the port's
 * ingress; from_vm makes the ACK out of it (snoop_ack.h). Its mark says what it
 * is, and it is not treated again.
 */
#ifndef EVENKEEL_HOST_SNOOP_H
#define EVENKEEL_HOST_SNOOP_H

#include "flow.h"
#include "room.h"

/* NOP, NOP and a timestamp option's first two bytes: what stacks put first. */
#define SNOOP_TIMESTAMP_WORD 0x0101080au
#define SNOOP_TIMESTAMP_BYTES 12

static __always_inline bool snoop_is_on(const struct context *c)
{
	return c->port->vsnoop.mode != EK_MODE_OFF;
}

static __always_inline bool snoop_enforces(const struct context *c)
{
	return c->port->vsnoop.mode == EK_MODE_ENFORCE;
}

static __always_inline struct ek_snoop_port *snoop_port(const struct context *c)
{
	u32 slot = c->port->slot;

	return bpf_map_lookup_elem(&snoop_ports, &slot);
}

static __always_inline bool has_timestamps(const struct ek_flow *f)
{
	return f->vm.has_timestamps && f->remote.has_timestamps;
}

/* A timestamp option that stands where all known stacks put it, or 0. */
static __always_inline u32 snoop_timestamp(const struct context *c)
{
	u32 at = (u32)c->packet->l4 + PACKET_TCP_BYTES;

	if (c->packet->tcp_bytes < PACKET_TCP_BYTES + SNOOP_TIMESTAMP_BYTES ||
	    packet_u32(c->head, at) != SNOOP_TIMESTAMP_WORD)
		return 0;
	return packet_u32(c->head, at + 4);
}

/* Can an ACK be made out of this packet by snoop_ack.h? */
static __always_inline bool snoop_is_usual(const struct context *c, const struct ek_flow *f)
{
	const struct packet *p = c->packet;

	if (p->l4 - p->l3 != (p->version == 6 ? 40 : 20) || p->flags & PACKET_URG)
		return false;
	return !has_timestamps(f) || snoop_timestamp(c);
}

/* A SYN-ACK goes either way. @peer_seq: of the other end's SYN or SYN-ACK. */
static __noinline void snoop_open(struct context *c, const struct ek_flow *f, u32 peer_seq)
{
	struct ek_snoop *known = bpf_map_lookup_elem(&snoops, c->key);
	struct ek_snoop_port *port = snoop_port(c);
	struct ek_snoop fresh = {};

	if (!port || (known && known->iss == f->iss))
		return;
	if (known) {
		bpf_spin_lock(&port->lock);
		vsnoop_close(&known->flow, &port->vm);
		bpf_spin_unlock(&port->lock);
	}
	fresh.iss = f->iss;
	fresh.last_ns = c->now_ns;
	vsnoop_peer_syn(&fresh.flow, peer_seq, f->vm.mss);
	vsnoop_vm_syn(&fresh.flow, flow_scale(f, &f->vm));
	if (bpf_map_update_elem(&snoops, c->key, &fresh, BPF_ANY))
		count(c->count, EK_COUNT_MAP_FULL, 1);
}

/* The flow has left the table. */
static __noinline void snoop_close(struct context *c)
{
	struct ek_snoop *s = bpf_map_lookup_elem(&snoops, c->key);
	struct ek_snoop_port *port = snoop_port(c);

	if (!s || !port)
		return;
	bpf_spin_lock(&port->lock);
	vsnoop_close(&s->flow, &port->vm);
	bpf_spin_unlock(&port->lock);
	bpf_map_delete_elem(&snoops, c->key);
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
	place = port_place(skb, segments + c->port->vsnoop.reserve_segments);
	port->place = place;
	has_place = place == EK_PLACE_FREE;
	if (!has_place)
		count(c->count, EK_COUNT_VSNOOP_NO_PLACE, segments);
	/* Nor is there one for what the VM cannot be answered for. */
	if (!snoop_is_usual(c, f) || (has_timestamps(f) && s->flow.flags & VSNOOP_SEEN_VM &&
				      !s->flow.ts_val))
		has_place = false;
	bpf_spin_lock(&port->lock);
	next = s->flow.next;
	o.was_told = s->flow.told;
	o.was_state = s->flow.state;
	o.verdict = vsnoop_data(&s->flow, &port->vm, &c->port->vsnoop.settings, p->seq,
				p->payload_bytes, segments, is_fin, has_place);
	o.state = s->flow.state;
	bpf_spin_unlock(&port->lock);
	o.is_repeated = !seq_after(p->seq + p->payload_bytes, next);
	snoop_count(c, &o, segments);
	if (o.verdict != VSNOOP_ACK)
		return;
	s->early_acks++;
	if (snoop_enforces(c))
		snoop_send(skb, c, port, s, &o);
}

/* Data of the VM's takes along what it does not know to be acknowledged. */
static __noinline void snoop_ride(struct __sk_buff *skb, struct context *c, u32 told, u16 window)
{
	struct packet *p = c->packet;
	u32 at = (u32)p->l4 + TCP_OFFSET_ACK;
	__be32 old_number = bpf_htonl(p->ack);
	__be32 number = bpf_htonl(told);

	if (bpf_l4_csum_replace(skb, (u32)p->l4 + TCP_OFFSET_CHECK, old_number, number, 4) ||
	    bpf_skb_store_bytes(skb, at, &number, 4, 0) || !skb_set_window(skb, p, window)) {
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
		return;
	}
	p->ack = told;
	p->window = window;
}

/**
 * snoop_from_vm() - a packet of a known flow, at the port's ingress
 *
 * Return: true if it says nothing new, and is to be dropped.
 */
static __noinline bool snoop_from_vm(struct __sk_buff *skb, struct context *c)
{
	struct ek_snoop *s = bpf_map_lookup_elem(&snoops, c->key);
	struct ek_snoop_port *port = snoop_port(c);
	const struct packet *p = c->packet;
	u32 bytes = p->payload_bytes + !!(p->flags & PACKET_FIN);
	u32 ts_val = snoop_timestamp(c);
	u32 plain_bytes = PACKET_TCP_BYTES + (ts_val ? SNOOP_TIMESTAMP_BYTES : 0);
	bool is_plain = p->tcp_bytes == plain_bytes;
	enum vsnoop_ack verdict;
	bool is_managed;
	u16 window;
	u32 told;

	if (!s || !port || (p->flags & (PACKET_ACK | PACKET_RST)) != PACKET_ACK)
		return false;
	s->last_ns = c->now_ns;
	bpf_spin_lock(&port->lock);
	verdict = vsnoop_vm_ack(&s->flow, &port->vm, p->seq, bytes, p->ack, p->window, ts_val,
				is_plain && !p->payload_bytes && p->flags == PACKET_ACK);
	told = s->flow.told;
	window = vsnoop_window(&s->flow);
	is_managed = vsnoop_is_managed(&s->flow);
	bpf_spin_unlock(&port->lock);
	if (verdict == VSNOOP_ACK_DROP) {
		count(c->count, EK_COUNT_VSNOOP_DROPPED, 1);
		s->dropped++;
		return snoop_enforces(c);
	}
	/* SACK blocks go with the number that they were made for. */
	if (!p->payload_bytes || !is_plain || !is_managed || !seq_after(told, p->ack))
		return false;
	count(c->count, EK_COUNT_VSNOOP_ON_DATA, 1);
	s->rode++;
	if (snoop_enforces(c))
		snoop_ride(skb, c, told, window);
	return false;
}

#endif /* EVENKEEL_HOST_SNOOP_H */
