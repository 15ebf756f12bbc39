/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where a VM's packet goes next: over the bridge to somebody else, or to this host
 * itself, which routes it then and may translate its addresses.
 *
 * Connection tracking translates what belongs to a connection. Probes go ahead of the
 * SYN, so they belong to none, and would leave the host with the VM's own addresses.
 */
#ifndef EVENKEEL_HOST_BASE_HOP_H
#define EVENKEEL_HOST_BASE_HOP_H

#include "read.h"
#include "context.h"

#define HOP_DEVICES 32 /* on a bridge: VLANs, macvlans */

/* Does this kernel have all that is read below? */
static __always_inline bool hop_is_readable(void)
{
	return bpf_core_field_exists(struct net_device, adj_list.upper) &&
	       bpf_core_field_exists(struct net_device, dev_addr) &&
	       bpf_core_field_exists(struct netdev_adjacent, dev) &&
	       bpf_core_field_exists(struct netdev_adjacent, list);
}

static __always_inline bool hop_has_address(const struct net_device *dev, const u8 *mac)
{
	const unsigned char *address = BPF_CORE_READ(dev, dev_addr);
	u8 own[6] = {};
	u32 i;

	bpf_probe_read_kernel(own, sizeof(own), address);
	for (i = 0; i < sizeof(own); i++) {
		if (own[i] != mac[i])
			return false;
	}
	return true;
}

/*
 * Is this the address of a device that stands on @dev? @last: one of them, if there is
 * any.
 *
 * Return: whether it is, or may be, as there are more devices than are looked at.
 */
static __noinline bool hop_is_above(struct net_device *dev, const u8 *mac, u32 most,
				    struct net_device **last)
{
	void *head = (u8 *)dev + bpf_core_field_offset(struct net_device, adj_list.upper);
	struct list_head *at = BPF_CORE_READ(dev, adj_list.upper.next);
	struct netdev_adjacent *a;
	u32 i;

	for (i = 0; i < HOP_DEVICES; i++) {
		if (!at || (void *)at == head)
			return false;
		if (i >= most)
			break;
		a = (void *)((u8 *)at -
			     bpf_core_field_offset(struct netdev_adjacent, list));
		*last = BPF_CORE_READ(a, dev);
		if (!*last || hop_has_address(*last, mac))
			return true;
		at = BPF_CORE_READ(at, next);
	}
	return true;
}

/*
 * Does this host route the packet? Yes, if that is uncertain. A port belongs to one
 * bridge, on which VLANs and other devices may stand.
 */
static __noinline bool hop_is_this_host(struct __sk_buff *skb, const struct context *c)
{
	struct net_device *bridge = NULL;
	struct net_device *other = NULL;
	u8 mac[6];

	/* It is for the port's own address. */
	if (skb->pkt_type == PACKET_HOST || !hop_is_readable())
		return true;
	packet_copy(mac, c->head, 0, sizeof(mac));
	if (hop_is_above(skb_device(skb), mac, 1, &bridge))
		return true;
	return bridge && hop_is_above(bridge, mac, HOP_DEVICES, &other);
}

#endif /* EVENKEEL_HOST_BASE_HOP_H */
