/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vSnoop: what is in doubt about a packet with data, and about the VM that it is for.
 * What the VM's kernel can drop on its way to the socket, and can be seen here, is listed
 * in docs/vsnoop-promises.md; anything that is seen is a reason not to acknowledge early.
 */
#ifndef EVENKEEL_HOST_VSNOOP_DOUBT_H
#define EVENKEEL_HOST_VSNOOP_DOUBT_H

#include "../base/checksum.h"
#include "ring.h"
#include "flow.h"

/* Is the VM's own TCP known to be the end of the connection? */
static __always_inline u32 vsnoop_endpoint(const struct context *c,
					   const struct ek_vsnoop_flow *s)
{
	u32 zero = 0;
	struct ek_host *h;

	if (s->is_forwarded)
		return VSNOOP_DOUBT_FORWARDED;
	switch (c->port->vsnoop.endpoint) {
	case EK_VSNOOP_ENDPOINT_OBSERVED:
		return VSNOOP_CERTAIN;
	case EK_VSNOOP_ENDPOINT_ATTESTED:
		h = bpf_map_lookup_elem(&host, &zero);
		return h && h->agent_until_ns > c->now_ns ? VSNOOP_CERTAIN :
							    VSNOOP_DOUBT_UNKNOWN;
	case EK_VSNOOP_ENDPOINT_UNFIT:
		return VSNOOP_DOUBT_UNFIT;
	default:
		return VSNOOP_DOUBT_UNKNOWN;
	}
}

/* Is it for the MAC that the VM has on this connection? */
static __always_inline bool vsnoop_is_for_vm(const struct context *c,
					     const struct ek_vsnoop_flow *s)
{
	u32 i;

	for (i = 0; i < sizeof(s->mac); i++) {
		if (packet_u8(c->head, i) != s->mac[i])
			return false;
	}
	return true;
}

/* Would the VM's TCP read the header, and go on to the data? */
static __always_inline bool vsnoop_is_acceptable(const struct context *c,
						 const struct ek_flow *f,
						 const struct ek_vsnoop_flow *s)
{
	const struct packet *p = c->packet;

	/* Options may sign the packet, or belong to more than one connection. */
	if (!vsnoop_is_usual(c, f) || !vsnoop_is_plain(c))
		return false;
	if (has_timestamps(f) && !s->flow.ts_val)
		return false;
	/* What a reset carries is not read. */
	return (p->flags & (PACKET_ACK | PACKET_RST)) == PACKET_ACK &&
	       !seq_after(p->ack, s->flow.vm_seq) && !seq_before(p->ack, s->peer_ack);
}

/**
 * vsnoop_flow_doubt() - the doubt about data that finds its place in the port's queue
 *
 * Before the VM has said anything, nothing is acknowledged for it in any case.
 *
 * Return: enum vsnoop_doubt
 */
static __noinline u32 vsnoop_flow_doubt(struct __sk_buff *skb, struct context *c,
					const struct ek_flow *f,
					const struct ek_vsnoop_flow *s,
					const struct ek_vsnoop_port *port)
{
	u32 doubt;

	if (!(s->flow.flags & VSNOOP_SEEN_VM) || port->vm.doubt)
		return port->vm.doubt;
	doubt = vsnoop_endpoint(c, s);
	if (doubt)
		return doubt;
	if (!vsnoop_is_acceptable(c, f, s))
		return VSNOOP_DOUBT_HEADERS;
	if (!vsnoop_is_for_vm(c, s))
		return VSNOOP_DOUBT_ADDRESS;
	if (packet_ttl(c->head, c->packet) < s->ttl || !s->ttl)
		return VSNOOP_DOUBT_TTL;
	if (s->peer_ts && seq_before(vsnoop_timestamp(c), s->peer_ts))
		return VSNOOP_DOUBT_CLOCK;
	return skb_checksums_hold(skb, c) ? VSNOOP_CERTAIN : VSNOOP_DOUBT_CHECKSUM;
}

/* The same about a packet without data, as far as vsnoop_note_peer() asks. */
static __always_inline u32 vsnoop_ack_doubt(struct __sk_buff *skb, struct context *c,
					    const struct ek_flow *f)
{
	if (!vsnoop_is_usual(c, f))
		return VSNOOP_DOUBT_HEADERS;
	return skb_checksums_hold(skb, c) ? VSNOOP_CERTAIN : VSNOOP_DOUBT_CHECKSUM;
}

/* A timestamp wherever it stands: the VM's TCP finds it. */
static __noinline u32 vsnoop_timestamp_anywhere(const struct context *c)
{
	struct packet_options o;

	return head_options(c->head, c->packet, &o) && o.timestamps ?
		       packet_u32(c->head, (u32)o.timestamps + 2) :
		       0;
}

/*
 * Notes what the other end has said with a segment that is not off the VM's window. In
 * doubt, too: what the VM may have taken makes what is older doubtful, and nothing
 * certain.
 */
static __always_inline void vsnoop_note_peer(struct context *c, struct ek_vsnoop_flow *s,
					     u32 doubt)
{
	const struct packet *p = c->packet;
	u32 end = p->seq + p->payload_bytes;
	u8 ttl = packet_ttl(c->head, p);
	u32 ts_val;

	/* The VM's ACK of it is to tell that it has taken it: it has one for a
	 * keepalive's octet, and for data that it had before, whatever it does with them.
	 */
	if (p->payload_bytes && seq_after(end, s->flow.next) && !s->next_ttl &&
	    (!s->ttl || ttl < s->ttl)) {
		s->next_ttl = ttl;
		s->next_end = end;
	}
	if (doubt == VSNOOP_DOUBT_CHECKSUM ||
	    (p->flags & (PACKET_ACK | PACKET_RST)) != PACKET_ACK)
		return;
	if (!seq_after(p->ack, s->flow.vm_seq) && seq_after(p->ack, s->peer_ack))
		s->peer_ack = p->ack;
	/* TS.Recent of the VM's TCP follows segments, with data or not, that its last ACK
	 * lies in (RFC 7323 §4.3): in none behind data that is missing. */
	if (seq_after(p->seq, s->flow.high))
		return;
	ts_val = vsnoop_timestamp(c);
	if (!ts_val && p->tcp_bytes > PACKET_TCP_BYTES)
		ts_val = vsnoop_timestamp_anywhere(c);
	if (ts_val && (!s->peer_ts || seq_after(ts_val, s->peer_ts)))
		s->peer_ts = ts_val;
}

#endif /* EVENKEEL_HOST_VSNOOP_DOUBT_H */
