/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * SipHash-2-4 over messages of whole 64-bit words.
 */
#ifndef EVENKEEL_ALGO_BASE_SIPHASH_H
#define EVENKEEL_ALGO_BASE_SIPHASH_H

#include "types.h"

/* The 16 bytes of a key, as two little-endian words. */
struct siphash_key {
	u64 k0;
	u64 k1;
};

struct siphash {
	u64 v0;
	u64 v1;
	u64 v2;
	u64 v3;
	u64 words;
};

static inline u64 siphash_rotate(u64 x, u32 bits)
{
	return x << bits | x >> (64 - bits);
}

static inline void siphash_round(struct siphash *s)
{
	s->v0 += s->v1;
	s->v1 = siphash_rotate(s->v1, 13) ^ s->v0;
	s->v0 = siphash_rotate(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = siphash_rotate(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = siphash_rotate(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = siphash_rotate(s->v1, 17) ^ s->v2;
	s->v2 = siphash_rotate(s->v2, 32);
}

static inline void siphash_block(struct siphash *s, u64 word)
{
	s->v3 ^= word;
	siphash_round(s);
	siphash_round(s);
	s->v0 ^= word;
}

static inline void siphash_start(struct siphash *s, const struct siphash_key *key)
{
	s->v0 = key->k0 ^ 0x736f6d6570736575ull;
	s->v1 = key->k1 ^ 0x646f72616e646f6dull;
	s->v2 = key->k0 ^ 0x6c7967656e657261ull;
	s->v3 = key->k1 ^ 0x7465646279746573ull;
	s->words = 0;
}

static inline void siphash_word(struct siphash *s, u64 word)
{
	siphash_block(s, word);
	s->words++;
}

/* Returns the hash. A copy of @s made before this can go on with other words. */
static inline u64 siphash_end(struct siphash *s)
{
	siphash_block(s, s->words << 59); /* the length in bytes is in the top byte */
	s->v2 ^= 0xff;
	siphash_round(s);
	siphash_round(s);
	siphash_round(s);
	siphash_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

/* Eight bytes of a message as a word. */
static inline u64 siphash_load(const u8 *bytes)
{
	return (u64)bytes[0] | (u64)bytes[1] << 8 | (u64)bytes[2] << 16 |
	       (u64)bytes[3] << 24 | (u64)bytes[4] << 32 | (u64)bytes[5] << 40 |
	       (u64)bytes[6] << 48 | (u64)bytes[7] << 56;
}

#endif /* EVENKEEL_ALGO_BASE_SIPHASH_H */
