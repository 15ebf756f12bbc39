// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program of somebody else on a device: soak_tcx DEVICE DIRECTION PLACE MARK attaches
 * one that writes skb->mark and says TCX_NEXT, and stays until it is killed. DIRECTION is
 * ingress or egress; PLACE is before or after all programs that are there.
 */
#define _GNU_SOURCE
#include <linux/bpf.h>
#include <net/if.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of Linux 6.6; headers may be older. */
enum { TCX_INGRESS = 46, TCX_EGRESS = 47, TCX_BEFORE = 1 << 3, TCX_AFTER = 1 << 4 };

static int bpf(int command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

int main(int argc, char **argv)
{
	struct bpf_insn program[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_2 },
		{ .code = BPF_STX | BPF_MEM | BPF_W,
		  .dst_reg = BPF_REG_1,
		  .src_reg = BPF_REG_2,
		  .off = offsetof(struct __sk_buff, mark) },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = -1 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr load = { .prog_type = BPF_PROG_TYPE_SCHED_CLS };
	union bpf_attr link = {};
	int loaded;

	if (argc != 5) {
		fprintf(stderr, "usage: soak_tcx DEVICE ingress|egress before|after MARK\n");
		return 2;
	}
	program[0].imm = (int32_t)strtoul(argv[4], NULL, 0);
	load.insns = (uintptr_t)program;
	load.insn_cnt = sizeof(program) / sizeof(program[0]);
	load.license = (uintptr_t)"GPL";
	loaded = bpf(BPF_PROG_LOAD, &load);
	link.link_create.prog_fd = (uint32_t)loaded;
	link.link_create.target_ifindex = if_nametoindex(argv[1]);
	link.link_create.attach_type =
		strcmp(argv[2], "ingress") ? TCX_EGRESS : TCX_INGRESS;
	link.link_create.flags = strcmp(argv[3], "before") ? TCX_AFTER : TCX_BEFORE;
	if (loaded < 0 || bpf(BPF_LINK_CREATE, &link) < 0) {
		perror(argv[1]);
		return 1;
	}
	for (;;)
		pause();
}
