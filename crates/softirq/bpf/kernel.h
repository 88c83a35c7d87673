/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Kernel interfaces that UAPI headers do not declare, or that Debian's headers are too old for. */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define TCX_NEXT (-1)
/* linux/if_packet.h */
#define PACKET_HOST 0
#define PACKET_LOOPBACK 5
/* The loopback device's index in every network namespace (net/core/dev.h). */
#define LOOPBACK_IFINDEX 1

/* include/net/tcp.h, since 6.9 */
struct bpf_tcp_req_attrs {
	__u32 rcv_tsval;
	__u32 rcv_tsecr;
	__u16 mss;
	__u8 rcv_wscale;
	__u8 snd_wscale;
	__u8 ecn_ok;
	__u8 wscale_ok;
	__u8 sack_ok;
	__u8 tstamp_ok;
	__u8 usec_ts_ok;
	__u8 reserved[3];
};

/* include/linux/skbuff.h: a field that __sk_buff does not expose; the loader resolves its offset (CO-RE). */
struct sk_buff {
	__u8 ip_summed : 2;
} __attribute__((preserve_access_index));

/* The device, or the local sender, vouches for the checksum. */
#define CHECKSUM_UNNECESSARY 1
/* Only the pseudo-header is summed so far; the device or the stack completes the checksum on transmission. */
#define CHECKSUM_PARTIAL 3

extern void *bpf_cast_to_kern_ctx(void *obj) __ksym;

/* A complete type, since a mere declaration would have another BTF kind than the kernel's type (libbpf compares
 * them). */
struct sock {
	char opaque;
};

/* net/core/filter.c: creates the socket of a connection from a segment in mid-connection, as a child of a listener. */
extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *skb, struct sock *sk,
				   struct bpf_tcp_req_attrs *attrs, int attrs__sz) __ksym __weak;

#ifndef memcpy
#define memcpy(to, from, n) __builtin_memcpy(to, from, n)
#endif

/* A global function: the verifier checks it once, independently of its callers. Pointer arguments are never null; the
 * verifier knows only the type of the memory behind them, so the function looks up map elements again. */
#define SEPARATE __attribute__((noinline))
#define ARG __arg_nonnull

/* Keeps clang from merging a bounds-checked value back into an expression that the verifier can't follow. */
#define OPAQUE(x) asm volatile("" : "+r"(x))
