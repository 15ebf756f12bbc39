// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A VM behind a tap, for guests that have no Rust: tap_vm PORT NAMESPACE [BYTES] makes
 * the tap PORT, with a send buffer of so many bytes, and, in the network namespace, eth0,
 * and carries frames between them. Stopped, it is a VM without a core.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
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
	static char to_vm[1 << 16], from_vm[1 << 16];
	struct pollfd taps[2] = { { .events = POLLIN }, { .events = POLLIN } };
	ssize_t bytes, waiting = 0;
	int namespace, send_bytes;
	char path[64];

	if (argc != 3 && argc != 4)
		return 2;
	snprintf(path, sizeof(path), "/run/netns/%s", argv[2]);
	taps[0].fd = open_tap(argv[1]);
	send_bytes = argc == 4 ? atoi(argv[3]) : 0;
	if (send_bytes && ioctl(taps[0].fd, TUNSETSNDBUF, &send_bytes))
		return 1;
	namespace = open(path, O_RDONLY);
	if (taps[0].fd < 0 || namespace < 0 || setns(namespace, CLONE_NEWNET))
		return 1;
	taps[1].fd = open_tap("eth0");
	if (taps[1].fd < 0)
		return 1;
	while (poll(taps, 2, -1) >= 0) {
		bytes = read(taps[0].fd, to_vm, sizeof(to_vm));
		/* What the VM has no room for is lost, as on any wire. */
		if (bytes > 0 && write(taps[1].fd, to_vm, (size_t)bytes) < 0)
			bytes = 0;
		/* What the tap has no room for waits, as in QEMU. */
		if (waiting <= 0)
			waiting = read(taps[1].fd, from_vm, sizeof(from_vm));
		if (waiting > 0 && (write(taps[0].fd, from_vm, (size_t)waiting) >= 0 ||
				    errno != EAGAIN))
			waiting = 0;
		taps[0].events = waiting > 0 ? POLLIN | POLLOUT : POLLIN;
		taps[1].events = waiting > 0 ? 0 : POLLIN;
	}
	return 1;
}
