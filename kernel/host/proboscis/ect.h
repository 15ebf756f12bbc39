/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes SYNs and SYN-ACKs of guests without ECN capable of it between hosts.
 */
#ifndef EVENKEEL_HOST_PROBOSCIS_ECT_H
#define EVENKEEL_HOST_PROBOSCIS_ECT_H

#include "../base/context.h"

/*
 * A port that marks drops what is not ECN-capable at the same length of its
 * queue: a SYN would be lost just where data gets through.
 */
static __noinline void handshake_set_ect(struct __sk_buff *skb, struct context *c)
{
	struct packet *p = c->packet;

	if (!ecn_for_guests(c) || p->ecn != PACKET_NOT_ECT)
		return;
	if (enforces(c) && !skb_set_ecn(skb, p, packet_u16(c->head, p->l3), PACKET_ECT_0))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
	else
		count(c->count, EK_COUNT_ECT_SET, 1);
}

#endif /* EVENKEEL_HOST_PROBOSCIS_ECT_H */
