// SPDX-License-Identifier: GPL-2.0-only
/*
 * Held timers: the sockets whose expired retransmit timer waits for the
 * backlog of a wake-up, and the hrtimer that runs them as soon as it is in.
 *
 * The timer itself stays armed with an expiry beyond our release, so that
 * whatever happens here, at worst it runs a few ticks late.
 */
#include <linux/jiffies.h>
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "compat.h"
#include "module.h"

static ktime_t ktime_of_us(u32 us)
{
	return ns_to_ktime(us * NSEC_PER_USEC);
}

/* All NAPI instances of that CPU are done, and did deliver since the wake-up. */
static bool backlog_in(int cpu)
{
	const struct softnet_data *sd = per_cpu_ptr(&softnet_data, cpu);

	return list_empty_careful(&sd->poll_list) &&
	       READ_ONCE(sd->processed) != READ_ONCE(per_cpu(pvtcp_cpus, cpu).processed);
}

static bool still_held(struct sock *sk, const struct held *h)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return inet_csk(sk)->icsk_pending == h->pending &&
	       retransmit_expires(sk) == h->expires && tp->snd_una == h->snd_una &&
	       tp->delivered == h->delivered && tp->data_segs_out == h->data_segs_out;
}

/* What becomes of a held timer; if it shall run, it is ours alone to run. */
static enum counter take_timer(struct sock *sk, const struct held *h)
{
	/* The owner may be changing it right now: leave it to its own expiry. */
	if (sock_owned_by_user(sk))
		return CNT_HELD_LEFT;
	if (!still_held(sk, h) || !timer_delete(retransmit_timer(sk)))
		return CNT_HELD_OVERTAKEN;
	set_retransmit_expires(sk, jiffies);
	return CNT_HELD_RAN;
}

/* Run the timer now if nothing has touched it since, and let go of the socket. */
static void release_one(struct pvtcp_cpu *c, const struct held *h)
{
	struct timer_list *timer = retransmit_timer(h->sk);
	enum counter fate;

	bh_lock_sock(h->sk);
	fate = take_timer(h->sk, h);
	bh_unlock_sock(h->sk);
	count(fate);

	if (fate == CNT_HELD_RAN) {
		WRITE_ONCE(c->running, h->sk);
		/* It puts the reference that the armed timer had. */
		timer->function(timer);
		WRITE_ONCE(c->running, NULL);
	}
	sock_put(h->sk);
}

/* Wake-ups of the CPU that a timer waits for, since it was first held. */
static u32 wakes_held(const struct held *h)
{
	return READ_ONCE(per_cpu(pvtcp_cpus, h->backlog_cpu).vcpu.wakes) - h->since;
}

/* How long each held timer has still to wait; returns the shortest time. */
static u32 look_at_held(struct pvtcp_cpu *c)
{
	u32 shortest_us = 0;
	u64 now = now_us();
	unsigned int i;

	for (i = 0; i < c->held_count; i++) {
		struct held *h = &c->held[i];
		int cpu = h->backlog_cpu;

		h->wait_us = pvtcp_release_us(&per_cpu(pvtcp_cpus, cpu).vcpu,
					      &pvtcp_settings, h->since, now,
					      backlog_in(cpu));
		if (h->wait_us && (!shortest_us || h->wait_us < shortest_us))
			shortest_us = h->wait_us;
	}
	return shortest_us ? shortest_us : PVTCP_POLL_US;
}

static enum hrtimer_restart release_fn(struct hrtimer *timer)
{
	struct pvtcp_cpu *c = container_of(timer, struct pvtcp_cpu, release);
	unsigned int i = 0, left;
	struct held h;
	u32 wait_us;

	raw_spin_lock(&c->lock);
	wait_us = look_at_held(c);
	while (i < c->held_count) {
		if (c->held[i].wait_us) {
			i++;
			continue;
		}
		h = c->held[i];
		c->held[i] = c->held[--c->held_count];
		raw_spin_unlock(&c->lock);
		release_one(c, &h);
		raw_spin_lock(&c->lock);
	}
	left = c->held_count;
	raw_spin_unlock(&c->lock);
	if (!left)
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, ktime_of_us(wait_us));
	return HRTIMER_RESTART;
}

/* Is that socket's timer being run by release_one()? */
bool hold_is_running(struct sock *sk)
{
	return this_cpu_read(pvtcp_cpus.running) == sk;
}

/* The entry of that socket, or NULL: its timer is not held. */
static struct held *find_entry(struct pvtcp_cpu *c, const struct sock *sk)
{
	unsigned int i;

