/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* CERA: each flow's share of a VM's window (CERA eq. 3 and 4). */
#ifndef EVENKEEL_ALGO_CERA_CLIENT_H
#define EVENKEEL_ALGO_CERA_CLIENT_H

#include "settings.h"

/**
 * cera_flow_window() - the window of one of a VM's flows
 * @window: w_k
 * @flows: how many are active, at least 1
 * @position: this one's place among them, from 0
 * @next: the place at which the remainder goes on
 */
static inline u32 cera_flow_window(u32 window, u32 flows, u32 position, u32 next)
{
	u32 share, ahead;

	if (!flows)
		flows = 1;
	share = window / flows;
	ahead = position % flows + flows - next % flows;
	if (ahead % flows < window % flows)
		share++;
	return share > CERA_LEAST_SEGMENTS ? share : CERA_LEAST_SEGMENTS;
}

/* Where the remainder goes on next time. */
static inline u32 cera_next(u32 window, u32 flows, u32 next)
{
	if (!flows)
		flows = 1;
	return (next % flows + window % flows) % flows;
}

/* The same when the flow at @position is gone from the list. */
static inline u32 cera_next_without(u32 next, u32 position)
{
	return next > position ? next - 1 : next;
}

/**
 * cera_client_window() - what a client sets the window of one of its flows to
 *
 * One segment more than the flow's share. The host writes the share itself into the
 * flow's ACKs, for every VM. A client's rounds of the remainder are not the host's: whole
 * segments that a client moves between flows by itself would be missed by small windows.
 */
static inline u32 cera_client_window(u32 window, u32 flows, u32 position, u32 next)
{
	return cera_flow_window(window, flows, position, next) + CERA_CLIENT_SLACK;
}

/**
 * cera_client_far() - the same for a flow that goes farther than others of its VM
 * @rtt_us: its least RTT, 0: not known
 * @least_us: the least of all the VM's active flows, 0: not known
 *
 * In proportion to its RTT. If the path alone makes that long, this is more than the
 * host's limit, which adds T_l but once, and the host's decides.
 */
static inline u32 cera_client_far(u32 window, u32 rtt_us, u32 least_us)
{
	u64 far;

	if (!least_us || rtt_us < least_us)
		return window;
	far = (u64)window * rtt_us / least_us;
	return far < CERA_MAX_WINDOW ? (u32)far : CERA_MAX_WINDOW;
}

/**
 * cera_client_sets() - whether a client sets a flow's window
 * @cwnd: the flow's present window
 * @window: cera_client_window()'s
 * @unscathed: the threshold is what a client has set it to, so nothing was lost since
 * @limited: the flow uses all of its window
 *
 * A window below its share was lowered by the flow's own algorithm, for a bottleneck that
 * CERA does not see, and stays. But a window that a client has lowered grows with the
 * share. Algorithms are slower than that: CUBIC's small windows grow by half a segment in
 * an RTT, so the flows of heavy VMs, whose shares grow by more, would fall behind.
 */
static inline u32 cera_client_sets(u32 cwnd, u32 window, u32 unscathed, u32 limited)
{
	return cwnd > window || (cwnd < window && unscathed && limited);
}

#endif /* EVENKEEL_ALGO_CERA_CLIENT_H */
