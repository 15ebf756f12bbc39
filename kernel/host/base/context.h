/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a program works with: a port's settings, the packet and its flow's key.
 */
#ifndef EVENKEEL_HOST_BASE_CONTEXT_H
#define EVENKEEL_HOST_BASE_CONTEXT_H

#include "maps.h"
#include "read.h"
#include "skb.h"

#define SCRATCH_CHUNK_BYTES 512 /* that bpf_csum_diff() takes at most; a power of two */

/* What is too large for a program's stack. */
struct scratch {
	struct packet_head head;
	struct packet packet;
	struct ek_train_key train;
	struct ek_peer_key peer;
	struct window_limits limits; /* of an ACK to the VM, once MARKS has begun them */
	struct vflood_ack ack; /* to the VM, of a flow that vFlood manages */
	struct exchange_segment segment; /* of a port that a trial times */
	struct ek_exchange exchange; /* one that begins, or is over */
	u32 is_sending; /* the program sends a packet by the port that it is at */
	u32 pad;
	u64 jiffies; /* when @now_ns was read */
	u64 now_ns;
	u8 chunk[SCRATCH_CHUNK_BYTES + 8]; /* of a packet, and room for zeros behind it */
};

/* A program re-enters itself only where it sends: all run with bottom halves off. */
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
	struct ek_flow_key *key; /* part of @train; its port is always known */
	struct ek_train_key *train; /* without its iss, until somebody sets that */
	struct scratch *scratch;
	u64 now_ns;
};

#define MODE_OR(name) port->name.mode |

/* Some mechanism is on, or has something to let out. */
static __always_inline bool port_acts(const struct ek_port *port)
{
	return (EK_MECHANISMS(MODE_OR) port->vflood.hold_ifindex) != EK_MODE_OFF;
}

/* vFlood rests, and nothing else is on: connections that begin concern no mechanism. */
static __always_inline bool port_rests(const struct ek_port *port)
{
	return port->vflood.passes_over && !port->timed_ns &&
	       (EK_OTHERS_THAN_VFLOOD(MODE_OR) 0) == EK_MODE_OFF;
}

#undef MODE_OR

/* No packet concerns a mechanism: the port rests, and no connection from before is left.
 */
static __always_inline bool port_sleeps(const struct ek_port *port)
{
	u32 slot = port->slot;
	u32 *managed;

	if (!port_rests(port))
		return false;
	managed = bpf_map_lookup_elem(&vflood_managed, &slot);
	return managed && !*managed;
}

/* A function of its own: a deep call has no room for what it keeps on the stack. */
static __noinline u32 number_elsewhere(struct __sk_buff *skb, u32 ifindex)
{
	const struct net_device *dev;
	const struct net *net;
	u32 namespace = 0;
	u32 *base;

	dev = READ_POINTER(read_casts(), skb_device(skb), struct net_device);
	if (READ(read_casts(), &net, dev->nd_net.net) ||
	    READ(read_casts(), &namespace, net->ns.inum))
		return 0;
	if (namespace == ek_kernel.namespace)
		return ifindex;
	base = bpf_map_lookup_elem(&namespaces, &namespace);
	return base && !(ifindex >> EK_INDEX_BITS) ? *base | ifindex : 0;
}

/*
 * The number by which maps know a device of the packet's network namespace (intf.h).
 * Return: 0 if no port is there.
 */
static __always_inline u32 port_number(struct __sk_buff *skb, u32 ifindex)
{
	/* Not read where all ports are in one: that takes as long as all else. */
	return ek_kernel.namespace ? number_elsewhere(skb, ifindex) : ifindex;
}

/* Return: false if this port is not to be treated. */
static __always_inline bool context_open(struct context *c, struct __sk_buff *skb,
					 enum scratch_of which)
{
	struct scratch *s = bpf_map_lookup_elem(&scratch, &which);
	u32 number = port_number(skb, skb->ifindex);

	c->port = bpf_map_lookup_elem(&ports, &number);
	if (!c->port || !port_acts(c->port) || !s)
		return false;
	c->count = bpf_map_lookup_elem(&counters, &c->port->slot);
	if (!c->count)
		return false;
	c->scratch = s;
	c->head = &s->head;
	c->packet = &s->packet;
	c->key = &s->train.flow;
	c->key->ifindex = number;
	c->train = &s->train;
	return true;
}

/* A packet that comes by again, because a program has sent it, was counted before. */
static __always_inline void count_again(struct context *c)
{
	count(c->count, EK_COUNT_PACKETS_FROM_VM, (u64)-1);
}

/* ProBoSCIS acts. */
static __always_inline bool enforces(const struct context *c)
{
	return c->port->proboscis.mode == EK_MODE_ENFORCE;
}

/* ProBoSCIS acts or observes. */
static __always_inline bool probes_are_on(const struct context *c)
{
	return c->port->proboscis.mode != EK_MODE_OFF;
}

static __always_inline bool ecn_for_guests(const struct context *c)
{
	return probes_are_on(c) && c->port->proboscis.ecn_for_guests;
}

/*
 * Has IP's header neither options nor extensions? They may name another address of either
 * end, which TCP's checksum covers then (IPv6's routing header and home address, IPv4's
 * source routes).
 */
static __always_inline bool ip_is_plain(const struct packet *p)
{
	return p->l4 - p->l3 == (p->version == 6 ? PACKET_IPV6_BYTES : PACKET_IPV4_BYTES);
}

/* A tag that hardware, or the stack, has taken out of the frame is outside of those in
 * it. */
