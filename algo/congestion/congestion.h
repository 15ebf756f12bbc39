/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The host's congestion control: Reno, CUBIC or Vegas behind one interface.
 * eBPF has no calls through pointers, so the kind decides in a switch.
 */
#ifndef EVENKEEL_ALGO_CONGESTION_CONGESTION_H
#define EVENKEEL_ALGO_CONGESTION_CONGESTION_H

#include "cubic.h"
#include "hystart.h"
#include "vegas.h"

enum congestion_kind {
	CONGESTION_RENO,
	CONGESTION_CUBIC,
	CONGESTION_VEGAS,
};

struct congestion {
	struct cubic cubic;
	struct hystart hystart; /* CUBIC's slow start, as in Linux */
	struct vegas vegas;
	struct reno_window window;
	u32 kind; /* enum congestion_kind */
};

static inline void congestion_begin(struct congestion *c, u32 kind, u32 initial_window)
{
	*c = (struct congestion){ 0 };
	c->kind = kind;
	c->window.cwnd = initial_window ? initial_window : 1;
	c->window.ssthresh = ~0u;
}

/* An RTT was measured. */
static inline void congestion_rtt(struct congestion *c, u32 rtt_us)
{
	if (c->kind == CONGESTION_VEGAS)
		vegas_rtt(&c->vegas, rtt_us);
	if (c->kind == CONGESTION_CUBIC)
		hystart_rtt(&c->hystart, rtt_us);
}

/* @acked segments of new data were acknowledged while the window limited the sender. */
static inline void congestion_acked(struct congestion *c, u32 acked,
				    const struct congestion_path *path)
{
	switch (c->kind) {
	case CONGESTION_CUBIC:
		if (path->min_rtt_us && reno_in_slow_start(&c->window))
			hystart_acked(&c->hystart, &c->window, path);
		cubic_acked(&c->cubic, &c->window, acked, path->now_us, path->srtt_us);
		break;
	case CONGESTION_VEGAS:
		vegas_acked(&c->vegas, &c->window, acked, path->round_over);
		break;
	default:
		reno_acked(&c->window, acked);
	}
}

/* A segment was lost: the window falls to the new threshold. */
static inline void congestion_lost(struct congestion *c)
{
	u32 cwnd = c->window.cwnd;

	c->window.ssthresh = c->kind == CONGESTION_CUBIC ?
				     cubic_ssthresh(&c->cubic, cwnd) :
				     reno_ssthresh(cwnd);
	c->window.cwnd = c->window.ssthresh;
	c->window.credit = 0;
}

/* A timeout: slow start begins anew. */
static inline void congestion_timed_out(struct congestion *c)
{
	congestion_lost(c);
	c->window.cwnd = 1;
	if (c->kind == CONGESTION_CUBIC)
		cubic_reset(&c->cubic);
}

/* What a reduction takes away. */
struct congestion_before {
	struct cubic cubic;
	struct reno_window window;
};

static inline void congestion_keep(const struct congestion *c,
				   struct congestion_before *b)
{
	b->cubic = c->cubic;
	b->window = c->window;
}

/* A reduction was for nothing (RFC 4015; RFC 9438 §4.9). */
static inline void congestion_undo(struct congestion *c,
				   const struct congestion_before *b)
{
	if (c->window.cwnd < b->window.cwnd) {
		c->window.cwnd = b->window.cwnd;
		c->cubic = b->cubic;
	}
	if (c->window.ssthresh < b->window.ssthresh)
		c->window.ssthresh = b->window.ssthresh;
}

/*
 * Nothing was sent for longer than a timeout (RFC 5681 §4.1). As in Linux the window
 * halves for each, down to the initial one.
 */
static inline void congestion_idle(struct congestion *c, u64 idle_us, u32 timeout_us,
				   u32 initial_window)
{
	u64 times = timeout_us ? idle_us / timeout_us : 31;
	u32 kept = c->window.cwnd - (c->window.cwnd >> 2);

	if (c->kind == CONGESTION_CUBIC)
		cubic_idle(&c->cubic, idle_us);
	/* As Linux: what the window was is remembered as the threshold. */
	if (kept > c->window.ssthresh)
		c->window.ssthresh = kept;
	kept = c->window.cwnd >> (times < 31 ? (u32)times : 31);
	if (kept < initial_window)
		kept = initial_window;
	if (c->window.cwnd > kept)
		c->window.cwnd = kept ? kept : 1;
}

#endif /* EVENKEEL_ALGO_CONGESTION_CONGESTION_H */
