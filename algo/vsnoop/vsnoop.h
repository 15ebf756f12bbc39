/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * vSnoop (vFlood §6): the host acknowledges data for a VM that is off its core.
 *
 * An ACK is a promise that TCP cannot take back, and that only the VM's own TCP can keep.
 * So it is given only for data that is in order, lies inside the window that the VM
 * itself has offered, has its place in the port's queue and finds memory in the VM, and
 * of which nothing else is in doubt (enum vsnoop_doubt). The last segment is always the
 * VM's to acknowledge: the other end's timers go on, and find out that a VM is dead as
 * they would without the host. Sequence numbers are those of the other end's data.
 *
 * A VM that has its core acknowledges by itself, at the pace at which it reads. And a
 * sender that is acknowledged goes on sending: so an early ACK takes from the budget what
 * may come in response (vsnoop_expect()), or the queue would overflow and lose others'
 * SYNs.
 */
#ifndef EVENKEEL_ALGO_VSNOOP_VSNOOP_H
#define EVENKEEL_ALGO_VSNOOP_VSNOOP_H

#include "../base/seq.h"
#include "../base/time.h"
#include "../base/window.h"

/*
 * A flow's states:
 *
 *              window, memory or budget used up,
 *              or the VM has its core
 *     ACTIVE ------------------------------------> NO_BUFFER
 *      ^  |  <------------------------------------     |
 *      |  |   data that fits, and it has it no more    |
 *      |  |                                            |
 *      |  | data is missing,                           | the same
 *      |  v or a packet is in doubt                    |
 *     UNEXPECTED_SEQUENCE <----------------------------+
 *
 * UNEXPECTED_SEQUENCE ends when the VM has acknowledged all that was ever seen.
 */
enum vsnoop_state {
	VSNOOP_ACTIVE, /* data is acknowledged early */
	VSNOOP_NO_BUFFER, /* not now: the VM's window or memory or the queue's share is
			   * used up, or the VM has its core
			   */
	VSNOOP_UNEXPECTED_SEQUENCE, /* not before the VM has caught up */
};

/* Why data was not acknowledged early: a doubt that only somebody else can settle. */
enum vsnoop_doubt {
	VSNOOP_CERTAIN,
	/* Of the flow, for now. */
	VSNOOP_DOUBT_HANDSHAKE, /* the VM has sent no ACK of its own yet */
	VSNOOP_DOUBT_CLOSING, /* a FIN was seen */
	VSNOOP_DOUBT_ORDER, /* data before it is missing */
	VSNOOP_DOUBT_WINDOW, /* it lies beyond what the VM has offered */
	VSNOOP_DOUBT_MEMORY, /* the VM may not have as much memory as its window says */
	VSNOOP_DOUBT_BUDGET, /* the queue's share is used up */
	VSNOOP_DOUBT_RUNS, /* the VM has its core, and acknowledges itself */
	VSNOOP_DOUBT_CORE, /* nobody knows whether the VM has its core */
	VSNOOP_DOUBT_SILENCE, /* the VM has not reacted to data for VSNOOP_LIFE_US */
	/* Of the packet: the VM's TCP may not take it. */
	VSNOOP_DOUBT_QUEUE, /* the port's queue may not */
	VSNOOP_DOUBT_CHECKSUM, /* it is damaged */
	VSNOOP_DOUBT_ADDRESS, /* it is for another MAC than the one that the VM sends with
			       */
	VSNOOP_DOUBT_TTL, /* lower than any that the VM has taken (IP_MINTTL) */
	VSNOOP_DOUBT_CLOCK, /* its timestamp is behind one that went before (PAWS, RFC
			       7323) */
	VSNOOP_DOUBT_HEADERS, /* options, flags or an ACK number that the VM may not take
			       */
	/* Of the VM. */
	VSNOOP_DOUBT_UNKNOWN, /* nobody has vouched for it */
	VSNOOP_DOUBT_UNFIT, /* its own agent says that it may drop what it has offered
			     * room for
			     */
	VSNOOP_DOUBT_FORWARDED, /* its packets' TTL says that another machine has sent
				   them */
	VSNOOP_DOUBT_MACS, /* more than one MAC sends at its port */
	VSNOOP_DOUBT_TOOK_BACK, /* it has taken back a part of its window */
	VSNOOP_DOUBT_BROKEN, /* it has lost what was acknowledged for it */
};

