// SPDX-License-Identifier: GPL-2.0
/*
 * Network -> VM: at the egress of a VM's port.
 *
 * Takes probes and reports, notes SYNs and SYN-ACKs, counts and hides
 * congestion marks, and writes the window that the VM is told.
 */
#include "base/flow.h"
#include "vflood/ack.h"
#include "owned.h"
#include "cera/port.h"
#include "vsnoop/data.h"
#include "proboscis/receive.h"

/* Has the packet come from another VM of this host, or from the host itself? */
static __always_inline bool is_local(const struct __sk_buff *skb)
{
	u32 from = skb->ingress_ifindex;

	return !from || bpf_map_lookup_elem(&ports, &from);
}

/* The other end, or this VM's other end, may have moved to another host, or here. */
static __noinline void comes_from_elsewhere(const struct __sk_buff *skb, struct ek_flow *f)
{
	f->came_in = skb->ingress_ifindex;
	if (is_local(skb))
		f->flags |= EK_FLOW_LOCAL;
	else
		f->flags &= ~(u32)EK_FLOW_LOCAL;
}

static __always_inline void syn_to_vm(struct __sk_buff *skb, struct context *c)
{
	struct ek_handshake *known = handshake_known(c, c->packet->seq, false);
	struct packet_options o;
	struct ek_handshake h;

	if (known) {
		known->syns++;
		handshake_again(known, c);
		return;
	}
	if (!head_options(c->head, c->packet, &o)) {
		count(c->count, EK_COUNT_UNPARSABLE, 1);
		return;
	}
	handshake_start(&h, c, &o, false);
	h.is_local = is_local(skb);
	if (bpf_map_update_elem(&handshakes, c->key, &h, BPF_ANY))
		count(c->count, EK_COUNT_MAP_FULL, 1);
}

/* A VM that uses no ECN sees none, in SYNs and SYN-ACKs either. */
static __always_inline void handshake_hide_ecn(struct __sk_buff *skb, struct context *c)
{
	struct packet *p = c->packet;
	struct ek_flow *f;
	bool ours;

	if (!ecn_for_guests(c) || p->ecn == PACKET_NOT_ECT || ecn_bits(c->head, p))
		return;
	if (p->flags & PACKET_ACK) {
		f = bpf_map_lookup_elem(&flows, c->key);
		ours = f && (f->flags & (EK_FLOW_PEER | EK_FLOW_NATIVE_ECN)) == EK_FLOW_PEER;
	} else {
		ours = train_known(c, p->seq);
	}
	if (!ours)
		return;
	if (p->ecn == PACKET_CE)
		count(c->count, EK_COUNT_CE_SEEN, 1);
	if (enforces(c) && !skb_set_ecn(skb, p, packet_u16(c->head, p->l3), PACKET_NOT_ECT))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
	else if (p->ecn == PACKET_CE)
		count(c->count, EK_COUNT_CE_HIDDEN, 1);
}

static __always_inline void synack_to_vm(struct __sk_buff *skb, struct context *c)
{
	struct ek_flow *f = flow_begins(skb, c, false);
	struct ek_peer *peer;

	if (!f) {
		count(c->count, EK_COUNT_UNKNOWN_FLOW, 1);
		return;
	}
	peer_shows(c, f);
	if (is_local(skb))
		f->flags |= EK_FLOW_LOCAL;
	if (!f->probes_sent || f->flags & (EK_FLOW_PEER | EK_FLOW_PEER_GONE))
		return;
	peer = peer_known(c);
	if (peer) {
		proboscis_peer_silent(&peer->state);
		peer->heard_ns = c->now_ns;
	} else {
		struct ek_peer fresh = { .heard_ns = c->now_ns };

		proboscis_peer_silent(&fresh.state);
		if (bpf_map_update_elem(&peers, peer_key(c), &fresh, BPF_ANY))
			count(c->count, EK_COUNT_MAP_FULL, 1);
	}
}

/* Does this host see to ECN, and not the guests themselves or nobody? */
static __always_inline bool ecn_is_ours(const struct context *c, const struct ek_flow *f)
{
	return ecn_for_guests(c) &&
	       (f->flags & (EK_FLOW_PEER | EK_FLOW_NATIVE_ECN)) == EK_FLOW_PEER;
}

static __always_inline void marks_to_vm(struct __sk_buff *skb, struct context *c,
					struct ek_flow *f, bool ours)
{
	struct packet *p = c->packet;

	if (p->ecn != PACKET_CE)
		return;
	count(c->count, EK_COUNT_CE_SEEN, skb_segments(skb));
	if (!ours)
		return;
	if (p->payload_bytes)
		proboscis_marked(&f->echo, p->payload_bytes);
	/* ECT(0), as its neighbours are: GRO joins only segments that are alike. */
	if (enforces(c) && !head_set_ecn(skb, c->head, p, PACKET_ECT_0))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
	else
		count(c->count, EK_COUNT_CE_HIDDEN, skb_segments(skb));
}

/* Takes back what is only observed. */
static __always_inline void limits_enforced(const struct context *c,
					    struct window_limits *limits)
{
	if (!enforces(c))
		limits->bytes[WINDOW_BY_PROBOSCIS] = 0;
	if (c->port->cera.mode != EK_MODE_ENFORCE)
		limits->bytes[WINDOW_BY_CERA] = 0;
}

