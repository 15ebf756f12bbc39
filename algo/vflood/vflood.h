/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * vFlood: the guest hands its data over as soon as it runs, the host holds it and sends
 * it under a standard congestion window, also while the VM is off its core.
 *
 * Only decisions about sequence numbers and counts are here. The caller keeps each flow's
 * held packets in one queue, first in, first out, and does what vflood_data() and
 * vflood_release() say.
 */
#ifndef EVENKEEL_ALGO_VFLOOD_VFLOOD_H
#define EVENKEEL_ALGO_VFLOOD_VFLOOD_H

#include "grant.h"
#include "guest.h"
#include "loss.h"

/*
 * Segments in the network, as far as the host knows: each duplicate ACK says that one has
 * left. The first two let new data out even before there is a loss (RFC 3042). With many
 * losses in a window this counts too much, because nothing tells of the lost segments. So
 * with SACK, what is not beyond the highest block has arrived, is lost, or was sent again
 * (FACK). Reno's and Vegas's senders have no SACK (RFC 6582): sending less while a VM off
 * its core cannot repair keeps its retransmissions from being lost.
 */
static inline u32 vflood_pipe(const struct vflood_flow *f, u32 end)
{
	u32 out = vflood_segments(f, end - f->snd_una);
	u32 left = f->dup_acks;

	/* Data that was refused overtakes what is held when it comes again. */
	if (f->congestion.kind == CONGESTION_CUBIC && f->state == VFLOOD_PACKET_LOSS &&
	    !(f->flags & VFLOOD_TIMED_OUT) && !vflood_lacks_refused(f) &&
	    seq_after(f->sacked_end, f->snd_una))
		return vflood_segments(f, end - f->sacked_end) + f->again_segments[0] +
		       f->again_segments[1];
	if (f->state != VFLOOD_PACKET_LOSS && left >= VFLOOD_DUP_ACKS)
		left = VFLOOD_DUP_ACKS - 1;
	return out > left ? out - left : 0;
}

/*
 * A packet whose segmentation the VM has left to others (GSO) is one burst, as it is from
 * Linux's own senders: where it is a quarter of the window at most, the first after an
 * ACK leaves in one piece, whatever the ACK covers.
 */
static inline bool vflood_is_small(const struct vflood_flow *f, u32 segments)
{
	return segments <= f->congestion.window.cwnd / VFLOOD_WHOLE_PART;
}

/* Does the bound on bursts allow @segments at once? */
static inline bool vflood_is_burst(const struct vflood_flow *f, u32 segments)
{
	return segments <= f->burst_segments ||
	       (!(f->flags & VFLOOD_LEFT) && vflood_is_small(f, segments));
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
	/* A sender that was idle for less than a timeout begins with its whole window
	 * (RFC 5681 §4.1); vflood_data() has made it smaller after a longer time. */
	if (is_idle)
		f->burst_segments = burst;
	/* A packet that is larger than the window or the burst goes when nothing else is
	 * out, or never. */
	if (is_idle && seq == f->snd_nxt &&
	    (segments > f->congestion.window.cwnd || segments > f->burst_segments))
		return true;
	if (vflood_pipe(f, end) > f->congestion.window.cwnd) {
		f->flags |= VFLOOD_LIMITED;
		return false;
	}
	return vflood_is_burst(f, segments);
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
	f->flags |= VFLOOD_LEFT;
	if (!(f->flags & VFLOOD_TIMING)) {
		f->flags |= VFLOOD_TIMING;
		f->timed_us = now_us;
		f->timed_end = end;
	}
}

/**
 * vflood_passes() - may data of a flow that holds nothing leave at once?
 * @seq: its first byte
 * @bytes: its length, above 0
 *
 * Lets pass what vflood_data() would, without the VM's buffer: promises are counted anew
 * with the next ACK. Other data, and data after a pause that shrinks the window, is for
 * vflood_data(), as if this had not been asked.
 *
 * Data that is sent again may pass, too: in the queue it would be overtaken by an ACK
 * that the VM sends after it. After the ACK of the last FIN the other end no longer knows
 * the connection, and answers with RST.
 */
