// SPDX-License-Identifier: GPL-2.0
/*
 * vFlood in the guest: a congestion control whose window is what the host grants, as long
 * as a host attests that it holds this guest's packets. A shadow window goes on in the
 * background, by the same Reno or CUBIC that the host runs, and takes over at the first
 * sign of a loss until it is repaired, or as soon as nobody attests any more. The
 * attestation is a time in a map, so it ends by itself.
 *
 * It is about a port, and connections may not pass there, or not be held: so a connection
 * also needs the host's token, in the last packet that has come for it. One of another
 * network namespace than the agent's never floods.
 */
#include "../socket.h"

#include <bpf/bpf_endian.h>

#include "algo/vflood/vflood.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ek_guest_control);
} control SEC(".maps");

/* The packet that a CPU is handling. */
struct arrival {
	u64 sk; /* its socket's address: a packet of another says nothing */
	u16 urgent; /* its urgent pointer */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct arrival);
} arrivals SEC(".maps");

/* Where TCP's header has the urgent pointer. */
#define URGENT_OFFSET 18
#define SECOND_US 1000000ull

/* A connection, in the 104 bytes that the kernel has for it. */
struct guest_flow {
	struct congestion shadow; /* cong_win_vm' */
	u64 acked_us; /* when data was last acknowledged */
	u32 before_cwnd; /* shadow window before the last loss */
	u32 before_ssthresh;
	u32 set; /* the window that was set last */
	u32 held_s; /* 1 + when its last packet came, if that had the host's token, else 0
		     */
	u32 round_end; /* a round trip ends when this is acknowledged */
	u16 initial;
	u8 state; /* enum tcp_ca_state */
	u8 is_flooding;
};

_Static_assert(sizeof(struct guest_flow) <= 13 * sizeof(u64),
	       "what a congestion control may keep");

static __always_inline struct guest_flow *flow_of(struct sock *sk)
{
	return (struct guest_flow *)tcp_sk(sk)->inet_conn.icsk_ca_priv;
}

static __always_inline u64 now_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

static __always_inline u32 in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out + tp->retrans_out - tp->sacked_out - tp->lost_out;
}

/* Whether TCP repairs a loss, or has signs of one. */
static __always_inline bool is_repairing(const struct tcp_sock *tp,
					 const struct guest_flow *f)
{
	return f->state != TCP_CA_Open || tp->sacked_out || tp->lost_out;
}

/* In these states TCP itself sets the window while it repairs a loss (RFC 6937). */
static __always_inline bool is_reducing(const struct guest_flow *f)
{
	return f->state == TCP_CA_CWR || f->state == TCP_CA_Recovery;
}

/*
 * Segments that the host grants. The receive window carries the grant, and TCP keeps to
 * it by itself; so this only must not be less.
 */
static __always_inline u32 granted(const struct tcp_sock *tp,
				   const struct ek_guest_control *c)
{
	u32 mss = tp->mss_cache;
	u32 window = mss ? tp->snd_wnd / mss : 0;
	u32 least = c->flood_segments ? c->flood_segments : VFLOOD_FLOOD_SEGMENTS;

	return window > least ? window : least;
}

/* TCP may have lowered a window that does not flood: then it becomes the shadow's. */
static __always_inline void take_over(const struct tcp_sock *tp, struct guest_flow *f)
{
	if (!f->is_flooding && tp->snd_cwnd != f->set)
		f->shadow.window.cwnd = tp->snd_cwnd;
}

/* Sets the window that counts now. */
static __always_inline void settle(struct tcp_sock *tp, struct guest_flow *f)
{
	u32 zero = 0;
	struct ek_guest_control *c = bpf_map_lookup_elem(&control, &zero);
	bool is_online = c && c->mode && f->held_s &&
			 bpf_ktime_get_ns() < c->attested_until_ns;
	bool is_loss = is_repairing(tp, f);
	bool floods = is_online && !is_loss;
	struct vflood_guest guest = {};
	u32 cwnd;

	if (floods && !f->is_flooding)
		count(EK_GUEST_COUNT_FLOODS);
	if (!floods && f->is_flooding)
		count(is_loss ? EK_GUEST_COUNT_HANDOVERS : EK_GUEST_COUNT_RETRACTS);
	f->is_flooding = floods;
	guest.is_online = is_online && c->mode == EK_GUEST_ENFORCE;
	guest.is_repairing = is_loss;
	guest.shadow = f->shadow.window.cwnd;
	guest.granted = c ? granted(tp, c) : 0;
	guest.in_flight = in_flight(tp);
	cwnd = vflood_guest_cwnd(&guest);
	if (cwnd < 1)
		cwnd = 1;
	tp->snd_cwnd = cwnd;
	f->set = cwnd;
}

