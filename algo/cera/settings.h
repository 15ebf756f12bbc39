/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* CERA: settings, and the bounds of everything. */
#ifndef EVENKEEL_ALGO_CERA_SETTINGS_H
#define EVENKEEL_ALGO_CERA_SETTINGS_H

#include "../base/types.h"

/* Bounds. What is beyond counts as the bound. */
#define CERA_MAX_VMS 4096
#define CERA_MAX_EPOCHS 16
#define CERA_MAX_WEIGHT 10000
#define CERA_MAX_WINDOW (1u << 24) /* segments */
#define CERA_MAX_RATE (1ull << 39) /* bytes per second: 4.4 Tbit/s */
#define CERA_MAX_RTT_US (1u << 24)
#define CERA_MAX_SENT (1ull << 40) /* bytes of a VM in M epochs */
#define CERA_MAX_FLOWS (1u << 20)

/* Defaults of the settings. */
#define CERA_HIGH_SEGMENTS 60
#define CERA_LOW_SEGMENTS 30
#define CERA_EPOCH_US 1000
#define CERA_EPOCHS 4
#define CERA_USUAL_BYTES 125000ull
#define CERA_LONGEST_EPOCH_US 1000000u
#define CERA_WEIGHT 1

/*
 * Least window of a flow. With one segment in flight a receiver that delays its
 * ACKs would wait for its timer each time.
 */
#define CERA_LEAST_SEGMENTS 2

/* What a client leaves a flow above its share. */
#define CERA_CLIENT_SLACK 1

/* Limits end when windows have grown to this many times CERA eq. 1. */
#define CERA_RELEASE 4

/* Remainders of VMs' windows, in parts of a segment. */
#define CERA_PHASES (1u << 20)
#define CERA_PHASE_STEP 648055u

/* The least RTT is of the last 10 to 20 s. */
#define CERA_RTT_WINDOW_US 10000000ull

/* Flows count as active for at most twice as long because of a far one. */
#define CERA_LONGEST_FAR_US 200000u
/* A far flow that has ended counts as the farthest for a second: it may be back. */
#define CERA_FAR_US 1000000ull

/*
 * A VM silent for longer is at rest or has lost something: a retransmission timer is at
 * least as long.
 */
#define CERA_LONGEST_PAUSE_US 200000u
/* A sender of large packets waits for a third of its window (tcp_tso_win_divisor). */
#define CERA_DEFER_PART 3
/* What a packet of several segments has at most, in bytes. */
#define CERA_LARGEST_PACKET 65536u
/* A pause is remembered for this many times its length; at most CERA_PAUSES are. */
#define CERA_PAUSE_MEMORY 8
#define CERA_PAUSES 8
/*
 * VMs with pauses are helped to all of their share but one part in CERA_PACE_LESS: for
 * that part the queue would have to be as long as the longest pause.
 */
#define CERA_PACE_LESS 64
/* By how many pauses a VM may be ahead of its share. */
#define CERA_PACE_AHEAD 4
/* The newest epoch makes up one part in this many of a smoothed rate. */
#define CERA_PACE_SMOOTH 64

struct cera_settings {
	u32 high_segments; /* T_u: windows are cut when more wait */
	u32 low_segments; /* T_l: what then is to wait */
	u32 epoch_us; /* Delta */
	u32 segment_bytes; /* S */
	u32 printed; /* shares as CERA eq. 2 has them, not by what VMs need */
};

/**
 * cera_usual_epoch_us() - Delta where none is given
 *
 * The link sends as much in it as in 1 ms at 1 Gbit/s, 83 segments: what VMs send in less
 * is chance. No shorter than 1 ms, and no longer than a second. @bytes_per_s may be 0,
 * unknown.
 */
static inline u32 cera_usual_epoch_us(u64 bytes_per_s)
{
	u64 us = CERA_USUAL_BYTES * 1000000 / (bytes_per_s ? bytes_per_s : CERA_MAX_RATE);

	if (us < CERA_EPOCH_US)
		return CERA_EPOCH_US;
	return us < CERA_LONGEST_EPOCH_US ? (u32)us : CERA_LONGEST_EPOCH_US;
}

#endif /* EVENKEEL_ALGO_CERA_SETTINGS_H */