enum vsnoop_verdict {
	VSNOOP_NONE, /* the VM will acknowledge it */
	VSNOOP_ACK, /* acknowledge up to f->acked now */
};

enum vsnoop_ack {
	VSNOOP_ACK_PASS,
	VSNOOP_ACK_DROP, /* it says nothing new */
};

/* Whether a VM has its core. */
enum vsnoop_core {
	VSNOOP_CORE_UNKNOWN,
	VSNOOP_CORE_ON, /* one of its virtual CPUs runs */
	VSNOOP_CORE_OFF, /* none does: they wait, or have nothing to do */
};

struct vsnoop_settings {
	u32 budget_segments; /* of the port's queue, for all its flows: what waits, and
			      * what may come
			      */
};

/* A VM's port. */
struct vsnoop_vm {
	u32 outstanding; /* segments in the queue that were, or may be, acknowledged early
			  */
	u32 doubt; /* enum vsnoop_doubt: of the whole VM, for good */
	u32 coming; /* segments that its senders may send without another ACK */
};

/*
 * Memory that a segment takes in the VM at most: virtio_net gives it a buffer of a page
 * and describes it in 256 bytes (page_to_skb(), Linux 6.1 to 7.3); a longer one has
 * several.
 */
#define VSNOOP_SEGMENT_MEMORY 4352
#define VSNOOP_BUFFER_BYTES 1536 /* the least that such a buffer holds */
#define VSNOOP_MEMORY_MOST (1u << 31) /* no window is as large (RFC 7323 §2.3) */

/*
 * How long data may be acknowledged for a VM that does not react to any: longer than a VM
 * is off its core, and than a delayed ACK (0.5 s, RFC 9293 §3.8.6.3) waits.
 */
#define VSNOOP_LIFE_US 1000000

/*
 * Early ACKs for all that a sender has under way. Each is a packet that the sender's
 * processor reads, and that takes a place at its port if the sender is a VM off its core,
 * too. With little under way each segment has one.
 */
#define VSNOOP_ACKS_PER_FLIGHT 16
/* As many as a sender's or a card's offload puts into a packet of 64 KB. */
#define VSNOOP_SEGMENTS_PER_ACK 44

/* How long acknowledged data may be missing in the VM while later data is there: longer
 * than a CPU is kept from handing on a packet that it is processing. */
#define VSNOOP_HOLE_US 200000

/* Segments of a packet that another CPU is processing, if each takes a place. */
#define VSNOOP_CPU_SEGMENTS 64

/* By default, how many segments at a port of @slots may be acknowledged before the VM has
 * them. */
static inline u32 vsnoop_budget(u32 slots)
{
	return slots / 2;
}

/**
 * vsnoop_reserve() - slots of a port's queue that are never counted on
 * @slots: all of them
 * @cpus: of the host
 *
 * A quarter or, if more, one packet for each CPU: what all may put in between the look at
 * the queue and the packet's arrival. At most half.
 */
static inline u32 vsnoop_reserve(u32 slots, u32 cpus)
{
	u64 reserve = (u64)cpus * VSNOOP_CPU_SEGMENTS;
	u32 most = slots / 2 ? slots / 2 : 1;

	if (reserve < slots / 4)
		return slots / 4;
	return reserve < most ? (u32)reserve : most;
}

/**
 * vsnoop_wanted_slots() - slots that must be free for a packet to have one for certain
 * @segments: that it is, or may be cut into
 */
static inline u32 vsnoop_wanted_slots(u32 segments, u32 reserve)
{
	return segments + reserve;
}

