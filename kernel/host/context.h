/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a program works with: a port's settings, the packet and its flow's key.
 */
#ifndef EVENKEEL_HOST_CONTEXT_H
#define EVENKEEL_HOST_CONTEXT_H

#include "maps.h"
#include "skb.h"

/* What is too large for a program's stack. */
struct scratch {
	struct packet_head head;
	struct packet packet;
	struct ek_flow_key key;
};

/* No program is interrupted by itself: all run with bottom halves off. */
enum scratch_of {
	SCRATCH_TO_VM,
	SCRATCH_FROM_VM,
	SCRATCH_INJECT,
	SCRATCH_MAX,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_MAX);
	__type(key, u32);
	__type(value, struct scratch);
} scratch SEC(".maps") __weak;

/* What a program works with. */
struct context {
	struct ek_port *port;
	struct ek_counters *count;
	struct packet_head *head;
	struct packet *packet;
	struct ek_flow_key *key;
	u64 now_ns;
};

/* Return: false if this port is not to be treated. */
static __always_inline bool context_open(struct context *c, u32 ifindex, enum scratch_of which)
{
	struct scratch *s = bpf_map_lookup_elem(&scratch, &which);

	c->port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!c->port || c->port->mode == EK_MODE_OFF || !s)
		return false;
	c->count = bpf_map_lookup_elem(&counters, &ifindex);
	if (!c->count)
		return false;
	c->head = &s->head;
	c->packet = &s->packet;
	c->key = &s->key;
	return true;
}

static __always_inline bool enforces(const struct context *c)
{
	return c->port->mode == EK_MODE_ENFORCE;
}

static __always_inline void flow_key(struct context *c, u32 ifindex, bool from_vm)
{
	const struct packet *p = c->packet;
	struct ek_flow_key *k = c->key;

	__builtin_memcpy(&k->local, from_vm ? p->source : p->destination, sizeof(k->local));
	__builtin_memcpy(&k->remote, from_vm ? p->destination : p->source, sizeof(k->remote));
	k->local_port = from_vm ? p->source_port : p->destination_port;
	k->remote_port = from_vm ? p->destination_port : p->source_port;
	k->ifindex = ifindex;
}

/* A global function: the verifier looks at those once, not in each of its callers' states. */
__weak __noinline int head_parse(const struct packet_head *h, struct packet *p)
{
	return h && p ? (int)packet_parse(h, p) : PACKET_BROKEN;
}

/* Reads the packet. Return: false if it is to pass as it is. */
static __always_inline bool context_read(struct __sk_buff *skb, struct context *c, bool from_vm)
{
	enum packet_kind kind;

	if (!skb_head(skb, c->head)) {
		count(c->count, EK_COUNT_UNPARSABLE, 1);
		return false;
	}
	kind = (enum packet_kind)head_parse(c->head, c->packet);
	if (kind != PACKET_TCP) {
		count(c->count, kind == PACKET_BROKEN ? EK_COUNT_UNPARSABLE : EK_COUNT_NOT_TCP,
		      1);
		return false;
	}
	/* No TCP sends these together. */
	if (c->packet->flags & PACKET_SYN && c->packet->flags & (PACKET_RST | PACKET_FIN)) {
		count(c->count, EK_COUNT_UNPARSABLE, 1);
		return false;
	}
	flow_key(c, skb->ifindex, from_vm);
	c->now_ns = bpf_ktime_get_ns();
	return true;
}

#endif /* EVENKEEL_HOST_CONTEXT_H */
