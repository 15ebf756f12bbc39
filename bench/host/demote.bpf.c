// SPDX-License-Identifier: GPL-2.0
/*
 * For tc: strict priority by the bytes that a flow has sent (PIAS; MLFQ), in a
 * prio with the handle 2:. For cera.sh.
 */
#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))

static void *(*const map_lookup)(void *map,
				 const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const map_update)(void *map, const void *key, const void *value,
				__u64 flags) = (void *)BPF_FUNC_map_update_elem;
static long (*const load_bytes)(const void *skb, __u32 at, void *to,
				__u32 bytes) = (void *)BPF_FUNC_skb_load_bytes;

struct key {
	__u32 addresses[2];
	__u32 ports;
};

struct {
	int (*type)[BPF_MAP_TYPE_LRU_HASH];
	int (*max_entries)[4096];
	struct key *key;
	__u64 *value;
} sent SEC(".maps");

SEC("classifier")
int demote(struct __sk_buff *skb)
{
	__u64 first = skb->len, *bytes;
	struct key key;

	/* Ethernet, and IPv4 without options: what the bed sends. */
	if (load_bytes(skb, 26, key.addresses, sizeof(key.addresses)) ||
	    load_bytes(skb, 34, &key.ports, sizeof(key.ports)))
		return 0x20001;
	bytes = map_lookup(&sent, &key);
	if (bytes)
		__sync_fetch_and_add(bytes, skb->len);
	else
		map_update(&sent, &key, &first, BPF_ANY);
	if (!bytes || *bytes < 10000)
		return 0x20001;
	return *bytes < 100000 ? 0x20002 : 0x20003;
}

char LICENSE[] SEC("license") = "GPL";
