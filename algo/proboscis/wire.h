/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* ProBoSCIS on the wire: the option of probes and reports. */
#ifndef EVENKEEL_ALGO_PROBOSCIS_WIRE_H
#define EVENKEEL_ALGO_PROBOSCIS_WIRE_H

#include "../base/packet.h"
#include "../base/siphash.h"
#include "settings.h"

/*
 * Probes and reports are TCP segments without data. Where no host takes them, a TCP
 * leaves them unanswered, whatever it knows of the connection (RFC 9293 §3.10.7; Linux's
 * in FIN_WAIT_2 answers all that is outside of its window, the SYN as well):
 *
 *   ahead of a SYN, first train    RST, ISS + 2^31    a RST outside of the window
 *   ahead of a SYN, later trains   no flag, ISS + 2   in the window, but without ACK;
 *                                                     beyond SND.NXT, should a closed
 *                                                     port's RST come back
 *   report; ahead of a SYN-ACK     no flag, ISS + 2^31, to a TCP that waits for a SYN-ACK
 *
 * A bare ACK that is drawn does harm: MPTCP's client falls back to TCP where its peer
 * does not (RFC 8684 §3.7), and that of accurate ECN reads a counter (RFC 9768).
 * ISS is that of the SYN in both directions. Their one option:
 *
 *   byte  0  kind 254 (RFC 4727)
 *         1  length 20
 *         2  "EVKL" (ExID, RFC 6994)
 *         6  version << 4 | type
 *         7  train
 *         8  index       report: 0
 *         9  total
 *        10  report: probes that came; probe ahead of a SYN: 1 if the SYN-ACK is to
 *            have probes ahead of it, too, else 0; probe ahead of a SYN-ACK: 0
 *        11  report: marked ones; probe: 0
 *        12  tag, little-endian
 */
#define PROBOSCIS_OPTION_KIND 254
#define PROBOSCIS_OPTION_BYTES 20
#define PROBOSCIS_TCP_BYTES (20 + PROBOSCIS_OPTION_BYTES)
#define PROBOSCIS_EXID 0x45564b4cu
#define PROBOSCIS_VERSION 1

enum proboscis_type {
	PROBOSCIS_PROBE = 1, /* sender's host to receiver's host */
	PROBOSCIS_REPORT = 2, /* back, before the SYN-ACK: this host has evenkeel */
	PROBOSCIS_ANSWER = 3, /* a probe back, between report and SYN-ACK */
};

/*
 * The flags of TCP. A firewall that tracks connections may take a RST between SYN and
 * SYN-ACK for the connection's end, and then let no SYN-ACK pass; a segment without flags
 * belongs to no connection for it. The first train goes ahead of the SYN, and must draw
 * no answer where nobody listens.
 */
static inline u32 proboscis_flags(u8 type, u8 train)
{
	return type == PROBOSCIS_PROBE && !train ? PACKET_RST : 0;
}

/* From a SYN's sequence number to that of what goes with it. A SYN with data has no
 * probes: ISS + 2 could be the number of what it brought. */
static inline u32 proboscis_seq_offset(u8 type, u8 train)
{
	return type == PROBOSCIS_PROBE && train ? 2 : 0x80000000u;
}

struct proboscis_option {
	u8 type; /* enum proboscis_type */
	u8 train;
	u8 index;
	u8 total;
	u8 seen;
	u8 marked;
};

/* Does this probe's host want probes ahead of the SYN-ACK? */
static inline bool proboscis_asks_back(const struct proboscis_option *o)
{
	return o->type == PROBOSCIS_PROBE && o->seen;
}

/* What a tag binds a probe to. Addresses in network order, IPv4 as ::ffff:a.b.c.d. */
struct proboscis_path {
	u8 source[16];
	u8 destination[16];
	u16 source_port;
	u16 destination_port;
	u32 iss; /* of the SYN */
};

/* The part of a tag that is the same for a whole train. */
static inline void proboscis_tag_start(struct siphash *s, const struct siphash_key *key,
				       const struct proboscis_path *path)
{
	siphash_start(s, key);
	siphash_word(s, siphash_load(path->source));
	siphash_word(s, siphash_load(path->source + 8));
	siphash_word(s, siphash_load(path->destination));
	siphash_word(s, siphash_load(path->destination + 8));
	siphash_word(s, (u64)path->source_port | (u64)path->destination_port << 16 |
				(u64)path->iss << 32);
}

static inline u64 proboscis_tag(const struct siphash *start,
				const struct proboscis_option *o)
{
	struct siphash s = *start;

	siphash_word(&s, (u64)PROBOSCIS_VERSION << 4 | (u64)o->type | (u64)o->train << 8 |
				 (u64)o->index << 16 | (u64)o->total << 24 |
				 (u64)o->seen << 32 | (u64)o->marked << 40);
	return siphash_end(&s);
}

static inline void proboscis_option_write(u8 out[PROBOSCIS_OPTION_BYTES],
					  const struct proboscis_option *o, u64 tag)
{
	u32 i;

	out[0] = PROBOSCIS_OPTION_KIND;
	out[1] = PROBOSCIS_OPTION_BYTES;
	out[2] = (u8)(PROBOSCIS_EXID >> 24);
	out[3] = (u8)(PROBOSCIS_EXID >> 16);
	out[4] = (u8)(PROBOSCIS_EXID >> 8);
	out[5] = (u8)PROBOSCIS_EXID;
	out[6] = (u8)(PROBOSCIS_VERSION << 4 | o->type);
	out[7] = o->train;
	out[8] = o->index;
	out[9] = o->total;
	out[10] = o->seen;
	out[11] = o->marked;
	for (i = 0; i < 8; i++)
		out[12 + i] = (u8)(tag >> 8 * i);
}

/* Return: false if these bytes are not such an option in a version and type known here.
 */
static inline bool proboscis_option_read(const u8 in[PROBOSCIS_OPTION_BYTES],
					 struct proboscis_option *o, u64 *tag)
{
	if (in[0] != PROBOSCIS_OPTION_KIND || in[1] != PROBOSCIS_OPTION_BYTES)
		return false;
	if (((u32)in[2] << 24 | (u32)in[3] << 16 | (u32)in[4] << 8 | in[5]) !=
	    PROBOSCIS_EXID)
		return false;
	if (in[6] >> 4 != PROBOSCIS_VERSION)
		return false;
	o->type = in[6] & 0xf;
	o->train = in[7];
	o->index = in[8];
	o->total = in[9];
	o->seen = in[10];
	o->marked = in[11];
	*tag = siphash_load(in + 12);
	return o->type >= PROBOSCIS_PROBE && o->type <= PROBOSCIS_ANSWER;
}

#endif /* EVENKEEL_ALGO_PROBOSCIS_WIRE_H */
