// SPDX-License-Identifier: GPL-2.0
/*
 * CERA's client: a pass over all TCP sockets. It sets the window of each socket that
 * sends, by the socket's share of what the host has for this guest.
 *
 * Nothing but a congestion control can set a window. So a socket is given one that
 * does nothing else, and at once its own again, all under the socket's lock: its
 * own algorithm begins a new period of growth at the window that was set, and
 * no program is in its path.
 */
#include "../socket.h"

#include "algo/cera/cera.h"
#include "algo/congestion/congestion.h"

char LICENSE[] SEC("license") = "GPL";

/* The kernel's Reno, should a socket ever stay with this algorithm. */
extern u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

#define RECENT_JIFFIES 2

/*
 * Algorithms have one name in all network namespaces: before it loads, the agent appends
 * its own namespace's to this name, here and below.
 */
#define SETTER "ek_cera"
const volatile char setter_name[TCP_CA_NAME_MAX] = SETTER;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ek_guest_share);
} share SEC(".maps");

/* Not socket storage: the kernel (7.2) refuses to make it in some of these places. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, EK_GUEST_MAX_LIMITED);
	__type(key, u64);
	__type(value, struct ek_guest_limited);
} limited SEC(".maps");

static __always_inline struct ek_guest_share *share_now(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&share, &zero);
}

/* Sets what the pass has decided on for the socket at hand. */
SEC("struct_ops")
void BPF_PROG(setter_init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ek_guest_share *s = share_now();

	if (!s)
		return;
	tp->snd_ssthresh = s->pending_ssthresh;
	if (s->pending_cwnd) {
		tp->snd_cwnd = s->pending_cwnd;
		tp->snd_cwnd_cnt = 0;
	}
}

SEC("struct_ops")
u32 BPF_PROG(setter_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

SEC("struct_ops")
void BPF_PROG(setter_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SEC("struct_ops")
u32 BPF_PROG(setter_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops setter = {
	.init = (void *)setter_init,
	.ssthresh = (void *)setter_ssthresh,
	.cong_avoid = (void *)setter_cong_avoid,
	.undo_cwnd = (void *)setter_undo_cwnd,
	.name = SETTER,
};

static const char cubic_name[TCP_CA_NAME_MAX] = "cubic";
static const char reno_name[TCP_CA_NAME_MAX] = "reno";
static const char vflood_name[TCP_CA_NAME_MAX] = "vflood";

static __always_inline bool is_name(const char *name, const char *other)
{
	const u64 *a = (const u64 *)name, *b = (const u64 *)other;

	return a[0] == b[0];
}

static __always_inline bool has_peer_here(const struct sock_common *skc)
{
	if (skc->skc_family == AF_INET)
		return (u8)skc->skc_daddr == 127 || skc->skc_daddr == skc->skc_rcv_saddr;
	return skc->skc_v6_daddr.in6_u.u6_addr32[0] ==
		       skc->skc_v6_rcv_saddr.in6_u.u6_addr32[0] &&
	       skc->skc_v6_daddr.in6_u.u6_addr32[1] ==
		       skc->skc_v6_rcv_saddr.in6_u.u6_addr32[1] &&
	       skc->skc_v6_daddr.in6_u.u6_addr32[2] ==
		       skc->skc_v6_rcv_saddr.in6_u.u6_addr32[2] &&
	       skc->skc_v6_daddr.in6_u.u6_addr32[3] ==
		       skc->skc_v6_rcv_saddr.in6_u.u6_addr32[3];
}

/* Each word to or from the host would take a flow's part from all others. */
static __always_inline bool is_channel(const struct sock_common *skc,
				       const struct ek_guest_share *s)
{
	return s->channel_port && skc->skc_num == s->channel_port;
}

static __always_inline bool may_send(u8 state)
{
	return state == TCP_ESTABLISHED || state == TCP_CLOSE_WAIT ||
	       state == TCP_FIN_WAIT1 || state == TCP_CLOSING || state == TCP_LAST_ACK;
}

/*
 * The socket has data to send or on its way, or had a moment ago: else it would be
 * forgotten between two of its windows, and the others given its part.
 */
static __always_inline bool is_active(const struct tcp_sock *tp)
{
	return tp->write_seq != tp->snd_una ||
	       (u32)bpf_jiffies64() - tp->lsndtime <= RECENT_JIFFIES;
}

static __always_inline bool change(struct tcp_sock *tp, bool to_reno)
{
	if (to_reno)
		return !bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, (void *)reno_name, 4);
	return !bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, (void *)cubic_name, 5);
}

/* Of the last minutes, as tcp_min_rtt() has it; 0: not known. */
static __always_inline u32 least_rtt_us(const struct tcp_sock *tp)
{
	u32 us = tp->rtt_min.s[0].v;

	return us == ~0u ? 0 : us;
}

/* Switches to the setter, and back. */
static __always_inline bool set(struct tcp_sock *tp, struct ek_guest_share *s, u32 cwnd,
				u32 ssthresh, bool is_reno)
{
	s->pending_cwnd = cwnd;
	s->pending_ssthresh = ssthresh;
	return !bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, (void *)setter_name,
			       TCP_CA_NAME_MAX - 1) &&
	       change(tp, is_reno);
}