#define VSNOOP_SEEN_PEER 1u /* the other end's SYN */
/* An ACK of the VM's that is no SYN: its end is established. */
#define VSNOOP_SEEN_VM 2u
#define VSNOOP_SEEN_BOTH 3u
#define VSNOOP_SCALED 4u /* f->scale is known */
#define VSNOOP_CLOSING 8u /* a FIN was seen: the VM's own ACKs end the connection */
#define VSNOOP_ASKED 16u /* the other end waits for an ACK, even one without news */
#define VSNOOP_RODE 32u /* f->rode is known */
#define VSNOOP_UNSURE 64u /* the VM may not have taken all before f->unsure */

struct vsnoop_flow {
	u64 waiting_us; /* since when the VM has data and has not reacted, 0: it has none
			 */
	u64 hole_us; /* since when the VM says that acknowledged data is missing, 0: it
		      * does not
		      */
	u32 next; /* end of what was delivered in order */
	u32 high; /* highest end ever seen */
	u32 acked; /* highest ACK that has gone out, early or the VM's own */
	u32 sent_edge; /* right edge of the window that went with it */
	u32 vm_ack; /* the VM's own ACK */
	u32 vm_edge; /* right edge of the window that the VM has offered */
	u32 ts_val; /* the VM's last timestamp */
	u32 vm_seq; /* end of what the VM has sent */
	u32 outstanding; /* segments in the queue that were, or may be, acknowledged early
			  */
	u32 mss; /* payload of a full segment, or more */
	u32 rode; /* highest ACK that data of the VM's took along */
	u32 flags;
	u32 room_bytes; /* memory that the VM had when it last moved its window's edge */
	u32 unsure; /* nothing is acknowledged early before the VM has acknowledged this
		     */
	u32 used_bytes; /* what has come for the VM since, and what was under way then,
			   takes */
	u32 flight; /* segments that its sender may have under way: those seen, and as
		     * many more as were acknowledged early (slow start)
		     */
	u32 coming; /* of them, those that have not come */
	u8 scale; /* of the VM's windows */
	u8 state; /* enum vsnoop_state */
	u8 doubt; /* enum vsnoop_doubt: about the last data */
	u8 unused;
};

/* The other end's SYN or SYN-ACK comes. */
static inline void vsnoop_peer_syn(struct vsnoop_flow *f, u32 seq, u32 mss)
{
	if (f->flags & VSNOOP_SEEN_VM)
		return;
	f->next = seq + 1;
	f->high = seq + 1;
	f->acked = seq + 1;
	f->vm_ack = seq + 1;
	f->sent_edge = seq + 1;
	f->vm_edge = seq + 1;
	f->mss = mss ? mss : WINDOW_DEFAULT_MSS;
	f->flags |= VSNOOP_SEEN_PEER;
}

/* The VM's SYN or SYN-ACK: @scale is what it offers, and 0 if one of the two does not
 * scale. */
static inline void vsnoop_vm_syn(struct vsnoop_flow *f, u8 scale)
{
	f->scale = window_scale(scale);
	f->flags |= VSNOOP_SCALED;
}

static inline bool vsnoop_is_managed(const struct vsnoop_flow *f)
{
	return (f->flags & VSNOOP_SEEN_BOTH) == VSNOOP_SEEN_BOTH &&
	       f->flags & VSNOOP_SCALED && !(f->flags & VSNOOP_CLOSING);
}

/* What goes into the window field beside an ACK of f->acked. */
static inline u16 vsnoop_window(const struct vsnoop_flow *f)
{
	u32 bytes = seq_after(f->vm_edge, f->acked) ? f->vm_edge - f->acked : 0;

	bytes >>= f->scale;
	return bytes < 65535 ? (u16)bytes : 65535;
}

/**
 * vsnoop_peer_ack() - a packet without data for the VM
 * @seq: its sequence number
 * @is_odd: it resets or opens a connection, which the VM may challenge (RFC 5961)
 *
 * A keepalive and a window probe have an old number. Their sender wants the VM's answer,
 * though it says nothing new.
 */
static inline void vsnoop_peer_ack(struct vsnoop_flow *f, u32 seq, bool is_odd)
{
	if (is_odd || seq_before(seq, f->next))
		f->flags |= VSNOOP_ASKED;
}

