/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Headers that others own: what is signed (TCP-MD5, TCP-AO) no mechanism may write to, and
 * where ACKs count marks (accurate ECN) none may be made up, kept or held back. Of a connection
 * of several paths (MPTCP) the window is relative to an ACK that only an option tells.
 *
 * A connection that begins so is not noted, or only as one that is the guests' own. What turns
 * so later is let go, with all that was known of it.
 */
#ifndef EVENKEEL_HOST_OWNED_H
#define EVENKEEL_HOST_OWNED_H

#include "vflood/flow.h"
#include "vsnoop/flow.h"

/* Of a packet as most are there is nothing to read: no options, or timestamps alone. */
static __always_inline bool has_more_options(const struct context *c)
{
	const struct packet *p = c->packet;

	if (p->tcp_bytes == PACKET_TCP_BYTES)
		return false;
	if (p->tcp_bytes != PACKET_TCP_BYTES + VSNOOP_TIMESTAMP_BYTES)
		return true;
	/* A place that is known takes no checks. */
	if (p->l4 == PACKET_USUAL_L4)
		return packet_words(c->head, PACKET_USUAL_L4 + PACKET_TCP_BYTES) !=
		       VSNOOP_TIMESTAMP_WORD;
	return packet_u32(c->head, (u32)p->l4 + PACKET_TCP_BYTES) != VSNOOP_TIMESTAMP_WORD;
}

/* Return: enum packet_claim of all options that can be read. */
static __noinline u32 packet_claims(const struct context *c)
{
	struct packet_options o;

	head_options(c->head, c->packet, &o);
	return o.claims;
}

/* Forgets a flow for good. What is held for it drains. */
static __noinline void flow_let_go(struct __sk_buff *skb, struct context *c)
{
	struct ek_flow *f = bpf_map_lookup_elem(&flows, c->key);
	struct ek_vflood_flow *e;

	if (!f)
		return;
	e = vflood_flow_of(c, f);
	if (e) {
		vflood_order(skb, c, f->vflood_place, EK_VFLOOD_ORDER_CLOSE, 0, 0, e->owner);
		bpf_clone_redirect(skb, c->port->vflood.hold_ifindex, 0);
	}
	bpf_map_delete_elem(&flows, c->key);
	if (vsnoop_is_on(c))
		vsnoop_flow_close(c);
}

/*
 * A SYN or SYN-ACK that is signed, or a SYN-ACK that agrees on several paths: no connection is
 * noted, and what was known of one before it with the same addresses and ports is not about it.
 * For that only the VM's word counts, since others' may be forged.
 *
 * Return: false if it is neither.
 */
static __noinline bool syn_is_owned(struct __sk_buff *skb, struct context *c, bool from_vm)
{
	u32 claims = packet_claims(c);
	struct ek_handshake *h;

	if (claims & PACKET_SIGNED)
		count(c->count, EK_COUNT_SIGNED, 1);
	else if (claims & PACKET_MULTIPATH && c->packet->flags & PACKET_ACK)
		count(c->count, EK_COUNT_MULTIPATH, 1);
	else
		return false;
	h = bpf_map_lookup_elem(&handshakes, c->key);
	if (h && (from_vm || !h->from_vm))
		bpf_map_delete_elem(&handshakes, c->key);
	if (from_vm)
		flow_let_go(skb, c);
	return true;
}

/*
 * A SYN-ACK that comes again and says something else of ECN than the first: which of them the
 * other end goes by nobody knows.
 */
static __always_inline bool synack_differs(const struct context *c, const struct ek_flow *f)
{
	switch (ecn_agreed(ECN_CLASSIC, ecn_bits(c->head, c->packet))) {
	case ECN_ACCURATE:
		return !(f->flags & EK_FLOW_ACCURATE_ECN);
	case ECN_CLASSIC:
		return !(f->flags & EK_FLOW_NATIVE_ECN);
	default:
		return false;
	}
}

/*
 * A SYN-ACK passes: its flow begins for those mechanisms that keep something of their own.
 *
 * Return: NULL if it is not known, or not any more.
 */
static __noinline struct ek_flow *flow_begins(struct __sk_buff *skb, struct context *c,
					      bool synack_from_vm)
{
	struct ek_flow *f = flow_open(c, synack_from_vm);

	if (!f)
		return NULL;
	if (synack_differs(c, f)) {
		flow_let_go(skb, c);
		return NULL;
	}
	if (f->flags & EK_FLOW_ACCURATE_ECN)
		return f;
	if (vsnoop_is_on(c))
		vsnoop_flow_open(c, f, synack_from_vm ? f->iss : c->packet->seq,
				 synack_from_vm ? 0 : packet_ttl(c->head, c->packet));
	vflood_flow_open(c, f, synack_from_vm);
	return f;
}

/*
 * A segment of a known flow. The other end's are believed where the VM might take them.
 *
 * Return: whether it is to pass as it is.
 */
static __noinline bool segment_is_owned(struct __sk_buff *skb, struct context *c,
					const struct ek_flow *f, bool from_vm)
{
	u32 claims = packet_claims(c);
	bool is_signed = claims & PACKET_SIGNED;

	if (f->flags & EK_FLOW_ACCURATE_ECN)
		claims &= ~(u32)PACKET_COUNTS_ECN;
	if (!claims)
		return false;
	if (is_signed)
		count(c->count, EK_COUNT_SIGNED, 1);
	if (from_vm || c->packet->seq - f->echo.acked < (1u << 30))
		flow_let_go(skb, c);
	return true;
}

#endif /* EVENKEEL_HOST_OWNED_H */
