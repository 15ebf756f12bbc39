/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Takes the probes and reports of other hosts.
 */
#ifndef EVENKEEL_HOST_PROBOSCIS_RECEIVE_H
#define EVENKEEL_HOST_PROBOSCIS_RECEIVE_H

#include "../base/flow.h"
#include "../base/way.h"
#include "probe_read.h"

static __always_inline void peer_answered(struct context *c)
{
	struct ek_peer *known = bpf_map_lookup_elem(&peers, peer_key(c));
	struct ek_peer fresh = { .report_ns = c->now_ns, .heard_ns = c->now_ns };

	if (known) {
		known->report_ns = c->now_ns;
		known->heard_ns = c->now_ns;
		proboscis_peer_answered(&known->state);
		return;
	}
	if (bpf_map_update_elem(&peers, peer_key(c), &fresh, BPF_ANY))
		count(c->count, EK_COUNT_MAP_FULL, 1);
}

static __always_inline void train_count(struct context *c,
					const struct proboscis_option *o, u32 iss)
{
	struct ek_train *known;
	struct ek_train fresh = { .first_ns = c->now_ns };
	bool marked = c->packet->ecn == PACKET_CE;

	count(c->count, EK_COUNT_PROBES_SEEN, 1);
	if (marked)
		count(c->count, EK_COUNT_PROBES_MARKED, 1);
	known = train_known(c, iss);
	if (known) {
		known->count.asks_back |= proboscis_asks_back(o);
		proboscis_count(&known->count, o->train, o->index, o->total, marked);
		return;
	}
	fresh.count.asks_back = proboscis_asks_back(o);
	proboscis_count(&fresh.count, o->train, o->index, o->total, marked);
	if (bpf_map_update_elem(&trains, c->train, &fresh, BPF_ANY))
		count(c->count, EK_COUNT_MAP_FULL, 1);
}

/*
 * Reads a segment that looks_like_probe(). Return: true if it was a valid probe or
 * report, which is not for the VM.
 */
static __noinline bool probe_receive(struct context *c)
{
	struct proboscis_option o;
	struct ek_handshake *syn;
	u32 iss = 0;

	switch (probe_read(c, &o, &iss)) {
	case PROBE_NONE:
		return false;
	case PROBE_FORGED:
		count(c->count, EK_COUNT_PROBES_INVALID, 1);
		return false;
	case PROBE_VALID:
		break;
	}
	peer_answered(c);
	if (o.type == PROBOSCIS_PROBE) {
		train_count(c, &o, iss);
		return true;
	}
	syn = handshake_known(c, iss, true);
	if (syn)
		syn->reported = 1;
	if (o.type == PROBOSCIS_REPORT)
		count(c->count, EK_COUNT_REPORTS_SEEN, 1);
	else if (syn)
		train_count(c, &o, iss);
	return true;
}

/*
 * A SYN-ACK comes for the first time, behind its probes: they settle how much the VM lets
 * the other end answer at first. The VM has said nothing yet that would be taken back.
 */
static __noinline void answer_begins(struct context *c, struct ek_flow *f)
{
	const struct proboscis_settings *set = &c->port->proboscis.settings;
	struct ek_train *train;
	enum proboscis_verdict verdict;

	if (f->flags & EK_FLOW_ANSWER_BEGUN)
		return;
	f->flags |= EK_FLOW_ANSWER_BEGUN;
	train = set->answers && probes_are_on(c) ? train_known(c, f->iss) : NULL;
	if (!train)
		return;
	f->answer_seen = train->count.seen;
	f->answer_marked = train->count.marked;
	verdict = proboscis_answer_init(&f->answer, &train->count, set,
					flow_segment_bytes(f), c->packet->seq + 1);
	if (verdict != PROBOSCIS_NO_PROBES)
		count(c->count,
		      verdict == PROBOSCIS_SCALED ? EK_COUNT_ANSWERS_SCALED :
						    EK_COUNT_ANSWERS_ONE_MSS,
		      1);
}

static __always_inline bool proboscis_probes_to_vm(struct __sk_buff *skb, struct way *w)
{
	if (looks_like_probe(w->c->packet) && probes_are_on(w->c) && probe_receive(w->c))
		return way_ends(w, TCX_DROP);
	return true;
}

/* The SYN-ACK of a connection that was probed has come, and no report before it. */
static __noinline void peer_silent(struct context *c)
{
	struct ek_peer *peer = peer_known(c);
	struct ek_peer fresh = { .heard_ns = c->now_ns };

	if (peer) {
		proboscis_peer_silent(&peer->state);
		peer->heard_ns = c->now_ns;
		return;
	}
	proboscis_peer_silent(&fresh.state);
	if (bpf_map_update_elem(&peers, peer_key(c), &fresh, BPF_ANY))
		count(c->count, EK_COUNT_MAP_FULL, 1);
}

#endif /* EVENKEEL_HOST_PROBOSCIS_RECEIVE_H */
