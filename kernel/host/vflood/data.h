/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vFlood: what the VM sends goes by way of the device that holds it.
 */
#ifndef EVENKEEL_HOST_VFLOOD_DATA_H
#define EVENKEEL_HOST_VFLOOD_DATA_H

#include "../base/read.h"
#include "../base/way.h"
#include "flow.h"

/*
 * Notes what the VM says to the other end: what is held leaves with the newest of it. The
 * newest timestamp may stand beside an older number than that of an early ACK, which the
 * VM does not know of.
 */
static __always_inline void vflood_data_note(const struct context *c,
					     struct ek_vflood_flow *e)
{
	const struct packet *p = c->packet;
	bool has_timestamps = vflood_has_timestamps(c);
	u32 ts_val;

	if (!(p->flags & PACKET_ACK))
		return;
	if (has_timestamps) {
		ts_val = vflood_ts_val(c);
		/* The packet was held, or another CPU has had a newer one. */
		if (e->last.has_timestamps && seq_before(ts_val, e->last.ts_val))
			return;
		if (e->last.has_timestamps)
			e->last.ts_val = ts_val;
	}
	if (seq_before(p->ack, e->last.ack))
		return;
	if (has_timestamps) {
		e->last.ts_val = ts_val;
		e->last.ts_ecr = packet_u32(c->head, (u32)p->l4 + PACKET_TCP_BYTES + 8);
	}
	e->last.ack = p->ack;
	e->last.window = p->window;
	e->last.has_timestamps = has_timestamps;
}

/* Global, so that the verifier looks at it once. */
__weak __noinline int vflood_flow_passes(struct vflood_flow *f,
					 const struct vflood_settings *s, u64 range,
					 u64 now_us)
{
	u32 seq = (u32)range;

	return f && s && vflood_passes(f, s, seq, (u32)(range >> 32) - seq, now_us);
}

/*
 * Lets out at once, past the device that holds packets, data that its windows allow or
 * that is sent again: most connections never have more. Nothing is overtaken: all that is
 * out has left in the same way, or nothing is out.
 *
 * Return: false if the qdisc is to decide.
 */
static __noinline bool vflood_lets_out(struct context *c, struct ek_flow *f,
				       struct ek_vflood_flow *e, u32 end)
{
	const struct ek_vflood_settings *v = &c->port->vflood;
	struct ek_vflood_port *port;
	u32 slot = c->port->slot;
	u32 zero = 0;
	struct ek_host *h = bpf_map_lookup_elem(&host, &zero);
	bool is_out = false;
	u64 now_ns;

	if (!h || !vflood_is_on(h, c->port, c->now_ns) || e->packets ||
	    !vflood_flow_trylock(e))
		return false;
	now_ns = vflood_flow_now(e, c->now_ns);
	if (e->owner == f->vflood_owner && !e->is_closing && !e->packets &&
	    vflood_is_ahead(&e->flow, e->is_direct)) {
		if (e->last.has_timestamps)
			vflood_stamp(&e->flow, e->last.ts_val);
		is_out = vflood_flow_passes(&e->flow, &v->settings,
					    (u64)end << 32 | c->packet->seq,
					    now_ns / 1000);
	}
	if (is_out) {
		e->is_direct = 1;
		e->seen_ns = now_ns;
		vflood_ack_out(&e->flow, c->packet->ack);
	}
	vflood_flow_unlock(e);
	if (!is_out || v->free_slots)
		return is_out;
	port = bpf_map_lookup_elem(&vflood_ports, &slot);
	if (port)
		ack_filter_reads(&port->filter);
	return true;
}

/* Uses up @by of what a flow waits for. Several CPUs may ask at once. */
static __always_inline bool vflood_use_up(u64 *left, u64 by)
{
	if (*left < by)
		return false;
	if (__sync_fetch_and_add(left, -by) >= by)
		return true;
	__sync_fetch_and_add(left, by);
	return false;
}

/* Global, so that the verifier looks at it once. */
__weak __noinline int vflood_flow_is_back(struct vflood_returns *r, u32 seq, u32 end,
					  u32 ts_val)
{
	struct vflood_range data = { .seq = seq, .end = end };

	return r && vflood_returns_take(r, data, ts_val);
}

/*
 * Has a packet of the flow left the queue, and been here before? Of two packets with the
 * same data and timestamp one passes as such, and the other is seen anew.
 */
static __noinline bool vflood_is_back(const struct context *c, struct ek_vflood_flow *e)
{
	const struct packet *p = c->packet;
	u32 end = p->seq + p->payload_bytes + !!(p->flags & PACKET_FIN);

	/* A bare ACK from the queue has the number of what was let out last, one from the
	 * VM the VM's own number.
	 */
	if (end == p->seq)
		return seq_before(p->seq, e->flow.vm_end) &&
		       vflood_use_up(&e->back_acks, 1);
	return vflood_flow_is_back(&e->returns, p->seq, end,
				   vflood_has_timestamps(c) ? vflood_ts_val(c) : 0);
}

