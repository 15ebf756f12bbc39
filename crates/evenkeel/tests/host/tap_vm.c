// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A VM behind a tap, for guests that have no Rust: tap_vm PORT NAMESPACE makes the tap
 * PORT and, in the network namespace, eth0, and carries frames between them. Stopped, it
 * is a VM without a core.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int open_tap(const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI };
	int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK);

	strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
	return tap < 0 || ioctl(tap, TUNSETIFF, &request) ? -1 : tap;
}

int main(int argc, char **argv)
{
	static char frame[1 << 16];
	struct pollfd taps[2] = { { .events = POLLIN }, { .events = POLLIN } };
	char path[64];
	int namespace, i;
	ssize_t bytes;

	if (argc != 3)
		return 2;
	snprintf(path, sizeof(path), "/run/netns/%s", argv[2]);
	taps[0].fd = open_tap(argv[1]);
	namespace = open(path, O_RDONLY);
	if (taps[0].fd < 0 || namespace < 0 || setns(namespace, CLONE_NEWNET))
		return 1;
	taps[1].fd = open_tap("eth0");
	if (taps[1].fd < 0)
		return 1;
	while (poll(taps, 2, -1) >= 0) {
		for (i = 0; i < 2; i++) {
			bytes = read(taps[i].fd, frame, sizeof(frame));
			/* What the other side has no room for is lost, as on any wire. */
			if (bytes > 0 && write(taps[!i].fd, frame, (size_t)bytes) < 0)
				continue;
		}
	}
	return 1;
}