static inline bool vflood_passes(struct vflood_flow *f, const struct vflood_settings *s,
				 u32 seq, u32 bytes, u64 now_us)
{
	if (!vflood_is_managed(f) || f->held_segments)
		return false;
	if (seq_before(seq, f->snd_nxt))
		return !seq_after(seq + bytes, f->snd_nxt) &&
		       vflood_sent_again(f, seq, seq + bytes, now_us) == VFLOOD_PASS;
	if (seq != f->snd_nxt || seq != f->vm_end ||
	    vflood_segments(f, bytes) > f->congestion.window.cwnd ||
	    (f->sent_us && now_us - f->sent_us > VFLOOD_IDLE_US) ||
	    !vflood_may_send(f, s, seq, seq + bytes))
		return false;
	f->vm_end = seq + bytes;
	vflood_sent(f, seq + bytes, now_us);
	return true;
}

/**
 * vflood_is_ahead() - may data leave past the queue, if vflood_passes() lets it?
 * @is_direct: what the VM sent last has left past the queue
 *
 * It overtakes nothing where all that is out has left in the same way, or nothing is out.
 */
static inline bool vflood_is_ahead(const struct vflood_flow *f, bool is_direct)
{
	return is_direct || f->snd_nxt == f->snd_una;
}

/* Notes data that the VM has to send again, because it is not held. */
static inline void vflood_refuse(struct vflood_flow *f, struct vflood_range data)
{
	if (!vflood_lacks_refused(f)) {
		f->flags |= VFLOOD_REFUSED;
		f->refused_start = data.seq;
		f->refused_end = data.end;
	}
	if (seq_before(data.seq, f->refused_start))
		f->refused_start = data.seq;
	f->refused_end = seq_max(f->refused_end, data.end);
}

/* Data from the VM, which is not empty. */
static inline enum vflood_verdict vflood_data(struct vflood_flow *f, struct vflood_vm *vm,
					      const struct vflood_settings *s,
					      struct vflood_range data, u64 now_us)
{
	u32 seq = data.seq, end = data.end, bytes = end - seq;
	u32 segments;

