/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vFlood: ACKs to the VM let out what is held, and tell it how much it may hand over.
 */
#ifndef EVENKEEL_HOST_VFLOOD_ACK_H
#define EVENKEEL_HOST_VFLOOD_ACK_H

#include "../base/checksum.h"
#include "../base/way.h"
#include "flow.h"
#include "turn.h"
#include "../vsnoop/ring.h"

/*
 * What the VM may be told beyond @ack, 0: what the receiver says. Without the agent a
 * grant grows no more: it holds only as long as it keeps held data in order.
 */
static __always_inline u32 vflood_ack_grant(const struct context *c,
					    const struct ek_vflood_flow *e, u32 ack)
{
	u32 zero = 0;
	struct ek_host *h = bpf_map_lookup_elem(&host, &zero);

	if (!h || (!e->packets && !vflood_is_on(h, c->port, c->now_ns)))
		return 0;
	return e->is_enforced && e->owner ? vflood_granted(&e->flow, ack) : 0;
}

/* Tells the VM that this connection is held, for as long as it is. */
static __always_inline void vflood_ack_token(struct __sk_buff *skb, struct context *c,
					     const struct ek_vflood_flow *e)
{
	const struct packet *p = c->packet;
	u32 at = (u32)p->l4 + TCP_OFFSET_URGENT;
	u32 zero = 0;
	struct ek_host *h = bpf_map_lookup_elem(&host, &zero);
	__be16 from, to;

	if (!h || !vflood_is_on(h, c->port, c->now_ns) || !e->is_enforced ||
	    e->is_closing || !c->port->vflood.token || p->flags & PACKET_URG)
		return;
	from = bpf_htons(packet_u16(c->head, at));
	to = bpf_htons((u16)c->port->vflood.token);
	if (bpf_l4_csum_replace(skb, (u32)p->l4 + TCP_OFFSET_CHECK, from, to, 2) ||
	    bpf_skb_store_bytes(skb, at, &to, 2, 0))
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
}

/* Do the SACK blocks report data that came twice? @segments: how many since the last
 * loss. */
static __noinline bool vflood_ack_is_dsack(const struct context *c,
					   const struct packet_options *o,
					   const struct ek_vflood_flow *e, u32 *segments)
{
	u32 second = (u32)o->sack + 8;
	u32 start = 0, end = 0;
	u32 first_start, first_end;

	*segments = 0;
	if (o->sack_bytes < 8)
		return false;
	first_start = packet_u32(c->head, o->sack);
	first_end = packet_u32(c->head, (u32)o->sack + 4);
	if (o->sack_bytes >= 16) {
		start = packet_u32(c->head, second);
		end = packet_u32(c->head, second + 4);
	}
	if (!vflood_is_dsack(c->packet->ack, first_start, first_end, start, end))
		return false;
	if (e->flow.mss)
		*segments = vflood_came_twice(&e->flow, first_start, first_end);
	return true;
}

/* Looks at the VM's port now and then. A queue that cannot be read is no reason to keep
 * ACKs from the VM. */
static __always_inline void vflood_ack_look(struct __sk_buff *skb, struct context *c)
{
	const struct ek_vflood_settings *v = &c->port->vflood;
	u32 slot = c->port->slot;
	struct ek_vflood_port *port;
	enum ek_vsnoop_ring ring;

	if (!v->free_slots)
		return;
	port = bpf_map_lookup_elem(&vflood_ports, &slot);
	if (!port || !ack_filter_is_crowded(&port->filter, v->unread_acks))
		return;
	ring = vsnoop_ring_look(skb, v->free_slots, false);
	if (ring != EK_VSNOOP_RING_FULL && ring != EK_VSNOOP_RING_WAITING)
		ack_filter_reads(&port->filter);
}

/* Tells a flow what its VM may hand over. The port's account is the qdisc's: changes go
 * into another one. */
static __always_inline void vflood_ack_tell(const struct qdisc_port *at,
					    struct ek_vflood_flow *e)
{
	struct vflood_vm vm = at->vm->vm;
	u32 before;

