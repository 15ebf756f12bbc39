// SPDX-License-Identifier: GPL-2.0
/*
 * VM -> network: at the ingress of a VM's port.
 *
 * Sends probes before a SYN, sets the window of a SYN-ACK by the probes that
 * came, makes the VM's data ECN-capable and echoes marks in its ACKs.
 *
 * What it sends goes into the port a second time, by way of the CPU's backlog
 * queue. The packet at hand is then sent after it in the same way, or it would
 * overtake. What comes a second time is known by what only this host knows of it,
 * never by its mark, which other programs set and clear:
 *
 *   a probe or a report      the tag that one of this host's keys has signed
 *   a SYN behind its probes  the handshake waits for it (is_behind)
 *   a SYN-ACK                the flow waits for it (EK_FLOW_SYNACK_BEHIND, _RELEASED)
 *   what was held            the flow waits for so many bytes (back_bytes, back_acks)
 *   a copy of data           it has the addresses of data to the VM (vsnoop/ack.h)
 *
 * Each packet of the VM's uses such an entry up, so that none goes round.
 */
#include "proboscis/ect.h"
#include "base/flow.h"
#include "vflood/data.h"
#include "base/hop.h"
#include "owned.h"
#include "proboscis/probe_read.h"
#include "vsnoop/ack.h"
#include "cera/port.h"

static __always_inline int send_behind(struct __sk_buff *skb)
{
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}

/* A probe or report that this host has sent. */
static __always_inline bool is_own_probe(struct context *c)
{
	struct proboscis_option o;

	return looks_like_probe(c->packet) && probe_read(c, &o) == PROBE_VALID;
}

/* How many probes to send before a SYN, and why none. */
static __always_inline u32 probes_for(struct __sk_buff *skb, struct context *c,
				      struct ek_handshake *h)
{
	u32 probes = c->port->proboscis.probes;
	struct ek_peer *peer;

	if (!probes_are_on(c) || !probes || probes > PROBOSCIS_MAX_PROBES)
		return 0;
	h->is_routed = hop_is_this_host(skb, c);
	if (h->is_routed) {
		count(c->count, EK_COUNT_PROBES_ROUTED, 1);
		return 0;
	}
	peer = peer_known(c);
	if (peer && !proboscis_peer_probe(&peer->state)) {
		count(c->count, EK_COUNT_PROBES_SPARED, 1);
		return 0;
	}
	probes = train_length(c, probes);
	if (!budget_take(c, probes)) {
		count(c->count, EK_COUNT_PROBES_REFUSED, 1);
		return 0;
	}
	return probes;
}

static __always_inline bool agent_is_there(const struct ek_host *h, u64 now_ns)
{
	return h->agent_until_ns > now_ns;
}

/*
 * Hands a copy of the packet to user space.
 *
 * Return: false if it cannot, or is not there.
 */
