/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A packet's way through a port: its steps (algo/base/steps.h), and what one hands on to
 * the next.
 */
#ifndef EVENKEEL_HOST_BASE_WAY_H
#define EVENKEEL_HOST_BASE_WAY_H

#include "algo/base/steps.h"
#include "context.h"

struct way {
	struct context *c;
	struct ek_flow *f; /* from the step FLOW on; NULL: a SYN or SYN-ACK */
	int verdict; /* what the program answers */
	bool ours; /* this host sees to the connection's ECN */
	bool is_needless; /* the VM need not have this ACK */
	bool is_back; /* vFlood held it, and it goes on behind HOLD */
	bool is_held; /* vFlood holds the connection's data, and numbers its packets */
};

/* Return: false, as from a step that ends the packet's way. */
static __always_inline bool way_ends(struct way *w, int verdict)
{
	w->verdict = verdict;
	return false;
}

static __always_inline bool is_handshake(const struct way *w)
{
	return w->c->packet->flags & PACKET_SYN;
}

static __always_inline bool is_synack(const struct way *w)
{
	return (w->c->packet->flags & (PACKET_SYN | PACKET_ACK)) ==
	       (PACKET_SYN | PACKET_ACK);
}

/* Does this host see to ECN, rather than the guests themselves or nobody? */
static __always_inline bool ecn_is_ours(const struct context *c, const struct ek_flow *f)
{
	return ecn_for_guests(c) &&
	       (f->flags & (EK_FLOW_PEER | EK_FLOW_NATIVE_ECN)) == EK_FLOW_PEER;
}

#endif /* EVENKEEL_HOST_BASE_WAY_H */
