// SPDX-License-Identifier: GPL-2.0
/*
 * The qdisc that holds a VM's packets (vFlood), and the programs of the pair of netkit devices
 * that it sits on:
 *
 *   port -> from_vm -> [split] -> qdisc -> released -> ifb -> port
 *
 * from_vm sends a managed flow's data to the holding device, GSO packets by way of its other
 * end, which splits them. What leaves the qdisc gets the newest ACK and timestamps of the VM:
 * an ifb alone would let no program do that. The ifb brings it back to where it came in, in
 * order on whatever CPU it was let out (a redirect into the port would not), and past from_vm.
 * Orders come in the cb of packets (intf.h, EK_HOLD_MAGIC). One lock, the qdisc's, is over a
 * port's flows and its buffer.
 *
 * Loaded only where some port has vFlood: Linux 6.16 with NET_SCH_BPF and NETKIT.
 */
#include "qdisc.h"
#include "maps.h"
#include "skb.h"

#define HOLD_TICK_NS 50000000ull /* how often what is held is looked after */
#define HOLD_DRAIN_TICK_NS 1000000ull
#define HOLD_DRAIN_PACKETS 10 /* of each flow at each tick */
#define HOLD_RELEASE_PACKETS 4096 /* with one ACK at most */
#define HOLD_ALL_PACKETS (1 << 20) /* more than a buffer has segments */
#define HOLD_READY_PACKETS 8192 /* that wait for the device at most */
#define HOLD_SWEEP_PLACES 16 /* that a tick looks at for flows that are silent */

struct held {
	struct sk_buff __kptr *skb;
	u64 bytes; /* of the skb; 0: there is none, vFlood only observes */
	u64 since_ns;
	u64 range; /* of sequence numbers, see range() */
	struct bpf_list_node node;
};

struct queue {
	struct bpf_spin_lock lock; /* the verifier wants one; nobody waits for it */
	struct bpf_list_head packets list_of(held, node);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EK_VFLOOD_FLOWS);
	__type(key, u32);
	__type(value, struct queue);
} queues SEC(".maps");

/* What may leave, by slot of the port. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EK_MAX_PORTS);
	__type(key, u32);
	__type(value, struct queue);
} ready SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EK_MAX_PORTS);
	__type(key, u32);
	__type(value, struct ek_vflood_vm);
} vflood_vms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, EK_MAX_PORTS);
	__type(key, u32);
	__type(value, struct ek_hold_device);
} hold_devices SEC(".maps");

/* A port, as its qdisc sees it. */
struct place {
	struct ek_port *port;
	struct ek_counters *count;
	struct ek_vflood_vm *vm;
	u32 slot;
	bool may_hold; /* enforced, and the agent is there */
	bool drains; /* something is let out because it may not be held */
	u32 gone_packets; /* freed without having left */
	u32 gone_bytes;
	u64 now_ns;
};

static __always_inline bool place_open(struct place *at, struct Qdisc *sch)
{
	u32 ifindex = (u32)sch->dev_queue->dev->ifindex;
	struct ek_hold_device *d = bpf_map_lookup_elem(&hold_devices, &ifindex);
	u32 zero = 0;
	struct ek_host *h = bpf_map_lookup_elem(&host, &zero);

	if (!d || !h)
		return false;
	at->slot = d->slot;
	at->port = bpf_map_lookup_elem(&ports, &d->port_ifindex);
	at->count = bpf_map_lookup_elem(&counters, &at->slot);
	at->vm = bpf_map_lookup_elem(&vflood_vms, &at->slot);
	if (!at->count || !at->vm)
		return false;
	at->now_ns = bpf_ktime_get_ns();
	at->may_hold = at->port && at->port->vflood.mode == EK_MODE_ENFORCE &&
		       h->agent_until_ns + EK_HOLD_PATIENCE_NS > at->now_ns;
	return true;
}

/* Both sequence numbers in one word: the verifier takes no access across two members. */
static __always_inline u64 range(u32 seq, u32 end)
{
	return (u64)end << 32 | seq;
}

