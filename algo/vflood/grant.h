/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * vFlood: how much a VM is told that it may hand over (vFlood §3.3, eq. 1 to 3).
 */
#ifndef EVENKEEL_ALGO_VFLOOD_GRANT_H
#define EVENKEEL_ALGO_VFLOOD_GRANT_H

#include "flow.h"

/* theta of vFlood eq. 2: what could be sent at once. Nothing, while others wait. */
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

/* Promises room to what was granted and has not come, beyond what could be sent at once.
 */
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

static inline u32 vflood_alpha(const struct vflood_flow *f,
			       const struct vflood_settings *s)
{
	bool is_low = f->min_rtt_us && f->min_rtt_us < s->low_rtt_us;

	return s->policy == VFLOOD_POLICY_PRIORITY && is_low ? s->alpha_low_rtt :
							       s->alpha;
}

/* T_i of vFlood eq. 1. */
static inline u64 vflood_threshold(const struct vflood_flow *f,
				   const struct vflood_vm *vm,
				   const struct vflood_settings *s)
{
	u32 used = vm->held_segments;
	u32 unused = used < s->buffer_segments ? s->buffer_segments - used : 0;

	if (s->policy == VFLOOD_POLICY_NONE)
		return (u64)unused + f->held_segments;
	return (u64)vflood_alpha(f, s) * unused / VFLOOD_ALPHA_ONE;
}

/*
 * phi of vFlood eq. 2, such that T_i still allows it when all that was promised has come
 * and Q has grown by it. An idle flow is promised half, or a few idle ones would have
 * all; no more than the paper's 512 segments, and no more for its priority: of many flows
 * that begin at once, the first ones would leave little to the others.
 */
static inline u32 vflood_room(const struct vflood_flow *f, const struct vflood_vm *vm,
			      const struct vflood_settings *s, bool is_idle)
{
	u32 alpha = is_idle ? s->alpha : vflood_alpha(f, s);
	u32 used = vm->held_segments;
	u32 unused, room;
	u64 threshold;

	/* Without a policy, nobody keeps count of what is on its way: first come, first
	 * served.
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
 * vflood_grant() - the window that the VM of a managed flow is told, in bytes beyond
 * f->snd_una
 *
 * vFlood eq. 2 and 3: what is out and held, what could be sent at once (theta), and what
 * may be held beyond (phi). Offline there is no phi, and the VM has the window that a
 * sender of its own would have. An edge that was told is not taken back while anything is
 * on its way.
 */
static inline u32 vflood_grant(struct vflood_flow *f, struct vflood_vm *vm,
			       const struct vflood_settings *s)
{
	bool is_idle = f->vm_end == f->snd_una;
	u32 segments = vflood_out_segments(f) + f->held_segments + vflood_direct(f);
	u32 edge, room, most;

	/* Not as soon as there is any room, or the state would go to and fro. */
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

/* Is less than a segment left of what was granted beyond an ACK's number? */
static inline bool vflood_is_used_up(const struct vflood_flow *f, u32 ack)
{
	return !seq_after(f->granted, ack) || f->granted - ack < f->mss;
}

/*
 * What was granted beyond an ACK's number; 0: the receiver's window holds; WINDOW_CLOSED:
 * nothing.
 *
 * A receiver that stays closed to what is held closes the VM's window, too. Then the VM's
 * timeouts are window probes, which go on as long as they are answered (RFC 9293
 * §3.8.6.1); with a window that is open, it gives the connection up after some
 * (tcp_retransmit_timer() and tcp_retries2 in Linux).
 */
static inline u32 vflood_granted(const struct vflood_flow *f, u32 ack)
{
	if (f->flags & VFLOOD_CLOSED)
		return WINDOW_CLOSED;
	return seq_after(f->granted, ack) ? f->granted - ack : 0;
}

#endif /* EVENKEEL_ALGO_VFLOOD_GRANT_H */
