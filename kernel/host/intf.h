/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the eBPF programs of a host and user space both know: settings, flows,
 * counters and events. The programs include it after vmlinux.h; Rust reads it
 * through bindgen. No layout depends on the compiler: padding is spelt out.
 *
 * A port is a VM's network device on the host. "Local" is the VM behind the
 * port, "remote" the other end; two VMs of one host have a flow each.
 *
 * Maps, all pinned; [slot] is that of a port:
 *   ports            hash      u32 number -> struct ek_port, written by user space
 *   namespaces       hash      u32 inode -> u32 base, written by user space
 *   counters         per-CPU   struct ek_counters [slot]
 *   host             array[1]  struct ek_host, written by user space
 *   flows            LRU       struct ek_flow_key -> struct ek_flow
 *   handshakes       LRU       struct ek_flow_key -> struct ek_handshake
 *   trains           LRU       struct ek_train_key -> struct ek_train
 *   peers            LRU       struct ek_peer_key -> struct ek_peer
 *   events           ring buffer of struct ek_event
 *   proboscis_ports  array     struct ek_proboscis_port [slot]
 *   vsnoop_flows     hash      struct ek_flow_key -> struct ek_vsnoop_flow
 *   vsnoop_ports     array     struct ek_vsnoop_port [slot]
 *   cera_ports       array     struct ek_cera_port [slot], mapped into user space
 *   exchanges        hash      struct ek_flow_key -> struct ek_exchange
 *   completions      ring buffer of struct ek_completion, which wakes nobody up
 *   vflood_flows     array     struct ek_vflood_flow [index]
 *   vflood_ports     array     struct ek_vflood_port [slot]
 *   vflood_managed   array     u32, the port's connections among vflood_flows [slot]
 *   vflood_queues    array     struct ek_vflood_queue [slot]
 *   vflood_devices   hash      u32 ifindex -> struct ek_vflood_device; qdisc only
 *
 * A port without settings is passed over.
 *
 * A port's number, called its ifindex in keys and settings, is the index of its device;
 * in a network namespace other than the agent's, it also has that namespace's base. Bases
 * begin with EK_ELSEWHERE, which no index has, so that no two ports have the same number.
 */
#ifndef EVENKEEL_HOST_INTF_H
#define EVENKEEL_HOST_INTF_H

#include "algo/vflood/ack_filter.h"
#include "algo/cera/cera.h"
#include "algo/base/ecn.h"
#include "algo/base/exchange.h"
#include "algo/base/packet.h"
#include "algo/proboscis/proboscis.h"
#include "algo/vsnoop/vsnoop.h"
#include "algo/vflood/returns.h"
#include "algo/vflood/vflood.h"
#include "algo/base/window.h"

/* The version of all layouts below: pins of another are not taken over. */
#define EK_INTF_VERSION 24

#define EK_MAX_PORTS 4096
#define EK_ELSEWHERE (1u << 31) /* the number is of another network namespace */
#define EK_INDEX_BITS 20 /* of the device's index there; the base has the others */
#define EK_MAX_NAMESPACES (1u << (31 - EK_INDEX_BITS))
#define EK_DEFAULT_FLOWS 65536
#define EK_DEFAULT_HANDSHAKES 65536
#define EK_DEFAULT_TRAINS 65536
#define EK_DEFAULT_PEERS 16384
#define EK_VSNOOP_FLOWS 65536
#define EK_EVENTS_BYTES (1u << 20)
#define EK_EXCHANGES 65536
#define EK_COMPLETIONS_BYTES (1u << 20)
#define EK_VFLOOD_FLOWS 16384 /* that vFlood manages at a time; a power of two */
#define EK_VFLOOD_WAYS 8 /* entries where a flow may be */
#define EK_VFLOOD_PORT_FLOWS                                                             \
	(EK_VFLOOD_FLOWS / 2) /* of one port: others need entries, too */

