/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Reads Ethernet, VLAN tags, IPv4, IPv6 and TCP out of the first bytes of a
 * frame.
 *
 * The caller copies those bytes into struct packet_head. All reads go through
 * packet_u8(), which cannot leave it whatever the offsets say: what the headers
 * claim is checked for sense, not for safety.
 */
#ifndef EVENKEEL_ALGO_BASE_PACKET_H
#define EVENKEEL_ALGO_BASE_PACKET_H

#include "types.h"

/* Ethernet, two VLAN tags, IPv6, the longest TCP header, and 6 to spare. A power of two.
 */
#define PACKET_HEAD_BYTES 128
#define PACKET_MAX_VLANS 2
#define PACKET_MAX_EXTENSIONS 4 /* IPv6 */

#define PACKET_ETHER_BYTES 14
#define PACKET_ETHER_IPV4 0x0800
#define PACKET_ETHER_IPV6 0x86dd
#define PACKET_IPV4_BYTES 20 /* without options */
#define PACKET_IPV6_BYTES 40 /* without extensions */
#define PACKET_UDP_BYTES 8
#define PACKET_TCP_BYTES 20
#define PACKET_OPTIONS_BYTES 40 /* of TCP, at most */

enum packet_tcp_flag {
	PACKET_FIN = 1 << 0,
	PACKET_SYN = 1 << 1,
	PACKET_RST = 1 << 2,
	PACKET_PSH = 1 << 3,
	PACKET_ACK = 1 << 4,
	PACKET_URG = 1 << 5,
	PACKET_ECE = 1 << 6,
	PACKET_CWR = 1 << 7,
};

/* The ECN field of IPv4 and IPv6 (RFC 3168 §5). */
enum packet_ecn {
	PACKET_NOT_ECT = 0,
	PACKET_ECT_1 = 1,
	PACKET_ECT_0 = 2,
	PACKET_CE = 3,
};

struct packet_head {
	_Alignas(8) u8 bytes[PACKET_HEAD_BYTES];
	u32 valid; /* how many of them are of the frame; the rest mean nothing */
	u32 frame_bytes; /* length of the whole frame */
};

enum packet_kind {
	PACKET_TCP,
	PACKET_OTHER, /* well formed as far as it was read, but not TCP, or a fragment */
	PACKET_BROKEN, /* headers that contradict themselves or the frame's length */
};

struct packet {
	u8 source[16]; /* IPv4 as ::ffff:a.b.c.d */
	u8 destination[16];
	u32 vlan[PACKET_MAX_VLANS]; /* packet_vlan() of its tags, the outermost first; 0:
				     * none
				     */
	u16 source_port;
	u16 destination_port;
	u32 seq;
	u32 ack;
	u32 payload_bytes;
	u16 window;
	u16 l3; /* offset of the IP header */
	u16 l4; /* offset of the TCP header */
	u8 tcp_bytes; /* length of the TCP header */
	u8 flags; /* enum packet_tcp_flag */
	u8 ecn; /* enum packet_ecn */
	u8 version; /* of IP: 4 or 6 */
	u16 pad;
};

/* Who else has a say in a header, as its options tell. */
enum packet_claim {
	PACKET_SIGNED = 1 << 0, /* it is signed, or summed in another way than TCP's own
				 */
	PACKET_COUNTS_ECN = 1 << 1, /* it counts marks (accurate ECN, RFC 9768) */
	PACKET_MULTIPATH = 1 << 2, /* its window and ACK are for several connections */
};

struct packet_options {
	u16 mss; /* 0: none */
	u8 wscale; /* 0xff: none */
	bool has_timestamps;
	bool permits_sack;
	u16 experiment; /* offset of the first option of kind 254, 0: none */
	u16 timestamps; /* offset of the option, 0: none */
	u16 sack; /* offset of the blocks, 0: none */
	u16 sack_bytes;
	u32 claims; /* enum packet_claim */
	bool opens_fast; /* TCP Fast Open (RFC 7413), or an experiment's option */
};

/*
 * A VLAN tag as far as it tells networks apart. VID 0 only carries a priority (IEEE
 * 802.1Q §9.6): the answer may come without the tag.
 */
