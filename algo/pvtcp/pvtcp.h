/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * PVTCP (Cheng, Wang, Lau): TCP that does not take the hypervisor's scheduling
 * for congestion.
 *
 * The caller tells about clock ticks, expired timers, RTT samples and received
 * segments of one vCPU; the functions answer what to do. All times are
 * microseconds of one monotonic clock that goes on while the vCPU does not.
 */
#ifndef EVENKEEL_ALGO_PVTCP_PVTCP_H
#define EVENKEEL_ALGO_PVTCP_PVTCP_H

#include "../base/types.h"

/* Settings: default, least and most. */
#define PVTCP_LATE_US 2000
#define PVTCP_LATE_US_LEAST 200
#define PVTCP_LATE_US_MOST 1000000
#define PVTCP_HOLD_MIN_US 1000 /* PVTCP III.B: 1 ms */
#define PVTCP_HOLD_MIN_US_LEAST 0
#define PVTCP_HOLD_MIN_US_MOST 20000
#define PVTCP_HOLD_MAX_US 4000
#define PVTCP_HOLD_MAX_US_LEAST 0
#define PVTCP_HOLD_MAX_US_MOST 100000
#define PVTCP_JIT_SEGMENTS 3 /* PVTCP-slides 26 */
#define PVTCP_JIT_SEGMENTS_LEAST 0
#define PVTCP_JIT_SEGMENTS_MOST 16

/* How long to wait before asking again whether the backlog is in. */
#define PVTCP_POLL_US 200

/*
 * TCP's least RTO unless another is set (Linux: TCP_RTO_MIN). A connection idle for
 * longer begins with a new window, whatever the cause: a stale one would be a burst.
 */
#define PVTCP_IDLE_MOST_US 200000

/*
 * A vCPU that loses its core again while timers are held is given this many
 * more wake-ups for them. Without a bound, slices shorter than hold_min_us
 * would hold them for good.
 */
#define PVTCP_MAX_EXTENSIONS 3

/* The timers that share TCP's retransmit timer. */
enum pvtcp_timer {
	PVTCP_TIMER_RTO, /* retransmission timeout */
	PVTCP_TIMER_TLP, /* tail-loss probe */
	PVTCP_TIMER_REO, /* RACK's reordering window */
	PVTCP_TIMERS,
};

struct pvtcp_settings {
	u32 late_us; /* a tick later than this is a wake-up */
	u32 hold_min_us; /* held timers wait at least this long after it */
	u32 hold_max_us; /* and no longer than this (or hold_min_us) */
	u32 jit_segments; /* segments acknowledged at once, 0: none */
	bool hold[PVTCP_TIMERS];
	bool filter_rtt;
	bool filter_idle;
};

/*
 * A vCPU, and the timers that run on it:
 *
 *               a tick later than late_us, or so much stolen time
 *     punctual ---------------------------------------------------> waking
 *        ^                                                           |  |
 *        +------- a punctual tick, hold_min_us after the wake-up ----+  | a timer is due
 *                                                                       v
 *     run <---- hold_min_us has passed and the backlog is in, ---- timers held
 *               or hold_max_us has passed
 */
struct pvtcp_vcpu {
	u64 wake_us; /* when the last wake-up was seen */
	u64 steal_us; /* the steal clock when it was last looked at */
	u64 off_us; /* how long the vCPU was off before, as far as seen */
	bool ticked; /* the fields above are valid */
	u32 wakes; /* wake-ups so far, modulo 2^32 */
	bool waking; /* no punctual tick since the wake-up */
};

static inline u64 pvtcp_limit_us(const struct pvtcp_settings *set)
{
	return set->hold_max_us > set->hold_min_us ? set->hold_max_us : set->hold_min_us;
}

/* Time since the wake-up; another vCPU's clock may lag a little behind ours. */
static inline u64 pvtcp_since_wake_us(const struct pvtcp_vcpu *v, u64 now_us)
{
	return now_us > v->wake_us ? now_us - v->wake_us : 0;
}

static inline void pvtcp_wake(struct pvtcp_vcpu *v, u64 now_us, u64 off_us)
{
	v->wake_us = now_us;
	v->off_us = off_us;
	v->waking = true;
	v->wakes++;
}

/**
 * pvtcp_tick() - a clock event that was due at @due_us runs at @now_us
 * @steal_us: the steal clock, 0 where there is none
 *
 * Lateness and not a jump of the tick count decides: on a tickless kernel an
 * idle CPU skips ticks lawfully.
 *
 * Return: true if the vCPU has just come back to its core.
 */
static inline bool pvtcp_tick(struct pvtcp_vcpu *v, const struct pvtcp_settings *set,
			      u64 due_us, u64 now_us, u64 steal_us)
{
	u64 late_us = now_us > due_us ? now_us - due_us : 0;

	v->ticked = true;
	v->steal_us = steal_us;
	if (late_us > set->late_us) {
		pvtcp_wake(v, now_us, late_us);
		return true;
	}
	/* At a high HZ the next tick comes before the backlog can be in. */
	if (pvtcp_since_wake_us(v, now_us) >= set->hold_min_us)
		v->waking = false;
	return false;
}

/**
 * pvtcp_steal() - look at the steal clock before a decision
 *
 * The kernel adds to it while it handles the tick, so the time that this tick
 * found missing shows only after pvtcp_tick(). It tells of an absence that
 * fell between two ticks and made neither of them late.
 *
 * Return: true if that shows a wake-up which the tick did not.
 */
