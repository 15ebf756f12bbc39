/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sends probes and reports.
 */
#ifndef EVENKEEL_HOST_PROBOSCIS_PROBE_H
#define EVENKEEL_HOST_PROBOSCIS_PROBE_H

#include "../base/context.h"

/* What is to be sent with the addresses of a packet at hand. */
struct order {
	u32 iss;
	u8 type; /* enum proboscis_type */
	u8 train;
	u8 packets;
	u8 seen; /* the report's numbers; of a SYN's probes: 1 asks for some back */
	u8 marked;
	u8 total;
	u8 ecn; /* enum packet_ecn */
};

static __always_inline struct ek_host *this_host(void)
{
	u32 zero = 0;
	struct ek_host *h = bpf_map_lookup_elem(&host, &zero);

	return h && h->version == EK_INTF_VERSION && h->keys ? h : NULL;
}

static __always_inline struct ek_proboscis_port *
proboscis_port_of(const struct context *c)
{
	u32 slot = c->port->slot;

	return bpf_map_lookup_elem(&proboscis_ports, &slot);
}

/* May this host send @probes for the VM now? Several CPUs may ask at once. */
static __always_inline bool budget_take(struct context *c, u32 probes)
{
	const struct proboscis_settings *set = &c->port->proboscis.settings;
	struct ek_proboscis_port *port = proboscis_port_of(c);
	u64 was, next;
	u32 i;

	if (!port)
		return false;
	was = port->budget_ns;
	for (i = 0; i < 4; i++) {
		u64 seen;

		next = proboscis_budget(set, was, c->now_ns, probes);
		if (!next)
			return false;
		seen = __sync_val_compare_and_swap(&port->budget_ns, was, next);
		if (seen == was)
			return true;
		was = seen;
	}
	return false;
}

/* How many of these probes to send now. Several CPUs may ask at once: then it is a few
 * more. */
static __always_inline u32 train_length(struct context *c, u32 probes)
{
	struct ek_proboscis_port *port = proboscis_port_of(c);

	return port ? proboscis_train_length(&c->port->proboscis.settings,
					     &port->trains_ns, c->now_ns, probes) :
		      0;
}

/* Begins the tag of what is sent with this packet's addresses. */
static __noinline void probe_tag_start(struct siphash *start,
				       const struct siphash_key *key,
				       const struct packet *p, u32 iss)
{
	struct proboscis_path path;

	__builtin_memcpy(path.source, p->source, sizeof(path.source));
	__builtin_memcpy(path.destination, p->destination, sizeof(path.destination));
	path.source_port = p->source_port;
	path.destination_port = p->destination_port;
	path.iss = iss;
	proboscis_tag_start(start, key, &path);
}

/* The sum of an option's words. */
static __always_inline u64 option_sum(const u8 *option)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < PROBOSCIS_OPTION_BYTES; i += 2)
		sum += (u64)option[i] << 8 | option[i + 1];
	return sum;
}

/* The sum of a TCP header's words, without its checksum. A global function, as
 * head_parse(): older verifiers would follow its callers for each of its lengths. */
__weak __noinline int tcp_sum(const struct packet_head *h, u32 l4, u32 bytes)
{
	u64 sum = 0;
	u32 i;

	if (!h)
		return 0;
	for (i = 0; i < 60; i += 2) {
		if (i < bytes && i != TCP_OFFSET_CHECK)
			sum += packet_u16(h, l4 + i);
	}
	return (int)sum;
}

/* Cuts the packet to a header of PROBOSCIS_TCP_BYTES and says so in the IP header. */
static __always_inline bool probe_shape(struct __sk_buff *skb,
					const struct packet_head *h,
					const struct packet *p, u8 ecn)
{
	u32 l3 = p->l3;
	u32 l4 = p->l4;
	u16 old_bytes;
	u16 new_bytes;
	__be16 word;

	if (bpf_skb_change_tail(skb, l4 + PROBOSCIS_TCP_BYTES, 0))
		return false;
	if (p->version == 4) {
		old_bytes = packet_u16(h, l3 + 2);
		new_bytes = (u16)(l4 - l3 + PROBOSCIS_TCP_BYTES);
		word = bpf_htons(new_bytes);
		if (bpf_l3_csum_replace(skb, l3 + 10, bpf_htons(old_bytes), word, 2) ||
		    bpf_skb_store_bytes(skb, l3 + 2, &word, 2, 0))
			return false;
	} else {
		new_bytes = (u16)(l4 - l3 - 40 + PROBOSCIS_TCP_BYTES);
		word = bpf_htons(new_bytes);
		if (bpf_skb_store_bytes(skb, l3 + 4, &word, 2, 0))
			return false;
	}
	return skb_set_ecn(skb, p, packet_u16(h, l3), ecn);
}

/*
 * Moves the TCP checksum on by the difference of two sums. What the helper
 * takes is in network order.
 */
static __always_inline bool probe_checksum(struct __sk_buff *skb, u32 l4, u64 old_sum,
					   u64 new_sum)
{
	u16 difference = window_csum_fold(new_sum + (u16)~window_csum_fold(old_sum));

	return !bpf_l4_csum_replace(skb, l4 + TCP_OFFSET_CHECK, 0, bpf_htons(difference),
				    0);
}

