/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Verifies those checksums of a packet that nobody has verified yet.
 */
#ifndef EVENKEEL_HOST_BASE_CHECKSUM_H
#define EVENKEEL_HOST_BASE_CHECKSUM_H

#include "context.h"
#include "read.h"

#define CHECKSUM_CHUNKS 128 /* more than any packet has */

struct checksum {
	struct __sk_buff *skb;
	u8 *chunk;
	u32 at;
	u32 end;
	__wsum sum;
	bool is_read;
};

/* For bpf_loop(). Return: 1 to stop. */
static long checksum_next(u64 index, void *data)
{
	struct checksum *c = data;
	u64 bytes = c->end - c->at; /* the verifier follows whole registers */

	if (bytes >= SCRATCH_CHUNK_BYTES) {
		if (bpf_skb_load_bytes(c->skb, c->at, c->chunk, SCRATCH_CHUNK_BYTES))
			return 1;
		c->sum = (__wsum)bpf_csum_diff(NULL, 0, (__be32 *)c->chunk,
					       SCRATCH_CHUNK_BYTES, c->sum);
		c->at += SCRATCH_CHUNK_BYTES;
		return 0;
	}
	c->is_read = true;
	if (!bytes)
		return 1;
	/* Older verifiers learn nothing from a test that a value is not 0. */
	barrier_var(bytes);
	bytes = ((bytes - 1) & (SCRATCH_CHUNK_BYTES - 1)) + 1;
	barrier_var(bytes);
	if (bpf_skb_load_bytes(c->skb, c->at, c->chunk, bytes)) {
		c->is_read = false;
		return 1;
	}
	__builtin_memset(c->chunk + bytes, 0, 4);
	bytes = (bytes + 3) & ~3ull & (2 * SCRATCH_CHUNK_BYTES - 1);
	barrier_var(bytes);
	if (bytes <= SCRATCH_CHUNK_BYTES)
		c->sum =
			(__wsum)bpf_csum_diff(NULL, 0, (__be32 *)c->chunk, bytes, c->sum);
	return 1;
}

/* Does TCP's checksum hold, with the pseudo-header of IPv4 or IPv6? Of a packet that
 * ip_is_plain(). */
static __noinline bool tcp_checksum_holds(struct __sk_buff *skb, struct context *c)
{
	const struct packet *p = c->packet;
	u32 bytes = p->tcp_bytes + p->payload_bytes;
	/* Not on the stack, of which older kernels count more. In IPv4's addresses as
	 * ::ffff:a.b.c.d, the prefix adds nothing. */
	__be32 *pseudo = (__be32 *)c->scratch->chunk;
	struct checksum sum = {
		.skb = skb,
		.chunk = c->scratch->chunk,
		.at = p->l4,
		.end = (u32)p->l4 + bytes,
	};

	__builtin_memcpy(pseudo, p->source, 16);
	__builtin_memcpy(pseudo + 4, p->destination, 16);
	pseudo[8] = bpf_htonl(6 + bytes);
	sum.sum = (__wsum)bpf_csum_diff(NULL, 0, pseudo, 9 * sizeof(*pseudo), 0);
	bpf_loop(CHECKSUM_CHUNKS, checksum_next, &sum, 0);
	return sum.is_read && !(u16)~window_csum_fold((u64)sum.sum);
}

static __always_inline bool ip_checksum_holds(const struct context *c)
{
	u32 l3 = c->packet->l3;
	u64 sum = 0;
	u32 i;

	for (i = 0; i < 20; i += 2)
		sum += packet_u16(c->head, l3 + i);
	return !(u16)~window_csum_fold(sum);
}

/**
 * skb_checksums_hold() - of a packet that ip_is_plain()
 *
 * A partial checksum is completed by what sends the packet on, and one that hardware or
 * GRO has verified needs no second look (skb->ip_summed). Nobody has verified IPv4's
 * header where packets are bridged.
 */
static __always_inline bool skb_checksums_hold(struct __sk_buff *skb, struct context *c)
{
	u32 summed = skb_summed(skb);

	if (c->packet->version == 4 && !ip_checksum_holds(c))
		return false;
	return summed == CHECKSUM_PARTIAL || summed == CHECKSUM_UNNECESSARY ||
	       tcp_checksum_holds(skb, c);
}

#endif /* EVENKEEL_HOST_BASE_CHECKSUM_H */
