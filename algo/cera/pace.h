/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* CERA: loops with pauses, of VMs that wait for their cores. */
#ifndef EVENKEEL_ALGO_CERA_PACE_H
#define EVENKEEL_ALGO_CERA_PACE_H

#include "../base/time.h"
#include "settings.h"

/*
 * A VM that waits for its core answers no ACK, and one whose peer waits gets none. The
 * loop is then longer than any handshake says, and the link idles unless the window in
 * flight lasts as long. A pause shows as silence after data that used up its flow's
 * window. Programs time that silence, and the agent takes the longest of an epoch.
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
	u64 us = time_since(now_us, p->since_us);

	if (p->since_us && us <= CERA_LONGEST_PAUSE_US) {
		if (us > p->longest_us)
			p->longest_us = (u32)us;
		us = p->room_us ? time_since(now_us, p->room_us) : 0;
		if (us > p->longest_vm_us)
			p->longest_vm_us = (u32)us;
	}
	p->since_us = full ? now_us : 0;
	p->room_us = 0;
	if (full)
		p->full = 1;
}

/**
 * cera_enough_room() - the room with which a sender that has data goes on
 * @window_bytes: the flow's latest limit
 * @mss: payload of a full segment
 * @large: the VM leaves packets of several segments to others to cut (TSO)
 *
 * With less than two segments a sender may wait for more. One that has larger packets
 * waits until a third of its window is free, or room for the largest packet: Linux's
 * tcp_tso_should_defer(). That is no pause of the VM's.
 */
static inline u32 cera_enough_room(u32 window_bytes, u32 mss, u32 large)
{
	u32 third = window_bytes / CERA_DEFER_PART;
	u32 enough = 2 * mss;

	if (third > CERA_LARGEST_PACKET)
		third = CERA_LARGEST_PACKET;
	return large && third > enough ? third : enough;
}

/*
 * Whether an ACK begins the VM's own part of a pause: its flow had no room and has
 * cera_enough_room() now.
 */
static inline u32 cera_pause_has_room(const struct cera_pause *p, u32 was_full,
				      s32 room_bytes, u32 enough_bytes)
{
	return p->since_us && !p->room_us && was_full && room_bytes >= (s32)enough_bytes;
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
 * The second largest of the remembered pauses: a single one may be chance, or the VM at
 * rest. A VM that uses up its windows without pausing loses its pauses. One that does not
 * use them up shows nothing: its pauses are remembered as long as least RTTs are.
 */
static inline u32 cera_pace_usual(const struct cera_pace *p, u64 now_us)
{
	u32 largest = 0, second = 0;
	u32 i, us;

	for (i = 0; i < CERA_PAUSES; i++) {
		us = p->pauses_us[i];
		if (p->full_us - p->used_us[i] > (u64)us * CERA_PAUSE_MEMORY ||
		    time_since(now_us, p->seen_us[i]) > CERA_RTT_WINDOW_US)
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
		/* It is the peer's. Between two windows a flow is silent for an RTT. */
		us = s->pause_us > s->rtt_us ? s->pause_us - s->rtt_us : 0;
		if (us <= s->cover_us)
			return;
		/*
		 * Or it is the queue's: the VM waits until its data has left. But the
		 * window that a pause asks for makes the queue as long, so what was known
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
 * The bytes in flight for a VM's pauses: what it may send in them by its weight. A VM can
 * pause at will, so it gets less once it has sent more than its share on the whole, and
 * nothing when it is ahead by CERA_PACE_AHEAD pauses. Pausing regularly, a VM is behind
 * by one pause and ahead by one in turn.
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
 * cera_pace_epoch() - an epoch has ended
 *
 * Return: for cera_vm's reserve_bytes.
 */
static inline u64 cera_pace_epoch(struct cera_pace *p, const struct cera_shown *s)
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
	/* What a VM is ahead by outlives its pauses, or it could have that again and
	 * again.
	 */
	least = -CERA_PACE_AHEAD * (s64)(p->rate * p->had_us / 1000000);
	rate = p->rate - p->rate / CERA_PACE_LESS;
	p->credit += (s64)(rate * epoch_us / 1000000) - (s64)sent;
	if (p->credit > most)
		p->credit = most;
	if (p->credit < least)
		p->credit = least;
	if (time_since(s->now_us, p->sent_us) > CERA_LONGEST_PAUSE_US)
		return 0;
	return cera_pace_reserve(p);
}

#endif /* EVENKEEL_ALGO_CERA_PACE_H */
