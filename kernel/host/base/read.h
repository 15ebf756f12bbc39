/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reading the kernel's own structures: by plain loads where the kernel gives a program a
 * pointer to one of its types (bpf_rdonly_cast, Linux 6.2), else by calls of 25 to 30 ns
 * each. The way is known when a program is loaded; the other one is dropped then.
 *
 * Types of modules have no such pointers. Those of tun are the kernel's own where the
 * driver is built in, which user space finds out (ek_kernel).
 */
#ifndef EVENKEEL_HOST_BASE_READ_H
#define EVENKEEL_HOST_BASE_READ_H

#include "kernel.h"
#include "../intf.h"

extern void *bpf_rdonly_cast(const void *object, u32 btf_id) __ksym __weak;

extern const volatile struct ek_kernel ek_kernel;

static __always_inline bool read_casts(void)
{
	return bpf_ksym_exists(bpf_rdonly_cast);
}

static __always_inline bool read_casts_tun(void)
{
	return read_casts() && ek_kernel.has_tun_types;
}

/* A pointer to a structure, to be read by loads if @casts. */
#define READ_POINTER(casts, pointer, type)                                               \
	((casts) ? (type *)bpf_rdonly_cast(pointer, bpf_core_type_id_kernel(type)) :     \
		   (type *)(pointer))

/* Reads a member into *@to. Return: 0, or an error. A load cannot fail: of memory that is
 * not there it reads 0. */
#define READ(casts, to, from)                                                            \
	({                                                                               \
		long error_ = 0;                                                         \
		if (casts)                                                               \
			*(to) = (from);                                                  \
		else                                                                     \
			error_ = bpf_core_read(to, sizeof(*(to)), &(from));              \
		error_;                                                                  \
	})

/* A program of tc is given the kernel's own skb. */
static __always_inline u32 skb_summed(struct __sk_buff *skb)
{
	const struct sk_buff *kernel_skb =
		READ_POINTER(read_casts(), (const void *)skb, struct sk_buff);

	if (read_casts())
		return BPF_CORE_READ_BITFIELD(kernel_skb, ip_summed);
	return BPF_CORE_READ_BITFIELD_PROBED(kernel_skb, ip_summed);
}

static __always_inline struct net_device *skb_device(struct __sk_buff *skb)
{
	const struct sk_buff *kernel_skb =
		READ_POINTER(read_casts(), (const void *)skb, struct sk_buff);
	struct net_device *dev = NULL;

	READ(read_casts(), &dev, kernel_skb->dev);
	return dev;
}

#define SNDBUF_UNLIMITED 0x7fffffff /* a tap's, unless TUNSETSNDBUF says otherwise */

/*
 * Does a packet count in a send buffer that is limited: that of the tap it came in by
 * (libvirt's <sndbuf>), or of a socket on this machine? A full buffer takes nothing more
 * in. A destructor gives back what counts.
 */
static __always_inline bool skb_fills_sndbuf(struct __sk_buff *skb)
{
	const struct sk_buff *kernel_skb =
		READ_POINTER(read_casts(), (const void *)skb, struct sk_buff);
	const struct sock *sk = NULL;
	void *destructor = NULL;
	u32 sndbuf = SNDBUF_UNLIMITED;

	if (READ(read_casts(), &destructor, kernel_skb->destructor) || !destructor ||
	    READ(read_casts(), &sk, kernel_skb->sk) || !sk)
		return false;
	sk = READ_POINTER(read_casts(), sk, struct sock);
	return !READ(read_casts(), &sndbuf, sk->sk_sndbuf) && sndbuf < SNDBUF_UNLIMITED;
}

#endif /* EVENKEEL_HOST_BASE_READ_H */