static inline u32 packet_vlan(u32 tpid, u32 tci)
{
	u32 vid = tci & 0xfff;

	return vid ? tpid << 16 | vid : 0;
}

/* Adds a tag that was around those of @p. Return: false if there is no room for it. */
static inline bool packet_put_vlan(struct packet *p, u32 vlan)
{
	if (!vlan)
		return true;
	if (p->vlan[PACKET_MAX_VLANS - 1])
		return false;
	p->vlan[1] = p->vlan[0];
	p->vlan[0] = vlan;
	return true;
}

static inline u8 packet_u8(const struct packet_head *h, u32 offset)
{
#ifdef __bpf__
	/*
	 * The compiler drops the mask where it can see that an offset is in bounds; the
	 * verifier of Linux 6.12 no longer knows the bound there.
	 */
	if (!__builtin_constant_p(offset))
		__asm__ volatile("" : "+r"(offset));
#endif
	return h->bytes[offset & (PACKET_HEAD_BYTES - 1)];
}

static inline u16 packet_u16(const struct packet_head *h, u32 offset)
{
	return (u16)(packet_u8(h, offset) << 8 | packet_u8(h, offset + 1));
}

static inline u32 packet_u32(const struct packet_head *h, u32 offset)
{
	return (u32)packet_u16(h, offset) << 16 | packet_u16(h, offset + 2);
}

/* A word at a constant, even offset, read whole. */
static inline u16 packet_word(const struct packet_head *h, u32 offset)
{
	u16 word;

	__builtin_memcpy(&word, h->bytes + offset, sizeof(word));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	word = __builtin_bswap16(word);
#endif
	return word;
}

static inline u32 packet_words(const struct packet_head *h, u32 offset)
{
	return (u32)packet_word(h, offset) << 16 | packet_word(h, offset + 2);
}

/* TTL, or hop limit, of a packet that packet_parse() took. */
static inline u8 packet_ttl(const struct packet_head *h, const struct packet *p)
{
	return packet_u8(h, (u32)p->l3 + (p->version == 6 ? 7 : 8));
}

/*
 * Does it come from the machine itself, and not from one behind it? Stacks begin with
 * these values (RFC 1700 has 64; Windows 128; BSDs and network devices 255), and routers
 * count down.
 */
static inline bool packet_is_first_hop(u8 ttl)
{
	return ttl == 64 || ttl == 128 || ttl == 255;
}

static inline void packet_copy(u8 *to, const struct packet_head *h, u32 offset, u32 bytes)
{
	u32 i;

	for (i = 0; i < bytes; i++)
		to[i] = packet_u8(h, offset + i);
}

/* Parses the TCP header at @l4; the IP payload is @bytes long. */
static inline enum packet_kind packet_parse_tcp(const struct packet_head *h, u32 l4,
						u32 bytes, struct packet *p)
{
	u32 tcp_bytes;

	if (bytes < PACKET_TCP_BYTES)
		return PACKET_BROKEN;
	if (l4 + PACKET_TCP_BYTES > h->valid)
		return PACKET_OTHER;
	tcp_bytes = (u32)(packet_u8(h, l4 + 12) >> 4) * 4;
	if (tcp_bytes < PACKET_TCP_BYTES || tcp_bytes > bytes)
		return PACKET_BROKEN;
	if (l4 + tcp_bytes > h->valid)
		return PACKET_OTHER;
	p->l4 = (u16)l4;
	p->tcp_bytes = (u8)tcp_bytes;
	p->source_port = packet_u16(h, l4);
	p->destination_port = packet_u16(h, l4 + 2);
	p->seq = packet_u32(h, l4 + 4);
	p->ack = packet_u32(h, l4 + 8);
	p->flags = packet_u8(h, l4 + 13);
	p->window = packet_u16(h, l4 + 14);
	p->payload_bytes = bytes - tcp_bytes;
	return PACKET_TCP;
}

/* Written in whole words, to which the structure is aligned. */
static inline void packet_map_v4_prefix(struct packet *p)
{
	__builtin_memset(p->source, 0, 12);
	__builtin_memset(p->destination, 0, 12);
	p->source[10] = 0xff;
	p->source[11] = 0xff;
	p->destination[10] = 0xff;
	p->destination[11] = 0xff;
}

