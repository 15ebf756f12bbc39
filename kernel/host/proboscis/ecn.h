/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ECN between hosts for guests that have none, at the VM that sends: its packets are made
 * ECN-capable, and its ACKs echo the marks that were hidden from it (marks.h).
 */
#ifndef EVENKEEL_HOST_PROBOSCIS_ECN_H
#define EVENKEEL_HOST_PROBOSCIS_ECN_H

#include "../base/way.h"

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

static __always_inline void ecn_note_data(struct __sk_buff *skb, struct context *c,
					  struct ek_flow *f, bool ours)
{
	struct packet *p = c->packet;
	u64 elephant_bytes = c->port->proboscis.settings.elephant_bytes;
	u32 end = p->seq + p->payload_bytes + !!(p->flags & PACKET_FIN);

	f->bytes_from_vm += proboscis_sent(&f->sender, end);
	if (elephant_bytes && f->bytes_from_vm > elephant_bytes)
		f->flags |= EK_FLOW_ELEPHANT;
	/*
	 * A sender that does not heed marks must not ask for them instead of losses. Pure
	 * ACKs are as ECN-capable as data, as DCTCP's are: among data that heeds marks, a
	 * marking port would drop them in masses.
	 */
	if (!ours || p->ecn != PACKET_NOT_ECT || f->flags & EK_FLOW_ELEPHANT)
		return;
	if (enforces(c) && !head_set_ecn(skb, c->head, p, PACKET_ECT_0))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
	else
		count(c->count, EK_COUNT_ECT_SET, skb_segments(skb));
}

/*
 * A VM that routes forwards what was made ECN-capable at another of its ports. If the
 * guests have no ECN, nobody beyond this port heeds marks.
 */
static __noinline void ecn_forwarded(struct __sk_buff *skb, struct context *c,
				     const struct ek_flow *f)
{
	const struct packet *p = c->packet;

	if (p->ecn != PACKET_ECT_0 || f->flags & EK_FLOW_NATIVE_ECN || !enforces(c) ||
	    !ecn_for_guests(c) || packet_is_first_hop(packet_ttl(c->head, p)))
		return;
	if (!head_set_ecn(skb, c->head, p, PACKET_NOT_ECT))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
}

static __always_inline bool proboscis_ecn_from_vm(struct __sk_buff *skb, struct way *w)
{
	w->ours = ecn_is_ours(w->c, w->f);
	if (!w->ours && w->c->packet->ecn)
		ecn_forwarded(skb, w->c, w->f);
	ecn_note_data(skb, w->c, w->f, w->ours);
	return true;
}

static __always_inline void ecn_echo(struct __sk_buff *skb, struct context *c,
				     struct ek_flow *f, bool ours)
{
	struct packet *p = c->packet;

	if (!proboscis_echo(&f->echo, p->ack) || !ours || p->flags & PACKET_ECE)
		return;
	if (enforces(c)) {
		if (!skb_set_flags(skb, p,
				   packet_u8(c->head, (u32)p->l4 + TCP_OFFSET_FLAGS),
				   p->flags | PACKET_ECE)) {
			count(c->count, EK_COUNT_WRITE_FAILED, 1);
			return;
		}
		p->flags |= PACKET_ECE;
	}
	count(c->count, EK_COUNT_ECE_SET, 1);
}

static __always_inline bool proboscis_echo_from_vm(struct __sk_buff *skb, struct way *w)
{
	if (w->c->packet->flags & PACKET_ACK)
		ecn_echo(skb, w->c, w->f, w->ours);
	return true;
}

#endif /* EVENKEEL_HOST_PROBOSCIS_ECN_H */
