/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a handshake becomes a flow, and how a flow ends.
 *
 * A SYN enters only the table of handshakes and a valid probe only that of
 * trains, so that a flood of either evicts no established flow.
 */
#ifndef EVENKEEL_HOST_BASE_FLOW_H
#define EVENKEEL_HOST_BASE_FLOW_H

#include "known.h"

/* Global, as head_parse() is. */
__weak __noinline int head_options_read(const struct packet_head *h,
					const struct packet *p, struct packet_options *o)
{
	return h && p && o ? packet_parse_options(h, p, o) : false;
}

/* Verifiers without allow_uninit_stack (before Linux 6.3, or where it was not ported
 * back) let a global function have no stack that was never written. */
static __always_inline bool head_options(const struct packet_head *h,
					 const struct packet *p, struct packet_options *o)
{
	*o = (struct packet_options){};
	return head_options_read(h, p, o);
}

/* Global, too: the verifier looks at the arbiter once. */
__weak __noinline int window_decide(const struct window_limits *limits, u32 offered,
				    u32 scale, u32 mss, u16 *field)
{
	return limits && field ? (int)window_arbitrate(limits, (u16)offered, (u8)scale,
						       mss, field) :
				 WINDOW_BY_RECEIVER;
}

static __always_inline void end_read(struct ek_end *end, const struct packet_options *o)
{
	end->mss = o->mss;
	end->wscale = o->wscale == EK_WSCALE_NONE ? EK_WSCALE_NONE :
						    window_scale(o->wscale);
	end->has_timestamps = o->has_timestamps;
}

/* Scale of the windows that @receiver sends, once both have said so. */
static __always_inline u8 flow_scale(const struct ek_flow *f,
				     const struct ek_end *receiver)
{
	if (f->vm.wscale == EK_WSCALE_NONE || f->remote.wscale == EK_WSCALE_NONE)
		return 0;
	return receiver->wscale;
}

/* Bytes of data in a full segment of the flow. */
static __always_inline u32 flow_segment_bytes(const struct ek_flow *f)
{
	u32 mss = f->vm.mss;

	if (!mss || (f->remote.mss && f->remote.mss < mss))
		mss = f->remote.mss;
	return window_segment_bytes(mss,
				    f->vm.has_timestamps && f->remote.has_timestamps);
}

/* Numbers that are off by this may be of packets that others have overtaken. */
#define FLOW_SLACK_BYTES 65536
/* A VM takes no more beyond its window's edge: a packet that GRO has joined. */
#define FLOW_JOINED_BYTES (1u << 20)
/* None of its ACKs is overtaken by one that is further on: a port's queue is shorter. */
#define FLOW_OVERTAKEN_BYTES (1u << 26)

/*
 * Notes what the VM says that it has, and has room for.
 *
 * Return: false if its number is none that this connection's VM can have, which
 * acknowledges nothing beyond what it has offered: it is an earlier connection's, or
 * packets have taken another way.
 */
static __always_inline bool flow_note_window(struct ek_flow *f, const struct packet *p)
{
	u32 most = f->vm_edge - f->vm_ack + FLOW_JOINED_BYTES;

	if ((p->flags & (PACKET_ACK | PACKET_RST)) != PACKET_ACK)
		return true;
	if (p->ack - f->vm_ack + FLOW_OVERTAKEN_BYTES > most + FLOW_OVERTAKEN_BYTES)
		return false;
	if (seq_before(p->ack, f->vm_ack))
		return true;
	f->vm_ack = p->ack;
	f->vm_edge =
		seq_max(f->vm_edge, p->ack + ((u32)p->window << flow_scale(f, &f->vm)));
	return true;
}

/* Is a number of the other end's within the VM's window? */
static __always_inline bool flow_is_in_window(const struct ek_flow *f, u32 seq)
{
	return seq - f->vm_ack <= f->vm_edge - f->vm_ack;
}

/* By how much a segment for the VM is off its window; 0: it has something there, so that
 * the VM's TCP may take it (RFC 9293 §3.4). */
