/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether a VM has its core: what the scheduler says of its virtual CPUs' threads, which
 * the agent has found. It is read when a packet comes; nothing is added to switches
 * between threads.
 */
#ifndef EVENKEEL_HOST_VSNOOP_CORE_H
#define EVENKEEL_HOST_VSNOOP_CORE_H

#include "../base/context.h"
#include "../base/kernel.h"

/* Does this kernel have all that is read below? */
static __always_inline bool core_is_readable(void)
{
	return bpf_ksym_exists(bpf_task_from_pid) && bpf_ksym_exists(bpf_task_release) &&
	       bpf_core_field_exists(struct task_struct, on_cpu) &&
	       bpf_core_field_exists(struct task_struct, tgid);
}

/* Unknown if the thread is gone, or its number is another process's by now. */
static __noinline enum vsnoop_core vsnoop_core_of(u32 thread, u32 process)
{
	struct task_struct *task = bpf_task_from_pid((s32)thread);
	bool is_its;
	bool is_on;

	if (!task)
		return VSNOOP_CORE_UNKNOWN;
	is_its = task->tgid == process;
	is_on = task->on_cpu;
	bpf_task_release(task);
	if (!is_its)
		return VSNOOP_CORE_UNKNOWN;
	return is_on ? VSNOOP_CORE_ON : VSNOOP_CORE_OFF;
}

/**
 * vsnoop_core() - whether a port's VM has its core now
 *
 * It has one if any of its virtual CPUs does: which of them takes packets is not known.
 */
static __noinline enum vsnoop_core vsnoop_core(const struct context *c)
{
	const struct ek_vsnoop_vcpus *vcpus = &c->port->vsnoop.vcpus;
	enum vsnoop_core core;
	u32 i;

	if (!core_is_readable() || !vcpus->count)
		return VSNOOP_CORE_UNKNOWN;
	for (i = 0; i < EK_VSNOOP_VCPUS; i++) {
		if (i >= vcpus->count)
			break;
		core = vsnoop_core_of(vcpus->threads[i], vcpus->process);
		if (core != VSNOOP_CORE_OFF)
			return core;
	}
	return VSNOOP_CORE_OFF;
}

#endif /* EVENKEEL_HOST_VSNOOP_CORE_H */