static __always_inline int packet_comes(const struct sock *sk, const struct sk_buff *skb)
{
	u32 zero = 0;
	struct arrival *a = bpf_map_lookup_elem(&arrivals, &zero);
	__be16 urgent = 0;

	if (!a)
		return 0;
	bpf_probe_read_kernel(&urgent, sizeof(urgent),
			      skb->head + skb->transport_header + URGENT_OFFSET);
	a->sk = (u64)sk;
	a->urgent = bpf_ntohs(urgent);
	return 0;
}

SEC("fentry/tcp_rcv_established")
int BPF_PROG(packet_established, struct sock *sk, struct sk_buff *skb)
{
	return packet_comes(sk, skb);
}

/* Of connections that begin, or end. */
SEC("fentry/tcp_rcv_state_process")
int BPF_PROG(packet_otherwise, struct sock *sk, struct sk_buff *skb)
{
	return packet_comes(sk, skb);
}

/* Containers have their own settings of TCP, and may leave by other cards. */
static __always_inline bool is_elsewhere(const struct sock *sk,
					 const struct ek_guest_control *c)
{
	return sk->__sk_common.skc_net.net->ns.inum != c->namespace;
}

/* Notes whether the host holds the connection, by the packet at hand. */
static __always_inline void note_token(const struct sock *sk, struct guest_flow *f)
{
	u32 zero = 0;
	const struct ek_guest_control *c = bpf_map_lookup_elem(&control, &zero);
	const struct arrival *a = bpf_map_lookup_elem(&arrivals, &zero);

	if (!c || !a || a->sk != (u64)sk)
		return;
	f->held_s = 0;
	if (a->urgent == vflood_token(c->host) && !is_elsewhere(sk, c))
		f->held_s = 1 + (u32)(now_us() / SECOND_US);
}

SEC("struct_ops")
void BPF_PROG(flood_init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct guest_flow *f = flow_of(sk);
	u32 zero = 0;
	struct ek_guest_control *c = bpf_map_lookup_elem(&control, &zero);

	congestion_begin(&f->shadow, c ? c->congestion : CONGESTION_CUBIC, tp->snd_cwnd);
	f->shadow.window.ssthresh = tp->snd_ssthresh;
	f->acked_us = now_us();
	f->before_cwnd = 0;
	f->before_ssthresh = 0;
	f->set = tp->snd_cwnd;
	f->round_end = tp->snd_nxt;
	f->initial = tp->snd_cwnd < 10 ? 10 : (tp->snd_cwnd < 1000 ? tp->snd_cwnd : 1000);
	f->state = ca_state(tp);
	f->is_flooding = 0;
	f->held_s = 0;
	note_token(sk, f);
	count(EK_GUEST_COUNT_CONNECTIONS);
	if (!f->held_s)
		count(EK_GUEST_COUNT_UNHELD);
	if (!is_reducing(f))
		settle(tp, f);
}

/* Another algorithm takes over, and must not begin with the flood's window. */
SEC("struct_ops")
void BPF_PROG(flood_release, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct guest_flow *f = flow_of(sk);

	if (f->is_flooding && !is_reducing(f)) {
		tp->snd_cwnd = f->shadow.window.cwnd;
		tp->snd_ssthresh = f->shadow.window.ssthresh;
	}
}

SEC("struct_ops")
u32 BPF_PROG(flood_ssthresh, struct sock *sk)
{
	struct guest_flow *f = flow_of(sk);

	take_over(tcp_sk(sk), f);
	f->before_cwnd = f->shadow.window.cwnd;
	f->before_ssthresh = f->shadow.window.ssthresh;
	congestion_lost(&f->shadow);
	return f->shadow.window.ssthresh;
}

SEC("struct_ops")
u32 BPF_PROG(flood_undo_cwnd, struct sock *sk)
{
	struct guest_flow *f = flow_of(sk);
	struct reno_window *w = &f->shadow.window;

	if (w->cwnd < f->before_cwnd)
		w->cwnd = f->before_cwnd;
	if (w->ssthresh < f->before_ssthresh)
		w->ssthresh = f->before_ssthresh;
	f->set = w->cwnd;
	return w->cwnd;
}

SEC("struct_ops")
void BPF_PROG(flood_set_state, struct sock *sk, u8 state)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct guest_flow *f = flow_of(sk);

	if (state == TCP_CA_Loss) {
		/* TCP has set the window: what it takes to be in flight, and one more. */
		f->shadow.window.cwnd = tp->snd_cwnd ? tp->snd_cwnd : 1;
		f->shadow.window.credit = 0;
		if (f->shadow.kind == CONGESTION_CUBIC)
			cubic_reset(&f->shadow.cubic);
		f->set = tp->snd_cwnd;
	}
	if (f->is_flooding && state != TCP_CA_Open) {
		count(EK_GUEST_COUNT_HANDOVERS);
		f->is_flooding = 0;
		if (state == TCP_CA_Disorder) {
			tp->snd_cwnd = f->shadow.window.cwnd;
			f->set = tp->snd_cwnd;
		}
	}
	/* The window that the reduction ends with is the shadow's already. */
	if (is_reducing(f))
		f->set = tp->snd_cwnd;
	f->state = state;
}