static __always_inline u32 flow_off_bytes(const struct ek_flow *f, const struct packet *p)
{
	u32 end = p->seq + p->payload_bytes + !!(p->flags & PACKET_FIN);

	if (seq_after(p->seq, f->vm_edge))
		return p->seq - f->vm_edge;
	return seq_before(end, f->vm_ack) ? f->vm_ack - end : 0;
}

/*
 * Is a segment so far off that it is no segment of the other end's? One that is sent
 * again may be a whole window behind.
 */
static __always_inline bool flow_is_stray(const struct ek_flow *f, const struct packet *p)
{
	u32 behind = seq_after(p->seq, f->vm_ack) ? 0 : f->vm_edge - f->vm_ack;

	return flow_off_bytes(f, p) > FLOW_SLACK_BYTES + behind;
}

/* A SYN: @h is what was known of it, or new. */
static __always_inline void handshake_start(struct ek_handshake *h,
					    const struct context *c,
					    const struct packet_options *o, bool from_vm)
{
	__builtin_memset(h, 0, sizeof(*h));
	h->syn_ns = c->now_ns;
	h->iss = c->packet->seq;
	end_read(&h->opener, o);
	h->from_vm = from_vm;
	h->syns = !from_vm; /* those from the VM are counted when they leave */
	h->asks_ecn = ecn_asked(ecn_bits(c->head, c->packet));
}

/* A SYN comes again. */
static __always_inline void handshake_again(struct ek_handshake *h,
					    const struct context *c)
{
	enum ecn_mode asked = ecn_asked(ecn_bits(c->head, c->packet));

	if (asked > h->asks_ecn)
		h->asks_ecn = asked;
}

/* Who owns the connection's ECN, by its SYN-ACK. Return: enum ek_flow_flag. */
static __always_inline u32 flow_ecn(const struct context *c, enum ecn_mode asked,
				    const struct packet_options *o)
{
	enum ecn_mode agreed = ecn_agreed(asked, ecn_bits(c->head, c->packet));

	if (agreed == ECN_ACCURATE || o->claims & PACKET_COUNTS_ECN)
		return EK_FLOW_NATIVE_ECN | EK_FLOW_ACCURATE_ECN;
	return agreed == ECN_CLASSIC ? EK_FLOW_NATIVE_ECN : 0;
}

/*
 * A SYN-ACK that answers a SYN makes a flow, and a SYN-ACK that comes again
 * finds it.
 *
 * Return: NULL if neither SYN nor flow is known.
 */
