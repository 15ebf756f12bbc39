// SPDX-License-Identifier: GPL-2.0
/*
 * The qdisc that holds a VM's packets (vFlood), and the programs of the pair of netkit
 * devices that it sits on:
 *
 *   port -> from_vm -> [split] -> qdisc -> released -> back -> port
 *
 * from_vm sends a managed flow's data to the holding device. GSO packets are held as they
 * are, and leave so if the window has room for them; otherwise they go through the pair's
 * other end, which splits them, and come back. What leaves the qdisc gets the newest ACK
 * and timestamps of the VM, which no program could write behind an ifb's queue. At the
 * pair's other end it goes back to where it came in, in order whatever CPU lets it out,
 * and through from_vm again. Orders come in the cb of packets (order.h,
 * VFLOOD_ORDER_MAGIC). One lock, the qdisc's, guards a port's flows and its buffer. What
 * need not be held at all, from_vm lets out past all this, under the flow's lock
 * (lock.h).
 *
 * Loaded only where some port has vFlood: Linux 6.16 with NET_SCH_BPF and NETKIT.
 */
#include "drain.h"
#include "join.h"
#include "leave.h"

#define VFLOOD_READY_PACKETS 8192 /* that wait for the device at most */

/* Data of a managed flow. Return: what is to be done with it. */
static __noinline int data_verdict(struct qdisc_port *at, struct ek_vflood_flow *e,
				   u32 index, u32 seq, u32 end)
{
	bool is_cut_off = e->is_closing || !at->port;
	u8 before = e->flow.state;
	u32 vm_end = e->flow.vm_end;
	int verdict;

	e->seen_ns = at->now_ns;
	e->is_direct = 0;
	if (at->port && !at->port->vflood.free_slots)
		ack_filter_reads(&at->state->filter);
	if (!e->packets && (is_cut_off || (e->is_enforced && !at->may_hold))) {
		vflood_flow_forget(at, e);
		return VFLOOD_PASS;
	}
	if (is_cut_off) {
		/* Stays behind what is held until that is out. */
		verdict = VFLOOD_HOLD;
		e->flow.held_segments += vflood_segments(&e->flow, end - seq);
		at->vm->vm.held_segments += vflood_segments(&e->flow, end - seq);
		e->flow.vm_end = seq_max(vm_end, end);
	} else {
		if (e->last.has_timestamps)
			vflood_stamp(&e->flow, e->last.ts_val);
		verdict = vflood_flow_data(&e->flow, &at->vm->vm,
					   &at->port->vflood.settings, range(seq, end),
					   at->now_ns / 1000);
	}
	count_state(at, &e->flow, before);
	if (verdict == VFLOOD_HOLD) {
		vflood_flow_list(at, e, index);
		e->packets++;
		count(at->count, EK_COUNT_VFLOOD_HELD,
		      vflood_segments(&e->flow, end - seq));
	} else if (verdict == VFLOOD_DROP) {
		count(at->count,
		      seq_after(end, vm_end) ? EK_COUNT_VFLOOD_REFUSED :
					       EK_COUNT_VFLOOD_NEEDLESS,
		      1);
	}
	return verdict;
}

static __noinline void order_run(struct qdisc_port *at, struct ek_vflood_flow *e,
				 const struct vflood_order *o)
{
	struct vflood_ack ack;
	u32 una = e->flow.snd_una;

	if (o->kind == VFLOOD_ORDER_RESET) {
		queue_drop(at, e, o->index);
		vflood_flow_forget(at, e);
		return;
	}
	if (o->kind == VFLOOD_ORDER_CLOSE) {
		e->is_closing = 1;
		if (!e->packets)
			vflood_flow_forget(at, e);
		return;
	}
	if (!at->port)
		return;
	e->seen_ns = at->now_ns;
	if (o->kind == VFLOOD_ORDER_ACK || o->kind == VFLOOD_ORDER_RELEASE) {
		ack = vflood_order_to_ack(o);
		if (o->kind == VFLOOD_ORDER_ACK)
			ack_begins(at, e, &ack);
		else
			una = o->b;
		queue_release(at, e, o->index);
		filter_ack(at, e, una, &ack);
	}
	flow_tell(at, e, &at->vm->vm);
}

/* A segment of a packet that was held whole: both count until all segments have come. */
static __noinline void piece_held(struct qdisc_port *at, struct ek_vflood_flow *e,
				  u32 index, u32 seq, u32 end)
{
	vflood_piece_held(&e->flow, &at->vm->vm, end - seq);
	e->packets++;
	e->pieces++;
	vflood_flow_list(at, e, index);
}