static inline void packet_map_v4(struct packet *p, const struct packet_head *h)
{
	packet_map_v4_prefix(p);
	packet_copy(p->source + 12, h, (u32)p->l3 + 12, 4);
	packet_copy(p->destination + 12, h, (u32)p->l3 + 16, 4);
}

static inline enum packet_kind packet_parse_v4(const struct packet_head *h,
					       struct packet *p)
{
	u32 l3 = p->l3;
	u32 ip_bytes = (u32)(packet_u8(h, l3) & 0xf) * 4;
	u32 total = packet_u16(h, l3 + 2);

	if (l3 + 20 > h->valid)
		return PACKET_BROKEN;
	/* BIG TCP (Linux 6.3) says 0 and means the rest of the frame. */
	if (!total && h->frame_bytes - l3 > 0xffff)
		total = h->frame_bytes - l3;
	if (packet_u8(h, l3) >> 4 != 4 || ip_bytes < 20 || total < ip_bytes)
		return PACKET_BROKEN;
	if (total > h->frame_bytes - l3)
		return PACKET_BROKEN;
	if (packet_u8(h, l3 + 9) != 6 || packet_u16(h, l3 + 6) & 0x3fff)
		return PACKET_OTHER;
	p->version = 4;
	p->ecn = packet_u8(h, l3 + 1) & PACKET_CE;
	packet_map_v4(p, h);
	return packet_parse_tcp(h, l3 + ip_bytes, total - ip_bytes, p);
}

static inline enum packet_kind packet_parse_v6(const struct packet_head *h,
					       struct packet *p)
{
	u32 l4 = (u32)p->l3 + 40;
	u32 next = packet_u8(h, (u32)p->l3 + 6);
	u32 bytes = packet_u16(h, (u32)p->l3 + 4);
	u32 extension_bytes;
	u32 i;

	if (l4 > h->valid || packet_u8(h, p->l3) >> 4 != 6)
		return PACKET_BROKEN;
	/* A jumbogram (RFC 2675), or BIG TCP. */
	if (!bytes && h->frame_bytes - l4 > 0xffff)
		bytes = h->frame_bytes - l4;
	if (bytes > h->frame_bytes - l4)
		return PACKET_BROKEN;
	for (i = 0; i < PACKET_MAX_EXTENSIONS; i++) {
		/* Hop-by-hop options, routing, destination options. */
		if (next != 0 && next != 43 && next != 60)
			break;
		if (l4 + 2 > h->valid)
			return PACKET_OTHER;
		next = packet_u8(h, l4);
		extension_bytes = ((u32)packet_u8(h, l4 + 1) + 1) * 8;
		if (extension_bytes > bytes)
			return PACKET_BROKEN;
		l4 += extension_bytes;
		bytes -= extension_bytes;
		if (l4 > PACKET_HEAD_BYTES)
			return PACKET_OTHER;
	}
	if (next != 6)
		return PACKET_OTHER;
	p->version = 6;
	p->ecn = packet_u8(h, (u32)p->l3 + 1) >> 4 & PACKET_CE;
	packet_copy(p->source, h, (u32)p->l3 + 8, 16);
	packet_copy(p->destination, h, (u32)p->l3 + 24, 16);
	return packet_parse_tcp(h, l4, bytes, p);
}

#define PACKET_USUAL_L4 (PACKET_ETHER_BYTES + PACKET_IPV4_BYTES)

/**
 * packet_parse_usual() - what nearly all packets are: TCP in IPv4 without options or tags
 *
 * Every offset is a constant there. Return: false if it is something else, which
 * packet_parse_any() knows.
 */
