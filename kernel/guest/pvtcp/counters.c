// SPDX-License-Identifier: GPL-2.0-only
/* Counters: /sys/module/evenkeel_pvtcp/parameters/, mode 0444, sums over the CPUs */
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "module.h"

static int counter_get(char *buffer, const struct kernel_param *kp)
{
	enum counter counter = (enum counter)(unsigned long)kp->arg;
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu(pvtcp_cpus, cpu).counters[counter]);
	return sysfs_emit(buffer, "%llu\n", sum);
}

static const struct kernel_param_ops counter_ops = {
	.get = counter_get,
};

#define COUNTER(name, counter, text)                                                     \
	module_param_cb(name, &counter_ops, (void *)(counter), 0444);                    \
	MODULE_PARM_DESC(name, "Counter: " text)

COUNTER(wakeups, CNT_WAKEUPS, "wake-ups of a vCPU, all");
COUNTER(wakeups_by_steal, CNT_WAKEUPS_BY_STEAL,
	"wake-ups that only the steal clock showed");
COUNTER(held_rto, CNT_HELD_RTO, "retransmission timeouts held");
COUNTER(held_tlp, CNT_HELD_TLP, "tail-loss probes held");
COUNTER(held_reo, CNT_HELD_REO, "RACK reordering timers held");
COUNTER(held_overtaken, CNT_HELD_OVERTAKEN,
	"held timers that an ACK overtook: they were needless");
COUNTER(held_ran, CNT_HELD_RAN, "held timers that ran after all");
COUNTER(held_left, CNT_HELD_LEFT,
	"held timers left to run a tick or two later, for their socket was in use");
COUNTER(held_overflow, CNT_HELD_OVERFLOW,
	"held timers beyond the room for them, put off by one tick");
COUNTER(rtt_filtered, CNT_RTT_FILTERED, "RTT samples kept away from SRTT and RTTVAR");
COUNTER(idle_filtered, CNT_IDLE_FILTERED, "idle times out of which an absence was taken");
COUNTER(jit_acks, CNT_JIT_ACKS, "times a connection was told to acknowledge at once");

static int wakeup_max_get(char *buffer, const struct kernel_param *kp)
{
	u64 longest = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		longest = max(longest, READ_ONCE(per_cpu(pvtcp_cpus, cpu).wakeup_max_us));
	return sysfs_emit(buffer, "%llu\n", longest);
}

static const struct kernel_param_ops wakeup_max_ops = {
	.get = wakeup_max_get,
};
module_param_cb(wakeup_max_us, &wakeup_max_ops, NULL, 0444);
MODULE_PARM_DESC(wakeup_max_us, "Counter: the longest absence a wake-up ended, in us");

/* What other CPUs add meanwhile may be lost or kept: a reset marks no exact moment. */
static int reset_set(const char *text, const struct kernel_param *kp)
{
	int cpu, i;

	for_each_possible_cpu(cpu) {
		struct pvtcp_cpu *c = per_cpu_ptr(&pvtcp_cpus, cpu);

		for (i = 0; i < CNT_MAX; i++)
			WRITE_ONCE(c->counters[i], 0);
		WRITE_ONCE(c->wakeup_max_us, 0);
	}
	return 0;
}

static const struct kernel_param_ops reset_ops = {
	.set = reset_set,
};
module_param_cb(reset_counters, &reset_ops, NULL, 0200);
MODULE_PARM_DESC(reset_counters, "Write anything to set all counters to 0");