/* Nothing is held for longer after the agent was last heard of: what is held drains. */
#define EK_VFLOOD_AGENT_NS 3000000000ull
/* A flow without any packet for this long is no longer managed. */
#define EK_VFLOOD_IDLE_NS 600000000000ull
_Static_assert(EK_VFLOOD_IDLE_NS >= 2000 * VFLOOD_HELD_US,
	       "no guest counts on what its host has forgotten");

/* No end waits for an answer to its SYN for longer. */
#define EK_HANDSHAKE_NS 300000000000ull
/* After this a remote host is probed anew, whatever it made of probes before. */
#define EK_PEER_NS 600000000000ull

/* Largest SYN or SYN-ACK that can be sent again or held. */
#define EK_MAX_FRAME 128

enum ek_mode {
	EK_MODE_OFF, /* packets pass unread */
	EK_MODE_OBSERVE, /* count what would be done, change nothing */
	EK_MODE_ENFORCE,
};

/* CERA on a port. */
struct ek_cera_settings {
	u32 mode; /* enum ek_mode */
	u32 pad;
};

/* What is known of the room for a packet in a port's queue. */
enum ek_vsnoop_ring {
	EK_VSNOOP_RING_UNSEEN, /* no data has come yet */
	EK_VSNOOP_RING_FREE,
	EK_VSNOOP_RING_FULL, /* too little is free */
	EK_VSNOOP_RING_WAITING, /* packets wait before it, or the queue is stopped */
	EK_VSNOOP_RING_QDISC, /* the qdisc before it may drop what it likes */
	EK_VSNOOP_RING_FILTERED, /* the tap has a filter, which may drop */
	EK_VSNOOP_RING_DETACHED, /* nobody has the tap open */
	EK_VSNOOP_RING_QUEUES, /* more queues than are looked at */
	EK_VSNOOP_RING_UNREADABLE, /* this kernel does not say */
};

/* Whether the VM's own TCP takes what its windows have offered. */
enum ek_vsnoop_endpoint {
	EK_VSNOOP_ENDPOINT_UNKNOWN, /* nobody has vouched for the VM: no early ACKs */
	EK_VSNOOP_ENDPOINT_UNFIT, /* its own agent says that it may drop what it has room
				     for */
	EK_VSNOOP_ENDPOINT_OBSERVED, /* what the port sees of it is enough */
	EK_VSNOOP_ENDPOINT_ATTESTED, /* its agent vouches for it, while the host's agent
					is there */
};

/* Virtual CPUs of a VM at most; nobody knows whether a larger VM has its core. */
#define EK_VSNOOP_VCPUS 64

/* The threads that are a VM's virtual CPUs, by their numbers on the host. */
struct ek_vsnoop_vcpus {
	u32 process; /* that they belong to */
	u32 count; /* of @threads, 0: they are not known */
	u32 threads[EK_VSNOOP_VCPUS];
};

/* vSnoop on a port: part of its settings. */
struct ek_vsnoop_settings {
	u32 mode; /* enum ek_mode; off where the device's queue cannot be read */
	struct vsnoop_settings settings;
	u32 reserve_segments; /* slots that others may take meanwhile */
	u32 endpoint; /* enum ek_vsnoop_endpoint */
	struct ek_vsnoop_vcpus vcpus;
};

/* vFlood on a port. */
struct ek_vflood_settings {
	u32 mode; /* enum ek_mode */
	u32 hold_ifindex; /* the device whose qdisc holds the VM's packets, 0: there is
			     none */
	u32 split_ifindex; /* its other end, which splits GSO packets */
	struct vflood_settings settings;
	u32 unread_acks; /* that may wait for the VM (algo/vflood/ack_filter.h) */
	u32 free_slots; /* of a tap's queue when it reads them, 0: nobody can look at
			    that */
	u32 passes_over; /* 1: connections that begin are not managed */
	u32 token; /* vflood_token() of the VM's channel, 0: there is none */
};

/* ProBoSCIS on a port. */
struct ek_proboscis_settings {
	u32 mode; /* enum ek_mode */
	u32 ecn_for_guests; /* 1: set ECT for guests without ECN, echo and hide marks */
	struct proboscis_settings settings;
};

