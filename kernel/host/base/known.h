/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a host has learned of a connection, or of another host, and when that ends.
 *
 * After a time unseen it may be another connection, and a host that saw to ECN may no
 * longer do so. What is uncertain is let go: the worst is a connection without help.
 */
#ifndef EVENKEEL_HOST_BASE_KNOWN_H
#define EVENKEEL_HOST_BASE_KNOWN_H

#include "context.h"
#include "algo/base/time.h"

/* Noted before the port's packets were read: what passed unread may have ended it. */
static __always_inline bool is_from_before(const struct context *c, u64 first_ns)
{
	return first_ns < c->port->since_ns;
}

/* The sender of a SYN that is not answered in this time no longer waits, either. */
static __always_inline bool handshake_is_over(const struct context *c, u64 first_ns)
{
	return is_from_before(c, first_ns) ||
	       time_since(c->now_ns, first_ns) > EK_HANDSHAKE_NS;
}

/* The SYN of this number, or NULL. */
static __always_inline struct ek_handshake *handshake_known(const struct context *c,
							    u32 iss, bool from_vm)
{
	struct ek_handshake *h = bpf_map_lookup_elem(&handshakes, c->key);

	return h && h->iss == iss && h->from_vm == from_vm &&
			       !handshake_is_over(c, h->syn_ns) ?
		       h :
		       NULL;
}

/* What came of the probes of this SYN, or NULL. */
static __always_inline struct ek_train *train_known(struct context *c, u32 iss)
{
	struct ek_train *t;

	c->train->iss = iss;
	t = bpf_map_lookup_elem(&trains, c->train);
	return t && !handshake_is_over(c, t->first_ns) ? t : NULL;
}

/*
 * What the remote host has made of probes, or NULL. After a while the host is probed
 * anew: it may have evenkeel by now, or no longer.
 */
static __always_inline struct ek_peer *peer_known(struct context *c)
{
	struct ek_peer *peer = bpf_map_lookup_elem(&peers, peer_key(c));

	if (!peer || time_since(c->now_ns, peer->heard_ns) <= EK_PEER_NS)
		return peer;
	proboscis_peer_forget(&peer->state);
	peer->report_ns = 0;
	peer->heard_ns = c->now_ns;
	return peer;
}

/*
 * A packet from the remote end passes. Where its host sees to ECN, all its packets are
 * ECN-capable, even pure ACKs; those of a guest without ECN are not by themselves. So the
 * first packet that is not shows that nobody there echoes or hides marks any more, and
 * this host does neither from now on. For a round trip, no ECN is heeded for what is on
 * its way at that moment.
 */
static __always_inline void peer_shows(struct context *c, struct ek_flow *f)
{
	const struct packet *p = c->packet;

	if ((f->flags & (EK_FLOW_PEER | EK_FLOW_NATIVE_ECN)) != EK_FLOW_PEER ||
	    p->ecn & PACKET_ECT_0)
		return;
	/* It may be forged, or a firewall's: the VM takes no ACK that is older than this,
	 * or of what it has not sent (RFC 5961 §5.2). */
	if ((p->flags & (PACKET_ACK | PACKET_RST)) != PACKET_ACK ||
	    f->sender.snd_nxt - p->ack >
		    f->sender.snd_nxt - f->sender.snd_una + f->window_offered_bytes)
		return;
	f->flags = (f->flags & ~(u32)EK_FLOW_PEER) | EK_FLOW_PEER_GONE;
	f->sender.limit_bytes = 0;
	f->echo.owed_bytes = 0;
	count(c->count, EK_COUNT_PEERS_GONE, 1);
}

#endif /* EVENKEEL_HOST_BASE_KNOWN_H */
