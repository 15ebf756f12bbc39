// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A VM behind a tap, off its core again and again: soak_vm PORT NAMESPACE SEED ON_MS
 * OFF_MS [vcpu] makes the tap PORT and, in the network namespace, eth0, and carries
 * frames between them for ON_MS, then for OFF_MS nothing: both are means, the times are
 * random from SEED. Both taps take large packets and unfinished checksums, as a VM's do.
 * With `vcpu` it has a thread that a host takes for a virtual CPU, and that never has a
 * core. Prints a line once it runs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "tap.h"

/* Frames that pass in one direction before the other has its turn. */
#define BATCH 64
/* Losses that are told. */
#define TOLD 100

static int open_vm_tap(const char *name)
{
	int tap = open_tap(name, IFF_VNET_HDR);

	if (ioctl(tap, TUNSETOFFLOAD,
		  TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN)) {
		perror(name);
		exit(1);
	}
	return tap;
}

/* Between 0 and twice the mean. */
static int64_t draw_us(uint64_t *random, int64_t mean_ms)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return (int64_t)(*random % (uint64_t)(2000 * mean_ms + 1));
}

/* By its name it is known as one. */
static void *sleeper(void *nothing)
{
	pthread_setname_np(pthread_self(), "vcpu");
	for (;;)
		pause();
	return nothing;
}

static void carry(int from, int to)
{
	static char frame[1 << 17];
	static int told;
	ssize_t bytes;
	int i;

	for (i = 0; i < BATCH; i++) {
		bytes = read(from, frame, sizeof(frame));
		if (bytes <= 0)
			return;
		/* A port that is down takes nothing. Other losses are told. */
		if (write(to, frame, (size_t)bytes) < 0 && errno != EIO && told++ < TOLD)
			fprintf(stderr, "lost a frame of %zd bytes: %s\n", bytes,
				strerror(errno));
	}
}

int main(int argc, char **argv)
{
	struct pollfd taps[2] = { { .events = POLLIN }, { .events = POLLIN } };
	int64_t on_ms, off_ms, until;
	pthread_t vcpu;
	uint64_t random;
	char path[64];
	int namespace;

	if (argc < 6) {
		fprintf(stderr,
			"usage: soak_vm PORT NAMESPACE SEED ON_MS OFF_MS [vcpu]\n");
		return 2;
	}
	random = strtoull(argv[3], NULL, 10) * 0x9e3779b97f4a7c15 | 1;
	on_ms = atoi(argv[4]);
	off_ms = atoi(argv[5]);
	snprintf(path, sizeof(path), "/run/netns/%s", argv[2]);
	taps[0].fd = open_vm_tap(argv[1]);
	namespace = open(path, O_RDONLY);
	if (namespace < 0 || setns(namespace, CLONE_NEWNET)) {
		perror(path);
		return 1;
	}
	taps[1].fd = open_vm_tap("eth0");
	if (argc > 6 && pthread_create(&vcpu, NULL, sleeper, NULL)) {
		perror("vcpu");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	for (;;) {
		until = now_us() + draw_us(&random, on_ms);
		while (now_us() < until) {
			if (poll(taps, 2, 1) <= 0)
				continue;
			/* A port that is down is an error until it is up. */
			if ((taps[0].revents | taps[1].revents) & POLLERR)
				usleep(1000);
			carry(taps[0].fd, taps[1].fd);
			carry(taps[1].fd, taps[0].fd);
		}
		usleep((useconds_t)draw_us(&random, off_ms));
	}
}
