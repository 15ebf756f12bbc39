/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * HyStart with Linux's parameters (tcp_cubic.c): slow start ends before it loses
 * segments, when the ACKs of a round trip come one after the other for as long as half of
 * the least RTT, or when the RTT rises.
 *
 * Times are the low 32 bits of microseconds.
 */
#ifndef EVENKEEL_ALGO_CONGESTION_HYSTART_H
#define EVENKEEL_ALGO_CONGESTION_HYSTART_H

#include "reno.h"

#define HYSTART_LOW_WINDOW 16 /* segments; smaller windows go on */
#define HYSTART_ACK_DELTA_US 2000 /* between two ACKs of a train */
#define HYSTART_SAMPLES 8 /* of a round trip's RTTs count */
#define HYSTART_DELAY_MIN_US 4000
#define HYSTART_DELAY_MAX_US 16000
/* By how much a pacing sender's burst may spread its ACKs: four GSO packets, of 64 KiB at
 * an MSS of 1448, at the rate of two windows in an RTT. */
#define HYSTART_BURST_SEGMENTS 181
#define HYSTART_BURST_MAX_US 1000

struct hystart {
	u32 round_us; /* when the round trip began */
	u32 last_ack_us; /* last ACK of the train */
	u32 rtt_us; /* least RTT of the round trip */
	u16 samples;
	bool is_over; /* the next ACK begins a round trip */
};

/* An RTT was measured. */
static inline void hystart_rtt(struct hystart *h, u32 rtt_us)
{
	if (h->samples >= HYSTART_SAMPLES)
		return;
	if (!h->samples || rtt_us < h->rtt_us)
		h->rtt_us = rtt_us;
	h->samples++;
}

/* Have the ACKs of this round trip come for so long that the window fills the path? */
static inline bool hystart_is_train(struct hystart *h, u32 cwnd, u32 now_us, u32 srtt_us,
				    u32 min_rtt_us)
{
	u64 burst_us = (u64)HYSTART_BURST_SEGMENTS * srtt_us / (2 * (u64)cwnd);

	if (now_us - h->last_ack_us > HYSTART_ACK_DELTA_US)
		return false;
	h->last_ack_us = now_us;
	if (burst_us > HYSTART_BURST_MAX_US)
		burst_us = HYSTART_BURST_MAX_US;
	return now_us - h->round_us > (min_rtt_us + (u32)burst_us) / 2;
}

/* Has the RTT risen by an eighth, and by more than chance may cause? */
static inline bool hystart_is_slower(const struct hystart *h, u32 min_rtt_us)
{
	u32 more_us = min_rtt_us / 8;

	if (more_us < HYSTART_DELAY_MIN_US)
		more_us = HYSTART_DELAY_MIN_US;
	if (more_us > HYSTART_DELAY_MAX_US)
		more_us = HYSTART_DELAY_MAX_US;
	return h->rtt_us > min_rtt_us + more_us;
}

/* What is known of the path when new data is acknowledged. */
struct congestion_path {
	u64 now_us;
	u32 srtt_us; /* smoothed RTT */
	u32 min_rtt_us; /* least RTT; 0: slow start goes on until there is a loss */
	bool round_over; /* a round trip has passed since this was last true */
};

/* New data was acknowledged in slow start: ends it where the path is full. */
static inline void hystart_acked(struct hystart *h, struct reno_window *w,
				 const struct congestion_path *path)
{
	bool round_over = path->round_over;
	u64 now_us = path->now_us;
	/* A round trip with fewer RTTs is judged at its end, by those it has. */
	bool is_sampled = h->samples >= HYSTART_SAMPLES || (round_over && h->samples);
	bool is_slower = is_sampled && hystart_is_slower(h, path->min_rtt_us);
	bool is_train;

	/* The ACK that ends a round trip is the last of its train. */
	if (h->is_over) {
		h->round_us = (u32)now_us;
		h->last_ack_us = (u32)now_us;
	}
	if (round_over)
		h->samples = 0;
	h->is_over = round_over;
	is_train = hystart_is_train(h, w->cwnd, (u32)now_us, path->srtt_us,
				    path->min_rtt_us);
	if (w->cwnd >= HYSTART_LOW_WINDOW && (is_train || is_slower))
		w->ssthresh = w->cwnd;
}

#endif /* EVENKEEL_ALGO_CONGESTION_HYSTART_H */