/* Return: whether the VM need not have it. */
static __always_inline bool ack_to_vm(struct __sk_buff *skb, struct context *c,
				      struct ek_flow *f, bool ours)
{
	struct packet *p = c->packet;
	u32 mss = flow_segment_bytes(f);
	u8 scale = flow_scale(f, &f->remote);
	struct window_limits limits = {};
	bool echo = p->flags & PACKET_ECE;
	bool is_needless = false;
	enum window_by by;
	u16 field;

	if (echo)
		count(c->count, EK_COUNT_ECE_SEEN, 1);
	if (ours)
		limits.bytes[WINDOW_BY_PROBOSCIS] =
			proboscis_limit(proboscis_acked(&f->sender, &c->port->proboscis, p->ack,
							echo, mss),
					mss, scale);
	else
		proboscis_acked_by_others(&f->sender, p->ack);
	if (f->flags & EK_FLOW_ELEPHANT)
		limits.bytes[WINDOW_BY_PROBOSCIS] = 0;
	limits.bytes[WINDOW_BY_CERA] = cera_flow_limit(c, f, scale, mss);
	if (f->vflood_owner)
		limits.bytes[WINDOW_BY_VFLOOD] = vflood_ack_to_vm(skb, c, f, &is_needless);
	limits.in_flight_bytes = proboscis_in_flight(&f->sender, p->ack);
	if (window_is_limited(&limits)) {
		by = (enum window_by)window_decide(&limits, p->window, scale, mss, &field);
	} else {
		by = WINDOW_BY_RECEIVER;
		field = p->window;
	}
	f->window_by = by;
	f->window_offered_bytes = (u32)p->window << scale;
	f->window_set_bytes = (u32)field << scale;
	if (by != WINDOW_BY_RECEIVER) {
		if (by == WINDOW_BY_VFLOOD) {
			count(c->count, EK_COUNT_VFLOOD_GRANTS, 1);
		} else {
			f->windows_limited++;
			count(c->count,
			      by == WINDOW_BY_CERA ? EK_COUNT_CERA_WINDOWS_LIMITED :
						     EK_COUNT_WINDOWS_LIMITED,
			      1);
		}
		limits_enforced(c, &limits);
		window_decide(&limits, p->window, scale, mss, &field);
		if (field != p->window && !skb_set_window(skb, p, field))
			count(c->count, EK_COUNT_WRITE_FAILED, 1);
	}
	if (!echo || !ours)
		return is_needless;
	/* The VM agreed to no ECN, so its TCP would take this bit for nothing, or for noise. */
	count(c->count, EK_COUNT_ECE_HIDDEN, 1);
	if (enforces(c) &&
	    !skb_set_flags(skb, p, packet_u8(c->head, (u32)p->l4 + TCP_OFFSET_FLAGS),
			   p->flags & ~PACKET_ECE))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
	return false;
}

SEC("tcx/egress")
int to_vm(struct __sk_buff *skb)
{
	struct context c;
	bool is_needless = false;
	struct ek_flow *f;
	bool ours;

	if (!context_open(&c, skb->ifindex, SCRATCH_TO_VM))
		return TCX_NEXT;
	/* This program sends it just now, on this CPU. */
	if (c.scratch->is_sending)
		return TCX_NEXT;
	count(c.count, EK_COUNT_PACKETS_TO_VM, 1);
	if (port_sleeps(c.port))
		return TCX_NEXT;
	if (!context_read(skb, &c, false))
		return TCX_NEXT;

	if (looks_like_probe(c.packet) && probes_are_on(&c) && probe_receive(&c))
		return TCX_DROP;
	if (c.packet->flags & PACKET_SYN) {
		if (port_rests(c.port))
			return TCX_NEXT;
		if (syn_is_owned(skb, &c, false)) {
			if (vsnoop_is_on(&c))
				vsnoop_syn_to_vm(&c);
			return TCX_NEXT;
		}
		if (c.packet->flags & PACKET_ACK)
			synack_to_vm(skb, &c);
		else
			syn_to_vm(skb, &c);
		if (vsnoop_is_on(&c))
			vsnoop_syn_to_vm(&c);
		handshake_hide_ecn(skb, &c);
		return c.packet->flags & PACKET_ACK ? vflood_synack_to_vm(skb, &c) : TCX_NEXT;
	}
	f = flow_known(&c);
	if (!f) {
		count(c.count, EK_COUNT_UNKNOWN_FLOW, 1);
		return TCX_NEXT;
	}
	if (has_more_options(&c) && segment_is_owned(skb, &c, f, false))
		return TCX_NEXT;
	f->last_ns = c.now_ns;
	f->bytes_to_vm += c.packet->payload_bytes;
	if (f->came_in != skb->ingress_ifindex)
		comes_from_elsewhere(skb, f);
	peer_shows(&c, f);
	ours = ecn_is_ours(&c, f);
	marks_to_vm(skb, &c, f, ours);
	cera_to_vm(&c, f);
	if (c.packet->flags & PACKET_ACK)
		is_needless = ack_to_vm(skb, &c, f, ours);
	if (vsnoop_is_on(&c) && !vsnoop_to_vm(skb, &c, f))
		return TCX_DROP;
	if (flow_is_over(&c, f, false) && vflood_flow_close(skb, &c, f) && vsnoop_is_on(&c))
		vsnoop_flow_close(&c);
	if (!is_needless)
		return TCX_NEXT;
	count(c.count, EK_COUNT_VFLOOD_FILTERED_ACKS, 1);
	return TCX_DROP;
}

char LICENSE[] SEC("license") = "GPL";
