/* SPDX-License-Identifier: GPL-2.0 */
/*
 * CERA at a VM's port: counts what the VM sends to the uplink, times handshakes, and
 * limits flows, whether or not the VM has a client: what a client does is the VM's word
 * alone.
 *
 * The agent writes the limit every epoch and says until when it holds: should
 * the agent die, it is gone soon after.
 */
#ifndef EVENKEEL_HOST_CERA_PORT_H
#define EVENKEEL_HOST_CERA_PORT_H

#include "../base/flow.h"
#include "../base/way.h"

static __always_inline struct ek_cera_port *cera_port_of(const struct context *c)
{
	u32 slot = c->port->slot;

	return c->port->cera.mode == EK_MODE_OFF ?
		       NULL :
		       bpf_map_lookup_elem(&cera_ports, &slot);
}

/*
 * Bytes of all the segments that a packet stands for, as qdiscs count them
 * (qdisc_pkt_len_init()). gso_segs is not set in packets that come from a tap.
 */
static __always_inline u32 cera_wire_bytes(const struct __sk_buff *skb, u32 header_bytes)
{
	u32 gso_bytes = skb->gso_size;
	u32 bytes = skb->len;

	if (!gso_bytes || bytes <= header_bytes + gso_bytes)
		return bytes;
	return bytes + (bytes - header_bytes - 1) / gso_bytes * header_bytes;
}

/* The header bytes of a packet that was read. */
static __always_inline u32 cera_header_bytes(const struct context *c)
{
	return (u32)c->packet->l4 + c->packet->tcp_bytes;
}

/*
 * The header bytes of a packet that was not read: those of datagrams that leave as one
 * packet.
 */
static __always_inline u32 cera_datagram_header_bytes(const struct __sk_buff *skb)
{
	u32 ip_bytes = skb->protocol == bpf_htons(PACKET_ETHER_IPV6) ? PACKET_IPV6_BYTES :
								       PACKET_IPV4_BYTES;

	return PACKET_ETHER_BYTES + ip_bytes + PACKET_UDP_BYTES;
}

/* The handshake's third segment, from the end that sent the first: RTT of network and VM.
 */
static __always_inline void cera_handshake_timed(struct ek_cera_port *s,
						 struct ek_flow *f)
{
	u64 us = (bpf_ktime_get_ns() - f->first_ns) / 1000;

	f->flags &= ~EK_FLOW_TIMED;
	if (us > CERA_MAX_RTT_US)
		us = CERA_MAX_RTT_US;
	if (!s->handshake_us || us < s->handshake_us)
		s->handshake_us = us ? (u32)us : 1;
}

#define CERA_TIMED_FLAGS (EK_FLOW_TIMED | EK_FLOW_VM_OPENED | EK_FLOW_LOCAL)

/* Does CERA's last limit leave a flow that has sent up to @end without room? */
static __always_inline bool cera_flow_is_full(const struct ek_flow *f, u32 end)
{
	return f->cera_limit_bytes &&
	       cera_is_full((s32)(f->cera_end - end), f->cera_limit_bytes);
}

/* Data up to @end leaves the VM. */
static __always_inline void cera_pause_note(struct ek_cera_port *s,
					    const struct ek_flow *f, u32 end)
{
	bool full = cera_flow_is_full(f, end);

	/* The context's clock is a coarse one. */
	if (full || s->pause.since_us)
		cera_pause_data(&s->pause, bpf_ktime_get_ns() / 1000, full);
}

/* A packet leaves the VM. @f: NULL if it is of no known flow, or no TCP. */
static __always_inline void cera_from_vm(const struct __sk_buff *skb,
					 const struct context *c, struct ek_flow *f,
					 u32 header_bytes)
{
	struct ek_cera_port *s = cera_port_of(c);

	if (!s)
		return;
	if (!f) {
		cera_count(&s->meter, NULL, cera_wire_bytes(skb, header_bytes));
		return;
	}
	/* What stays on this host does not pass the uplink. */
	if (f->flags & EK_FLOW_LOCAL)
		return;
	if ((f->flags & CERA_TIMED_FLAGS) == (EK_FLOW_TIMED | EK_FLOW_VM_OPENED))
		cera_handshake_timed(s, f);
	if (!c->packet->payload_bytes) {
		cera_count(&s->meter, NULL, skb->len);
		if (c->packet->flags & (PACKET_FIN | PACKET_RST))
			cera_ended(&s->meter, &f->cera_stamp);
		return;
	}
	if (!f->cera_stamp)
		f->cera_position = s->opened++;
	if (skb->gso_size)
		f->flags |= EK_FLOW_LARGE;
	cera_count(&s->meter, &f->cera_stamp, cera_wire_bytes(skb, header_bytes));
	cera_pause_note(s, f, c->packet->seq + c->packet->payload_bytes);
	if (c->packet->flags & PACKET_FIN)
		cera_ended(&s->meter, &f->cera_stamp);
}