static __noinline bool event_send(struct __sk_buff *skb, struct context *c,
				  enum ek_event_type type)
{
	struct ek_host *h = this_host();
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

/*
 * Probes and SYN have gone: they may have to be sent again. To a peer that has not answered
 * probes before, they are not.
 */
static __always_inline void syn_probed(struct __sk_buff *skb, struct context *c)
{
	struct ek_peer *peer = peer_known(c);

	if (!peer || (!peer->report_ns && !peer->state.unanswered))
		event_send(skb, c, EK_EVENT_SYN_STRANGER);
	else if (!peer->state.unanswered)
		event_send(skb, c, EK_EVENT_SYN_PROBED);
}

/*
 * A connection that begins unnoted: what was known of one before it with the same addresses and
 * ports is not about it. Only the VM's word counts, since others' SYNs may be forged.
 */
static __noinline void flow_replaced(struct context *c)
{
	const struct packet *p = c->packet;
	u32 iss = p->flags & PACKET_ACK ? p->ack - 1 : p->seq;
	struct ek_flow *known = bpf_map_lookup_elem(&flows, c->key);

	if (known && known->iss != iss)
		bpf_map_delete_elem(&flows, c->key);
}

static __always_inline int syn_from_vm(struct __sk_buff *skb, struct context *c)
{
	struct ek_handshake *known = handshake_known(c, c->packet->seq, true);
	struct ek_host *host_settings = this_host();
	struct packet_options options;
	struct ek_handshake fresh;
	struct order o = {};
	u32 probes = 0;
	u32 sent = 0;

	if (known && known->is_behind && known->from_vm && known->iss == c->packet->seq) {
		known->is_behind = 0;
		count_again(c);
		return TCX_NEXT;
	}
	count(c->count, EK_COUNT_SYNS_FROM_VM, 1);
	if (!head_options(c->head, c->packet, &options)) {
		count(c->count, EK_COUNT_UNPARSABLE, 1);
		return TCX_NEXT;
	}
	if (known) {
		handshake_again(known, c);
	} else {
		handshake_start(&fresh, c, &options, true);
		if (bpf_map_update_elem(&handshakes, c->key, &fresh, BPF_ANY)) {
			count(c->count, EK_COUNT_MAP_FULL, 1);
			return TCX_NEXT;
		}
		known = bpf_map_lookup_elem(&handshakes, c->key);
		if (!known)
			return TCX_NEXT;
	}
	if (host_settings)
		probes = probes_for(skb, c, known);
	known->syns++;
	if (!probes)
		return TCX_NEXT;
	if (!enforces(c)) {
		count(c->count, EK_COUNT_PROBES_SENT, probes);
		return TCX_NEXT;
	}
	o.iss = c->packet->seq;
	o.type = PROBOSCIS_PROBE;
	o.train = known->trains;
	o.packets = (u8)probes;
	o.total = (u8)probes;
	o.ecn = PACKET_ECT_0;
	switch (probe_send(skb, c, &o, host_settings, &sent)) {
	case PROBE_UNTOUCHED:
		return TCX_NEXT;
	case PROBE_SPOILT:
		return TCX_DROP;
	case PROBE_SENT:
		break;
	}
	known->trains++;
	known->probes_sent += (u16)sent;
	count(c->count, EK_COUNT_PROBES_SENT, sent);
	syn_probed(skb, c);
	if (!known->asks_ecn)
		handshake_set_ect(skb, c);
	known->is_behind = 1;
	return send_behind(skb);
}

/* Limits the window of a SYN-ACK by what came of the probes. */
static __always_inline void synack_window(struct __sk_buff *skb, struct context *c,
					  struct ek_flow *f,
					  const struct proboscis_train *train)
{
	struct window_limits limits = {};
	u32 mss = flow_segment_bytes(f);
	enum proboscis_verdict verdict;
	u16 field;

	f->probes_seen = train->seen;
	f->probes_marked = train->marked;
	verdict = proboscis_first_window(train, &c->port->proboscis, mss,
					 &limits.bytes[WINDOW_BY_PROBOSCIS]);
	if (window_decide(&limits, c->packet->window, 0, mss, &field) == WINDOW_BY_RECEIVER)
		return;
	f->synack_window_bytes = field;
	count(c->count,
	      verdict == PROBOSCIS_SCALED ? EK_COUNT_SYNACKS_SCALED : EK_COUNT_SYNACKS_ONE_MSS,
	      1);
	if (enforces(c) && !skb_set_window(skb, c->packet, field))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
}

static __always_inline int synack_from_vm(struct __sk_buff *skb, struct context *c)
{
	const struct proboscis_settings *set = &c->port->proboscis;
	struct ek_host *host_settings = this_host();
	struct proboscis_train train;
	struct ek_train *known;
	struct order o = {};
	struct ek_flow *f;
	u32 sent = 0;

	f = flow_begins(skb, c, true);
	if (f && f->flags & EK_FLOW_SYNACK_BEHIND) {
		f->flags &= ~EK_FLOW_SYNACK_BEHIND;
		count_again(c);
		return TCX_NEXT;
	}
	if (f && f->flags & EK_FLOW_SYNACK_RELEASED) {
		f->flags &= ~EK_FLOW_SYNACK_RELEASED;
		count_again(c);
	} else {
		count(c->count, EK_COUNT_SYNACKS_FROM_VM, 1);
	}
	if (!f) {
		count(c->count, EK_COUNT_UNKNOWN_FLOW, 1);
		return TCX_NEXT;
	}
	known = train_known(c, c->packet->ack - 1);
	if (!known || !host_settings || !probes_are_on(c))
		return TCX_NEXT;
	if (!(f->flags & EK_FLOW_PEER_GONE))
		f->flags |= EK_FLOW_PEER;
	train = known->count;
	if (enforces(c) && !(f->flags & EK_FLOW_SYNACK_HELD) &&
	    proboscis_synack_waits(&train, set, (c->now_ns - f->first_ns) / 1000) &&
	    event_send(skb, c, EK_EVENT_SYNACK_HELD)) {
		f->flags |= EK_FLOW_SYNACK_HELD;
		count(c->count, EK_COUNT_SYNACKS_HELD, 1);
		return TCX_DROP;
	}
	o.iss = c->train->iss;
	o.type = PROBOSCIS_REPORT;
	o.train = train.number;
	o.packets = 1;
	o.total = train.total;
	o.seen = train.seen;
	o.marked = train.marked;
	/* Where it is lost, the opener's data is not ECN-capable, and marking ports drop it. */
	o.ecn = PACKET_ECT_0;
	if (!enforces(c)) {
		count(c->count, EK_COUNT_REPORTS_SENT, 1);
	} else if (probe_send(skb, c, &o, host_settings, &sent) == PROBE_SPOILT) {
		return TCX_DROP;
	}
	count(c->count, EK_COUNT_REPORTS_SENT, sent);
	synack_window(skb, c, f, &train);
	if (!(f->flags & EK_FLOW_NATIVE_ECN))
		handshake_set_ect(skb, c);
	if (!sent)
		return TCX_NEXT;
	f->flags |= EK_FLOW_SYNACK_BEHIND;
	return send_behind(skb);
}

static __always_inline void data_from_vm(struct __sk_buff *skb, struct context *c,
					 struct ek_flow *f, bool ours)
{
	struct packet *p = c->packet;
	u64 elephant_bytes = c->port->proboscis.elephant_bytes;
	u32 end = p->seq + p->payload_bytes + !!(p->flags & PACKET_FIN);

