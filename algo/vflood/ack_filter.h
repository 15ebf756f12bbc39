/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * ACK filtering (RFC 3449 §5.2.1) for a VM that vFlood acts for.
 *
 * Held data leaves on ACKs whether the VM runs or not, so the VM does not wait for ACKs,
 * and each costs it an interrupt and the host a packet. ACKs for a VM that is off its
 * core may also fill its port, which then drops SYNs and others' packets. A port gives
 * nothing back: not the ACK that waits but the later one is kept from the VM, as long as
 * still later ones must come.
 */
#ifndef EVENKEEL_ALGO_VFLOOD_ACK_FILTER_H
#define EVENKEEL_ALGO_VFLOOD_ACK_FILTER_H

#include "../base/time.h"
#include "vflood.h"

#define ACK_FILTER_GAP_US 10000 /* one passes all the same */
#define ACK_FILTER_PART 4 /* of a port's slots, what ACKs may fill: one in so many */
#define ACK_FILTER_UNTOLD                                                                \
	4 /* of what is not acknowledged, what it need not know: a part */
#define ACK_FILTER_UNTOLD_SEGMENTS 16 /* nor more: receivers with GRO tell of as many */

/* A VM's port. */
struct ack_filter_vm {
	u32 unread; /* ACKs for it since it was last known to read them */
};

struct ack_filter_flow {
	u64 passed_us; /* when an ACK last passed */
	u32 passed; /* its number */
	u32 is_over; /* the VM has handed over its last data */
};

/* How many ACKs may wait at a port of @slots before later ones are kept from the VM. */
static inline u32 ack_filter_limit(u32 slots)
{
	return slots < ACK_FILTER_PART ? 1 : slots / ACK_FILTER_PART;
}

/*
 * Are so many ACKs unread that it is time to look at the port's queue? Where nobody can
 * look, the VM's data tells that it runs.
 */
static inline bool ack_filter_is_crowded(const struct ack_filter_vm *vm, u32 limit)
{
	return vm->unread >= limit;
}

/* The VM runs, and reads what has come: its port's queue is short, or it sends data. */
static inline void ack_filter_reads(struct ack_filter_vm *vm)
{
	vm->unread = 0;
}

/**
 * ack_filter_is_needless() - will later ACKs say all that this one does?
 * @v: the flow, after what the ACK lets out has left
 * @una: its snd_una before
 * @is_plain: it has a number and timestamps, and nothing else: no data, SACK blocks or
 * echoes
 *
 * They will as long as data is on its way, which is either acknowledged or sent again. An
 * ACK without a higher number is not needless. Nor is any while the VM has, or believes
 * it has, something to send again, which may wait for any ACK: after a loss, a spurious
 * loss, or a refusal.
 */
static inline bool ack_filter_is_needless(const struct vflood_flow *v, u32 una,
					  bool is_plain)
{
	bool is_repairing = v->state == VFLOOD_PACKET_LOSS || v->flags & VFLOOD_UNDONE;

	return is_plain && seq_after(v->snd_una, una) && v->snd_una != v->snd_nxt &&
	       !is_repairing && !vflood_lacks_refused(v);
}

/**
 * ack_filter_keeps() - is a needless ACK to be kept from the VM?
 * @v: the flow, likewise
 * @limit: ACKs that may wait at the port
 *
 * It is if the VM had one within a round trip and has nothing to do for this one: the
 * host has enough left to send, or the VM has ended the connection. Once there was a
 * loss, it is not: little is held from then on, and the VM must learn of room at once. It
 * also is if others fill the VM's port, with CUBIC on the host, which loses little by it;
 * Reno and Vegas are for VMs like 2.6.32's, whose TCP grows its window by the number of
 * ACKs.
 */
static inline bool ack_filter_keeps(const struct ack_filter_flow *f,
				    const struct ack_filter_vm *vm,
				    const struct vflood_flow *v, u32 limit, u64 now_us)
{
	u64 gap_us = time_since(now_us, f->passed_us);
	u32 most = (v->vm_end - v->snd_una) / ACK_FILTER_UNTOLD;
	u32 held = v->vm_end - v->snd_nxt;

	if (gap_us >= ACK_FILTER_GAP_US)
		return false;
	if (held > ACK_FILTER_UNTOLD_SEGMENTS * v->mss)
		held = ACK_FILTER_UNTOLD_SEGMENTS * v->mss;
	if (most > held && !f->is_over)
		most = held;
	if (!(v->flags & VFLOOD_LOSSY) && gap_us < v->srtt_us &&
	    v->snd_una - f->passed <= most)
		return true;
	return v->congestion.kind == CONGESTION_CUBIC && ack_filter_is_crowded(vm, limit);
}

/* The VM has sent its FIN. */
static inline void ack_filter_ends(struct ack_filter_flow *f)
{
	f->is_over = 1;
}

/* An ACK goes to the VM. */
static inline void ack_filter_passes(struct ack_filter_flow *f, struct ack_filter_vm *vm,
				     const struct vflood_flow *v, u32 limit, u64 now_us)
{
	f->passed_us = now_us;
	f->passed = v->snd_una;
	if (vm->unread < limit)
		vm->unread++;
}

#endif /* EVENKEEL_ALGO_VFLOOD_ACK_FILTER_H */
