/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * vFlood: losses, as the VM and the receiver report them, and what the VM sends again.
 *
 * Nothing is sent again from here: lost data is the guest's business (vFlood §3.2), and
 * the host's window then bounds what leaves of the data still held.
 */
#ifndef EVENKEEL_ALGO_VFLOOD_LOSS_H
#define EVENKEEL_ALGO_VFLOOD_LOSS_H

#include "flow.h"

/*
 * Was the data from @seq on let out less than the least RTT ago? Then nobody can know yet
 * whether it has arrived.
 */
static inline bool vflood_is_fresh(const struct vflood_flow *f, u32 seq, u64 now_us)
{
	return (now_us - f->fresh_us[0] < f->min_rtt_us &&
		!seq_before(seq, f->fresh_start[0])) ||
	       (now_us - f->fresh_us[1] < f->min_rtt_us &&
		!seq_before(seq, f->fresh_start[1]));
}

static inline void vflood_enter_loss(struct vflood_flow *f, bool timed_out)
{
	if (f->state != VFLOOD_PACKET_LOSS) {
		congestion_keep(&f->congestion, &f->before);
		f->undo_start = f->snd_una;
		f->flags &= ~(VFLOOD_UNDONE | VFLOOD_LOSSY_BEFORE);
		f->flags |= VFLOOD_MAY_UNDO | VFLOOD_DOUBT;
		if (f->flags & VFLOOD_LOSSY)
			f->flags |= VFLOOD_LOSSY_BEFORE;
		/* A tail-loss probe that is on its way counts as sent again, too. */
		if (!(f->flags & VFLOOD_AGAIN))
			f->unproven_segments = 0;
	}
	if (timed_out) {
		congestion_timed_out(&f->congestion);
		/* Nothing new before the hole is filled. */
		f->dup_acks = 0;
		f->flags |= VFLOOD_TIMED_OUT;
	} else {
		congestion_lost(&f->congestion);
		f->flags &= ~VFLOOD_TIMED_OUT;
	}
	f->state = VFLOOD_PACKET_LOSS;
	f->again_segments[0] = 0;
	f->again_segments[1] = 0;
	f->flags |= VFLOOD_LOSSY;
	f->recover = f->snd_nxt;
	f->vm_recover = f->vm_end;
	/* Karn: an ACK may be for either copy. */
	f->flags &= ~VFLOOD_TIMING;
}

/* A loss was spurious: restores what was before it (RFC 4015). */
static inline void vflood_undo(struct vflood_flow *f)
{
	congestion_undo(&f->congestion, &f->before);
	if (f->state == VFLOOD_PACKET_LOSS)
		f->state = VFLOOD_ACTIVE;
	f->dup_acks = 0;
	f->flags &= ~(VFLOOD_MAY_UNDO | VFLOOD_DOUBT | VFLOOD_TIMED_OUT);
	if (!(f->flags & VFLOOD_LOSSY_BEFORE))
		f->flags &= ~VFLOOD_LOSSY;
	if (seq_before(f->snd_una, f->vm_recover))
		f->flags |= VFLOOD_UNDONE;
}

/*
 * Notes the timestamp with which the VM's data leaves now. A VM that makes one up only
 * keeps its own window large, as any sender could.
 */
static inline void vflood_stamp(struct vflood_flow *f, u32 ts_val)
{
	f->ts_val = ts_val;
	f->flags |= VFLOOD_STAMPED;
}

/**
 * vflood_is_older() - does an ACK echo a timestamp from before what was sent again?
 * @ts_ecr: the timestamp, 0: it has none
 *
 * Then it is for what was sent first (RFC 3522).
 */
static inline bool vflood_is_older(const struct vflood_flow *f, u32 ts_ecr)
{
	return f->flags & VFLOOD_AGAIN && f->flags & VFLOOD_AGAIN_STAMPED && ts_ecr &&
	       seq_before(ts_ecr, f->again_ts);
}

