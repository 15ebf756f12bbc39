/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vSnoop's part in from_vm: the VM's own ACKs, and early ones, made out of a copy
 * of the data that they are for.
 *
 * The copy has come in at the VM's port with the addresses and ports of the data, but
 * already with the ACK's Ethernet addresses: if no program makes an ACK out of it, no
 * bridge learns anything wrong from it, and the other end does not take it. It is cut to
 * its headers, and IP's and TCP's are written anew. Whoever sent the copy, the ACK says
 * no more than was promised.
 */
#ifndef EVENKEEL_HOST_VSNOOP_ACK_H
#define EVENKEEL_HOST_VSNOOP_ACK_H

#include "../base/read.h"
#include "../base/way.h"
#include "flow.h"

#define VSNOOP_TTL 64

/* What the ACK says. */
struct vsnoop_ack_early {
	u32 seq;
	u32 ack;
	u32 ts_val;
	u32 ts_ecr;
	u16 window;
	u8 flags; /* enum packet_tcp_flag */
	u8 ecn; /* enum packet_ecn */
	u8 tcp_bytes;
};

/* Notes the MAC of a packet from the VM, whoever it is for. */
static __always_inline void vsnoop_note_mac(struct __sk_buff *skb, struct context *c)
{
	const u8 *data = (const u8 *)(long)skb->data;
	struct ek_vsnoop_port *port = vsnoop_port_of(c);
	bool is_same = true;
	u32 i;

	if (!port || data + PACKET_ETHER_BYTES > (const u8 *)(long)skb->data_end)
		return;
	if (!port->has_mac) {
		__builtin_memcpy(port->mac, data + 6, sizeof(port->mac));
		port->has_mac = 1;
		return;
	}
	for (i = 0; i < sizeof(port->mac); i++)
		is_same &= data[6 + i] == port->mac[i];
	if (!is_same && !port->vm.doubt)
		port->vm.doubt = VSNOOP_DOUBT_MACS;
}

static __always_inline u64 vsnoop_sum(const __be32 *word, u32 words)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < words; i++)
		sum += word[i];
	return sum;
}

/* The lower half of a word, in memory's order. */
static __always_inline void vsnoop_put_check(__be32 *word, u16 check)
{
	__builtin_memcpy((u8 *)word + 2, &check, sizeof(check));
}

#define VSNOOP_V4_WORDS 5
#define VSNOOP_V6_WORDS 10

/* The packet is not to be fragmented, so its ID says nothing (RFC 6864). */
static __always_inline void vsnoop_put_v4(__be32 *ip, const struct packet *p,
					  const struct vsnoop_ack_early *a)
{
	u32 bytes = VSNOOP_V4_WORDS * 4 + a->tcp_bytes;

	ip[0] = bpf_htonl(0x45u << 24 | (u32)a->ecn << 16 | bytes);
	ip[1] = bpf_htonl(0x4000);
	ip[2] = bpf_htonl(VSNOOP_TTL << 24 | 6 << 16);
	__builtin_memcpy(ip + 3, p->destination + 12, 4);
	__builtin_memcpy(ip + 4, p->source + 12, 4);
	vsnoop_put_check(ip + 2, (u16)~window_csum_fold(vsnoop_sum(ip, VSNOOP_V4_WORDS)));
}

static __always_inline void vsnoop_put_v6(__be32 *ip, const struct packet *p,
					  const struct vsnoop_ack_early *a)
{
	ip[0] = bpf_htonl(6u << 28 | (u32)a->ecn << 20);
	ip[1] = bpf_htonl((u32)a->tcp_bytes << 16 | 6 << 8 | VSNOOP_TTL);
	__builtin_memcpy(ip + 2, p->destination, 16);
	__builtin_memcpy(ip + 6, p->source, 16);
}

/*
 * A partial checksum is the pseudo-header's, which hardware completes, or nobody.
 * @addresses: the sum of both.
 */
static __always_inline void vsnoop_put_tcp(__be32 *tcp, const struct packet *p,
					   const struct vsnoop_ack_early *a,
					   u64 addresses, bool is_partial)
{
	u64 sum = addresses + bpf_htonl(6u + a->tcp_bytes);

	tcp[0] = bpf_htonl((u32)p->destination_port << 16 | p->source_port);
	tcp[1] = bpf_htonl(a->seq);
	tcp[2] = bpf_htonl(a->ack);
	tcp[3] = bpf_htonl((u32)a->tcp_bytes << 26 | (u32)a->flags << 16 | a->window);
	tcp[4] = 0;
	if (!is_partial)
		sum += vsnoop_sum(tcp, 4);
	if (a->tcp_bytes > PACKET_TCP_BYTES) {
		tcp[5] = bpf_htonl(VSNOOP_TIMESTAMP_WORD);
		tcp[6] = bpf_htonl(a->ts_val);
		tcp[7] = bpf_htonl(a->ts_ecr);
		if (!is_partial)
			sum += vsnoop_sum(tcp + 5, 3);
	}
	sum = window_csum_fold(sum);
	*(u16 *)(tcp + 4) = (u16)(is_partial ? sum : ~sum);
}

