/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * vSnoop (Kangarlou et al., SC 2010; section 6 of the vFlood paper): the host acknowledges
 * data for a VM that is off its core.
 *
 * An ACK is a promise that TCP cannot take back, so it is given only for data that is in
 * order, lies inside the window that the VM itself has offered, and has its place in the
 * port's queue. Sequence numbers are those of the other end's data.
 */
#ifndef EVENKEEL_VSNOOP_H
#define EVENKEEL_VSNOOP_H

#include "seq.h"
#include "window.h"

enum vsnoop_state {
	VSNOOP_ACTIVE, /* data is acknowledged early */
	VSNOOP_NO_BUFFER, /* not now: the VM's window or the queue's share is used up */
	VSNOOP_UNEXPECTED_SEQUENCE, /* not before the VM has caught up */
};

enum vsnoop_verdict {
	VSNOOP_NONE, /* the VM will acknowledge it */
	VSNOOP_ACK, /* acknowledge up to f->told now */
};

enum vsnoop_ack {
	VSNOOP_ACK_PASS,
	VSNOOP_ACK_DROP, /* it says nothing new */
};

struct vsnoop_settings {
	u32 budget_segments; /* of the port's queue, for all its flows */
};

/* A VM's port. */
struct vsnoop_vm {
	u32 outstanding; /* segments in the queue that were, or may be, acknowledged early */
};

#define VSNOOP_SEEN_PEER 1u /* the other end's SYN */
#define VSNOOP_SEEN_VM 2u /* an ACK of the VM's that is no SYN: its end is established */
#define VSNOOP_SEEN_BOTH 3u
#define VSNOOP_SCALED 4u /* f->scale is known */
#define VSNOOP_CLOSING 8u /* a FIN was seen: the VM's own ACKs end the connection */
#define VSNOOP_ASKED 16u /* the other end waits for an ACK, even one without news */
#define VSNOOP_RODE 32u /* f->rode is known */

struct vsnoop_flow {
	u32 next; /* end of what was delivered in order */
	u32 high; /* highest end ever seen */
	u32 told; /* highest ACK that has gone out, early or the VM's own */
	u32 told_edge; /* right edge of the window that went with it */
	u32 vm_ack; /* the VM's own ACK */
	u32 vm_edge; /* right edge of the window that the VM has offered */
	u32 ts_val; /* the VM's last timestamp */
	u32 vm_seq; /* end of what the VM has sent */
	u32 outstanding; /* segments in the queue that were, or may be, acknowledged early */
	u32 mss; /* payload of a full segment, or more */
	u32 rode; /* highest ACK that data of the VM's took along */
	u32 flags;
	u8 scale; /* of the VM's windows */
	u8 state; /* enum vsnoop_state */
	u16 unused;
};

/* The other end's SYN or SYN-ACK comes. */
static inline void vsnoop_peer_syn(struct vsnoop_flow *f, u32 seq, u32 mss)
{
	if (f->flags & VSNOOP_SEEN_VM)
		return;
	f->next = seq + 1;
	f->high = seq + 1;
	f->told = seq + 1;
	f->vm_ack = seq + 1;
	f->told_edge = seq + 1;
	f->vm_edge = seq + 1;
	f->mss = mss ? mss : WINDOW_DEFAULT_MSS;
	f->flags |= VSNOOP_SEEN_PEER;
}

/* The VM's SYN or SYN-ACK: @scale is what it offers, and 0 if one of the two does not scale. */
static inline void vsnoop_vm_syn(struct vsnoop_flow *f, u8 scale)
{
	f->scale = window_scale(scale);
	f->flags |= VSNOOP_SCALED;
}

static inline bool vsnoop_is_managed(const struct vsnoop_flow *f)
{
	return (f->flags & VSNOOP_SEEN_BOTH) == VSNOOP_SEEN_BOTH && f->flags & VSNOOP_SCALED &&
	       !(f->flags & VSNOOP_CLOSING);
}

/* What goes into the window field beside an ACK of f->told. */
static inline u16 vsnoop_window(const struct vsnoop_flow *f)
{
	u32 bytes = seq_after(f->vm_edge, f->told) ? f->vm_edge - f->told : 0;

	bytes >>= f->scale;
	return bytes < 65535 ? (u16)bytes : 65535;
}

/**
 * vsnoop_peer_ack() - a packet without data for the VM
 * @seq: its sequence number
 * @is_odd: it resets or opens a connection, which the VM may challenge (RFC 5961)
 *
 * A keepalive and a window probe have an old number. Whoever sends them wants the VM's
 * answer, which says nothing new.
 */
static inline void vsnoop_peer_ack(struct vsnoop_flow *f, u32 seq, bool is_odd)
{
	if (is_odd || seq_before(seq, f->next))
		f->flags |= VSNOOP_ASKED;
}

/**
 * vsnoop_data() - data for the VM
 * @seq: its first byte
 * @bytes: its length; 0 only with a FIN
 * @segments: how many of at most a full segment it is
 * @is_fin: it ends the stream
 * @has_place: the port's queue takes it for certain
 *
 * Return: VSNOOP_ACK: an ACK of f->told with vsnoop_window() and f->ts_val goes out, once the
 * packet is in the queue.
 */
