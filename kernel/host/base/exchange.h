/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Exchanges of a port's connections (algo/base/exchange.h), while a trial times them:
 * exchanges that are over go into a ring that the agent empties. Without a trial nothing
 * is kept, and no clock is read.
 */
#ifndef EVENKEEL_HOST_BASE_EXCHANGE_H
#define EVENKEEL_HOST_BASE_EXCHANGE_H

#include "way.h"

static __noinline void exchange_tell(const struct context *c, const struct exchange *e)
{
	struct ek_completion *t = bpf_ringbuf_reserve(&completions, sizeof(*t), 0);

	if (!t) {
		count(c->count, EK_COUNT_COMPLETIONS_LOST, 1);
		return;
	}
	t->begin_ns = e->begin_ns;
	t->end_ns = e->end_ns;
	t->bytes_from_vm = e->way[0].bytes;
	t->bytes_to_vm = e->way[1].bytes;
	t->ifindex = c->key->ifindex;
	t->handshake_us = e->handshake_us;
	t->again_from_vm = e->way[0].again;
	t->again_to_vm = e->way[1].again;
	t->timeouts_from_vm = e->way[0].timeouts;
	t->timeouts_to_vm = e->way[1].timeouts;
	bpf_ringbuf_submit(t, BPF_RB_NO_WAKEUP);
}

/* The connection of the packet at hand is over. */
static __noinline void exchange_closes(const struct context *c)
{
	struct ek_exchange *known = bpf_map_lookup_elem(&exchanges, c->key);

	if (!known)
		return;
	if (exchange_is_complete(&known->exchange) || exchange_is_cut(&known->exchange))
		exchange_tell(c, &known->exchange);
	bpf_map_delete_elem(&exchanges, c->key);
}

static __noinline void exchange_begun(const struct context *c, const struct ek_flow *f)
{
	struct ek_exchange *fresh = &c->scratch->exchange;

	fresh->iss = f->iss;
	fresh->pad = 0;
	exchange_open(&fresh->exchange, &c->scratch->segment,
		      f->first_ns >= c->port->timed_ns ? f->first_ns : 0);
	if (bpf_map_update_elem(&exchanges, c->key, fresh, BPF_ANY))
		count(c->count, EK_COUNT_MAP_FULL, 1);
}

static __noinline void exchange_see(const struct context *c, const struct ek_flow *f,
				    bool from_vm)
{
	struct exchange_segment *s = &c->scratch->segment;
	struct exchange *done = &c->scratch->exchange.exchange;
	const struct packet *p = c->packet;
	struct ek_exchange *known = bpf_map_lookup_elem(&exchanges, c->key);

	s->now_ns = bpf_ktime_get_ns();
	s->seq = p->seq;
	s->ack = p->ack;
	s->bytes = p->payload_bytes;
	s->way = !from_vm;
	s->is_opener = from_vm == !!(f->flags & EK_FLOW_VM_OPENED);
	s->has_ack = !!(p->flags & PACKET_ACK);
	if (!known || known->iss != f->iss) {
		if (!s->has_ack)
			return;
		exchange_begun(c, f);
		known = bpf_map_lookup_elem(&exchanges, c->key);
		if (!known)
			return;
	}
	if (exchange_passes(&known->exchange, s, done) && exchange_is_complete(done))
		exchange_tell(c, done);
}

static __always_inline bool exchange_to_vm(struct __sk_buff *skb, struct way *w)
{
	if (w->f && w->c->port->timed_ns)
		exchange_see(w->c, w->f, false);
	return true;
}

static __always_inline bool exchange_from_vm(struct __sk_buff *skb, struct way *w)
{
	if (w->f && w->c->port->timed_ns && !w->is_back)
		exchange_see(w->c, w->f, true);
	return true;
}

#endif /* EVENKEEL_HOST_BASE_EXCHANGE_H */
