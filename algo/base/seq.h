/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Order of TCP sequence numbers, which wrap (RFC 9293 §3.4).
 */
#ifndef EVENKEEL_ALGO_BASE_SEQ_H
#define EVENKEEL_ALGO_BASE_SEQ_H

#include "types.h"

/* Is @a before @b? Both must lie within 2^31 of each other. */
static inline bool seq_before(u32 a, u32 b)
{
	return a - b > 0x80000000u;
}

static inline bool seq_after(u32 a, u32 b)
{
	return seq_before(b, a);
}

/* Is @seq in the half-open range from @start to @end? */
static inline bool seq_within(u32 seq, u32 start, u32 end)
{
	return seq - start < end - start;
}

static inline u32 seq_max(u32 a, u32 b)
{
	return seq_before(a, b) ? b : a;
}

#endif /* EVENKEEL_ALGO_BASE_SEQ_H */
