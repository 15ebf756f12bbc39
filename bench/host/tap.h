/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What programs that stand for a VM behind a tap have in common.
 */
#ifndef EVENKEEL_BENCH_TAP_H
#define EVENKEEL_BENCH_TAP_H

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

/* @flags: beside those of a tap without packet information */
static int open_tap(const char *name, short flags)
{
	struct ifreq request = { .ifr_flags = (short)(IFF_TAP | IFF_NO_PI | flags) };
	int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK);

	strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
	if (tap < 0 || ioctl(tap, TUNSETIFF, &request)) {
		perror(name);
		exit(1);
	}
	return tap;
}

static int64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

#endif /* EVENKEEL_BENCH_TAP_H */