/**
 * vflood_came_twice() - segments that an ACK reports to have come twice
 * @start: of the first of its SACK blocks, which does so (vflood_is_dsack())
 *
 * Return: how many of what was sent again since the last loss.
 */
static inline u32 vflood_came_twice(const struct vflood_flow *f, u32 start, u32 end)
{
	if (!(f->flags & VFLOOD_MAY_UNDO) || !seq_before(start, end) ||
	    seq_before(start, f->undo_start) || seq_after(end, f->snd_nxt))
		return 0;
	return vflood_segments(f, end - start);
}

/*
 * Is an ACK beyond what a timeout sent again for the first transmission (F-RTO, RFC 5682,
 * with SACK)? It is: had that data come beyond a gap, SACK blocks would have told before,
 * and nothing else was sent again.
 */
static inline bool vflood_is_beyond(const struct vflood_flow *f, u32 ack, bool had_gap)
{
	return f->flags & VFLOOD_TIMED_OUT && f->flags & VFLOOD_HAS_SACK && !had_gap &&
	       seq_after(ack, f->again_first_end) && f->again_end == f->again_first_end;
}

/*
 * Was the last loss spurious? It was if all that was sent again has come twice (RFC
 * 3708), or if the first ACK for more data is for the first transmission: because nothing
 * was sent again yet, or because its timestamp says so (RFC 3522).
 *
 * @advanced: the ACK is for more data
 * @had_gap: SACK blocks had told of data beyond a gap
 */
static inline bool vflood_is_needless(struct vflood_flow *f, const struct vflood_ack *a,
				      bool advanced, bool had_gap)
{
	u32 came_twice = a->came_twice_segments;

	if (came_twice && f->unproven_segments) {
		f->unproven_segments -= came_twice < f->unproven_segments ?
						came_twice :
						f->unproven_segments;
		if (!f->unproven_segments && seq_after(f->snd_una, f->undo_start))
			return true;
	}
	if (!advanced || !(f->flags & VFLOOD_DOUBT))
		return false;
	if (!(f->flags & VFLOOD_AGAIN) || f->flags & VFLOOD_AGAIN_STAMPED) {
		f->flags &= ~VFLOOD_DOUBT;
		return !(f->flags & VFLOOD_AGAIN) || a->is_older;
	}
	/* Without timestamps the ACK for what a timeout sent again tells nothing: the
	 * next one may. */
	if (!(f->flags & VFLOOD_TIMED_OUT) || seq_after(a->ack, f->again_first_end) ||
	    !seq_before(a->ack, f->recover))
		f->flags &= ~VFLOOD_DOUBT;
	return vflood_is_beyond(f, a->ack, had_gap);
}

/* Data that was let out before is let out again. */
static inline void vflood_goes_again(struct vflood_flow *f, u32 seq, u32 end)
{
	f->unproven_segments += vflood_segments(f, end - seq);
	if (!seq_after(end, f->snd_una))
		return;
	if (!(f->flags & VFLOOD_AGAIN)) {
		f->flags |= VFLOOD_AGAIN;
		f->flags &= ~VFLOOD_AGAIN_STAMPED;
		if (f->flags & VFLOOD_STAMPED)
			f->flags |= VFLOOD_AGAIN_STAMPED;
		f->again_ts = f->ts_val;
		f->again_first_end = end;
		f->again_end = end;
	}
	f->again_end = seq_max(f->again_end, end);
}

/* What was sent again more than a round trip ago has arrived, or is lost. */
static inline void vflood_again_ages(struct vflood_flow *f, u64 now_us)
{
	u64 age_us = now_us - f->again_us;

	if (age_us < f->srtt_us)
		return;
	f->again_segments[0] = age_us < 2 * (u64)f->srtt_us ? f->again_segments[1] : 0;
	f->again_segments[1] = 0;
	f->again_us = now_us;
}

/*
 * The VM sends again what was let out before: it passes, and tells of a loss. But a VM
 * that was off its core runs its timers before it reads ACKs. If it has handed over more
 * than its window, it takes all of that for lost once its retransmission is acknowledged
 * (RACK, RFC 8985): what is certainly needless is dropped, and tells nothing.
 */
