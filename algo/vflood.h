/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * vFlood (Gamage et al., SOCC 2011): the guest hands its data over as soon as it runs, the
 * host holds it and sends it under a standard congestion window, also while the VM is off
 * its core.
 *
 * Only decisions about sequence numbers and counts are here. The caller keeps each flow's
 * held packets in one queue, first in, first out, and does what vflood_data() and
 * vflood_release() say. Nothing is sent again from here: lost data is the guest's business
 * (section 3.2), and the host's window is then what bounds what is still held.
 *
 * Sequence numbers are those of the VM's data. Segments are of f->mss bytes; a packet of
 * several counts as so many.
 */
#ifndef EVENKEEL_VFLOOD_H
#define EVENKEEL_VFLOOD_H

#include "congestion.h"
#include "seq.h"
#include "window.h"

#define VFLOOD_DUP_ACKS 3 /* RFC 5681, section 3.2 */
#define VFLOOD_PATIENCE 4 /* times a packet that waits to leave whole, on their way */
#define VFLOOD_AFTER_LOSS 2 /* windows that a flow may hold once it has had a loss */
#define VFLOOD_ALPHA_ONE 16 /* alpha is in sixteenths */
#define VFLOOD_IDLE_US 200000 /* Linux's least timeout, for a window that was not used */
#define VFLOOD_FLOOD_SEGMENTS 512 /* the guest's window where nothing was granted */

/* Fig. 3. */
enum vflood_state {
	VFLOOD_ACTIVE, /* the guest may flood */
	VFLOOD_NO_BUFFER, /* it may not: the flow's share of the buffer is used up */
	VFLOOD_PACKET_LOSS, /* it may not: it repairs a loss */
};

/* Who may hold how much (section 3.3). */
enum vflood_policy {
	VFLOOD_POLICY_NONE, /* whatever is free */
	VFLOOD_POLICY_FAIR, /* eq. 1 with the same alpha for all */
	VFLOOD_POLICY_PRIORITY, /* with a larger one for flows of low RTT */
};

enum vflood_verdict {
	VFLOOD_PASS, /* send it */
	VFLOOD_HOLD, /* put it at the end of the flow's queue, or leave it there */
	VFLOOD_DROP, /* needless: it is held already, or has arrived; or there is no room */
};

struct vflood_settings {
	u32 buffer_segments; /* B, for each VM */
	u32 initial_window; /* segments */
	u32 low_rtt_us; /* flows below are of low RTT */
	u32 alpha; /* of VFLOOD_ALPHA_ONE */
	u32 alpha_low_rtt; /* policy priority: of flows of low RTT */
	u32 policy; /* enum vflood_policy */
	u32 congestion; /* enum congestion_kind */
};

/* A VM's buffer. */
struct vflood_vm {
	u32 held_segments; /* Q: in the queues of all its flows */
	u32 promised_segments; /* granted to its flows, and not yet come */
};

/* What an ACK from the receiver says. */
struct vflood_ack {
	u32 ack;
	u32 sacked_end; /* the highest right edge of its SACK blocks */
	u32 sacked_segments; /* that these tell of, beyond the ACK's number */
	u16 window; /* the field */
	bool is_pure; /* it carries no data, and does not report data that came twice
		       * (vflood_is_dsack()) */
	bool has_sack;
};

#define VFLOOD_SEEN_VM 1u /* the VM's SYN */
#define VFLOOD_SEEN_PEER 2u /* the other end's */
#define VFLOOD_SEEN_BOTH 3u
#define VFLOOD_SCALED 4u /* an ACK after the handshake has come: windows are scaled */
#define VFLOOD_LIMITED 8u /* the congestion window kept something back */
#define VFLOOD_TIMED_OUT 16u /* the guest's timeout, and not duplicate ACKs, told of a loss */
#define VFLOOD_TIMING 32u /* a segment's RTT is being measured */
#define VFLOOD_LOSSY 1024u /* there was a loss */
#define VFLOOD_SACKED 256u /* the last ACK had SACK blocks: something is missing */
#define VFLOOD_HEAD_AGAIN 512u /* the VM has sent the segment at f->head again */
#define VFLOOD_ACK_SENT 128u /* ack_sent is known */
#define VFLOOD_REFUSED 64u /* data was refused, see refused_start */

