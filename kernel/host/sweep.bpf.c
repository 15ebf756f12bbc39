// SPDX-License-Identifier: GPL-2.0
/*
 * Forgets connections that have said nothing for long. User space runs these by
 * BPF_PROG_TEST_RUN, with the time in ms in cb[0].
 *
 * sweep: vSnoop's entries, also those whose port is gone. A connection that is
 * forgotten is acknowledged by its VM.
 *
 * silent: vFlood's, which hold nothing. Each is ended under the lock of its port's
 * qdisc, which the order to do so is sent to. What it sends from then on passes.
 */
#include "hold_turn.h"

struct sweep {
	u64 before_ns;
	u32 left;
};

/* For bpf_for_each_map_elem(). Return: 0 to go on. */
static long sweep_entry(void *map, struct ek_flow_key *key, struct ek_snoop *s, struct sweep *w)
{
	u32 ifindex = key->ifindex;
	struct ek_port *port = bpf_map_lookup_elem(&ports, &ifindex);
	struct ek_snoop_port *state = NULL;
	u32 slot;

	if (port) {
		if (s->last_ns >= w->before_ns) {
			w->left++;
			return 0;
		}
		slot = port->slot;
		state = bpf_map_lookup_elem(&snoop_ports, &slot);
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
int sweep(struct __sk_buff *skb)
{
	u64 now_ns = bpf_ktime_get_ns();
	u64 idle_ns = (u64)skb->cb[0] * 1000000;
	struct sweep w = {};

	w.before_ns = now_ns > idle_ns ? now_ns - idle_ns : 0;
	bpf_for_each_map_elem(&snoops, sweep_entry, &w, 0);
	return (int)w.left;
}

struct silence {
	struct __sk_buff *skb;
	u64 now_ns;
	u64 ns;
	u32 left; /* flows that may be ended yet */
};

/* For bpf_for_each_map_elem(). Return: 0 to go on. */
static long silent_flow(void *map, u32 *place, struct ek_vflood_flow *e, struct silence *s)
{
	if (!e->owner || e->owner == HOLD_CLAIMED || e->packets ||
	    !flow_is_silent(e, s->now_ns, s->ns))
		return 0;
	hold_say(s->skb, *place | EK_HOLD_CLOSE << 16, 0, 0, (u32)e->owner);
	/* The order is dropped when it has been read, which is no error. */
	if (bpf_clone_redirect(s->skb, e->hold_ifindex, 0) < 0)
		return 0;
	return !--s->left;
}

/* At most cb[1] flows. Return: how many were ended. */
SEC("tc")
int silent(struct __sk_buff *skb)
{
	struct silence s = {
		.skb = skb,
		.now_ns = bpf_ktime_get_ns(),
		.ns = (u64)skb->cb[0] * 1000000,
		.left = skb->cb[1],
	};
	u32 most = s.left;

	bpf_for_each_map_elem(&vflood_flows, silent_flow, &s, 0);
	return (int)(most - s.left);
}

char LICENSE[] SEC("license") = "GPL";
