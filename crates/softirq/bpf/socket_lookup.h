/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Lookups of kernel sockets by a segment's four-tuple. Independent of the connection table. */
#pragma once

#include "packet.h"

/* The kernel socket that would get the segment if it came from this client port, or the listener; the caller must
 * release it. */
static __always_inline struct bpf_sock *socket_from(void *ctx, const struct segment *segment,
						    __u16 client_port_be)
{
	struct bpf_sock_tuple tuple = {};

	if (segment->is_v6) {
		memcpy(tuple.ipv6.saddr, segment->tuple.client_be, 16);
		memcpy(tuple.ipv6.daddr, segment->tuple.local_be, 16);
		tuple.ipv6.sport = client_port_be;
		tuple.ipv6.dport = segment->tuple.local_port_be;
		return bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	tuple.ipv4.saddr = segment->tuple.client_be[3];
	tuple.ipv4.daddr = segment->tuple.local_be[3];
	tuple.ipv4.sport = client_port_be;
	tuple.ipv4.dport = segment->tuple.local_port_be;
	return bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
}

static __always_inline struct bpf_sock *socket_of(void *ctx, const struct segment *segment)
{
	return socket_from(ctx, segment, segment->tuple.client_port_be);
}

/* A part of the kernel's type; libbpf relocates the field offsets (CO-RE). */
struct tcp_sock {
	__u32 rcv_nxt;
	/* End of the data that the server has read. */
	__u32 copied_seq;
	__u32 snd_nxt;
	/* End of the data that the server has written. */
	__u32 write_seq;
} __attribute__((preserve_access_index));

/* include/net/tcp_states.h */
#define TCP_STATE_ESTABLISHED 1
#define TCP_STATE_TIME_WAIT 6
#define TCP_STATE_LISTEN 10

/* State of the kernel socket that would get the segment if it came from this client port; 0 if there is none. */
SEPARATE __u32 state_from(context *ctx, const struct segment *segment ARG, __u16 client_port_be)
{
	struct bpf_sock *sk = socket_from(ctx, segment, client_port_be);
	__u32 state;

	if (!sk)
		return 0;
	state = sk->state;
	bpf_sk_release(sk);
	return state;
}

static __always_inline __u32 socket_state(context *ctx, const struct segment *segment)
{
	return state_from(ctx, segment, segment->tuple.client_port_be);
}

/* Whether there is a listener, regardless of a socket with the client's port: the lookup uses port 0, from which no
 * client sends. */
static __always_inline int is_listened_to(context *ctx, const struct segment *segment)
{
	return state_from(ctx, segment, 0) == TCP_STATE_LISTEN;
}
