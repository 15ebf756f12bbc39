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

/* Nothing is limited any more when windows have grown to so many times CERA eq. 1. */
#define CERA_RELEASE 4

/* Remainders of VMs' windows, in parts of a segment. */
#define CERA_PHASES (1u << 20)
#define CERA_PHASE_STEP 648055u

/* The least RTT is of the last 10 to 20 s. */
#define CERA_RTT_WINDOW_US 10000000ull

/*
 * What is silent for longer is at rest or has lost something: a retransmission timer is
 * at least as long.
 */
#define CERA_LONGEST_PAUSE_US 200000u
/* A pause is remembered for so many times its length, and so many are. */
#define CERA_PAUSE_MEMORY 8
#define CERA_PAUSES 8
/*
 * VMs with pauses are helped to all of their share but such a part: for the last of it
 * the queue would have to be as long as the longest pause.
 */
#define CERA_PACE_LESS 64
/* A VM may be ahead of its share by so many pauses. */
#define CERA_PACE_AHEAD 4
/* How much of a rate is the newest epoch's. */
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
 * As much is sent in it as in 1 ms at 1 Gbit/s, 83 segments, because what VMs send in
 * less is chance. No shorter than that, and no longer than a second. @bytes_per_s may be
 * 0, not known.
 */
static inline u32 cera_usual_epoch_us(u64 bytes_per_s)
{
	u64 us = CERA_USUAL_BYTES * 1000000 / (bytes_per_s ? bytes_per_s : CERA_MAX_RATE);

	if (us < CERA_EPOCH_US)
		return CERA_EPOCH_US;
	return us < CERA_LONGEST_EPOCH_US ? (u32)us : CERA_LONGEST_EPOCH_US;
}

/* ---- One window for the host: CERA eq. 1 -------------------------------- */

/**
 * cera_window() - d * C / S + T_l
 * @bytes_per_s: C
 * @rtt_us: d, without the time in the queue
 *
 * Return: segments in flight that keep the link busy and T_l of them waiting.
 */
static inline u32 cera_window(const struct cera_settings *set, u64 bytes_per_s,
			      u32 rtt_us)
{
	u64 segments;

	if (bytes_per_s > CERA_MAX_RATE)
		bytes_per_s = CERA_MAX_RATE;
	if (rtt_us > CERA_MAX_RTT_US)
		rtt_us = CERA_MAX_RTT_US;
	segments = bytes_per_s * rtt_us / 1000000 /
		   (set->segment_bytes ? set->segment_bytes : 1);
	segments += set->low_segments;
	return segments < CERA_MAX_WINDOW ? (u32)segments : CERA_MAX_WINDOW;
}

/* What is to be done at the end of an epoch. */
enum cera_verdict {
	CERA_FREE, /* nothing: no VM has a limit */
	CERA_GROW, /* limits grow; guests' own windows do so by themselves */
	CERA_CUT, /* all windows are to be set */
};

struct cera_controller {
	u64 credit; /* of segments that have not yet made limits grow: in segments times
		       us */
	u32 extra; /* segments by which limits have grown since the last cut */
	u32 per_rtt; /* by how many they may grow in an RTT, from cera_divide() */
	u32 engaged; /* there was a cut, and limits have not outgrown it */
	u32 phase; /* where the VMs' remainders go on, in 2^20ths of a segment */
	u32 since_us; /* since remainders have gone on */
	u32 turned; /* remainders go on in this epoch */
};

/*
 * Remainders go on once in an RTT. A flow's next ACK is as far away, and one that had a
 * segment more between two of them would not have had it.
 */
static inline void cera_phase(struct cera_controller *c, u32 epoch_us, u32 rtt_us)
{
	u64 since = (u64)c->since_us + epoch_us;

	c->turned = since >= rtt_us;
	c->since_us = c->turned ? 0 : (u32)since;
	/* The golden section: any few phases in a row are far from each other. */
	if (c->turned)
		c->phase = (c->phase + CERA_PHASE_STEP) & (CERA_PHASES - 1);
}

/**
 * cera_epoch() - an epoch has ended
 * @queue_bytes: q, what waits at the uplink
 * @rtt_us: d and the time in the queue
 * @window: W of CERA eq. 1, in segments
 *
 * The paper says what happens when q > T_u. When it is not, a flow's own
 * algorithm goes on. A limit that the host writes into ACKs must do the same, or
 * guests would be held down for ever, or let go all at once. So the sum of all
 * windows grows, by no more in an RTT than there is room for up to T_u and than
 * cera_divide() has found, until it means nothing any more.
 */
