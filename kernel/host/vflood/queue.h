/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the qdisc that holds packets keeps (qdisc.bpf.c): each flow's packets, and those
 * that may leave, with what algo/vflood/vflood.h decides about them.
 */
#ifndef EVENKEEL_HOST_VFLOOD_QUEUE_H
#define EVENKEEL_HOST_VFLOOD_QUEUE_H

#include "kernel.h"
#include "../base/maps.h"
#include "turn.h"

#define VFLOOD_RELEASE_PACKETS 4096 /* with one ACK at most */
#define VFLOOD_SPARES 256 /* that a port keeps at most */
#define VFLOOD_TURNS                                                                     \
	100000 /* looks for a flow that is taken: longer than any has a right to         \
		*/

struct held {
	struct sk_buff __kptr *skb;
	u64 bytes; /* of the skb; 0: there is none, vFlood only observes */
	u64 since_ns;
	u64 range; /* of sequence numbers, see range() */
	u64 kind; /* enum vflood_order_kind, as it came */
	struct bpf_list_node node;
};

struct queue {
	struct bpf_spin_lock lock; /* the verifier wants one; nobody waits for it */
	struct bpf_list_head packets list_of(held, node);
};

/* By flow; EK_VFLOOD_FLOWS further on, the segments of its first packet, once split. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * EK_VFLOOD_FLOWS);
	__type(key, u32);
	__type(value, struct queue);
} queues SEC(".maps");

/*
 * Packets that may leave, by slot of the port; EK_MAX_PORTS further on, spare entries for
 * the next ones. Freed at once, every few dozen entries would cost the host a grace
 * period of RCU.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * EK_MAX_PORTS);
	__type(key, u32);
	__type(value, struct queue);
} ready SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 3 * EK_MAX_PORTS);
	__type(key, u32);
	__type(value, struct ek_vflood_device);
} vflood_devices SEC(".maps");

/* Whose qdisc is it? */
static __always_inline bool qdisc_port_find(struct qdisc_port *at, struct Qdisc *sch,
					    u32 *port_ifindex)
{
	u32 ifindex = (u32)sch->dev_queue->dev->ifindex;
	struct ek_vflood_device *d = bpf_map_lookup_elem(&vflood_devices, &ifindex);

	if (!d)
		return false;
	at->slot = d->slot;
	at->vm = bpf_map_lookup_elem(&vflood_queues, &at->slot);
	at->now_ns = bpf_ktime_get_ns();
	*port_ifindex = d->port_ifindex;
	return at->vm;
}

/* Reads everything else of a port that was found. */
static __always_inline bool qdisc_port_read(struct qdisc_port *at, u32 port_ifindex)
{
	u32 zero = 0;
	struct ek_host *h = bpf_map_lookup_elem(&host, &zero);

	at->port = bpf_map_lookup_elem(&ports, &port_ifindex);
	at->count = bpf_map_lookup_elem(&counters, &at->slot);
	at->state = bpf_map_lookup_elem(&vflood_ports, &at->slot);
	if (!h || !at->count || !at->state)
		return false;
	at->may_hold = at->port && vflood_is_on(h, at->port, at->now_ns);
	return true;
}

static __always_inline bool qdisc_port_open(struct qdisc_port *at, struct Qdisc *sch)
{
	u32 port_ifindex;

	return qdisc_port_find(at, sch, &port_ifindex) &&
	       qdisc_port_read(at, port_ifindex);
}

static __always_inline struct vflood_settings *settings_of(struct qdisc_port *at)
{
	return at->port ? &at->port->vflood.settings : NULL;
}

/* Both sequence numbers in one word: the verifier takes no access across two members. */
static __always_inline u64 range(u32 seq, u32 end)
{
	return (u64)end << 32 | seq;
}

static __always_inline void queue_push(struct queue *q, struct held *h)
{
	bpf_spin_lock(&q->lock);
	bpf_list_push_back_impl(&q->packets, &h->node, NULL, 0);
	bpf_spin_unlock(&q->lock);
}

static __always_inline struct held *queue_pop(struct queue *q)
{
	struct bpf_list_node *node;

	bpf_spin_lock(&q->lock);
	node = bpf_list_pop_front(&q->packets);
	bpf_spin_unlock(&q->lock);
	if (!node)
		return NULL;
	barrier_var(node); /* no arithmetic before that check */
	return object_of(node, struct held, node);
}

static __always_inline struct queue *spares_of(const struct qdisc_port *at)
{
	u32 index = at->slot + EK_MAX_PORTS;

	return bpf_map_lookup_elem(&ready, &index);
}

static __always_inline struct held *held_new(struct qdisc_port *at, u64 range, u64 bytes,
					     u64 kind)
{
	struct queue *spares = at->vm->spares ? spares_of(at) : NULL;
	struct held *h = NULL;

	if (spares) {
		h = queue_pop(spares);
		at->vm->spares--;
	}
	if (!h)
		h = object_new(struct held);
	if (!h)
		return NULL;
	h->since_ns = at->now_ns;
	h->range = range;
	h->bytes = bytes;
	h->kind = kind;
	return h;
}

