/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The maps, as intf.h describes them, and access to them.
 */
#ifndef EVENKEEL_HOST_BASE_MAPS_H
#define EVENKEEL_HOST_BASE_MAPS_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "../intf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, EK_MAX_PORTS);
	__type(key, u32);
	__type(value, struct ek_port);
} ports SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, EK_MAX_NAMESPACES);
	__type(key, u32);
	__type(value, u32);
} namespaces SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EK_MAX_PORTS);
	__type(key, u32);
	__type(value, struct ek_counters);
} counters SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ek_host);
} host SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, EK_DEFAULT_FLOWS);
	__type(key, struct ek_flow_key);
	__type(value, struct ek_flow);
} flows SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, EK_DEFAULT_HANDSHAKES);
	__type(key, struct ek_flow_key);
	__type(value, struct ek_handshake);
} handshakes SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, EK_DEFAULT_TRAINS);
	__type(key, struct ek_train_key);
	__type(value, struct ek_train);
} trains SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, EK_DEFAULT_PEERS);
	__type(key, struct ek_peer_key);
	__type(value, struct ek_peer);
} peers SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EK_VFLOOD_FLOWS);
	__type(key, u32);
	__type(value, struct ek_vflood_flow);
} vflood_flows SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EK_MAX_PORTS);
	__type(key, u32);
	__type(value, struct ek_vflood_port);
} vflood_ports SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EK_MAX_PORTS);
	__type(key, u32);
	__type(value, struct ek_vflood_queue);
} vflood_queues SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EK_MAX_PORTS);
	__type(key, u32);
	__type(value, u32);
} vflood_managed SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EK_MAX_PORTS);
	__type(key, u32);
	__type(value, struct ek_proboscis_port);
} proboscis_ports SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EK_EVENTS_BYTES);
} events SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EK_MAX_PORTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct ek_cera_port);
} cera_ports SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, EK_VSNOOP_FLOWS);
	__type(key, struct ek_flow_key);
	__type(value, struct ek_vsnoop_flow);
} vsnoop_flows SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EK_MAX_PORTS);
	__type(key, u32);
	__type(value, struct ek_vsnoop_port);
} vsnoop_ports SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, EK_EXCHANGES);
	__type(key, struct ek_flow_key);
	__type(value, struct ek_exchange);
} exchanges SEC(".maps") __weak;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EK_COMPLETIONS_BYTES);
} completions SEC(".maps") __weak;

/* One more connection of a port that vFlood manages, or one less. */
static __always_inline void vflood_count_managed(u32 slot, s32 by)
{
	u32 *managed = bpf_map_lookup_elem(&vflood_managed, &slot);

	if (managed)
		__sync_fetch_and_add(managed, by);
}

static inline void count(struct ek_counters *c, enum ek_counter which, u64 by)
{
	c->value[which] += by;
}

#endif /* EVENKEEL_HOST_BASE_MAPS_H */
