/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * CUBIC (RFC 9438) in integers. Windows are segments, times microseconds.
 *
 * The cubic function's time is counted in units of 1024 us: with that,
 * C * (t - K)^3 = 0.4 * 0.001024^3 * d^3, and that factor is 472 / 2^40.
 */
#ifndef EVENKEEL_ALGO_CONGESTION_CUBIC_H
#define EVENKEEL_ALGO_CONGESTION_CUBIC_H

#include "reno.h"

#define CUBIC_BETA 717 /* 0.7 of 1024 */
#define CUBIC_CONVERGE 870 /* (1 + beta) / 2 of 1024 */
#define CUBIC_ALPHA 542 /* 3 (1 - beta) / (1 + beta) of 1024 */
#define CUBIC_UNIT_SHIFT 10 /* 1024 us */
#define CUBIC_C 472
#define CUBIC_C_SHIFT 40
#define CUBIC_PER_SEGMENT 2329519759ull /* 2^40 / 472: d^3 for a segment */
#define CUBIC_MAX_UNITS (1u << 18) /* 268 s; its cube times C fits 64 bits */

struct cubic {
	u64 epoch_us; /* when this period of growth began, 0: not yet */
	u64 est_credit; /* part of a segment by which w_est is to grow */
	u32 k; /* units until the window is at w_max again */
	u32 w_max; /* window before the last reduction */
	u32 w_start; /* the plateau of the present period */
	u32 w_est; /* what Reno would have */
};

/*
 * Integer cube root, rounded down. Without a branch in the loop: the
 * kernel's verifier would follow each way through all of its turns.
 */
static inline u32 cubic_root(u64 x)
{
	u64 root = 0, step, short_of;
	int shift;

	for (shift = 63; shift >= 0; shift -= 3) {
		root <<= 1;
		step = 3 * root * (root + 1) + 1;
		/* All ones where x has less than the step. */
		short_of = (u64)((s64)((x >> shift) - step) >> 63);
#if defined(__bpf__)
		/* Or the compiler would make branches of it again. */
		__asm__ volatile("" : "+r"(short_of));
#endif
		x -= (step << shift) & ~short_of;
		root += 1 + short_of;
	}
	return (u32)root;
}

/* The threshold after a loss; remembers where the window was. */
static inline u32 cubic_ssthresh(struct cubic *c, u32 cwnd)
{
	u64 reduced = (u64)cwnd * CUBIC_BETA >> 10;

	c->epoch_us = 0;
	/* Fast convergence: a flow that did not get back to where it was leaves room. */
	c->w_max = cwnd < c->w_max ? (u32)((u64)cwnd * CUBIC_CONVERGE >> 10) : cwnd;
	return reduced > RENO_MIN_CWND ? (u32)reduced : RENO_MIN_CWND;
}

/* After a timeout, growth begins anew. */
static inline void cubic_reset(struct cubic *c)
{
	c->epoch_us = 0;
	c->w_max = 0;
}

/* Time in which nothing was sent does not count. */
static inline void cubic_idle(struct cubic *c, u64 idle_us)
{
	if (c->epoch_us)
		c->epoch_us += idle_us;
}

/* The cubic function, @units after the period's begin. */
static inline u32 cubic_window(const struct cubic *c, u64 units)
{
	u64 distance = units < c->k ? c->k - units : units - c->k;
	u64 delta;

	if (distance >= CUBIC_MAX_UNITS)
		distance = CUBIC_MAX_UNITS - 1;
	delta = CUBIC_C * distance * distance * distance >> CUBIC_C_SHIFT;
	if (units >= c->k)
		return c->w_start + delta < RENO_MAX_CWND ? c->w_start + (u32)delta :
							    RENO_MAX_CWND;
	return delta < c->w_start ? c->w_start - (u32)delta : 0;
}

static inline void cubic_begin(struct cubic *c, u64 now_us, u32 cwnd)
{
	u64 gap = c->w_max > cwnd ? c->w_max - cwnd : 0;

	c->epoch_us = now_us ? now_us : 1;
	c->est_credit = 0;
	c->w_est = cwnd;
	c->k = cubic_root(gap * CUBIC_PER_SEGMENT);
	c->w_start = gap ? c->w_max : cwnd;
}

/* Segments to be acknowledged for one segment of growth. */
static inline u32 cubic_per(const struct cubic *c, u64 now_us, u32 cwnd, u32 srtt_us)
{
	u64 since_us = now_us > c->epoch_us ? now_us - c->epoch_us : 0;
	u32 target = cubic_window(c, (since_us + srtt_us) >> CUBIC_UNIT_SHIFT);
	u32 limit = cwnd + (cwnd >> 1);

	if (target > limit)
		target = limit;
	/* The plateau: RFC 9438 adds nothing, a trickle finds free capacity. */
	return target > cwnd ? cwnd / (target - cwnd) : 100 * cwnd;
}

/**
 * cubic_acked() - new data was acknowledged while the window limited the sender
 * @acked: segments
 * @srtt_us: smoothed RTT
 */
static inline void cubic_acked(struct cubic *c, struct reno_window *w, u32 acked,
			       u64 now_us, u32 srtt_us)
{
	u64 per_segment, steps;
	u32 per;

	if (reno_in_slow_start(w)) {
		acked = reno_slow_start(w, acked);
		if (!acked)
			return;
	}
	if (!c->epoch_us)
		cubic_begin(c, now_us, w->cwnd);

	c->est_credit += (u64)acked * (c->w_est < c->w_max ? CUBIC_ALPHA : 1024);
	per_segment = (u64)(w->cwnd ? w->cwnd : 1) << 10;
	steps = c->est_credit / per_segment;
	c->est_credit -= steps * per_segment;
	c->w_est = c->w_est + steps < RENO_MAX_CWND ? c->w_est + (u32)steps :
						      RENO_MAX_CWND;

	per = cubic_per(c, now_us, w->cwnd, srtt_us);
	/* Where Reno would be faster, keep up with it. */
	if (c->w_est > w->cwnd && w->cwnd / (c->w_est - w->cwnd) < per)
		per = w->cwnd / (c->w_est - w->cwnd);
	/* Half a segment per segment at most, whatever the RTT's jumps. */
	reno_grow(w, per > 2 ? per : 2, acked);
}

#endif /* EVENKEEL_ALGO_CONGESTION_CUBIC_H */