/* Takes back an entry that has no packet any more. */
static __always_inline void held_put(struct qdisc_port *at, struct held *h)
{
	struct queue *spares = at->vm->spares < VFLOOD_SPARES ? spares_of(at) : NULL;

	if (!spares) {
		object_drop(h);
		return;
	}
	queue_push(spares, h);
	at->vm->spares++;
}

static __always_inline bool queue_first(struct queue *q, u64 *range, u64 *kind)
{
	struct bpf_list_node *node;
	bool is_there = false;

	bpf_spin_lock(&q->lock);
	node = bpf_list_front(&q->packets);
	if (node) {
		*range = object_of(node, struct held, node)->range;
		*kind = object_of(node, struct held, node)->kind;
		is_there = true;
	}
	bpf_spin_unlock(&q->lock);
	return is_there;
}

/* The queue that the flow's next packet stands in: pieces of an earlier one go first. */
static __always_inline struct queue *queue_next(const struct ek_vflood_flow *e, u32 index)
{
	if (e->pieces)
		index += EK_VFLOOD_FLOWS;
	return bpf_map_lookup_elem(&queues, &index);
}

/* Takes the flow's next packet out. */
static __noinline struct held *vflood_flow_pop(struct ek_vflood_flow *e, u32 index)
{
	struct queue *q = queue_next(e, index);
	struct held *h;

	if (!q)
		return NULL;
	e->first = 0;
	h = queue_pop(q);
	if (!h) {
		/* Something was counted that is not there. */
		if (!e->pieces)
			e->packets = 0;
		e->pieces = 0;
		return NULL;
	}
	if (e->pieces)
		e->pieces--;
	if (e->packets)
		e->packets--;
	return h;
}

/* Adds what to_vm has promised to the port's account. */
static __always_inline void vflood_take_over(struct ek_vflood_queue *vm)
{
	if (vm->promised_by_acks)
		vm->vm.promised_segments +=
			(u32)__sync_lock_test_and_set(&vm->promised_by_acks, 0);
}

/*
 * Waits for a flow that another CPU works on, some hundred instructions. A CPU that
 * stands still meanwhile is not waited for: then the two count one segment less.
 */
static __noinline void vflood_flow_take(struct qdisc_port *at, struct ek_vflood_flow *e)
{
	int i;

	if (!vflood_flow_trylock(e)) {
		bpf_for(i, 0, VFLOOD_TURNS)
		{
			if (vflood_flow_trylock(e))
				break;
		}
	}
	at->now_ns = vflood_flow_now(e, at->now_ns);
	vflood_take_over(at->vm);
}

/* Frees a packet, and its skb if it has one. */
static __always_inline void held_free(struct qdisc_port *at, struct held *h)
{
	struct sk_buff *skb = bpf_kptr_xchg(&h->skb, NULL);
	u32 bytes = (u32)h->bytes;

	held_put(at, h);
	if (!skb)
		return;
	at->gone_packets++;
	at->gone_bytes += bytes;
	bpf_kfree_skb(skb);
}

/* The logic: global functions, which the verifier looks at once. */

__weak __noinline int vflood_flow_data(struct vflood_flow *f, struct vflood_vm *vm,
				       const struct vflood_settings *s, u64 range,
				       u64 now_us)
{
	struct vflood_range data = { .seq = (u32)range, .end = (u32)(range >> 32) };

	if (!f || !vm || !s)
		return VFLOOD_PASS;
	return vflood_data(f, vm, s, data, now_us);
}

__weak __noinline int vflood_flow_release(struct vflood_flow *f, struct vflood_vm *vm,
					  const struct vflood_settings *s, u64 range,
					  u64 now_us)
{
	struct vflood_range data = { .seq = (u32)range, .end = (u32)(range >> 32) };

	if (!f || !vm || !s)
		return VFLOOD_HOLD;
	return vflood_release(f, vm, s, data, now_us);
}

__weak __noinline int vflood_flow_taken_out(struct vflood_flow *f, struct vflood_vm *vm,
					    u64 range)
{
	if (f && vm)
		vflood_taken_out(f, vm, (u32)(range >> 32) - (u32)range);
	return 0;
}

__weak __noinline int vflood_flow_unheld(struct vflood_flow *f, struct vflood_vm *vm,
					 u64 range)
{
	struct vflood_range data = { .seq = (u32)range, .end = (u32)(range >> 32) };

	if (f && vm)
		vflood_unheld(f, vm, data);
	return 0;
}

__weak __noinline int vflood_flow_takes_whole(struct vflood_flow *f, struct vflood_vm *vm,
					      const struct vflood_settings *s, u64 range)
{
	u32 seq = (u32)range;

	return f && vm && s &&
	       vflood_takes_whole(f, vm, s, seq, (u32)(range >> 32) - seq);
}

