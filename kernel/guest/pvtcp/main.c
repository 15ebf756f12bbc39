// SPDX-License-Identifier: GPL-2.0-only
/*
 * PVTCP (Cheng, Wang, Lau) for stock kernels: TCP in a guest does not take the
 * hypervisor's scheduling for congestion.
 *
 * The decisions are in algo/pvtcp/pvtcp.h. Here are the probes on functions' entries
 * that tell it what goes on and carry out what it says. No kernel code is
 * changed, and with the module gone nothing is left behind.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hrtimer.h>
#include <linux/jiffies.h>
#include <linux/kernel_stat.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <net/tcp.h>

#include "compat.h"
#include "module.h"

#ifndef CONFIG_HIGH_RES_TIMERS
#error "evenkeel_pvtcp needs a kernel with CONFIG_HIGH_RES_TIMERS: its tick is what shows a wake-up"
#endif

DEFINE_PER_CPU(struct pvtcp_cpu, pvtcp_cpus);

/* tcp_input.c's FLAG_DATA_ACKED | FLAG_SYN_ACKED: the ACK moves snd_una */
#define FLAG_ACKED (0x04 | 0x10)

/* Not before every probe is in place: half of PVTCP would be worse than none. */
static bool probes_live __read_mostly;

static bool is_off(void)
{
	return !READ_ONCE(probes_live) || READ_ONCE(pvtcp_mode) == MODE_OFF;
}

static bool observes(void)
{
	return READ_ONCE(pvtcp_mode) == MODE_OBSERVE;
}

static u64 steal_us(void)
{
	return kcpustat_this_cpu->cpustat[CPUTIME_STEAL] / NSEC_PER_USEC;
}

/* jiffies_to_usecs() has 32 bits, which 72 minutes overflow. */
static u64 us_of_jiffies(u32 ticks)
{
	return (u64)ticks * jiffies_to_usecs(1);
}

static void note_wakeup(struct pvtcp_cpu *c)
{
	/* Packets are counted from here: those that come now are the backlog. */
	c->processed = READ_ONCE(this_cpu_ptr(&softnet_data)->processed);
	if (c->vcpu.off_us > c->wakeup_max_us)
		c->wakeup_max_us = c->vcpu.off_us;
	count(CNT_WAKEUPS);
}

static void look_at_steal_clock(struct pvtcp_cpu *c, u64 now)
{
	if (!pvtcp_steal(&c->vcpu, &pvtcp_settings, now, steal_us()))
		return;
	note_wakeup(c);
	count(CNT_WAKEUPS_BY_STEAL);
}

/*
 * The CPU whose wake-up matters for a socket: this one, which runs its timer or
 * handles its ACK, or the one that takes its packets from the NIC if that woke
 * up later.
 */
static int waking_cpu(const struct sock *sk)
{
	int here = smp_processor_id();
	int nic = READ_ONCE(sk->sk_incoming_cpu);

	if (nic < 0 || nic >= nr_cpu_ids || nic == here)
		return here;
	return READ_ONCE(per_cpu(pvtcp_cpus, nic).vcpu.wake_us) >
			       READ_ONCE(per_cpu(pvtcp_cpus, here).vcpu.wake_us) ?
		       nic :
		       here;
}

/* enum hrtimer_restart TICK(struct hrtimer *timer), in hard interrupt context */
static int on_tick(struct kprobe *p, struct pt_regs *regs)
{
	struct hrtimer *timer = (struct hrtimer *)ARG_1(regs);
	struct pvtcp_cpu *c = this_cpu_ptr(&pvtcp_cpus);

	if (is_off())
		return 0;
	if (pvtcp_tick(&c->vcpu, &pvtcp_settings, ktime_to_us(hrtimer_get_expires(timer)),
		       now_us(), steal_us()))
		note_wakeup(c);
	return 0;
}

/*
 * void tcp_write_timer_handler(struct sock *sk), with the socket locked.
 * With the expiry in the future it re-arms the timer and returns.
 */
