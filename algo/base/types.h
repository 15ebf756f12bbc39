/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Integer names for the headers in algo/: the kernel's own, BPF's out of
 * vmlinux.h (which the program includes first), or C's.
 */
#ifndef EVENKEEL_ALGO_BASE_TYPES_H
#define EVENKEEL_ALGO_BASE_TYPES_H

#if defined(__KERNEL__)
#include <linux/types.h>
#elif !defined(__VMLINUX_H__)
#include <stdbool.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
#endif

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#endif /* EVENKEEL_ALGO_BASE_TYPES_H */
