/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether the queue of a VM's port takes a packet for certain.
 *
 * A tap's packets wait in a ring of pointers until QEMU or vhost takes them out, and are
 * dropped when it is full. Everything between a program at the tap's egress and that ring
 * must be known to let them through, too: the qdisc, the tap's filters. The reserve is
 * for what other CPUs may put in meanwhile. Then only memory that runs out can still lose
 * a packet.
 *
 * A load of what cannot be read gives 0 (base/read.h). No kind of qdisc, no tap and no
 * ring is all 0, so 0 is never taken for room.
 */
#ifndef EVENKEEL_HOST_VSNOOP_RING_H
#define EVENKEEL_HOST_VSNOOP_RING_H

#include "../base/read.h"
#include "../intf.h"

/* Queues of a tap, and of a device; which one is taken is decided after the program. */
#define RING_MAX_QUEUES 8

/* Does this kernel have all that is read below? */
static __always_inline bool ring_is_readable(void)
{
	return bpf_core_type_exists(struct tun_struct) &&
	       bpf_core_field_exists(struct tun_struct, tfiles) &&
	       bpf_core_field_exists(struct tun_struct, numqueues) &&
	       bpf_core_field_exists(struct tun_struct, flags) &&
	       bpf_core_field_exists(struct tun_struct, filter_attached) &&
	       bpf_core_field_exists(struct tun_struct, txflt.count) &&
	       bpf_core_field_exists(struct tun_struct, filter_prog) &&
	       bpf_core_field_exists(struct tun_file, tx_ring) &&
	       bpf_core_field_exists(struct ptr_ring, producer) &&
	       bpf_core_field_exists(struct ptr_ring, consumer_head) &&
	       bpf_core_field_exists(struct ptr_ring, consumer_tail) &&
	       bpf_core_field_exists(struct ptr_ring, size) &&
	       bpf_core_field_exists(struct ptr_ring, queue) &&
	       bpf_core_field_exists(struct Qdisc, flags) &&
	       bpf_core_field_exists(struct Qdisc, ops) &&
	       bpf_core_field_exists(struct Qdisc, state) &&
	       bpf_core_field_exists(struct Qdisc, q.qlen) &&
	       bpf_core_enum_value_exists(enum qdisc_state_t, __QDISC_STATE_DRAINING);
}

/* netdev_priv() */
static __always_inline void *device_priv(struct net_device *dev)
{
	u32 offset;

	if (bpf_core_field_exists(struct net_device, priv))
		offset = bpf_core_field_offset(struct net_device, priv);
	else
		offset = (bpf_core_type_size(struct net_device) + NETDEV_ALIGN - 1) &
			 ~(NETDEV_ALIGN - 1);
	return (u8 *)dev + offset;
}

/* Qdiscs that drop only what does not fit in, so nothing while they are empty. */
static __always_inline bool qdisc_is_plain(const struct Qdisc_ops *ops)
{
	u64 known;
	u64 kind;

	if (READ(read_casts(), &kind, *(const u64 *)ops->id))
		return false;
	__builtin_memcpy(&known, "noqueue", sizeof(known));
	if (kind == known)
		return true;
	__builtin_memcpy(&known, "pfifo_fa", sizeof(known));
	if (kind == known)
		return true;
	__builtin_memcpy(&known, "fq_codel", sizeof(known));
	if (kind == known)
		return true;
	__builtin_memcpy(&known, "pfifo\0\0", sizeof(known));
	return kind == known;
}

/* Does the qdisc hand on at once what it gets now? */
static __noinline enum ek_vsnoop_ring qdisc_state(const struct netdev_queue *queue)
{
	const u64 stuck =
		1ull << bpf_core_enum_value(enum qdisc_state_t,
					    __QDISC_STATE_DEACTIVATED) |
		1ull << bpf_core_enum_value(enum qdisc_state_t, __QDISC_STATE_MISSED) |
		1ull << bpf_core_enum_value(enum qdisc_state_t, __QDISC_STATE_DRAINING);
	const struct Qdisc_ops *ops;
	unsigned long state;
	struct Qdisc *q;
	u32 flags;
	u32 qlen;

	if (READ(read_casts(), &state, queue->state) ||
	    READ(read_casts(), &q, queue->qdisc))
		return EK_VSNOOP_RING_UNREADABLE;
	/* The driver or the stack has stopped the queue. */
	if (state)
		return EK_VSNOOP_RING_WAITING;
	if (READ(read_casts(), &ops, q->ops) || READ(read_casts(), &flags, q->flags) ||
	    READ(read_casts(), &state, q->state) || READ(read_casts(), &qlen, q->q.qlen))
		return EK_VSNOOP_RING_UNREADABLE;
	if (!qdisc_is_plain(ops))
		return EK_VSNOOP_RING_QDISC;
	/* As qdisc_is_empty(): a qdisc that counts per CPU has a bit for it. */
	if (state & stuck || (!(flags & TCQ_F_CPUSTATS) && qlen))
		return EK_VSNOOP_RING_WAITING;
	return EK_VSNOOP_RING_FREE;
}