static int on_write_timer(struct kprobe *p, struct pt_regs *regs)
{
	struct sock *sk = (struct sock *)ARG_1(regs);
	struct pvtcp_cpu *c = this_cpu_ptr(&pvtcp_cpus);
	enum pvtcp_timer kind;
	u64 now;
	u8 pending;
	int cpu;

	if (is_off() || hold_is_running(sk))
		return 0;
	if ((1 << sk->sk_state) & (TCPF_CLOSE | TCPF_LISTEN))
		return 0;
	pending = READ_ONCE(inet_csk(sk)->icsk_pending);
	switch (pending) {
	case ICSK_TIME_RETRANS:
		kind = PVTCP_TIMER_RTO;
		break;
	case ICSK_TIME_LOSS_PROBE:
		kind = PVTCP_TIMER_TLP;
		break;
	case ICSK_TIME_REO_TIMEOUT:
		kind = PVTCP_TIMER_REO;
		break;
	default:
		return 0;
	}
	if (time_after(retransmit_expires(sk), jiffies) ||
	    timer_pending(retransmit_timer(sk)))
		return 0;

	now = now_us();
	look_at_steal_clock(c, now);
	cpu = waking_cpu(sk);
	if (!pvtcp_hold(&per_cpu(pvtcp_cpus, cpu).vcpu, &pvtcp_settings, kind, now))
		return 0;
	if (observes() || hold_timer(sk, pending, cpu))
		count(CNT_HELD_RTO + kind);
	return 0;
}

static long filter_rtt(const struct sock *sk, u32 mdev_us, long sample_us)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct pvtcp_rtt rtt = {
		.sample_us = sample_us,
		.srtt_us = tp->srtt_us >> 3,
		.mdev_us = mdev_us,
	};

	return pvtcp_filter_rtt(&per_cpu(pvtcp_cpus, waking_cpu(sk)).vcpu,
				&pvtcp_settings, tp->tcp_mstamp, &rtt);
}

/*
 * bool tcp_ack_update_rtt(struct sock *sk, int flag, long seq_rtt_us,
 *			   long sack_rtt_us, long ca_rtt_us, struct rate_sample *rs)
 */
static int on_ack_rtt(struct kprobe *p, struct pt_regs *regs)
{
	struct sock *sk = (struct sock *)ARG_1(regs);
	const struct tcp_sock *tp = tcp_sk(sk);
	long seq_rtt_us = ARG_3(regs), sack_rtt_us = ARG_4(regs), ca_rtt_us = ARG_5(regs);
	long seq, sack, ca;

	if (is_off())
		return 0;
	/* Without a segment to measure, the function would take the timestamp. */
	if (seq_rtt_us < 0 && sack_rtt_us < 0 && ((int)ARG_2(regs) & FLAG_ACKED) &&
	    tp->rx_opt.saw_tstamp && tp->rx_opt.rcv_tsecr)
		seq_rtt_us = ca_rtt_us = timestamp_rtt_us(tp);

	seq = filter_rtt(sk, tp->mdev_us >> 2, seq_rtt_us);
	sack = filter_rtt(sk, tp->mdev_us >> 2, sack_rtt_us);
	/* Not below SRTT: the congestion control and min_rtt take this one. */
	ca = filter_rtt(sk, 0, ca_rtt_us);
	if (seq == seq_rtt_us && sack == sack_rtt_us && ca == ca_rtt_us)
		return 0;
	count(CNT_RTT_FILTERED);
	if (observes())
		return 0;
	ARG_3(regs) = seq;
	ARG_4(regs) = sack;
	ARG_5(regs) = ca;
	return 0;
}

/*
 * void tcp_cwnd_restart(struct sock *sk, s32 delta), with the socket locked by a sender
 * of data. A connection idle for no more than an RTO keeps its window.
 */
