/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * When vFlood rests: while a VM has its core, its own TCP does as well, and holding its
 * packets only costs.
 *
 * The guest finds out how much of the time its core is missing: it asks to be woken at
 * fixed times, and looks how late it wakes up. Paravirtual hypervisors tell their guests
 * of stolen time, others do not; a late timer tells of it everywhere. The guest tells the
 * host, which decides for all of the VM's connections.
 */
#ifndef EVENKEEL_ALGO_VFLOOD_REST_H
#define EVENKEEL_ALGO_VFLOOD_REST_H

#include "../base/types.h"

#define VFLOOD_OFF_CORE_PERCENT 25 /* it acts from so much of the time on, by default */
/* Between two looks; a prime of milliseconds, out of step with schedulers' periods and
 * quotas. */
#define VFLOOD_LOOK_US 71000
/* A timer that fires later than this waited for a core: schedulers' slices are of
 * milliseconds, and what else delays a timer takes less. */
#define VFLOOD_LATE_US 3000
#define VFLOOD_LOOKS 32 /* that count: as many as the bits that keep them */

/* How long a VM for which vFlood acted must have had its core until it may no longer
 * flood: from then on existing connections flood no more. */
#define VFLOOD_QUIET_US 10000000
/* A handshake that was passed over has ended by then. Its connection is not held, so it
 * must not begin under a new word of the host. */
#define VFLOOD_HANDSHAKE_US 1000000

/* A guest's last looks. */
struct vflood_looks {
	u32 late; /* a bit for each: the core was missing */
	u32 taken; /* of VFLOOD_LOOKS */
};

/**
 * vflood_look() - the guest was to wake up at @due_us, and does at @now_us
 *
 * Looks that the guest slept through are counted then.
 *
 * Return: when it is to wake up next
 */
static inline u64 vflood_look(struct vflood_looks *l, u64 due_us, u64 now_us)
{
	u64 behind_us = now_us > due_us ? now_us - due_us : 0;
	u64 missed = behind_us / VFLOOD_LOOK_US;
	u64 i;

	for (i = 0; i <= missed && i <= VFLOOD_LOOKS; i++) {
		bool is_late = behind_us - i * VFLOOD_LOOK_US > VFLOOD_LATE_US;

		l->late = l->late << 1 | is_late;
		if (l->taken < VFLOOD_LOOKS)
			l->taken++;
	}
	return due_us + (missed + 1) * VFLOOD_LOOK_US;
}

/* Are there enough looks to say something? */
static inline bool vflood_looks_tell(const struct vflood_looks *l)
{
	return l->taken == VFLOOD_LOOKS;
}

/* In how many permille of the last looks the core was missing. */
static inline u32 vflood_off_core(const struct vflood_looks *l)
{
	u32 late = 0;
	u32 i;

	for (i = 0; i < VFLOOD_LOOKS; i++)
		late += l->late >> i & 1;
	return late * 1000 / VFLOOD_LOOKS;
}

/*
 * States of a port:
 *
 *                the VM waits               the VM has its core
 *     UNHEARD ----------------> ACTS <---------------------------> QUIET
 *        |                       ^          the VM waits             |
 *        | the VM has its core   | the VM waits       VFLOOD_QUIET_US|
 *        v                       |                                   |
 *     ENDING --------------------+ <---------------------------------+
 *        |   ^
 *        |   | the VM has its core, VFLOOD_HANDSHAKE_US later (or it waits: ACTS)
 *        |   |
 *        |  WAKING
 *        |   ^
 *        |   | the VM waits, or its agent is gone
 *        v   |
 *     RESTS -+       the guest has said that it is plain: ENDING becomes RESTS
 *
 * The guest must not flood what nobody holds. So the host's word is taken back first, and
 * new connections are passed over once the guest has said that it is plain; and the guest
 * has a word again only when all connections that are about to begin are held.
 */
enum vflood_rest_state {
	VFLOOD_REST_UNHEARD, /* it acts; no guest has said yet how it fares */
	VFLOOD_REST_ACTS,
	VFLOOD_REST_QUIET, /* it acts, though the VM has its core since then */
	VFLOOD_REST_ENDING, /* the guest has no word any more, and has not yet said that
			     * it is plain */
	VFLOOD_REST_RESTS, /* new connections are passed over */
	VFLOOD_REST_WAKING, /* they are held again since then; the guest has no word yet
			     */
};

/* What vFlood does on a port just now. */
struct vflood_rest {
	u64 since_us; /* of QUIET and WAKING */
	u32 state; /* enum vflood_rest_state */
};

/* What a guest's agent says. */
struct vflood_word {
	u32 off_core_permille;
	bool is_there; /* there is an agent */
	bool is_known; /* how long the core was missing */
	bool is_obedient; /* it does what it was told last */
};

static inline void vflood_rest_becomes(struct vflood_rest *r,
				       enum vflood_rest_state state, u64 now_us)
{
	r->state = state;
	r->since_us = now_us;
}

/**
 * vflood_rest_heard() - what the guest says now
 * @acts_permille: share of time without a core from which on vFlood acts; below two
 * thirds of this vFlood may rest; 0: it always acts
 */
static inline void vflood_rest_heard(struct vflood_rest *r, const struct vflood_word *w,
				     u32 acts_permille, u64 now_us)
{
	bool is_known = w->is_there && w->is_known;
	bool has_core = is_known && w->off_core_permille < acts_permille / 3 * 2;
	bool waits = is_known && w->off_core_permille >= acts_permille;

	if (r->state == VFLOOD_REST_RESTS) {
		if (waits || !w->is_there)
			vflood_rest_becomes(r, VFLOOD_REST_WAKING, now_us);
		return;
	}
	if (r->state == VFLOOD_REST_WAKING && now_us - r->since_us < VFLOOD_HANDSHAKE_US)
		return;
	if (!w->is_there) {
		vflood_rest_becomes(r, VFLOOD_REST_UNHEARD, now_us);
		return;
	}
	switch (r->state) {
	case VFLOOD_REST_ACTS:
		if (has_core)
			vflood_rest_becomes(r, VFLOOD_REST_QUIET, now_us);
		return;
	case VFLOOD_REST_QUIET:
		if (waits)
			vflood_rest_becomes(r, VFLOOD_REST_ACTS, now_us);
		else if (now_us - r->since_us >= VFLOOD_QUIET_US)
			vflood_rest_becomes(r, VFLOOD_REST_ENDING, now_us);
		return;
	case VFLOOD_REST_ENDING:
		if (waits)
			vflood_rest_becomes(r, VFLOOD_REST_ACTS, now_us);
		else if (w->is_obedient)
			vflood_rest_becomes(r, VFLOOD_REST_RESTS, now_us);
		return;
	default:
		/* No connection floods yet, so none loses by it. */
		if (has_core)
			vflood_rest_becomes(r, VFLOOD_REST_ENDING, now_us);
		else if (is_known)
			vflood_rest_becomes(r, VFLOOD_REST_ACTS, now_us);
		else
			vflood_rest_becomes(r, VFLOOD_REST_UNHEARD, now_us);
	}
}

/* May the guest flood? */
static inline bool vflood_rest_attests(const struct vflood_rest *r)
{
	return r->state == VFLOOD_REST_UNHEARD || r->state == VFLOOD_REST_ACTS ||
	       r->state == VFLOOD_REST_QUIET;
}

/* Are new connections passed over? */
static inline bool vflood_rest_passes_over(const struct vflood_rest *r)
{
	return r->state == VFLOOD_REST_RESTS;
}

#endif /* EVENKEEL_ALGO_VFLOOD_REST_H */
