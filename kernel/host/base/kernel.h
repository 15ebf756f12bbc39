/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's own structures, as far as the programs read them. Only names
 * and kinds count: where the members are is relocated at loading, by the BTF of
 * the kernel and its modules. What a kernel lacks must be asked about first.
 */
#ifndef EVENKEEL_HOST_BASE_KERNEL_H
#define EVENKEEL_HOST_BASE_KERNEL_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct Qdisc_ops {
	char id[16];
};

struct qdisc_skb_head {
	u32 qlen;
};

struct Qdisc {
	u32 flags;
	const struct Qdisc_ops *ops;
	struct qdisc_skb_head q;
	unsigned long state;
};

struct netdev_queue {
	struct Qdisc *qdisc;
	unsigned long state;
};

struct list_head {
	struct list_head *next;
};

struct net_device {
	struct netdev_queue *_tx;
	unsigned int real_num_tx_queues;
	struct {
		struct list_head upper; /* netdev_adjacent, each a device that stands on
					   it */
	} adj_list;
	const unsigned char *dev_addr;
	u8 priv[]; /* in newer kernels; in others it follows the structure */
};

/* net/core/dev.c */
struct netdev_adjacent {
	struct net_device *dev;
	struct list_head list;
};

struct sk_buff {
	struct net_device *dev;
	u8 ip_summed : 2;
};

/* include/linux/ptr_ring.h */
struct ptr_ring {
	int producer;
	int consumer_head; /* what lies behind was taken */
	int consumer_tail; /* what lies behind is free; the rest of what was taken is so
			      soon */
	int size;
	void **queue;
};

/* drivers/net/tun.c */
struct tun_file {
	struct ptr_ring tx_ring;
};

struct tap_filter {
	unsigned int count;
};

struct tun_prog;

struct tun_struct {
	struct tun_file *tfiles[256];
	unsigned int numqueues;
	unsigned int flags;
	bool filter_attached;
	struct tap_filter txflt;
	struct tun_prog *filter_prog;
};

#pragma clang attribute pop

enum qdisc_state_t {
	__QDISC_STATE_SCHED,
	__QDISC_STATE_DEACTIVATED,
	__QDISC_STATE_MISSED,
	__QDISC_STATE_DRAINING,
};

#define TCQ_F_CPUSTATS 0x20 /* include/net/sch_generic.h */
#define NETDEV_ALIGN 32 /* include/linux/netdevice.h */
/* include/linux/skbuff.h */
#define CHECKSUM_UNNECESSARY 1
#define CHECKSUM_PARTIAL 3
#define IFF_TAP 0x0002 /* linux/if_tun.h */

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

#endif /* EVENKEEL_HOST_BASE_KERNEL_H */
