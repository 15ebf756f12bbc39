// SPDX-License-Identifier: GPL-2.0-only
/* Settings: /sys/module/evenkeel_pvtcp/parameters/, mode 0644 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/string.h>
#include <linux/stringify.h>

#include "module.h"

struct pvtcp_settings pvtcp_settings __read_mostly = {
	.late_us = PVTCP_LATE_US,
	.hold_min_us = PVTCP_HOLD_MIN_US,
	.hold_max_us = PVTCP_HOLD_MAX_US,
	.jit_segments = PVTCP_JIT_SEGMENTS,
	.hold = { true, true, true },
	.filter_rtt = true,
	.filter_idle = true,
};
int pvtcp_mode __read_mostly = MODE_ENFORCE;

struct bounded {
	u32 *value;
	u32 min, max;
};

static int bounded_set(const char *text, const struct kernel_param *kp)
{
	const struct bounded *b = kp->arg;
	u32 value;
	int ret;

	ret = kstrtou32(text, 0, &value);
	if (ret)
		return ret;
	if (value < b->min || value > b->max)
		return -ERANGE;
	WRITE_ONCE(*b->value, value);
	return 0;
}

static int bounded_get(char *buffer, const struct kernel_param *kp)
{
	const struct bounded *b = kp->arg;

	return sysfs_emit(buffer, "%u\n", READ_ONCE(*b->value));
}

static const struct kernel_param_ops bounded_ops = {
	.set = bounded_set,
	.get = bounded_get,
};

#define BOUNDED_PARAM(name, constant, text)                                              \
	static struct bounded bounded_##name = {                                         \
		.value = &pvtcp_settings.name,                                           \
		.min = constant##_LEAST,                                                 \
		.max = constant##_MOST,                                                  \
	};                                                                               \
	module_param_cb(name, &bounded_ops, &bounded_##name, 0644);                      \
	MODULE_PARM_DESC(name,                                                           \
			 text " (" __stringify(constant##_LEAST) "-" __stringify(        \
				 constant##_MOST) ", default " __stringify(constant) ")")

BOUNDED_PARAM(late_us, PVTCP_LATE_US, "A tick later than this is a wake-up, in us");
BOUNDED_PARAM(hold_min_us, PVTCP_HOLD_MIN_US,
	      "Held timers wait at least this long after a wake-up, in us");
BOUNDED_PARAM(hold_max_us, PVTCP_HOLD_MAX_US,
	      "Held timers wait no longer than this for the backlog, in us");
BOUNDED_PARAM(jit_segments, PVTCP_JIT_SEGMENTS,
	      "Segments of each connection acknowledged at once after a wake-up");

module_param_named(hold_rto, pvtcp_settings.hold[PVTCP_TIMER_RTO], bool, 0644);
MODULE_PARM_DESC(hold_rto,
		 "Hold retransmission timeouts after a wake-up (bool, default Y)");
module_param_named(hold_tlp, pvtcp_settings.hold[PVTCP_TIMER_TLP], bool, 0644);
MODULE_PARM_DESC(hold_tlp, "Hold tail-loss probes after a wake-up (bool, default Y)");
module_param_named(hold_reo, pvtcp_settings.hold[PVTCP_TIMER_REO], bool, 0644);
MODULE_PARM_DESC(hold_reo,
		 "Hold RACK's reordering timer after a wake-up (bool, default Y)");
module_param_named(filter_rtt, pvtcp_settings.filter_rtt, bool, 0644);
MODULE_PARM_DESC(
	filter_rtt,
	"Keep RTT samples that a wake-up has spoilt away from SRTT and RTTVAR (bool, default Y)");
module_param_named(filter_idle, pvtcp_settings.filter_idle, bool, 0644);
MODULE_PARM_DESC(
	filter_idle,
	"Take an absence out of the time for which a connection was idle (bool, default Y)");

static const char *const mode_names[] = {
	[MODE_OFF] = "off",
	[MODE_OBSERVE] = "observe",
	[MODE_ENFORCE] = "enforce",
};

static int mode_set(const char *text, const struct kernel_param *kp)
{
	int mode = sysfs_match_string(mode_names, text);

	if (mode < 0)
		return mode;
	WRITE_ONCE(pvtcp_mode, mode);
	return 0;
}

static int mode_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%s\n", mode_names[READ_ONCE(pvtcp_mode)]);
}

static const struct kernel_param_ops mode_ops = {
	.set = mode_set,
	.get = mode_get,
};
module_param_cb(mode, &mode_ops, NULL, 0644);
MODULE_PARM_DESC(
	mode,
	"off, observe (count what would be done, change nothing) or enforce (default)");