	vm.promised_segments += (u32)at->vm->promised_by_acks;
	before = vm.promised_segments;
	flow_tell(at, e, &vm);
	if (vm.promised_segments != before)
		__sync_fetch_and_add(&at->vm->promised_by_acks,
				     (u64)vm.promised_segments - before);
}

/* What the qdisc still has to do with an ACK. Any other value: it has to let out what is
 * held, and the value is the highest ACK before. */
#define VFLOOD_ACK_NOTHING (1ull << 32)
#define VFLOOD_ACK_ALL (2ull << 32)

/*
 * Deals with an ACK that lets nothing out, under the flow's lock: a copy of it, which
 * makes the qdisc run, costs more than all that is decided here.
 */
static __noinline u64 vflood_ack_here(const struct context *c, const struct ek_flow *f)
{
	struct ek_vflood_flow *e = vflood_flow_of(c, f);
	const struct vflood_ack *a = &c->scratch->ack;
	u32 slot = c->port->slot;
	u32 zero = 0;
	struct ek_host *h = bpf_map_lookup_elem(&host, &zero);
	struct qdisc_port at = {
		.port = c->port,
		.count = c->count,
		.vm = bpf_map_lookup_elem(&vflood_queues, &slot),
		.state = bpf_map_lookup_elem(&vflood_ports, &slot),
	};
	bool is_here;
	u32 una;

	if (!e || !h || !at.vm || !at.state || !vflood_flow_trylock(e))
		return VFLOOD_ACK_ALL;
	if (e->owner != f->vflood_owner) {
		vflood_flow_unlock(e);
		return VFLOOD_ACK_ALL;
	}
	at.now_ns = vflood_flow_now(e, bpf_ktime_get_ns());
	at.may_hold = vflood_is_on(h, c->port, at.now_ns);
	una = e->flow.snd_una;
	ack_begins(&at, e, a);
	is_here = !e->packets || e->splitting ||
		  (e->first && !vflood_flow_leaves(&e->flow, &c->port->vflood.settings,
						   e->first, e->first_kind));
	if (is_here) {
		filter_ack(&at, e, una, a);
		vflood_ack_tell(&at, e);
	}
	vflood_flow_unlock(e);
	return is_here ? VFLOOD_ACK_NOTHING : una;
}

/* What an ACK's options say beside timestamps. */
static __noinline void vflood_ack_options(const struct context *c,
					  const struct ek_vflood_flow *e,
					  struct vflood_ack *a)
{
	const struct packet *p = c->packet;
	struct packet_options o;
	bool is_dsack;

	if (!head_options(c->head, p, &o) || !o.sack)
		return;
	a->has_sack = true;
	a->sacked_end = packet_sacked_end(c->head, &o, p->ack);
	is_dsack = vflood_ack_is_dsack(c, &o, e, &a->came_twice_segments);
	if (is_dsack)
		a->is_pure = false;
	if (e->flow.mss)
		a->sacked_segments =
			packet_sacked_bytes(c->head, &o, is_dsack, p->ack) / e->flow.mss;
}

/*
 * Reads an ACK to the VM into the CPU's memory. Return: whether it tells its flow
 * something new.
 */
static __noinline bool vflood_ack_read(struct __sk_buff *skb, struct context *c,
				       const struct ek_flow *f)
{
	const struct packet *p = c->packet;
	struct ek_vflood_flow *e = vflood_flow_of(c, f);
	u32 options = (u32)p->l4 + PACKET_TCP_BYTES;
	bool has_options = p->tcp_bytes > PACKET_TCP_BYTES;
	bool is_stamped = vflood_has_timestamps(c);
	struct vflood_ack *a = &c->scratch->ack;

	if (!e)
		return false;
	vflood_ack_look(skb, c);
	a->ack = p->ack;
	a->sacked_end = p->ack;
	a->sacked_segments = 0;
	a->window = p->window;
	a->is_pure = !p->payload_bytes && !(p->flags & PACKET_FIN);
	a->has_sack = false;
	a->is_older = is_stamped &&
		      vflood_is_older(&e->flow, packet_u32(c->head, options + 8));
	a->came_twice_segments = 0;
	/* Most ACKs have timestamps alone. */
	if (has_options &&
	    !(is_stamped && p->tcp_bytes == PACKET_TCP_BYTES + VFLOOD_TIMESTAMPS_BYTES))
		vflood_ack_options(c, e, a);
	if (e->packets ||
	    !vflood_ack_is_known(&e->flow, p->ack, p->window, a->is_pure, a->has_sack)) {
		e->filtered = 0;
		return true;
	}
	e->seen_ns = c->now_ns;
	e->acked_ns = c->now_ns;
	return false;
}