static inline bool packet_parse_usual(const struct packet_head *h, struct packet *p)
{
	u32 bytes = packet_word(h, PACKET_ETHER_BYTES + 2);
	u32 tcp_bytes = (u32)(packet_u8(h, PACKET_USUAL_L4 + 12) >> 4) * 4;

	if (h->valid > PACKET_HEAD_BYTES || h->valid > h->frame_bytes ||
	    h->valid < PACKET_USUAL_L4 + PACKET_TCP_BYTES)
		return false;
	if (packet_word(h, 12) != PACKET_ETHER_IPV4 ||
	    packet_u8(h, PACKET_ETHER_BYTES) != 0x45 ||
	    packet_u8(h, PACKET_ETHER_BYTES + 9) != 6 ||
	    packet_word(h, PACKET_ETHER_BYTES + 6) & 0x3fff)
		return false;
	if (tcp_bytes < PACKET_TCP_BYTES || PACKET_USUAL_L4 + tcp_bytes > h->valid ||
	    bytes < PACKET_IPV4_BYTES + tcp_bytes ||
	    bytes > h->frame_bytes - PACKET_ETHER_BYTES)
		return false;
	packet_map_v4_prefix(p);
	__builtin_memcpy(p->source + 12, h->bytes + PACKET_ETHER_BYTES + 12, 4);
	__builtin_memcpy(p->destination + 12, h->bytes + PACKET_ETHER_BYTES + 16, 4);
	p->source_port = packet_word(h, PACKET_USUAL_L4);
	p->destination_port = packet_word(h, PACKET_USUAL_L4 + 2);
	p->seq = packet_words(h, PACKET_USUAL_L4 + 4);
	p->ack = packet_words(h, PACKET_USUAL_L4 + 8);
	p->payload_bytes = bytes - PACKET_IPV4_BYTES - tcp_bytes;
	p->window = packet_word(h, PACKET_USUAL_L4 + 14);
	p->l3 = PACKET_ETHER_BYTES;
	p->l4 = PACKET_USUAL_L4;
	p->tcp_bytes = (u8)tcp_bytes;
	p->flags = packet_u8(h, PACKET_USUAL_L4 + 13);
	p->ecn = packet_u8(h, PACKET_ETHER_BYTES + 1) & PACKET_CE;
	p->version = 4;
	p->vlan[0] = 0;
	p->vlan[1] = 0;
	return true;
}

/* @p may be used only if this returns PACKET_TCP. */
static inline enum packet_kind packet_parse_any(const struct packet_head *h,
						struct packet *p)
{
	u32 type = packet_u16(h, 12);
	u32 vlan;
	u32 i;

	if (h->valid > PACKET_HEAD_BYTES || h->valid > h->frame_bytes)
		return PACKET_BROKEN;
	if (h->valid < PACKET_ETHER_BYTES)
		return PACKET_BROKEN;
	p->l3 = PACKET_ETHER_BYTES;
	p->vlan[0] = 0;
	p->vlan[1] = 0;
	for (i = 0; i < PACKET_MAX_VLANS; i++) {
		if (type != 0x8100 && type != 0x88a8)
			break;
		if ((u32)p->l3 + 4 > h->valid)
			return PACKET_BROKEN;
		vlan = packet_vlan(type, packet_u16(h, p->l3));
		if (p->vlan[0])
			p->vlan[1] = vlan;
		else
			p->vlan[0] = vlan;
		type = packet_u16(h, (u32)p->l3 + 2);
		p->l3 += 4;
	}
	if (type == PACKET_ETHER_IPV4)
		return packet_parse_v4(h, p);
	if (type == PACKET_ETHER_IPV6)
		return packet_parse_v6(h, p);
	return PACKET_OTHER;
}

static inline enum packet_kind packet_parse(const struct packet_head *h, struct packet *p)
{
	return packet_parse_usual(h, p) ? PACKET_TCP : packet_parse_any(h, p);
}

/*
 * Alternate and trailer checksums (RFC 1146), TCP-MD5 (RFC 2385), TCP-AO (RFC 5925); the
 * two orders of counters of accurate ECN (RFC 9768); MPTCP (RFC 8684).
 */
static inline u32 packet_claim(u32 kind)
{
	switch (kind) {
	case 14:
	case 15:
	case 18:
	case 19:
	case 29:
		return PACKET_SIGNED;
	case 172:
	case 174:
		return PACKET_COUNTS_ECN;
	case 30:
		return PACKET_MULTIPATH;
	default:
		return 0;
	}
}

/**
 * packet_parse_options() - the TCP options of a packet that packet_parse() took
 *
 * Return: false if they are malformed.
 */
