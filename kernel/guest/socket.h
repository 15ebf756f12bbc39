/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What both guest programs use of sockets and counters.
 */
#ifndef EVENKEEL_GUEST_SOCKET_H
#define EVENKEEL_GUEST_SOCKET_H

#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "intf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ek_guest_counters);
} counters SEC(".maps");

static __always_inline void count(enum ek_guest_count what)
{
	u32 zero = 0;
	struct ek_guest_counters *c = bpf_map_lookup_elem(&counters, &zero);

	if (c)
		c->value[what]++;
}

static __always_inline struct tcp_sock *tcp_sk(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline u8 ca_state(struct tcp_sock *tp)
{
	struct inet_connection_sock *icsk = &tp->inet_conn;

	return BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state);
}

/* Only the congestion window bounds it, not the application nor the peer's window. */
static __always_inline bool uses_window(struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited);
}

#endif /* EVENKEEL_GUEST_SOCKET_H */
