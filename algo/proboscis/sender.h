/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* ProBoSCIS on the sender's host: probes, SYNs sent again, DCTCP's window (ProBoSCIS
 * Algorithm 1). */
#ifndef EVENKEEL_ALGO_PROBOSCIS_SENDER_H
#define EVENKEEL_ALGO_PROBOSCIS_SENDER_H

#include "../base/seq.h"
#include "../base/window.h"
#include "../congestion/dctcp.h"
#include "settings.h"

/**
 * proboscis_budget() - may a host send @probes for a VM?
 * @state_ns: the VM's budget, 0 at first; time until which it is spent
 *
 * A SYN flood must not become a flood of probes.
 *
 * Return: the new state, or 0 if the budget is used up.
 */
static inline u64 proboscis_budget(const struct proboscis_settings *set, u64 state_ns,
				   u64 now_ns, u32 probes)
{
	u64 spent_ns = state_ns > now_ns ? state_ns : now_ns;
	u64 burst_ns;

	if (!set->budget_probes_per_s)
		return 0;
	burst_ns = set->budget_burst_probes * 1000000000ull / set->budget_probes_per_s;
	spent_ns += probes * 1000000000ull / set->budget_probes_per_s;
	return spent_ns - now_ns <= burst_ns ? spent_ns : 0;
}

/**
 * proboscis_train_length() - how many probes of a train to send
 * @state_ns: the VM's, 0 at first; time until which its trains are on their way
 * @probes: as many as are wanted
 *
 * Ports count packets: a burst of connections would fill a port with probes, and lose the
 * SYNs behind them. So the trains of the last b1, the time for which probes are awaited,
 * share two full trains: each gets half of what is left.
 */
static inline u32 proboscis_train_length(const struct proboscis_settings *set,
					 u64 *state_ns, u64 now_ns, u32 probes)
{
	u64 share = 2ull * set->probes;
	u64 span_ns = set->b1_us * 1000ull;
	u64 until_ns = *state_ns > now_ns ? *state_ns : now_ns;
	u64 under_way, most;

	if (!share || !span_ns)
		return probes;
	under_way = (until_ns - now_ns) * share / span_ns;
	most = under_way < share ? (share - under_way) / 2 : 0;
	if (most < PROBOSCIS_LEAST_PROBES)
		most = PROBOSCIS_LEAST_PROBES;
	if (probes > most)
		probes = (u32)most;
	until_ns += probes * span_ns / share;
	*state_ns = until_ns < now_ns + span_ns ? until_ns : now_ns + span_ns;
	return probes;
}

/* What a remote host has made of probes so far. */
struct proboscis_peer {
	u32 unanswered; /* handshakes since the last answer */
	u32 spared; /* SYNs without probes since the last with */
};

static inline void proboscis_peer_answered(struct proboscis_peer *p)
{
	p->unanswered = 0;
	p->spared = 0;
}

static inline void proboscis_peer_silent(struct proboscis_peer *p)
{
	if (p->unanswered < PROBOSCIS_MAX_SILENT)
		p->unanswered++;
}

/* Much time has passed: a silent peer is probed once more. */
static inline void proboscis_peer_forget(struct proboscis_peer *p)
{
	if (p->unanswered >= PROBOSCIS_MAX_SILENT)
		p->unanswered = PROBOSCIS_MAX_SILENT - 1;
	p->spared = 0;
}

/* Is it worthwhile to probe? Hosts without evenkeel are probed seldom. */
static inline bool proboscis_peer_probe(struct proboscis_peer *p)
{
	if (p->unanswered < PROBOSCIS_MAX_SILENT)
		return true;
	if (++p->spared < PROBOSCIS_SELDOM)
		return false;
	p->spared = 0;
	return true;
}

/* A SYN that is waiting for its SYN-ACK. */
struct proboscis_pending {
	u64 syn_us; /* when the SYN was first sent */
	u64 probes_us; /* when probes were last sent */
	u64 last_syn_us; /* when the SYN was last sent */
	u32 probe_retries;
	u32 syn_retries;
	u32 is_stranger; /* the peer was never heard of: it may be far, and without
			    evenkeel */
	u32 pad;
};