/* Writes the ACK's headers in place of the copy's. */
static __noinline bool vsnoop_write(struct __sk_buff *skb, const struct context *c,
				    const struct vsnoop_ack_early *a)
{
	const struct packet *p = c->packet;
	bool is_partial = skb_summed(skb) == CHECKSUM_PARTIAL;
	__be32 *head = (__be32 *)c->scratch->chunk;
	u64 bytes; /* the verifier follows whole registers */

	if (p->version == 6) {
		vsnoop_put_v6(head, p, a);
		vsnoop_put_tcp(head + VSNOOP_V6_WORDS, p, a, vsnoop_sum(head + 2, 8),
			       is_partial);
		bytes = VSNOOP_V6_WORDS * 4 + a->tcp_bytes;
	} else {
		vsnoop_put_v4(head, p, a);
		vsnoop_put_tcp(head + VSNOOP_V4_WORDS, p, a, vsnoop_sum(head + 3, 2),
			       is_partial);
		bytes = VSNOOP_V4_WORDS * 4 + a->tcp_bytes;
	}
	/* Older verifiers learn nothing from a test that a value is not 0. */
	barrier_var(bytes);
	bytes = ((bytes - 1) & 127) + 1;
	barrier_var(bytes);
	return !bpf_skb_store_bytes(skb, p->l3, head, (u32)bytes, BPF_F_RECOMPUTE_CSUM);
}

/* What an ACK of this flow says now. Return: false if there is nothing left to say. */
static __noinline bool vsnoop_ack_fill(struct context *c, struct ek_flow *f,
				       struct ek_vsnoop_flow *s, u32 last_bytes,
				       struct vsnoop_ack_early *a)
{
	struct ek_vsnoop_port *port = vsnoop_port_of(c);
	const struct packet *p = c->packet;
	u32 end = p->seq + p->payload_bytes;
	u32 own = end - last_bytes;
	struct vsnoop_flow said;
	bool is_again;
	bool is_true;

	if (!port)
		return false;
	bpf_spin_lock(&port->lock);
	is_again = s->again_end == end;
	if (is_again)
		s->again_end = s->flow.acked;
	is_true = vsnoop_is_managed(&s->flow) && !seq_after(own, s->flow.acked) &&
		  (is_again || !vsnoop_has_ridden(&s->flow, own));
	/* Each packet's own number: the same one again would look like a duplicate ACK.
	 */
	said.acked = is_again ? s->flow.acked : own;
	said.vm_edge = s->flow.vm_edge;
	said.scale = s->flow.scale;
	a->seq = s->flow.vm_seq;
	a->ts_val = s->flow.ts_val;
	bpf_spin_unlock(&port->lock);
	/* What vFlood holds back may lie beyond the other end's window. */
	if (a->seq - p->ack > f->window_offered_bytes)
		a->seq = p->ack;
	a->ack = said.acked;
	a->window = vsnoop_window(&said);
	a->flags = PACKET_ACK;
	a->ecn = PACKET_NOT_ECT;
	a->tcp_bytes = PACKET_TCP_BYTES;
	if (has_timestamps(f)) {
		a->tcp_bytes += VSNOOP_TIMESTAMP_BYTES;
		a->ts_ecr = vsnoop_timestamp(c);
	}
	/* A VM with ECN would echo this mark in its ACK. */
	if (f->flags & EK_FLOW_NATIVE_ECN && p->ecn == PACKET_CE)
		a->flags |= PACKET_ECE;
	return is_true;
}

/* Treats the ACK as the host treats the VM's own where it sees to ECN. */
static __noinline void vsnoop_ecn(struct context *c, struct ek_flow *f,
				  struct vsnoop_ack_early *a)
{
	bool echo = proboscis_echo(&f->echo, a->ack);

	if (!enforces(c) || !ecn_for_guests(c) ||
	    (f->flags & (EK_FLOW_PEER | EK_FLOW_NATIVE_ECN)) != EK_FLOW_PEER)
		return;
	if (echo) {
		a->flags |= PACKET_ECE;
		count(c->count, EK_COUNT_ECE_SET, 1);
	}
	if (!(f->flags & EK_FLOW_ELEPHANT)) {
		a->ecn = PACKET_ECT_0;
		count(c->count, EK_COUNT_ECT_SET, 1);
	}
}