/* Recovery and timeouts set the window themselves: then it is only lowered. */
static __always_inline void adjust(struct tcp_sock *tp, struct ek_guest_share *s,
				   u32 window, bool is_reno)
{
	u32 ssthresh = tp->snd_ssthresh;
	bool is_theirs = ca_state(tp) > TCP_CA_Disorder;
	u32 threshold = is_theirs && ssthresh < window ? ssthresh : window;
	u64 cookie = bpf_get_socket_cookie(tp);
	struct ek_guest_limited new = { .before = ssthresh, .set = threshold };
	struct ek_guest_limited *l = bpf_map_lookup_elem(&limited, &cookie);
	/* Another threshold than was set here is the socket's own, from a loss since. */
	bool is_set = l && l->set == ssthresh;

	if (!cera_client_sets(tp->snd_cwnd, window, is_set && !is_theirs,
			      uses_window(tp)))
		return;
	s->changed++;
	if (s->mode != EK_GUEST_ENFORCE)
		return;
	if (is_set)
		new.before = l->before;
	bpf_map_update_elem(&limited, &cookie, &new, BPF_ANY);
	if (set(tp, s, window, threshold, is_reno))
		count(EK_GUEST_COUNT_WINDOWS_SET);
	else
		s->failed++;
}

static __always_inline void put_back(struct tcp_sock *tp, struct ek_guest_share *s,
				     bool is_reno)
{
	u64 cookie = bpf_get_socket_cookie(tp);
	struct ek_guest_limited *l = bpf_map_lookup_elem(&limited, &cookie);

	if (!l)
		return;
	if (l->set == tp->snd_ssthresh && !set(tp, s, 0, l->before, is_reno))
		s->failed++;
	count(EK_GUEST_COUNT_WINDOWS_BACK);
	bpf_map_delete_elem(&limited, &cookie);
}

SEC("iter/tcp")
int pass(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct ek_guest_share *s = share_now();
	const struct tcp_congestion_ops *ops;
	char name[TCP_CA_NAME_MAX] = {};
	struct tcp_sock *tp;
	bool is_own, is_reno;
	u32 window, rtt_us;

	if (!skc || !s)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	if (!may_send(skc->skc_state))
		return 0;
	ops = tp->inet_conn.icsk_ca_ops;
	bpf_probe_read_kernel(name, sizeof(name), &ops->name);
	is_reno = is_name(name, reno_name);
	is_own = is_reno || is_name(name, cubic_name);

	if (s->evict) {
		if (is_name(name, vflood_name) &&
		    change(tp, s->evict - 1 == CONGESTION_RENO))
			s->evicted++;
		return 0;
	}
	if (!s->window) {
		if (is_own)
			put_back(tp, s, is_reno);
		return 0;
	}
	if (!is_active(tp) || has_peer_here(skc) || is_channel(skc, s))
		return 0;
	window = cera_client_window(s->window, s->flows, s->seen, s->next);
	rtt_us = least_rtt_us(tp);
	window = cera_client_far(window, rtt_us, s->least_rtt_us);
	if (rtt_us && (!s->seen_rtt_us || rtt_us < s->seen_rtt_us))
		s->seen_rtt_us = rtt_us;
	s->seen++;
	if (is_own)
		adjust(tp, s, window, is_reno);
	else
		s->foreign++;
	return 0;
}