/*
 * What a SYN's timer says (ProBoSCIS Algorithm 1):
 *
 *              b1 since the last probes
 *     WAIT ---------------------------------> RESEND_PROBES --+
 *      ^  |    b2 since the last SYN                          |
 *      |  +---------------------------------> RESEND_BOTH ----+
 *      |                                                      |
 *      +------------------------------------------------------+
 *
 * GIVE_UP: MAX_TIME since the first SYN, or a stranger's SYN was sent again.
 */
enum proboscis_resend {
	PROBOSCIS_WAIT,
	PROBOSCIS_RESEND_PROBES,
	PROBOSCIS_RESEND_BOTH, /* probes, then the SYN */
	PROBOSCIS_GIVE_UP,
};

static inline void proboscis_pending_init(struct proboscis_pending *p, u64 now_us,
					  bool is_stranger)
{
	p->syn_us = now_us;
	p->probes_us = now_us;
	p->last_syn_us = now_us;
	p->probe_retries = 0;
	p->syn_retries = 0;
	p->is_stranger = is_stranger;
	p->pad = 0;
}

/**
 * proboscis_expire() - the timer of ProBoSCIS Algorithm 1, lines 22 to 37
 * @probes: how many to send
 *
 * As printed, b2 is tested only if b1 has not passed. With b1 < b2 it always has: the SYN
 * would never be sent again. Here b2 is tested first. A stranger is sent both once more,
 * after b2, and nothing else.
 */
static inline enum proboscis_resend proboscis_expire(struct proboscis_pending *p,
						     const struct proboscis_settings *set,
						     u64 now_us, u32 *probes)
{
	bool syn_due = now_us >= p->last_syn_us + set->b2_us;

	*probes = 0;
	if (now_us > p->syn_us + set->max_time_us || (p->is_stranger && p->syn_retries))
		return PROBOSCIS_GIVE_UP;
	if (!syn_due && (p->is_stranger || now_us < p->probes_us + set->b1_us))
		return PROBOSCIS_WAIT;
	p->probe_retries++;
	p->probes_us = now_us;
	*probes = set->probes * p->probe_retries;
	if (p->probe_retries > PROBOSCIS_MAX_PROBES || *probes > PROBOSCIS_MAX_PROBES)
		*probes = PROBOSCIS_MAX_PROBES;
	if (!syn_due)
		return PROBOSCIS_RESEND_PROBES;
	p->syn_retries++;
	p->last_syn_us = now_us;
	return PROBOSCIS_RESEND_BOTH;
}

/* When proboscis_expire() is to be called next. */
static inline u64 proboscis_due_us(const struct proboscis_pending *p,
				   const struct proboscis_settings *set)
{
	u64 probes_us = p->probes_us + set->b1_us;
	u64 syn_us = p->last_syn_us + set->b2_us;
	u64 end_us = p->syn_us + set->max_time_us + 1;
	u64 due_us = probes_us < syn_us && !p->is_stranger ? probes_us : syn_us;

	return due_us < end_us ? due_us : end_us;
}

/* DCTCP for one direction of a flow, from what passes the sender's host. */
struct proboscis_sender {
	struct dctcp dctcp; /* counts bytes */
	u32 snd_nxt; /* end of what was sent */
	u32 snd_una; /* highest acknowledgement */
	u32 window_end; /* alpha is updated when this is acknowledged */
	u32 peak_bytes; /* largest flight in this window of data */
	u32 limit_bytes; /* 0: none */
	u32 cut_end; /* end of what was sent when the limit was last lowered */
	u32 cutting; /* and not all of that is acknowledged */
};

static inline void proboscis_sender_init(struct proboscis_sender *s, u32 seq)
{
	dctcp_init(&s->dctcp);
	s->snd_nxt = seq;
	s->snd_una = seq;
	s->window_end = seq;
	s->peak_bytes = 0;
	s->limit_bytes = 0;
	s->cut_end = seq;
	s->cutting = 0;
}

/* What was sent beyond an ACK; 0 if that makes no sense. */
static inline u32 proboscis_in_flight(const struct proboscis_sender *s, u32 ack)
{
	return seq_after(s->snd_nxt, ack) ? s->snd_nxt - ack : 0;
}

/* An ACK of a flow that DCTCP does not act for. */
static inline void proboscis_acked_by_others(struct proboscis_sender *s, u32 ack)
{
	if (seq_after(ack, s->snd_una) && !seq_after(ack, s->snd_nxt))
		s->snd_una = ack;
}

