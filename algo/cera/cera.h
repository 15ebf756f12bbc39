/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * CERA (Wang, Liu, Shen, Lee, Chen, Zhang: Intra-host Rate Control with
 * Centralized Approach): one controller per host keeps the queue of the uplink
 * short by giving each VM its share of one window.
 *
 * The caller measures, counts epochs and carries out; the functions answer how
 * large windows are to be. A segment is CERA's S: the bytes that a full one has
 * on the wire. Queues and traffic are counted in bytes, because one packet of
 * a host can stand for 64 KB (GSO), and an ACK for 84 bytes.
 */
#ifndef EVENKEEL_ALGO_CERA_CERA_H
#define EVENKEEL_ALGO_CERA_CERA_H

#include "client.h"
#include "controller.h"
#include "divide.h"
#include "meter.h"
#include "pace.h"
#include "settings.h"
#include "trip.h"

#endif /* EVENKEEL_ALGO_CERA_CERA_H */