struct vflood_flow {
	struct congestion congestion; /* cong_win_drv */
	u64 timed_us; /* when the timed segment was sent */
	u64 sent_us; /* when anything last was */
	u64 needless_us; /* when data that had arrived last passed again */
	u64 fresh_us[2]; /* what begins at fresh_start was let out then or later */
	u64 again_us; /* when again_segments[1] began to be counted */
	u32 timed_end;
	u32 snd_una; /* highest ACK of the receiver */
	u32 snd_nxt; /* end of what was let out */
	u32 vm_end; /* end of what the VM has sent; what lies between is held */
	u32 edge; /* right edge of the receiver's window */
	u32 granted; /* right edge that the VM was told */
	u32 ack_sent; /* highest ACK of the VM's that has gone out */
	u32 refused_start; /* data for which there was no room */
	u32 refused_end;
	u32 recover; /* the loss is repaired when this is acknowledged */
	u32 vm_recover; /* for the VM, which takes what is held for sent */
	u32 sacked_end; /* highest right edge of SACK blocks, or snd_una */
	u32 sacked_segments; /* that the last ACK's SACK blocks tell of */
	u32 fresh_start[2];
	/* Sent again while a loss is repaired, and not acknowledged: in the round trip before,
	 * and in this one. */
	u32 again_segments[2];
	u32 head;
	u32 round_end; /* a round trip ends when this is acknowledged */
	u32 mss; /* payload of a full segment */
	u32 held_segments; /* Q_i */
	u32 promised_segments;
	u32 dup_acks; /* segments that duplicate ACKs tell of */
	u32 burst_segments; /* may leave before the next ACK */
	u32 srtt_us;
	u32 min_rtt_us; /* 0: none yet */
	u32 flags;
	u16 syn_window; /* the other end's, unscaled */
	u8 scale;
	u8 state; /* enum vflood_state */
};

/* Not before the other end's SYN was seen, which tells the MSS. */
static inline u32 vflood_segments(const struct vflood_flow *f, u32 bytes)
{
	return bytes / f->mss + (bytes % f->mss != 0);
}

/* Both SYNs were seen: a flow first seen in the middle passes. */
static inline bool vflood_is_managed(const struct vflood_flow *f)
{
	return (f->flags & VFLOOD_SEEN_BOTH) == VFLOOD_SEEN_BOTH;
}

/* pkt_out_drv: let out and not acknowledged. */
static inline u32 vflood_out_segments(const struct vflood_flow *f)
{
	return vflood_segments(f, f->snd_nxt - f->snd_una);
}

static inline void vflood_rtt(struct vflood_flow *f, u64 rtt_us)
{
	u32 rtt = rtt_us < (1u << 30) ? (u32)rtt_us : 1u << 30;

	if (!rtt)
		rtt = 1;
	f->srtt_us = f->srtt_us ? f->srtt_us - (f->srtt_us >> 3) + (rtt >> 3) : rtt;
	if (!f->srtt_us)
		f->srtt_us = 1;
	if (!f->min_rtt_us || rtt < f->min_rtt_us)
		f->min_rtt_us = rtt;
	congestion_rtt(&f->congestion, rtt);
}

/**
 * vflood_vm_syn() - the VM sends a SYN or SYN-ACK
 * @seq: its sequence number
 *
 * Sent again, it only spoils the measurement of the RTT.
 */
static inline void vflood_vm_syn(struct vflood_flow *f, const struct vflood_settings *s,
				 u32 seq, u64 now_us)
{
	if (f->flags & VFLOOD_SEEN_VM && f->snd_una == seq + 1) {
		f->flags &= ~VFLOOD_TIMING;
		return;
	}
	congestion_begin(&f->congestion, s->congestion, s->initial_window);
	f->snd_una = seq + 1;
	f->snd_nxt = seq + 1;
	f->vm_end = seq + 1;
	f->granted = seq + 1;
	f->round_end = seq + 1;
	f->sacked_end = seq + 1;
	f->edge = seq + 1 + f->syn_window;
	f->burst_segments = f->congestion.window.cwnd;
	f->timed_us = now_us;
	f->timed_end = seq + 1;
	f->flags |= VFLOOD_SEEN_VM | VFLOOD_TIMING;
}

/**
 * vflood_peer_syn() - the other end's SYN or SYN-ACK comes
 * @window: its window, never scaled here
 * @scale: of its later windows; 0 if one of the two does not scale
 * @mss: payload of a full segment of the VM's, options deducted
 */
