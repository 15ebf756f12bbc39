/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reading an skb's headers, and changing single fields of them.
 *
 * The checksum helpers know whether a TCP checksum is complete or only that of
 * the pseudo-header (CHECKSUM_PARTIAL), and leave the latter alone when what
 * changes is not part of it. One change of a GSO packet is one of each of its
 * segments.
 */
#ifndef EVENKEEL_HOST_BASE_SKB_H
#define EVENKEEL_HOST_BASE_SKB_H

#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "algo/base/packet.h"
#include "algo/base/window.h"

#define TCP_OFFSET_SEQ 4
#define TCP_OFFSET_ACK 8
#define TCP_OFFSET_FLAGS 12 /* with the data offset, as a 16-bit word */
#define TCP_OFFSET_WINDOW 14
#define TCP_OFFSET_CHECK 16
#define TCP_OFFSET_URGENT 18

/*
 * Reads the beginning of a packet. What is not in its linear part has to be
 * fetched from its pages: headers hardly ever are there, data always is.
 */
static __always_inline bool skb_head(struct __sk_buff *skb, struct packet_head *h,
				     bool linear_only)
{
	u32 linear_bytes = (u32)((long)skb->data_end - (long)skb->data);
	u32 bytes = skb->len;

	__builtin_memset(h, 0, sizeof(*h));
	h->frame_bytes = bytes;
	if (bytes < PACKET_ETHER_BYTES)
		return false;
	if (linear_only && bytes > linear_bytes && linear_bytes >= PACKET_ETHER_BYTES)
		bytes = linear_bytes;
	if (bytes > PACKET_HEAD_BYTES)
		bytes = PACKET_HEAD_BYTES;
	h->valid = bytes;
	return !bpf_skb_load_bytes(skb, 0, h->bytes, bytes);
}

#define HEAD_PLAIN_BYTES 54 /* Ethernet, IPv4, TCP */
#define HEAD_TIMESTAMPS_BYTES 66 /* and timestamps */

/*
 * Copies a word of a packet. The stack leaves packets unaligned, which neither the
 * compiler nor the CPU may mind.
 */
static __always_inline void head_word(struct packet_head *h, const void *data, u32 offset)
{
	*(u64 *)(h->bytes + offset) = *(const u64 *)(data + offset);
}

/* The source and the destination of an IPv4 packet. */
struct ends_v4 {
	__be32 source;
	__be32 destination;
};

/*
 * Copies as much as most IPv4 packets need, without a call, and gives the packet's ends.
 * Return: false if it is not IPv4, or too short.
 */
static __always_inline bool skb_head_plain(struct __sk_buff *skb, struct packet_head *h,
					   struct ends_v4 *ends)
{
	const void *data = (const void *)(long)skb->data;
	const void *end = (const void *)(long)skb->data_end;
	u32 i;

	if (data + HEAD_PLAIN_BYTES > end ||
	    *(const __be16 *)(data + 12) != bpf_htons(PACKET_ETHER_IPV4))
		return false;
	/* Not out of the copy: a word that was written in two parts cannot be read before
	 * both are in the cache. */
	ends->source = *(const __be32 *)(data + PACKET_ETHER_BYTES + 12);
	ends->destination = *(const __be32 *)(data + PACKET_ETHER_BYTES + 16);
	h->frame_bytes = skb->len;
	h->valid = HEAD_PLAIN_BYTES;
	for (i = 0; i < 48; i += 8)
		head_word(h, data, i);
	head_word(h, data, HEAD_PLAIN_BYTES - 8);
	if (data + HEAD_TIMESTAMPS_BYTES > end)
		return true;
	h->valid = HEAD_TIMESTAMPS_BYTES;
	head_word(h, data, HEAD_PLAIN_BYTES);
	head_word(h, data, HEAD_TIMESTAMPS_BYTES - 8);
	return true;
}

/* How many segments an skb stands for. */
static __always_inline u32 skb_segments(const struct __sk_buff *skb)
{
	return skb->gso_segs ? skb->gso_segs : 1;
}

static __always_inline bool skb_set_window(struct __sk_buff *skb, const struct packet *p,
					   u16 window)
{
	u32 l4 = p->l4;
	__be16 old_word = bpf_htons(p->window);
	__be16 new_word = bpf_htons(window);

	if (bpf_l4_csum_replace(skb, l4 + TCP_OFFSET_CHECK, old_word, new_word, 2))
		return false;
	return !bpf_skb_store_bytes(skb, l4 + TCP_OFFSET_WINDOW, &new_word, 2, 0);
}

