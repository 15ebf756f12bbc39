/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A connection at a port, as all mechanisms see it: it begins, is known, and ends.
 *
 * Headers that others own: no mechanism may write to signed ones (TCP-MD5, TCP-AO), and
 * where ACKs count marks (accurate ECN) none may be made up, kept or held back. In a
 * connection of several paths (MPTCP) the window is relative to an ACK that only an
 * option tells. A connection that begins with such headers is not noted, or only as the
 * guests' own. One that turns to them later is let go, with all that was known of it.
 */
#ifndef EVENKEEL_HOST_CONNECTION_H
#define EVENKEEL_HOST_CONNECTION_H

#include "base/exchange.h"
#include "base/flow.h"
#include "base/way.h"
#include "cera/port.h"
#include "proboscis/receive.h"
#include "vflood/flow.h"
#include "vsnoop/data.h"

/* The flow of the packet at hand, or NULL. vFlood's own flows it has seen all along. */
static __always_inline struct ek_flow *flow_known(const struct context *c)
{
	struct ek_flow *f = bpf_map_lookup_elem(&flows, c->key);

	if (!f || !is_from_before(c, f->first_ns) || vflood_flow_of(c, f))
		return f;
	bpf_map_delete_elem(&flows, c->key);
	return NULL;
}

/* Most packets have nothing more to read: no options, or timestamps alone. */
static __always_inline bool has_more_options(const struct context *c)
{
	const struct packet *p = c->packet;

	if (p->tcp_bytes == PACKET_TCP_BYTES)
		return false;
	if (p->tcp_bytes != PACKET_TCP_BYTES + VSNOOP_TIMESTAMP_BYTES)
		return true;
	/* A constant offset needs no bounds checks. */
	if (p->l4 == PACKET_USUAL_L4)
		return packet_words(c->head, PACKET_USUAL_L4 + PACKET_TCP_BYTES) !=
		       VSNOOP_TIMESTAMP_WORD;
	return packet_u32(c->head, (u32)p->l4 + PACKET_TCP_BYTES) !=
	       VSNOOP_TIMESTAMP_WORD;
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
		vflood_send_order(skb, c,
				  (struct vflood_order){
					  .index = f->vflood_index,
					  .kind = VFLOOD_ORDER_CLOSE,
					  .c = (u32)e->owner,
				  });
		bpf_clone_redirect(skb, c->port->vflood.hold_ifindex, 0);
	}
	bpf_map_delete_elem(&flows, c->key);
	if (vsnoop_is_on(c))
		vsnoop_flow_close(c);
}

/*
 * A packet for the VM may have the number of its SYN: whatever it says, it is an answer,
 * and nobody sends the SYN again.
 */
static __noinline void syn_answered(struct context *c)
{
	if (c->packet->flags & PACKET_ACK && handshake_known(c, c->packet->ack - 1, true))
		bpf_map_delete_elem(&handshakes, c->key);
}

/*
 * A SYN or SYN-ACK that is signed, or a SYN-ACK that agrees on several paths: no
 * connection is noted, and what was known of an earlier one with the same addresses and
 * ports no longer applies. For that only the VM's packets count, since others' may be
 * forged; a SYN-ACK with the VM's number ends the wait for it.
 *
 * Return: false if it is neither.
 */
static __noinline bool syn_is_owned(struct __sk_buff *skb, struct context *c,
				    bool from_vm)
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
	else
		syn_answered(c);
	if (from_vm)
		flow_let_go(skb, c);
	return true;
}

/*
 * A SYN-ACK that comes again with another number or other options than the first, as one
 * with a SYN cookie does (tcp_syncookies in Linux), or that says something else about
 * ECN: nobody knows which of them the other end goes by.
 */
