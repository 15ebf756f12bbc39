/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * vFlood: losses, of which the VM and the receiver tell, and what the VM sends again.
 *
 * Nothing is sent again from here: lost data is the guest's business (section 3.2), and the
 * host's window is then what bounds what is still held.
 */
#ifndef EVENKEEL_VFLOOD_LOSS_H
#define EVENKEEL_VFLOOD_LOSS_H

#include "vflood_flow.h"

/*
 * Was the data from @seq on let out less than the least RTT ago? Then nobody can know yet
 * whether it has arrived.
 */
static inline bool vflood_is_fresh(const struct vflood_flow *f, u32 seq, u64 now_us)
{
	return (now_us - f->fresh_us[0] < f->min_rtt_us &&
		!seq_before(seq, f->fresh_start[0])) ||
	       (now_us - f->fresh_us[1] < f->min_rtt_us && !seq_before(seq, f->fresh_start[1]));
}

static inline void vflood_enter_loss(struct vflood_flow *f, bool timed_out)
{
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
 * The VM sends again what was let out before: it passes, and tells of a loss. A VM off its
 * core runs its timers before it reads ACKs, and one that has handed over more than its window
 * takes all of that for lost when what it then sent again is acknowledged (RACK, RFC 8985):
 * what is needless for certain is dropped, and tells nothing.
 */
static inline enum vflood_verdict vflood_sent_again(struct vflood_flow *f, u32 seq, u32 end,
						    u64 now_us)
{
	bool is_known = f->flags & VFLOOD_SACKED;
	bool is_head = !seq_after(seq, f->snd_una);

	/* It has arrived. The ACK may not have reached the VM: one in a round trip gets
	 * another. */
	if (!seq_after(end, f->snd_una)) {
		if (f->needless_us && now_us - f->needless_us < f->srtt_us)
			return VFLOOD_DROP;
		f->needless_us = now_us;
		return VFLOOD_PASS;
	}
	/* Nobody can know whether it has: the VM's guess. After a timeout a VM without RACK
	 * would not send it once more. */
	if (f->flags & VFLOOD_LOSSY && !(f->flags & VFLOOD_TIMED_OUT) &&
	    seq_before(f->snd_una, f->vm_recover) && vflood_is_fresh(f, seq, now_us))
		return is_head ? VFLOOD_PASS : VFLOOD_DROP;
	f->flags &= ~VFLOOD_TIMING;
	if (f->state == VFLOOD_PACKET_LOSS && seq_before(seq, f->recover)) {
		/* The head once more: what was sent again was lost, and only a timer tells. */
		if (is_head && f->flags & VFLOOD_HEAD_AGAIN && f->head == f->snd_una &&
		    !(f->flags & VFLOOD_TIMED_OUT))
			vflood_enter_loss(f, true);
	} else if (f->state != VFLOOD_PACKET_LOSS && is_head) {
		vflood_enter_loss(f, !f->dup_acks && !is_known && vflood_out_segments(f) > 1);
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
	return VFLOOD_PASS;
}

/**
 * vflood_is_dsack() - do an ACK's SACK blocks report data that came twice (RFC 2883)?
 * @first_start: of the first block, which does if anything does
 * @second_start: of the second, which is empty if there is none
 *
 * The guest has sent it needlessly: nothing that the host knows of has left the network.
 */
static inline bool vflood_is_dsack(u32 ack, u32 first_start, u32 first_end, u32 second_start,
				   u32 second_end)
{
	bool is_within = !seq_before(first_start, second_start) &&
			 !seq_after(first_end, second_end);
	bool is_there = second_start != second_end;

	return !seq_after(first_end, ack) || (is_there && is_within);
}

#endif /* EVENKEEL_VFLOOD_LOSS_H */