/* The memory that @segments take in the VM. */
static inline u32 vsnoop_memory(const struct vsnoop_flow *f, u32 segments)
{
	return segments * ((f->mss + VSNOOP_BUFFER_BYTES - 1) / VSNOOP_BUFFER_BYTES) *
	       VSNOOP_SEGMENT_MEMORY;
}

/* How many full segments @bytes make, rounded up. */
static inline u32 vsnoop_full_segments(const struct vsnoop_flow *f, u32 bytes)
{
	return (bytes + f->mss - 1) / f->mss;
}

/* Notes what may still come of the flow: its sender may have @f->flight under way. */
static inline void vsnoop_expect(struct vsnoop_flow *f, struct vsnoop_vm *vm)
{
	u32 here = vsnoop_full_segments(f, f->next - f->acked);

	if (f->flight < here)
		f->flight = here;
	vm->coming -= f->coming;
	f->coming = f->flight - here;
	vm->coming += f->coming;
}

/* Is there room for all that waits, that may come, and that an ACK of @bytes lets come?
 * In slow start the last is twice @bytes (RFC 5681 §3.1). */
static inline bool vsnoop_fits(const struct vsnoop_flow *f, const struct vsnoop_vm *vm,
			       const struct vsnoop_settings *s, u32 bytes)
{
	u64 most = (u64)vm->outstanding + vm->coming +
		   2 * (u64)vsnoop_full_segments(f, bytes);

	return most <= s->budget_segments;
}

/* Does an ACK up to @ack tell of enough to be sent? */
static inline bool vsnoop_is_worth_it(const struct vsnoop_flow *f, u32 ack)
{
	u32 enough = f->flight / VSNOOP_ACKS_PER_FLIGHT;

	if (!seq_after(ack, f->acked))
		return false;
	if (enough > VSNOOP_SEGMENTS_PER_ACK)
		enough = VSNOOP_SEGMENTS_PER_ACK;
	return vsnoop_full_segments(f, ack - f->acked) >= enough;
}

/* Data for the VM. */
struct vsnoop_data {
	u64 now_us;
	u32 seq; /* its first byte */
	u32 bytes; /* its length; 0 only with a FIN */
	u32 segments; /* how many of at most a full segment it is */
	u32 last_bytes; /* length of the last of them */
	u32 doubt; /* enum vsnoop_doubt: whether the VM's TCP gets it, as far as it can be
		    * seen
		    */
	u32 core; /* enum vsnoop_core */
	bool is_fin; /* it ends the stream */
};

/* The VM may not take all before @end. */
static inline void vsnoop_unsure(struct vsnoop_flow *f, u32 end)
{
	f->flags |= VSNOOP_UNSURE;
	f->unsure = end;
}

/* What is in doubt about new data in order, with the data itself counted. */
static inline u32 vsnoop_doubt_about(const struct vsnoop_flow *f,
				     const struct vsnoop_vm *vm,
				     const struct vsnoop_settings *s,
				     const struct vsnoop_data *d)
{
	u32 end = d->seq + d->bytes;
	u32 ack = end - d->last_bytes;

	if ((f->flags & VSNOOP_SEEN_BOTH) != VSNOOP_SEEN_BOTH ||
	    !(f->flags & VSNOOP_SCALED))
		return VSNOOP_DOUBT_HANDSHAKE;
	if (f->flags & VSNOOP_CLOSING)
		return VSNOOP_DOUBT_CLOSING;
	if (f->state == VSNOOP_UNEXPECTED_SEQUENCE ||
	    (f->flags & VSNOOP_UNSURE && seq_before(f->vm_ack, f->unsure)))
		return VSNOOP_DOUBT_ORDER;
	if (time_since(d->now_us, f->waiting_us) >= VSNOOP_LIFE_US)
		return VSNOOP_DOUBT_SILENCE;
	if (seq_after(end, f->vm_edge))
		return VSNOOP_DOUBT_WINDOW;
	if (f->used_bytes > f->room_bytes)
		return VSNOOP_DOUBT_MEMORY;
	if (d->core == VSNOOP_CORE_ON)
		return VSNOOP_DOUBT_RUNS;
	if (d->core != VSNOOP_CORE_OFF)
		return VSNOOP_DOUBT_CORE;
	if (seq_after(ack, f->acked) && !vsnoop_fits(f, vm, s, ack - f->acked))
		return VSNOOP_DOUBT_BUDGET;
	return VSNOOP_CERTAIN;
}

