// SPDX-License-Identifier: GPL-2.0
/*
 * Whether a tap's queue has as many places free as are wanted, and if not, why. User
 * space runs it by BPF_PROG_TEST_RUN, which gives it the port and, in cb[], enum ek_ring.
 */
#include "ring.h"

const volatile struct ek_kernel ek_kernel SEC(EK_KERNEL_SECTION) = {};

/* Return: enum ek_vsnoop_ring */
SEC("tc")
int vsnoop_ring(struct __sk_buff *skb)
{
	return vsnoop_ring_look(skb, skb->cb[EK_RING_WANTED], skb->cb[EK_RING_TAKEN]);
}

char LICENSE[] SEC("license") = "GPL";
