/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The window arbiter's steps: the one place that writes windows.
 */
#ifndef EVENKEEL_HOST_BASE_WINDOW_H
#define EVENKEEL_HOST_BASE_WINDOW_H

#include "flow.h"
#include "way.h"

/* Takes back what is only observed. */
static __always_inline void limits_enforced(const struct context *c,
					    struct window_limits *limits)
{
	if (!enforces(c))
		limits->bytes[WINDOW_BY_PROBOSCIS] = 0;
	if (c->port->cera.mode != EK_MODE_ENFORCE)
		limits->bytes[WINDOW_BY_CERA] = 0;
}

/* Writes the window that the VM is told, by the limits that the steps before have
 * offered. */
static __always_inline bool window_to_vm(struct __sk_buff *skb, struct way *w)
{
	struct context *c = w->c;
	struct packet *p = c->packet;
	struct ek_flow *f = w->f;
	u32 mss, limited = WINDOW_BY_RECEIVER;
	u16 field = p->window;
	u8 scale;

	if (!f || !(p->flags & PACKET_ACK))
		return true;
	mss = flow_segment_bytes(f);
	scale = flow_scale(f, &f->remote);
	w->c->scratch->limits.in_flight_bytes = proboscis_in_flight(&f->sender, p->ack);
	if (window_is_limited(&w->c->scratch->limits))
		limited = (u32)window_decide(&w->c->scratch->limits, p->window, scale,
					     mss, &field);
	f->window_by = (u16)limited;
	f->window_offered_bytes = (u32)p->window << scale;
	f->window_set_bytes = (u32)field << scale;
	if (limited == WINDOW_BY_RECEIVER)
		return true;
	if (limited == WINDOW_BY_VFLOOD) {
		count(c->count, EK_COUNT_VFLOOD_GRANTS, 1);
	} else {
		f->windows_limited++;
		count(c->count,
		      limited == WINDOW_BY_CERA ? EK_COUNT_CERA_WINDOWS_LIMITED :
						  EK_COUNT_WINDOWS_LIMITED,
		      1);
	}
	limits_enforced(c, &w->c->scratch->limits);
	window_decide(&w->c->scratch->limits, p->window, scale, mss, &field);
	if (field != p->window && !skb_set_window(skb, p, field))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
	return true;
}

/*
 * An ACK of a VM whose window was lowered while it sent: its number is that of the
 * window's edge, and not of what comes next, so that the other end would take it for an
 * old segment's.
 */
static __noinline void window_catch_up(struct __sk_buff *skb, struct context *c,
				       struct ek_flow *f)
{
	struct packet *p = c->packet;

	if (p->payload_bytes || p->flags & (PACKET_FIN | PACKET_RST) ||
	    (!enforces(c) && c->port->cera.mode != EK_MODE_ENFORCE))
		return;
	/* A keepalive and a window probe have a number below, or just below what comes
	 * next where ACKs come in by another port. */
	if (seq_before(p->seq, f->sender.snd_una) ||
	    !seq_before(p->seq, f->sender.snd_nxt - 1))
		return;
	if (skb_set_bare_seq(skb, c->head, p, f->sender.snd_nxt))
		p->seq = f->sender.snd_nxt;
	else
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
}

static __always_inline bool window_number_from_vm(struct __sk_buff *skb, struct way *w)
{
	if (w->f->windows_limited && !w->is_held)
		window_catch_up(skb, w->c, w->f);
	return true;
}

#endif /* EVENKEEL_HOST_BASE_WINDOW_H */