static __always_inline struct held *held_new(u64 range, u64 bytes, u64 now_ns)
{
	struct held *h = object_new(struct held);

	if (!h)
		return NULL;
	h->since_ns = now_ns;
	h->range = range;
	h->bytes = bytes;
	return h;
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
	return node ? object_of(node, struct held, node) : NULL;
}

static __always_inline bool queue_first(struct queue *q, u64 *range)
{
	struct bpf_list_node *node;
	bool is_there = false;

	bpf_spin_lock(&q->lock);
	node = bpf_list_front(&q->packets);
	if (node) {
		*range = object_of(node, struct held, node)->range;
		is_there = true;
	}
	bpf_spin_unlock(&q->lock);
	return is_there;
}

/* Frees a packet, and its skb if it has one. */
static __always_inline void held_free(struct place *at, struct held *h)
{
	struct sk_buff *skb = bpf_kptr_xchg(&h->skb, NULL);
	u32 bytes = (u32)h->bytes;

	object_drop(h);
	if (!skb)
		return;
	at->gone_packets++;
	at->gone_bytes += bytes;
	bpf_kfree_skb(skb);
}

/* The logic: global functions, which the verifier looks at once. */

__weak __noinline int flow_data(struct vflood_flow *f, struct vflood_vm *vm,
				const struct vflood_settings *s, u64 range, u64 now_us)
{
	u32 seq = (u32)range;

	if (!f || !vm || !s)
		return VFLOOD_PASS;
	return vflood_data(f, vm, s, seq, (u32)(range >> 32) - seq, now_us);
}

__weak __noinline int flow_release(struct vflood_flow *f, struct vflood_vm *vm,
				   const struct vflood_settings *s, u64 range, u64 now_us)
{
	u32 seq = (u32)range;

	if (!f || !vm || !s)
		return VFLOOD_HOLD;
	return vflood_release(f, vm, s, seq, (u32)(range >> 32) - seq, now_us);
}

__weak __noinline int flow_acked(struct vflood_flow *f, const struct vflood_settings *s,
				 u64 ack_and_sacked_end, u32 window_and_flags, u64 now_us)
{
	u32 flags = window_and_flags >> 16;

	if (!f || !s)
		return 0;
	vflood_acked(f, s, (u32)ack_and_sacked_end, (u16)window_and_flags,
		     flags & EK_HOLD_ACK_PURE, flags & EK_HOLD_ACK_SACK,
		     (u32)(ack_and_sacked_end >> 32), now_us);
	return 0;
}

__weak __noinline int flow_grant(struct vflood_flow *f, struct vflood_vm *vm,
				 const struct vflood_settings *s)
{
	if (f && vm && s && vflood_is_managed(f))
		vflood_grant(f, vm, s);
	return 0;
}

/* Counts what became of a flow's state. */
static __always_inline void count_state(const struct place *at, const struct vflood_flow *f,
					u8 before)
{
	if (f->state == before)
		return;
	if (f->state == VFLOOD_PACKET_LOSS)
		count(at->count, EK_COUNT_VFLOOD_LOSSES, 1);
	else if (f->state == VFLOOD_NO_BUFFER)
		count(at->count, EK_COUNT_VFLOOD_NO_BUFFER, 1);
}

static __always_inline void flow_list(struct place *at, struct ek_vflood_flow *e, u32 place)
{
	if (e->is_listed)
		return;
	e->is_listed = 1;
	e->next = at->vm->first;
	at->vm->first = place + 1;
}

/* The flow is no longer managed. What it holds must be out. */
static __always_inline void flow_forget(struct place *at, struct ek_vflood_flow *e)
{
	vflood_close(&e->flow, &at->vm->vm);
	e->owner = 0;
}

/* What was held goes to what may leave. Return: 1 if it does, 0 if it was only observed. */
static __always_inline u32 held_out(struct place *at, struct held *h)
{
	struct queue *r = bpf_map_lookup_elem(&ready, &at->slot);

	count(at->count, EK_COUNT_VFLOOD_HELD_US, (at->now_ns - h->since_ns) / 1000);
	if (!r || !h->bytes) {
		held_free(at, h);
		return 0;
	}
	queue_push(r, h);
	at->vm->ready++;
	return 1;
}