static __always_inline void vflood_flow_list(struct qdisc_port *at,
					     struct ek_vflood_flow *e, u32 index)
{
	if (e->is_listed)
		return;
	e->is_listed = 1;
	e->next = at->vm->first;
	at->vm->first = index + 1;
}

/* The flow is no longer managed. What it holds must be out. */
static __always_inline void vflood_flow_forget(struct qdisc_port *at,
					       struct ek_vflood_flow *e)
{
	vflood_close(&e->flow, &at->vm->vm);
	e->splitting = 0;
	if (e->owner)
		vflood_count_managed(at->slot, -1);
	e->owner = 0;
}

/* Counts how long a packet's segments have waited. */
static __always_inline void
count_waited(struct qdisc_port *at, const struct ek_vflood_flow *e, const struct held *h)
{
	u32 bytes = (u32)(h->range >> 32) - (u32)h->range;

	count(at->count, EK_COUNT_VFLOOD_HELD_US,
	      time_since(at->now_ns, h->since_ns) / 1000 *
		      vflood_segments(&e->flow, bytes));
}

/* Moves a held packet to those that may leave. Return: 1 if it does, 0 if it was only
 * observed.
 */
static __always_inline u32 held_out(struct qdisc_port *at, const struct ek_vflood_flow *e,
				    struct held *h)
{
	struct queue *r = bpf_map_lookup_elem(&ready, &at->slot);

	count_waited(at, e, h);
	if (!r || !h->bytes) {
		held_free(at, h);
		return 0;
	}
	queue_push(r, h);
	at->vm->ready++;
	return 1;
}

/* May the flow's next packet leave? For one of several segments, as
 * vflood_release_whole(), whose call of vflood_release() is a global function here. */
static __always_inline int next_verdict(struct qdisc_port *at, struct ek_vflood_flow *e,
					u64 first, u64 kind)
{
	struct vflood_settings *set = &at->port->vflood.settings;
	u32 seq = (u32)first;

	if (kind != VFLOOD_ORDER_WHOLE || vflood_fits(&e->flow, (u32)(first >> 32) - seq))
		return vflood_flow_release(&e->flow, &at->vm->vm, set, first,
					   at->now_ns / 1000);
	return VFLOOD_HOLD;
}

/*
 * Sends the flow's first packet to be split. Nothing of the flow leaves until its
 * segments have come back, into a queue of their own.
 */
static __noinline void queue_split(struct qdisc_port *at, struct ek_vflood_flow *e,
				   u32 index)
{
	struct queue *r = bpf_map_lookup_elem(&ready, &at->slot);
	struct queue *q = bpf_map_lookup_elem(&queues, &index);
	struct held *h;

	if (!r || !q)
		return;
	e->first = 0;
	h = queue_pop(q);
	if (!h)
		return;
	count_waited(at, e, h);
	e->splitting = h->range;
	e->splitting_ns = at->now_ns;
	queue_push(r, h);
	at->vm->ready++;
	count(at->count, EK_COUNT_VFLOOD_SPLIT, 1);
}

/* Notes what is the flow's next packet to leave: to_vm asks whether it may. */
static __always_inline void vflood_flow_wait(struct ek_vflood_flow *e, u64 range,
					     u64 kind)
{
	e->first = range;
	e->first_kind = kind;
}

/* Lets out what the windows allow. */
static __noinline void queue_release(struct qdisc_port *at, struct ek_vflood_flow *e,
				     u32 index)
{
	u64 first = 0, kind = 0;
	struct queue *q;
	struct held *h;
	int verdict, i;

	/* A loop that takes no turn costs three calls. */
	if (!at->port || !e->packets)
		return;
	bpf_for(i, 0, VFLOOD_RELEASE_PACKETS)
	{
		if (!e->packets || e->splitting)
			break;
		q = queue_next(e, index);
		if (!q || !queue_first(q, &first, &kind))
			break;
		verdict = next_verdict(at, e, first, kind);
		if (verdict == VFLOOD_HOLD) {
			if (kind == VFLOOD_ORDER_WHOLE &&
			    vflood_flow_splits(&e->flow, &at->port->vflood.settings,
					       first))
				queue_split(at, e, index);
			else
				vflood_flow_wait(e, first, kind);
			break;
		}
		h = vflood_flow_pop(e, index);
		if (!h)
			break;
		if (verdict == VFLOOD_PASS)
			held_out(at, e, h);
		else
			held_free(at, h);
	}
}

/* The packet that was sent to be split has come back as segments. */
static __noinline void split_done(struct qdisc_port *at, struct ek_vflood_flow *e,
				  u32 index)
{
	vflood_flow_taken_out(&e->flow, &at->vm->vm, e->splitting);
	e->splitting = 0;
	if (e->packets)
		e->packets--;
	queue_release(at, e, index);
}

#endif /* EVENKEEL_HOST_VFLOOD_QUEUE_H */