/* Sends the qdisc what is left to do with an ACK. */
static __noinline void vflood_ack_send(struct __sk_buff *skb, const struct context *c,
				       const struct ek_flow *f, u64 left)
{
	struct vflood_order order =
		vflood_order_of_ack(f->vflood_index, &c->scratch->ack);

	if (left != VFLOOD_ACK_ALL) {
		order.kind = VFLOOD_ORDER_RELEASE;
		order.b = (u32)left;
	}
	vflood_order_write(skb, &order);
	bpf_clone_redirect(skb, c->port->vflood.hold_ifindex, 0);
}

/*
 * An ACK to the VM lets out what is held. Return: the window that the VM may be told, 0:
 * the receiver's. @is_needless becomes true if the VM need not have it
 * (algo/vflood/ack_filter.h).
 *
 * Calls one function after the other, rather than each the next: older kernels add up
 * what each takes of the stack.
 */
static __always_inline u32 vflood_ack_to_vm(struct __sk_buff *skb, struct context *c,
					    struct ek_flow *f, bool *is_needless)
{
	const struct packet *p = c->packet;
	const struct vflood_ack *a = &c->scratch->ack;
	bool is_news = vflood_ack_read(skb, c, f);
	struct ek_vflood_flow *e;
	u64 left;

	if (is_news) {
		left = vflood_ack_here(c, f);
		if (left != VFLOOD_ACK_NOTHING)
			vflood_ack_send(skb, c, f, left);
	}
	e = vflood_flow_of(c, f);
	if (!e)
		return 0;
	vflood_ack_token(skb, c, e);
	/* Where another CPU has the qdisc, @filtered may be an earlier ACK's: data, which
	 * vSnoop may acknowledge, and SACK blocks pass in any case. */
	*is_needless = is_news && p->flags == PACKET_ACK && a->is_pure && !a->has_sack &&
		       e->filtered == (1ull << 32 | p->ack);
	return vflood_ack_grant(c, e, p->ack);
}

/* Makes a SYN-ACK the ACK that would follow it, without other options than timestamps. */
static __always_inline bool vflood_window_update(struct __sk_buff *skb, struct context *c,
						 u16 window)
{
	const struct packet *p = c->packet;
	u32 check = (u32)p->l4 + TCP_OFFSET_CHECK;
	struct packet_options o;
	u32 i, j, at;

	if (!head_options(c->head, p, &o))
		return false;
	for (i = PACKET_TCP_BYTES; i < 60; i += 4) {
		u32 word = 0;
		__be32 from, to;

		if (i >= p->tcp_bytes)
			break;
		for (j = 0; j < 4; j++) {
			at = (u32)p->l4 + i + j;
			word = word << 8 | (o.timestamps && at - o.timestamps < 10 ?
						    packet_u8(c->head, at) :
						    1);
		}
		from = bpf_htonl(packet_u32(c->head, (u32)p->l4 + i));
		to = bpf_htonl(word);
		if (from != to && (bpf_l4_csum_replace(skb, check, from, to, 4) ||
				   bpf_skb_store_bytes(skb, (u32)p->l4 + i, &to, 4, 0)))
			return false;
	}
	return skb_set_seq(skb, p, p->seq + 1) &&
	       skb_set_flags(skb, p, packet_u8(c->head, (u32)p->l4 + TCP_OFFSET_FLAGS),
			     PACKET_ACK) &&
	       skb_set_window(skb, p, window);
}

