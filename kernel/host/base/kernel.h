/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's own structures, as far as the programs read them. Only names and kinds
 * count: where the members are is relocated at loading, by the BTF of the kernel and its
 * modules. What a kernel lacks must be asked about first. Numbers are unsigned here
 * whatever the kernel has: only unsigned ones may differ in size.
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

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	unsigned int ifindex;
	possible_net_t nd_net;
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

struct sock {
	unsigned int sk_sndbuf;
};

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	void *destructor;
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
	struct tun_struct *tun;
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
	struct net_device *dev;
	bool filter_attached;
	struct tap_filter txflt;
	struct tun_prog *filter_prog;
};

/* include/linux/sched.h */
struct task_struct {
	unsigned int on_cpu; /* it runs, and does not only want to; a byte in 7.3 */
	unsigned int flags;
	unsigned int pid;
	unsigned int tgid;
	char comm[16];
};

/* include/linux/fs.h */
struct inode {
	unsigned short i_mode;
	unsigned int i_rdev;
};

struct file {
	struct inode *f_inode;
	void *private_data;
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

extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;

#endif /* EVENKEEL_HOST_BASE_KERNEL_H */