static inline enum vflood_verdict vflood_sent_again(struct vflood_flow *f, u32 seq,
						    u32 end, u64 now_us)
{
	bool is_known = f->flags & VFLOOD_SACKED;
	bool is_head = !seq_after(seq, f->snd_una);
	bool has_sign = is_known || f->dup_acks;

	/* The data has arrived. Its ACK may not have reached the VM: one copy per round
	 * trip passes, to get another. What else the VM took for lost is not, either. */
	if (!seq_after(end, f->snd_una)) {
		if (f->state != VFLOOD_PACKET_LOSS && !(f->flags & VFLOOD_UNDONE)) {
			f->flags |= VFLOOD_UNDONE;
			f->vm_recover = f->vm_end;
		}
		if (f->needless_us && now_us - f->needless_us < f->srtt_us)
			return VFLOOD_DROP;
		f->needless_us = now_us;
		if (!seq_before(seq, f->undo_start))
			vflood_goes_again(f, seq, end);
		return VFLOOD_PASS;
	}
	/* After a spurious loss all arrives: what else the VM took for lost is not. */
	if (f->flags & VFLOOD_UNDONE && seq_before(seq, f->vm_recover) && !is_known &&
	    !f->dup_acks && now_us - f->advanced_us < f->srtt_us)
		return VFLOOD_DROP;
	/* Nobody can know yet whether it has arrived: the VM guesses. Not after a
	 * timeout: a VM without RACK would not send it once more. */
	if (f->flags & VFLOOD_LOSSY && !(f->flags & VFLOOD_TIMED_OUT) &&
	    seq_before(f->snd_una, f->vm_recover) && vflood_is_fresh(f, seq, now_us)) {
		if (is_head)
			vflood_goes_again(f, seq, end);
		return is_head ? VFLOOD_PASS : VFLOOD_DROP;
	}
	f->flags &= ~VFLOOD_TIMING;
	if (f->state == VFLOOD_PACKET_LOSS && seq_before(seq, f->recover)) {
		/* The head once more: its retransmission was lost, which only a timer
		 * tells. */
		if (is_head && f->flags & VFLOOD_HEAD_AGAIN && f->head == f->snd_una &&
		    !(f->flags & VFLOOD_TIMED_OUT))
			vflood_enter_loss(f, true);
	} else if (f->state != VFLOOD_PACKET_LOSS && is_head &&
		   (has_sign || now_us - f->advanced_us >= f->srtt_us)) {
		/* Without a sign from the receiver, a timer sent it, and none runs out
		 * within a round trip of an ACK; or the VM guesses, which says
		 * nothing. */
		vflood_enter_loss(f, !has_sign && vflood_out_segments(f) > 1);
	}
	if (f->state == VFLOOD_PACKET_LOSS) {
		vflood_again_ages(f, now_us);
		f->again_segments[1] += vflood_segments(f, end - seq);
	}
	/* What is not the head is a tail-loss probe, or a guess: ACKs will tell. */
	if (is_head) {
		f->flags |= VFLOOD_HEAD_AGAIN;
		f->head = f->snd_una;
	}
	vflood_goes_again(f, seq, end);
	return VFLOOD_PASS;
}

/**
 * vflood_is_dsack() - do an ACK's SACK blocks report data that came twice (RFC 2883)?
 * @first_start: of the first block, which does if anything does
 * @second_start: of the second, which is empty if there is none
 *
 * The guest has sent it needlessly: nothing that the host knows of has left the network.
 */
static inline bool vflood_is_dsack(u32 ack, u32 first_start, u32 first_end,
				   u32 second_start, u32 second_end)
{
	bool is_within = !seq_before(first_start, second_start) &&
			 !seq_after(first_end, second_end);
	bool is_there = second_start != second_end;

	return !seq_after(first_end, ack) || (is_there && is_within);
}

#endif /* EVENKEEL_ALGO_VFLOOD_LOSS_H */