/*
 * A SYN-ACK to the VM. Its window is not scaled and ends at 64 KB: what is granted beyond
 * stands in an ACK right behind it. One that answers another SYN than the flow's, or data
 * with it, is left alone. Return: what the program is to answer.
 */
static __noinline int vflood_synack_to_vm(struct __sk_buff *skb, struct context *c)
{
	struct ek_flow *f = bpf_map_lookup_elem(&flows, c->key);
	struct window_limits limits = {};
	struct packet *p = c->packet;
	struct ek_vflood_flow *e;
	long error;
	u32 mss;
	u16 field = 0;

	if (!f || f->iss != p->ack - 1)
		return TCX_NEXT;
	e = vflood_flow_of(c, f);
	if (!e || !e->is_enforced)
		return TCX_NEXT;
	vflood_ack_token(skb, c, e);
	vflood_send_order(skb, c,
			  (struct vflood_order){
				  .index = f->vflood_index,
				  .kind = VFLOOD_ORDER_GRANT,
				  .c = (u32)e->owner,
			  });
	bpf_clone_redirect(skb, c->port->vflood.hold_ifindex, 0);
	limits.bytes[WINDOW_BY_VFLOOD] = vflood_ack_grant(c, e, p->ack);
	if (!limits.bytes[WINDOW_BY_VFLOOD])
		return TCX_NEXT;
	mss = flow_segment_bytes(f);
	window_decide(&limits, p->window, 0, mss, &field);
	if (!skb_set_window(skb, p, field)) {
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
		return TCX_NEXT;
	}
	p->window = field;
	count(c->count, EK_COUNT_VFLOOD_GRANTS, 1);
	if (limits.bytes[WINDOW_BY_VFLOOD] <= 65535)
		return TCX_NEXT;
	window_decide(&limits, 0, flow_scale(f, &f->remote), mss, &field);
	/* The copy goes first, as it is; the packet at hand follows it. */
	c->scratch->is_sending = 1;
	error = bpf_clone_redirect(skb, skb->ifindex, 0);
	c->scratch->is_sending = 0;
	if (error < 0)
		return TCX_NEXT;
	if (!vflood_window_update(skb, c, field)) {
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
		return TCX_DROP;
	}
	count(c->count, EK_COUNT_VFLOOD_UPDATES, 1);
	return TCX_NEXT;
}

/*
 * Would the VM drop an ACK, so that what it lets out would count as arrived without
 * having done so? With nothing held, the VM itself sends again what is missing.
 */
static __noinline bool vflood_ack_is_false(struct __sk_buff *skb, struct context *c,
					   const struct ek_flow *f)
{
	struct ek_vflood_flow *e;
	u32 summed;

	if (flow_off_bytes(f, c->packet) > FLOW_SLACK_BYTES)
		return true;
	e = vflood_flow_of(c, f);
	if (!e || !e->packets || !ip_is_plain(c->packet))
		return false;
	summed = skb_summed(skb);
	return summed != CHECKSUM_PARTIAL && summed != CHECKSUM_UNNECESSARY &&
	       !tcp_checksum_holds(skb, c);
}

/*
 * An ACK, or a SYN-ACK, lets out what is held, and tells how much the VM may hand over.
 * A reset is no ACK: what it let out would be for nobody.
 */
static __always_inline bool vflood_ack_clock_to_vm(struct __sk_buff *skb, struct way *w)
{
	bool is_needless = false;
	struct ek_flow *f = w->f;

	if (!f) {
		if (is_synack(w))
			w->verdict = vflood_synack_to_vm(skb, w->c);
		return true;
	}
	if ((w->c->packet->flags & (PACKET_ACK | PACKET_RST)) != PACKET_ACK ||
	    !f->vflood_owner)
		return true;
	if (vflood_ack_is_false(skb, w->c, f)) {
		count(w->c->count, EK_COUNT_VFLOOD_FALSE_ACKS, 1);
		return true;
	}
	w->c->scratch->limits.bytes[WINDOW_BY_VFLOOD] =
		vflood_ack_to_vm(skb, w->c, f, &is_needless);
	w->is_needless = is_needless;
	return true;
}

#endif /* EVENKEEL_HOST_VFLOOD_ACK_H */
