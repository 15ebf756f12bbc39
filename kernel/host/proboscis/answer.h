/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Answers: a VM's SYN-ACK is sent behind probes, and at the other end the window of the
 * opener's first ACKs follows the probes that came. So the accepting VM's first flight is
 * scaled, as the SYN-ACK's window scales the opener's.
 */
#ifndef EVENKEEL_HOST_PROBOSCIS_ANSWER_H
#define EVENKEEL_HOST_PROBOSCIS_ANSWER_H

#include "../base/flow.h"
#include "../base/way.h"
#include "probe.h"

/* How many probes to send before a SYN-ACK. */
static __always_inline u32 answer_probes_for(struct context *c,
					     const struct proboscis_train *train)
{
	u32 probes = proboscis_answer_probes(train, &c->port->proboscis.settings);

	if (!probes || probes > PROBOSCIS_MAX_PROBES)
		return 0;
	probes = train_length(c, probes);
	if (budget_take(c, probes))
		return probes;
	count(c->count, EK_COUNT_PROBES_REFUSED, 1);
	return 0;
}

/*
 * Sends a SYN-ACK's probes, behind the report, and adds their number to @sent. Return:
 * false if the SYN-ACK could not be restored.
 */
static __always_inline bool answer_probed(struct __sk_buff *skb, struct context *c,
					  struct ek_flow *f,
					  const struct proboscis_train *train, u32 *sent)
{
	u32 probes = answer_probes_for(c, train);
	struct ek_host *host_settings = this_host();
	struct order o = {
		.iss = c->packet->ack - 1,
		.type = PROBOSCIS_ANSWER,
		.train = f->answer_trains,
		.packets = (u8)probes,
		.total = (u8)probes,
		.ecn = PACKET_ECT_0,
	};
	u32 now = 0;

	if (!probes || !host_settings)
		return true;
	if (!enforces(c)) {
		count(c->count, EK_COUNT_ANSWER_PROBES_SENT, probes);
		return true;
	}
	if (probe_send(skb, c, &o, host_settings, &now) == PROBE_SPOILT)
		return false;
	f->answer_trains++;
	f->answer_sent = (u8)now;
	count(c->count, EK_COUNT_ANSWER_PROBES_SENT, now);
	*sent += now;
	return true;
}

/*
 * Limits the window of an ACK from the opener. If that could not be written, or is only
 * observed, the other end has the VM's own offer: then nothing is limited any more.
 */
static __noinline void answer_window(struct __sk_buff *skb, struct context *c,
				     struct ek_flow *f)
{
	struct window_limits limits = {};
	struct packet *p = c->packet;
	u8 scale = flow_scale(f, &f->vm);
	u16 field = 0;

	if (!(p->flags & PACKET_ACK))
		return;
	limits.bytes[WINDOW_BY_PROBOSCIS] =
		proboscis_answer_limit(&f->answer, p->ack, scale);
	if (window_decide(&limits, p->window, scale, flow_segment_bytes(f), &field) ==
	    WINDOW_BY_RECEIVER)
		return;
	if (!f->answer_window_bytes)
		f->answer_window_bytes = (u32)field << scale;
	if (enforces(c) && skb_set_window(skb, p, field)) {
		p->window = field;
		return;
	}
	f->answer.limit_bytes = 0;
	if (enforces(c))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
}

static __always_inline bool proboscis_window_from_vm(struct __sk_buff *skb, struct way *w)
{
	if (w->f->answer.limit_bytes)
		answer_window(skb, w->c, w->f);
	return true;
}

#endif /* EVENKEEL_HOST_PROBOSCIS_ANSWER_H */