/**
 * vsnoop_data() - data for the VM
 *
 * Return: VSNOOP_ACK: an ACK of f->acked with vsnoop_window() and f->ts_val goes out,
 * once the packet is in the queue.
 */
static inline enum vsnoop_verdict vsnoop_data(struct vsnoop_flow *f, struct vsnoop_vm *vm,
					      const struct vsnoop_settings *s,
					      const struct vsnoop_data *d)
{
	u32 doubt = vm->doubt ? vm->doubt : d->doubt;
	u32 end = d->seq + d->bytes;
	u32 ack = end - d->last_bytes;
	bool is_new = seq_after(end, f->next);

	if (d->is_fin)
		f->flags |= VSNOOP_CLOSING;
	if (!(f->flags & VSNOOP_SEEN_PEER))
		return VSNOOP_NONE;
	if (f->used_bytes < VSNOOP_MEMORY_MOST)
		f->used_bytes += vsnoop_memory(f, d->segments);
	if (!f->waiting_us)
		f->waiting_us = d->now_us;
	f->high = seq_max(f->high, end);
	if (seq_after(d->seq, f->next) || (doubt && is_new)) {
		/* Something is missing, now or from now on. */
		f->state = VSNOOP_UNEXPECTED_SEQUENCE;
		f->doubt = doubt ? (u8)doubt : VSNOOP_DOUBT_ORDER;
		return VSNOOP_NONE;
	}
	if (!is_new) {
		/* An early ACK may have been lost on its way, unless the VM has
		 * acknowledged as much.
		 */
		if (vsnoop_is_managed(f) && f->state == VSNOOP_ACTIVE && !vm->doubt &&
		    seq_before(d->seq, f->acked) && seq_after(f->acked, f->vm_ack) &&
		    time_since(d->now_us, f->waiting_us) < VSNOOP_LIFE_US)
			return VSNOOP_ACK;
		f->flags |= VSNOOP_ASKED;
		return VSNOOP_NONE;
	}
	f->next = end;
	if (f->state != VSNOOP_UNEXPECTED_SEQUENCE) {
		/* The next ACK is for this packet too. */
		f->outstanding += d->segments;
		vm->outstanding += d->segments;
	}
	vsnoop_expect(f, vm);
	f->doubt = (u8)vsnoop_doubt_about(f, vm, s, d);
	if (f->doubt) {
		if (f->doubt == VSNOOP_DOUBT_WINDOW || f->doubt == VSNOOP_DOUBT_MEMORY)
			vsnoop_unsure(f, end);
		if (vsnoop_is_managed(f) && f->state != VSNOOP_UNEXPECTED_SEQUENCE)
			f->state = VSNOOP_NO_BUFFER;
		return VSNOOP_NONE;
	}
	f->state = VSNOOP_ACTIVE;
	f->flags &= ~VSNOOP_UNSURE;
	/* Before f->rode is half the number space behind, and looks as if it led. */
	if (end - f->rode >= 1u << 30)
		f->flags &= ~VSNOOP_RODE;
	if (!vsnoop_is_worth_it(f, ack))
		return VSNOOP_NONE;
	f->flight += vsnoop_full_segments(f, ack - f->acked);
	f->acked = ack;
	f->sent_edge = seq_max(f->sent_edge, f->vm_edge);
	vsnoop_expect(f, vm);
	return VSNOOP_ACK;
}

