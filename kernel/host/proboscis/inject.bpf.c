// SPDX-License-Identifier: GPL-2.0
/*
 * Sends a frame of an event once more, with probes ahead if wanted. User space
 * runs it by BPF_PROG_TEST_RUN, which gives it the frame, the port and, in cb,
 * the order of enum ek_inject; nothing else ever calls it.
 */
#include "ecn.h"
#include "probe.h"

static __always_inline struct ek_handshake *handshake_of(struct context *c)
{
	struct ek_handshake *h = bpf_map_lookup_elem(&handshakes, c->key);

	return h && h->iss == c->packet->seq ? h : NULL;
}

static __always_inline void note_train(struct context *c, u32 sent)
{
	struct ek_handshake *h = handshake_of(c);

	count(c->count, EK_COUNT_PROBES_SENT, sent);
	if (!h)
		return;
	h->trains++;
	h->probes_sent += (u16)sent;
}

/*
 * The frame passes from_vm, which knows by this note that it has been there before.
 * Return: false if the connection is no longer known, so that nobody waits for the frame.
 */
static __always_inline bool note_frame(struct context *c)
{
	struct ek_handshake *h;
	struct ek_flow *f;

	if (!(c->packet->flags & PACKET_ACK)) {
		h = handshake_of(c);
		if (h) {
			h->is_behind = 1;
			h->syns++;
		}
		return h;
	}
	f = bpf_map_lookup_elem(&flows, c->key);
	if (!f || f->iss != c->packet->ack - 1)
		return false;
	f->flags |= EK_FLOW_SYNACK_RELEASED;
	return true;
}

/*
 * The frame's checksum may be that of the pseudo-header only, which hardware
 * would have completed; here it is completed at once. There is no data.
 */
static __always_inline bool complete_checksum(struct __sk_buff *skb, struct context *c)
{
	const struct packet *p = c->packet;
	u32 at = (u32)p->l4 + TCP_OFFSET_CHECK;
	u64 sum = (u64)tcp_sum(c->head, p->l4, p->tcp_bytes) + 6 + p->tcp_bytes;
	u16 check;
	u32 i;

	/* ::ffff: of IPv4's addresses is a zero to this sum. */
	for (i = 0; i < 16; i += 2)
		sum += (u32)(p->source[i] << 8 | p->source[i + 1]) +
		       (u32)(p->destination[i] << 8 | p->destination[i + 1]);
	check = (u16)~window_csum_fold(sum);
	c->head->bytes[at & (PACKET_HEAD_BYTES - 1)] = (u8)(check >> 8);
	c->head->bytes[(at + 1) & (PACKET_HEAD_BYTES - 1)] = (u8)check;
	check = bpf_htons(check);
	return !bpf_skb_store_bytes(skb, at, &check, 2, 0);
}

/* Return: 0, or 1 if something could not be sent. */
SEC("tc")
int inject(struct __sk_buff *skb)
{
	u32 probes = skb->cb[EK_INJECT_PROBES];
	u32 vlan = skb->cb[EK_INJECT_VLAN];
	struct ek_host *host_settings = this_host();
	struct order o = {};
	struct context c;
	u32 sent = 0;

	/* Before it is read: the tag is part of the connection's key. */
	if (vlan && bpf_skb_vlan_push(skb, bpf_htons((u16)(vlan >> 16)), (u16)vlan))
		return 1;
	if (!context_open(&c, skb, SCRATCH_INJECT) || !context_read(skb, &c, true))
		return 1;
	if (c.packet->payload_bytes || !complete_checksum(skb, &c))
		return 1;
	/* Probes that are sent again are part of the same budget: a flood of SYNs may
	 * have been probed.
	 */
	if (probes)
		probes = train_length(&c, probes);
	if (probes && !budget_take(&c, probes)) {
		count(c.count, EK_COUNT_PROBES_REFUSED, 1);
		probes = 0;
	}
	if (probes && probes <= PROBOSCIS_MAX_PROBES && host_settings) {
		o.iss = c.packet->seq;
		o.type = PROBOSCIS_PROBE;
		o.train = (u8)skb->cb[EK_INJECT_TRAIN];
		o.packets = (u8)probes;
		o.total = (u8)probes;
		o.seen = !!c.port->proboscis.settings.answers;
		o.ecn = PACKET_ECT_0;
		if (probe_send(skb, &c, &o, host_settings, &sent) == PROBE_SPOILT)
			return 1;
		note_train(&c, sent);
	}
	if (!skb->cb[EK_INJECT_FRAME])
		return sent < probes;
	/* A SYN that is no longer known was answered, or the VM sends it again. */
	if (!note_frame(&c) && !(c.packet->flags & PACKET_ACK))
		return 0;
	/* from_vm sees to the rest of a SYN-ACK; a SYN of a VM with ECN stays as it is.
	 */
	if (!(c.packet->flags & PACKET_ACK) && !ecn_bits(c.head, c.packet))
		handshake_set_ect(skb, &c);
	return !!bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "GPL";