static inline void vflood_peer_syn(struct vflood_flow *f, u16 window, u8 scale, u32 mss,
				   u64 now_us)
{
	if (f->flags & VFLOOD_SCALED)
		return;
	f->syn_window = window;
	f->scale = window_scale(scale);
	f->mss = mss ? mss : WINDOW_DEFAULT_MSS;
	if (f->flags & VFLOOD_SEEN_VM) {
		f->edge = f->snd_una + window;
		if (f->flags & VFLOOD_TIMING)
			vflood_rtt(f, now_us > f->timed_us ? now_us - f->timed_us : 1);
		f->flags &= ~VFLOOD_TIMING;
	}
	f->flags |= VFLOOD_SEEN_PEER;
}

/* theta of eq. 2: what could be sent at once. Nothing, while others wait. */
static inline u32 vflood_direct(const struct vflood_flow *f)
{
	u32 cwnd = f->congestion.window.cwnd;
	u32 out = vflood_out_segments(f);
	u32 direct = !f->held_segments && cwnd > out ? cwnd - out : 0;
	u32 open = seq_after(f->edge, f->snd_nxt) ? (f->edge - f->snd_nxt) / f->mss : 0;

	if (direct > open)
		direct = open;
	return direct < f->burst_segments ? direct : f->burst_segments;
}

/* What was granted and has not come, beyond what could be sent at once, is promised room. */
static inline void vflood_promise(struct vflood_flow *f, struct vflood_vm *vm)
{
	u32 direct = vflood_direct(f);
	u32 coming = 0;

	if (seq_after(f->granted, f->vm_end))
		coming = vflood_segments(f, f->granted - f->vm_end);
	coming = coming > direct ? coming - direct : 0;
	vm->promised_segments += coming - f->promised_segments;
	f->promised_segments = coming;
}

static inline u32 vflood_alpha(const struct vflood_flow *f, const struct vflood_settings *s)
{
	bool is_low = f->min_rtt_us && f->min_rtt_us < s->low_rtt_us;

	return s->policy == VFLOOD_POLICY_PRIORITY && is_low ? s->alpha_low_rtt : s->alpha;
}

/* T_i of eq. 1. */
static inline u64 vflood_threshold(const struct vflood_flow *f, const struct vflood_vm *vm,
				   const struct vflood_settings *s)
{
	u32 used = vm->held_segments;
	u32 unused = used < s->buffer_segments ? s->buffer_segments - used : 0;

	if (s->policy == VFLOOD_POLICY_NONE)
		return (u64)unused + f->held_segments;
	return (u64)vflood_alpha(f, s) * unused / VFLOOD_ALPHA_ONE;
}

/*
 * phi of eq. 2, such that T_i still allows it when all that was promised has come: Q grows by
 * that. A flow with nothing to send is promised half, or a few idle ones would have all; no
 * more than the paper's 512, and nothing for its priority: of many that begin at once, the
 * first ones would leave little to the others.
 */
static inline u32 vflood_room(const struct vflood_flow *f, const struct vflood_vm *vm,
			      const struct vflood_settings *s, bool is_idle)
{
	u32 alpha = is_idle ? s->alpha : vflood_alpha(f, s);
	u32 used = vm->held_segments;
	u32 unused, room;
	u64 threshold;

	/* Without a policy, nobody keeps count of what is on its way: first come, first served.
	 */
	if (s->policy != VFLOOD_POLICY_NONE)
		used += vm->promised_segments - f->promised_segments;
	unused = used < s->buffer_segments ? s->buffer_segments - used : 0;
	if (s->policy == VFLOOD_POLICY_NONE)
		return unused;
	threshold = (u64)alpha * unused / VFLOOD_ALPHA_ONE;
	if (threshold <= f->held_segments)
		return 0;
	room = (u32)((threshold - f->held_segments) * VFLOOD_ALPHA_ONE /
		     (VFLOOD_ALPHA_ONE + alpha));
	if (!is_idle)
		return room;
	room = (room + 1) / 2;
	return room < VFLOOD_FLOOD_SEGMENTS ? room : VFLOOD_FLOOD_SEGMENTS;
}

/**
 * vflood_grant() - the window that the VM of a managed flow is told, in bytes beyond f->snd_una
 *
 * Eq. 2 and 3: what is out and held, what could be sent at once (theta), and what may be
 * held beyond (phi). Offline there is no phi, and the VM has the window that a sender of its
 * own would have. An edge that was told is not taken back while anything is on its way.
 */