/* The early ACK that vsnoop_data() has just asked for cannot go out, nor the data. */
static inline void vsnoop_undo(struct vsnoop_flow *f, u32 ack)
{
	f->acked = ack;
	f->state = VSNOOP_UNEXPECTED_SEQUENCE;
	f->doubt = VSNOOP_DOUBT_ORDER;
}

/* An ACK from the VM, alone or with data. */
struct vsnoop_vm_ack {
	u64 now_us;
	u32 seq; /* its sequence number */
	u32 bytes; /* of data */
	u32 ack; /* its number */
	u32 ts_val; /* its timestamp, 0: none */
	u16 window; /* its window field */
	bool is_bare; /* it has neither data nor SACK blocks nor an ECN echo */
	bool has_later; /* SACK blocks tell of data after the number */
};

/* The VM has acknowledged up to @ack, which is not before f->vm_ack. */
static inline void vsnoop_arrived(struct vsnoop_flow *f, struct vsnoop_vm *vm, u32 ack)
{
	/* Each has at most a full segment, so at least this many are gone. */
	u32 arrived = (ack - f->vm_ack) / f->mss;

	if (!seq_before(ack, f->next) || arrived > f->outstanding)
		arrived = f->outstanding;
	f->outstanding -= arrived;
	vm->outstanding -= arrived;
}

/*
 * The VM has moved its window's edge. It has memory for what it has newly offered, but
 * for what the rounding of windows may add (__tcp_select_window() and tcp_select_window()
 * in Linux).
 */
static inline void vsnoop_vm_edge(struct vsnoop_flow *f, struct vsnoop_vm *vm, u32 ack,
				  u32 edge)
{
	u32 queued = vsnoop_memory(f, f->outstanding);
	u32 step = 1u << f->scale;
	s32 moved = (s32)(edge - f->vm_edge);

	if (moved < -(s32)step)
		vm->doubt = VSNOOP_DOUBT_TOOK_BACK;
	/* Behind missing data, what is under way is not counted. */
	if (moved >= (s32)step &&
	    (f->state != VSNOOP_UNEXPECTED_SEQUENCE || !seq_before(ack, f->high))) {
		f->room_bytes = edge - ack > step ? edge - ack - step : 0;
		if (queued < f->used_bytes)
			f->used_bytes = queued;
	}
	f->vm_ack = ack;
	f->vm_edge = edge;
	/* Half the number space later it would lie ahead again. */
	if (!seq_before(ack, f->unsure))
		f->flags &= ~VSNOOP_UNSURE;
}

/*
 * Later data has arrived in the VM, but not the acknowledged data before it. If that
 * stays missing, the VM has lost it; if it comes, two CPUs of the host may have exchanged
 * packets behind the program. An ACK that a later one has overtaken only tells of what
 * was missing then.
 */
static inline void vsnoop_hole(struct vsnoop_flow *f, struct vsnoop_vm *vm,
			       const struct vsnoop_vm_ack *a)
{
	if (seq_before(a->ack, f->vm_ack))
		return;
	if (a->ack != f->vm_ack || !a->has_later)
		f->hole_us = 0;
	if (!a->has_later)
		return;
	if (seq_before(a->ack, f->high))
		f->state = VSNOOP_UNEXPECTED_SEQUENCE;
	if (!seq_before(a->ack, f->acked))
		return;
	if (!f->hole_us)
		f->hole_us = a->now_us;
	else if (time_since(a->now_us, f->hole_us) >= VSNOOP_HOLE_US)
		vm->doubt = VSNOOP_DOUBT_BROKEN;
}

/**
 * vsnoop_vm_ack() - an ACK from the VM
 *
 * Return: whether a bare one may be dropped. One with data passes, with the number
 * f->acked in the place of an older one.
 */