static __noinline struct ek_flow *flow_open(struct context *c, bool synack_from_vm)
{
	u32 iss = c->packet->ack - 1;
	struct packet_options o;
	struct ek_handshake *h;
	struct ek_flow *known;
	struct ek_flow f = {};

	known = bpf_map_lookup_elem(&flows, c->key);
	if (known && known->iss == iss && !is_from_before(c, known->first_ns))
		return known;
	h = handshake_known(c, iss, !synack_from_vm);
	if (!h)
		return NULL;
	if (!head_options(c->head, c->packet, &o))
		return NULL;
	f.first_ns = h->syn_ns;
	f.last_ns = c->now_ns;
	f.iss = iss;
	f.probes_sent = h->probes_sent;
	/* Which of two SYNs was answered would not be known. Only CERA's step ends the
	 * measurement: without it, the age of a flow would be taken for one later. */
	if (h->syns < 2 && c->port->cera.mode != EK_MODE_OFF)
		f.flags |= EK_FLOW_TIMED;
	if (h->is_local)
		f.flags |= EK_FLOW_LOCAL;
	if (h->is_routed)
		f.flags |= EK_FLOW_ROUTED;
	f.flags |= flow_ecn(c, (enum ecn_mode)h->asks_ecn, &o);
	f.synack_seq = c->packet->seq;
	if (synack_from_vm) {
		f.vm_ack = c->packet->ack;
		f.vm_edge = c->packet->ack + c->packet->window;
		end_read(&f.vm, &o);
		f.remote = h->opener;
		proboscis_sender_init(&f.sender, c->packet->seq + 1);
		cera_trip_open(&f.cera_trip, c->packet->seq + 1);
		proboscis_echo_init(&f.echo, c->packet->ack);
	} else {
		f.flags |= EK_FLOW_VM_OPENED;
		/* Its SYN's window is not noted: this is the most that it can be. */
		f.vm_ack = c->packet->seq + 1;
		f.vm_edge = f.vm_ack + 65535;
		/* The SYN's window is in use: a smaller one would take it back. */
		if (h->opens_fast)
			f.flags |= EK_FLOW_ANSWER_BEGUN;
		if (h->reported)
			f.flags |= EK_FLOW_PEER;
		f.vm = h->opener;
		end_read(&f.remote, &o);
		proboscis_sender_init(&f.sender, c->packet->ack);
		cera_trip_open(&f.cera_trip, c->packet->ack);
		proboscis_echo_init(&f.echo, c->packet->seq + 1);
	}
	if (bpf_map_update_elem(&flows, c->key, &f, BPF_ANY)) {
		count(c->count, EK_COUNT_MAP_FULL, 1);
		return NULL;
	}
	count(c->count, EK_COUNT_FLOWS, 1);
	if (f.flags & EK_FLOW_ACCURATE_ECN)
		count(c->count, EK_COUNT_ACCURATE_ECN, 1);
	bpf_map_delete_elem(&handshakes, c->key);
	return bpf_map_lookup_elem(&flows, c->key);
}

/*
 * A SYN-ACK comes once more, if it is not of the tick in which its flow began: which of
 * them is answered will not be known.
 */
static __always_inline void flow_synack_again(const struct context *c, struct ek_flow *f)
{
	if (f->last_ns != c->now_ns)
		f->flags &= ~(u32)EK_FLOW_TIMED;
}

/* Notes whether one end has acknowledged the other's FIN. */
static __always_inline void flow_note_ack(struct ek_flow *f, const struct packet *p,
					  bool from_vm)
{
	if (!(p->flags & PACKET_ACK))
		return;
	if (from_vm && f->flags & EK_FLOW_REMOTE_FIN && p->ack == f->remote_fin_ack)
		f->flags |= EK_FLOW_REMOTE_ENDED;
	if (!from_vm && f->flags & EK_FLOW_VM_FIN && p->ack == f->vm_fin_ack)
		f->flags |= EK_FLOW_VM_ENDED;
}

static __always_inline void flow_note_fin(struct ek_flow *f, const struct packet *p,
					  bool from_vm)
{
	u32 ack = p->seq + p->payload_bytes + 1;

	f->flags |= from_vm ? EK_FLOW_VM_FIN : EK_FLOW_REMOTE_FIN;
	if (from_vm)
		f->vm_fin_ack = ack;
	else
		f->remote_fin_ack = ack;
}

/*
 * A flow is over when each end has all that the other had to say, or one has given it up.
 * Two FINs are not enough: an end that has closed its side early still receives, and
 * much of what it receives can be on its way, or held, behind the other's FIN.
 */
static __always_inline bool flow_is_over(struct context *c, struct ek_flow *f,
					 bool from_vm)
{
	const u32 ended = EK_FLOW_VM_ENDED | EK_FLOW_REMOTE_ENDED;
	const struct packet *p = c->packet;

	/* One from the network may be forged: it counts if the VM could take it. */
	if (p->flags & PACKET_RST)
		return from_vm || flow_is_in_window(f, p->seq);
	if (p->flags & PACKET_FIN && (from_vm || !flow_off_bytes(f, p)))
		flow_note_fin(f, p, from_vm);
	if (!(f->flags & (EK_FLOW_VM_FIN | EK_FLOW_REMOTE_FIN)))
		return false;
	flow_note_ack(f, p, from_vm);
	return (f->flags & ended) == ended;
}

#endif /* EVENKEEL_HOST_BASE_FLOW_H */