static inline enum cera_verdict cera_epoch(struct cera_controller *c,
					   const struct cera_settings *set,
					   u64 queue_bytes, u32 rtt_us, u32 window)
{
	u64 high_bytes = (u64)set->high_segments * set->segment_bytes;
	u64 grown, room, step;

	cera_phase(c, set->epoch_us, rtt_us);
	if (queue_bytes > high_bytes) {
		c->engaged = 1;
		c->extra = 0;
		c->credit = 0;
		return CERA_CUT;
	}
	if (!c->engaged)
		return CERA_FREE;
	if (!rtt_us)
		rtt_us = 1;
	room = (high_bytes - queue_bytes) / (set->segment_bytes ? set->segment_bytes : 1);
	step = c->per_rtt < room ? c->per_rtt : room;
	/* A longer epoch than the RTT has seen nothing of what it did. */
	c->credit +=
		(step ? step : 1) * (set->epoch_us < rtt_us ? set->epoch_us : rtt_us);
	grown = c->extra + c->credit / rtt_us;
	c->credit %= rtt_us;
	if (grown >= (u64)window * CERA_RELEASE || grown >= CERA_MAX_WINDOW) {
		c->engaged = 0;
		c->extra = 0;
		c->credit = 0;
		return CERA_FREE;
	}
	c->extra = (u32)grown;
	return CERA_GROW;
}

/* ---- Each VM's share: CERA eq. 2 ----------------------------------------- */

struct cera_vm {
	u64 sent_bytes; /* n_k: in the last M epochs */
	u64 part; /* its part of the host's window, of the sum of all parts */
	u32 weight; /* mu_k */
	u32 rtt_us; /* d_k */
	u32 flows; /* active ones */
	u64 reserve_bytes; /* what else it may have in flight, from cera_pace_turn() */
	u64 usual_bytes; /* what it sends in a longer time, of struct cera_pace */
	u64 rate; /* its share of C by weight, in bytes per second */
	u32 fresh; /* it has been silent until now, so n_k does not say what it needs */
	u32 window; /* w_k, in segments; of a silent one: what it would have if it woke up
		     */
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

/* One that makes a pause goes on soon, and has its part in flight. */
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
 * proportions, which the next epoch multiplies by mu_k again: with unequal
 * weights the lightest VM ends at nothing, and with equal ones whatever shares
 * there were stay. Here n_k only says what a VM needs: twice what it sends, as a
 * flow in slow start would ask for, and no more than its weight's. VMs that send
 * at least half of that divide the rest by weight alone. One that has just woken
 * up counts as one that needs all of its share, and so does one with pauses, which
 * M epochs may be shorter than.
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
 * By how much the sum of all windows may grow in an RTT: so that the flows of no
 * busy VM are given more than one segment each, which is what their own windows
 * grow by. Given more, they would grow alike, whatever their VMs' weights.
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

/* A part, by what the VM sends in a longer time than its pauses. */
static inline u64 cera_claim(const struct cera_vm *vm, u64 usual, u64 weights)
{
	u64 needs = 2ull * cera_portion(vm->usual_bytes, usual) * weights >> 4;
	u64 full = (u64)cera_weight(vm) << 16;

	if (!vm->usual_bytes)
		return 0;
	return needs < full ? needs : full;
}

/* What each VM may send by its weight, beside others that need what they do. */
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
 * CERA eq. 2 drops what is no whole segment, which also takes most from the lightest VM;
 * here the next VM has it, and the first of them another time.
 *
 * Silent VMs take nothing from the others. Should one wake up before the next
 * epoch, its flows must not go on with windows of better times.
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
	}
	c->per_rtt = cera_growth(vms, count, parts);
	cera_rates(vms, count, bytes_per_s);
	return active;
}

/* ---- Each flow's share: CERA eq. 3 and 4 --------------------------------- */

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
 * A segment more than the flow's share. The share itself is in the flow's ACKs, where the
 * host writes it for every VM: a client's rounds of the remainder are not the host's, and
 * whole segments that it takes and gives by itself would be missed by small windows.
 */
static inline u32 cera_client_window(u32 window, u32 flows, u32 position, u32 next)
{
	return cera_flow_window(window, flows, position, next) + CERA_CLIENT_SLACK;
}

/**
 * cera_client_sets() - whether a client sets a flow's window
 * @cwnd: what it is
 * @window: cera_client_window()'s
 * @unscathed: the threshold is what a client has set it to, so nothing was lost since
 * @limited: the flow uses all of its window
 *
 * A window below its share is lowered by the flow's own algorithm, for a bottleneck that
 * CERA does not see: it stays. But what a client has lowered grows with the share.
 * Algorithms are slower than that: CUBIC's small windows grow by half a segment in an
 * RTT, so the flows of heavy VMs, whose shares grow by more, would fall behind.
 */
