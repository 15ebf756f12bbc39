/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parts of the module know of each other. */
#ifndef EVENKEEL_PVTCP_MODULE_H
#define EVENKEEL_PVTCP_MODULE_H

#include <linux/hrtimer.h>
#include <linux/percpu.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>

#include "pvtcp/pvtcp.h"

struct sock;

/* Sockets whose timers one CPU can hold at a time. */
#define HELD_MAX 256

enum counter {
	CNT_WAKEUPS,
	CNT_WAKEUPS_BY_STEAL,
	CNT_HELD_RTO,
	CNT_HELD_TLP,
	CNT_HELD_REO,
	CNT_HELD_OVERTAKEN,
	CNT_HELD_RAN,
	CNT_HELD_LEFT,
	CNT_HELD_OVERFLOW,
	CNT_RTT_FILTERED,
	CNT_IDLE_FILTERED,
	CNT_JIT_ACKS,
	CNT_MAX,
};

enum mode { MODE_OFF, MODE_OBSERVE, MODE_ENFORCE };

/* A held timer, with what would show that an ACK or new data has re-armed it. */
struct held {
	struct sock *sk;
	unsigned long expires;
	u32 snd_una;
	u32 delivered;
	u32 data_segs_out;
	int backlog_cpu; /* whose backlog it waits for */
	u32 since; /* that CPU's wake-ups when it was first held */
	u32 wait_us; /* how long still, 0: it is due */
	u8 pending;
};

struct pvtcp_cpu {
	struct pvtcp_vcpu vcpu;
	unsigned int processed; /* softnet_data.processed at the wake-up */

	/* Others take it only when the CPU goes away with timers held. */
	raw_spinlock_t lock;
	struct hrtimer release;
	struct sock *running; /* its timer is run by us: let it pass */
	unsigned long overflow_expires; /* expiry given to those that did not fit */
	unsigned int held_count;
	struct held *held; /* HELD_MAX of them */

	u64 counters[CNT_MAX];
	u64 wakeup_max_us;
};

DECLARE_PER_CPU(struct pvtcp_cpu, pvtcp_cpus);
extern struct pvtcp_settings pvtcp_settings;
extern int pvtcp_mode;

static inline u64 now_us(void)
{
	return ktime_to_us(ktime_get());
}

static inline void count(enum counter counter)
{
	this_cpu_inc(pvtcp_cpus.counters[counter]);
}

bool hold_is_running(struct sock *sk);
bool hold_timer(struct sock *sk, u8 pending, int backlog_cpu);
int hold_init(void);
void hold_exit(void);

#endif /* EVENKEEL_PVTCP_MODULE_H */