static inline bool packet_parse_options(const struct packet_head *h,
					const struct packet *p, struct packet_options *o)
{
	u32 at = (u32)p->l4 + PACKET_TCP_BYTES;
	u32 end = (u32)p->l4 + p->tcp_bytes;
	u32 kind;
	u32 bytes;
	u32 i;

	o->mss = 0;
	o->wscale = 0xff;
	o->has_timestamps = false;
	o->permits_sack = false;
	o->experiment = 0;
	o->timestamps = 0;
	o->sack = 0;
	o->sack_bytes = 0;
	o->claims = 0;
	o->opens_fast = false;
	if (at >= end)
		return true;
	for (i = 0; i < 60 - PACKET_TCP_BYTES; i++) {
		kind = packet_u8(h, at);
		if (!kind)
			return true;
		bytes = 1;
		if (kind != 1) {
			if (at + 1 >= end)
				return false;
			bytes = packet_u8(h, at + 1);
			if (bytes < 2 || at + bytes > end)
				return false;
		}
		if (kind == 2 && bytes == 4) {
			o->mss = packet_u16(h, at + 2);
		} else if (kind == 3 && bytes == 3) {
			o->wscale = packet_u8(h, at + 2);
		} else if (kind == 8 && bytes == 10) {
			o->has_timestamps = true;
			o->timestamps = (u16)at;
		} else if (kind == 4 && bytes == 2) {
			o->permits_sack = true;
		} else if (kind == 5 && !o->sack) {
			o->sack = (u16)(at + 2);
			o->sack_bytes = (u16)(bytes - 2);
		} else if (kind == 254 && !o->experiment) {
			o->experiment = (u16)at;
		} else {
			o->claims |= packet_claim(kind);
		}
		if (kind == 34 || kind == 254)
			o->opens_fast = true;
		if (at + bytes >= end)
			return true;
		/* Changes nothing, and lets the BPF verifier see that all turns are
		 * alike. */
		at = (at + bytes) & (PACKET_HEAD_BYTES - 1);
	}
	return true;
}

/* The highest right edge of SACK blocks (RFC 2018) that is less than 2^31 above @ack. */
static inline u32 packet_sacked_end(const struct packet_head *h,
				    const struct packet_options *o, u32 ack)
{
	u32 highest = 0;
	u32 i;

	for (i = 0; i < 4; i++) {
		u32 above;

		if ((i + 1) * 8 > o->sack_bytes)
			break;
		above = packet_u32(h, (u32)o->sack + i * 8 + 4) - ack;
		if (above < 0x80000000u && above > highest)
			highest = above;
	}
	return ack + highest;
}

/* Bytes above @ack that the SACK blocks from @first on cover. */
static inline u32 packet_sacked_bytes(const struct packet_head *h,
				      const struct packet_options *o, u32 first, u32 ack)
{
	u32 bytes = 0;
	u32 i;

	for (i = first; i < 4; i++) {
		u32 start, end;

		if ((i + 1) * 8 > o->sack_bytes)
			break;
		start = packet_u32(h, (u32)o->sack + i * 8) - ack;
		end = packet_u32(h, (u32)o->sack + i * 8 + 4) - ack;
		if (start < end && end < 0x80000000u)
			bytes += end - start;
	}
	return bytes;
}

/**
 * packet_hide_sack() - writes NOPs over the SACK blocks (RFC 2018) among TCP's options
 * @options: PACKET_OPTIONS_BYTES of room
 * @bytes: how many of them there are
 *
 * Return: whether there were any.
 */
static inline bool packet_hide_sack(u8 *options, u32 bytes)
{
	bool is_length = false;
	bool is_sack = false;
	bool is_hidden = false;
	u32 left = 0; /* of the option at hand */
	u32 i;

	for (i = 0; i < PACKET_OPTIONS_BYTES; i++) {
		if (i >= bytes)
			break;
		if (is_length) {
			is_length = false;
			left = options[i];
			if (left < 2)
				break;
			left -= 2;
		} else if (left) {
			left--;
		} else if (!options[i]) {
			break;
		} else if (options[i] == 1) {
			continue;
		} else {
			is_length = true;
			is_sack = options[i] == 5;
		}
		if (is_sack) {
			options[i] = 1;
			is_hidden = true;
		}
	}
	return is_hidden;
}

#endif /* EVENKEEL_ALGO_BASE_PACKET_H */
