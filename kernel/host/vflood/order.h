/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What to do with an skb that comes to a device that holds packets. The order is in the
 * skb's cb, five words that the programs at the port write and the qdisc's read:
 *
 *   cb[0]  VFLOOD_ORDER_MAGIC; what is without it is dropped
 *   cb[1]  index | kind << 16 | l4 << 24
 *   cb[2]  a: of data its seq, of an ACK its number
 *   cb[3]  b: of data its end, of an ACK the end of what is sacked, of one that the flow
 *          knows the highest number before it
 *   cb[4]  c: the flow's owner, of an ACK see vflood_order_of_ack(); of what has left the
 *          queue its timestamp
 */
#ifndef EVENKEEL_HOST_VFLOOD_ORDER_H
#define EVENKEEL_HOST_VFLOOD_ORDER_H

#include "../base/maps.h"

/* NOP, NOP, timestamps: what Linux and others put before all other options. */
#define VFLOOD_TIMESTAMPS 0x0101080au
#define VFLOOD_TIMESTAMPS_BYTES 12

#define VFLOOD_ORDER_MAGIC 0xe7ee0f1du

enum vflood_order_kind {
	VFLOOD_ORDER_DATA, /* data of the VM */
	VFLOOD_ORDER_SEEN, /* the same, a copy to be counted and dropped */
	VFLOOD_ORDER_BARE, /* a copy of data whose ACK has to go out alone */
	VFLOOD_ORDER_ACK, /* a copy of an ACK to the VM */
	VFLOOD_ORDER_RELEASE, /* the same, which the flow knows already: it lets out what
			       * is held
			       */
	VFLOOD_ORDER_GRANT, /* a copy of a SYN-ACK to the VM: it is to be told a window */
	VFLOOD_ORDER_CLOSE, /* a copy of what ends the flow: what is held drains */
	VFLOOD_ORDER_RESET, /* the same, and what is held is dropped */
	VFLOOD_ORDER_WHOLE, /* new data of several segments, which may be held and leave
			     * as it is
			     */
	VFLOOD_ORDER_SPLIT, /* to be split behind the queue, because not all of it may
			       leave */
	VFLOOD_ORDER_PIECE, /* a segment of that */
	VFLOOD_ORDER_ANEW, /* to be split; each segment is then VFLOOD_ORDER_DATA */
	VFLOOD_ORDER_STRAY, /* data whose flow's place another has: it only leaves */
};

struct vflood_order {
	u32 index; /* of the flow, in vflood_flows */
	u32 kind; /* enum vflood_order_kind */
	u32 l4; /* where the TCP header begins; of an ACK, segments that came twice */
	u32 a;
	u32 b;
	u32 c;
};

/* cb[1] of an order. */
static __always_inline u32 vflood_order_word(const struct vflood_order *o)
{
	return o->index | o->kind << 16 | o->l4 << 24;
}

static __always_inline void vflood_order_write(struct __sk_buff *skb,
					       const struct vflood_order *o)
{
	skb->cb[0] = VFLOOD_ORDER_MAGIC;
	skb->cb[1] = vflood_order_word(o);
	skb->cb[2] = o->a;
	skb->cb[3] = o->b;
	skb->cb[4] = o->c;
}

/* @cb: of a struct __sk_buff or what the kernel has of it, words that are read one by
 * one. */
#define VFLOOD_ORDER_READ(cb)                                                            \
	{                                                                                \
		.index = (cb)[1] & (EK_VFLOOD_FLOWS - 1),                                \
		.kind = (cb)[1] >> 16 & 0xff,                                            \
		.l4 = (cb)[1] >> 24,                                                     \
		.a = (cb)[2],                                                            \
		.b = (cb)[3],                                                            \
		.c = (cb)[4],                                                            \
	}

#define VFLOOD_ORDER_PURE (1u << 16)
#define VFLOOD_ORDER_SACK (1u << 17)
#define VFLOOD_ORDER_OLDER (1u << 18)
#define VFLOOD_ORDER_SACKED_SHIFT 19
#define VFLOOD_ORDER_SACKED_MAX ((1u << (32 - VFLOOD_ORDER_SACKED_SHIFT)) - 1)
#define VFLOOD_ORDER_TWICE_MAX 255u

/* Of an ACK, c: window | flags | sacked segments << VFLOOD_ORDER_SACKED_SHIFT. */
static __always_inline struct vflood_order vflood_order_of_ack(u32 index,
							       const struct vflood_ack *a)
{
	u32 sacked = a->sacked_segments;
	u32 twice = a->came_twice_segments;

	if (sacked > VFLOOD_ORDER_SACKED_MAX)
		sacked = VFLOOD_ORDER_SACKED_MAX;
	return (struct vflood_order){
		.index = index,
		.kind = VFLOOD_ORDER_ACK,
		.l4 = twice < VFLOOD_ORDER_TWICE_MAX ? twice : VFLOOD_ORDER_TWICE_MAX,
		.a = a->ack,
		.b = a->sacked_end,
		.c = a->window | (a->is_pure ? VFLOOD_ORDER_PURE : 0) |
		     (a->has_sack ? VFLOOD_ORDER_SACK : 0) |
		     (a->is_older ? VFLOOD_ORDER_OLDER : 0) |
		     sacked << VFLOOD_ORDER_SACKED_SHIFT,
	};
}

static __always_inline struct vflood_ack vflood_order_to_ack(const struct vflood_order *o)
{
	return (struct vflood_ack){
		.ack = o->a,
		.sacked_end = o->b,
		.sacked_segments = o->c >> VFLOOD_ORDER_SACKED_SHIFT,
		.window = (u16)o->c,
		.is_pure = o->c & VFLOOD_ORDER_PURE,
		.has_sack = o->c & VFLOOD_ORDER_SACK,
		.is_older = o->c & VFLOOD_ORDER_OLDER,
		.came_twice_segments = o->l4,
	};
}

#endif /* EVENKEEL_HOST_VFLOOD_ORDER_H */
