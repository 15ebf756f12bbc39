/* SPDX-License-Identifier: GPL-2.0 */
/*
 * When a VM's packets may be held, and the lock of a flow's state: as a rule the qdisc
 * that holds them has it, else a program at the port: from_vm, which lets out at once
 * what need not be held, or to_vm, for ACKs.
 */
#ifndef EVENKEEL_HOST_VFLOOD_LOCK_H
#define EVENKEEL_HOST_VFLOOD_LOCK_H

#include "../base/maps.h"
#include "algo/base/time.h"

#define VFLOOD_CLAIMED (~0ull) /* who an index belongs to until its flow is there */

/* Is vFlood enforced, and the agent there? */
static __always_inline bool vflood_is_on(const struct ek_host *h,
					 const struct ek_port *port, u64 now_ns)
{
	return port->vflood.mode == EK_MODE_ENFORCE &&
	       h->agent_until_ns + EK_VFLOOD_AGENT_NS > now_ns;
}

/* The clock of vflood_returns_note(). */
static __always_inline u32 vflood_ms(u64 now_ns)
{
	return (u32)(now_ns / 1000000);
}

/* Return: false if another CPU has it just now. */
static __always_inline bool vflood_flow_trylock(struct ek_vflood_flow *e)
{
	return !__sync_val_compare_and_swap(&e->is_taken, 0, 1);
}

/*
 * The time for the CPU that has the lock: its own, or that of another CPU that read its
 * clock later and came first. A flow's time does not go back.
 */
static __always_inline u64 vflood_flow_now(struct ek_vflood_flow *e, u64 now_ns)
{
	if (now_ns > e->clock_ns)
		e->clock_ns = now_ns;
	return e->clock_ns;
}

static __always_inline bool vflood_flow_is_idle(const struct ek_vflood_flow *e,
						u64 now_ns, u64 silence_ns)
{
	return time_since(now_ns, e->seen_ns) > silence_ns;
}

static __always_inline void vflood_flow_unlock(struct ek_vflood_flow *e)
{
	__sync_lock_test_and_set(&e->is_taken, 0);
}

#endif /* EVENKEEL_HOST_VFLOOD_LOCK_H */