static inline u32 vflood_grant(struct vflood_flow *f, struct vflood_vm *vm,
			       const struct vflood_settings *s)
{
	bool is_idle = f->vm_end == f->snd_una;
	u32 segments = vflood_out_segments(f) + f->held_segments + vflood_direct(f);
	u32 edge, room, most;

	/* Not at once, or it would go to and fro. */
	if (f->state == VFLOOD_NO_BUFFER &&
	    2 * (u64)f->held_segments <= vflood_threshold(f, vm, s))
		f->state = VFLOOD_ACTIVE;
	if (f->state == VFLOOD_ACTIVE) {
		room = vflood_room(f, vm, s, is_idle);
		most = VFLOOD_AFTER_LOSS * f->congestion.window.cwnd;
		if (f->flags & VFLOOD_LOSSY && f->held_segments + room > most)
			room = f->held_segments < most ? most - f->held_segments : 0;
		segments += room;
	}
	if (segments > (1u << 30) / f->mss)
		segments = (1u << 30) / f->mss;
	edge = f->snd_una + segments * f->mss;
	f->granted = is_idle ? edge : seq_max(f->granted, edge);
	vflood_promise(f, vm);
	return f->granted - f->snd_una;
}

/*
 * Segments in the network, as far as the host knows: each duplicate ACK says that one has
 * left. The first two let new data out even before there is a loss (RFC 3042). Of a window
 * with many losses that is too much, because nothing tells of the lost ones: with SACK, what
 * is not beyond the highest block has arrived, is lost, or was sent again (FACK, Mathis and
 * Mahdavi, SIGCOMM 1996). Reno's and Vegas's senders have no SACK (RFC 6582): what they do
 * not send while a VM off its core cannot repair keeps its retransmissions from being lost.
 */
static inline u32 vflood_pipe(const struct vflood_flow *f, u32 end)
{
	u32 out = vflood_segments(f, end - f->snd_una);
	u32 left = f->dup_acks;
	/* Data that was refused overtakes what is held when it comes again. */
	bool is_in_order = !(f->flags & VFLOOD_REFUSED) ||
			   !seq_after(f->refused_end, f->snd_una);

	if (f->congestion.kind == CONGESTION_CUBIC && f->state == VFLOOD_PACKET_LOSS &&
	    !(f->flags & VFLOOD_TIMED_OUT) && is_in_order &&
	    seq_after(f->sacked_end, f->snd_una))
		return vflood_segments(f, end - f->sacked_end) + f->again_segments[0] +
		       f->again_segments[1];
	if (f->state != VFLOOD_PACKET_LOSS && left >= VFLOOD_DUP_ACKS)
		left = VFLOOD_DUP_ACKS - 1;
	return out > left ? out - left : 0;
}

/* May data from @seq to @end be let out? */
static inline bool vflood_may_send(struct vflood_flow *f, const struct vflood_settings *s,
				   u32 seq, u32 end)
{
	u32 segments = vflood_segments(f, end - seq);
	u32 cwnd = f->congestion.window.cwnd;
	u32 burst = cwnd > s->initial_window ? cwnd : s->initial_window;
	bool is_idle = f->snd_nxt == f->snd_una;

	if (seq_after(end, f->edge))
		return false;
	/* A sender that was idle for less than a timeout begins with its whole window (RFC
	 * 5681, section 4.1); vflood_data() has made it smaller after a longer time. */
	if (is_idle)
		f->burst_segments = burst;
	/* A packet that is larger than the window or the burst goes when nothing else is out,
	 * or never. */
	if (is_idle && seq == f->snd_nxt &&
	    (segments > f->congestion.window.cwnd || segments > f->burst_segments))
		return true;
	if (vflood_pipe(f, end) > f->congestion.window.cwnd) {
		f->flags |= VFLOOD_LIMITED;
		return false;
	}
	return segments <= f->burst_segments;
}

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