/* Lets out what the windows allow. */
static __noinline void queue_release(struct place *at, struct ek_vflood_flow *e, u32 place)
{
	struct queue *q = bpf_map_lookup_elem(&queues, &place);
	u64 first = 0;
	int verdict, i;
	struct held *h;

	if (!q || !at->port)
		return;
	bpf_for(i, 0, HOLD_RELEASE_PACKETS)
	{
		if (!e->packets || !queue_first(q, &first))
			break;
		verdict = flow_release(&e->flow, &at->vm->vm, &at->port->vflood.settings, first,
				       at->now_ns / 1000);
		if (verdict == VFLOOD_HOLD)
			break;
		h = queue_pop(q);
		if (!h)
			break;
		e->packets--;
		if (verdict == VFLOOD_PASS)
			held_out(at, h);
		else
			held_free(at, h);
	}
}

/* Lets out some of what is held, whatever the windows say. */
static __noinline void queue_drain(struct place *at, struct ek_vflood_flow *e, u32 place,
				   u32 packets)
{
	struct queue *q = bpf_map_lookup_elem(&queues, &place);
	struct held *h;
	int i;

	if (!q)
		return;
	bpf_for(i, 0, HOLD_RELEASE_PACKETS)
	{
		if (!e->packets || i >= packets)
			break;
		h = queue_pop(q);
		if (!h) {
			e->packets = 0;
			break;
		}
		e->packets--;
		vflood_drained(&e->flow, &at->vm->vm, (u32)h->range, (u32)(h->range >> 32),
			       at->now_ns / 1000);
		count(at->count, EK_COUNT_VFLOOD_DRAINED, held_out(at, h));
	}
}

/* Drops what is held. */
static __noinline void queue_drop(struct place *at, struct ek_vflood_flow *e, u32 place)
{
	struct queue *q = bpf_map_lookup_elem(&queues, &place);
	struct held *h;
	int i;

	if (!q)
		return;
	bpf_for(i, 0, HOLD_ALL_PACKETS)
	{
		h = queue_pop(q);
		if (!h)
			break;
		held_free(at, h);
	}
	e->packets = 0;
}

/* A flow that holds something is looked after. Return: whether it still holds something. */
static __always_inline bool flow_tick(struct place *at, struct ek_vflood_flow *e, u32 place)
{
	bool is_silent = at->now_ns - e->seen_ns > EK_HOLD_SILENCE_NS;
	bool drains = e->is_enforced ? !at->may_hold : !at->port;

	if (drains || is_silent || e->is_closing) {
		queue_drain(at, e, place, HOLD_DRAIN_PACKETS);
		at->drains = true;
		if (!e->packets)
			flow_forget(at, e);
	}
	return e->packets;
}

/* Flows that are silent are forgotten, a few places at a time. */
static __always_inline void sweep(struct place *at, u32 ifindex)
{
	struct ek_vflood_flow *e;
	u32 place;
	int i;

	bpf_for(i, 0, HOLD_SWEEP_PLACES)
	{
		place = at->vm->hand++ & (EK_VFLOOD_FLOWS - 1);
		e = bpf_map_lookup_elem(&vflood_flows, &place);
		if (e && e->owner && e->hold_ifindex == ifindex && !e->packets &&
		    at->now_ns - e->seen_ns > EK_HOLD_SILENCE_NS)
			flow_forget(at, e);
	}
}

/* Looks after all flows that hold something. */
static __noinline void tick(struct place *at)
{
	u32 next = at->vm->first;
	struct ek_vflood_flow *e;
	u32 place;
	int i;

	at->drains = false;
	at->vm->first = 0;
	bpf_for(i, 0, EK_VFLOOD_FLOWS)
	{
		if (!next)
			break;
		place = next - 1;
		e = bpf_map_lookup_elem(&vflood_flows, &place);
		if (!e)
			break;
		next = e->next;
		e->is_listed = 0;
		if (flow_tick(at, e, place))
			flow_list(at, e, place);
	}
	at->vm->tick_ns = at->now_ns + (at->drains ? HOLD_DRAIN_TICK_NS : HOLD_TICK_NS);
}