	if (!vflood_is_managed(f))
		return VFLOOD_PASS;
	if (seq_before(seq, f->snd_nxt)) {
		f->vm_end = seq_max(f->vm_end, end);
		return vflood_sent_again(f, seq, end, now_us);
	}
	if (!seq_after(end, f->vm_end)) {
		bool is_refused = f->flags & VFLOOD_REFUSED &&
				  seq_within(seq, f->refused_start, f->refused_end);

		/* The timer of a VM whose receiver has closed its window: a window probe.
		 */
		if (!is_refused && (seq != f->snd_nxt || f->snd_nxt != f->snd_una))
			return VFLOOD_DROP;
		/* If it comes again, an ACK may be for either. */
		vflood_goes_again(f, seq, end);
		return VFLOOD_PASS;
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
		vflood_refuse(f, data);
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

/*
 * Segments by which an ACK makes the window grow. A segment that is acknowledged in parts
 * counts once: else a receiver could make the window as large as it likes (RFC 5681
 * §3.1). A short one counts when nothing else is out.
 */
static inline u32 vflood_whole_segments(struct vflood_flow *f, u32 ack)
{
	u32 bytes = f->acked_bytes + (ack - f->snd_una);

	f->acked_bytes = ack == f->snd_nxt ? 0 : bytes % f->mss;
	return ack == f->snd_nxt ? vflood_segments(f, bytes) : bytes / f->mss;
}

static inline void vflood_acked_new(struct vflood_flow *f, u32 ack, u64 now_us)
{
	u32 segments = vflood_segments(f, ack - f->snd_una);
	u32 whole = vflood_whole_segments(f, ack);
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
	f->advanced_us = now_us;
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
		if (whole > segments)
			whole = segments;
		/* Fast recovery keeps the window; after a timeout slow start goes on. */
		limited = f->flags & VFLOOD_TIMED_OUT && segments;
		if (!seq_before(ack, f->recover))
			f->state = VFLOOD_ACTIVE;
	}
	if (f->state != VFLOOD_PACKET_LOSS)
		f->dup_acks = 0;
	if (limited) {
		struct congestion_path path = {
			.now_us = now_us,
			.srtt_us = f->srtt_us,
			.min_rtt_us = f->min_rtt_us,
			.round_over = round_over,
		};

		congestion_acked(&f->congestion, whole, &path);
	}
	if (2 * segments > f->burst_segments)
		f->burst_segments = 2 * segments;
}

/**
 * vflood_acked() - an ACK from the receiver
 *
 * The caller then offers what is held to vflood_release(), and tells the VM
 * vflood_grant().
 *
 * Return: whether the last loss proved spurious, and the window was given back.
 */
static inline bool vflood_acked(struct vflood_flow *f, const struct vflood_settings *s,
				const struct vflood_ack *a, u64 now_us)
{
	u32 ack = a->ack;
	u32 edge = ack + ((u32)a->window << f->scale);
	bool is_update = edge != f->edge;
	/* A DSACK (RFC 2883) tells of data that came twice, and not of a gap. */
	bool is_gap = a->has_sack && seq_after(a->sacked_end, ack);
	bool had_gap = f->flags & VFLOOD_SACKED;
	bool advanced = ack != f->snd_una;
	u32 sacked = 0, more;
	bool is_undone;

	/* Old, or for data that the VM has not sent: it means nothing, and the VM drops
	 * it too.
	 */
	if (!vflood_is_managed(f) || seq_before(ack, f->snd_una) ||
	    seq_after(ack, f->vm_end))
		return false;
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
	/* The ACK may also be for what was passed on as a probe, or after a refusal. */
	if (seq_after(ack, f->snd_nxt))
		f->snd_nxt = ack;
	f->burst_segments = s->initial_window;
	f->flags &= ~VFLOOD_LEFT;
	/* Half the number space later it would lie ahead again. */
	if (!vflood_lacks_refused(f))
		f->flags &= ~VFLOOD_REFUSED;
	/* A window that is filled by full segments may end within one. */
	if (advanced || is_update || !f->held_segments)
		f->flags &= ~VFLOOD_CLOSED;
	else if (f->snd_nxt == ack && edge - ack < f->mss)
		f->flags |= VFLOOD_CLOSED;
	vflood_again_ages(f, now_us);
	if (advanced) {
		vflood_acked_new(f, ack, now_us);
	} else if (a->is_pure && !is_update && (is_gap || !a->has_sack) &&
		   f->snd_nxt != ack) {
		/* Linux's receivers send one for many segments (tcp_comp_sack_nr). */
		if (more > 1 && sacked > f->dup_acks)
			f->dup_acks += more < sacked - f->dup_acks ? more :
								     sacked - f->dup_acks;
		else
			f->dup_acks++;
		if (f->dup_acks >= VFLOOD_DUP_ACKS && f->state != VFLOOD_PACKET_LOSS)
			vflood_enter_loss(f, false);
	}
	is_undone = f->flags & VFLOOD_MAY_UNDO &&
		    vflood_is_needless(f, a, advanced, had_gap);
	if (is_undone)
		vflood_undo(f);
	if (f->flags & VFLOOD_AGAIN && !(f->flags & VFLOOD_DOUBT) &&
	    !seq_before(ack, f->again_end))
		f->flags &= ~VFLOOD_AGAIN;
	if (f->flags & VFLOOD_UNDONE && !seq_before(ack, f->vm_recover))
		f->flags &= ~VFLOOD_UNDONE;
	return is_undone;
}

/**
 * vflood_ack_is_known() - does an ACK say nothing that is new to a flow, or that it has
 * to act on?
 *
 * Most data from the other end has such an ACK. vflood_acked() would only allow another
 * burst. A VM that has used up what it was granted waits to be told more.
 */
static inline bool vflood_ack_is_known(const struct vflood_flow *f, u32 ack, u16 window,
				       bool is_pure, bool has_sack)
{
	u32 known = VFLOOD_SEEN_BOTH | VFLOOD_SCALED;
	u32 open = VFLOOD_SACKED | VFLOOD_AGAIN | VFLOOD_MAY_UNDO | VFLOOD_UNDONE;

	return (f->flags & (known | open)) == known && !has_sack &&
	       f->state != VFLOOD_PACKET_LOSS && !f->held_segments && ack == f->snd_una &&
	       ack + ((u32)window << f->scale) == f->edge &&
	       (!is_pure || f->snd_nxt == ack) && !vflood_is_used_up(f, ack);
}

/* The first packet of the flow's queue is taken out. */
static inline void vflood_taken_out(struct vflood_flow *f, struct vflood_vm *vm,
				    u32 bytes)
{
	u32 segments = vflood_segments(f, bytes);

	f->held_segments -= segments < f->held_segments ? segments : f->held_segments;
	vm->held_segments -= segments < vm->held_segments ? segments : vm->held_segments;
}

/* A packet that vflood_data() or vflood_piece_held() has counted cannot be held. */
static inline void vflood_unheld(struct vflood_flow *f, struct vflood_vm *vm,
				 struct vflood_range data)
{
	vflood_taken_out(f, vm, data.end - data.seq);
	vflood_refuse(f, data);
}

/**
 * vflood_drained() - the first packet of the flow's queue leaves, whatever the window
 * says
 * @end: the end of its data
 */
static inline void vflood_drained(struct vflood_flow *f, struct vflood_vm *vm, u32 seq,
				  u32 end, u64 now_us)
{
	vflood_taken_out(f, vm, end - seq);
	if (seq_after(end, f->snd_nxt))
		vflood_sent(f, end, now_us);
}

/**
 * vflood_release() - may the first packet of the flow's queue leave?
 *
 * Return: VFLOOD_PASS: take it out and send it; VFLOOD_DROP: take it out, it has arrived
 * already; VFLOOD_HOLD: it stays, and so does all behind it.
 */
static inline enum vflood_verdict vflood_release(struct vflood_flow *f,
						 struct vflood_vm *vm,
						 const struct vflood_settings *s,
						 struct vflood_range data, u64 now_us)
{
	u32 seq = data.seq, end = data.end, bytes = end - seq;
	bool has_arrived = !seq_after(end, f->snd_una);