static inline u32 cera_client_sets(u32 cwnd, u32 window, u32 unscathed, u32 limited)
{
	return cwnd > window || (cwnd < window && unscathed && limited);
}

/* ---- What is measured ---------------------------------------------------- */

/*
 * What a VM sends: bytes by epoch, flows by slots of some epochs. A flow counts as
 * active for two RTTs at least. Were it forgotten between two of its windows, the
 * others would be given its part, the queue and with it the RTT would grow, and
 * more flows would be forgotten.
 */
struct cera_meter {
	u64 bytes[CERA_MAX_EPOCHS];
	u32 flows[CERA_MAX_EPOCHS]; /* whose last data was in this slot */
	u32 epoch;
	u32 slot;
	u32 in_slot; /* epochs that this slot has had */
	u32 age; /* epochs since the VM was silent for so many as are counted */
};

/* What the last epochs had. */
struct cera_traffic {
	u64 bytes;
	u64 newest_bytes; /* of the epoch that ended */
	u32 flows; /* active ones */
	u32 fresh; /* the VM woke up a short while ago: twice as many epochs at most */
};

/* A flow has ended: others have its part at once. */
static inline void cera_ended(struct cera_meter *m, u32 *stamp)
{
	/* Stamps are one ahead, so that 0 is none. */
	u32 old = (*stamp - 1) % CERA_MAX_EPOCHS;

	if (*stamp && m->slot + 1 - *stamp < CERA_MAX_EPOCHS && m->flows[old])
		m->flows[old]--;
	*stamp = 0;
}

/**
 * cera_count() - a packet leaves
 * @stamp: the flow's; the slot of its last data, 0 at first. NULL: no data
 */
static inline void cera_count(struct cera_meter *m, u32 *stamp, u32 bytes)
{
	m->bytes[m->epoch % CERA_MAX_EPOCHS] += bytes;
	if (!stamp || *stamp == m->slot + 1)
		return;
	cera_ended(m, stamp);
	m->flows[m->slot % CERA_MAX_EPOCHS]++;
	*stamp = m->slot + 1;
}

/* Epochs of a slot, so that all slots but one are two RTTs. */
static inline u32 cera_stride(const struct cera_settings *set, u32 rtt_us)
{
	u64 slots_us = (u64)(CERA_MAX_EPOCHS - 1) * (set->epoch_us ? set->epoch_us : 1);

	return (u32)(1 + 2ull * rtt_us / slots_us);
}

/* The epoch ends. Return: what the last @epochs of them had, this one included. */
static inline struct cera_traffic cera_turn(struct cera_meter *m, u32 epochs, u32 stride)
{
	struct cera_traffic t = { 0, 0, 0, 0 };
	u32 i;

	if (!epochs || epochs > CERA_MAX_EPOCHS)
		epochs = CERA_MAX_EPOCHS;
	for (i = 0; i < CERA_MAX_EPOCHS; i++) {
		t.flows += m->flows[i];
		if (i < epochs)
			t.bytes += m->bytes[(m->epoch - i) % CERA_MAX_EPOCHS];
	}
	t.newest_bytes = m->bytes[m->epoch % CERA_MAX_EPOCHS];
	if (!t.bytes)
		m->age = 0;
	else if (m->age <= 2 * CERA_MAX_EPOCHS)
		m->age++;
	t.fresh = m->age && m->age <= 2 * epochs;
	m->epoch++;
	m->bytes[m->epoch % CERA_MAX_EPOCHS] = 0;
	m->in_slot++;
	if (m->in_slot >= stride) {
		m->in_slot = 0;
		m->slot++;
		m->flows[m->slot % CERA_MAX_EPOCHS] = 0;
	}
	return t;
}

/*
 * d, the least of many samples: a handshake as the VM's port sees it, from its
 * first segment to its third, crosses the network once and the VM once, as the
 * loop of data and ACKs does. Two are kept. The host's is the least of all
 * handshakes. A VM's is the least of its own, without the longest queue of the
 * epochs that it was in: it only says whether the VM's peers are farther away.
 */
struct cera_rtt {
	u64 since_us; /* when the younger of two periods began */
	u32 before_us; /* least of the older one, 0: none */
	u32 least_us; /* least of the younger one, 0: none */
};