/* Data of a managed flow. Return: what is to be done with it. */
static __noinline int data_verdict(struct place *at, struct ek_vflood_flow *e, u32 place,
				   u32 seq, u32 end)
{
	u8 before = e->flow.state;
	u32 vm_end = e->flow.vm_end;
	int verdict;

	e->seen_ns = at->now_ns;
	if (e->is_closing || !at->port || (e->is_enforced && !at->may_hold)) {
		/* Behind what is held until that is out. */
		if (!e->packets) {
			flow_forget(at, e);
			return VFLOOD_PASS;
		}
		verdict = VFLOOD_HOLD;
		e->flow.held_segments += vflood_segments(&e->flow, end - seq);
		at->vm->vm.held_segments += vflood_segments(&e->flow, end - seq);
		e->flow.vm_end = seq_max(vm_end, end);
	} else {
		verdict = flow_data(&e->flow, &at->vm->vm, &at->port->vflood.settings,
				    range(seq, end), at->now_ns / 1000);
	}
	count_state(at, &e->flow, before);
	if (verdict == VFLOOD_HOLD) {
		flow_list(at, e, place);
		e->packets++;
		count(at->count, EK_COUNT_VFLOOD_HELD, 1);
	} else if (verdict == VFLOOD_DROP) {
		count(at->count,
		      seq_after(end, vm_end) ? EK_COUNT_VFLOOD_REFUSED :
					       EK_COUNT_VFLOOD_NEEDLESS,
		      1);
	}
	return verdict;
}

/* An order that comes with a copy: cb[] as intf.h has it. */
struct order {
	u32 place;
	u32 kind;
	u32 word[3];
};

static __noinline void order_run(struct place *at, struct ek_vflood_flow *e,
				 const struct order *o)
{
	struct vflood_settings *set;
	u8 before = e->flow.state;

	if (o->kind == EK_HOLD_RESET) {
		queue_drop(at, e, o->place);
		flow_forget(at, e);
		return;
	}
	if (o->kind == EK_HOLD_CLOSE) {
		e->is_closing = 1;
		if (!e->packets)
			flow_forget(at, e);
		return;
	}
	if (!at->port)
		return;
	set = &at->port->vflood.settings;
	e->seen_ns = at->now_ns;
	if (o->kind == EK_HOLD_ACK) {
		flow_acked(&e->flow, set, (u64)o->word[1] << 32 | o->word[0], o->word[2],
			   at->now_ns / 1000);
		count_state(at, &e->flow, before);
		queue_release(at, e, o->place);
	}
	if (!e->is_closing && (at->may_hold || !e->is_enforced))
		flow_grant(&e->flow, &at->vm->vm, set);
}

/* Puts an skb where it may leave. */
static __always_inline int ready_push(struct place *at, struct sk_buff *skb, struct Qdisc *sch,
				      struct bpf_sk_buff_ptr *to_free)
{
	struct queue *r = bpf_map_lookup_elem(&ready, &at->slot);
	u32 bytes = ((struct qdisc_cb *)skb->cb)->pkt_len;
	struct held *h;

	if (!r || at->vm->ready >= HOLD_READY_PACKETS)
		goto drop;
	h = held_new(0, bytes, at->now_ns);
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

SEC("struct_ops/hold_enqueue")
int BPF_PROG(hold_enqueue, struct sk_buff *skb, struct Qdisc *sch,
	     struct bpf_sk_buff_ptr *to_free)
{
	struct qdisc_cb *cb = (struct qdisc_cb *)skb->cb;
	struct order o = {
		.place = cb->data[1] & (EK_VFLOOD_FLOWS - 1),
		.kind = cb->data[1] >> 16 & 0xff,
		.word = { cb->data[2], cb->data[3], cb->data[4] },
	};
	bool is_copy = o.kind != EK_HOLD_DATA && o.kind != EK_HOLD_BARE;
	u32 bytes = cb->pkt_len;
	struct place at = {};
	struct ek_vflood_flow *e;
	struct queue *q;
	struct held *h;
	int verdict;

