/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the eBPF programs of a guest and its agent both know. The programs include
 * it after vmlinux.h; Rust reads it through bindgen. No layout depends on the
 * compiler: padding is spelt out.
 *
 * Maps, all pinned:
 *   control     array[1]   struct ek_guest_control, written by the agent
 *   share       array[1]   struct ek_guest_share, written by the agent before a pass of
 *                          CERA's client, and by the pass
 *   counters    per-CPU    struct ek_guest_counters
 *   limited     sockets    struct ek_guest_limited, of those whose window was lowered
 */
#ifndef EVENKEEL_GUEST_INTF_H
#define EVENKEEL_GUEST_INTF_H

#include "algo/congestion/congestion.h"

/* The version of all layouts below: pins of another are not taken over. */
#define EK_GUEST_VERSION 7

#define EK_GUEST_MAX_LIMITED 16384

enum ek_guest_mode {
	EK_GUEST_OFF,
	EK_GUEST_OBSERVE, /* count what would be done, change nothing */
	EK_GUEST_ENFORCE,
};

/*
 * The state of this guest, for vFlood's programs and for anybody who asks. The agent
 * makes the map, so that it is there without vFlood.
 */
struct ek_guest_control {
	u64 host_until_ns; /* a host's agent counts as there until then: to be shown */
	u64 attested_until_ns; /* a host holds this guest's packets until then
				* (CLOCK_MONOTONIC)
				*/
	u32 version; /* EK_GUEST_VERSION */
	u32 mode; /* enum ek_guest_mode */
	u32 congestion; /* enum congestion_kind: how the shadow window grows */
	u32 flood_segments; /* window where nothing was granted; 0: the mechanism's own */
	u32 host; /* the session of the host's agent that attested last */
	u32 off_core; /* 1 + how many permille of the last seconds this guest had no core,
		       * 0: not known; to be shown */
	u64 endpoint; /* what this guest says of its TCP, as in a heartbeat; 0: nothing
		       * yet; to be shown */
	u32 cards; /* 1 + how many network cards are up, 0: not known; to be shown */
	u32 namespace; /* inode of the agent's network namespace: the host's word is
			* about no other's connections
			*/
};

/* A pass of CERA's client over all sockets. */
struct ek_guest_share {
	u32 window; /* w_k, in segments; 0: limits end */
	u32 flows; /* active ones, as the pass before has counted them */
	u32 next; /* the place at which the remainder goes on */
	u32 mode; /* enum ek_guest_mode */
	u32 seen; /* active ones of this pass */
	u32 changed; /* windows that this pass has set, or would have */
	u32 foreign; /* active ones with an algorithm whose window is not set */
	u32 failed; /* sockets that could not be set */
	u32 pending_cwnd; /* for the socket at hand: its window; 0: its own stays */
	u32 pending_ssthresh; /* and its threshold */
	u32 evict; /* 1 + enum congestion_kind: that for sockets under vFlood; 0: they
		      stay */
	u32 evicted; /* how many were */
	u32 channel_port; /* of the agent's channel over TCP, whose flow has no part; 0:
			     none */
	u32 least_rtt_us; /* of active ones, as the pass before has found; 0: none */
	u32 seen_rtt_us; /* of active ones of this pass */
};

/* A socket whose window was set. */
struct ek_guest_limited {
	u32 before; /* its threshold until then */
	u32 set; /* the one that was set */
};

/* Each with its help text on its line. */
enum ek_guest_count {
	EK_GUEST_COUNT_CONNECTIONS, /* Connections that took vFlood's algorithm */
	EK_GUEST_COUNT_UNHELD, /* Those of them that the host did not hold then */
	EK_GUEST_COUNT_FLOODS, /* Times that one began to flood, or would have */
	EK_GUEST_COUNT_HANDOVERS, /* Floods that ended at a sign of loss */
	EK_GUEST_COUNT_RETRACTS, /* Floods that ended because nobody attested */
	EK_GUEST_COUNT_WINDOWS_SET, /* Windows that CERA's client has set */
	EK_GUEST_COUNT_WINDOWS_BACK, /* Thresholds that it has put back */
	EK_GUEST_COUNTERS,
};

struct ek_guest_counters {
	u64 value[EK_GUEST_COUNTERS];
};

#endif /* EVENKEEL_GUEST_INTF_H */