	f->bytes_from_vm += proboscis_sent(&f->sender, end);
	if (elephant_bytes && f->bytes_from_vm > elephant_bytes)
		f->flags |= EK_FLOW_ELEPHANT;
	/*
	 * What does not heed marks must not ask for them instead of losses. Pure
	 * ACKs are as capable as data, as DCTCP's are: between data that heeds
	 * marks a marking port would drop them in masses.
	 */
	if (!ours || p->ecn != PACKET_NOT_ECT || f->flags & EK_FLOW_ELEPHANT)
		return;
	if (enforces(c) && !head_set_ecn(skb, c->head, p, PACKET_ECT_0))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
	else
		count(c->count, EK_COUNT_ECT_SET, skb_segments(skb));
}

/*
 * An ACK of a VM whose window was lowered while it sent: its number is that of the window's
 * edge, and not of what comes next, so that the other end would take it for an old segment's.
 */
static __noinline void ack_catches_up(struct __sk_buff *skb, struct context *c,
				      struct ek_flow *f)
{
	struct packet *p = c->packet;

	if (p->payload_bytes || p->flags & (PACKET_FIN | PACKET_RST) || !f->windows_limited ||
	    f->vflood_owner || (!enforces(c) && c->port->cera.mode != EK_MODE_ENFORCE))
		return;
	/* A keepalive and a window probe have a number below. */
	if (seq_before(p->seq, f->sender.snd_una) || !seq_before(p->seq, f->sender.snd_nxt))
		return;
	if (skb_set_seq(skb, p, f->sender.snd_nxt))
		p->seq = f->sender.snd_nxt;
	else
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
}

static __always_inline void ack_from_vm(struct __sk_buff *skb, struct context *c,
					struct ek_flow *f, bool ours)
{
	struct packet *p = c->packet;

