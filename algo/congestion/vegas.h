/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * TCP Vegas in integers, with Linux's parameters: once a round trip the window is moved
 * so that between alpha and beta segments wait in queues.
 */
#ifndef EVENKEEL_ALGO_CONGESTION_VEGAS_H
#define EVENKEEL_ALGO_CONGESTION_VEGAS_H

#include "reno.h"

#define VEGAS_ALPHA 2
#define VEGAS_BETA 4
#define VEGAS_GAMMA 1

struct vegas {
	u32 base_rtt_us; /* shortest RTT ever seen, 0: none yet */
	u32 round_rtt_us; /* shortest of this round trip, 0: none yet */
};

static inline void vegas_rtt(struct vegas *v, u32 rtt_us)
{
	if (!rtt_us)
		rtt_us = 1;
	if (!v->base_rtt_us || rtt_us < v->base_rtt_us)
		v->base_rtt_us = rtt_us;
	if (!v->round_rtt_us || rtt_us < v->round_rtt_us)
		v->round_rtt_us = rtt_us;
}

/**
 * vegas_acked() - new data was acknowledged while the window limited the sender
 * @acked: segments
 * @round_over: what was outstanding at the end of the last round trip is acknowledged
 */
static inline void vegas_acked(struct vegas *v, struct reno_window *w, u32 acked,
			       bool round_over)
{
	u64 waiting, target;
	u32 rtt = v->round_rtt_us;

	if (!round_over) {
		if (reno_in_slow_start(w))
			reno_slow_start(w, acked);
		return;
	}
	v->round_rtt_us = 0;
	if (!rtt) {
		/* Nothing was measured in this round trip. */
		reno_acked(w, acked);
		return;
	}
	waiting = (u64)w->cwnd * (rtt - v->base_rtt_us) / v->base_rtt_us;
	if (reno_in_slow_start(w)) {
		if (waiting <= VEGAS_GAMMA) {
			reno_slow_start(w, acked);
			return;
		}
		target = (u64)w->cwnd * v->base_rtt_us / rtt + 1;
		if (target < w->cwnd)
			w->cwnd = (u32)target;
		if (w->cwnd < RENO_MIN_CWND)
			w->cwnd = RENO_MIN_CWND;
		w->ssthresh = w->cwnd;
	} else if (waiting > VEGAS_BETA) {
		if (w->cwnd > RENO_MIN_CWND)
			w->cwnd--;
		/* Or the next ACK would be slow start's. */
		if (w->ssthresh > w->cwnd)
			w->ssthresh = w->cwnd;
	} else if (waiting < VEGAS_ALPHA && w->cwnd < RENO_MAX_CWND) {
		w->cwnd++;
	}
}

#endif /* EVENKEEL_ALGO_CONGESTION_VEGAS_H */
