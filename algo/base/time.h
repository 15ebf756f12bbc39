/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Times that several CPUs note. Their clocks agree, but a CPU may act on a time that it
 * read before another noted a later one: by up to a tick, as a packet's time may be.
 */
#ifndef EVENKEEL_ALGO_BASE_TIME_H
#define EVENKEEL_ALGO_BASE_TIME_H

#include "types.h"

/* @now - @then in their common unit; 0 if @then is later. */
static inline u64 time_since(u64 now, u64 then)
{
	return now > then ? now - then : 0;
}

#endif /* EVENKEEL_ALGO_BASE_TIME_H */