static inline bool pvtcp_steal(struct pvtcp_vcpu *v, const struct pvtcp_settings *set,
			       u64 now_us, u64 steal_us)
{
	u64 stolen_us = steal_us > v->steal_us ? steal_us - v->steal_us : 0;

	if (!v->ticked || stolen_us <= set->late_us)
		return false;
	v->steal_us = steal_us;
	if (v->waking)
		return false;
	pvtcp_wake(v, now_us, stolen_us);
	return true;
}

static inline bool pvtcp_is_waking(const struct pvtcp_vcpu *v,
				   const struct pvtcp_settings *set, u64 now_us)
{
	return v->waking && pvtcp_since_wake_us(v, now_us) < pvtcp_limit_us(set);
}

/*
 * Shall this expired timer be held back? If so, the caller notes the vCPU's number of
 * wake-ups, holds the timer no longer than pvtcp_holds_on() says, and asks
 * pvtcp_release_us() until that lets it go. Timers that wait for the same vCPU share the
 * note of the first.
 */
static inline bool pvtcp_hold(const struct pvtcp_vcpu *v,
			      const struct pvtcp_settings *set, enum pvtcp_timer timer,
			      u64 now_us)
{
	return set->hold[timer] && pvtcp_is_waking(v, set, now_us);
}

/* May timers that were first held at wake-up number @since be held any longer? */
static inline bool pvtcp_holds_on(const struct pvtcp_vcpu *v, u32 since)
{
	return v->wakes - since <= PVTCP_MAX_EXTENSIONS;
}

/**
 * pvtcp_release_us() - may held timers run?
 * @since: the number of the wake-up at which they were first held
 * @backlog_in: the packets that had waited for the vCPU have been received
 *
 * Return: 0 if they shall run now, else the time after which to ask again.
 */
static inline u32 pvtcp_release_us(const struct pvtcp_vcpu *v,
				   const struct pvtcp_settings *set, u32 since,
				   u64 now_us, bool backlog_in)
{
	u64 since_us = pvtcp_since_wake_us(v, now_us);

	if (since_us >= pvtcp_limit_us(set) || !pvtcp_holds_on(v, since))
		return 0;
	if (since_us < set->hold_min_us)
		return set->hold_min_us - (u32)since_us;
	return backlog_in ? 0 : PVTCP_POLL_US;
}

/* What TCP knows of a connection's RTT, and a new sample. */
struct pvtcp_rtt {
	s64 sample_us;
	u32 srtt_us;
	u32 mdev_us; /* mean deviation of samples: RTTVAR before it is taken times four */
};

/*
 * An RTT sample, or a neutral one in place of a spoilt one.
 *
 * A sample is spoilt if its segment was sent before the wake-up and its ACK is
 * part of the backlog. An ACK that comes in later did not wait for the vCPU:
 * on a path longer than the slice most samples span a wake-up and are true.
 *
 * PVTCP eq. 11 puts SRTT in its place. That claims a sample without deviation, and many
 * wake-ups wear RTTVAR down until the RTO is shorter than what the network itself needs
 * at times. One mean deviation above or below SRTT keeps both where they are; the
 * wake-up's time, as good as a coin, picks the side.
 */
static inline s64 pvtcp_filter_rtt(const struct pvtcp_vcpu *v,
				   const struct pvtcp_settings *set, u64 now_us,
				   const struct pvtcp_rtt *rtt)
{
	u32 srtt_us = rtt->srtt_us, mdev_us = rtt->mdev_us;
	u64 since_us = pvtcp_since_wake_us(v, now_us);
	s64 sample_us = rtt->sample_us;

	if (!set->filter_rtt || !v->wake_us || !srtt_us)
		return sample_us;
	if (since_us >= pvtcp_limit_us(set))
		return sample_us;
	if (sample_us <= (s64)since_us || sample_us <= (s64)srtt_us + mdev_us)
		return sample_us;
	if (v->wake_us & 1 && mdev_us < srtt_us)
		return (s64)srtt_us - mdev_us;
	return (s64)srtt_us + mdev_us;
}

/**
 * pvtcp_idle_us() - how long a connection was idle that sent nothing for @idle_us
 *
 * TCP forgets its window when it was idle for an RTO (RFC 5681 4.1). An RTO of a few
 * milliseconds is shorter than an absence, in which the vCPU could not have sent.
 *
 * Return: @idle_us without the last absence, if that fell into it and @idle_us is no
 * longer than PVTCP_IDLE_MOST_US.
 */
static inline u64 pvtcp_idle_us(const struct pvtcp_vcpu *v,
				const struct pvtcp_settings *set, u64 now_us, u64 idle_us)
{
	u64 since_us = pvtcp_since_wake_us(v, now_us);

	if (!set->filter_idle || idle_us > PVTCP_IDLE_MOST_US)
		return idle_us;
	if (!v->wake_us || since_us >= idle_us)
		return idle_us;
	if (v->off_us >= idle_us - since_us)
		return since_us;
	return idle_us - v->off_us;
}

/**
 * pvtcp_jit_segments() - how many segments to acknowledge at once
 * @idle_us: time since the connection's previous segment, in whole ticks
 * @tick_us: length of a tick
 *
 * The first segment after a wake-up is the one whose predecessor came before
 * the vCPU went off: that is the only trace of "first" a connection carries.
 */
static inline u32 pvtcp_jit_segments(const struct pvtcp_vcpu *v,
				     const struct pvtcp_settings *set, u64 now_us,
				     u64 idle_us, u32 tick_us)
{
	if (!set->jit_segments || !pvtcp_is_waking(v, set, now_us))
		return 0;
	if (idle_us < tick_us || idle_us + 2 * tick_us < v->off_us)
		return 0;
	return set->jit_segments;
}

#endif /* EVENKEEL_ALGO_PVTCP_PVTCP_H */
