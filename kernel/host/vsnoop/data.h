/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vSnoop's part in to_vm: data on its way to the port's queue.
 */
#ifndef EVENKEEL_HOST_VSNOOP_DATA_H
#define EVENKEEL_HOST_VSNOOP_DATA_H

#include "../base/way.h"
#include "core.h"
#include "doubt.h"

/* A SYN where there is a connection, or a segment that is off its window: the VM answers
 * (RFC 5961, RFC 9293 §3.10.7.4). */
static __noinline void vsnoop_asked(struct context *c)
{
	struct ek_vsnoop_flow *s = bpf_map_lookup_elem(&vsnoop_flows, c->key);
	struct ek_vsnoop_port *port = vsnoop_port_of(c);

	if (!s || !port)
		return;
	bpf_spin_lock(&port->lock);
	vsnoop_peer_ack(&s->flow, c->packet->seq, true);
	bpf_spin_unlock(&port->lock);
}

/* How many segments a packet with data is, or will be cut into. */
static __always_inline u32 vsnoop_segments(const struct __sk_buff *skb, u32 payload_bytes)
{
	u32 size = skb->gso_size;

	return size ? (payload_bytes + size - 1) / size : 1;
}

/* What came of a packet, for use outside of the lock. */
struct vsnoop_outcome {
	u32 was_acked;
	u8 doubt; /* enum vsnoop_doubt */
	u8 verdict; /* enum vsnoop_verdict */
	u8 was_state;
	u8 state;
};

static __always_inline void vsnoop_count(struct context *c,
					 const struct vsnoop_outcome *o, u32 segments)
{
	if (o->verdict == VSNOOP_ACK) {
		count(c->count, EK_COUNT_VSNOOP_EARLY_ACKS, 1);
	} else if (o->doubt == VSNOOP_DOUBT_RUNS || o->doubt == VSNOOP_DOUBT_CORE) {
		count(c->count, EK_COUNT_VSNOOP_RUNNING, segments);
	} else if (o->state == VSNOOP_NO_BUFFER) {
		count(c->count, EK_COUNT_VSNOOP_NO_BUFFER, segments);
	} else if (o->state == VSNOOP_UNEXPECTED_SEQUENCE && o->was_state != o->state) {
		count(c->count, EK_COUNT_VSNOOP_UNEXPECTED_SEQUENCE, 1);
	}
}

/* Bytes of both Ethernet addresses. */
#define VSNOOP_ADDRESSES 12

static __always_inline long vsnoop_set_addresses(struct __sk_buff *skb,
						 const u8 *addresses)
{
	return bpf_skb_store_bytes(skb, 0, addresses, VSNOOP_ADDRESSES,
				   BPF_F_RECOMPUTE_CSUM);
}

/* What became of the copy, and of the data itself. */
enum vsnoop_sent {
	VSNOOP_SENT,
	VSNOOP_UNSENT,
	VSNOOP_SPOILT,
};

/* Sends the copy that becomes the ACK, with the addresses of an answer. */
static __noinline enum vsnoop_sent vsnoop_send(struct __sk_buff *skb,
					       const struct context *c)
{
	u8 data[VSNOOP_ADDRESSES], answer[VSNOOP_ADDRESSES];
	long error = -1;

	packet_copy(data, c->head, 0, sizeof(data));
	__builtin_memcpy(answer, data + 6, 6);
	__builtin_memcpy(answer + 6, data, 6);
	if (!vsnoop_set_addresses(skb, answer))
		error = bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
	if (vsnoop_set_addresses(skb, data))
		return VSNOOP_SPOILT;
	return error ? VSNOOP_UNSENT : VSNOOP_SENT;
}

/*
 * Without the copy the VM's own ACK must pass. If the data is spoilt, too, the early ACK
 * is undone.
 */
static __noinline void vsnoop_unsent(struct context *c, struct ek_vsnoop_port *port,
				     struct ek_vsnoop_flow *s, u32 was_acked,
				     bool is_spoilt)
{
	count(c->count, EK_COUNT_VSNOOP_FAILED, 1);
	bpf_spin_lock(&port->lock);
	s->flow.flags |= VSNOOP_ASKED;
	if (is_spoilt)
		vsnoop_undo(&s->flow, was_acked);
	bpf_spin_unlock(&port->lock);
}