static __noinline enum ek_vsnoop_ring ring_state(const struct tun_file *file, u32 wanted,
						 bool is_taken_free)
{
	void **queue;
	void *entry;
	int producer;
	int used;
	int tail;
	int size;

	if (READ(read_casts_tun(), &producer, file->tx_ring.producer) ||
	    (is_taken_free ?
		     READ(read_casts_tun(), &tail, file->tx_ring.consumer_head) :
		     READ(read_casts_tun(), &tail, file->tx_ring.consumer_tail)) ||
	    READ(read_casts_tun(), &size, file->tx_ring.size))
		return EK_VSNOOP_RING_UNREADABLE;
	if (producer < 0 || producer >= size || tail < 0 || tail >= size)
		return EK_VSNOOP_RING_UNREADABLE;
	used = producer - tail;
	if (used < 0)
		used += size;
	if (!used) {
		/* Empty or full. */
		if (READ(read_casts_tun(), &queue, file->tx_ring.queue) ||
		    bpf_probe_read_kernel(&entry, sizeof(entry), queue + producer))
			return EK_VSNOOP_RING_UNREADABLE;
		if (entry)
			used = size;
	}
	return (u32)(size - used) >= wanted ? EK_VSNOOP_RING_FREE : EK_VSNOOP_RING_FULL;
}

/* May the tap itself drop what comes, whatever room there is? */
static __always_inline enum ek_vsnoop_ring tap_state(const struct tun_struct *tun,
						     u32 *queues)
{
	struct tun_prog *program;
	bool is_filtered;
	u32 filters;
	u32 flags;

	if (READ(read_casts_tun(), queues, tun->numqueues) ||
	    READ(read_casts_tun(), &flags, tun->flags) ||
	    READ(read_casts_tun(), &is_filtered, tun->filter_attached) ||
	    READ(read_casts_tun(), &filters, tun->txflt.count) ||
	    READ(read_casts_tun(), &program, tun->filter_prog))
		return EK_VSNOOP_RING_UNREADABLE;
	if (!(flags & IFF_TAP))
		return EK_VSNOOP_RING_UNREADABLE;
	if (is_filtered || filters || program)
		return EK_VSNOOP_RING_FILTERED;
	if (!*queues)
		return EK_VSNOOP_RING_DETACHED;
	return *queues <= RING_MAX_QUEUES ? EK_VSNOOP_RING_FREE : EK_VSNOOP_RING_QUEUES;
}

/**
 * vsnoop_ring_look() - at the egress of a device that user space knows to be a tap
 * @wanted: slots that must be free in each of its rings
 * @is_taken_free: or hold what was taken out already
 */
static __noinline enum ek_vsnoop_ring vsnoop_ring_look(struct __sk_buff *skb, u32 wanted,
						       bool is_taken_free)
{
	enum ek_vsnoop_ring state;
	struct tun_struct *tun;
	struct net_device *dev;
	struct netdev_queue *tx;
	struct tun_file *file;
	u32 tx_queues;
	u32 queues;
	u32 i;

	if (!ring_is_readable())
		return EK_VSNOOP_RING_UNREADABLE;
	dev = READ_POINTER(read_casts(), skb_device(skb), struct net_device);
	if (READ(read_casts(), &tx, dev->_tx) ||
	    READ(read_casts(), &tx_queues, dev->real_num_tx_queues))
		return EK_VSNOOP_RING_UNREADABLE;
	tun = READ_POINTER(read_casts_tun(), device_priv(dev), struct tun_struct);
	state = tap_state(tun, &queues);
	if (state != EK_VSNOOP_RING_FREE)
		return state;
	if (tx_queues > RING_MAX_QUEUES)
		return EK_VSNOOP_RING_QUEUES;
	for (i = 0; i < RING_MAX_QUEUES; i++) {
		if (i >= tx_queues)
			break;
		state = qdisc_state(
			READ_POINTER(read_casts(),
				     (void *)tx +
					     i * bpf_core_type_size(struct netdev_queue),
				     struct netdev_queue));
		if (state != EK_VSNOOP_RING_FREE)
			return state;
	}
	for (i = 0; i < RING_MAX_QUEUES; i++) {
		if (i >= queues)
			break;
		if (READ(read_casts_tun(), &file, tun->tfiles[i]))
			return EK_VSNOOP_RING_UNREADABLE;
		state = ring_state(file, wanted, is_taken_free);
		if (state != EK_VSNOOP_RING_FREE)
			return state;
	}
	return EK_VSNOOP_RING_FREE;
}

#endif /* EVENKEEL_HOST_VSNOOP_RING_H */
