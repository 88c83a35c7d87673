/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Injects segments into the kernel in a client's name. This needs a second frame, a clone of the current one, which
 * only TC can make. Independent of the connection table, and of the purpose of the segments. */
#pragma once

#include "packet.h"

#ifndef TIER_XDP

/* Swap the Ethernet addresses, since the current frame goes to the client. */
#define INJECT_TURNED 0x100
/* Let the segment re-enter the program, which migrates its connection. */
#define INJECT_HANDED 0x200

/* Lets a clone of the frame be received again. On loopback the clone is sent instead: received there without its route,
 * it would count as a martian. */
static __always_inline int inject_buffered(struct __sk_buff *skb)
{
	return bpf_clone_redirect(skb, skb->ifindex, is_on_loopback(skb) ? 0 : BPF_F_INGRESS);
}

/* Writes a TCP header without data or options, from the client to this machine. */
static __always_inline void write_bare_tcp(const struct segment *segment, __u32 *tcp, __u64 sum, __u32 seq,
					   __u32 ack, __u8 flags)
{
	tcp[0] = (__u32)segment->tuple.local_port_be << 16 | segment->tuple.client_port_be;
	tcp[1] = bpf_htonl(seq);
	tcp[2] = bpf_htonl(ack);
	tcp[3] = bpf_htonl((TCP_LEN << 2) << 24 | (__u32)flags << 16 | segment->window);
	tcp[4] = 0;
	sum += bpf_htons(IPPROTO_TCP) + bpf_htons(TCP_LEN);
	tcp[4] = segment->summed == CHECKSUM_PARTIAL ? fold(sum) : (__u16)~fold(sum + words_of(tcp, 5));
}

/* Injects a segment without data from the segment's client, and leaves the frame unchanged. Bytes behind the headers
 * stay in the clone, since the kernel trims a frame to its IP length. `how`: TCP flags and INJECT_ bits. */
SEPARATE int inject(struct __sk_buff *skb, const struct segment *segment ARG, __u32 seq, __u32 ack, __u32 how)
{
	__u32 was[15] = {}, is[15] = {}, len = segment->is_v6 ? 60 : 40;
	struct ethhdr eth_was, eth_is;
	__u16 tc_index = skb->tc_index;
	int failed = -1;

	if (bpf_skb_load_bytes(skb, 0, &eth_was, ETH_HLEN) || bpf_skb_load_bytes(skb, ETH_HLEN, was, len))
		return -1;
	eth_is = eth_was;
	if (how & INJECT_TURNED) {
		memcpy(eth_is.h_dest, eth_was.h_source, ETH_ALEN);
		memcpy(eth_is.h_source, eth_was.h_dest, ETH_ALEN);
	}
	if (segment->is_v6) {
		is[0] = bpf_htonl(0x60000000);
		is[1] = bpf_htonl(TCP_LEN << 16 | IPPROTO_TCP << 8 | 64);
		memcpy(is + 2, &segment->tuple, 32);
		write_bare_tcp(segment, is + 10, words_of(is + 2, 8), seq, ack, how);
	} else {
		is[0] = bpf_htonl(0x45000000 | (20 + TCP_LEN));
		is[2] = bpf_htonl(64 << 24 | IPPROTO_TCP << 16);
		is[3] = segment->tuple.client_be[3];
		is[4] = segment->tuple.local_be[3];
		is[2] |= (__u32)(__u16)~fold(words_of(is, 5)) << 16;
		write_bare_tcp(segment, is + 5, (__u64)is[3] + is[4], seq, ack, how);
	}
	if (!bpf_skb_store_bytes(skb, 0, &eth_is, ETH_HLEN, 0) &&
	    !bpf_skb_store_bytes(skb, ETH_HLEN, is, len, BPF_F_RECOMPUTE_CSUM)) {
		skb->tc_index = how & INJECT_HANDED ? TC_INDEX_REPEATED : TC_INDEX_INJECTED;
		failed = inject_buffered(skb);
		skb->tc_index = tc_index;
	}
	/* The headers are restored, since the caller continues with the frame. */
	if (bpf_skb_store_bytes(skb, 0, &eth_was, ETH_HLEN, 0) ||
	    bpf_skb_store_bytes(skb, ETH_HLEN, was, len, BPF_F_RECOMPUTE_CSUM))
		return -1;
	return failed;
}

/* Resets the kernel's socket, which expects `seq` next. */
static __always_inline int inject_reset(struct __sk_buff *skb, const struct segment *segment, __u32 seq)
{
	return inject(skb, segment, seq, 0, FLAG_RST);
}

/* Whether this level has injected the segment in the frame. Removes the mark, which is then no longer needed. */
static __always_inline int is_injected(struct __sk_buff *skb)
{
	if (!is_marked(skb, TC_INDEX_INJECTED, TCP_DEST_AT))
		return 0;
	skb->tc_index = 0;
	return 1;
}

#endif
