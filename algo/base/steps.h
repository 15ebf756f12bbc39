/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The steps of a packet's way through a VM's port, in order and in one place: the eBPF
 * programs run these lists (kernel/host/to_vm.bpf.c, from_vm.bpf.c), and the simulator's
 * mechanisms stand at these places (crates/sim/src/host/shim.rs).
 *
 * STEP(NAME, function): a program's function is function_to_vm() or function_from_vm().
 */
#ifndef EVENKEEL_ALGO_BASE_STEPS_H
#define EVENKEEL_ALGO_BASE_STEPS_H

/*
 * Network -> VM. Steps that change a packet stand before the one that acknowledges it: an
 * early ACK is for what the VM gets.
 *
 *   PROBES     ProBoSCIS takes probes and reports
 *   FLOW       a SYN or SYN-ACK is noted, and what belongs to no known connection passes
 *   EXCHANGE   a trial times what the connection carries
 *   MARKS      marks are counted and hidden, echoes set DCTCP's limit
 *   UPLINK     CERA times the handshake and has the flow's share
 *   ACK_CLOCK  an ACK lets out what vFlood holds
 *   WINDOW     the arbiter writes the window that the VM is told
 *   ECHOES     echoes are hidden
 *   EARLY_ACK  vSnoop acknowledges
 *   END        a connection may be over
 */
#define STEPS_TO_VM(STEP)                                                                \
	STEP(PROBES, proboscis_probes)                                                   \
	STEP(FLOW, flow)                                                                 \
	STEP(EXCHANGE, exchange)                                                         \
	STEP(MARKS, proboscis_marks)                                                     \
	STEP(UPLINK, cera_uplink)                                                        \
	STEP(ACK_CLOCK, vflood_ack_clock)                                                \
	STEP(WINDOW, window)                                                             \
	STEP(ECHOES, proboscis_echoes)                                                   \
	STEP(EARLY_ACK, vsnoop_early_ack)                                                \
	STEP(END, flow_end)

/*
 * VM -> network. ACKs that say nothing new end before any step counts them, and a packet
 * is held as it will leave, but for its ACK.
 *
 *   PROBES       probes and reports that this host has sent pass
 *   FLOW         signed handshakes pass, and the connection is looked up
 *   COPY         a copy of data becomes vSnoop's early ACK
 *   KNOWN        what belongs to no known connection passes
 *   HANDSHAKE    probes go ahead of a SYN, the SYN-ACK's window follows those that came
 *   BACK         what vFlood held goes on behind HOLD
 *   NOTE         what the VM has, and has room for, is noted
 *   EXCHANGE     a trial times what the connection carries
 *   ACK_FILTER   ACKs that say nothing new are dropped, and early ACKs ride on data
 *   ECN          packets become ECN-capable
 *   WINDOW       an answer's first flight follows the probes ahead of its SYN-ACK
 *   NUMBER       an ACK has the number of what comes next
 *   ECHO         marks are echoed
 *   UPLINK       CERA counts
 *   HOLD         vFlood holds data back
 *   ACK_ON_DATA  early ACKs ride on what was held
 *   DEPARTURE    CERA times what leaves
 *   END          a connection may be over
 */
#define STEPS_FROM_VM(STEP)                                                              \
	STEP(PROBES, proboscis_probes)                                                   \
	STEP(FLOW, flow)                                                                 \
	STEP(COPY, vsnoop_copy)                                                          \
	STEP(KNOWN, flow_known)                                                          \
	STEP(HANDSHAKE, proboscis_handshake)                                             \
	STEP(BACK, vflood_back)                                                          \
	STEP(NOTE, flow_note)                                                            \
	STEP(EXCHANGE, exchange)                                                         \
	STEP(ACK_FILTER, vsnoop_ack_filter)                                              \
	STEP(ECN, proboscis_ecn)                                                         \
	STEP(WINDOW, proboscis_window)                                                   \
	STEP(NUMBER, window_number)                                                      \
	STEP(ECHO, proboscis_echo)                                                       \
	STEP(UPLINK, cera_uplink)                                                        \
	STEP(HOLD, vflood_hold)                                                          \
	STEP(ACK_ON_DATA, vsnoop_ack_on_data)                                            \
	STEP(DEPARTURE, cera_departure)                                                  \
	STEP(END, flow_end)

#define STEP_TO_VM(name, function) STEP_TO_VM_##name,
#define STEP_FROM_VM(name, function) STEP_FROM_VM_##name,

enum step_to_vm { STEPS_TO_VM(STEP_TO_VM) };

enum step_from_vm { STEPS_FROM_VM(STEP_FROM_VM) };

#undef STEP_TO_VM
#undef STEP_FROM_VM

#endif /* EVENKEEL_ALGO_BASE_STEPS_H */