	if (cb->data[0] != EK_HOLD_MAGIC || !place_open(&at, sch))
		goto drop;
	e = bpf_map_lookup_elem(&vflood_flows, &o.place);
	/* No longer managed since the tc program looked. */
	if (!e || !e->owner || e->slot != at.slot ||
	    (o.kind != EK_HOLD_ACK && e->owner != o.word[2])) {
		if (is_copy)
			goto drop;
		return ready_push(&at, skb, sch, to_free);
	}
	if (o.kind == EK_HOLD_BARE)
		return ready_push(&at, skb, sch, to_free);
	if (is_copy && o.kind != EK_HOLD_SEEN) {
		order_run(&at, e, &o);
		sch->q.qlen -= at.gone_packets;
		sch->qstats.backlog -= at.gone_bytes;
		goto drop;
	}
	q = bpf_map_lookup_elem(&queues, &o.place);
	if (!q)
		goto drop;
	verdict = data_verdict(&at, e, o.place, o.word[0], o.word[1]);
	if (verdict == VFLOOD_PASS && o.kind == EK_HOLD_DATA)
		return ready_push(&at, skb, sch, to_free);
	if (verdict != VFLOOD_HOLD)
		goto drop;
	h = held_new(range(o.word[0], o.word[1]), o.kind == EK_HOLD_SEEN ? 0 : bytes,
		     at.now_ns);
	if (!h) {
		e->packets--;
		goto drop;
	}
	if (o.kind == EK_HOLD_SEEN) {
		queue_push(q, h);
		goto drop;
	}
	skb = bpf_kptr_xchg(&h->skb, skb);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free);
	queue_push(q, h);
	sch->q.qlen++;
	sch->qstats.backlog += bytes;
	return NET_XMIT_SUCCESS;
drop:
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

SEC("struct_ops/hold_dequeue")
struct sk_buff *BPF_PROG(hold_dequeue, struct Qdisc *sch)
{
	struct sk_buff *skb = NULL;
	struct place at = {};
	struct queue *r;
	struct held *h;