/**
 * vsnoop_to_vm() - a packet of a known flow, at the port's egress
 *
 * Runs after everything that changes the packet: what is acknowledged is on its way to
 * the queue.
 *
 * Return: false if it is spoilt, and must be dropped.
 */
static __noinline bool vsnoop_to_vm(struct __sk_buff *skb, struct context *c,
				    const struct ek_flow *f)
{
	struct ek_vsnoop_flow *s = bpf_map_lookup_elem(&vsnoop_flows, c->key);
	struct ek_vsnoop_port *port = vsnoop_port_of(c);
	const struct packet *p = c->packet;
	u32 segments = vsnoop_segments(skb, p->payload_bytes);
	struct vsnoop_data data = {
		.now_us = c->now_ns / 1000,
		.seq = p->seq,
		.bytes = p->payload_bytes,
		.segments = segments,
		.last_bytes = vsnoop_last_bytes(skb, p->payload_bytes),
	};
	bool is_off = flow_off_bytes(f, p);
	struct vsnoop_outcome o = {};
	enum ek_vsnoop_ring ring;
	enum vsnoop_sent sent;
	bool is_again;
	u32 ts_val;

	if (!s || !port)
		return true;
	s->last_ns = c->now_ns;
	/* The VM neither takes nor keeps what lies beyond its window. */
	data.is_fin = p->flags & PACKET_FIN && !is_off;
	if ((!p->payload_bytes && !data.is_fin) ||
	    (is_off && seq_after(p->seq, f->vm_ack))) {
		if (!is_off)
			vsnoop_note_peer(c, s, vsnoop_ack_doubt(skb, c, f));
		bpf_spin_lock(&port->lock);
		vsnoop_peer_ack(&s->flow, p->seq, is_off || p->flags & PACKET_RST);
		bpf_spin_unlock(&port->lock);
		return true;
	}
	ring = vsnoop_ring_look(skb,
				vsnoop_wanted_slots(segments,
						    c->port->vsnoop.reserve_segments),
				false);
	port->ring = ring;
	if (ring != EK_VSNOOP_RING_FREE)
		count(c->count, EK_COUNT_VSNOOP_NO_PLACE, segments);
	data.doubt = ring == EK_VSNOOP_RING_FREE ? vsnoop_flow_doubt(skb, c, f, s, port) :
						   VSNOOP_DOUBT_QUEUE;
	if (data.doubt && ring == EK_VSNOOP_RING_FREE)
		count(c->count, EK_COUNT_VSNOOP_DOUBTED, segments);
	if (!is_off)
		vsnoop_note_peer(c, s, data.doubt);
	data.core = data.doubt ? VSNOOP_CORE_UNKNOWN : vsnoop_core(c);
	/* Older kernels allow no call under the lock, as reading it may be. */
	ts_val = has_timestamps(f) ? vsnoop_timestamp(c) : 0;
	bpf_spin_lock(&port->lock);
	is_again = !seq_after(p->seq + p->payload_bytes, s->flow.next);
	o.was_acked = s->flow.acked;
	o.was_state = s->flow.state;
	o.verdict = vsnoop_data(&s->flow, &port->vm, &c->port->vsnoop.settings, &data);
	o.state = s->flow.state;
	o.doubt = s->flow.doubt;
	if (s->flow.acked != o.was_acked)
		s->acked_ts = ts_val;
	if (o.verdict == VSNOOP_ACK && is_again)
		s->again_end = p->seq + p->payload_bytes;
	bpf_spin_unlock(&port->lock);
	vsnoop_count(c, &o, segments);
	if (o.verdict != VSNOOP_ACK)
		return true;
	s->early_acks++;
	sent = vsnoop_enforces(c) ? vsnoop_send(skb, c) : VSNOOP_SENT;
	if (sent != VSNOOP_SENT)
		vsnoop_unsent(c, port, s, o.was_acked, sent == VSNOOP_SPOILT);
	return sent != VSNOOP_SPOILT;
}

static __always_inline bool vsnoop_early_ack_to_vm(struct __sk_buff *skb, struct way *w)
{
	if (!vsnoop_is_on(w->c))
		return true;
	if (w->f)
		return vsnoop_to_vm(skb, w->c, w->f) || way_ends(w, TCX_DROP);
	vsnoop_asked(w->c);
	return true;
}

#endif /* EVENKEEL_HOST_VSNOOP_DATA_H */
