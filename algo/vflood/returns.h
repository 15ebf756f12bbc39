/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * vFlood: data that has left the queue, and will pass the VM's port once more.
 *
 * The VM's new packets pass there, too. Returning data that is taken for a new packet
 * would be held again, or dropped as sent again. A new packet that is taken for returning
 * data overtakes it, so that the latter is too old for the other end when it comes (PAWS,
 * RFC 7323 §5). Neither a number of bytes nor sequence numbers tell them apart: a VM
 * whose data has waited for long sends it again just when it is let out. The copy then
 * has a newer timestamp.
 *
 * One CPU notes ranges, and any CPU takes them at the same time.
 */
#ifndef EVENKEEL_ALGO_VFLOOD_RETURNS_H
#define EVENKEEL_ALGO_VFLOOD_RETURNS_H

#include "flow.h"

/* Data that follows on a range with the same timestamp joins it: this many bursts have
 * room, each let out by another ACK. With none left, it joins one with an older
 * timestamp.
 */
#define VFLOOD_RETURN_RANGES 16
/* How often all ranges are looked at where another CPU changes one meanwhile. */
#define VFLOOD_RETURN_TRIES 4
/* Data that has not come by for this long was lost: softirqs of a busy host take
 * milliseconds.
 */
#define VFLOOD_RETURN_MS 1000

struct vflood_returns {
	u64 ranges[VFLOOD_RETURN_RANGES]; /* vflood_returns_range(), empty: free */
	u32 ts_val[VFLOOD_RETURN_RANGES]; /* its newest timestamp, 0: it has none */
	u32 ts_first[VFLOOD_RETURN_RANGES]; /* its oldest */
	u32 noted_ms[VFLOOD_RETURN_RANGES]; /* when the last of it left */
	u32 used; /* ranges that were ever noted, the first ones: no other is looked at */
};

/* Both sequence numbers in one word, which changes at once. */
static inline u64 vflood_returns_range(u32 seq, u32 end)
{
	return (u64)end << 32 | seq;
}

static inline bool vflood_returns_is_free(const struct vflood_returns *r, u32 i,
					  u32 now_ms)
{
	u64 known = r->ranges[i];

	return (u32)known == (u32)(known >> 32) ||
	       (s32)(now_ms - r->noted_ms[i]) > VFLOOD_RETURN_MS;
}

/* vflood_returns_none() - is nothing on its way? */
static inline bool vflood_returns_none(const struct vflood_returns *r, u32 now_ms)
{
	u32 i;

	for (i = 0; i < VFLOOD_RETURN_RANGES; i++)
		if (!vflood_returns_is_free(r, i, now_ms))
			return false;
	return true;
}

static inline bool vflood_returns_change(struct vflood_returns *r, u32 i, u64 from,
					 u64 to)
{
	return __sync_val_compare_and_swap(&r->ranges[i], from, to) == from;
}

/*
 * Joins data to the range that it follows on, which has an older timestamp. A VM's
 * timestamp is another one every millisecond, and a busy host lets out more bursts than
 * there is room for before the first comes by. What the VM then sends again of such a
 * range, with a timestamp between its oldest and newest, is taken for returning data.
 */
static inline void vflood_returns_join(struct vflood_returns *r, struct vflood_range data,
				       u32 ts_val, u32 now_ms)
{
	u32 try, i;
	u64 known;

	for (try = 0; try < VFLOOD_RETURN_TRIES; try++) {
		for (i = 0; i < VFLOOD_RETURN_RANGES; i++) {
			known = r->ranges[i];
			if ((u32)(known >> 32) != data.seq ||
			    seq_before(ts_val, r->ts_val[i]))
				continue;
			r->noted_ms[i] = now_ms;
			r->ts_val[i] = ts_val;
			if (vflood_returns_change(r, i, known,
						  vflood_returns_range((u32)known,
								       data.end)))
				return;
		}
	}
}

/*
 * vflood_returns_note() - data has left the queue
 *
 * Where no range is free, and it follows on none, the data is taken for the VM's own when
 * it comes.
 */
static inline void vflood_returns_note(struct vflood_returns *r, struct vflood_range data,
				       u32 ts_val, u32 now_ms)
{
	u64 known;
	u32 i;

	for (i = 0; i < VFLOOD_RETURN_RANGES; i++) {
		known = r->ranges[i];
		if ((u32)(known >> 32) != data.seq || r->ts_val[i] != ts_val ||
		    vflood_returns_is_free(r, i, now_ms))
			continue;
		r->noted_ms[i] = now_ms;
		if (vflood_returns_change(r, i, known,
					  vflood_returns_range((u32)known, data.end)))
			return;
	}
	for (i = 0; i < VFLOOD_RETURN_RANGES; i++) {
		known = r->ranges[i];
		if (!vflood_returns_is_free(r, i, now_ms))
			continue;
		r->noted_ms[i] = now_ms;
		r->ts_val[i] = ts_val;
		r->ts_first[i] = ts_val;
		if (r->used <= i)
			r->used = i + 1;
		if (vflood_returns_change(r, i, known,
					  vflood_returns_range(data.seq, data.end)))
			return;
	}
	vflood_returns_join(r, data, ts_val, now_ms);
}

static inline bool vflood_returns_has(const struct vflood_returns *r, u32 i, u64 known,
				      struct vflood_range data, u32 ts_val)
{
	return !seq_before(ts_val, r->ts_first[i]) && !seq_after(ts_val, r->ts_val[i]) &&
	       (u32)known != (u32)(known >> 32) && !seq_before(data.seq, (u32)known) &&
	       !seq_after(data.end, (u32)(known >> 32));
}

/**
 * vflood_returns_take() - is this what has left the queue?
 *
 * Each byte is taken as often as it was noted. What left before it and has not come was
 * lost: nothing overtakes on this way.
 */
static inline bool vflood_returns_take(struct vflood_returns *r, struct vflood_range data,
				       u32 ts_val)
{
	bool has_changed = true;
	u32 try, i;
	u64 known, left;

	for (try = 0; has_changed && try < VFLOOD_RETURN_TRIES; try++) {
		has_changed = false;
		for (i = 0; i < VFLOOD_RETURN_RANGES && i < r->used; i++) {
			known = r->ranges[i];
			if (!vflood_returns_has(r, i, known, data, ts_val))
				continue;
			left = vflood_returns_range(data.end, (u32)(known >> 32));
			if (vflood_returns_change(r, i, known, left))
				return true;
			has_changed = true;
		}
	}
	return false;
}

#endif /* EVENKEEL_ALGO_VFLOOD_RETURNS_H */
