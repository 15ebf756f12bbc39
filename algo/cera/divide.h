/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* CERA: each VM's share of the host's window (CERA eq. 2). */
#ifndef EVENKEEL_ALGO_CERA_DIVIDE_H
#define EVENKEEL_ALGO_CERA_DIVIDE_H

#include "controller.h"

struct cera_vm {
	u64 sent_bytes; /* n_k: in the last M epochs */
	u64 part; /* its part of the host's window, of the sum of all parts */
	u32 weight; /* mu_k */
	u32 rtt_us; /* d_k */
	u32 flows; /* active ones */
	u64 reserve_bytes; /* what else it may have in flight, from cera_pace_epoch() */
	u64 usual_bytes; /* what it sends in a longer time, of struct cera_pace */
	u64 rate; /* its share of C by weight, in bytes per second */
	u32 fresh; /* it has been silent until now, so n_k does not say what it needs */
	u32 window; /* w_k, in segments; of a silent one: what it would have if it woke up
		     */
	u32 loop_us; /* how long that lasts at its part of C */
};

static inline u64 cera_sent(const struct cera_vm *vm)
{
	return vm->sent_bytes < CERA_MAX_SENT ? vm->sent_bytes : CERA_MAX_SENT;
}

static inline u32 cera_weight(const struct cera_vm *vm)
{
	if (!vm->weight)
		return 1;
	return vm->weight < CERA_MAX_WEIGHT ? vm->weight : CERA_MAX_WEIGHT;
}

static inline u64 cera_flows(const struct cera_vm *vm)
{
	return vm->flows < CERA_MAX_FLOWS ? vm->flows : CERA_MAX_FLOWS;
}

/* A VM in a pause goes on soon, and has its part in flight. */
static inline u32 cera_is_active(const struct cera_settings *set,
				 const struct cera_vm *vm)
{
	return vm->sent_bytes || (vm->reserve_bytes && !set->printed);
}

/* n_k of the sum of all, in 2^20ths: at least one, at most all. */
static inline u32 cera_portion(u64 sent, u64 all)
{
	u32 portion;

	while (all >> 40) {
		all >>= 1;
		sent >>= 1;
	}
	portion = all ? (u32)((sent << 20) / all) : 0;
	if (portion > 1u << 20)
		return 1u << 20;
	return portion ? portion : 1;
}

/*
 * A VM's part, in 2^16ths of a weight.
 *
 * As printed it is mu_k * n_k. Windows in these proportions make rates in these
 * proportions, which the next epoch multiplies by mu_k again: with unequal weights the
 * lightest VM ends at nothing, and with equal ones the shares stay whatever they were.
 * Here n_k only says what a VM needs: twice what it sends, as a flow in slow start would
 * ask for, and at most its weight's part. VMs that send at least half of that divide the
 * rest by weight alone. A VM that has just woken up counts as needing all of its share,
 * and so does one with pauses, which may be longer than M epochs.
 */
static inline u64 cera_part(const struct cera_settings *set, const struct cera_vm *vm,
			    u64 sent, u64 weights)
{
	u32 portion = cera_portion(cera_sent(vm), sent);
	u64 needs = 2ull * portion * weights >> 4;
	u64 full = (u64)cera_weight(vm) << 16;

	if (set->printed)
		return (u64)cera_weight(vm) * portion;
	if (!needs)
		needs = 1;
	return needs < full && !vm->fresh && !vm->reserve_bytes ? needs : full;
}

/*
 * By how much the sum of all windows may grow in an RTT: no flow of a busy VM is given
 * more than one segment, by which its own window grows. Given more, all flows would grow
 * alike, whatever their VMs' weights.
 */
static inline u32 cera_growth(const struct cera_vm *vms, u32 count, u64 parts)
{
	u64 all = 0, least = 0, flows, growth;
	u32 i;

	for (i = 0; i < count; i++) {
		if (!vms[i].part)
			continue;
		flows = cera_flows(&vms[i]);
		all += flows;
		growth = flows * parts / vms[i].part;
		if (growth && vms[i].part == (u64)cera_weight(&vms[i]) << 16 &&
		    (!least || growth < least))
			least = growth;
	}
	if (!least)
		least = all;
	return least < CERA_MAX_WINDOW ? (u32)least : CERA_MAX_WINDOW;
}

/* A VM's part by what it sends over a time longer than its pauses. */
static inline u64 cera_claim(const struct cera_vm *vm, u64 usual, u64 weights)
{
	u64 needs = 2ull * cera_portion(vm->usual_bytes, usual) * weights >> 4;
	u64 full = (u64)cera_weight(vm) << 16;

	if (!vm->usual_bytes)
		return 0;
	return needs < full ? needs : full;
}