static inline void vflood_sent(struct vflood_flow *f, u32 end, u64 now_us)
{
	u32 segments = vflood_segments(f, end - f->snd_nxt);

	if (now_us - f->fresh_us[1] >= f->min_rtt_us / 2) {
		f->fresh_us[0] = f->fresh_us[1];
		f->fresh_start[0] = f->fresh_start[1];
		f->fresh_us[1] = now_us;
		f->fresh_start[1] = f->snd_nxt;
	}
	f->burst_segments -= segments < f->burst_segments ? segments : f->burst_segments;
	f->snd_nxt = end;
	f->sent_us = now_us;
	if (!(f->flags & VFLOOD_TIMING)) {
		f->flags |= VFLOOD_TIMING;
		f->timed_us = now_us;
		f->timed_end = end;
	}
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
 * vflood_data() - data from the VM
 * @seq: its first byte
 * @bytes: its length, above 0
 */
static inline enum vflood_verdict vflood_data(struct vflood_flow *f, struct vflood_vm *vm,
					      const struct vflood_settings *s, u32 seq,
					      u32 bytes, u64 now_us)
{
	u32 end = seq + bytes;
	u32 segments;

	if (!vflood_is_managed(f))
		return VFLOOD_PASS;
	if (seq_before(seq, f->snd_nxt)) {
		f->vm_end = seq_max(f->vm_end, end);
		return vflood_sent_again(f, seq, end, now_us);
	}
	if (!seq_after(end, f->vm_end)) {
		if (f->flags & VFLOOD_REFUSED &&
		    seq_within(seq, f->refused_start, f->refused_end))
			return VFLOOD_PASS;
		/* The timer of a VM whose receiver has closed its window: a window probe. */
		return seq == f->snd_nxt && f->snd_nxt == f->snd_una ? VFLOOD_PASS :
								       VFLOOD_DROP;
	}
	if (f->snd_nxt == f->snd_una && !f->held_segments && f->sent_us &&
	    now_us - f->sent_us > VFLOOD_IDLE_US)
		congestion_idle(&f->congestion, now_us - f->sent_us, VFLOOD_IDLE_US,
				s->initial_window);
	if (!f->held_segments && vflood_may_send(f, s, seq, end)) {
		f->vm_end = end;
		vflood_sent(f, end, now_us);
		vflood_promise(f, vm);
		return VFLOOD_PASS;
	}
	segments = vflood_segments(f, bytes);
	if (vm->held_segments + segments > s->buffer_segments) {
		if (f->state == VFLOOD_ACTIVE)
			f->state = VFLOOD_NO_BUFFER;
		if (!(f->flags & VFLOOD_REFUSED) || !seq_after(f->refused_end, f->snd_una)) {
			f->flags |= VFLOOD_REFUSED;
			f->refused_start = seq;
			f->refused_end = end;
		}
		if (seq_before(seq, f->refused_start))
			f->refused_start = seq;
		f->refused_end = seq_max(f->refused_end, end);
		return VFLOOD_DROP;
	}
	f->vm_end = end;
	f->held_segments += segments;
	vm->held_segments += segments;
	vflood_promise(f, vm);
	if (f->state == VFLOOD_ACTIVE && f->held_segments > vflood_threshold(f, vm, s))
		f->state = VFLOOD_NO_BUFFER;
	return VFLOOD_HOLD;
}

static inline void vflood_acked_new(struct vflood_flow *f, u32 ack, u64 now_us)
{
	u32 segments = vflood_segments(f, ack - f->snd_una);
	u32 out = vflood_out_segments(f);
	u32 cwnd = f->congestion.window.cwnd;
	bool slow_start = reno_in_slow_start(&f->congestion.window);
	bool limited = f->flags & VFLOOD_LIMITED || out >= cwnd ||
		       (slow_start && cwnd < 2 * out);
	bool round_over = !seq_before(ack, f->round_end);
	u32 known, again;

	if (f->flags & VFLOOD_TIMING && !seq_before(ack, f->timed_end)) {
		vflood_rtt(f, now_us > f->timed_us ? now_us - f->timed_us : 1);
		f->flags &= ~VFLOOD_TIMING;
	}
	f->snd_una = ack;
	if (round_over) {
		f->round_end = f->snd_nxt;
		f->flags &= ~VFLOOD_LIMITED;
	}
	if (f->state == VFLOOD_PACKET_LOSS) {
		again = segments < f->again_segments[0] ? segments : f->again_segments[0];
		f->again_segments[0] -= again;
		again = segments - again < f->again_segments[1] ? segments - again :
								  f->again_segments[1];
		f->again_segments[1] -= again;
		/* Duplicate ACKs have told of most of them already. */
		known = segments < f->dup_acks ? segments : f->dup_acks;
		segments -= known;
		f->dup_acks -= known;
		/* Fast recovery keeps the window; after a timeout slow start goes on. */
		limited = f->flags & VFLOOD_TIMED_OUT && segments;
		if (!seq_before(ack, f->recover))
			f->state = VFLOOD_ACTIVE;
	}
	if (f->state != VFLOOD_PACKET_LOSS)
		f->dup_acks = 0;
	if (limited)
		congestion_acked(&f->congestion, segments, now_us, f->srtt_us, round_over);
	if (2 * segments > f->burst_segments)
		f->burst_segments = 2 * segments;
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

/**
 * vflood_acked() - an ACK from the receiver
 *
 * What is held is then to be offered to vflood_release(), and the VM to be told
 * vflood_grant().
 */
static inline void vflood_acked(struct vflood_flow *f, const struct vflood_settings *s,
				const struct vflood_ack *a, u64 now_us)
{
	u32 ack = a->ack;
	u32 edge = ack + ((u32)a->window << f->scale);
	bool is_update = edge != f->edge;
	/* A DSACK (RFC 2883) tells of data that came twice, and not of a gap. */
	bool is_gap = a->has_sack && seq_after(a->sacked_end, ack);
	u32 sacked = 0, more;

	/* Old, or for data that the VM has not sent: it means nothing, and the VM drops it too.
	 */
	if (!vflood_is_managed(f) || seq_before(ack, f->snd_una) || seq_after(ack, f->vm_end))
		return;
	f->flags |= VFLOOD_SCALED;
	f->flags &= ~VFLOOD_SACKED;
	if (is_gap)
		f->flags |= VFLOOD_SACKED;
	/* Nobody can have what has not left. */
	if (is_gap && !seq_after(a->sacked_end, f->snd_nxt)) {
		f->sacked_end = seq_max(f->sacked_end, a->sacked_end);
		sacked = a->sacked_segments;
	}
	more = sacked > f->sacked_segments ? sacked - f->sacked_segments : 0;
	f->sacked_segments = sacked;
	f->sacked_end = seq_max(f->sacked_end, ack);
	f->edge = edge;
	/* Both of what was let out and passed on as a probe or after a refusal. */
	if (seq_after(ack, f->snd_nxt))
		f->snd_nxt = ack;
	f->burst_segments = s->initial_window;
	vflood_again_ages(f, now_us);
	if (ack != f->snd_una) {
		vflood_acked_new(f, ack, now_us);
	} else if (a->is_pure && !is_update && (is_gap || !a->has_sack) && f->snd_nxt != ack) {
		/* Linux's receivers send one for many segments (tcp_comp_sack_nr). */
		if (more > 1 && sacked > f->dup_acks)
			f->dup_acks += more < sacked - f->dup_acks ? more :
								     sacked - f->dup_acks;
		else
			f->dup_acks++;
		if (f->dup_acks >= VFLOOD_DUP_ACKS && f->state != VFLOOD_PACKET_LOSS)
			vflood_enter_loss(f, false);
	}
}

/* The first packet of the flow's queue is taken out. */
static inline void vflood_taken_out(struct vflood_flow *f, struct vflood_vm *vm, u32 bytes)
{
	u32 segments = vflood_segments(f, bytes);

	f->held_segments -= segments < f->held_segments ? segments : f->held_segments;
	vm->held_segments -= segments < vm->held_segments ? segments : vm->held_segments;
}

/**
 * vflood_drained() - the first packet of the flow's queue leaves, whatever the window says
 * @end: the end of its data
 */
static inline void vflood_drained(struct vflood_flow *f, struct vflood_vm *vm, u32 seq, u32 end,
				  u64 now_us)
{
	vflood_taken_out(f, vm, end - seq);
	if (seq_after(end, f->snd_nxt))
		vflood_sent(f, end, now_us);
}

/**
 * vflood_release() - may the first packet of the flow's queue leave?
 * @seq: its first byte
 * @bytes: its length
 *
 * Return: VFLOOD_PASS: take it out and send it; VFLOOD_DROP: take it out, it has arrived
 * already; VFLOOD_HOLD: it stays, and so does all behind it.
 */
static inline enum vflood_verdict vflood_release(struct vflood_flow *f, struct vflood_vm *vm,
						 const struct vflood_settings *s, u32 seq,
						 u32 bytes, u64 now_us)
{
	u32 end = seq + bytes;
	bool has_arrived = !seq_after(end, f->snd_una);

	if (!has_arrived && !vflood_may_send(f, s, seq, end))
		return VFLOOD_HOLD;
	vflood_taken_out(f, vm, bytes);
	if (has_arrived)
		return VFLOOD_DROP;
	vflood_sent(f, end, now_us);
	return VFLOOD_PASS;
}

/**
 * vflood_splits() - is a packet of several segments that may not leave as it is to be split?
 * @seq: its first byte
 * @bytes: its length
 *
 * If a part of it may leave now; unless only the congestion window is short of room for all of
 * it, and so much is on its way that ACKs will soon make that (tcp_tso_should_defer() in
 * Linux).
 */
static inline bool vflood_splits(struct vflood_flow *f, const struct vflood_settings *s,
				 u32 seq, u32 bytes)
{
	u32 segments = vflood_segments(f, bytes);
	bool is_short = vflood_pipe(f, seq + bytes) > f->congestion.window.cwnd;

	if (f->state != VFLOOD_PACKET_LOSS && is_short &&
	    vflood_out_segments(f) / VFLOOD_PATIENCE >= segments)
		return false;
	return vflood_may_send(f, s, seq, seq + f->mss);
}

/**
 * vflood_bare_seq() - the sequence number for a packet of the VM's without data
 *
 * The VM takes what is held for sent. The receiver takes a number beyond its window for
 * damage, and would not read the ACK.
 */
static inline u32 vflood_bare_seq(const struct vflood_flow *f, u32 seq)
{
	return vflood_is_managed(f) && seq_after(seq, f->snd_nxt) ? f->snd_nxt : seq;
}

/* Data with this ACK is held: must the ACK go out alone? */
static inline bool vflood_ack_is_due(const struct vflood_flow *f, u32 ack)
{
	return !(f->flags & VFLOOD_ACK_SENT) || seq_after(ack, f->ack_sent);
}

/* An ACK of the VM's goes out, alone or with data. */
static inline void vflood_ack_out(struct vflood_flow *f, u32 ack)
{
	if (!vflood_ack_is_due(f, ack))
		return;
	f->ack_sent = ack;
	f->flags |= VFLOOD_ACK_SENT;
}

/* The flow is over; the caller drops what is held. */
static inline void vflood_close(struct vflood_flow *f, struct vflood_vm *vm)
{
	vm->held_segments -= f->held_segments;
	vm->promised_segments -= f->promised_segments;
	f->held_segments = 0;
	f->promised_segments = 0;
	f->flags = 0;
}

/**
 * vflood_guest_held() - what the host still holds, as far as the guest can tell
 * @out: segments sent and not acknowledged, what is held among them
 * @sacked: those of them that have arrived out of order
 * @shadow: the shadow window, which is about what the host has in the network
 */
static inline u32 vflood_guest_held(u32 out, u32 sacked, u32 shadow)
{
	out -= sacked < out ? sacked : out;
	return out > shadow ? out - shadow : 0;
}

/**
 * vflood_guest_cwnd() - the guest's congestion window
 * @is_online: the host says that it is there
 * @is_repairing: the guest's TCP has seen a loss, or signs of one
 * @shadow: cong_win_vm', which a standard algorithm grows and shrinks all the time
 * @granted: segments that the host grants; 0 if it has said nothing yet
 * @held: vflood_guest_held(); 0 after a timeout, when the guest takes all for lost, and where
 * the window in recovery follows what arrives (RFC 6937) instead of what is out
 * @in_flight: segments sent, not acknowledged, and not taken for lost
 *
 * While a loss is repaired, what is held is not in the network, and must not keep lost data
 * from being sent again: a segment for each ACK.
 */
static inline u32 vflood_guest_cwnd(bool is_online, bool is_repairing, u32 shadow, u32 granted,
				    u32 held, u32 in_flight)
{
	if (!is_online)
		return shadow;
	if (is_repairing) {
		if (shadow + held > in_flight + 1)
			held = in_flight + 1 > shadow ? in_flight + 1 - shadow : 0;
		return shadow + held;
	}
	if (!granted)
		granted = VFLOOD_FLOOD_SEGMENTS;
	return granted > shadow ? granted : shadow;
}

#endif /* EVENKEEL_VFLOOD_H */