	for (i = 0; i < c->held_count; i++)
		if (c->held[i].sk == sk)
			return &c->held[i];
	return NULL;
}

/* A free entry for that socket. */
static struct held *new_entry(struct pvtcp_cpu *c, struct sock *sk)
{
	/*
	 * A kernel socket's timer may have to be stopped for good before its
	 * namespace goes, which nobody could do while our release runs it.
	 */
	if (c->held_count == HELD_MAX || !sk->sk_net_refcnt)
		return NULL;
	sock_hold(sk);
	c->held[c->held_count].sk = sk;
	return &c->held[c->held_count++];
}

/*
 * Wake-ups for which timers that wait for @cpu's backlog have been held already: those of
 * the first, and its own if the timer at @h waited for another CPU before.
 */
static u32 wakes_used(const struct pvtcp_cpu *c, const struct held *h, int cpu)
{
	u32 used = h ? wakes_held(h) : 0;
	unsigned int i;

	for (i = 0; i < c->held_count; i++)
		if (c->held[i].backlog_cpu == cpu)
			return max(used, wakes_held(&c->held[i]));
	return used;
}

/**
 * hold_timer() - hold the expired, unarmed retransmit timer of a locked socket
 * @pending: its kind, as in icsk_pending
 * @backlog_cpu: the CPU whose backlog it shall wait for
 *
 * Afterwards the timer's expiry is in the future. Called with BH disabled.
 *
 * Return: false if the timer shall run.
 */
bool hold_timer(struct sock *sk, u8 pending, int backlog_cpu)
{
	const struct pvtcp_vcpu *v = &per_cpu(pvtcp_cpus, backlog_cpu).vcpu;
	struct pvtcp_cpu *c = this_cpu_ptr(&pvtcp_cpus);
	const struct tcp_sock *tp = tcp_sk(sk);
	struct held *h;
	u32 since;

	raw_spin_lock(&c->lock);
	h = find_entry(c, sk);
	since = READ_ONCE(v->wakes) - wakes_used(c, h, backlog_cpu);
	if (!pvtcp_holds_on(v, since)) {
		raw_spin_unlock(&c->lock);
		return false;
	}
	if (!h)
		h = new_entry(c, sk);
	if (h) {
		h->pending = pending;
		h->snd_una = tp->snd_una;
		h->delivered = tp->delivered;
		h->data_segs_out = tp->data_segs_out;
		h->expires =
			jiffies + 1 + usecs_to_jiffies(pvtcp_limit_us(&pvtcp_settings));
		h->backlog_cpu = backlog_cpu;
		h->since = since;
		h->wait_us = PVTCP_POLL_US;
		set_retransmit_expires(sk, h->expires);
	}
	raw_spin_unlock(&c->lock);

	if (h) {
		if (!hrtimer_is_queued(&c->release))
			hrtimer_start(&c->release,
				      ktime_of_us(pvtcp_settings.hold_min_us),
				      HRTIMER_MODE_REL_PINNED_SOFT);
		return true;
	}
	/* Put off at the wake-up before this one, for want of room: not twice. */
	if (c->overflow_expires && retransmit_expires(sk) == c->overflow_expires)
		return false;
	c->overflow_expires = jiffies + 1;
	set_retransmit_expires(sk, c->overflow_expires);
	count(CNT_HELD_OVERFLOW);
	return true;
}

int hold_init(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct pvtcp_cpu *c = per_cpu_ptr(&pvtcp_cpus, cpu);

		raw_spin_lock_init(&c->lock);
		hrtimer_setup(&c->release, release_fn, CLOCK_MONOTONIC,
			      HRTIMER_MODE_REL_PINNED_SOFT);
	}
	for_each_possible_cpu(cpu) {
		struct held *held = kcalloc_node(HELD_MAX, sizeof(*held), GFP_KERNEL,
						 cpu_to_node(cpu));

		if (!held) {
			hold_exit();
			return -ENOMEM;
		}
		per_cpu(pvtcp_cpus, cpu).held = held;
	}
	return 0;
}

/* Called when no probe can call hold_timer() any more. */
void hold_exit(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct pvtcp_cpu *c = per_cpu_ptr(&pvtcp_cpus, cpu);

		hrtimer_cancel(&c->release);
		/* The timers stay armed and run by themselves. */
		while (c->held_count)
			sock_put(c->held[--c->held_count].sk);
		kfree(c->held);
	}
}