static __always_inline bool skb_set_seq(struct __sk_buff *skb, const struct packet *p,
					u32 seq)
{
	u32 l4 = p->l4;
	__be32 old_word = bpf_htonl(p->seq);
	__be32 new_word = bpf_htonl(seq);

	if (bpf_l4_csum_replace(skb, l4 + TCP_OFFSET_CHECK, old_word, new_word, 4))
		return false;
	return !bpf_skb_store_bytes(skb, l4 + TCP_OFFSET_SEQ, &new_word, 4, 0);
}

/* @first_byte: what comes before the flags, with the data offset. */
static __always_inline bool skb_set_flags(struct __sk_buff *skb, const struct packet *p,
					  u8 first_byte, u8 flags)
{
	u32 l4 = p->l4;
	__be16 old_word = bpf_htons((u16)(first_byte << 8 | p->flags));
	__be16 new_word = bpf_htons((u16)(first_byte << 8 | flags));

	if (bpf_l4_csum_replace(skb, l4 + TCP_OFFSET_CHECK, old_word, new_word, 2))
		return false;
	return !bpf_skb_store_bytes(skb, l4 + TCP_OFFSET_FLAGS, &new_word, 2, 0);
}

/*
 * Gives a packet without data another number. An urgent pointer counts from the number,
 * so another byte would be cut out of the stream: the urgent byte's own packet says it.
 */
static __always_inline bool skb_set_bare_seq(struct __sk_buff *skb,
					     const struct packet_head *h,
					     struct packet *p, u32 seq)
{
	u8 first_byte = packet_u8(h, (u32)p->l4 + TCP_OFFSET_FLAGS);

	if (p->flags & PACKET_URG) {
		if (!skb_set_flags(skb, p, first_byte, p->flags & ~PACKET_URG))
			return false;
		p->flags &= ~PACKET_URG;
	}
	return skb_set_seq(skb, p, seq);
}

/* @first_bytes: the first two bytes of the IP header. */
static __always_inline bool skb_set_ecn(struct __sk_buff *skb, const struct packet *p,
					u16 first_bytes, u8 ecn)
{
	u32 l3 = p->l3;
	u8 shift = p->version == 6 ? 4 : 0;
	__be16 old_word = bpf_htons(first_bytes);
	__be16 new_word =
		bpf_htons((u16)((first_bytes & ~(PACKET_CE << shift)) | ecn << shift));

	/* No checksum covers IPv6's header but the one that hardware takes over all. */
	if (p->version == 6)
		return !bpf_skb_store_bytes(skb, l3, &new_word, 2, BPF_F_RECOMPUTE_CSUM);
	if (bpf_l3_csum_replace(skb, l3 + 10, old_word, new_word, 2))
		return false;
	return !bpf_skb_store_bytes(skb, l3, &new_word, 2, 0);
}

/*
 * skb_set_ecn() with one call where IPv4 otherwise takes two, in most packets. @h says
 * what is in the packet, before and after.
 */
static __always_inline bool head_set_ecn(struct __sk_buff *skb, struct packet_head *h,
					 const struct packet *p, u8 ecn)
{
	u16 old_word = packet_word(h, PACKET_ETHER_BYTES);
	u16 new_word = (u16)((old_word & ~PACKET_CE) | ecn);
	u16 check;

	if (p->version != 4 || p->l3 != PACKET_ETHER_BYTES)
		return skb_set_ecn(skb, p, packet_u16(h, p->l3), ecn);
	check = window_csum_replace(packet_word(h, PACKET_ETHER_BYTES + 10), old_word,
				    new_word);
	h->bytes[PACKET_ETHER_BYTES + 1] = (u8)new_word;
	h->bytes[PACKET_ETHER_BYTES + 10] = (u8)(check >> 8);
	h->bytes[PACKET_ETHER_BYTES + 11] = (u8)check;
	return !bpf_skb_store_bytes(skb, PACKET_ETHER_BYTES,
				    h->bytes + PACKET_ETHER_BYTES, 12, 0);
}

/* The sequence numbers of a packet's data, a FIN counted. @l4: where its TCP header
 * begins. */
static __always_inline bool skb_range(struct __sk_buff *skb, u32 l4, u32 *seq, u32 *end)
{
	u8 head[PACKET_TCP_BYTES];
	u32 bytes;

	if (bpf_skb_load_bytes(skb, l4, head, sizeof(head)))
		return false;
	*seq = bpf_ntohl(*(__be32 *)(head + TCP_OFFSET_SEQ));
	bytes = (u32)(head[TCP_OFFSET_FLAGS] >> 4) * 4 + l4;
	if (skb->len < bytes)
		return false;
	*end = *seq + skb->len - bytes + !!(head[TCP_OFFSET_FLAGS + 1] & PACKET_FIN);
	return true;
}

#endif /* EVENKEEL_HOST_BASE_SKB_H */