/*
 * The mechanisms, whose settings on a port are struct ek_NAME_settings with an enum
 * ek_mode in @mode. Only vFlood may be on and yet pass over connections that begin.
 */
#define EK_OTHERS_THAN_VFLOOD(MECHANISM)                                                 \
	MECHANISM(proboscis) MECHANISM(cera) MECHANISM(vsnoop)
#define EK_MECHANISMS(MECHANISM) EK_OTHERS_THAN_VFLOOD(MECHANISM) MECHANISM(vflood)

/* A port's settings: the agent resolves defaults and overrides, and programs only read.
 */
struct ek_port {
	u32 slot; /* of its state: below EK_MAX_PORTS, and no other port's */
	u32 pad;
#define SETTINGS(name) struct ek_##name##_settings name;
	EK_MECHANISMS(SETTINGS)
#undef SETTINGS
	u64 since_ns; /* its packets are read since then: what is older is not known of it
		       */
	u64 timed_ns; /* a trial times its exchanges since then, 0: none does */
};

/* ProBoSCIS's state of a port. */
struct ek_proboscis_port {
	u64 budget_ns; /* proboscis_budget() */
	u64 trains_ns; /* proboscis_train_length() */
};

/* vFlood's state of a port. */
struct ek_vflood_port {
	struct ack_filter_vm filter;
};

/*
 * A port's share of the uplink. Programs count, the agent reads every epoch
 * without asking the kernel, and writes the limit. One agent, and nothing here
 * has to be exact: what two CPUs count at once may count once.
 */
struct ek_cera_port {
	struct cera_meter meter; /* programs count, the agent turns it */
	u32 opened; /* flows that had data for the uplink */
	u32 handshake_us; /* least since the agent took it, 0: none */
	struct cera_rtt rtt; /* the agent's: handshakes as they were */
	struct cera_rtt own_rtt; /* the agent's: without the queue's length */
	struct cera_pause pause; /* programs time, the agent takes the longest */
	u64 until_ns; /* the limit holds until then */
	u32 window; /* of the VM, in segments; 0: no limit */
	u32 flows; /* active ones, which have it in equal parts */
	u32 next; /* where the remainder goes on */
	struct cera_loop loop; /* the agent's: what the window is for */
	u32 queue_us; /* the agent's: the uplink's queue, the longest of two epochs */
	u32 far_us; /* most by which a full flow was farther, since the agent took it */
};

/* Of the whole host. */
struct ek_host {
	u32 version; /* EK_INTF_VERSION */
	u32 keys; /* how many of @key are valid; without any, no probes */
	struct siphash_key key[2]; /* the first signs, both verify */
	u64 agent_until_ns; /* CLOCK_MONOTONIC: SYN-ACKs may be held until then, 0: never
			     */
};

/* An address; IPv4 as ::ffff:a.b.c.d. Network byte order. */
struct ek_addr {
	u8 bytes[16];
};

/* Ports in host byte order. A trunk's networks may have the same addresses. */
struct ek_flow_key {
	struct ek_addr local;
	struct ek_addr remote;
	u16 local_port;
	u16 remote_port;
	u32 ifindex;
	u32 vlan[PACKET_MAX_VLANS]; /* packet_vlan() of the tags, the outermost first; 0:
				     * none
				     */
};

#define EK_WSCALE_NONE 0xff /* no window scale option */

/* What one end said in its SYN or SYN-ACK. */
struct ek_end {
	u16 mss; /* 0: no option */
	u8 wscale; /* or EK_WSCALE_NONE */
	u8 has_timestamps;
};

