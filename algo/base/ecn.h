/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Who owns the ECN bits of a TCP header, by what the two ends say in their handshake:
 * classic ECN (RFC 3168), or accurate ECN (RFC 9768 §3.1), whose AE, CWR and ECE are one
 * counter.
 *
 * Where the two ends disagree, or say what no RFC defines yet, the bits are taken to be
 * theirs, with a meaning that only they know.
 */
#ifndef EVENKEEL_ALGO_BASE_ECN_H
#define EVENKEEL_ALGO_BASE_ECN_H

#include "packet.h"

/* The flags as a number of three bits. */
#define ECN_AE 4
#define ECN_CWR 2
#define ECN_ECE 1

enum ecn_mode {
	ECN_NOBODYS, /* the ends have none */
	ECN_CLASSIC, /* RFC 3168 */
	ECN_ACCURATE, /* a counter, or unknown */
};

/* AE, CWR and ECE of a packet that packet_parse() took. */
static inline u32 ecn_bits(const struct packet_head *h, const struct packet *p)
{
	u32 bits = packet_u8(h, (u32)p->l4 + 12) & 1 ? ECN_AE : 0;

	if (p->flags & PACKET_CWR)
		bits |= ECN_CWR;
	if (p->flags & PACKET_ECE)
		bits |= ECN_ECE;
	return bits;
}

/* What a SYN asks for. Of several SYNs with one number the highest counts: the first may
 * be lost. */
static inline enum ecn_mode ecn_asked(u32 bits)
{
	if (!bits)
		return ECN_NOBODYS;
	return bits == (ECN_CWR | ECN_ECE) ? ECN_CLASSIC : ECN_ACCURATE;
}

/**
 * ecn_agreed() - what a SYN-ACK agrees to
 * @asked: ecn_asked() of the SYN that it answers
 *
 * A server that has once seen a SYN for accurate ECN goes on counting, even if a SYN-ACK
 * that it sends again does not say so. Reflected bits agree to nothing, but not all ends
 * know that.
 */
static inline enum ecn_mode ecn_agreed(enum ecn_mode asked, u32 bits)
{
	if (asked != ECN_NOBODYS && bits == ECN_ECE)
		return ECN_CLASSIC;
	return asked == ECN_ACCURATE || bits ? ECN_ACCURATE : ECN_NOBODYS;
}

#endif /* EVENKEEL_ALGO_BASE_ECN_H */
