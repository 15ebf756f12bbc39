/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tells probes and reports from other packets, whoever has sent them.
 */
#ifndef EVENKEEL_HOST_PROBOSCIS_PROBE_READ_H
#define EVENKEEL_HOST_PROBOSCIS_PROBE_READ_H

#include "probe.h"

/* A probe or a report has this shape; few other packets do. */
static __always_inline bool looks_like_probe(const struct packet *p)
{
	return (p->flags == PACKET_RST || !p->flags) && !p->payload_bytes &&
	       p->tcp_bytes == PROBOSCIS_TCP_BYTES;
}

enum probe_kind {
	PROBE_NONE, /* it has no option of that kind, or nobody could say */
	PROBE_FORGED, /* no key of this cluster's has signed it */
	PROBE_VALID,
};

/* Reads a packet of that shape, and the sequence number of the SYN that it goes with. */
static __noinline enum probe_kind probe_read(struct context *c,
					     struct proboscis_option *o, u32 *iss)
{
	struct ek_host *h = this_host();
	u8 bytes[PROBOSCIS_OPTION_BYTES];
	struct siphash start;
	u64 tag;

	packet_copy(bytes, c->head, (u32)c->packet->l4 + PACKET_TCP_BYTES, sizeof(bytes));
	if (!h || !proboscis_option_read(bytes, o, &tag))
		return PROBE_NONE;
	*iss = c->packet->seq - proboscis_seq_offset(o->type, o->train);
	probe_tag_start(&start, &h->key[0], c->packet, *iss);
	if (proboscis_tag(&start, o) == tag)
		return PROBE_VALID;
	if (h->keys < 2)
		return PROBE_FORGED;
	probe_tag_start(&start, &h->key[1], c->packet, *iss);
	return proboscis_tag(&start, o) == tag ? PROBE_VALID : PROBE_FORGED;
}

#endif /* EVENKEEL_HOST_PROBOSCIS_PROBE_READ_H */
