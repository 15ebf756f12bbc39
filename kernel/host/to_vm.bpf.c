// SPDX-License-Identifier: GPL-2.0
#include "maps.h"

SEC("tcx/egress")
int to_vm(struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex;
	struct ek_port *port = bpf_map_lookup_elem(&ports, &ifindex);
	struct ek_counters *c = bpf_map_lookup_elem(&counters, &ifindex);

	if (!port || !c || port->mode == EK_MODE_OFF)
		return TCX_NEXT;
	count(c, EK_COUNT_PACKETS_TO_VM, 1);
	return TCX_NEXT;
}

char LICENSE[] SEC("license") = "GPL";
