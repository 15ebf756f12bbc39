/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is written into packets that leave the queue (qdisc.bpf.c): what the VM, or vSnoop
 * for it, has said to the other end since they came.
 */
#ifndef EVENKEEL_HOST_VFLOOD_LEAVE_H
#define EVENKEEL_HOST_VFLOOD_LEAVE_H

#include "kernel.h"
#include "../base/maps.h"
#include "../base/skb.h"

/* Writes a word of the TCP header, if it differs. */
static __always_inline void set_word(struct __sk_buff *skb, u32 l4, u32 offset,
				     __be32 from, __be32 to)
{
	if (from == to)
		return;
	if (!bpf_l4_csum_replace(skb, l4 + TCP_OFFSET_CHECK, from, to, 4))
		bpf_skb_store_bytes(skb, l4 + offset, &to, 4, 0);
}

/*
 * SACK blocks go with the number that they were made for: below a newer one they would
 * report data that came twice (RFC 2883).
 */
static __noinline bool hide_sack(struct __sk_buff *skb, u32 l4, u32 tcp_bytes)
{
	u64 bytes = tcp_bytes - PACKET_TCP_BYTES; /* the verifier follows whole registers
						   */
	__be32 before[PACKET_OPTIONS_BYTES / 4] = {};
	__be32 after[PACKET_OPTIONS_BYTES / 4];
	s64 sum;

	if (bytes > sizeof(before))
		return false;
	barrier_var(bytes);
	if (bytes < 4)
		return false;
	barrier_var(bytes);
	if (bpf_skb_load_bytes(skb, l4 + PACKET_TCP_BYTES, before, bytes))
		return false;
	__builtin_memcpy(after, before, sizeof(after));
	if (!packet_hide_sack((u8 *)after, (u32)bytes))
		return true;
	sum = bpf_csum_diff(before, sizeof(before), after, sizeof(after), 0);
	return !bpf_l4_csum_replace(skb, l4 + TCP_OFFSET_CHECK, 0, (u64)sum, 0) &&
	       !bpf_skb_store_bytes(skb, l4 + PACKET_TCP_BYTES, after, bytes, 0);
}

/*
 * Held data tells the other end what the VM has said since: with an older timestamp it
 * would be taken for an old duplicate (PAWS, RFC 7323), and its old window for newer than
 * that of an update that went ahead of it (RFC 9293 §3.10.7.4).
 *
 * Return: the timestamp that it leaves with, 0: it has none there.
 */
static __always_inline u32 bring_up_to_date(struct __sk_buff *skb, u32 l4,
					    const struct ek_vflood_last *last)
{
	__be32 head[(PACKET_TCP_BYTES + 12) / 4];
	__be16 window, newest;
	u32 ack, tcp_bytes, ts_val = 0;
	bool is_stamped;

	if (bpf_skb_load_bytes(skb, l4, head, sizeof(head)))
		return 0;
	is_stamped = head[5] == bpf_htonl(VFLOOD_TIMESTAMPS);
	if (is_stamped)
		ts_val = bpf_ntohl(head[6]);
	/* Two CPUs may have noted what they had at once, the older last. */
	if (is_stamped && last->has_timestamps && !seq_before(last->ts_val, ts_val)) {
		ts_val = last->ts_val;
		set_word(skb, l4, PACKET_TCP_BYTES + 4, head[6], bpf_htonl(ts_val));
		set_word(skb, l4, PACKET_TCP_BYTES + 8, head[7], bpf_htonl(last->ts_ecr));
	}
	ack = bpf_ntohl(head[2]);
	if (seq_before(last->ack, ack))
		return ts_val;
	tcp_bytes = (bpf_ntohl(head[3]) >> 28) * 4;
	if (last->ack != ack &&
	    tcp_bytes > PACKET_TCP_BYTES + (last->has_timestamps ? 12 : 0))
		hide_sack(skb, l4, tcp_bytes);
	set_word(skb, l4, TCP_OFFSET_ACK, head[2], bpf_htonl(last->ack));
	window = (__be16)(head[3] >> 16);
	newest = bpf_htons(last->window);
	if (window != newest &&
	    !bpf_l4_csum_replace(skb, l4 + TCP_OFFSET_CHECK, window, newest, 2))
		bpf_skb_store_bytes(skb, l4 + TCP_OFFSET_WINDOW, &newest, 2, 0);
	return ts_val;
}

