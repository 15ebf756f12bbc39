// SPDX-License-Identifier: GPL-2.0
/*
 * Who has a tap open, and which threads there are: iterators that the agent reads, so
 * that it need not look into other users' processes. What they write is struct ek_holder
 * and struct ek_thread.
 */
#include "../base/kernel.h"
#include "../intf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct file *file;
};

#pragma clang attribute pop

/* include/linux/kdev_t.h: the character device 10, 200 (/dev/net/tun) */
#define TUN_DEVICE (10u << 20 | 200u)
/* linux/stat.h */
#define S_IFMT 0170000
#define S_IFCHR 0020000
#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */

SEC("iter/task_file")
int taps(struct bpf_iter__task_file *context)
{
	struct task_struct *task = context->task;
	struct file *file = context->file;
	struct ek_holder holder = {};
	struct tun_file *tap;
	struct inode *inode;

	if (!task || !file)
		return 0;
	inode = file->f_inode;
	if (!inode || inode->i_rdev != TUN_DEVICE || (inode->i_mode & S_IFMT) != S_IFCHR)
		return 0;
	tap = file->private_data;
	holder.process = task->tgid;
	holder.ifindex = BPF_CORE_READ(tap, tun, dev, ifindex);
	holder.namespace = BPF_CORE_READ(tap, tun, dev, nd_net.net, ns.inum);
	/* A tap that has no device yet has index 0. */
	if (holder.ifindex)
		bpf_seq_write(context->meta->seq, &holder, sizeof(holder));
	return 0;
}

/* Before Linux 6.4, the threads of vhost are the kernel's. */
static __always_inline bool is_vhost(const char *name)
{
	const char vhost[] = "vhost-";
	u32 i;

	for (i = 0; i < sizeof(vhost) - 1; i++) {
		if (name[i] != vhost[i])
			return false;
	}
	return true;
}

SEC("iter/task")
int threads(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct ek_thread thread = {};

	if (!task)
		return 0;
	thread.process = task->tgid;
	thread.id = task->pid;
	bpf_core_read_str(thread.name, sizeof(thread.name), &task->comm);
	if (task->flags & PF_KTHREAD && !is_vhost(thread.name))
		return 0;
	bpf_seq_write(context->meta->seq, &thread, sizeof(thread));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
