// SPDX-License-Identifier: GPL-2.0
/*
 * Forgets vSnoop's entries of connections that have said nothing for long, also those
 * whose port is gone: on such a connection the VM itself acknowledges. User space runs
 * this by BPF_PROG_TEST_RUN, with enum ek_sweep in cb[].
 */
#include "../base/maps.h"

struct sweep {
	u64 before_ns;
	u32 left;
};

/* For bpf_for_each_map_elem(). Return: 0 to go on. */
static long vsnoop_sweep_flow(void *map, struct ek_flow_key *key,
			      struct ek_vsnoop_flow *s, struct sweep *w)
{
	u32 ifindex = key->ifindex;
	struct ek_port *port = bpf_map_lookup_elem(&ports, &ifindex);
	struct ek_vsnoop_port *state = NULL;
	u32 slot;

	if (port) {
		if (s->last_ns >= w->before_ns) {
			w->left++;
			return 0;
		}
		slot = port->slot;
		state = bpf_map_lookup_elem(&vsnoop_ports, &slot);
	}
	if (state) {
		bpf_spin_lock(&state->lock);
		vsnoop_close(&s->flow, &state->vm);
		bpf_spin_unlock(&state->lock);
	}
	bpf_map_delete_elem(map, key);
	return 0;
}

/* Return: how many entries are left. */
SEC("tc")
int vsnoop_sweep(struct __sk_buff *skb)
{
	u64 now_ns = bpf_ktime_get_ns();
	u64 idle_ns = (u64)skb->cb[EK_SWEEP_MS] * 1000000;
	struct sweep w = {};

	w.before_ns = now_ns > idle_ns ? now_ns - idle_ns : 0;
	bpf_for_each_map_elem(&vsnoop_flows, vsnoop_sweep_flow, &w, 0);
	return (int)w.left;
}

char LICENSE[] SEC("license") = "GPL";
