// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A VM behind a tap, far away: delay_vm PORT NAMESPACE MS makes the tap PORT and, in the
 * network namespace, eth0, and carries frames between them, each MS later than it came.
 * For kernels without netem. Prints a line once it runs.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "tap.h"

/* Frames on their way, each way; more are lost. */
#define FRAMES 1024
#define FRAME_BYTES 2048

struct way {
	unsigned first, next;
	struct {
		int64_t due_us;
		ssize_t bytes;
		char data[FRAME_BYTES];
	} frame[FRAMES];
};

static void take(struct way *w, int from, int64_t due_us)
{
	while (w->next - w->first < FRAMES) {
		unsigned at = w->next % FRAMES;

		w->frame[at].bytes = read(from, w->frame[at].data, FRAME_BYTES);
		if (w->frame[at].bytes <= 0)
			return;
		w->frame[at].due_us = due_us;
		w->next++;
	}
}

/* Return: how long until the next is due, at most a millisecond. */
static int64_t give(struct way *w, int to, int64_t now)
{
	for (; w->first != w->next; w->first++) {
		unsigned at = w->first % FRAMES;
		int64_t left_us = w->frame[at].due_us - now;

		if (left_us > 0)
			return left_us < 1000 ? left_us : 1000;
		if (write(to, w->frame[at].data, (size_t)w->frame[at].bytes) < 0)
			continue;
	}
	return 1000;
}

int main(int argc, char **argv)
{
	static struct way ways[2];
	struct pollfd taps[2] = { { .events = POLLIN }, { .events = POLLIN } };
	int64_t delay_us, left_us, other_us;
	struct timespec wait = {};
	char path[64];
	int namespace, i;

	if (argc != 4) {
		fprintf(stderr, "usage: delay_vm PORT NAMESPACE MS\n");
		return 2;
	}
	delay_us = 1000 * atoi(argv[3]);
	snprintf(path, sizeof(path), "/run/netns/%s", argv[2]);
	taps[0].fd = open_tap(argv[1], 0);
	namespace = open(path, O_RDONLY);
	if (namespace < 0 || setns(namespace, CLONE_NEWNET)) {
		perror(path);
		return 1;
	}
	taps[1].fd = open_tap("eth0", 0);
	puts("ready");
	fflush(stdout);
	for (;;) {
		for (i = 0; i < 2; i++)
			take(&ways[i], taps[i].fd, now_us() + delay_us);
		left_us = give(&ways[0], taps[1].fd, now_us());
		other_us = give(&ways[1], taps[0].fd, now_us());
		wait.tv_nsec = 1000 * (left_us < other_us ? left_us : other_us);
		ppoll(taps, 2, &wait, NULL);
		/* A port that is down is an error until it is up. */
		if ((taps[0].revents | taps[1].revents) & POLLERR)
			usleep(1000);
	}
}