/* A SYN that is not yet answered. */
struct ek_handshake {
	u64 syn_ns; /* CLOCK_MONOTONIC, as all times here */
	u32 iss; /* sequence number of the SYN */
	struct ek_end opener; /* who sent the SYN */
	u8 from_vm; /* 1: the VM sent it */
	u8 asks_ecn; /* enum ecn_mode that its SYNs ask for */
	u8 syns; /* SYNs seen with this iss */
	u8 trains; /* trains of probes sent before them */
	u16 probes_sent; /* with all trains */
	u8 reported; /* the other host answered the probes */
	u8 is_local; /* the other end is a VM of this host, or the host itself */
	u8 is_routed; /* this host is its next hop, and may translate it */
	u8 is_behind; /* a SYN is on its way through the port once more, behind its probes
		       */
	u8 opens_fast; /* the VM's: it may be answered before the handshake is over */
	u8 goes_alone; /* the VM's: a SYN with this iss had data, or asked for MPTCP */
	u8 pad[4];
};

/* Probes of one SYN, at the receiver. */
struct ek_train_key {
	struct ek_flow_key flow;
	u32 iss;
};

struct ek_train {
	u64 first_ns;
	struct proboscis_train count;
};

/* Another host, as one port sees it: tenants' networks may have the same addresses. */
struct ek_peer_key {
	struct ek_addr remote;
	u32 ifindex;
	u32 vlan[PACKET_MAX_VLANS];
};

/* What is known of a remote address. */
struct ek_peer {
	u64 report_ns; /* the last valid report or probe, 0: never */
	struct proboscis_peer state;
	u64 heard_ns; /* when it last answered, or did not */
};

enum ek_flow_flag {
	EK_FLOW_VM_OPENED = 1 << 0, /* the VM sent the SYN */
	EK_FLOW_NATIVE_ECN = 1 << 1, /* the guests have ECN of their own: it stays theirs
				      */
	EK_FLOW_PEER = 1 << 2, /* the other host has evenkeel */
	EK_FLOW_ELEPHANT = 1 << 3, /* sent more than elephant_bytes: left alone */
	EK_FLOW_VM_FIN = 1 << 4, /* the VM has sent one */
	EK_FLOW_REMOTE_FIN = 1 << 5,
	EK_FLOW_SYNACK_HELD = 1 << 6,
	EK_FLOW_LOCAL = 1 << 7, /* the other end is a VM of this host, or the host itself
				 */
	EK_FLOW_TIMED = 1 << 8, /* its handshake's third segment ends a measurement */
	EK_FLOW_ACCURATE_ECN = 1 << 9, /* their ACKs count marks: none is made up, kept or
					* held
					*/
	EK_FLOW_PEER_GONE = 1 << 10, /* the other host saw to ECN, and does no more */
	EK_FLOW_ROUTED = 1 << 11, /* no probes: this host routes it, and may translate it
				   */
	EK_FLOW_ANSWER_BEGUN = 1 << 12, /* the SYN-ACK has come, or data might before the
					 * VM's first ACK: @answer is settled
					 */
	EK_FLOW_LARGE = 1 << 13, /* the VM leaves packets of several segments to others
				    to cut (GSO) */
	EK_FLOW_VM_ENDED = 1 << 14, /* the other end has acknowledged the VM's FIN */
	EK_FLOW_REMOTE_ENDED = 1 << 15,
	/* A SYN-ACK is on its way through the port once more: */
	EK_FLOW_SYNACK_BEHIND = 1 << 16, /* behind its report */
	EK_FLOW_SYNACK_RELEASED = 1 << 17, /* from the agent, which has held it */
};