static __always_inline bool skb_vlan(const struct __sk_buff *skb, struct packet *p)
{
	if (!skb->vlan_present)
		return true;
	return packet_put_vlan(p, packet_vlan(bpf_ntohs((u16)skb->vlan_proto),
					      skb->vlan_tci));
}

/* The key but for its addresses. */
static __always_inline void flow_key_rest(struct context *c, bool from_vm)
{
	const struct packet *p = c->packet;
	struct ek_flow_key *k = c->key;

	k->local_port = from_vm ? p->source_port : p->destination_port;
	k->remote_port = from_vm ? p->destination_port : p->source_port;
	k->vlan[0] = p->vlan[0];
	k->vlan[1] = p->vlan[1];
}

static __always_inline void flow_key(struct context *c, bool from_vm)
{
	const struct packet *p = c->packet;
	struct ek_flow_key *k = c->key;

	/* Not by a pointer to either: the compiler would not know its alignment, and copy
	 * bytes. */
	if (from_vm) {
		__builtin_memcpy(k->local.bytes, p->source, sizeof(p->source));
		__builtin_memcpy(k->remote.bytes, p->destination, sizeof(p->destination));
	} else {
		__builtin_memcpy(k->local.bytes, p->destination, sizeof(p->destination));
		__builtin_memcpy(k->remote.bytes, p->source, sizeof(p->source));
	}
	flow_key_rest(c, from_vm);
}

static __always_inline void flow_key_v4(struct context *c, const struct ends_v4 *ends,
					bool from_vm)
{
	__be32 vm[4] = { 0, 0, bpf_htonl(0xffff),
			 from_vm ? ends->source : ends->destination };
	__be32 remote[4] = { 0, 0, bpf_htonl(0xffff),
			     from_vm ? ends->destination : ends->source };

	__builtin_memcpy(c->key->local.bytes, vm, sizeof(vm));
	__builtin_memcpy(c->key->remote.bytes, remote, sizeof(remote));
	flow_key_rest(c, from_vm);
}

/* The key of the other end's host. */
static __always_inline struct ek_peer_key *peer_key(struct context *c)
{
	struct ek_peer_key *k = &c->scratch->peer;

	k->remote = c->key->remote;
	k->ifindex = c->key->ifindex;
	k->vlan[0] = c->key->vlan[0];
	k->vlan[1] = c->key->vlan[1];
	return k;
}

/* A global function: the verifier looks at those once, not in each of its callers'
 * states. */
__weak __noinline int head_parse(const struct packet_head *h, struct packet *p)
{
	return h && p ? (int)packet_parse_any(h, p) : PACKET_BROKEN;
}

/* Reads any packet. Return: false if it is to pass as it is. */
static __noinline bool context_read_any(struct __sk_buff *skb, struct context *c)
{
	enum packet_kind kind;

	if (!skb_head(skb, c->head, true)) {
		count(c->count, EK_COUNT_UNPARSABLE, 1);
		return false;
	}
	kind = (enum packet_kind)head_parse(c->head, c->packet);
	if (kind != PACKET_TCP && c->head->valid < PACKET_HEAD_BYTES &&
	    c->head->valid < c->head->frame_bytes && skb_head(skb, c->head, false))
		kind = (enum packet_kind)head_parse(c->head, c->packet);
	if (kind != PACKET_TCP) {
		count(c->count,
		      kind == PACKET_BROKEN ? EK_COUNT_UNPARSABLE : EK_COUNT_NOT_TCP, 1);
		return false;
	}
	/* No TCP sends these together. */
	if (c->packet->flags & PACKET_SYN &&
	    c->packet->flags & (PACKET_RST | PACKET_FIN)) {
		count(c->count, EK_COUNT_UNPARSABLE, 1);
		return false;
	}
	return true;
}

/*
 * Most packets need no call: here each costs as much as 30 instructions, and more where
 * CPUs must not guess where a function returns to.
 */
static __always_inline bool context_read_plain(struct __sk_buff *skb, struct context *c,
					       struct ends_v4 *ends)
{
	return skb_head_plain(skb, c->head, ends) &&
	       packet_parse_usual(c->head, c->packet) &&
	       !(c->packet->flags & (PACKET_SYN | PACKET_RST));
}

/* The coarse clock ticks with the jiffies, and takes ten times as long to read. */
static __always_inline u64 context_coarse_ns(struct context *c)
{
	struct scratch *s = c->scratch;
	u64 jiffies = bpf_jiffies64();

	if (s->jiffies != jiffies) {
		s->jiffies = jiffies;
		s->now_ns = bpf_ktime_get_coarse_ns();
	}
	return s->now_ns;
}

/* Reads the packet. Return: false if it is to pass as it is. */
static __always_inline bool context_read(struct __sk_buff *skb, struct context *c,
					 bool from_vm)
{
	struct ends_v4 ends = {}; /* for allow_uninit_stack, see head_options() */
	bool is_plain = context_read_plain(skb, c, &ends);

	if (!is_plain && !context_read_any(skb, c))
		return false;
	/* Connections could not be told apart by three tags. */
	if (!skb_vlan(skb, c->packet)) {
		count(c->count, EK_COUNT_NOT_TCP, 1);
		return false;
	}
	if (is_plain)
		flow_key_v4(c, &ends, from_vm);
	else
		flow_key(c, from_vm);
	/* Only handshakes need an exact time. */
	c->now_ns = c->packet->flags & (PACKET_SYN | PACKET_RST) ? bpf_ktime_get_ns() :
								   context_coarse_ns(c);
	return true;
}

#endif /* EVENKEEL_HOST_BASE_CONTEXT_H */