/* Runs before TCP decides what an ACK means, so that TCP sets out from the shadow. */
SEC("struct_ops")
void BPF_PROG(flood_in_ack_event, struct sock *sk, u32 flags)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct guest_flow *f = flow_of(sk);

	note_token(sk, f);
	if (is_reducing(f))
		return;
	take_over(tp, f);
	settle(tp, f);
}

SEC("struct_ops")
void BPF_PROG(flood_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct guest_flow *f = flow_of(sk);
	struct reno_window *w = &f->shadow.window;
	u32 used = in_flight(tp) + acked;
	struct congestion_path path = {
		.now_us = now_us(),
		.srtt_us = tp->srtt_us >> 3,
		/* The RTTs of a flooding connection include the time held: the host
		 * judges its own. */
		.min_rtt_us = f->is_flooding ? 0 : tp->rtt_min.s[0].v,
		.round_over = !seq_before(ack, f->round_end),
	};

	if (path.round_over)
		f->round_end = tp->snd_nxt;
	take_over(tp, f);
	f->acked_us = path.now_us;
	/* Only a window that was used grows; in slow start, one that was used by half
	 * (RFC 7661, as Linux has it). */
	if (reno_in_slow_start(w) ? w->cwnd < 2 * used : w->cwnd <= used)
		congestion_acked(&f->shadow, acked, &path);
	settle(tp, f);
}

SEC("struct_ops")
void BPF_PROG(flood_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct guest_flow *f = flow_of(sk);

	if (!f->is_flooding && sample->rtt_us > 0)
		congestion_rtt(&f->shadow, sample->rtt_us);
}

/* The first packet after a time without any. */
static __always_inline void begin_again(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct guest_flow *f = flow_of(sk);
	u64 now = now_us();

	if (f->held_s && !vflood_guest_counts_on_host(now - (f->held_s - 1) * SECOND_US))
		f->held_s = 0;
	if (is_reducing(f))
		return;
	take_over(tp, f);
	/* TCP restarts the window that it knows, which is the flood's; the host restarts
	 * its own as here. */
	if (f->is_flooding && now - f->acked_us > VFLOOD_IDLE_US)
		congestion_idle(&f->shadow, now - f->acked_us, VFLOOD_IDLE_US,
				f->initial);
	settle(tp, f);
}

SEC("struct_ops")
void BPF_PROG(flood_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		begin_again(sk);
}

SEC("struct_ops")
void BPF_PROG(flood_tx_start, struct sock *sk)
{
	begin_again(sk);
}

/*
 * The VM does not pace what it floods, so its packets need not be sized by a pace: the
 * host lets packets of this size leave in one piece.
 */
SEC("struct_ops")
u32 BPF_PROG(flood_min_tso_segs, struct sock *sk)
{
	struct guest_flow *f = flow_of(sk);

	return vflood_guest_packet(f->is_flooding, f->shadow.window.cwnd);
}

SEC(".struct_ops")
struct tcp_congestion_ops vflood = {
	.init = (void *)flood_init,
	.release = (void *)flood_release,
	.ssthresh = (void *)flood_ssthresh,
	.undo_cwnd = (void *)flood_undo_cwnd,
	.pkts_acked = (void *)flood_pkts_acked,
	.set_state = (void *)flood_set_state,
	.in_ack_event = (void *)flood_in_ack_event,
	.cong_avoid = (void *)flood_cong_avoid,
	.min_tso_segs = (void *)flood_min_tso_segs,
	.cwnd_event = (void *)flood_cwnd_event,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "vflood",
};

/* The same for Linux 7.1 and later; the agent loads the one that fits. */
SEC(".struct_ops")
struct tcp_congestion_ops___tx_start vflood_7_1 = {
	.init = (void *)flood_init,
	.release = (void *)flood_release,
	.ssthresh = (void *)flood_ssthresh,
	.undo_cwnd = (void *)flood_undo_cwnd,
	.pkts_acked = (void *)flood_pkts_acked,
	.set_state = (void *)flood_set_state,
	.in_ack_event = (void *)flood_in_ack_event,
	.cong_avoid = (void *)flood_cong_avoid,
	.min_tso_segs = (void *)flood_min_tso_segs,
	.cwnd_event_tx_start = (void *)flood_tx_start,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "vflood",
};