/* A connection whose handshake was seen. */
struct ek_flow {
	u64 first_ns;
	u64 last_ns;
	u64 bytes_from_vm; /* by sequence number: retransmissions do not count */
	u64 bytes_to_vm;
	u32 iss; /* of the SYN */
	u32 flags; /* enum ek_flow_flag */
	struct ek_end vm;
	struct ek_end remote;
	u16 probes_sent;
	u16 probes_seen;
	u16 probes_marked;
	u16 window_by; /* enum window_by: who set the last window that was limited, or the
			  receiver */
	u32 window_offered_bytes; /* the receiver's own, in the last ACK to the VM */
	u32 window_set_bytes; /* what the VM was told (observe: would have been) */
	u32 windows_limited; /* how many ACKs */
	u32 synack_window_bytes; /* set on this flow's SYN-ACK, 0: untouched */
	u32 cera_stamp; /* slot of its last data, 0: none; here because another lookup
			   would cost more than all that CERA does with a packet */
	u32 cera_position; /* its place among the VM's flows */
	u32 cera_limit_bytes; /* CERA's, in the last ACK to the VM, 0: none */
	u32 cera_end; /* of what the VM may send by that */
	struct cera_trip cera_trip; /* its own round trip */
	struct proboscis_sender sender; /* the VM sends */
	struct proboscis_echo echo; /* the VM receives */
	u32 vflood_index; /* in vflood_flows */
	u32 vflood_owner; /* what stands there if it is this flow's, 0: none */
	u32 came_in; /* device where the last packet for the VM came in, 0: none did */
	struct proboscis_answer answer; /* the VM opened it: its window at first */
	u32 answer_window_bytes; /* that it told with its first ACK, 0: untouched */
	u8 answer_trains; /* trains of probes ahead of the VM's SYN-ACKs */
	u8 answer_sent; /* probes of the last one */
	u8 answer_seen; /* probes that came ahead of the SYN-ACK for the VM */
	u8 answer_marked;
	u32 vm_fin_ack; /* the ACK of the VM's FIN */
	u32 remote_fin_ack;
	u32 synack_seq; /* number of the SYN-ACK */
	u32 vm_ack; /* what the VM has, by its own ACKs */
	u32 vm_edge; /* the furthest right edge of a window that it has offered */
};

/* A flow as vSnoop knows it; the port's lock guards it. */
struct ek_vsnoop_flow {
	u64 last_ns;
	u32 iss; /* of the SYN */
	u32 early_acks; /* data that was acknowledged early */
	u32 rode; /* data of the VM's that took the number along */
	u32 dropped; /* ACKs of the VM that said nothing new */
	u32 acked_ts; /* timestamp of the last data that was acknowledged early, 0: none
		       */
	u32 again_end; /* of data that came again, whose ACK is under way, or told at
			  first */
	struct vsnoop_flow flow;
	u32 peer_ack; /* highest ACK of the other end's */
	u32 peer_ts; /* its last timestamp, 0: none */
	u8 mac[6]; /* that the VM sends with */
	u8 ttl; /* the lowest that the VM has taken, 0: none yet */
	u8 next_ttl; /* of data that it is to take, 0: none */
	u32 next_end; /* of that data */
	u8 is_forwarded; /* 1: another machine sends them, behind the VM */
	u8 pad[3];
};

#ifndef __VMLINUX_H__
/* linux/bpf.h */
struct bpf_spin_lock {
	u32 val;
};
#endif

/* vSnoop's state of a port. */
struct ek_vsnoop_port {
	struct bpf_spin_lock lock; /* of this and of the port's flows */
	struct vsnoop_vm vm;
	u32 ring; /* enum ek_vsnoop_ring that the last data met */
	u8 mac[6]; /* that all the VM's packets have, once @has_mac */
	u8 has_mac;
	u8 pad;
};

/* What the VM has last said to the other end: held packets leave with it. */
struct ek_vflood_last {
	u32 ack;
	u32 ts_val;
	u32 ts_ecr;
	u16 window;
	u8 has_timestamps; /* both of them stand in 12 bytes of options before all others
			    */
	u8 pad;
};

/*
 * A flow that vFlood manages. The lock of its port's qdisc guards all that changes, but
 * for @last, and for @owner on its way from 0.
 */