	if (!place_open(&at, sch))
		return NULL;
	r = bpf_map_lookup_elem(&ready, &at.slot);
	if (!r)
		return NULL;
	if (at.now_ns >= at.vm->tick_ns) {
		tick(&at);
		sweep(&at, (u32)sch->dev_queue->dev->ifindex);
	}
	h = queue_pop(r);
	if (!h) {
		if (at.vm->first)
			bpf_qdisc_watchdog_schedule(sch, at.vm->tick_ns, 0);
		return NULL;
	}
	at.vm->ready--;
	skb = bpf_kptr_xchg(&h->skb, skb);
	object_drop(h);
	if (!skb)
		return NULL;
	sch->q.qlen--;
	sch->qstats.backlog -= ((struct qdisc_cb *)skb->cb)->pkt_len;
	bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

SEC("struct_ops/hold_init")
int BPF_PROG(hold_init, struct Qdisc *sch, struct nlattr *options,
	     struct netlink_ext_ack *extack)
{
	return 0;
}

SEC("struct_ops/hold_reset")
void BPF_PROG(hold_reset, struct Qdisc *sch)
{
	struct place at = {};
	struct ek_vflood_flow *e;
	struct queue *r;
	struct held *h;
	u32 place;
	int i;

	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
	if (!place_open(&at, sch))
		return;
	bpf_for(i, 0, EK_VFLOOD_FLOWS)
	{
		if (!at.vm->first)
			break;
		place = at.vm->first - 1;
		e = bpf_map_lookup_elem(&vflood_flows, &place);
		if (!e)
			break;
		at.vm->first = e->next;
		e->is_listed = 0;
		queue_drop(&at, e, place);
		flow_forget(&at, e);
	}
	r = bpf_map_lookup_elem(&ready, &at.slot);
	if (!r)
		return;
	bpf_for(i, 0, HOLD_ALL_PACKETS)
	{
		h = queue_pop(r);
		if (!h)
			break;
		held_free(&at, h);
	}
	at.vm->ready = 0;
}

SEC("struct_ops/hold_destroy")
void BPF_PROG(hold_destroy, struct Qdisc *sch)
{
}

SEC(".struct_ops.link")
struct Qdisc_ops evenkeel_hold = {
	.id = EK_HOLD_QDISC,
	.enqueue = (void *)hold_enqueue,
	.dequeue = (void *)hold_dequeue,
	.init = (void *)hold_init,
	.reset = (void *)hold_reset,
	.destroy = (void *)hold_destroy,
};

/* Of what from_vm knew when it sent the packet here, only the sequence numbers are others. */
SEC("netkit/peer")
int split(struct __sk_buff *skb)
{
	u32 place = skb->cb[1] & (EK_VFLOOD_FLOWS - 1);
	u32 l4 = skb->cb[1] >> 24;
	struct ek_vflood_flow *e;
	u8 head[PACKET_TCP_BYTES];
	u32 seq, bytes;

	if (skb->cb[0] != EK_HOLD_MAGIC)
		return TCX_DROP;
	e = bpf_map_lookup_elem(&vflood_flows, &place);
	if (!e || bpf_skb_load_bytes(skb, l4, head, sizeof(head)))
		return TCX_DROP;
	seq = bpf_ntohl(*(__be32 *)(head + TCP_OFFSET_SEQ));
	bytes = (u32)(head[TCP_OFFSET_FLAGS] >> 4) * 4 + l4;
	if (skb->len < bytes)
		return TCX_DROP;
	skb->cb[2] = seq;
	skb->cb[3] = seq + skb->len - bytes + !!(head[TCP_OFFSET_FLAGS + 1] & PACKET_FIN);
	return bpf_redirect(e->hold_ifindex, 0);
}

/* Writes a word of the TCP header, where it is another. */
static __always_inline void set_word(struct __sk_buff *skb, u32 l4, u32 offset, __be32 from,
				     __be32 to)
{
	if (from == to)
		return;
	if (!bpf_l4_csum_replace(skb, l4 + TCP_OFFSET_CHECK, from, to, 4))
		bpf_skb_store_bytes(skb, l4 + offset, &to, 4, 0);
}

/*
 * What was held tells the other end what the VM has said since: with an older timestamp it
 * would be taken for an old duplicate (PAWS, RFC 7323).
 */
static __always_inline void bring_up_to_date(struct __sk_buff *skb, u32 l4,
					     const struct ek_vflood_last *last)
{
	__be32 head[(PACKET_TCP_BYTES + 12) / 4];
	__be16 window, newest;

	if (bpf_skb_load_bytes(skb, l4, head, sizeof(head)))
		return;
	if (last->has_timestamps && head[5] == bpf_htonl(0x0101080a)) {
		set_word(skb, l4, PACKET_TCP_BYTES + 4, head[6], bpf_htonl(last->ts_val));
		set_word(skb, l4, PACKET_TCP_BYTES + 8, head[7], bpf_htonl(last->ts_ecr));
	}
	if (!seq_after(last->ack, bpf_ntohl(head[2])))
		return;
	set_word(skb, l4, TCP_OFFSET_ACK, head[2], bpf_htonl(last->ack));
	window = (__be16)(head[3] >> 16);
	newest = bpf_htons(last->window);
	if (window != newest &&
	    !bpf_l4_csum_replace(skb, l4 + TCP_OFFSET_CHECK, window, newest, 2))
		bpf_skb_store_bytes(skb, l4 + TCP_OFFSET_WINDOW, &newest, 2, 0);
}

/* Where the IP header begins: behind the tags. */
static __always_inline u32 l3_offset(struct __sk_buff *skb)
{
	__be16 type = 0;
	u32 l3 = PACKET_ETHER_BYTES;
	u32 i;

	for (i = 0; i < PACKET_MAX_VLANS; i++) {
		if (bpf_skb_load_bytes(skb, l3 - 2, &type, 2) ||
		    (type != bpf_htons(0x8100) && type != bpf_htons(0x88a8)))
			break;
		l3 += 4;
	}
	return l3;
}

/* Says in the IP header that @bytes follow the Ethernet header. */
static __always_inline bool set_length(struct __sk_buff *skb, u32 l3, u32 bytes)
{
	__be16 from, to;
	u8 version;

	if (bpf_skb_load_bytes(skb, l3, &version, 1))
		return false;
	if (version >> 4 == 6) {
		to = bpf_htons((u16)(bytes - 40));
		return !bpf_skb_store_bytes(skb, l3 + 4, &to, 2, 0);
	}
	to = bpf_htons((u16)bytes);
	return !bpf_skb_load_bytes(skb, l3 + 2, &from, 2) &&
	       !bpf_l3_csum_replace(skb, l3 + 10, from, to, 2) &&
	       !bpf_skb_store_bytes(skb, l3 + 2, &to, 2, 0);
}

/*
 * Makes a copy of data the ACK that it carries. The checksum covered the data, so that it is
 * made anew, unless it is to be completed later (CHECKSUM_PARTIAL).
 */
static __noinline bool make_bare(struct __sk_buff *skb, const struct ek_vflood_flow *e, u32 l4)
{
	struct sk_buff *kernel_skb = bpf_cast_to_kern_ctx(skb);
	u32 old_bytes = skb->len - l4;
	u32 l3 = l3_offset(skb);
	u64 bytes; /* the verifier follows whole registers */
	u8 head[60] = {};
	__be32 tail;
	s64 sum;
	u16 check;

	if (bpf_skb_load_bytes(skb, l4, head, PACKET_TCP_BYTES))
		return false;
	bytes = (u64)(head[TCP_OFFSET_FLAGS] >> 4) * 4;
	if (bpf_skb_change_tail(skb, l4 + (u32)bytes, 0))
		return false;
	/* One comparison at a time: of both in one the verifier learns nothing. */
	if (bytes > sizeof(head))
		return false;
	barrier_var(bytes);
	if (bytes < PACKET_TCP_BYTES)
		return false;
	barrier_var(bytes);
	if (bpf_skb_load_bytes(skb, l4, head, bytes))
		return false;
	*(__be32 *)(head + TCP_OFFSET_SEQ) = bpf_htonl(e->flow.snd_nxt);
	head[TCP_OFFSET_FLAGS + 1] &= ~(PACKET_PSH | PACKET_FIN);
	if (bpf_skb_store_bytes(skb, l4, head, PACKET_TCP_BYTES, 0) ||
	    !set_length(skb, l3, l4 + (u32)bytes - l3))
		return false;
	if (BPF_CORE_READ_BITFIELD(kernel_skb, ip_summed) == CHECKSUM_PARTIAL)
		return !bpf_l4_csum_replace(skb, l4 + TCP_OFFSET_CHECK,
					    bpf_htons((u16)old_bytes), bpf_htons((u16)bytes),
					    BPF_F_PSEUDO_HDR | 2);
	head[TCP_OFFSET_CHECK] = 0;
	head[TCP_OFFSET_CHECK + 1] = 0;
	tail = bpf_htonl(6u << 16 | (u32)bytes);
	/* Of IPv4's addresses as ::ffff:a.b.c.d, what precedes them adds nothing. */
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&e->key, 32, 0);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)head, sizeof(head), (__wsum)sum);
	sum = bpf_csum_diff(NULL, 0, &tail, sizeof(tail), (__wsum)sum);
	check = (u16)~window_csum_fold((u64)(u32)sum);
	return !bpf_skb_store_bytes(skb, l4 + TCP_OFFSET_CHECK, &check, 2, 0);
}