/**
 * vsnoop_copied() - has a packet of no known flow the addresses of data to the VM?
 *
 * The key is then that of the data. Return: the data's flow, or NULL.
 */
static __always_inline struct ek_vsnoop_flow *vsnoop_copied(struct context *c)
{
	if (!c->packet->payload_bytes)
		return NULL;
	flow_key(c, false);
	return bpf_map_lookup_elem(&vsnoop_flows, c->key);
}

/**
 * vsnoop_ack_early() - a copy of data, at the ingress of its VM's port
 *
 * Return: what the program is to answer. The copy is an ACK then, or of no use.
 */
static __noinline int vsnoop_ack_early(struct __sk_buff *skb, struct context *c,
				       struct ek_vsnoop_flow *s)
{
	struct ek_flow *f = bpf_map_lookup_elem(&flows, c->key);
	struct vsnoop_ack_early a = {};

	count_again(c);
	if (!f || !vsnoop_enforces(c) || !vsnoop_is_usual(c, f) ||
	    !vsnoop_ack_fill(c, f, s, vsnoop_last_bytes(skb, c->packet->payload_bytes),
			     &a))
		return TCX_DROP;
	vsnoop_ecn(c, f, &a);
	if (bpf_skb_change_tail(skb, (u32)c->packet->l4 + a.tcp_bytes, 0) ||
	    !vsnoop_write(skb, c, &a) || bpf_skb_change_type(skb, PACKET_HOST)) {
		count(c->count, EK_COUNT_VSNOOP_FAILED, 1);
		return TCX_DROP;
	}
	bpf_set_hash_invalid(skb);
	return TCX_NEXT;
}

static __always_inline bool vsnoop_set_word(struct __sk_buff *skb, const struct packet *p,
					    u32 offset, u32 from, u32 to)
{
	__be32 old_word = bpf_htonl(from);
	__be32 word = bpf_htonl(to);

	return !bpf_l4_csum_replace(skb, (u32)p->l4 + TCP_OFFSET_CHECK, old_word, word,
				    4) &&
	       !bpf_skb_store_bytes(skb, (u32)p->l4 + offset, &word, 4, 0);
}

/* What data from the VM takes along: an early ACK that the VM does not know of. */
struct vsnoop_ack_ride {
	u32 acked;
	u32 ts_ecr; /* 0: none */
	u16 window;
};

/* To be called with the port's lock. */
static __always_inline struct vsnoop_ack_ride vsnoop_says(const struct ek_vsnoop_flow *s)
{
	return (struct vsnoop_ack_ride){
		.acked = s->flow.acked,
		.ts_ecr = s->acked_ts,
		.window = vsnoop_window(&s->flow),
	};
}

static __noinline void vsnoop_ack_ride(struct __sk_buff *skb, struct context *c,
				       const struct vsnoop_ack_ride *r)
{
	struct packet *p = c->packet;
	u32 echo = PACKET_TCP_BYTES + 8;
	u32 ts_ecr = packet_u32(c->head, (u32)p->l4 + echo);
	bool is_written = vsnoop_set_word(skb, p, TCP_OFFSET_ACK, p->ack, r->acked) &&
			  skb_set_window(skb, p, r->window);

	/* By an older echo the other end would measure too long a round trip. */
	if (is_written && r->ts_ecr && vsnoop_timestamp(c) &&
	    seq_after(r->ts_ecr, ts_ecr))
		is_written = vsnoop_set_word(skb, p, echo, ts_ecr, r->ts_ecr);
	if (!is_written) {
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
		return;
	}
	p->ack = r->acked;
	p->window = r->window;
}

/**
 * vsnoop_released() - data that was held goes out at its VM's port
 *
 * Its early ACK, whose own packet comes behind, rides on it.
 */
static __noinline void vsnoop_released(struct __sk_buff *skb, struct context *c)
{
	struct ek_vsnoop_flow *s = bpf_map_lookup_elem(&vsnoop_flows, c->key);
	struct ek_vsnoop_port *port = vsnoop_port_of(c);
	struct vsnoop_ack_ride r;
	bool rides;

	if (!s || !port || !vsnoop_enforces(c) || !c->packet->payload_bytes ||
	    !vsnoop_is_plain(c))
		return;
	bpf_spin_lock(&port->lock);
	rides = vsnoop_ride(&s->flow, c->packet->ack);
	r = vsnoop_says(s);
	bpf_spin_unlock(&port->lock);
	if (!rides)
		return;
	count(c->count, EK_COUNT_VSNOOP_ON_DATA, 1);
	s->rode++;
	vsnoop_ack_ride(skb, c, &r);
}

/* Early ACKs are needless only once the data is out: where it is held, its ACK goes
 * first. */