struct ek_vflood_flow {
	struct vflood_flow flow;
	struct ek_flow_key key;
	struct ek_vflood_last last;
	u64 owner; /* 0: free; the same at one index only after 2^32 flows */
	u64 seen_ns;
	u64 acked_ns; /* when the other end last sent an ACK */
	u64 clock_ns; /* the latest time by which somebody had a turn at it */
	u32 generation; /* the last owner */
	u32 hold_ifindex; /* as the port had it when the flow began */
	u32 slot; /* of the port */
	u32 is_enforced; /* 0: it is only observed */
	u32 is_closing; /* what is held drains, and then it is over */
	u32 is_listed; /* among those of its port that hold something */
	u32 next; /* in that list: index + 1, 0: the last */
	u32 packets; /* in its queues, one that is being split among them */
	struct vflood_returns returns; /* what has left the queue, and is to come by the
					* port once more */
	u64 back_acks; /* the same, ACKs alone */
	u32 pieces; /* in the queue of its pieces, which goes first */
	u32 is_direct; /* all that is out has left past the device that holds packets */
	u64 splitting; /* the range of the first packet, which is on its way to be split,
			  0: none */
	u64 splitting_ns; /* since when */
	u64 first; /* the range of the first packet that is held, 0: it is not known */
	u64 first_kind; /* how that came, enum vflood_order_kind */
	struct ack_filter_flow filter;
	u64 filtered; /* 1 << 32 | the last ACK's number if the VM need not have it, or 0
		       */
	u64 behind_ns; /* when a large packet last had to stay behind such segments */
	u32 is_joining; /* what left the queue last went to be joined */
	u32 pad;
	u64 is_taken; /* somebody works on its state, see vflood/lock.h */
};

/* What holds for all flows of a port. */
struct ek_vflood_queue {
	struct vflood_vm vm;
	u32 first; /* flows that hold something: index + 1, 0: none */
	u32 ready; /* packets that wait for the device */
	u32 spares; /* entries for packets to come */
	u32 pad;
	u64 tick_ns; /* when to look after what is held */
	u64 promised_by_acks; /* more than @vm says, or less; see vflood/turn.h */
};

/* A device that holds packets, or where they come out of it or joined: whose they are. */
struct ek_vflood_device {
	u32 port_ifindex;
	u32 slot;
	u32 join_ifindex; /* sends segments to where they are joined; 0: none does */
};

/* What the kernel calls the qdisc of such a device. */
#define EK_VFLOOD_QDISC "evenkeel"

