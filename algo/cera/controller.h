/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* CERA: one window for the host, when an epoch ends (CERA eq. 1). */
#ifndef EVENKEEL_ALGO_CERA_CONTROLLER_H
#define EVENKEEL_ALGO_CERA_CONTROLLER_H

#include "settings.h"

/**
 * cera_window() - d * C / S + T_l
 * @bytes_per_s: C
 * @rtt_us: d, without the time in the queue
 *
 * Return: segments in flight that keep the link busy and T_l of them waiting.
 */
static inline u32 cera_window(const struct cera_settings *set, u64 bytes_per_s,
			      u32 rtt_us)
{
	u64 segments;

	if (bytes_per_s > CERA_MAX_RATE)
		bytes_per_s = CERA_MAX_RATE;
	if (rtt_us > CERA_MAX_RTT_US)
		rtt_us = CERA_MAX_RTT_US;
	segments = bytes_per_s * rtt_us / 1000000 /
		   (set->segment_bytes ? set->segment_bytes : 1);
	segments += set->low_segments;
	return segments < CERA_MAX_WINDOW ? (u32)segments : CERA_MAX_WINDOW;
}

/*
 * What is to be done at the end of an epoch:
 *
 *              q > T_u           q <= T_u
 *     FREE ------------> CUT ----------------> GROW ---+
 *      ^                  ^  <----------------  |  ^   | q <= T_u
 *      |                         q > T_u        |  +---+
 *      +----------------------------------------+
 *           windows are CERA_RELEASE times W
 */
enum cera_verdict {
	CERA_FREE, /* nothing: no VM has a limit */
	CERA_GROW, /* limits grow; guests' own windows do so by themselves */
	CERA_CUT, /* all windows are to be set */
};

struct cera_controller {
	u64 credit; /* of segments that have not yet made limits grow: in segments times
		       us */
	u32 extra; /* segments by which limits have grown since the last cut */
	u32 per_rtt; /* by how many they may grow in an RTT, from cera_divide() */
	u32 engaged; /* there was a cut, and limits have not outgrown it */
	u32 phase; /* where the VMs' remainders go on, in 2^20ths of a segment */
	u32 since_us; /* since remainders have gone on */
	u32 turned; /* remainders go on in this epoch */
};

/*
 * Remainders move on once in an RTT. A flow's next ACK is as far away: a flow that had
 * the extra segment only between two ACKs could never use it.
 */
static inline void cera_phase(struct cera_controller *c, u32 epoch_us, u32 rtt_us)
{
	u64 since = (u64)c->since_us + epoch_us;

	c->turned = since >= rtt_us;
	c->since_us = c->turned ? 0 : (u32)since;
	/* The golden section: any few phases in a row are far from each other. */
	if (c->turned)
		c->phase = (c->phase + CERA_PHASE_STEP) & (CERA_PHASES - 1);
}

/**
 * cera_epoch() - an epoch has ended
 * @queue_bytes: q, what waits at the uplink
 * @rtt_us: d and the time in the queue
 * @window: W of CERA eq. 1, in segments
 *
 * The paper says what happens when q > T_u. Otherwise a flow's own algorithm goes on. A
 * limit that the host writes into ACKs must grow likewise, or guests would be held down
 * for ever, or let go all at once. So the sum of all windows grows until it limits
 * nothing any more: in an RTT by no more than the room up to T_u, and than cera_divide()
 * has found.
 */
static inline enum cera_verdict cera_epoch(struct cera_controller *c,
					   const struct cera_settings *set,
					   u64 queue_bytes, u32 rtt_us, u32 window)
{
	u64 high_bytes = (u64)set->high_segments * set->segment_bytes;
	u64 grown, room, step;

	cera_phase(c, set->epoch_us, rtt_us);
	if (queue_bytes > high_bytes) {
		c->engaged = 1;
		c->extra = 0;
		c->credit = 0;
		return CERA_CUT;
	}
	if (!c->engaged)
		return CERA_FREE;
	if (!rtt_us)
		rtt_us = 1;
	room = (high_bytes - queue_bytes) / (set->segment_bytes ? set->segment_bytes : 1);
	step = c->per_rtt < room ? c->per_rtt : room;
	/* An epoch longer than the RTT counts as one RTT: its effect is not yet seen. */
	c->credit +=
		(step ? step : 1) * (set->epoch_us < rtt_us ? set->epoch_us : rtt_us);
	grown = c->extra + c->credit / rtt_us;
	c->credit %= rtt_us;
	if (grown >= (u64)window * CERA_RELEASE || grown >= CERA_MAX_WINDOW) {
		c->engaged = 0;
		c->extra = 0;
		c->credit = 0;
		return CERA_FREE;
	}
	c->extra = (u32)grown;
	return CERA_GROW;
}

#endif /* EVENKEEL_ALGO_CERA_CONTROLLER_H */