static __always_inline bool vsnoop_may_ride(const struct context *c,
					    struct ek_vsnoop_flow *s, u32 ack)
{
	if (!c->port->vflood.hold_ifindex && vsnoop_enforces(c))
		return vsnoop_ride(&s->flow, ack);
	return vsnoop_is_managed(&s->flow) && seq_after(s->flow.acked, ack);
}

/* Do SACK blocks tell of data after the number? */
static __noinline bool vsnoop_has_later(const struct context *c)
{
	struct packet_options o;

	return head_options(c->head, c->packet, &o) && o.sack &&
	       seq_after(packet_sacked_end(c->head, &o, c->packet->ack), c->packet->ack);
}

/**
 * vsnoop_from_vm() - a packet of a known flow, at the port's ingress
 *
 * Return: true if it says nothing new, and is to be dropped.
 */
static __noinline bool vsnoop_from_vm(struct __sk_buff *skb, struct context *c)
{
	struct ek_vsnoop_flow *s = bpf_map_lookup_elem(&vsnoop_flows, c->key);
	struct ek_vsnoop_port *port = vsnoop_port_of(c);
	const struct packet *p = c->packet;
	u32 bytes = p->payload_bytes + !!(p->flags & PACKET_FIN);
	u32 ts_val = vsnoop_timestamp(c);
	bool is_plain = vsnoop_is_plain(c);
	struct vsnoop_vm_ack ack = {
		.now_us = c->now_ns / 1000,
		.seq = p->seq,
		.bytes = bytes,
		.ack = p->ack,
		.ts_val = ts_val,
		.window = p->window,
		.is_bare = is_plain && !p->payload_bytes && p->flags == PACKET_ACK,
	};
	enum vsnoop_ack verdict;
	struct vsnoop_ack_ride r;
	u32 was_doubt;
	bool rides;

	if (!s || !port || (p->flags & (PACKET_ACK | PACKET_RST)) != PACKET_ACK)
		return false;
	s->last_ns = c->now_ns;
	packet_copy(s->mac, c->head, 6, sizeof(s->mac));
	if (!packet_is_first_hop(packet_ttl(c->head, p)))
		s->is_forwarded = 1;
	ack.has_later = !is_plain && vsnoop_has_later(c);
	was_doubt = port->vm.doubt;
	bpf_spin_lock(&port->lock);
	verdict = vsnoop_vm_ack(&s->flow, &port->vm, &ack);
	if (s->next_ttl && !seq_before(p->ack, s->next_end)) {
		if (!s->ttl || s->next_ttl < s->ttl)
			s->ttl = s->next_ttl;
		s->next_ttl = 0;
	}
	rides = p->payload_bytes && is_plain && vsnoop_may_ride(c, s, p->ack);
	r = vsnoop_says(s);
	bpf_spin_unlock(&port->lock);
	if (!was_doubt && port->vm.doubt)
		count(c->count, EK_COUNT_VSNOOP_BROKEN, 1);
	if (verdict == VSNOOP_ACK_DROP) {
		count(c->count, EK_COUNT_VSNOOP_DROPPED, 1);
		s->dropped++;
		return vsnoop_enforces(c);
	}
	if (!rides)
		return false;
	count(c->count, EK_COUNT_VSNOOP_ON_DATA, 1);
	s->rode++;
	if (vsnoop_enforces(c))
		vsnoop_ack_ride(skb, c, &r);
	return false;
}

static __always_inline bool vsnoop_copy_from_vm(struct __sk_buff *skb, struct way *w)
{
	struct ek_vsnoop_flow *s;

	if (is_handshake(w) || w->f || !vsnoop_is_on(w->c))
		return true;
	s = vsnoop_copied(w->c);
	return !s || way_ends(w, vsnoop_ack_early(skb, w->c, s));
}

static __always_inline bool vsnoop_ack_filter_from_vm(struct __sk_buff *skb,
						      struct way *w)
{
	if (!vsnoop_is_on(w->c) || !vsnoop_from_vm(skb, w->c))
		return true;
	vflood_kept_back(w->c, w->f);
	return way_ends(w, TCX_DROP);
}

/* Early ACKs ride here on data that was held, or that passes a port that holds: it does
 * not come back. */
static __always_inline bool vsnoop_ack_on_data_from_vm(struct __sk_buff *skb,
						       struct way *w)
{
	struct context *c = w->c;

	if (!vsnoop_is_on(c))
		return true;
	if (w->is_back || (w->verdict == TCX_NEXT && c->port->vflood.hold_ifindex &&
			   c->packet->payload_bytes))
		vsnoop_released(skb, c);
	return true;
}

#endif /* EVENKEEL_HOST_VSNOOP_ACK_H */