static int on_cwnd_restart(struct kprobe *p, struct pt_regs *regs)
{
	struct sock *sk = (struct sock *)ARG_1(regs);
	u64 now, idle_us, at_work_us;
	s32 delta = ARG_2(regs);
	unsigned long flags;

	if (is_off() || delta <= 0)
		return 0;
	now = now_us();
	/* A process may be sending: keeps the tick and timers from coming in between. */
	local_irq_save(flags);
	look_at_steal_clock(this_cpu_ptr(&pvtcp_cpus), now);
	local_irq_restore(flags);
	idle_us = us_of_jiffies(delta);
	at_work_us = pvtcp_idle_us(&per_cpu(pvtcp_cpus, waking_cpu(sk)).vcpu,
				   &pvtcp_settings, now, idle_us);
	if (at_work_us == idle_us)
		return 0;
	count(CNT_IDLE_FILTERED);
	if (!observes())
		ARG_2(regs) = usecs_to_jiffies(at_work_us);
	return 0;
}

/* void tcp_event_data_recv(struct sock *sk, struct sk_buff *skb) */
static int on_data_recv(struct kprobe *p, struct pt_regs *regs)
{
	struct sock *sk = (struct sock *)ARG_1(regs);
	struct inet_connection_sock *icsk = inet_csk(sk);
	u32 segments;

	/* No ato: the connection's first segment, of which TCP takes care itself. */
	if (is_off() || !READ_ONCE(pvtcp_settings.jit_segments) || !icsk->icsk_ack.ato)
		return 0;
	segments =
		pvtcp_jit_segments(&per_cpu(pvtcp_cpus, waking_cpu(sk)).vcpu,
				   &pvtcp_settings, now_us(),
				   us_of_jiffies(tcp_jiffies32 - icsk->icsk_ack.lrcvtime),
				   jiffies_to_usecs(1));
	if (!segments)
		return 0;
	count(CNT_JIT_ACKS);
	if (observes())
		return 0;
	if (icsk->icsk_ack.quick < segments)
		icsk->icsk_ack.quick = segments;
	inet_csk_exit_pingpong_mode(sk);
	return 0;
}

static struct kprobe probes[] = {
	/* tick_nohz_handler() since 6.9; before, that name has another argument */
	{ .symbol_name = "tick_sched_timer", .pre_handler = on_tick },
	{ .symbol_name = "tcp_write_timer_handler", .pre_handler = on_write_timer },
	{ .symbol_name = "tcp_ack_update_rtt", .pre_handler = on_ack_rtt },
	{ .symbol_name = "tcp_cwnd_restart", .pre_handler = on_cwnd_restart },
	{ .symbol_name = "tcp_event_data_recv", .pre_handler = on_data_recv },
};

/* All at once: the kernel waits for those that are in a probe, and once is enough. */
static void remove_probes(int n)
{
	struct kprobe *placed[ARRAY_SIZE(probes)];
	int i;

	for (i = 0; i < n; i++)
		placed[i] = &probes[i];
	unregister_kprobes(placed, n);
}

static int __init pvtcp_init(void)
{
	int i, ret;

	ret = hold_init();
	if (ret) {
		pr_err("no memory for the lists of held timers: not loaded, TCP is as it was\n");
		return ret;
	}
	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		ret = register_kprobe(&probes[i]);
		if (ret == -ENOENT && !i) {
			probes[i].symbol_name = "tick_nohz_handler";
			ret = register_kprobe(&probes[i]);
		}
		if (ret) {
			pr_err("cannot probe %s() of this kernel (error %d): not loaded, TCP is as it was\n",
			       probes[i].symbol_name, ret);
			remove_probes(i);
			hold_exit();
			/* insmod reports ENOENT as "unknown symbol or parameter". */
			return ret == -ENOENT ? -EOPNOTSUPP : ret;
		}
	}
	WRITE_ONCE(probes_live, true);
	return 0;
}

static void __exit pvtcp_exit(void)
{
	remove_probes(ARRAY_SIZE(probes));
	hold_exit();
}

module_init(pvtcp_init);
module_exit(pvtcp_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("PVTCP: do not mistake the hypervisor's scheduling for congestion");
MODULE_VERSION("0.1.0");
