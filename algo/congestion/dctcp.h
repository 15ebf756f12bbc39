/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * DCTCP (RFC 8257): the window shrinks by half the share of marked segments.
 */
#ifndef EVENKEEL_ALGO_CONGESTION_DCTCP_H
#define EVENKEEL_ALGO_CONGESTION_DCTCP_H

#include "reno.h"

#define DCTCP_ONE 1024 /* alpha is a fraction of this */
#define DCTCP_SHIFT_G 4 /* g = 1/16 */

/* The sender. */
struct dctcp {
	u32 alpha; /* share of marked segments, averaged */
	u32 acked; /* segments acknowledged in this window of data */
	u32 marked; /* those of them that were marked */
};

/* What a receiver has to do about a segment. */
enum dctcp_ack {
	DCTCP_ACK_AS_USUAL,
	DCTCP_ACK_EARLIER_FIRST, /* acknowledge, with the old echo, what came before */
};

static inline void dctcp_init(struct dctcp *d)
{
	/* The first mark halves the window: nothing is known yet. */
	d->alpha = DCTCP_ONE;
	d->acked = 0;
	d->marked = 0;
}

static inline void dctcp_count(struct dctcp *d, u32 acked, bool echo)
{
	d->acked += acked;
	if (echo)
		d->marked += acked;
}

/* A window of data has been acknowledged. */
static inline void dctcp_window_end(struct dctcp *d)
{
	u32 marked = d->marked < d->acked ? d->marked : d->acked;
	u32 fall = d->alpha >> DCTCP_SHIFT_G;

	/* Below 1/64 the shift would leave it where it is for good. */
	if (!fall)
		fall = d->alpha;
	d->alpha -= fall;
	if (marked)
		d->alpha += (u32)(((u64)marked << (10 - DCTCP_SHIFT_G)) / d->acked);
	if (d->alpha > DCTCP_ONE)
		d->alpha = DCTCP_ONE;
	d->acked = 0;
	d->marked = 0;
}

/* The threshold after a window with marks. */
static inline u32 dctcp_ssthresh(const struct dctcp *d, u32 cwnd)
{
	u32 reduced = cwnd - (u32)((u64)cwnd * d->alpha >> 11);

	return reduced > RENO_MIN_CWND ? reduced : RENO_MIN_CWND;
}

/**
 * dctcp_received() - the receiver's state machine (RFC 8257 Fig. 1)
 * @echo: whether ACKs carry ECE now
 * @ce: whether this segment is marked
 * @ack_pending: an ACK for earlier segments is being delayed
 */
static inline enum dctcp_ack dctcp_received(bool *echo, bool ce, bool ack_pending)
{
	bool changed = *echo != ce;

	/* The caller sends the early ACK with the old state, then asks again. */
	if (changed && ack_pending)
		return DCTCP_ACK_EARLIER_FIRST;
	*echo = ce;
	return DCTCP_ACK_AS_USUAL;
}

#endif /* EVENKEEL_ALGO_CONGESTION_DCTCP_H */