/* Observe counts what enforce would do. The build makes help texts of these comments. */
enum ek_counter {
	EK_COUNT_PACKETS_FROM_VM, /* Packets seen from the VM */
	EK_COUNT_PACKETS_TO_VM, /* Packets seen to the VM */
	EK_COUNT_NOT_TCP, /* Packets passed because they are not TCP */
	EK_COUNT_UNPARSABLE, /* Packets passed because their headers make no sense */
	EK_COUNT_UNKNOWN_FLOW, /* TCP packets passed because their handshake was not seen
				*/
	EK_COUNT_FLOWS, /* Flows entered after a handshake */
	EK_COUNT_MAP_FULL, /* Times that a table took no entry */
	EK_COUNT_SYNS_FROM_VM, /* SYNs from the VM */
	EK_COUNT_PROBES_SENT, /* Probes sent before SYNs */
	EK_COUNT_PROBES_REFUSED, /* Trains not sent because the VM's budget was used up */
	EK_COUNT_PROBES_SPARED, /* SYNs without probes because the peer never answers
				 * them, the VM repeats them to a stranger, or they have
				 * data or ask for several paths (MPTCP) */
	EK_COUNT_PROBES_FAILED, /* Probes that could not be made or sent */
	EK_COUNT_PROBES_SEEN, /* Valid probes from the network, dropped before the VM */
	EK_COUNT_PROBES_MARKED, /* Valid probes from the network with a congestion mark */
	EK_COUNT_PROBES_INVALID, /* Packets shaped like probes with a wrong tag, passed */
	EK_COUNT_REPORTS_SENT, /* Reports sent to the opening host */
	EK_COUNT_REPORTS_SEEN, /* Valid reports, dropped before the VM */
	EK_COUNT_SYNACKS_FROM_VM, /* SYN-ACKs from the VM */
	EK_COUNT_SYNACKS_SCALED, /* SYN-ACKs whose window was scaled */
	EK_COUNT_SYNACKS_ONE_MSS, /* SYN-ACKs whose window was set to one MSS */
	EK_COUNT_SYNACKS_HELD, /* SYN-ACKs handed to user space to wait for late probes */
	EK_COUNT_ECT_SET, /* Segments of the VM made ECN-capable */
	EK_COUNT_CE_SEEN, /* Segments to the VM with a congestion mark */
	EK_COUNT_CE_HIDDEN, /* Marks hidden from the VM */
	EK_COUNT_ECE_SET, /* ACKs of the VM that carry an echo on its behalf */
	EK_COUNT_ECE_SEEN, /* ACKs to the VM with an echo from the other host */
	EK_COUNT_ECE_HIDDEN, /* Echoes hidden from the VM */
	EK_COUNT_WINDOWS_LIMITED, /* ACKs whose window was lowered by DCTCP */
	EK_COUNT_CERA_WINDOWS_LIMITED, /* ACKs whose window was lowered by CERA */
	EK_COUNT_EVENTS_LOST, /* Events for user space that found the ring buffer full */
	EK_COUNT_VSNOOP_EARLY_ACKS, /* ACKs sent for data before the VM has it */
	EK_COUNT_VSNOOP_ON_DATA, /* Data of the VM that carried such an acknowledgement */
	EK_COUNT_VSNOOP_DROPPED, /* ACKs of the VM dropped because they say nothing new */
	EK_COUNT_VSNOOP_NO_BUFFER, /* Segments left to the VM: window or budget is full */
	EK_COUNT_VSNOOP_NO_PLACE, /* Segments left to the VM: the queue might not take
				     them */
	EK_COUNT_VSNOOP_UNEXPECTED_SEQUENCE, /* Times that data might be missing */
	EK_COUNT_VSNOOP_FAILED, /* Early ACKs that could not be made or sent */
	EK_COUNT_VSNOOP_DOUBTED, /* Segments left to the VM: its TCP might not take them
				  */
	EK_COUNT_VSNOOP_RUNNING, /* Segments left to the VM: it had its core, or nobody
				    knew whether it had */
	EK_COUNT_VSNOOP_BROKEN, /* Times that a VM did not keep what its window had
				   offered */
	EK_COUNT_WRITE_FAILED, /* Changes that the kernel refused */
	EK_COUNT_VFLOOD_FLOWS, /* Flows that vFlood manages or observes */
	EK_COUNT_VFLOOD_NO_PLACE, /* Flows that vFlood, or their port, had no place for */
	EK_COUNT_VFLOOD_NATIVE_ECN, /* Flows that vFlood leaves alone: their guests use
				       ECN */
	EK_COUNT_VFLOOD_HELD, /* Segments of the VM that were held */
	EK_COUNT_VFLOOD_HELD_US, /* How long all of them together were held, in
				    microseconds */
	EK_COUNT_VFLOOD_GRANTS, /* ACKs that told the VM how much it may hand over */
	EK_COUNT_VFLOOD_UPDATES, /* Window updates made after handshakes */
	EK_COUNT_VFLOOD_LOSSES, /* Losses that vFlood saw */
	EK_COUNT_VFLOOD_NO_BUFFER, /* Times that a flow had used up its share of the
				      buffer */
	EK_COUNT_VFLOOD_REFUSED, /* Packets dropped because the VM's buffer was full */
	EK_COUNT_VFLOOD_UNDONE, /* Losses found to be none: windows given back */
	EK_COUNT_VFLOOD_NEEDLESS, /* Packets dropped that were held already or had arrived
				   */
	EK_COUNT_VFLOOD_BARE_ACKS, /* ACKs sent alone because their data was held */
	EK_COUNT_VFLOOD_DRAINED, /* Packets let go without an ACK that allowed it */
	EK_COUNT_VFLOOD_SPLIT, /* GSO packets split because not all of them might leave */
	EK_COUNT_VFLOOD_FILTERED_ACKS, /* ACKs kept from a VM that need not have them */
	EK_COUNT_VFLOOD_FALSE_ACKS, /* ACKs that let nothing out: their number or checksum
				       is wrong */
	EK_COUNT_SIGNED, /* Segments left alone because their header is signed */
	EK_COUNT_ACCURATE_ECN, /* Flows whose guests use or asked for accurate ECN */
	EK_COUNT_PEERS_GONE, /* Flows let go because the other host saw to ECN no more */
	EK_COUNT_PROBES_ROUTED, /* SYNs without probes because this host routes them */
	EK_COUNT_MULTIPATH, /* Connections left alone because they have several paths
			       (MPTCP) */
	EK_COUNT_ANSWER_PROBES_SENT, /* Probes sent before SYN-ACKs */
	EK_COUNT_ANSWERS_SCALED, /* Connections whose answer's first window was scaled */
	EK_COUNT_ANSWERS_ONE_MSS, /* Connections whose answer's first window was set to
				     one MSS */
	EK_COUNT_COMPLETIONS_LOST, /* Exchanges that a trial has not heard of: its buffer
				      was full */
	EK_COUNTER_MAX,
};

