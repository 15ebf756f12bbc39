/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * vFlood in the guest: its congestion window.
 */
#ifndef EVENKEEL_ALGO_VFLOOD_GUEST_H
#define EVENKEEL_ALGO_VFLOOD_GUEST_H

#include "flow.h"

/**
 * vflood_token() - what the host writes into the packets of a connection that it holds
 * @session: of the agents' channel, which nobody else knows
 *
 * It stands beside the grant, in the urgent pointer, which says nothing without URG (RFC
 * 9293 §3.1). A guest floods while the last packet of a connection had it: others go by
 * another card or through a tunnel, have headers that others own, or are forgotten, and
 * nobody holds them.
 *
 * Return: not 0, which all others have there.
 */
static inline u16 vflood_token(u32 session)
{
	u16 token = (u16)(session ^ session >> 16);

	return token ? token : 1;
}

/*
 * A host forgets a connection that is silent for long (EK_VFLOOD_IDLE_NS). The guest,
 * whose clock is another, counts on it for half of that time.
 */
#define VFLOOD_HELD_US 300000000ull

/* Does a guest count on the host to hold, @silent_us after a packet with the token? */
static inline bool vflood_guest_counts_on_host(u64 silent_us)
{
	return silent_us <= VFLOOD_HELD_US;
}

/**
 * vflood_guest_held() - what the host still holds, as far as the guest can tell
 * @out: segments sent and not acknowledged, what is held among them
 * @sacked: those of them that have arrived out of order
 * @shadow: the shadow window, which is about what the host has in the network
 */
static inline u32 vflood_guest_held(u32 out, u32 sacked, u32 shadow)
{
	out -= sacked < out ? sacked : out;
	return out > shadow ? out - shadow : 0;
}

/**
 * struct vflood_guest - what a guest's connection knows; windows in segments
 * @shadow: cong_win_vm', which a standard algorithm grows and shrinks all the time
 * @granted: what the host grants; 0 if it has said nothing yet
 * @held: vflood_guest_held(); 0 after a timeout, when the guest takes all for lost, and
 * where the window in recovery follows what arrives (RFC 6937) instead of what is out
 * @in_flight: sent, not acknowledged, and not taken for lost
 * @is_online: the host says that it is there
 * @is_repairing: the guest's TCP has seen a loss, or signs of one; where its window in
 * recovery counts what is out, only while it has something to send again, or after a
 * timeout
 */
struct vflood_guest {
	u32 shadow;
	u32 granted;
	u32 held;
	u32 in_flight;
	bool is_online;
	bool is_repairing;
};

/*
 * The guest's congestion window.
 *
 * While a loss is repaired, what is held is not in the network, and must not keep lost
 * data from being sent again: it is added to the window, up to one segment for each ACK.
 */
static inline u32 vflood_guest_cwnd(const struct vflood_guest *g)
{
	u32 shadow = g->shadow, granted = g->granted, held = g->held;
	u32 in_flight = g->in_flight;

	if (!g->is_online)
		return shadow;
	if (g->is_repairing) {
		if (shadow + held > in_flight + 1)
			held = in_flight + 1 > shadow ? in_flight + 1 - shadow : 0;
		return shadow + held;
	}
	if (!granted)
		granted = VFLOOD_FLOOD_SEGMENTS;
	return granted > shadow ? granted : shadow;
}

/**
 * vflood_guest_packet() - segments in a packet that the guest leaves to others to segment
 * (GSO)
 * @shadow: the shadow window, which is about the host's
 *
 * Return: the least number, if there is as much data
 */
static inline u32 vflood_guest_packet(bool is_flooding, u32 shadow)
{
	u32 segments = is_flooding ? shadow / VFLOOD_WHOLE_PART : 0;

	return segments > VFLOOD_LEAST_PACKET ? segments : VFLOOD_LEAST_PACKET;
}

#endif /* EVENKEEL_ALGO_VFLOOD_GUEST_H */
