/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Times that several CPUs note.
 */
#ifndef EVENKEEL_HOST_BASE_TIME_H
#define EVENKEEL_HOST_BASE_TIME_H

#include "vmlinux.h"

/* Another CPU may have noted a later time. */
static __always_inline u64 time_since(u64 now_ns, u64 then_ns)
{
	return now_ns > then_ns ? now_ns - then_ns : 0;
}

#endif /* EVENKEEL_HOST_BASE_TIME_H */