	if (!has_arrived && !vflood_may_send(f, s, seq, end))
		return VFLOOD_HOLD;
	vflood_taken_out(f, vm, bytes);
	if (has_arrived)
		return VFLOOD_DROP;
	vflood_sent(f, end, now_us);
	return VFLOOD_PASS;
}

/*
 * Should a packet of several segments that may not leave wait for ACKs rather than be
 * split (tcp_tso_should_defer() in Linux)? It should if enough is on its way: four times
 * its size where the congestion window lacks room for it, its size where something else
 * has left since the last ACK. A loss is repaired segment by segment.
 */
static inline bool vflood_is_awaited(const struct vflood_flow *f, u32 seq, u32 bytes)
{
	u32 segments = vflood_segments(f, bytes);
	u32 out = vflood_out_segments(f);

	if (f->state == VFLOOD_PACKET_LOSS)
		return false;
	if (vflood_pipe(f, seq + bytes) > f->congestion.window.cwnd)
		return out / VFLOOD_WHOLE_PART >= segments;
	return vflood_is_small(f, segments) && out >= segments;
}

/**
 * vflood_splits() - must a packet of several segments that may not leave as it is be
 * split?
 * @seq: its first byte
 * @bytes: its length
 *
 * It must if a part of it may leave now, and it should not wait (vflood_is_awaited()).
 */
static inline bool vflood_splits(struct vflood_flow *f, const struct vflood_settings *s,
				 u32 seq, u32 bytes)
{
	return !vflood_is_awaited(f, seq, bytes) &&
	       vflood_may_send(f, s, seq, seq + f->mss);
}

/*
 * Has the window room for a whole packet? A larger one of several segments is split:
 * vflood_may_send() would let it go when nothing else is out, because it knows of no
 * splitting.
 */
static inline bool vflood_fits(const struct vflood_flow *f, u32 bytes)
{
	return vflood_segments(f, bytes) <= f->congestion.window.cwnd;
}

/*
 * Would a packet that is held wait in vain? Nothing is out, so no ACK comes, and the
 * receiver's window has no room for all of it.
 */
static inline bool vflood_waits_in_vain(const struct vflood_flow *f, u32 seq, u32 bytes)
{
	return f->snd_nxt == f->snd_una && seq_after(seq + bytes, f->edge);
}

/**
 * vflood_is_whole() - would new data in a packet of several segments be held, or leave,
 * as it is?
 * @seq: its first byte
 * @bytes: its length
 *
 * If not, it would be split as soon as it is held.
 */
static inline bool vflood_is_whole(const struct vflood_flow *f, u32 seq, u32 bytes)
{
	u32 segments = vflood_segments(f, bytes);
	u32 cwnd = f->congestion.window.cwnd;

	if (f->held_segments)
		return true;
	if (f->snd_nxt == f->snd_una)
		return segments <= cwnd && !vflood_waits_in_vain(f, seq, bytes);
	return vflood_is_awaited(f, seq, bytes) ||
	       (!seq_after(seq + bytes, f->edge) && vflood_pipe(f, seq + bytes) <= cwnd &&
		vflood_is_burst(f, segments));
}

/**
 * vflood_comes_whole() - is a packet of several segments to come to the queue as it is?
 * @seq: its first byte
 * @bytes: its length
 * @segment_bytes: of its segments, but for the last one
 * @is_held: something of the flow is held
 *
 * New data in full segments is, if it would not be split at once.
 */
static inline bool vflood_comes_whole(const struct vflood_flow *f, u32 seq, u32 bytes,
				      u32 segment_bytes, bool is_held)
{
	return segment_bytes >= f->mss && !seq_before(seq, f->vm_end) &&
	       (is_held || vflood_is_whole(f, seq, bytes));
}

/**
 * vflood_takes_whole() - does the queue take a packet of several segments that comes as
 * it is, for vflood_data() to let out or to hold?
 * @seq: its first byte
 * @bytes: its length
 *
 * It does not if there is room for only a part of it, or if it is the next and larger
 * than the window, or would wait in vain. Then it is split before it counts.
 */
static inline bool vflood_takes_whole(const struct vflood_flow *f,
				      const struct vflood_vm *vm,
				      const struct vflood_settings *s, u32 seq, u32 bytes)
{
	u32 segments;

	if (!vflood_is_managed(f) || seq_before(seq, f->vm_end))
		return false;
	segments = vflood_segments(f, bytes);
	return vm->held_segments + segments <= s->buffer_segments &&
	       (f->held_segments ||
		(vflood_fits(f, bytes) && !vflood_waits_in_vain(f, seq, bytes)));
}

/**
 * vflood_release_whole() - vflood_release() for a packet of several segments
 *
 * It leaves as it is only if the window has room for all of it. If it stays,
 * vflood_splits() says whether it is to be split.
 */
static inline enum vflood_verdict vflood_release_whole(struct vflood_flow *f,
						       struct vflood_vm *vm,
						       const struct vflood_settings *s,
						       struct vflood_range data,
						       u64 now_us)
{
	return vflood_fits(f, data.end - data.seq) ?
		       vflood_release(f, vm, s, data, now_us) :
		       VFLOOD_HOLD;
}

/**
 * vflood_leaves() - would the first packet of the flow's queue leave it now?
 * @is_whole: it is of several segments
 *
 * For callers that cannot take it out, but must find out whether somebody should: true
 * where vflood_release(), or vflood_release_whole(), would not say VFLOOD_HOLD, and where
 * the packet would be split.
 */
static inline bool vflood_leaves(struct vflood_flow *f, const struct vflood_settings *s,
				 struct vflood_range data, bool is_whole)
{
	u32 bytes = data.end - data.seq;

