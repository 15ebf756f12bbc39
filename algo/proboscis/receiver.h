/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* ProBoSCIS on the receiver's host: the first window, echoes of marks (ProBoSCIS
 * Algorithm 2). */
#ifndef EVENKEEL_ALGO_PROBOSCIS_RECEIVER_H
#define EVENKEEL_ALGO_PROBOSCIS_RECEIVER_H

#include "../base/seq.h"
#include "../base/window.h"
#include "settings.h"

/* What came of a train of probes. */
struct proboscis_train {
	u64 indexes; /* which, a bit each */
	u8 number; /* a SYN's first train has 0 */
	u8 total; /* how many were sent */
	u8 seen;
	u8 marked;
	u8 asks_back; /* the SYN-ACK is to have probes, too */
	u8 pad[3];
};

/*
 * A probe came. Only the latest train counts, and each of its probes once.
 *
 * Return: whether it counted.
 */
static inline bool proboscis_count(struct proboscis_train *t, u8 number, u8 index,
				   u8 total, bool marked)
{
	if (!total || total > PROBOSCIS_MAX_PROBES || index >= total)
		return false;
	if (t->total && number < t->number)
		return false;
	if (!t->total || number > t->number) {
		t->indexes = 0;
		t->number = number;
		t->total = total;
		t->seen = 0;
		t->marked = 0;
	}
	if (total != t->total || t->indexes >> index & 1)
		return false;
	t->indexes |= 1ull << index;
	t->seen++;
	t->marked += marked;
	return true;
}

/* Does a SYN-ACK have to wait for late probes? */
static inline bool proboscis_synack_waits(const struct proboscis_train *t,
					  const struct proboscis_settings *set,
					  u64 since_syn_us)
{
	return t->seen && t->seen < t->total && since_syn_us < set->b3_us;
}

enum proboscis_verdict {
	PROBOSCIS_NO_PROBES, /* the window is the VM's own */
	PROBOSCIS_SCALED, /* by the share of probes without a mark */
	PROBOSCIS_ONE_MSS, /* too many were lost or marked */
};

/**
 * proboscis_first_window() - ProBoSCIS Algorithm 2, lines 18 to 21
 * @mss: bytes that the opener puts into a segment
 * @bytes: the limit to the SYN-ACK's window
 *
 * Line 19 prints min(1 MSS, b * ICWND): never more than one MSS, and growing
 * with congestion. The text says what is meant: max(1 MSS, (1 - b) * ICWND).
 * The result is a whole number of segments, so that none is cut short.
 */
static inline enum proboscis_verdict
proboscis_first_window(const struct proboscis_train *t,
		       const struct proboscis_settings *set, u32 mss, u32 *bytes)
{
	u32 segments;

	*bytes = 0;
	if (!t->seen)
		return PROBOSCIS_NO_PROBES;
	*bytes = mss;
	if ((u32)t->seen * 100 < (u32)t->total * set->k_percent)
		return PROBOSCIS_ONE_MSS;
	if ((u32)t->marked * 1000 > (u32)t->seen * set->k2_permille)
		return PROBOSCIS_ONE_MSS;
	segments = (u32)((u64)(t->seen - t->marked) * set->icwnd_segments / t->seen);
	if (segments > 1)
		*bytes = segments * mss;
	return PROBOSCIS_SCALED;
}

/**
 * proboscis_answer_probes() - how many probes go ahead of a SYN-ACK
 * @t: what came of those ahead of its SYN
 *
 * None unless this SYN's host has asked for them in a probe that only it can sign, and
 * never more than came from there: an unsigned SYN causes no probes.
 */
static inline u32 proboscis_answer_probes(const struct proboscis_train *t,
					  const struct proboscis_settings *set)
{
	if (!set->answers || !t->asks_back)
		return 0;
	return t->seen < set->probes ? t->seen : set->probes;
}

/* The first flight of an answer, by the probes that came ahead of the SYN-ACK. */
struct proboscis_answer {
	u32 first_ack; /* that the opener acknowledges before the answer's first byte */
	u32 limit_bytes; /* to the window of such ACKs, 0: none, and never again */
};

/* The SYN-ACK comes for the first time: nothing is in flight yet. */
static inline enum proboscis_verdict
proboscis_answer_init(struct proboscis_answer *a, const struct proboscis_train *t,
		      const struct proboscis_settings *set, u32 mss, u32 first_ack)
{
	a->first_ack = first_ack;
	return proboscis_first_window(t, set, mss, &a->limit_bytes);
}

/**
 * proboscis_answer_limit() - the limit to the window of an ACK that the opener sends
 *
 * All ACKs before the answer's first byte have the same edge, and later ones the VM's
 * own: what was offered once is not taken back. The limit has room for its segments when
 * it is rounded down to the scale.
 *
 * Return: bytes, 0: none.
 */
static inline u32 proboscis_answer_limit(struct proboscis_answer *a, u32 ack, u8 scale)
{
	if (ack != a->first_ack)
		a->limit_bytes = 0;
	return a->limit_bytes ? window_with_room(a->limit_bytes, scale) : 0;
}

/* Marks that came for a guest without ECN, to be echoed in its ACKs. */
struct proboscis_echo {
	u32 acked; /* highest acknowledgement that the VM sent */
	s32 owed_bytes; /* marked and not yet echoed; below 0: echoed too much */
};

#define PROBOSCIS_MAX_OWED (1 << 28)

static inline void proboscis_echo_init(struct proboscis_echo *e, u32 ack)
{
	e->acked = ack;
	e->owed_bytes = 0;
}

/* A marked segment came. */
static inline void proboscis_marked(struct proboscis_echo *e, u32 bytes)
{
	if (bytes < PROBOSCIS_MAX_OWED && e->owed_bytes < PROBOSCIS_MAX_OWED)
		e->owed_bytes += (s32)bytes;
}

/*
 * The VM sends an ACK. One bit stands for all that it acknowledges: it is set
 * if most of that is owed, and the rest is carried over, so that the bytes
 * echoed are those marked, however the VM delays its ACKs (the state machine of
 * RFC 8257 needs an ACK at each change, which a host cannot make its VM send).
 */
static inline bool proboscis_echo(struct proboscis_echo *e, u32 ack)
{
	u32 covered = ack - e->acked;

	if (!seq_after(ack, e->acked) || covered >= PROBOSCIS_MAX_OWED)
		return false;
	e->acked = ack;
	if (e->owed_bytes <= 0 || (u64)e->owed_bytes * 2 < covered)
		return false;
	e->owed_bytes -= (s32)covered;
	return true;
}

#endif /* EVENKEEL_ALGO_PROBOSCIS_RECEIVER_H */
