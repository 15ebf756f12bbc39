/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* CERA: what is measured: traffic by epochs, the least RTT. */
#ifndef EVENKEEL_ALGO_CERA_METER_H
#define EVENKEEL_ALGO_CERA_METER_H

#include "../base/time.h"
#include "settings.h"

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

/* How many epochs a slot has, so that all slots but one together last two RTTs. */
static inline u32 cera_stride(const struct cera_settings *set, u32 rtt_us)
{
	u64 slots_us = (u64)(CERA_MAX_EPOCHS - 1) * (set->epoch_us ? set->epoch_us : 1);

	return (u32)(1 + 2ull * rtt_us / slots_us);
}

/* The epoch ends. Return: what the last @epochs of them had, this one included. */
static inline struct cera_traffic cera_meter_epoch(struct cera_meter *m, u32 epochs,
						   u32 stride)
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
	if (time_since(now_us, r->since_us) >= CERA_RTT_WINDOW_US) {
		r->before_us = r->least_us;
		r->least_us = 0;
		r->since_us = now_us;
	}
	if (!r->least_us || us < r->least_us)
		r->least_us = us;
}

/* A sample for a VM's own RTT: a handshake's time without the queue's. */
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

#endif /* EVENKEEL_ALGO_CERA_METER_H */
