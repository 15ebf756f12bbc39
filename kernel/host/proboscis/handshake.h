/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A VM's SYN is sent behind probes, and the window of its SYN-ACK follows the probes that
 * came.
 */
#ifndef EVENKEEL_HOST_PROBOSCIS_HANDSHAKE_H
#define EVENKEEL_HOST_PROBOSCIS_HANDSHAKE_H

#include "../base/event.h"
#include "../base/hop.h"
#include "../connection.h"
#include "answer.h"
#include "ecn.h"
#include "probe_read.h"

static __always_inline int send_behind(struct __sk_buff *skb)
{
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}

/* A probe or report that this host has sent. */
static __always_inline bool is_own_probe(struct context *c)
{
	struct proboscis_option o;
	u32 iss;

	return looks_like_probe(c->packet) && probe_read(c, &o, &iss) == PROBE_VALID;
}

/* Does this SYN go without probes, though there is budget for some? */
static __always_inline bool probes_are_spared(const struct ek_handshake *h,
					      struct ek_peer *peer)
{
	if (h->goes_alone)
		return true;
	/* A path may drop ECN-capable SYNs or what goes ahead of them: a VM that gets no
	 * answer from a host never heard of sends its SYN again as it is. */
	if (h->trains && (!peer || !peer->report_ns))
		return true;
	return peer && !proboscis_peer_probe(&peer->state);
}

/* How many probes to send before a SYN; counts the reason for none. */
static __always_inline u32 probes_for(struct __sk_buff *skb, struct context *c,
				      struct ek_handshake *h)
{
	u32 probes = c->port->proboscis.settings.probes;

	if (!probes_are_on(c) || !probes || probes > PROBOSCIS_MAX_PROBES)
		return 0;
	h->is_routed = hop_is_this_host(skb, c);
	if (h->is_routed) {
		count(c->count, EK_COUNT_PROBES_ROUTED, 1);
		return 0;
	}
	if (probes_are_spared(h, peer_known(c))) {
		count(c->count, EK_COUNT_PROBES_SPARED, 1);
		return 0;
	}
	probes = train_length(c, probes);
	if (!budget_take(c, probes)) {
		count(c->count, EK_COUNT_PROBES_REFUSED, 1);
		return 0;
	}
	return probes;
}

/*
 * Probes and SYN have gone: they may have to be sent again, but not to a peer that has
 * left probes unanswered.
 */
static __always_inline void syn_probed(struct __sk_buff *skb, struct context *c)
{
	struct ek_peer *peer = peer_known(c);

	if (!peer || (!peer->report_ns && !peer->state.unanswered))
		event_send(skb, c, EK_EVENT_SYN_STRANGER);
	else if (!peer->state.unanswered)
		event_send(skb, c, EK_EVENT_SYN_PROBED);
}

static __always_inline int syn_from_vm(struct __sk_buff *skb, struct context *c)
{
	struct ek_handshake *known = handshake_known(c, c->packet->seq, true);
	struct ek_host *host_settings = this_host();
	struct packet_options options;
	struct ek_handshake fresh;
	struct order o = {};
	u32 probes = 0;
	u32 sent = 0;

	if (known && known->is_behind && known->from_vm && known->iss == c->packet->seq) {
		known->is_behind = 0;
		count_again(c);
		return TCX_NEXT;
	}
	count(c->count, EK_COUNT_SYNS_FROM_VM, 1);
	if (!head_options(c->head, c->packet, &options)) {
		count(c->count, EK_COUNT_UNPARSABLE, 1);
		return TCX_NEXT;
	}
	if (known) {
		handshake_again(known, c);
	} else {
		handshake_start(&fresh, c, &options, true);
		if (bpf_map_update_elem(&handshakes, c->key, &fresh, BPF_ANY)) {
			count(c->count, EK_COUNT_MAP_FULL, 1);
			return TCX_NEXT;
		}
		known = bpf_map_lookup_elem(&handshakes, c->key);
		if (!known)
			return TCX_NEXT;
	}
	if (options.opens_fast || c->packet->payload_bytes)
		known->opens_fast = 1;
	/* MPTCP's connections are let go; ISS + 2 may be the number of a SYN's data. */
	if (options.claims & PACKET_MULTIPATH || c->packet->payload_bytes)
		known->goes_alone = 1;
	if (host_settings)
		probes = probes_for(skb, c, known);
	known->syns++;
	if (!probes)
		return TCX_NEXT;
	if (!enforces(c)) {
		count(c->count, EK_COUNT_PROBES_SENT, probes);
		return TCX_NEXT;
	}
	o.iss = c->packet->seq;
	o.type = PROBOSCIS_PROBE;
	o.train = known->trains;
	o.packets = (u8)probes;
	o.total = (u8)probes;
	o.seen = !!c->port->proboscis.settings.answers;
	o.ecn = PACKET_ECT_0;
	switch (probe_send(skb, c, &o, host_settings, &sent)) {
	case PROBE_UNTOUCHED:
		return TCX_NEXT;
	case PROBE_SPOILT:
		return TCX_DROP;
	case PROBE_SENT:
		break;
	}
	known->trains++;
	known->probes_sent += (u16)sent;
	count(c->count, EK_COUNT_PROBES_SENT, sent);
	syn_probed(skb, c);
	if (!known->asks_ecn)
		handshake_set_ect(skb, c);
	known->is_behind = 1;
	return send_behind(skb);
}

