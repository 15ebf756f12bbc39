/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a qdisc in BPF (Linux 6.16, CONFIG_NET_SCH_BPF) needs of the kernel's
 * declarations, its kfuncs, and lists of objects. Offsets are relocated when it is
 * loaded.
 */
#ifndef EVENKEEL_HOST_VFLOOD_KERNEL_H
#define EVENKEEL_HOST_VFLOOD_KERNEL_H

#include "vmlinux.h"

/* include/uapi/linux/bpf.h */
struct bpf_list_head {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

struct bpf_list_node {
	__u64 __opaque[3];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP 1
#define CHECKSUM_PARTIAL 3 /* include/linux/skbuff.h */

/* Reached by relocation: only the members that are used. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sk_buff {
	char cb[48];
	__u8 ip_summed : 2;
};

struct net_device {
	int ifindex;
};

struct netdev_queue {
	struct net_device *dev;
};

struct qdisc_skb_head {
	__u32 qlen;
};

struct gnet_stats_queue {
	__u32 backlog;
};

struct Qdisc {
	struct netdev_queue *dev_queue;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};

#pragma clang attribute pop

struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};
struct nlattr;
struct netlink_ext_ack;

/* The members that a qdisc in BPF sets. */
struct Qdisc_ops {
	char id[16];
	int (*enqueue)(struct sk_buff *, struct Qdisc *, struct sk_buff **);
	struct sk_buff *(*dequeue)(struct Qdisc *);
	int (*init)(struct Qdisc *, struct nlattr *, struct netlink_ext_ack *);
	void (*reset)(struct Qdisc *);
	void (*destroy)(struct Qdisc *);
};

/* include/net/sch_generic.h; what tc programs have written to cb[] is in @data. */
struct qdisc_cb {
	__u32 pkt_len;
	__u16 unused[2];
	__u32 data[5];
};

/* The byte of cb[] with the kind of an order. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define QDISC_CB_KIND (__builtin_offsetof(struct qdisc_cb, data[1]) + 2)
#else
#define QDISC_CB_KIND (__builtin_offsetof(struct qdisc_cb, data[1]) + 1)
#endif

extern void bpf_kfree_skb(struct sk_buff *skb) __ksym;
extern void bpf_qdisc_skb_drop(struct sk_buff *skb,
			       struct bpf_sk_buff_ptr *to_free) __ksym;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, __u64 expire,
					__u64 delta_ns) __ksym;
extern void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) __ksym;
extern void *bpf_obj_new_impl(__u64 local_type_id, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;
extern int bpf_list_push_back_impl(struct bpf_list_head *head, struct bpf_list_node *node,
				   void *meta, __u64 offset) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head) __ksym;
extern struct bpf_list_node *bpf_list_front(struct bpf_list_head *head) __ksym;
extern void *bpf_cast_to_kern_ctx(void *context) __ksym;

#define object_new(type) ((type *)bpf_obj_new_impl(bpf_core_type_id_local(type), NULL))
#define object_drop(object) bpf_obj_drop_impl(object, NULL)
#define list_of(type, member) __attribute__((btf_decl_tag("contains:" #type ":" #member)))
#define object_of(pointer, type, member)                                                 \
	((type *)((void *)(pointer) - __builtin_offsetof(type, member)))

#endif /* EVENKEEL_HOST_VFLOOD_KERNEL_H */