struct ek_counters {
	u64 value[EK_COUNTER_MAX];
};

/* What needs a timer, and so user space. */
enum ek_event_type {
	EK_EVENT_SYN_PROBED, /* probes and SYN went out: send them again after b1 and b2
			      */
	EK_EVENT_SYN_STRANGER, /* the same, for a peer that was never heard of */
	EK_EVENT_SYNACK_HELD, /* was taken off the path: inject it after b3 or when its
				 train is in */
};

struct ek_event {
	u32 type; /* enum ek_event_type */
	u32 frame_bytes;
	u64 now_ns;
	struct ek_flow_key flow;
	u32 iss;
	u16 vlan_tci; /* the tag that is not in @frame */
	u16 vlan_proto; /* 0: no tag; host byte order */
	u8 frame[EK_MAX_FRAME]; /* from the Ethernet header; checksums may be partial */
};

/* What user space finds out about a kernel before it loads programs: their constants. */
#define EK_KERNEL_SECTION ".rodata.kernel"

struct ek_kernel {
	u32 has_tun_types; /* 1: in its own BTF, as the driver is built in */
	u32 namespace; /* inode of the agent's network namespace, 0: ports are nowhere
			  else */
};

/* What a connection carries, while a trial times it. */
struct ek_exchange {
	u32 iss; /* of the SYN */
	u32 pad;
	struct exchange exchange;
};

/* An exchange that is over. */
struct ek_completion {
	u64 begin_ns;
	u64 end_ns; /* 0: the connection ended before all had arrived */
	u64 bytes_from_vm;
	u64 bytes_to_vm;
	u32 ifindex;
	u32 handshake_us; /* 0: it began on a connection that was there */
	u32 again_from_vm; /* segments that were sent before */
	u32 again_to_vm;
	u32 timeouts_from_vm; /* those of them that a timer sent */
	u32 timeouts_to_vm;
};

/* Arguments of programs that the agent runs: words of cb[] of BPF_PROG_TEST_RUN. */

/* proboscis/inject; data is a frame of an event. */
enum ek_inject {
	EK_INJECT_PROBES, /* how many probes to send first */
	EK_INJECT_TRAIN, /* number of their train */
	EK_INJECT_FRAME, /* 1: send the frame, too */
	EK_INJECT_VLAN, /* vlan_proto << 16 | vlan_tci, 0: no tag */
};

/* vflood/idle */
enum ek_idle {
	EK_IDLE_MS, /* connections without a packet for so long are ended */
	EK_IDLE_FLOWS, /* at most so many of them */
};

/* What vsnoop/vcpus writes: a process that has a tap open, */
struct ek_holder {
	u32 process;
	u32 ifindex;
	u32 namespace; /* inode of the network namespace that @ifindex is of */
};

/* and a thread. */
struct ek_thread {
	u32 process;
	u32 id;
	char name[16];
};

/* vsnoop/sweep */
enum ek_sweep {
	EK_SWEEP_MS, /* connections without a packet for so long are forgotten */
};

/* vsnoop/ring */
enum ek_ring {
	EK_RING_WANTED, /* how many slots of the queue are asked for */
	EK_RING_TAKEN, /* 1: those count whose packet was taken out */
};

#endif /* EVENKEEL_HOST_INTF_H */