static inline enum vsnoop_verdict vsnoop_data(struct vsnoop_flow *f, struct vsnoop_vm *vm,
					      const struct vsnoop_settings *s, u32 seq,
					      u32 bytes, u32 segments, bool is_fin,
					      bool has_place)
{
	u32 end = seq + bytes;

	if (is_fin)
		f->flags |= VSNOOP_CLOSING;
	if (!(f->flags & VSNOOP_SEEN_PEER))
		return VSNOOP_NONE;
	f->high = seq_max(f->high, end);
	if (seq_after(seq, f->next) || (!has_place && seq_after(end, f->next))) {
		/* Something is missing, now or from now on. */
		f->state = VSNOOP_UNEXPECTED_SEQUENCE;
		return VSNOOP_NONE;
	}
	if (!seq_after(end, f->next)) {
		/* It was there before: the ACK that it waits for may have been lost. */
		if (vsnoop_is_managed(f) && f->state == VSNOOP_ACTIVE && f->told == f->next)
			return VSNOOP_ACK;
		f->flags |= VSNOOP_ASKED;
		return VSNOOP_NONE;
	}
	f->next = end;
	if (!vsnoop_is_managed(f) || f->state == VSNOOP_UNEXPECTED_SEQUENCE)
		return VSNOOP_NONE;
	/* The next ACK is for this packet too. */
	f->outstanding += segments;
	vm->outstanding += segments;
	if (seq_after(end, f->vm_edge) || vm->outstanding > s->budget_segments) {
		f->state = VSNOOP_NO_BUFFER;
		return VSNOOP_NONE;
	}
	f->state = VSNOOP_ACTIVE;
	/* Before it is half of all numbers behind, and looks as if it were ahead. */
	if (end - f->rode >= 1u << 30)
		f->flags &= ~VSNOOP_RODE;
	f->told = end;
	f->told_edge = seq_max(f->told_edge, f->vm_edge);
	return VSNOOP_ACK;
}

/**
 * vsnoop_vm_ack() - an ACK from the VM, alone or with data
 * @seq: its sequence number
 * @bytes: of data
 * @ack: its number
 * @window: its window field
 * @ts_val: its timestamp, 0: none
 * @is_bare: it has neither data nor SACK blocks nor an ECN echo
 *
 * Return: whether a bare one may be dropped. One with data passes, with the number
 * f->told in the place of an older one.
 */
static inline enum vsnoop_ack vsnoop_vm_ack(struct vsnoop_flow *f, struct vsnoop_vm *vm,
					    u32 seq, u32 bytes, u32 ack, u16 window, u32 ts_val,
					    bool is_bare)
{
	u32 edge = ack + ((u32)window << f->scale);
	bool is_probe;
	bool is_news;
	bool is_asked;
	u32 arrived;

	if (!(f->flags & VSNOOP_SEEN_PEER) || !(f->flags & VSNOOP_SCALED))
		return VSNOOP_ACK_PASS;
	if (!(f->flags & VSNOOP_SEEN_VM)) {
		f->flags |= VSNOOP_SEEN_VM;
		f->vm_ack = ack;
		f->vm_edge = edge;
		f->told = ack;
		f->told_edge = edge;
		f->next = seq_max(f->next, ack);
		f->ts_val = ts_val;
		f->vm_seq = seq + bytes;
		return VSNOOP_ACK_PASS;
	}
	/* A window probe or a keepalive has an old number, and wants an answer. */
	is_probe = !bytes && seq_before(seq, f->vm_seq);
	f->vm_seq = seq_max(f->vm_seq, seq + bytes);
	if (ts_val)
		f->ts_val = ts_val;
	if (!seq_before(ack, f->vm_ack)) {
		/* Each has a full segment at most, so that many at least are gone. */
		arrived = (ack - f->vm_ack) / f->mss;
		if (!seq_before(ack, f->told) || arrived > f->outstanding)
			arrived = f->outstanding;
		f->outstanding -= arrived;
		vm->outstanding -= arrived;
		f->vm_ack = ack;
		f->vm_edge = edge;
	}
	f->next = seq_max(f->next, ack);
	f->high = seq_max(f->high, ack);
	if (f->state == VSNOOP_UNEXPECTED_SEQUENCE && !seq_before(ack, f->high))
		f->state = VSNOOP_ACTIVE;
	is_news = seq_after(ack, f->told) || (ack == f->told && seq_after(edge, f->told_edge));
	if (seq_after(ack, f->told))
		f->told = ack;
	if (ack == f->told)
		f->told_edge = seq_max(f->told_edge, edge);
	is_asked = f->flags & VSNOOP_ASKED;
	/* An older number may be from before the question. */
	if (!seq_before(ack, f->told))
		f->flags &= ~VSNOOP_ASKED;
	/* Of out-of-order data each duplicate ACK tells; the other end counts them. */
	if (!is_bare || is_probe || is_news || is_asked || !vsnoop_is_managed(f) ||
	    (f->state == VSNOOP_UNEXPECTED_SEQUENCE && ack == f->told))
		return VSNOOP_ACK_PASS;
	return VSNOOP_ACK_DROP;
}

/**
 * vsnoop_ride() - data of the VM's goes out
 * @ack: its number
 *
 * Return: whether it takes along f->told and vsnoop_window(), which is more than it says by
 * itself. Early ACKs up to there are then needless.
 */
static inline bool vsnoop_ride(struct vsnoop_flow *f, u32 ack)
{
	if (!vsnoop_is_managed(f) || !seq_after(f->told, ack))
		return false;
	f->rode = f->told;
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
	f->outstanding = 0;
	f->flags = 0;
}

#endif /* EVENKEEL_VSNOOP_H */