static inline void cera_rtt_sample(struct cera_rtt *r, u64 now_us, u32 us)
{
	if (!us)
		us = 1;
	if (now_us - r->since_us >= CERA_RTT_WINDOW_US) {
		r->before_us = r->least_us;
		r->least_us = 0;
		r->since_us = now_us;
	}
	if (!r->least_us || us < r->least_us)
		r->least_us = us;
}

/* A sample for a VM's own. */
static inline u32 cera_rtt_without(u32 us, u32 queue_us)
{
	return us > queue_us ? us - queue_us : 1;
}

/* d_k. */
static inline u32 cera_rtt_of_vm(u32 host_us, u32 own_us)
{
	return own_us > host_us ? own_us : host_us;
}

/* Return: 0 if there was no sample yet. */
static inline u32 cera_rtt_least(const struct cera_rtt *r)
{
	if (!r->before_us || (r->least_us && r->least_us < r->before_us))
		return r->least_us;
	return r->before_us;
}

/* ---- Loops with pauses ---------------------------------------------------- */

/*
 * A VM that waits for its core answers no ACK, and one whose peer waits gets none. The
 * loop is then longer than any handshake says, and the link is idle unless a window is in
 * flight that lasts so long. What shows is that the VM sends nothing though its last data
 * has left its flow no room. Programs time that, and the agent takes the longest of an
 * epoch.
 */
struct cera_pause {
	u64 since_us; /* the last data, if it used up its flow's window; else 0 */
	u64 room_us; /* when an ACK has told the VM of room since, 0: none has */
	u32 longest_us; /* since the agent took it, 0: none */
	u32 longest_vm_us; /* of it what the VM had room in, likewise */
	u32 full; /* a window was used up since the agent took it */
	u32 pad;
};

/*
 * Whether a flow has used up its window. Half of it is enough: ACKs that are on their way
 * through the VM have made room that it does not know of yet.
 * @room_bytes: between the end of the data and the end of the window; negative beyond it
 */
static inline u32 cera_is_full(s32 room_bytes, u32 window_bytes)
{
	return room_bytes <= (s32)(window_bytes / 2);
}

/* Data leaves the VM. @full: and its flow has no room for more */
static inline void cera_pause_data(struct cera_pause *p, u64 now_us, u32 full)
{
	u64 us = now_us - p->since_us;

	if (p->since_us && us <= CERA_LONGEST_PAUSE_US) {
		if (us > p->longest_us)
			p->longest_us = (u32)us;
		us = p->room_us ? now_us - p->room_us : 0;
		if (us > p->longest_vm_us)
			p->longest_vm_us = (u32)us;
	}
	p->since_us = full ? now_us : 0;
	p->room_us = 0;
	if (full)
		p->full = 1;
}

/*
 * Whether an ACK begins the VM's own part of a pause: its flow had no room and has some
 * now. With less than two segments a sender may wait for more.
 */
static inline u32 cera_pause_has_room(const struct cera_pause *p, u32 was_full,
				      s32 room_bytes, u32 mss)
{
	return p->since_us && !p->room_us && was_full && room_bytes >= (s32)(2 * mss);
}

/* A VM's pauses, and what it has sent beside them. */
struct cera_pace {
	u64 seen_us[CERA_PAUSES]; /* when */
	u64 used_us[CERA_PAUSES]; /* what @full_us was then */
	u32 pauses_us[CERA_PAUSES]; /* how long, 0: none */
	u32 next; /* which is overwritten */
	u32 pause_us; /* by how much the loop is longer */
	u32 had_us; /* by how much it was when it was last */
	u32 queue_us; /* when the VM sent last */
	u64 full_us; /* for so long the VM has used up its windows */
	u64 sent_us; /* when it has sent last */
	u64 rate; /* what it may send by its weight, smoothed */
	u64 usual_bytes; /* sent in CERA_PACE_SMOOTH epochs, smoothed */
	s64 credit; /* bytes by which it has sent less than that, or more */
};

/* What an epoch has shown of a VM. */
struct cera_shown {
	u64 now_us;
	u64 sent_bytes; /* in the epoch */
	u64 rate; /* what it may send by its weight, in bytes per second */
	u32 epoch_us; /* how long it was */
	u32 pause_us; /* the longest that ended in it, 0: none */
	u32 vm_pause_us; /* the longest that was the VM's own */
	u32 full; /* windows were used up in it */
	u32 rtt_us; /* d_k */
	u32 cover_us; /* how long the link sends at T_l: such pauses need nothing */
	u32 queue_us; /* at its end */
};

