// SPDX-License-Identifier: GPL-2.0
#include "maps.h"

SEC("tc")
int inject(struct __sk_buff *skb)
{
	return TCX_NEXT;
}

char LICENSE[] SEC("license") = "GPL";
