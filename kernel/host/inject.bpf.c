// SPDX-License-Identifier: GPL-2.0
/*
 * Sends a frame of an event once more, with probes ahead if wanted. User space
 * runs it by BPF_PROG_TEST_RUN, which gives it the frame, the port and, in cb,
 * the order of enum ek_inject; nothing else ever calls it.
 */
#include "probe.h"

static __always_inline void note_train(struct context *c, u32 sent)
{
	struct ek_handshake *h = bpf_map_lookup_elem(&handshakes, c->key);

	count(c->count, EK_COUNT_PROBES_SENT, sent);
	if (!h || h->iss != c->packet->seq)
		return;
	h->trains++;
	h->probes_sent += (u16)sent;
}

/* Return: 0, or 1 if something could not be sent. */
SEC("tc")
int inject(struct __sk_buff *skb)
{
	u32 probes = skb->cb[EK_INJECT_PROBES];
	u32 vlan = skb->cb[EK_INJECT_VLAN];
	u32 ifindex = skb->ifindex;
	struct ek_host *host_settings = this_host();
	struct order o = {};
	struct context c;
	u32 sent = 0;

	if (!context_open(&c, ifindex, SCRATCH_INJECT) || !context_read(skb, &c, true))
		return 1;
	if (vlan && bpf_skb_vlan_push(skb, bpf_htons((u16)(vlan >> 16)), (u16)vlan))
		return 1;
	if (probes && probes <= PROBOSCIS_MAX_PROBES && host_settings) {
		o.iss = c.packet->seq;
		o.type = PROBOSCIS_PROBE;
		o.train = (u8)skb->cb[EK_INJECT_TRAIN];
		o.packets = (u8)probes;
		o.total = (u8)probes;
		o.ecn = PACKET_ECT_0;
		if (probe_send(skb, &c, &o, host_settings, &sent) == PROBE_SPOILT)
			return 1;
		note_train(&c, sent);
	}
	if (!skb->cb[EK_INJECT_FRAME])
		return sent < probes;
	skb->mark = c.packet->flags & PACKET_ACK ? EK_MARK_RELEASED : EK_MARK_PASS;
	return !!bpf_clone_redirect(skb, ifindex, BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "GPL";
