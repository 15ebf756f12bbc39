/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * ProBoSCIS (Abdelmoniem, Bensaou, Susanto: Taming Latency in Data centers via
 * Active Congestion-Probing): probes before a SYN, the first window by what
 * came of them, DCTCP by receive window afterwards.
 *
 * The caller parses packets, keeps the state and sends; the functions answer
 * what to do. Windows are bytes.
 */
#ifndef EVENKEEL_ALGO_PROBOSCIS_PROBOSCIS_H
#define EVENKEEL_ALGO_PROBOSCIS_PROBOSCIS_H

#include "receiver.h"
#include "sender.h"
#include "settings.h"
#include "wire.h"

#endif /* EVENKEEL_ALGO_PROBOSCIS_PROBOSCIS_H */
