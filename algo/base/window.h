/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * TCP's window field: its scale (RFC 7323 §2), the checksum after a
 * change (RFC 1624), and the arbiter, which is the one place that decides on a
 * window when several mechanisms offer a limit.
 */
#ifndef EVENKEEL_ALGO_BASE_WINDOW_H
#define EVENKEEL_ALGO_BASE_WINDOW_H

#include "types.h"

#define WINDOW_MAX_SCALE 14
#define WINDOW_DEFAULT_MSS 536 /* where no option names one (RFC 9293 §3.7.1) */

/* Whose limit a window follows. */
enum window_by {
	WINDOW_BY_RECEIVER, /* its own: nothing was lowered */
	WINDOW_BY_PROBOSCIS,
	WINDOW_BY_CERA,
	WINDOW_BY_VFLOOD, /* what the host takes from the VM: it keeps to the receiver's
			   * itself
			   */
	WINDOW_BY_MAX,
};

/* What vFlood offers where the VM is to send nothing. */
#define WINDOW_CLOSED 0xffffffffu

/* What the mechanisms offer, 0: nothing. The receiver's entry is not read. */
struct window_limits {
	u32 bytes[WINDOW_BY_MAX];
	u32 in_flight_bytes; /* what the sender has sent beyond the ACK */
};

/* Scale of a window scale option's value: more than 14 counts as 14. */
static inline u8 window_scale(u8 option)
{
	return option < WINDOW_MAX_SCALE ? option : WINDOW_MAX_SCALE;
}

/* The payload of a full segment, 12 bytes less when both ends use timestamps. */
static inline u32 window_segment_bytes(u32 mss, bool has_timestamps)
{
	if (!mss)
		mss = WINDOW_DEFAULT_MSS;
	return has_timestamps && mss > 12 ? mss - 12 : mss;
}

/* The least limit that leaves room for @bytes when it is rounded down to the scale. */
static inline u32 window_with_room(u32 bytes, u8 scale)
{
	u32 below = (1u << window_scale(scale)) - 1;

	return bytes <= ~below ? bytes + below : bytes;
}

/* The least field whose window has room for @bytes. */
static inline u32 window_field_for(u32 bytes, u8 scale)
{
	return (bytes >> scale) + ((bytes & ((1u << scale) - 1)) != 0);
}

/*
 * The field that tells vFlood's grant of @bytes. Where the receiver has room for a
 * segment, the VM has it, too: a VM that is told less than its scale can say only sends
 * window probes, and nothing that comes of these tells it more.
 */
static inline u16 window_granted(u32 bytes, u16 offered, u8 scale, u32 mss)
{
	u32 segment = window_field_for(mss, scale);
	u32 scaled = bytes >> scale;

	if (bytes == WINDOW_CLOSED)
		return 0;
	if (segment > offered)
		segment = offered;
	if (scaled < segment)
		scaled = segment;
	return scaled < 65535 ? (u16)scaled : 65535;
}

/* Does any mechanism offer anything? If none does, the window is the receiver's own. */
static inline bool window_is_limited(const struct window_limits *limits)
{
	return limits->bytes[WINDOW_BY_PROBOSCIS] | limits->bytes[WINDOW_BY_CERA] |
	       limits->bytes[WINDOW_BY_VFLOOD];
}

/**
 * window_arbitrate() - the window field of an ACK
 * @limits: what the mechanisms offer
 * @offered: the field as the receiver sent it
 * @scale: the receiver's scale; 0 in a SYN-ACK
 * @mss: smallest limit, in bytes
 * @field: the field to write
 *
 * vFlood's grant takes the place of what the receiver offers, and may be more
 * (window_granted()). The smallest limit below that wins and is rounded down to the
 * scale. It stays at one MSS or more (rounded up to the scale) unless less is offered,
 * and never takes back room that was used already: a sender beyond its window's edge
 * numbers its own ACKs with that edge (tcp_acceptable_seq() in Linux), and the other end
 * takes them for old segments. Two ends in that state never hear each other again.
 * Leaving used room lets a sender send nothing more.
 *
 * Return: who won; WINDOW_BY_RECEIVER if the field stays as it is.
 */
static inline enum window_by window_arbitrate(const struct window_limits *limits,
					      u16 offered, u8 scale, u32 mss, u16 *field)
{
	enum window_by by = WINDOW_BY_RECEIVER;
	enum window_by winner = by;
	u32 least = 0;
	u32 scaled;
	u32 floor;
	u32 i;

	scale = window_scale(scale);
	if (limits->bytes[WINDOW_BY_VFLOOD]) {
		offered = window_granted(limits->bytes[WINDOW_BY_VFLOOD], offered, scale,
					 mss);
		by = WINDOW_BY_VFLOOD;
	}
	*field = offered;
	for (i = WINDOW_BY_RECEIVER + 1; i < WINDOW_BY_MAX; i++) {
		if (i != WINDOW_BY_VFLOOD && limits->bytes[i] &&
		    (!least || limits->bytes[i] < least)) {
			least = limits->bytes[i];
			winner = (enum window_by)i;
		}
	}
	if (!least)
		return by;
	scaled = least >> scale;
	if (mss < limits->in_flight_bytes)
		mss = limits->in_flight_bytes;
	floor = window_field_for(mss, scale);
	if (scaled < floor)
		scaled = floor;
	if (scaled >= offered)
		return by;
	*field = (u16)scaled;
	return winner;
}

/* An internet checksum's sum (RFC 1071), folded to 16 bits. */
static inline u16 window_csum_fold(u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (u16)sum;
}

/*
 * The checksum after one 16-bit word of what it covers has changed (RFC 1624
 * eq. 3). All in the same byte order.
 */
static inline u16 window_csum_replace(u16 check, u16 old_word, u16 new_word)
{
	return (u16)~window_csum_fold((u64)(u16)~check + (u16)~old_word + new_word);
}

#endif /* EVENKEEL_ALGO_BASE_WINDOW_H */