/* A packet of a flow reaches the VM. */
static __always_inline void cera_to_vm(struct context *c, struct ek_flow *f)
{
	const struct packet *p = c->packet;
	struct ek_cera_port *s;

	if (p->flags & PACKET_ACK && cera_trip_is_over(&f->cera_trip, p->ack))
		cera_trip_acked(&f->cera_trip, bpf_ktime_get_ns() / 1000, p->ack);
	if ((f->flags & CERA_TIMED_FLAGS) != EK_FLOW_TIMED)
		return;
	s = cera_port_of(c);
	if (s)
		cera_handshake_timed(s, f);
}

/*
 * The limit of a flow, in bytes, for an ACK that reaches the VM; 0: none. A flow that
 * never sent anything has none.
 */
static __always_inline u32 cera_flow_limit(const struct context *c, struct ek_flow *f,
					   u8 scale, u32 mss)
{
	bool was_full = cera_flow_is_full(f, f->sender.snd_nxt);
	struct ek_cera_port *s;
	s64 longer_us;
	u64 bytes;

	f->cera_limit_bytes = 0;
	if (!f->cera_stamp || f->flags & EK_FLOW_LOCAL)
		return 0;
	s = cera_port_of(c);
	if (!s || !s->window || s->until_ns <= c->now_ns)
		return 0;
	bytes = (u64)cera_flow_window(s->window, s->flows, f->cera_position, s->next) *
		mss;
	longer_us = cera_trip_longer_us(&f->cera_trip, &s->loop);
	/* Others are not missed between two of their windows. */
	if (was_full && longer_us > s->far_us)
		s->far_us = (u32)longer_us;
	bytes = cera_trip_window(bytes, &s->loop, longer_us, CERA_LEAST_SEGMENTS * mss);
	/* More than any window field can say. */
	if (bytes >= 65535u << WINDOW_MAX_SCALE)
		return 0;
	f->cera_limit_bytes = window_with_room((u32)bytes, scale);
	f->cera_end = c->packet->ack + f->cera_limit_bytes;
	if (cera_pause_has_room(&s->pause, was_full,
				(s32)(f->cera_end - f->sender.snd_nxt),
				cera_enough_room(f->cera_limit_bytes, mss,
						 f->flags & EK_FLOW_LARGE)))
		s->pause.room_us = bpf_ktime_get_ns() / 1000;
	return f->cera_limit_bytes;
}

/* Not inlined: the stack of what calls it is nearly full. */
static __noinline void cera_note(struct __sk_buff *skb, struct context *c,
				 struct ek_flow *f, u32 header_bytes)
{
	cera_from_vm(skb, c, f, header_bytes);
}

/* A packet of no known flow leaves the VM. */
static __always_inline void cera_account(struct __sk_buff *skb, struct context *c,
					 u32 header_bytes)
{
	if (c->port->cera.mode != EK_MODE_OFF)
		cera_note(skb, c, NULL, header_bytes);
}

static __always_inline bool cera_uplink_from_vm(struct __sk_buff *skb, struct way *w)
{
	if (w->c->port->cera.mode != EK_MODE_OFF)
		cera_note(skb, w->c, w->f, cera_header_bytes(w->c));
	return true;
}

/* Not inlined: as cera_note(). */
static __noinline void cera_trip_note(const struct context *c, struct ek_flow *f)
{
	u32 end = c->packet->seq + c->packet->payload_bytes;
	const struct ek_cera_port *s = cera_port_of(c);
	struct cera_trip *t = &f->cera_trip;
	bool begins = !t->left_us && seq_after(end, t->next);

	if (s)
		cera_trip_sent(t, begins ? bpf_ktime_get_ns() / 1000 : 0, end,
			       s->queue_us);
}

/* What vFlood holds departs when it is back. */
static __always_inline bool cera_departure_from_vm(struct __sk_buff *skb, struct way *w)
{
	const struct context *c = w->c;
	struct ek_flow *f = w->f;

	if (f && w->verdict == TCX_NEXT && c->packet->payload_bytes &&
	    c->port->cera.mode != EK_MODE_OFF && !(f->flags & EK_FLOW_LOCAL))
		cera_trip_note(c, f);
	return true;
}

static __always_inline bool cera_uplink_to_vm(struct __sk_buff *skb, struct way *w)
{
	struct context *c = w->c;
	struct ek_flow *f = w->f;

	if (!f)
		return true;
	cera_to_vm(c, f);
	if (c->packet->flags & PACKET_ACK)
		w->c->scratch->limits.bytes[WINDOW_BY_CERA] =
			cera_flow_limit(c, f, flow_scale(f, &f->remote),
					flow_segment_bytes(f));
	return true;
}

#endif /* EVENKEEL_HOST_CERA_PORT_H */
