/* SPDX-License-Identifier: GPL-2.0 */
/*
 * When a VM's packets may be held, and whose turn it is to work on a flow's state: the qdisc's
 * that holds them, as a rule, or that of the program at the port's ingress, which lets out at
 * once what need not be held.
 */
#ifndef EVENKEEL_HOST_HOLD_TURN_H
#define EVENKEEL_HOST_HOLD_TURN_H

#include "maps.h"

/* Is it wanted, and the agent there? */
static __always_inline bool hold_is_on(const struct ek_host *h, const struct ek_port *port,
				       u64 now_ns)
{
	return port->vflood.mode == EK_MODE_ENFORCE &&
	       h->agent_until_ns + EK_HOLD_PATIENCE_NS > now_ns;
}

/* Return: false if somebody else has it just now. */
static __always_inline bool flow_try(struct ek_vflood_flow *e)
{
	return !__sync_val_compare_and_swap(&e->is_taken, 0, 1);
}

static __always_inline void flow_leave(struct ek_vflood_flow *e)
{
	__sync_lock_test_and_set(&e->is_taken, 0);
}

#endif /* EVENKEEL_HOST_HOLD_TURN_H */
