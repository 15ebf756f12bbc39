/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ECN between hosts for guests that have none, at the VM that receives: marks and echoes
 * are counted, and hidden from it.
 */
#ifndef EVENKEEL_HOST_PROBOSCIS_MARKS_H
#define EVENKEEL_HOST_PROBOSCIS_MARKS_H

#include "../base/known.h"
#include "../base/flow.h"
#include "../base/way.h"

/* A VM that uses no ECN sees none, not even in SYNs and SYN-ACKs. */
static __always_inline void handshake_hide_ecn(struct __sk_buff *skb, struct context *c)
{
	struct packet *p = c->packet;
	struct ek_flow *f;
	bool ours;

	if (!ecn_for_guests(c) || p->ecn == PACKET_NOT_ECT || ecn_bits(c->head, p))
		return;
	if (p->flags & PACKET_ACK) {
		f = bpf_map_lookup_elem(&flows, c->key);
		ours = f && f->iss == p->ack - 1 && ecn_is_ours(c, f);
	} else {
		ours = train_known(c, p->seq);
	}
	if (!ours)
		return;
	if (p->ecn == PACKET_CE)
		count(c->count, EK_COUNT_CE_SEEN, 1);
	if (enforces(c) &&
	    !skb_set_ecn(skb, p, packet_u16(c->head, p->l3), PACKET_NOT_ECT))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
	else if (p->ecn == PACKET_CE)
		count(c->count, EK_COUNT_CE_HIDDEN, 1);
}

static __always_inline void marks_to_vm(struct __sk_buff *skb, struct context *c,
					struct ek_flow *f, bool ours)
{
	struct packet *p = c->packet;

	if (p->ecn != PACKET_CE)
		return;
	count(c->count, EK_COUNT_CE_SEEN, skb_segments(skb));
	if (!ours)
		return;
	if (p->payload_bytes)
		proboscis_marked(&f->echo, p->payload_bytes);
	/* ECT(0), as its neighbours are: GRO joins only segments that are alike. */
	if (enforces(c) && !head_set_ecn(skb, c->head, p, PACKET_ECT_0))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
	else
		count(c->count, EK_COUNT_CE_HIDDEN, skb_segments(skb));
}

/* Counts echoes and marks, hides marks, and offers DCTCP's limit. */
static __always_inline bool proboscis_marks_to_vm(struct __sk_buff *skb, struct way *w)
{
	struct context *c = w->c;
	struct packet *p = c->packet;
	struct ek_flow *f = w->f;
	bool echo = p->flags & PACKET_ECE;
	u32 mss;

	if (!f) {
		handshake_hide_ecn(skb, c);
		return true;
	}
	w->ours = ecn_is_ours(c, f);
	marks_to_vm(skb, c, f, w->ours);
	if (!(p->flags & PACKET_ACK))
		return true;
	c->scratch->limits = (struct window_limits){};
	if (echo)
		count(c->count, EK_COUNT_ECE_SEEN, 1);
	if (!w->ours) {
		proboscis_acked_by_others(&f->sender, p->ack);
		return true;
	}
	mss = flow_segment_bytes(f);
	c->scratch->limits.bytes[WINDOW_BY_PROBOSCIS] =
		proboscis_limit(proboscis_acked(&f->sender, &c->port->proboscis.settings,
						p->ack, echo, mss),
				mss, flow_scale(f, &f->remote));
	if (f->flags & EK_FLOW_ELEPHANT)
		c->scratch->limits.bytes[WINDOW_BY_PROBOSCIS] = 0;
	return true;
}

/* The VM agreed to no ECN: its TCP would take this bit for nothing, or for noise. */
static __always_inline bool proboscis_echoes_to_vm(struct __sk_buff *skb, struct way *w)
{
	struct context *c = w->c;
	struct packet *p = c->packet;

	if (!w->ours || !w->f ||
	    (p->flags & (PACKET_ACK | PACKET_ECE)) != (PACKET_ACK | PACKET_ECE))
		return true;
	count(c->count, EK_COUNT_ECE_HIDDEN, 1);
	if (enforces(c) &&
	    !skb_set_flags(skb, p, packet_u8(c->head, (u32)p->l4 + TCP_OFFSET_FLAGS),
			   p->flags & ~PACKET_ECE))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
	w->is_needless = false;
	return true;
}

#endif /* EVENKEEL_HOST_PROBOSCIS_MARKS_H */