/* Limits the window of a SYN-ACK by what came of the probes. */
static __always_inline void synack_window(struct __sk_buff *skb, struct context *c,
					  struct ek_flow *f,
					  const struct proboscis_train *train)
{
	struct window_limits limits = {};
	u32 mss = flow_segment_bytes(f);
	enum proboscis_verdict verdict;
	u16 field = 0;

	f->probes_seen = train->seen;
	f->probes_marked = train->marked;
	verdict = proboscis_first_window(train, &c->port->proboscis.settings, mss,
					 &limits.bytes[WINDOW_BY_PROBOSCIS]);
	if (window_decide(&limits, c->packet->window, 0, mss, &field) ==
	    WINDOW_BY_RECEIVER)
		return;
	f->synack_window_bytes = field;
	count(c->count,
	      verdict == PROBOSCIS_SCALED ? EK_COUNT_SYNACKS_SCALED :
					    EK_COUNT_SYNACKS_ONE_MSS,
	      1);
	if (enforces(c) && !skb_set_window(skb, c->packet, field))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
}

static __always_inline int synack_from_vm(struct __sk_buff *skb, struct context *c)
{
	const struct proboscis_settings *set = &c->port->proboscis.settings;
	struct ek_host *host_settings = this_host();
	struct proboscis_train train;
	struct ek_train *known;
	struct order o = {};
	struct ek_flow *f;
	u32 sent = 0;

	f = flow_begins(skb, c, true);
	if (f && f->flags & EK_FLOW_SYNACK_BEHIND) {
		f->flags &= ~EK_FLOW_SYNACK_BEHIND;
		count_again(c);
		return TCX_NEXT;
	}
	if (f && f->flags & EK_FLOW_SYNACK_RELEASED) {
		f->flags &= ~EK_FLOW_SYNACK_RELEASED;
		count_again(c);
	} else {
		count(c->count, EK_COUNT_SYNACKS_FROM_VM, 1);
		if (f)
			flow_synack_again(c, f);
	}
	if (!f) {
		count(c->count, EK_COUNT_UNKNOWN_FLOW, 1);
		return TCX_NEXT;
	}
	known = train_known(c, c->packet->ack - 1);
	if (!known || !host_settings || !probes_are_on(c))
		return TCX_NEXT;
	if (!(f->flags & EK_FLOW_PEER_GONE))
		f->flags |= EK_FLOW_PEER;
	train = known->count;
	if (enforces(c) && !(f->flags & EK_FLOW_SYNACK_HELD) &&
	    proboscis_synack_waits(&train, set,
				   time_since(c->now_ns, f->first_ns) / 1000) &&
	    event_send(skb, c, EK_EVENT_SYNACK_HELD)) {
		f->flags |= EK_FLOW_SYNACK_HELD;
		count(c->count, EK_COUNT_SYNACKS_HELD, 1);
		return TCX_DROP;
	}
	o.iss = c->train->iss;
	o.type = PROBOSCIS_REPORT;
	o.train = train.number;
	o.packets = 1;
	o.total = train.total;
	o.seen = train.seen;
	o.marked = train.marked;
	/* If the report is lost, the opener's data is not ECN-capable, and marking ports
	 * drop it. */
	o.ecn = PACKET_ECT_0;
	if (!enforces(c)) {
		count(c->count, EK_COUNT_REPORTS_SENT, 1);
	} else if (probe_send(skb, c, &o, host_settings, &sent) == PROBE_SPOILT) {
		return TCX_DROP;
	}
	count(c->count, EK_COUNT_REPORTS_SENT, sent);
	if (!answer_probed(skb, c, f, &train, &sent))
		return TCX_DROP;
	synack_window(skb, c, f, &train);
	if (!(f->flags & EK_FLOW_NATIVE_ECN))
		handshake_set_ect(skb, c);
	if (!sent)
		return TCX_NEXT;
	f->flags |= EK_FLOW_SYNACK_BEHIND;
	return send_behind(skb);
}

static __always_inline bool proboscis_probes_from_vm(struct __sk_buff *skb, struct way *w)
{
	if (is_handshake(w) || !is_own_probe(w->c))
		return true;
	count_again(w->c);
	return way_ends(w, TCX_NEXT);
}

static __always_inline bool proboscis_handshake_from_vm(struct __sk_buff *skb,
							struct way *w)
{
	if (w->f)
		return true;
	return way_ends(w, is_synack(w) ? synack_from_vm(skb, w->c) :
					  syn_from_vm(skb, w->c));
}

#endif /* EVENKEEL_HOST_PROBOSCIS_HANDSHAKE_H */
