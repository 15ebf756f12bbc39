/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The window of TCP Reno (RFC 5681), in segments, which CUBIC and DCTCP share.
 */
#ifndef EVENKEEL_ALGO_CONGESTION_RENO_H
#define EVENKEEL_ALGO_CONGESTION_RENO_H

#include "../base/types.h"

#define RENO_MIN_CWND 2
#define RENO_MAX_CWND (1u << 24)

struct reno_window {
	u32 cwnd; /* congestion window */
	u32 ssthresh; /* slow-start threshold */
	u32 credit; /* acknowledged segments that have not yet made it grow */
};

static inline bool reno_in_slow_start(const struct reno_window *w)
{
	return w->cwnd < w->ssthresh;
}

/* The threshold after a loss. */
static inline u32 reno_ssthresh(u32 cwnd)
{
	return cwnd / 2 > RENO_MIN_CWND ? cwnd / 2 : RENO_MIN_CWND;
}

/*
 * Slow start: a segment for each that was acknowledged, up to the threshold.
 *
 * Return: the segments that are left for congestion avoidance.
 */
static inline u32 reno_slow_start(struct reno_window *w, u32 acked)
{
	u32 end = w->ssthresh < RENO_MAX_CWND ? w->ssthresh : RENO_MAX_CWND;
	u32 room = end > w->cwnd ? end - w->cwnd : 0;
	u32 used = acked < room ? acked : room;

	w->cwnd += used;
	return acked - used;
}

/* One segment for each @per acknowledged ones. */
static inline void reno_grow(struct reno_window *w, u32 per, u32 acked)
{
	u32 steps;

	if (!per)
		per = 1;
	/* Credit that was saved up at a slower rate counts for one step. */
	if (w->credit >= per) {
		w->credit = 0;
		w->cwnd++;
	}
	w->credit += acked < RENO_MAX_CWND ? acked : RENO_MAX_CWND;
	steps = w->credit / per;
	w->credit -= steps * per;
	w->cwnd += steps;
	if (w->cwnd > RENO_MAX_CWND)
		w->cwnd = RENO_MAX_CWND;
}

/**
 * reno_acked() - new data was acknowledged while the window limited the sender
 * @acked: segments
 */
static inline void reno_acked(struct reno_window *w, u32 acked)
{
	if (reno_in_slow_start(w)) {
		acked = reno_slow_start(w, acked);
		if (!acked)
			return;
	}
	reno_grow(w, w->cwnd, acked);
}

#endif /* EVENKEEL_ALGO_CONGESTION_RENO_H */
