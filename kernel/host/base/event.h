/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Events for user space: what needs a timer.
 */
#ifndef EVENKEEL_HOST_BASE_EVENT_H
#define EVENKEEL_HOST_BASE_EVENT_H

#include "maps.h"
#include "context.h"

static __always_inline bool agent_is_there(const struct ek_host *h, u64 now_ns)
{
	return h->agent_until_ns > now_ns;
}

/*
 * Hands a copy of the packet to user space.
 *
 * Return: false if that is impossible, or user space is not there.
 */
static __noinline bool event_send(struct __sk_buff *skb, struct context *c,
				  enum ek_event_type type)
{
	u32 zero = 0;
	struct ek_host *h = bpf_map_lookup_elem(&host, &zero);
	u32 bytes = c->head->valid;
	struct ek_event *e;

	if (!h || !agent_is_there(h, c->now_ns) || bytes != c->head->frame_bytes ||
	    c->packet->payload_bytes)
		return false;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(c->count, EK_COUNT_EVENTS_LOST, 1);
		return false;
	}
	e->type = type;
	e->frame_bytes = bytes;
	e->now_ns = c->now_ns;
	e->flow = *c->key;
	e->iss = type == EK_EVENT_SYNACK_HELD ? c->packet->ack - 1 : c->packet->seq;
	e->vlan_tci = skb->vlan_present ? (u16)skb->vlan_tci : 0;
	e->vlan_proto = skb->vlan_present ? bpf_ntohs((u16)skb->vlan_proto) : 0;
	__builtin_memcpy(e->frame, c->head->bytes, sizeof(e->frame));
	bpf_ringbuf_submit(e, 0);
	return true;
}

#endif /* EVENKEEL_HOST_BASE_EVENT_H */
