/* SPDX-License-Identifier: GPL-2.0-only */
/* What differs between processors, and between kernels, which Kbuild tells apart. */
#ifndef EVENKEEL_PVTCP_COMPAT_H
#define EVENKEEL_PVTCP_COMPAT_H

#include <linux/hrtimer.h>
#include <linux/timer.h>
#include <net/tcp.h>

/* A function's arguments at its entry; a probe may change them. */
#if defined(CONFIG_X86_64)
#define ARG_1(regs) ((regs)->di)
#define ARG_2(regs) ((regs)->si)
#define ARG_3(regs) ((regs)->dx)
#define ARG_4(regs) ((regs)->cx)
#define ARG_5(regs) ((regs)->r8)
#elif defined(CONFIG_ARM64)
#define ARG_1(regs) ((regs)->regs[0])
#define ARG_2(regs) ((regs)->regs[1])
#define ARG_3(regs) ((regs)->regs[2])
#define ARG_4(regs) ((regs)->regs[3])
#define ARG_5(regs) ((regs)->regs[4])
#else
#error "evenkeel_pvtcp changes arguments in registers: it knows those of x86-64 and arm64"
#endif

/* Since 6.19 the retransmit timer is in struct sock and its expiry the only one. */
#ifdef HAVE_SK_RETRANSMIT_TIMER
static inline struct timer_list *retransmit_timer(struct sock *sk)
{
	return &sk->tcp_retransmit_timer;
}

static inline unsigned long retransmit_expires(struct sock *sk)
{
	return READ_ONCE(sk->tcp_retransmit_timer.expires);
}

static inline void set_retransmit_expires(struct sock *sk, unsigned long when)
{
	WRITE_ONCE(sk->tcp_retransmit_timer.expires, when);
}
#else
static inline struct timer_list *retransmit_timer(struct sock *sk)
{
	return &inet_csk(sk)->icsk_retransmit_timer;
}

static inline unsigned long retransmit_expires(struct sock *sk)
{
	return READ_ONCE(inet_csk(sk)->icsk_timeout);
}

static inline void set_retransmit_expires(struct sock *sk, unsigned long when)
{
	WRITE_ONCE(inet_csk(sk)->icsk_timeout, when);
}
#endif

/* The RTT that the timestamp echoed by the last ACK gives. */
static inline u32 timestamp_rtt_us(const struct tcp_sock *tp)
{
#ifdef HAVE_TCP_USEC_TS
	u32 delta = tcp_time_stamp_ts(tp) - tp->rx_opt.rcv_tsecr;

	if (tp->tcp_usec_ts)
		return delta;
#else
	u32 delta = tcp_time_stamp(tp) - tp->rx_opt.rcv_tsecr;
#endif
	return delta < INT_MAX / USEC_PER_MSEC ? delta * USEC_PER_MSEC : 0;
}

#ifndef HAVE_HRTIMER_SETUP
static inline void hrtimer_setup(struct hrtimer *timer,
				 enum hrtimer_restart (*function)(struct hrtimer *),
				 clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

/* Early releases of 6.1 lack it. */
#ifndef HAVE_TIMER_DELETE
static inline int timer_delete(struct timer_list *timer)
{
	return del_timer(timer);
}
#endif

#endif /* EVENKEEL_PVTCP_COMPAT_H */
