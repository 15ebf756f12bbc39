/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* CERA: how long a flow's own round trip is, and the window that follows from it. */
#ifndef EVENKEEL_ALGO_CERA_TRIP_H
#define EVENKEEL_ALGO_CERA_TRIP_H

#include "../base/seq.h"
#include "meter.h"

/*
 * A flow's round trip, timed at the VM's port from a segment to its ACK: the VM has no
 * part in it. A segment that vFlood holds is timed from when it leaves. The least counts,
 * because receivers delay ACKs and wait for cores. One segment at a time is timed.
 *
 * The uplink's queue is known as it was at the end of an epoch, and may have been shorter
 * when the segment left. So the path is as long as the least of all round trips less the
 * queue, or longer, and as the least of all round trips, or shorter.
 *
 *            new data leaves                its ACK comes: a sample
 *     IDLE -----------------> TIMED (left_us) ----------------------> IDLE
 *                               | anything is sent again
 *                               +--------------------> IDLE
 */
struct cera_trip {
	struct cera_rtt rtt; /* without the queue */
	struct cera_rtt whole; /* with it */
	u32 next; /* end of what was sent */
	u32 end; /* of the segment that is timed */
	u32 left_us; /* when it left, 0: none is timed */
	u32 queue_us; /* the uplink's queue at that time */
};

/* The flow begins with this number. */
static inline void cera_trip_open(struct cera_trip *t, u32 seq)
{
	t->next = seq;
}

/**
 * cera_trip_sent() - data leaves the VM
 * @end: number behind it
 * @queue_us: how long the uplink's queue is
 *
 * The ACK of what was sent twice does not say which of both it is for (Karn; RFC 6298
 * §3).
 */
static inline void cera_trip_sent(struct cera_trip *t, u64 now_us, u32 end, u32 queue_us)
{
	if (!seq_after(end, t->next)) {
		t->left_us = 0;
		return;
	}
	t->next = end;
	if (t->left_us)
		return;
	t->end = end;
	t->left_us = (u32)now_us ? (u32)now_us : 1;
	t->queue_us = queue_us;
}

/* Is an ACK of the segment that is timed, and of nothing that was not sent (RFC 5961
 * §5.2)? A FIN takes one number more. */
static inline bool cera_trip_is_over(const struct cera_trip *t, u32 ack)
{
	return t->left_us && ack - t->end <= t->next + 1 - t->end;
}

/* An ACK reaches the VM. */
static inline void cera_trip_acked(struct cera_trip *t, u64 now_us, u32 ack)
{
	u32 us = (u32)now_us - t->left_us;

	if (!cera_trip_is_over(t, ack))
		return;
	t->left_us = 0;
	if (us > CERA_MAX_RTT_US)
		us = CERA_MAX_RTT_US;
	cera_rtt_sample(&t->rtt, now_us, cera_rtt_without(us, t->queue_us));
	cera_rtt_sample(&t->whole, now_us, us);
}

/* What a VM's windows are for. */
struct cera_loop {
	u32 rtt_us; /* d_k */
	u32 loop_us; /* how long the VM's window lasts at its part of C */
	u32 cover_us; /* how long the link takes to send T_l */
};

/**
 * cera_trip_longer_us() - by how much a flow's round trip differs from its VM's
 *
 * What the link sends in less than the time of T_l is left out on both sides: queues are
 * not known more exactly than that, and so much waits at the uplink anyway.
 *
 * d_k is a handshake's, in which the VM has a part. That is taken to be no longer than
 * the rest, so a flow is nearer only if twice its whole round trip is less than d_k.
 *
 * Return: negative if it is shorter; 0 if it is not known.
 */
static inline s64 cera_trip_longer_us(const struct cera_trip *t,
				      const struct cera_loop *l)
{
	s64 own_us = cera_rtt_least(&t->rtt);
	s64 longer_us = own_us - l->rtt_us - l->cover_us;
	s64 shorter_us = l->rtt_us - 2ll * cera_rtt_least(&t->whole) - l->cover_us;

	if (!own_us)
		return 0;
	if (longer_us > 0)
		return longer_us;
	return shorter_us > 0 ? -shorter_us : 0;
}

/**
 * cera_trip_window() - the window of a flow with another round trip than its VM's
 * @bytes: its part of the VM's window
 * @longer_us: cera_trip_longer_us()
 * @least_bytes: it has no less
 *
 * Parts are parts of the link's rate among a VM's flows, too, as they are among VMs: the
 * window lasts for the flow's own round trip at the rate of its part.
 */
static inline u64 cera_trip_window(u64 bytes, const struct cera_loop *l, s64 longer_us,
				   u32 least_bytes)
{
	u64 shorter_us = longer_us < 0 ? (u64)-longer_us : 0;
	u64 window;

	/* More than any window field can say is no limit. */
	if (!longer_us || !l->loop_us || bytes >> 30)
		return bytes;
	if (longer_us > 0)
		window = bytes + bytes * (u64)longer_us / l->loop_us;
	else if (shorter_us >= l->loop_us)
		window = 0;
	else
		window = bytes - bytes * shorter_us / l->loop_us;
	return window > least_bytes ? window : least_bytes;
}

/*
 * The farthest flow of a VM. Which flows are active depends on it: a far one that was
 * forgotten between two of its windows would come back with its part given to others.
 */
struct cera_far {
	u64 until_us; /* it counts until then */
	u32 longer_us;
};

/* @longer_us: the most of an epoch; 0: no flow with a longer round trip was there */
static inline u32 cera_far_epoch(struct cera_far *f, u64 now_us, u32 longer_us)
{
	if (longer_us > CERA_LONGEST_FAR_US)
		longer_us = CERA_LONGEST_FAR_US;
	if (longer_us >= f->longer_us || now_us >= f->until_us) {
		f->longer_us = longer_us;
		f->until_us = now_us + CERA_FAR_US;
	}
	return f->longer_us;
}

#endif /* EVENKEEL_ALGO_CERA_TRIP_H */