/*
 * The second largest of those that are remembered: one alone is chance, or rest. A VM
 * that uses up its windows and makes no pauses has none any more. One that does not use
 * them says nothing, and pauses are remembered for as long as least RTTs are.
 */
static inline u32 cera_pace_usual(const struct cera_pace *p, u64 now_us)
{
	u32 largest = 0, second = 0;
	u32 i, us;

	for (i = 0; i < CERA_PAUSES; i++) {
		us = p->pauses_us[i];
		if (p->full_us - p->used_us[i] > (u64)us * CERA_PAUSE_MEMORY ||
		    now_us - p->seen_us[i] > CERA_RTT_WINDOW_US)
			continue;
		if (us > largest) {
			second = largest;
			largest = us;
		} else if (us > second) {
			second = us;
		}
	}
	return second;
}

static inline void cera_pace_note(struct cera_pace *p, const struct cera_shown *s)
{
	u32 us = s->vm_pause_us;
	u32 i = p->next % CERA_PAUSES;

	if (us <= s->cover_us) {
		/* The peer's. Between two windows a flow is silent for an RTT. */
		us = s->pause_us > s->rtt_us ? s->pause_us - s->rtt_us : 0;
		if (us <= s->cover_us)
			return;
		/*
		 * Or the queue's, where the VM waits until its data has left. But with
		 * the window that a pause asks for, the queue is as long: what was known
		 * stays.
		 */
		if (us - us / 4 <= (u64)p->queue_us + s->epoch_us) {
			if (!p->pause_us || us < p->pause_us - p->pause_us / 4)
				return;
			if (us > p->pause_us)
				us = p->pause_us;
		}
	}
	if (us > CERA_LONGEST_PAUSE_US)
		us = CERA_LONGEST_PAUSE_US;
	p->seen_us[i] = s->now_us;
	p->used_us[i] = p->full_us;
	p->pauses_us[i] = us;
	p->next++;
}

/*
 * What is in flight for the pauses: what the VM may send in them by its weight. A VM can
 * make pauses at will, so it is less when the VM has sent more than that on the whole,
 * and nothing when it is ahead by CERA_PACE_AHEAD such pauses. In the rhythm of its
 * pauses a VM is behind by one and ahead by one.
 */
static inline u64 cera_pace_reserve(const struct cera_pace *p)
{
	s64 whole = (s64)(p->rate * p->pause_us / 1000000);
	s64 left = CERA_PACE_AHEAD * whole + p->credit;

	if (p->credit >= -whole)
		return (u64)whole;
	return left > 0 ? (u64)(left / (CERA_PACE_AHEAD - 1)) : 0;
}

/**
 * cera_pace_turn() - an epoch has ended
 *
 * Return: for cera_vm's reserve_bytes.
 */
static inline u64 cera_pace_turn(struct cera_pace *p, const struct cera_shown *s)
{
	u64 rate = s->rate < CERA_MAX_RATE ? s->rate : CERA_MAX_RATE;
	u64 sent = s->sent_bytes < CERA_MAX_SENT ? s->sent_bytes : CERA_MAX_SENT;
	u64 epoch_us = s->epoch_us < CERA_MAX_RTT_US ? s->epoch_us : CERA_MAX_RTT_US;
	s64 most, least;

	if (s->full)
		p->full_us += epoch_us;
	cera_pace_note(p, s);
	if (sent) {
		p->queue_us = s->queue_us;
		p->sent_us = s->now_us;
	}
	p->pause_us = cera_pace_usual(p, s->now_us);
	p->usual_bytes += sent - p->usual_bytes / CERA_PACE_SMOOTH;
	p->rate = p->rate ?
			  p->rate - p->rate / CERA_PACE_SMOOTH + rate / CERA_PACE_SMOOTH :
			  rate;
	if (p->pause_us)
		p->had_us = p->pause_us;
	most = (s64)(p->rate * p->pause_us / 1000000);
	/* What a VM is ahead by outlives its pauses: else it would have that again and
	 * again.
	 */
	least = -CERA_PACE_AHEAD * (s64)(p->rate * p->had_us / 1000000);
	rate = p->rate - p->rate / CERA_PACE_LESS;
	p->credit += (s64)(rate * epoch_us / 1000000) - (s64)sent;
	if (p->credit > most)
		p->credit = most;
	if (p->credit < least)
		p->credit = least;
	if (s->now_us - p->sent_us > CERA_LONGEST_PAUSE_US)
		return 0;
	return cera_pace_reserve(p);
}

#endif /* EVENKEEL_ALGO_CERA_CERA_H */
