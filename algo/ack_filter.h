/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * ACK filtering (RFC 3449, section 5.2.1) at the port of a VM that vFlood acts for.
 *
 * What is held leaves on ACKs whether the VM runs or not, so the ACKs of one that is off its
 * core may fill its port, and SYNs and others' packets are dropped there. A port gives nothing
 * back: instead of an ACK that waits, the later one is kept from the VM, as long as still later
 * ones must come.
 */
#ifndef EVENKEEL_ACK_FILTER_H
#define EVENKEEL_ACK_FILTER_H

#include "vflood.h"

#define ACK_FILTER_GAP_US 10000 /* one passes all the same */
#define ACK_FILTER_PART 4 /* of a port's places, what ACKs may fill: one in so many */

/* A VM's port. */
struct ack_filter_vm {
	u32 unread; /* ACKs for it since it was last known to read them */
};

struct ack_filter_flow {
	u64 passed_us; /* when an ACK last passed */
};

/* ACKs that may wait at a port of so many places, before later ones are kept from the VM. */
static inline u32 ack_filter_limit(u32 places)
{
	return places < ACK_FILTER_PART ? 1 : places / ACK_FILTER_PART;
}

/*
 * Are so many that it is time to look at the port's queue? Where nobody can, the VM's data
 * tells that it runs.
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
 * @v: the flow, after vflood_acked()
 * @una: its snd_una before
 * @is_plain: it has a number and timestamps, and nothing else: no data, SACK blocks or echoes
 *
 * They will as long as data is on its way or held: it is acknowledged, or sent again. Not so
 * for an ACK without a higher number, nor while a loss is repaired, which may wait for any. Nor
 * for a VM whose TCP grows its window by the number of ACKs, as 2.6.32's does: those are what
 * the host has Reno or Vegas for.
 */
static inline bool ack_filter_is_needless(const struct vflood_flow *v, u32 una, bool is_plain)
{
	return is_plain && v->congestion.kind == CONGESTION_CUBIC &&
	       seq_after(v->snd_una, una) && v->snd_una != v->vm_end &&
	       v->state != VFLOOD_PACKET_LOSS;
}

/**
 * ack_filter_drops() - is an ACK to be kept from the VM?
 * @limit: ACKs that may wait at the port
 */
static inline bool ack_filter_drops(struct ack_filter_flow *f, struct ack_filter_vm *vm,
				    u32 limit, bool is_needless, u64 now_us)
{
	if (is_needless && ack_filter_is_crowded(vm, limit) &&
	    now_us - f->passed_us < ACK_FILTER_GAP_US)
		return true;
	f->passed_us = now_us;
	if (vm->unread < limit)
		vm->unread++;
	return false;
}

#endif /* EVENKEEL_ACK_FILTER_H */