static __noinline bool synack_differs(const struct context *c, const struct ek_flow *f,
				      bool from_vm)
{
	const struct ek_end *said = from_vm ? &f->vm : &f->remote;
	struct packet_options o;
	struct ek_end says;

	if (c->packet->seq != f->synack_seq || !head_options(c->head, c->packet, &o))
		return true;
	end_read(&says, &o);
	if (says.wscale != said->wscale || says.has_timestamps != said->has_timestamps)
		return true;
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
 * The VM opens or accepts a connection: one before it with the same addresses and ports,
 * which it may have given up without a word, is over, whether or not this one is noted.
 * What is held of it would come among this one's data. Only the VM's SYNs count, since
 * others' may be forged.
 */
static __noinline void flow_replaced(struct __sk_buff *skb, struct context *c)
{
	const struct packet *p = c->packet;
	u32 iss = p->flags & PACKET_ACK ? p->ack - 1 : p->seq;
	struct ek_flow *known = bpf_map_lookup_elem(&flows, c->key);

	if (known && known->iss == iss)
		return;
	vflood_flows_reset(skb, c);
	if (!known)
		return;
	bpf_map_delete_elem(&flows, c->key);
	if (vsnoop_is_on(c))
		vsnoop_flow_close(c);
}

/*
 * A SYN-ACK passes: its flow begins for those mechanisms that keep state of their own.
 *
 * Return: NULL if it is not known, or not any more.
 */
static __noinline struct ek_flow *flow_begins(struct __sk_buff *skb, struct context *c,
					      bool synack_from_vm)
{
	struct ek_flow *f = flow_open(c, synack_from_vm);

	if (!f)
		return NULL;
	if (synack_differs(c, f, synack_from_vm)) {
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
 * A segment of a known flow. The other end's segments count only where the VM might take
 * them.
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
	if (from_vm || !flow_off_bytes(f, c->packet))
		flow_let_go(skb, c);
	return true;
}

/* Has the packet come from another VM of this host, or from the host itself? */
static __always_inline bool is_local(struct __sk_buff *skb)
{
	u32 from = skb->ingress_ifindex;

	if (!from)
		return true;
	from = port_number(skb, from);
	return bpf_map_lookup_elem(&ports, &from);
}

/* The other end may have moved to another host, or to this one. */
static __noinline void comes_from_elsewhere(struct __sk_buff *skb, struct ek_flow *f)
{
	f->came_in = skb->ingress_ifindex;
	if (is_local(skb))
		f->flags |= EK_FLOW_LOCAL;
	else
		f->flags &= ~(u32)EK_FLOW_LOCAL;
}

static __always_inline void syn_to_vm(struct __sk_buff *skb, struct context *c)
{
	struct ek_handshake *known = handshake_known(c, c->packet->seq, false);
	struct packet_options o;
	struct ek_handshake h;

	if (known) {
		known->syns++;
		handshake_again(known, c);
		return;
	}
	if (!head_options(c->head, c->packet, &o)) {
		count(c->count, EK_COUNT_UNPARSABLE, 1);
		return;
	}
	handshake_start(&h, c, &o, false);
	h.is_local = is_local(skb);
	if (bpf_map_update_elem(&handshakes, c->key, &h, BPF_ANY))
		count(c->count, EK_COUNT_MAP_FULL, 1);
}

static __always_inline void synack_to_vm(struct __sk_buff *skb, struct context *c)
{
	struct ek_flow *f = flow_begins(skb, c, false);

	if (!f) {
		count(c->count, EK_COUNT_UNKNOWN_FLOW, 1);
		return;
	}
	flow_synack_again(c, f);
	answer_begins(c, f);
	peer_shows(c, f);
	if (is_local(skb))
		f->flags |= EK_FLOW_LOCAL;
	if (!f->probes_sent || f->flags & (EK_FLOW_PEER | EK_FLOW_PEER_GONE))
		return;
	peer_silent(c);
}

/*
 * A segment that is no segment of the other end's, though it has its addresses and ports:
 * it passes, and no mechanism believes it. The VM answers what it does not take.
 */
static __noinline void stray_to_vm(struct context *c, const struct ek_flow *f)
{
	if (f->vflood_owner &&
	    (c->packet->flags & (PACKET_ACK | PACKET_RST)) == PACKET_ACK)
		count(c->count, EK_COUNT_VFLOOD_FALSE_ACKS, 1);
	if (vsnoop_is_on(c))
		vsnoop_asked(c);
}

/* A SYN or SYN-ACK is noted, and what belongs to no known connection passes as it is. */
static __always_inline bool flow_to_vm(struct __sk_buff *skb, struct way *w)
{
	struct context *c = w->c;
	struct ek_flow *f;

	if (is_handshake(w)) {
		if (port_rests(c->port))
			return way_ends(w, TCX_NEXT);
		if (syn_is_owned(skb, c, false)) {
			if (vsnoop_is_on(c))
				vsnoop_asked(c);
			return way_ends(w, TCX_NEXT);
		}
		if (is_synack(w))
			synack_to_vm(skb, c);
		else
			syn_to_vm(skb, c);
		return true;
	}
	f = flow_known(c);
	if (!f) {
		if (c->packet->flags & PACKET_RST)
			syn_answered(c);
		count(c->count, EK_COUNT_UNKNOWN_FLOW, 1);
		return way_ends(w, TCX_NEXT);
	}
	if (has_more_options(c) && segment_is_owned(skb, c, f, false))
		return way_ends(w, TCX_NEXT);
	if (flow_is_stray(f, c->packet)) {
		stray_to_vm(c, f);
		return way_ends(w, TCX_NEXT);
	}
	f->last_ns = c->now_ns;
	f->bytes_to_vm += c->packet->payload_bytes;
	if (f->came_in != skb->ingress_ifindex)
		comes_from_elsewhere(skb, f);
	if (!flow_off_bytes(f, c->packet))
		peer_shows(c, f);
	w->f = f;
	return true;
}

static __always_inline bool flow_from_vm(struct __sk_buff *skb, struct way *w)
{
	struct context *c = w->c;

	if (!is_handshake(w)) {
		w->f = flow_known(c);
		return true;
	}
	flow_replaced(skb, c);
	if (port_rests(c->port))
		return way_ends(w, TCX_NEXT);
	return !syn_is_owned(skb, c, true) || way_ends(w, TCX_NEXT);
}

static __always_inline bool flow_known_from_vm(struct __sk_buff *skb, struct way *w)
{
	struct context *c = w->c;

	if (is_handshake(w))
		return true;
	if (!w->f)
		count(c->count, EK_COUNT_UNKNOWN_FLOW, 1);
	else if (!has_more_options(c) || !segment_is_owned(skb, c, w->f, true))
		goto known;
	cera_account(skb, c, cera_header_bytes(c));
	return way_ends(w, TCX_NEXT);
known:
	w->f->last_ns = c->now_ns;
	return true;
}

/* A number that this connection's VM cannot have: what else is known of it may be wrong,
 * too, and what is held would wait for ACKs that are taken for false. */
static __always_inline bool flow_note_from_vm(struct __sk_buff *skb, struct way *w)
{
	struct context *c = w->c;

	if (flow_note_window(w->f, c->packet))
		return true;
	count(c->count, EK_COUNT_UNKNOWN_FLOW, 1);
	flow_let_go(skb, c);
	cera_account(skb, c, cera_header_bytes(c));
	return way_ends(w, TCX_NEXT);
}

/* The connection may be over, for all mechanisms but what is still held. */
static __always_inline void flow_may_end(struct __sk_buff *skb, struct way *w,
					 bool from_vm)
{
	struct context *c = w->c;

	if (!flow_is_over(c, w->f, from_vm))
		return;
	if (c->port->timed_ns)
		exchange_closes(c);
	if (vflood_flow_close(skb, c, w->f, from_vm) && vsnoop_is_on(c))
		vsnoop_flow_close(c);
}

static __always_inline bool flow_end_to_vm(struct __sk_buff *skb, struct way *w)
{
	if (!w->f)
		return true;
	flow_may_end(skb, w, false);
	if (!w->is_needless)
		return way_ends(w, TCX_NEXT);
	count(w->c->count, EK_COUNT_VFLOOD_FILTERED_ACKS, 1);
	return way_ends(w, TCX_DROP);
}

static __always_inline bool flow_end_from_vm(struct __sk_buff *skb, struct way *w)
{
	if (!w->is_back)
		flow_may_end(skb, w, true);
	return true;
}

#endif /* EVENKEEL_HOST_CONNECTION_H */