SEC("netkit/primary")
int released(struct __sk_buff *skb)
{
	u32 place = skb->cb[1] & (EK_VFLOOD_FLOWS - 1);
	u32 kind = skb->cb[1] >> 16 & 0xff;
	u32 l4 = skb->cb[1] >> 24;
	struct ek_vflood_flow *e;

	if (skb->cb[0] != EK_HOLD_MAGIC)
		return TCX_DROP;
	e = bpf_map_lookup_elem(&vflood_flows, &place);
	if (!e)
		return TCX_DROP;
	if (kind == EK_HOLD_BARE) {
		if (!make_bare(skb, e, l4))
			return TCX_DROP;
	} else {
		bring_up_to_date(skb, l4, &e->last);
	}
	return TCX_PASS;
}

SEC("tcx/ingress")
int back(struct __sk_buff *skb)
{
	u32 place = skb->cb[1] & (EK_VFLOOD_FLOWS - 1);
	struct ek_vflood_flow *e;

	if (skb->cb[0] != EK_HOLD_MAGIC)
		return TCX_DROP;
	e = bpf_map_lookup_elem(&vflood_flows, &place);
	if (!e)
		return TCX_DROP;
	skb->mark = EK_MARK_PASS;
	return bpf_redirect(e->key.ifindex, BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "GPL";