/* There is no memory for a packet that counts as held. */
static __noinline void packet_unheld(struct qdisc_port *at, struct ek_vflood_flow *e,
				     const struct vflood_order *o)
{
	vflood_flow_take(at, e);
	e->packets--;
	if (o->kind == VFLOOD_ORDER_PIECE)
		e->pieces--;
	if (e->first == range(o->a, o->b))
		e->first = 0;
	vflood_flow_unheld(&e->flow, &at->vm->vm, range(o->a, o->b));
	vflood_flow_unlock(e);
}

/* Puts an skb among those that may leave. */
static __always_inline int ready_push(struct qdisc_port *at, struct sk_buff *skb,
				      struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free)
{
	struct queue *r = bpf_map_lookup_elem(&ready, &at->slot);
	u32 bytes = ((struct qdisc_cb *)skb->cb)->pkt_len;
	struct held *h;

	if (!r || at->vm->ready >= VFLOOD_READY_PACKETS)
		goto drop;
	h = held_new(at, 0, bytes, 0);
	if (!h)
		goto drop;
	skb = bpf_kptr_xchg(&h->skb, skb);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free);
	queue_push(r, h);
	at->vm->ready++;
	sch->q.qlen++;
	sch->qstats.backlog += bytes;
	return NET_XMIT_SUCCESS;
drop:
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

SEC("struct_ops/vflood_qdisc_enqueue")
int BPF_PROG(vflood_qdisc_enqueue, struct sk_buff *skb, struct Qdisc *sch,
	     struct bpf_sk_buff_ptr *to_free)
{
	struct qdisc_cb *cb = (struct qdisc_cb *)skb->cb;
	struct vflood_order o = VFLOOD_ORDER_READ(cb->data);
	u32 queue = o.index;
	bool is_data = o.kind == VFLOOD_ORDER_DATA || o.kind == VFLOOD_ORDER_WHOLE;
	bool is_copy = !is_data && o.kind != VFLOOD_ORDER_BARE &&
		       o.kind != VFLOOD_ORDER_PIECE;
	u32 bytes = cb->pkt_len;
	struct qdisc_port at = {};
	struct ek_vflood_flow *e;
	struct queue *q;
	struct held *h;
	int verdict;

	if (cb->data[0] != VFLOOD_ORDER_MAGIC || !qdisc_port_open(&at, sch))
		goto drop;
	e = bpf_map_lookup_elem(&vflood_flows, &o.index);
	/* No longer managed since the tc program looked. */
	if (!e || !e->owner || e->slot != at.slot ||
	    (o.kind != VFLOOD_ORDER_ACK && o.kind != VFLOOD_ORDER_RELEASE &&
	     e->owner != o.c)) {
		if (is_copy)
			goto drop;
		return ready_push(&at, skb, sch, to_free);
	}
	/* A segment that was given up: later data has left. */
	if (o.kind == VFLOOD_ORDER_BARE ||
	    (o.kind == VFLOOD_ORDER_PIECE && !e->splitting))
		return ready_push(&at, skb, sch, to_free);
	if (is_copy && o.kind != VFLOOD_ORDER_SEEN) {
		vflood_flow_take(&at, e);
		order_run(&at, e, &o);
		vflood_flow_unlock(e);
		sch->q.qlen -= at.gone_packets;
		sch->qstats.backlog -= at.gone_bytes;
		goto drop;
	}
	if (o.kind == VFLOOD_ORDER_PIECE) {
		queue = o.index + EK_VFLOOD_FLOWS;
		vflood_flow_take(&at, e);
		piece_held(&at, e, o.index, o.a, o.b);
		vflood_flow_unlock(e);
		verdict = VFLOOD_HOLD;
	} else {
		if (o.kind == VFLOOD_ORDER_WHOLE &&
		    !vflood_flow_takes_whole(&e->flow, &at.vm->vm, settings_of(&at),
					     range(o.a, o.b))) {
			count(at.count, EK_COUNT_VFLOOD_SPLIT, 1);
			skb->cb[QDISC_CB_KIND] = VFLOOD_ORDER_ANEW;
			return ready_push(&at, skb, sch, to_free);
		}
		vflood_flow_take(&at, e);
		verdict = data_verdict(&at, e, o.index, o.a, o.b);
		if (verdict == VFLOOD_HOLD && e->packets == 1)
			vflood_flow_wait(e, range(o.a, o.b), o.kind);
		vflood_flow_unlock(e);
	}
	q = bpf_map_lookup_elem(&queues, &queue);
	if (verdict == VFLOOD_PASS && is_data)
		return ready_push(&at, skb, sch, to_free);
	if (verdict != VFLOOD_HOLD || !q)
		goto drop;
	h = held_new(&at, range(o.a, o.b), o.kind == VFLOOD_ORDER_SEEN ? 0 : bytes,
		     o.kind);
	if (!h) {
		packet_unheld(&at, e, &o);
		goto drop;
	}
	if (o.kind == VFLOOD_ORDER_SEEN) {
		queue_push(q, h);
		goto drop;
	}
	skb = bpf_kptr_xchg(&h->skb, skb);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free);
	queue_push(q, h);
	sch->q.qlen++;
	sch->qstats.backlog += bytes;
	if (o.kind == VFLOOD_ORDER_PIECE && o.b == (u32)(e->splitting >> 32)) {
		vflood_flow_take(&at, e);
		split_done(&at, e, o.index);
		vflood_flow_unlock(e);
		sch->q.qlen -= at.gone_packets;
		sch->qstats.backlog -= at.gone_bytes;
	}
	return NET_XMIT_SUCCESS;