/* Where the IP header begins: behind the tags. */
static __always_inline u32 l3_offset(struct __sk_buff *skb)
{
	__be16 type = 0;
	u32 l3 = PACKET_ETHER_BYTES;
	u32 i;

	for (i = 0; i < PACKET_MAX_VLANS; i++) {
		if (bpf_skb_load_bytes(skb, l3 - 2, &type, 2) ||
		    (type != bpf_htons(0x8100) && type != bpf_htons(0x88a8)))
			break;
		l3 += 4;
	}
	return l3;
}

/* Says in the IP header that @bytes follow the Ethernet header. */
static __always_inline bool set_length(struct __sk_buff *skb, u32 l3, u32 bytes)
{
	__be16 from, to;
	u8 version;

	if (bpf_skb_load_bytes(skb, l3, &version, 1))
		return false;
	if (version >> 4 == 6) {
		to = bpf_htons((u16)(bytes - 40));
		return !bpf_skb_store_bytes(skb, l3 + 4, &to, 2, 0);
	}
	to = bpf_htons((u16)bytes);
	return !bpf_skb_load_bytes(skb, l3 + 2, &from, 2) &&
	       !bpf_l3_csum_replace(skb, l3 + 10, from, to, 2) &&
	       !bpf_skb_store_bytes(skb, l3 + 2, &to, 2, 0);
}

/*
 * Turns a copy of data into the ACK that it carries. The checksum covered the data, so it
 * is computed anew, unless it is to be completed later (CHECKSUM_PARTIAL).
 */
static __noinline bool make_bare(struct __sk_buff *skb, const struct ek_vflood_flow *e,
				 u32 l4)
{
	struct sk_buff *kernel_skb = bpf_cast_to_kern_ctx(skb);
	u32 old_bytes = skb->len - l4;
	u32 l3 = l3_offset(skb);
	u64 bytes; /* the verifier follows whole registers */
	u8 head[60] = {};
	__be32 tail;
	s64 sum;
	u16 check;

	if (bpf_skb_load_bytes(skb, l4, head, PACKET_TCP_BYTES))
		return false;
	bytes = (u64)(head[TCP_OFFSET_FLAGS] >> 4) * 4;
	if (bpf_skb_change_tail(skb, l4 + (u32)bytes, 0))
		return false;
	/* One comparison at a time: of both in one the verifier learns nothing. */
	if (bytes > sizeof(head))
		return false;
	barrier_var(bytes);
	if (bytes < PACKET_TCP_BYTES)
		return false;
	barrier_var(bytes);
	if (bpf_skb_load_bytes(skb, l4, head, bytes))
		return false;
	*(__be32 *)(head + TCP_OFFSET_SEQ) = bpf_htonl(e->flow.snd_nxt);
	/* An urgent pointer counts from the number, and is about the data. */
	head[TCP_OFFSET_FLAGS + 1] &= ~(PACKET_PSH | PACKET_FIN | PACKET_URG);
	if (bpf_skb_store_bytes(skb, l4, head, PACKET_TCP_BYTES, 0) ||
	    !set_length(skb, l3, l4 + (u32)bytes - l3))
		return false;
	if (BPF_CORE_READ_BITFIELD(kernel_skb, ip_summed) == CHECKSUM_PARTIAL)
		return !bpf_l4_csum_replace(skb, l4 + TCP_OFFSET_CHECK,
					    bpf_htons((u16)old_bytes),
					    bpf_htons((u16)bytes), BPF_F_PSEUDO_HDR | 2);
	head[TCP_OFFSET_CHECK] = 0;
	head[TCP_OFFSET_CHECK + 1] = 0;
	tail = bpf_htonl(6u << 16 | (u32)bytes);
	/* In IPv4's addresses as ::ffff:a.b.c.d, the prefix adds nothing. */
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&e->key, 32, 0);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)head, sizeof(head), (__wsum)sum);
	sum = bpf_csum_diff(NULL, 0, &tail, sizeof(tail), (__wsum)sum);
	check = (u16)~window_csum_fold((u64)(u32)sum);
	return !bpf_skb_store_bytes(skb, l4 + TCP_OFFSET_CHECK, &check, 2, 0);
}

#endif /* EVENKEEL_HOST_VFLOOD_LEAVE_H */