/* A segment that ends before @end leaves. Return: bytes that are new. */
static inline u32 proboscis_sent(struct proboscis_sender *s, u32 end)
{
	u32 fresh;

	if (!seq_after(end, s->snd_nxt))
		return 0;
	fresh = end - s->snd_nxt;
	/* The first segment after all was acknowledged begins a window of data. */
	if (s->snd_una == s->snd_nxt)
		s->window_end = end;
	s->snd_nxt = end;
	if (s->snd_nxt - s->snd_una > s->peak_bytes)
		s->peak_bytes = s->snd_nxt - s->snd_una;
	return fresh;
}

/*
 * A mark was echoed: DCTCP lowers the window at the first mark, by its present alpha, and
 * once for all that is in flight then. Waiting for the window's end would let slow start
 * double once more.
 */
static inline void proboscis_cut(struct proboscis_sender *s,
				 const struct proboscis_settings *set, u32 mss)
{
	u32 least = RENO_MIN_CWND * mss;
	u32 base = s->peak_bytes;

	if (s->limit_bytes && s->limit_bytes < base)
		base = s->limit_bytes;
	if (s->cutting || (u64)s->dctcp.alpha * 1000 < (u64)set->k1_permille * DCTCP_ONE)
		return;
	s->limit_bytes = base - (u32)((u64)base * s->dctcp.alpha >> 11);
	if (s->limit_bytes < least)
		s->limit_bytes = least;
	s->cut_end = s->snd_nxt;
	s->cutting = 1;
}

/*
 * A window of data without marks: the limit grows by one segment, as in DCTCP. Once alpha
 * is below k1 it grows by half, and ends when the VM fills less than half of it: a limit
 * that ended at once would let out all that the VM's own window has grown by meanwhile.
 */
static inline void proboscis_grow(struct proboscis_sender *s, bool is_calm, u32 mss)
{
	u32 more = mss;

	if (is_calm && s->limit_bytes / 2 > more)
		more = s->limit_bytes / 2;
	s->limit_bytes += more;
	if ((is_calm && s->limit_bytes / 2 > s->peak_bytes) || s->limit_bytes > 1u << 30)
		s->limit_bytes = 0;
}

/* A window of data has been acknowledged. */
static inline void proboscis_window_end(struct proboscis_sender *s,
					const struct proboscis_settings *set, u32 mss)
{
	bool marked = s->dctcp.marked != 0;

	dctcp_window_end(&s->dctcp);
	if (!marked && s->limit_bytes)
		proboscis_grow(s,
			       (u64)s->dctcp.alpha * 1000 <
				       (u64)set->k1_permille * DCTCP_ONE,
			       mss);
	s->window_end = s->snd_nxt;
	s->peak_bytes = s->snd_nxt - s->snd_una;
}

/**
 * proboscis_acked() - an ACK for what the VM has sent
 * @echo: it carries the receiver's host's echo of marks
 *
 * Return: the limit to the VM's window, 0 if there is none.
 */
static __always_inline u32 proboscis_acked(struct proboscis_sender *s,
					   const struct proboscis_settings *set, u32 ack,
					   bool echo, u32 mss)
{
	/* Beyond what was seen to be sent: a forgery, or packets took another way. */
	if (seq_after(ack, s->snd_nxt) || !seq_after(ack, s->snd_una))
		return s->limit_bytes;
	dctcp_count(&s->dctcp, ack - s->snd_una, echo);
	s->snd_una = ack;
	if (!seq_before(ack, s->cut_end))
		s->cutting = 0;
	if (echo)
		proboscis_cut(s, set, mss);
	if (!seq_before(ack, s->window_end))
		proboscis_window_end(s, set, mss);
	return s->limit_bytes;
}

/*
 * A limit that is still two segments when rounded down to the scale of the window field
 * that tells the VM: with less, the VM sends one segment and waits.
 */
static inline u32 proboscis_limit(u32 limit_bytes, u32 mss, u8 scale)
{
	u32 least = window_with_room(RENO_MIN_CWND * mss, scale);

	return !limit_bytes || limit_bytes >= least ? limit_bytes : least;
}

#endif /* EVENKEEL_ALGO_PROBOSCIS_SENDER_H */