drop:
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

SEC("struct_ops/vflood_qdisc_dequeue")
struct sk_buff *BPF_PROG(vflood_qdisc_dequeue, struct Qdisc *sch)
{
	struct sk_buff *skb = NULL;
	struct qdisc_port at = {};
	u32 port_ifindex;
	struct qdisc_cb *cb;
	struct queue *r;
	struct held *h;

	/* The qdisc is asked twice for each packet, the second time in vain. */
	if (!qdisc_port_find(&at, sch, &port_ifindex))
		return NULL;
	if (at.now_ns >= at.vm->tick_ns) {
		if (!qdisc_port_read(&at, port_ifindex))
			return NULL;
		tick(&at);
		sch->q.qlen -= at.gone_packets;
		sch->qstats.backlog -= at.gone_bytes;
	}
	r = at.vm->ready ? bpf_map_lookup_elem(&ready, &at.slot) : NULL;
	h = r ? queue_pop(r) : NULL;
	if (!h) {
		if (at.vm->first)
			bpf_qdisc_watchdog_schedule(sch, at.vm->tick_ns, 0);
		return NULL;
	}
	at.vm->ready--;
	skb = bpf_kptr_xchg(&h->skb, skb);
	held_put(&at, h);
	if (!skb)
		return NULL;
	cb = (struct qdisc_cb *)skb->cb;
	sch->q.qlen--;
	sch->qstats.backlog -= cb->pkt_len;
	bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

SEC("struct_ops/vflood_qdisc_init")
int BPF_PROG(vflood_qdisc_init, struct Qdisc *sch, struct nlattr *options,
	     struct netlink_ext_ack *extack)
{
	return 0;
}

SEC("struct_ops/vflood_qdisc_reset")
void BPF_PROG(vflood_qdisc_reset, struct Qdisc *sch)
{
	struct qdisc_port at = {};
	struct ek_vflood_flow *e;
	struct queue *r;
	struct held *h;
	u32 index;
	int i;

	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
	if (!qdisc_port_open(&at, sch))
		return;
	bpf_for(i, 0, EK_VFLOOD_FLOWS)
	{
		if (!at.vm->first)
			break;
		index = at.vm->first - 1;
		e = bpf_map_lookup_elem(&vflood_flows, &index);
		if (!e)
			break;
		at.vm->first = e->next;
		e->is_listed = 0;
		queue_drop(&at, e, index);
		vflood_flow_forget(&at, e);
	}
	r = bpf_map_lookup_elem(&ready, &at.slot);
	if (!r)
		return;
	bpf_for(i, 0, VFLOOD_ALL_PACKETS)
	{
		h = queue_pop(r);
		if (!h)
			break;
		held_free(&at, h);
	}
	at.vm->ready = 0;
	r = spares_of(&at);
	if (!r)
		return;
	bpf_for(i, 0, VFLOOD_SPARES)
	{
		h = queue_pop(r);
		if (!h)
			break;
		object_drop(h);
	}
	at.vm->spares = 0;
}

SEC("struct_ops/vflood_qdisc_destroy")
void BPF_PROG(vflood_qdisc_destroy, struct Qdisc *sch)
{
}

SEC(".struct_ops.link")
struct Qdisc_ops evenkeel_hold = {
	.id = EK_VFLOOD_QDISC,
	.enqueue = (void *)vflood_qdisc_enqueue,
	.dequeue = (void *)vflood_qdisc_dequeue,
	.init = (void *)vflood_qdisc_init,
	.reset = (void *)vflood_qdisc_reset,
	.destroy = (void *)vflood_qdisc_destroy,
};

/*
 * Is the flow at a packet's index still the packet's own? One that has ended is, until
 * another has its place, perhaps another VM's.
 */
static __always_inline bool is_of_flow(const struct ek_vflood_flow *e,
				       const struct vflood_order *o)
{
	u64 owner = e->owner;

	return !owner || owner == o->c;
}

/* Only the sequence numbers differ from what from_vm knew when it sent the packet
 * here. */
SEC("netkit/peer")
int split(struct __sk_buff *skb)
{
	struct vflood_order o = VFLOOD_ORDER_READ(skb->cb);
	struct ek_vflood_flow *e;
	u32 hold_ifindex;

	if (skb->cb[0] != VFLOOD_ORDER_MAGIC)
		return TCX_DROP;
	e = bpf_map_lookup_elem(&vflood_flows, &o.index);
	if (!e || !skb_range(skb, o.l4, &o.a, &o.b))
		return TCX_DROP;
	hold_ifindex = e->hold_ifindex;
	barrier_var(hold_ifindex);
	if (!is_of_flow(e, &o))
		return TCX_DROP;
	o.kind = o.kind == VFLOOD_ORDER_SPLIT ? VFLOOD_ORDER_PIECE : VFLOOD_ORDER_DATA;
	vflood_order_write(skb, &o);
	return bpf_redirect(hold_ifindex, 0);
}

SEC("netkit/primary")
int released(struct __sk_buff *skb)
{
	struct vflood_order o = VFLOOD_ORDER_READ(skb->cb);
	struct ek_vflood_flow *e;

	if (skb->cb[0] != VFLOOD_ORDER_MAGIC)
		return TCX_DROP;
	e = bpf_map_lookup_elem(&vflood_flows, &o.index);
	if (!e)
		return TCX_DROP;
	/* A qdisc may not write to what it has held (Linux 7.3): the flow knows it. */
	if (o.kind == VFLOOD_ORDER_WHOLE && e->splitting == range(o.a, o.b)) {
		o.kind = VFLOOD_ORDER_SPLIT;
		vflood_order_write(skb, &o);
	}
	/* Here the packet is already with the pair's other end. */
	if (o.kind == VFLOOD_ORDER_SPLIT || o.kind == VFLOOD_ORDER_ANEW)
		return bpf_redirect(skb->ifindex, 0);
	if (!is_of_flow(e, &o)) {
		if (o.kind == VFLOOD_ORDER_BARE)
			return TCX_DROP;
		o.kind = VFLOOD_ORDER_STRAY;
		vflood_order_write(skb, &o);
	} else if (o.kind == VFLOOD_ORDER_BARE) {
		if (!make_bare(skb, e, o.l4))
			return TCX_DROP;
	} else {
		/* back() notes it. */
		o.c = bring_up_to_date(skb, o.l4, &e->last);
		vflood_order_write(skb, &o);
	}
	/* A container's TCP gives its packets another hash after a timeout
	 * (sk_rethink_txhash() in Linux). CPUs are chosen, and segments joined, by the
	 * flow's own hash. */
	bpf_set_hash_invalid(skb);
	return TCX_PASS;
}

SEC("tcx/ingress")
int back(struct __sk_buff *skb)
{
	struct vflood_order o = VFLOOD_ORDER_READ(skb->cb);
	u32 from = skb->ifindex;
	struct ek_vflood_device *d = bpf_map_lookup_elem(&vflood_devices, &from);
	struct ek_vflood_flow *e;
	u64 now_ns = bpf_ktime_get_ns();
	struct vflood_range data;
	bool is_first;
	u32 join;

	if (skb->cb[0] != VFLOOD_ORDER_MAGIC || !d)
		return TCX_DROP;
	e = bpf_map_lookup_elem(&vflood_flows, &o.index);
	/* To where it came in, whoever has its flow's place by now. */
	if (!e || o.kind == VFLOOD_ORDER_STRAY || e->key.ifindex != d->port_ifindex)
		return bpf_redirect(d->port_ifindex, BPF_F_INGRESS);
	/* from_vm recognizes the ACK by this. */
	if (o.kind == VFLOOD_ORDER_BARE) {
		__sync_fetch_and_add(&e->back_acks, 1);
		return bpf_redirect(d->port_ifindex, BPF_F_INGRESS);
	}
	is_first = vflood_returns_none(&e->returns, vflood_ms(now_ns));
	data.seq = o.a;
	data.end = o.b;
	vflood_returns_note(&e->returns, data, o.c, vflood_ms(now_ns));
	join = join_of(skb, e, &o, is_first, now_ns);
	return join ? bpf_redirect(join, 0) :
		      bpf_redirect(d->port_ifindex, BPF_F_INGRESS);
}

SEC("tcx/ingress")
int joined(struct __sk_buff *skb)
{
	u32 exit = skb->ifindex;
	struct ek_vflood_device *d = bpf_map_lookup_elem(&vflood_devices, &exit);

	return d ? bpf_redirect(d->port_ifindex, BPF_F_INGRESS) : TCX_DROP;
}

char LICENSE[] SEC("license") = "GPL";
