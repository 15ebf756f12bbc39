/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vSnoop: which data for the VM is acknowledged at once, and which of the VM's
 * ACKs say nothing new after that. algo/vsnoop/vsnoop.h decides.
 *
 * Packets of a flow come by on any CPU, and its flows share their port's queue:
 * the port has one lock, which guards its total and its flows' entries.
 *
 * An early ACK begins as a copy of the data packet that goes into the port's ingress
 * (data.h); from_vm makes the ACK out of it (ack.h), because no packet of the VM's has
 * such addresses.
 */
#ifndef EVENKEEL_HOST_VSNOOP_FLOW_H
#define EVENKEEL_HOST_VSNOOP_FLOW_H

#include "../base/flow.h"

/* NOP, NOP and a timestamp option's first two bytes: what stacks put first. */
#define VSNOOP_TIMESTAMP_WORD 0x0101080au
#define VSNOOP_TIMESTAMP_BYTES 12

static __always_inline bool vsnoop_is_on(const struct context *c)
{
	return c->port->vsnoop.mode != EK_MODE_OFF;
}

static __always_inline bool vsnoop_enforces(const struct context *c)
{
	return c->port->vsnoop.mode == EK_MODE_ENFORCE;
}

static __always_inline struct ek_vsnoop_port *vsnoop_port_of(const struct context *c)
{
	u32 slot = c->port->slot;

	return bpf_map_lookup_elem(&vsnoop_ports, &slot);
}

static __always_inline bool has_timestamps(const struct ek_flow *f)
{
	return f->vm.has_timestamps && f->remote.has_timestamps;
}

/* A timestamp option that stands where all known stacks put it, or 0. */
static __always_inline u32 vsnoop_timestamp(const struct context *c)
{
	u32 at = (u32)c->packet->l4 + PACKET_TCP_BYTES;

	if (c->packet->tcp_bytes < PACKET_TCP_BYTES + VSNOOP_TIMESTAMP_BYTES ||
	    packet_u32(c->head, at) != VSNOOP_TIMESTAMP_WORD)
		return 0;
	return packet_u32(c->head, at + 4);
}

/* Neither other options nor SACK blocks, which go with the number that they were made
 * for. */
static __always_inline bool vsnoop_is_plain(const struct context *c)
{
	return c->packet->tcp_bytes ==
	       PACKET_TCP_BYTES + (vsnoop_timestamp(c) ? VSNOOP_TIMESTAMP_BYTES : 0);
}

/* Can an ACK be made out of this packet by ack.h? */
static __always_inline bool vsnoop_is_usual(const struct context *c,
					    const struct ek_flow *f)
{
	const struct packet *p = c->packet;

	if (!ip_is_plain(p) || p->flags & PACKET_URG)
		return false;
	return !has_timestamps(f) || vsnoop_timestamp(c);
}

/* Length of the last segment that a packet with data is, or will be cut into. */
static __always_inline u32 vsnoop_last_bytes(const struct __sk_buff *skb,
					     u32 payload_bytes)
{
	u32 size = skb->gso_size;

	return size && payload_bytes ? (payload_bytes - 1) % size + 1 : payload_bytes;
}

/*
 * A SYN-ACK passes, in either direction. @peer_seq: the number of the other end's SYN or
 * SYN-ACK. @ttl: that of its SYN-ACK, 0: the VM accepts the connection.
 */
static __noinline void vsnoop_flow_open(struct context *c, const struct ek_flow *f,
					u32 peer_seq, u8 ttl)
{
	struct ek_vsnoop_flow *known = bpf_map_lookup_elem(&vsnoop_flows, c->key);
	struct ek_vsnoop_port *port = vsnoop_port_of(c);
	struct ek_vsnoop_flow fresh = {};

	if (!port || (known && known->iss == f->iss))
		return;
	if (known) {
		bpf_spin_lock(&port->lock);
		vsnoop_close(&known->flow, &port->vm);
		bpf_spin_unlock(&port->lock);
	}
	fresh.iss = f->iss;
	fresh.last_ns = c->now_ns;
	fresh.ttl = ttl;
	fresh.peer_ack = ttl ? c->packet->ack : c->packet->seq + 1;
	vsnoop_peer_syn(&fresh.flow, peer_seq, f->vm.mss);
	vsnoop_vm_syn(&fresh.flow, flow_scale(f, &f->vm));
	if (bpf_map_update_elem(&vsnoop_flows, c->key, &fresh, BPF_ANY))
		count(c->count, EK_COUNT_MAP_FULL, 1);
}

/* The flow has left the table. */
static __noinline void vsnoop_flow_close(struct context *c)
{
	struct ek_vsnoop_flow *s = bpf_map_lookup_elem(&vsnoop_flows, c->key);
	struct ek_vsnoop_port *port = vsnoop_port_of(c);

	if (!s || !port)
		return;
	bpf_spin_lock(&port->lock);
	vsnoop_close(&s->flow, &port->vm);
	bpf_spin_unlock(&port->lock);
	bpf_map_delete_elem(&vsnoop_flows, c->key);
}

#endif /* EVENKEEL_HOST_VSNOOP_FLOW_H */