/* What each VM may send by its weight, given what the others need. */
static inline void cera_rates(struct cera_vm *vms, u32 count, u64 bytes_per_s)
{
	u64 usual = 0, weights = 0, claims = 0, full;
	u32 i;

	if (bytes_per_s > CERA_MAX_RATE)
		bytes_per_s = CERA_MAX_RATE;
	for (i = 0; i < count; i++) {
		usual += vms[i].usual_bytes;
		if (vms[i].usual_bytes)
			weights += cera_weight(&vms[i]);
	}
	for (i = 0; i < count; i++)
		claims += cera_claim(&vms[i], usual, weights);
	for (i = 0; i < count; i++) {
		full = (u64)cera_weight(&vms[i]) << 16;
		vms[i].rate = claims - cera_claim(&vms[i], usual, weights) + full;
		vms[i].rate = bytes_per_s * ((full << 20) / vms[i].rate) >> 20;
	}
}

/* How long a VM's window lasts, at @part of all @parts. */
static inline u32 cera_lasts_us(const struct cera_settings *set, u32 window, u64 part,
				u64 parts, u64 bytes_per_s)
{
	u64 bytes = (u64)window * set->segment_bytes;
	u64 rate;

	if (bytes_per_s > CERA_MAX_RATE)
		bytes_per_s = CERA_MAX_RATE;
	rate = ((part << 20) / (parts ? parts : 1)) * bytes_per_s >> 20;
	/* Beyond what can be multiplied it lasts for ever. */
	bytes = bytes >> 43 ? ~0ull : bytes * 1000000 / (rate ? rate : 1);
	return bytes < 0xffffffffu ? (u32)bytes : 0xffffffffu;
}

/* The window that lasts for a VM's pauses, in segments. */
static inline u64 cera_reserve(const struct cera_settings *set, const struct cera_vm *vm)
{
	u64 segments = vm->reserve_bytes / (set->segment_bytes ? set->segment_bytes : 1);

	if (set->printed)
		return 0;
	return segments < CERA_MAX_WINDOW ? segments : CERA_MAX_WINDOW;
}

/**
 * cera_divide() - the windows of all VMs
 * @vms: sent_bytes, weight, rtt_us, flows, fresh, reserve_bytes and
 * usual_bytes are given
 * @bytes_per_s: C
 *
 * Parts are parts of the link's rate, so a VM with a longer RTT gets a larger window for
 * the same part: CERA eq. 1 with its own d. Where all have the same d, the windows' sum
 * is W, but for two things. Every flow has a least window. And it has half a segment
 * more, because receivers acknowledge every other segment: half a segment of each flow is
 * neither on its way nor in a queue, and would be missed most where windows are small.
 * CERA eq. 2 drops fractions of a segment, which also costs the lightest VM most; here
 * the next VM has the fraction, and the first VM at another time.
 *
 * Silent VMs take nothing from the others, but have a window: the flows of one that wakes
 * up before the next epoch must not go on with windows of better times.
 *
 * Return: how many VMs have sent in the last M epochs, or make a pause.
 */
static inline u32 cera_divide(struct cera_controller *c, const struct cera_settings *set,
			      struct cera_vm *vms, u32 count, u64 bytes_per_s)
{
	u64 sent = 0, weights = 0, parts = 0, part, window, least;
	u64 remainder = set->printed ? 0 : c->phase;
	u32 active = 0;
	u32 i;

	if (count > CERA_MAX_VMS)
		count = CERA_MAX_VMS;
	for (i = 0; i < count; i++) {
		vms[i].window = 0;
		vms[i].part = 0;
		if (!cera_is_active(set, &vms[i]))
			continue;
		sent += cera_sent(&vms[i]);
		weights += cera_weight(&vms[i]);
		active++;
	}
	for (i = 0; i < count; i++) {
		if (!cera_is_active(set, &vms[i]))
			continue;
		vms[i].part = cera_part(set, &vms[i], sent, weights);
		parts += vms[i].part;
	}
	for (i = 0; i < count; i++) {
		window = (u64)cera_window(set, bytes_per_s, vms[i].rtt_us) + c->extra;
		part = (u64)cera_weight(&vms[i]) << 16;
		if (vms[i].part) {
			window *= vms[i].part;
			if (!set->printed)
				remainder += ((window % parts << 20) / parts) +
					     cera_flows(&vms[i]) * (CERA_PHASES / 2);
			window = window / parts + remainder / CERA_PHASES;
			remainder %= CERA_PHASES;
		} else if (set->printed)
			window = 0;
		else
			window = part * window / (parts + part);
		window += cera_reserve(set, &vms[i]);
		least = cera_flows(&vms[i]);
		least = (least ? least : 1) * CERA_LEAST_SEGMENTS;
		vms[i].window = (u32)(window > least ? window : least);
		vms[i].loop_us = cera_lasts_us(set, vms[i].window,
					       vms[i].part ? vms[i].part : part,
					       vms[i].part ? parts : parts + part,
					       bytes_per_s);
	}
	c->per_rtt = cera_growth(vms, count, parts);
	cera_rates(vms, count, bytes_per_s);
	return active;
}

#endif /* EVENKEEL_ALGO_CERA_DIVIDE_H */