static inline enum vsnoop_ack vsnoop_vm_ack(struct vsnoop_flow *f, struct vsnoop_vm *vm,
					    const struct vsnoop_vm_ack *a)
{
	u32 edge = a->ack + ((u32)a->window << f->scale);
	bool is_probe;
	bool is_news;
	bool is_asked;

	if (!(f->flags & VSNOOP_SEEN_PEER) || !(f->flags & VSNOOP_SCALED))
		return VSNOOP_ACK_PASS;
	if (!(f->flags & VSNOOP_SEEN_VM)) {
		f->flags |= VSNOOP_SEEN_VM;
		vsnoop_arrived(f, vm, a->ack);
		f->vm_edge = a->ack;
		vsnoop_vm_edge(f, vm, a->ack, edge);
		f->acked = a->ack;
		f->sent_edge = edge;
		f->next = seq_max(f->next, a->ack);
		f->ts_val = a->ts_val;
		f->vm_seq = a->seq + a->bytes;
		f->waiting_us = seq_before(a->ack, f->high) ? a->now_us : 0;
		/* A listener may have dropped what came before its connection was made.
		 */
		if (seq_before(a->ack, f->high))
			vsnoop_unsure(f, f->high);
		return VSNOOP_ACK_PASS;
	}
	/* A window probe or a keepalive has an old number, and wants an answer. */
	is_probe = !a->bytes && seq_before(a->seq, f->vm_seq);
	f->vm_seq = seq_max(f->vm_seq, a->seq + a->bytes);
	if (a->ts_val)
		f->ts_val = a->ts_val;
	vsnoop_hole(f, vm, a);
	if (!seq_before(a->ack, f->vm_ack)) {
		vsnoop_arrived(f, vm, a->ack);
		vsnoop_vm_edge(f, vm, a->ack, edge);
	}
	f->next = seq_max(f->next, a->ack);
	f->high = seq_max(f->high, a->ack);
	f->waiting_us = seq_before(a->ack, f->high) ? a->now_us : 0;
	if (f->state == VSNOOP_UNEXPECTED_SEQUENCE && !seq_before(a->ack, f->high))
		f->state = VSNOOP_ACTIVE;
	is_news = seq_after(a->ack, f->acked) ||
		  (a->ack == f->acked && seq_after(edge, f->sent_edge));
	if (seq_after(a->ack, f->acked))
		f->acked = a->ack;
	if (a->ack == f->acked)
		f->sent_edge = seq_max(f->sent_edge, edge);
	/* The VM itself has acknowledged all: its sender's flight is counted anew. */
	if (!seq_before(a->ack, f->acked)) {
		f->flight = 0;
		vsnoop_expect(f, vm);
	}
	is_asked = f->flags & VSNOOP_ASKED;
	/* An older number may be from before the question. */
	if (!seq_before(a->ack, f->acked))
		f->flags &= ~VSNOOP_ASKED;
	/* Each duplicate ACK tells of out-of-order data; the other end counts them. */
	if (!a->is_bare || is_probe || is_news || is_asked || !vsnoop_is_managed(f) ||
	    vm->doubt || (f->state == VSNOOP_UNEXPECTED_SEQUENCE && a->ack == f->acked))
		return VSNOOP_ACK_PASS;
	return VSNOOP_ACK_DROP;
}

/**
 * vsnoop_ride() - data of the VM's goes out
 * @ack: its number
 *
 * Return: whether it takes along f->acked and vsnoop_window(), which say more than its
 * own ACK. Early ACKs up to there are then needless.
 */
static inline bool vsnoop_ride(struct vsnoop_flow *f, u32 ack)
{
	if (!vsnoop_is_managed(f) || !seq_after(f->acked, ack))
		return false;
	f->rode = f->acked;
	f->flags |= VSNOOP_RODE;
	return true;
}

/* An early ACK of this number need not go out alone: data has taken it along. */
static inline bool vsnoop_has_ridden(const struct vsnoop_flow *f, u32 ack)
{
	return f->flags & VSNOOP_RODE && !seq_after(ack, f->rode);
}

/* The flow is over. */
static inline void vsnoop_close(struct vsnoop_flow *f, struct vsnoop_vm *vm)
{
	vm->outstanding -= f->outstanding;
	vm->coming -= f->coming;
	f->outstanding = 0;
	f->coming = 0;
	f->flags = 0;
}

#endif /* EVENKEEL_ALGO_VSNOOP_VSNOOP_H */
