/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* ProBoSCIS: settings. */
#ifndef EVENKEEL_ALGO_PROBOSCIS_SETTINGS_H
#define EVENKEEL_ALGO_PROBOSCIS_SETTINGS_H

#include "../base/types.h"

#define PROBOSCIS_MAX_PROBES 64 /* of one train */

/* A peer that left this many handshakes unanswered is probed only at every 64th SYN. */
#define PROBOSCIS_MAX_SILENT 16
#define PROBOSCIS_SELDOM 64

/* Defaults of the settings. */
#define PROBOSCIS_PROBES 10
#define PROBOSCIS_K1_PERMILLE 62
#define PROBOSCIS_K2_PERMILLE 500
#define PROBOSCIS_K_PERCENT 50
#define PROBOSCIS_B1_US 4000
#define PROBOSCIS_B2_US 20000
#define PROBOSCIS_B3_US 1000
#define PROBOSCIS_MAX_TIME_US 60000
#define PROBOSCIS_ICWND_SEGMENTS 10

/* A train in a burst of connections has no fewer probes, unless g is less. */
#define PROBOSCIS_LEAST_PROBES 2

/* How often to check whether a held SYN-ACK's probes are in. */
#define PROBOSCIS_HELD_POLL_US 250

struct proboscis_settings {
	u32 probes; /* g: probes before a SYN, 0: none */
	u32 k1_permille; /* alpha from which DCTCP limits the window */
	u32 k2_permille; /* marked share of probes above which the first window is one MSS
			  */
	u32 k_percent; /* share of probes that must have come, or it is one MSS */
	u32 b1_us; /* probes are sent again after */
	u32 b2_us; /* the SYN is sent again after */
	u32 b3_us; /* a SYN-ACK waits no longer for late probes */
	u32 max_time_us; /* nothing is sent again after */
	u32 icwnd_segments; /* initial window where nothing is marked */
	u32 budget_probes_per_s; /* of one VM, in the long run */
	u32 budget_burst_probes; /* of one VM, at once */
	u32 answers; /* 1: SYN-ACKs have probes, too, where both hosts say so */
	u64 elephant_bytes; /* flows that sent more are left alone, 0: none are */
};

#endif /* EVENKEEL_ALGO_PROBOSCIS_SETTINGS_H */