	if ((!is_whole || vflood_fits(f, bytes)) &&
	    (!seq_after(data.end, f->snd_una) ||
	     vflood_may_send(f, s, data.seq, data.end)))
		return true;
	return is_whole && vflood_splits(f, s, data.seq, bytes);
}

/**
 * vflood_piece_held() - a segment of a packet that was split while it was held
 * @bytes: its length
 *
 * It waits in the packet's place, and counts with it until all have come; then
 * vflood_taken_out() is told of the packet.
 */
static inline void vflood_piece_held(struct vflood_flow *f, struct vflood_vm *vm,
				     u32 bytes)
{
	u32 segments = vflood_segments(f, bytes);

	f->held_segments += segments;
	vm->held_segments += segments;
}

/**
 * vflood_bare_seq() - the sequence number for a packet of the VM's without data
 * @is_reset: it is a reset
 *
 * The VM takes what is held for sent. The receiver takes a number beyond its window for
 * damage, and one of a VM beyond its own window's edge for an old segment's
 * (tcp_acceptable_seq() in Linux): neither ACK would be read. A keepalive has a number
 * below, and a reset the one that it answers.
 */
static inline u32 vflood_bare_seq(const struct vflood_flow *f, u32 seq, bool is_reset)
{
	u32 first = is_reset ? f->snd_nxt : f->snd_una;

	return vflood_is_managed(f) && !seq_before(seq, first) ? f->snd_nxt : seq;
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

#endif /* EVENKEEL_ALGO_VFLOOD_VFLOOD_H */