/* What is carried from one packet of a train to the next. */
struct train_state {
	struct __sk_buff *skb;
	struct siphash start; /* of the tags */
	u64 sum; /* of the header that is in the packet */
	u64 header_sum; /* of its part before the option */
	struct proboscis_option option;
	u16 l4;
	u32 sent;
	u8 bytes[PROBOSCIS_OPTION_BYTES];
};

/* For bpf_loop(). Return: 1 to stop. */
static long probe_next(u64 index, void *data)
{
	struct train_state *t = data;
	struct __sk_buff *skb = t->skb;
	u32 l4 = t->l4;
	u64 sum;

	t->option.index = (u8)index;
	proboscis_option_write(t->bytes, &t->option,
			       proboscis_tag(&t->start, &t->option));
	sum = t->header_sum + option_sum(t->bytes);
	if (bpf_skb_store_bytes(skb, l4 + PACKET_TCP_BYTES, t->bytes, sizeof(t->bytes),
				0) ||
	    !probe_checksum(skb, l4, t->sum, sum))
		return 1;
	t->sum = sum;
	/* Into the port once more: a probe takes the SYN's way, through the bridge. */
	if (!bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS))
		t->sent++;
	return 0;
}

/* Writes what follows the ports and precedes the option, except the checksum. */
static __always_inline bool probe_header(struct __sk_buff *skb, const struct packet *p,
					 const struct order *o)
{
	u32 flags = proboscis_flags(o->type, o->train);
	__be32 words[3] = {
		bpf_htonl(o->iss + proboscis_seq_offset(o->type, o->train)),
		0,
		bpf_htonl((u32)PROBOSCIS_TCP_BYTES / 4 << 28 | flags << 16),
	};
	u16 urgent = 0;

	return !bpf_skb_store_bytes(skb, (u32)p->l4 + 4, words, sizeof(words), 0) &&
	       !bpf_skb_store_bytes(skb, (u32)p->l4 + TCP_OFFSET_CHECK + 2, &urgent, 2,
				    0);
}

static __noinline u32 probe_train(struct __sk_buff *skb, struct context *c,
				  const struct order *o, const struct ek_host *h)
{
	const struct packet *p = c->packet;
	u32 seq = o->iss + proboscis_seq_offset(o->type, o->train);
	struct train_state t = {
		.skb = skb,
		.option = {
			.type = o->type,
			.train = o->train,
			.total = o->total,
			.seen = o->seen,
			.marked = o->marked,
		},
		.l4 = p->l4,
	};

	if (!probe_shape(skb, c->head, p, o->ecn) || !probe_header(skb, p, o))
		return 0;
	/* Only the length changes in the pseudo-header, also where the checksum is
	 * partial. */
	if (bpf_l4_csum_replace(skb, p->l4 + TCP_OFFSET_CHECK, bpf_htons(p->tcp_bytes),
				bpf_htons(PROBOSCIS_TCP_BYTES), BPF_F_PSEUDO_HDR | 2))
		return 0;
	probe_tag_start(&t.start, &h->key[0], p, o->iss);
	t.sum = (u64)tcp_sum(c->head, p->l4, p->tcp_bytes);
	t.header_sum =
		(u64)p->source_port + p->destination_port + (seq >> 16) + (u16)seq +
		(PROBOSCIS_TCP_BYTES / 4 << 12 | proboscis_flags(o->type, o->train));
	bpf_loop(o->packets, probe_next, &t, 0);
	return t.sent;
}

/* Makes a packet what it was. Its length is read again: older verifiers forget over a
 * call what it was compared with before. */
static __noinline bool probe_restore(struct __sk_buff *skb, const struct context *c)
{
	const struct packet_head *h = c->head;
	u64 bytes = h->valid; /* the verifier follows whole registers */

	if (bytes < PACKET_ETHER_BYTES || bytes > PACKET_HEAD_BYTES)
		return false;
	return !bpf_skb_change_tail(skb, (u32)bytes, 0) &&
	       !bpf_skb_store_bytes(skb, 0, h->bytes, (u32)bytes, 0);
}

enum probe_result {
	PROBE_UNTOUCHED, /* the packet is as it was, nothing was sent */
	PROBE_SENT, /* the packet is as it was */
	PROBE_SPOILT, /* the packet could not be restored */
};

/**
 * probe_send() - sends an order's packets with the addresses of the one at hand
 *
 * The packet must have no data. It becomes each of them in turn, and then what it was.
 */
static __always_inline enum probe_result probe_send(struct __sk_buff *skb,
						    struct context *c,
						    const struct order *o,
						    const struct ek_host *h, u32 *sent)
{
	u32 bytes = c->head->valid;

	*sent = 0;
	if (c->packet->payload_bytes || c->head->frame_bytes != bytes)
		return PROBE_UNTOUCHED;
	if (bytes < PACKET_ETHER_BYTES || bytes > PACKET_HEAD_BYTES)
		return PROBE_UNTOUCHED;
	*sent = probe_train(skb, c, o, h);
	if (!probe_restore(skb, c)) {
		count(c->count, EK_COUNT_WRITE_FAILED, 1);
		return PROBE_SPOILT;
	}
	if (*sent < o->packets)
		count(c->count, EK_COUNT_PROBES_FAILED, o->packets - *sent);
	return PROBE_SENT;
}

#endif /* EVENKEEL_HOST_PROBOSCIS_PROBE_H */