	if (!proboscis_echo(&f->echo, p->ack) || !ours || p->flags & PACKET_ECE)
		return;
	if (enforces(c) &&
	    !skb_set_flags(skb, p, packet_u8(c->head, (u32)p->l4 + TCP_OFFSET_FLAGS),
			   p->flags | PACKET_ECE))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
	else
		count(c->count, EK_COUNT_ECE_SET, 1);
}

/* Not inlined: the stack of what calls it is nearly full. */
static __noinline void cera_account(struct __sk_buff *skb, struct context *c, struct ek_flow *f)
{
	cera_from_vm(skb, c, f);
}

static __always_inline void account(struct __sk_buff *skb, struct context *c, struct ek_flow *f)
{
	if (c->port->cera.mode != EK_MODE_OFF)
		cera_account(skb, c, f);
}

SEC("tcx/ingress")
int from_vm(struct __sk_buff *skb)
{
	struct context c;
	struct ek_flow *f;
	int verdict;
	bool ours;

	if (!context_open(&c, skb->ifindex, SCRATCH_FROM_VM))
		return TCX_NEXT;
	count(c.count, EK_COUNT_PACKETS_FROM_VM, 1);
	if (vsnoop_is_on(&c))
		vsnoop_note_mac(skb, &c);
	if (port_sleeps(c.port))
		return TCX_NEXT;
	if (!context_read(skb, &c, true)) {
		account(skb, &c, NULL);
		return TCX_NEXT;
	}

	if (c.packet->flags & PACKET_SYN) {
		if (port_rests(c.port)) {
			flow_replaced(&c);
			return TCX_NEXT;
		}
		if (syn_is_owned(skb, &c, true))
			return TCX_NEXT;
		if (c.packet->flags & PACKET_ACK)
			return synack_from_vm(skb, &c);
		return syn_from_vm(skb, &c);
	}
	if (is_own_probe(&c)) {
		count_again(&c);
		return TCX_NEXT;
	}
	f = flow_known(&c);
	if (!f) {
		if (vsnoop_is_on(&c) && vsnoop_is_copy(&c))
			return vsnoop_ack_early(skb, &c);
		count(c.count, EK_COUNT_UNKNOWN_FLOW, 1);
		account(skb, &c, NULL);
		return TCX_NEXT;
	}
	if (has_more_options(&c) && segment_is_owned(skb, &c, f, true)) {
		account(skb, &c, NULL);
		return TCX_NEXT;
	}
	f->last_ns = c.now_ns;
	if (f->vflood_owner && vflood_is_back(&c, f)) {
		count_again(&c);
		if (vsnoop_is_on(&c))
			vsnoop_released(skb, &c);
		return TCX_NEXT;
	}
	if (vsnoop_is_on(&c) && vsnoop_from_vm(skb, &c))
		return TCX_DROP;
	ours = ecn_for_guests(&c) &&
	       (f->flags & (EK_FLOW_PEER | EK_FLOW_NATIVE_ECN)) == EK_FLOW_PEER;
	data_from_vm(skb, &c, f, ours);
	ack_catches_up(skb, &c, f);
	if (c.packet->flags & PACKET_ACK)
		ack_from_vm(skb, &c, f, ours);
	account(skb, &c, f);
	verdict = f->vflood_owner ? vflood_from_vm(skb, &c, f) : TCX_NEXT;
	/* Nothing comes back of it that an early ACK could ride on. */
	if (verdict == TCX_NEXT && c.port->vflood.hold_ifindex && c.packet->payload_bytes &&
	    vsnoop_is_on(&c))
		vsnoop_released(skb, &c);
	if (flow_is_over(&c, f, true) && vflood_flow_close(skb, &c, f) && vsnoop_is_on(&c))
		vsnoop_flow_close(&c);
	return verdict;
}

char LICENSE[] SEC("license") = "GPL";