/*
 * Sends a packet by way of the device that holds it, or that splits it for that. Held
 * packets must not fill a send buffer: data sent again after a loss would not come in,
 * and nothing else lets the held data out. A copy has no owner, and fills none.
 *
 * Return: what the program is to answer.
 */
static __always_inline int vflood_send_by(struct __sk_buff *skb, u32 ifindex)
{
	if (!skb_fills_sndbuf(skb))
		return bpf_redirect(ifindex, 0);
	bpf_clone_redirect(skb, ifindex, 0);
	return TCX_DROP;
}

/* Return: what the program is to answer. */
static __noinline int vflood_from_vm(struct __sk_buff *skb, struct context *c,
				     struct ek_flow *f)
{
	const struct packet *p = c->packet;
	u32 end = p->seq + p->payload_bytes + !!(p->flags & PACKET_FIN);
	struct ek_vflood_flow *e = vflood_flow_of(c, f);
	u32 hold = c->port->vflood.hold_ifindex;
	struct vflood_order o = { .index = f->vflood_index, .a = p->seq, .b = end };
	u32 seq;

	if (!e)
		return TCX_NEXT;
	vflood_data_note(c, e);
	o.c = (u32)e->owner;
	if (end == p->seq || p->flags & PACKET_RST) {
		seq = vflood_bare_seq(&e->flow, p->seq, p->flags & PACKET_RST);
		if (e->is_enforced && seq != p->seq &&
		    !skb_set_bare_seq(skb, c->head, c->packet, seq))
			count(c->count, EK_COUNT_WRITE_FAILED, 1);
		vflood_ack_out(&e->flow, p->ack);
		return TCX_NEXT;
	}
	if (p->flags & PACKET_FIN)
		ack_filter_ends(&e->filter);
	if (!e->is_enforced) {
		o.kind = VFLOOD_ORDER_SEEN;
		vflood_send_order(skb, c, o);
		bpf_clone_redirect(skb, hold, 0);
		return TCX_NEXT;
	}
	if ((!skb->gso_size || skb->gso_size >= e->flow.mss) &&
	    vflood_lets_out(c, f, e, end))
		return TCX_NEXT;
	if (vflood_ack_is_due(&e->flow, p->ack) &&
	    vflood_direct(&e->flow) < vflood_segments(&e->flow, end - p->seq)) {
		o.kind = VFLOOD_ORDER_BARE;
		vflood_send_order(skb, c, o);
		bpf_clone_redirect(skb, hold, 0);
		vflood_ack_out(&e->flow, p->ack);
		count(c->count, EK_COUNT_VFLOOD_BARE_ACKS, 1);
	}
	if (skb->gso_size && vflood_comes_whole(&e->flow, p->seq, end - p->seq,
						skb->gso_size, e->packets)) {
		o.kind = VFLOOD_ORDER_WHOLE;
		vflood_send_order(skb, c, o);
		return vflood_send_by(skb, hold);
	}
	o.kind = VFLOOD_ORDER_DATA;
	vflood_send_order(skb, c, o);
	if (!skb->gso_size)
		return vflood_send_by(skb, hold);
	count(c->count, EK_COUNT_VFLOOD_SPLIT, 1);
	return vflood_send_by(skb, c->port->vflood.split_ifindex);
}

/* An ACK of the VM's is kept back that says nothing new to the other end but its
 * timestamp: an early ACK has had that, and what is held must not be older (PAWS, RFC
 * 7323 §5). */
static __noinline void vflood_kept_back(const struct context *c, const struct ek_flow *f)
{
	struct ek_vflood_flow *e = vflood_flow_of(c, f);

	if (e)
		vflood_data_note(c, e);
}

/* A packet that was held has been here before: only the steps behind HOLD have still to
 * see it.
 */
static __always_inline bool vflood_back_from_vm(struct __sk_buff *skb, struct way *w)
{
	struct ek_vflood_flow *e = vflood_flow_of(w->c, w->f);

	if (!e)
		return true;
	w->is_held = e->is_enforced;
	if (!vflood_is_back(w->c, e))
		return true;
	count_again(w->c);
	w->is_back = true;
	return true;
}

static __always_inline bool vflood_hold_from_vm(struct __sk_buff *skb, struct way *w)
{
	if (w->f->vflood_owner)
		w->verdict = vflood_from_vm(skb, w->c, w->f);
	return true;
}

#endif /* EVENKEEL_HOST_VFLOOD_DATA_H */
