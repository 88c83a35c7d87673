/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Parked sockets: after a connection was reclaimed, its kernel socket stays open and idle, and gets the next request
 * that is punted. By then, the client's sequence numbers are ahead of the socket's: by the requests that the socket has
 * not received, and by the responses that it has not sent. From then on, TC translates the numbers of each segment in
 * both directions. Independent of requests, and of the decision to park a socket. */
#pragma once

#include "connections.h"
#include "inject.h"
#include "socket_lookup.h"

/* Whether the connection's socket is idle at these sequence numbers: it is open, the server has read all data, and all
 * data that the server has written is acknowledged. */
SEPARATE int is_waiting(context *ctx, const struct segment *segment ARG, __u32 rcv, __u32 snd)
{
	struct bpf_sock *sk = socket_of(ctx, segment);
	struct tcp_sock *tcp;
	int is = 0;

	if (!sk)
		return 0;
	tcp = bpf_skc_to_tcp_sock(sk);
	/* In later states, one side has closed the connection. */
	if (tcp && sk->state == TCP_STATE_ESTABLISHED)
		is = tcp->rcv_nxt == rcv && tcp->copied_seq == rcv && tcp->write_seq == snd && tcp->snd_nxt == snd;
	bpf_sk_release(sk);
	return is;
}

#ifndef TIER_XDP

/* NOP, NOP, SACK: the usual layout, also that of this machine's kernel (RFC 2018). */
#define SACK_BEGIN 0x01010500
#define SACK_WORDS_MAX 8

/* Offsets in the TCP header. */
#define TCP_SEQ_AT 4
#define TCP_SUM_AT 16

/* Adds `add` to the numbers in SACK blocks. An option at another position is not translated and reports wrong ranges;
 * the segments in these are then retransmitted later than necessary. */
SEPARATE int shift_sack(struct __sk_buff *skb, const struct segment *segment ARG, __u32 add)
{
	__u32 begin, was[SACK_WORDS_MAX] = {}, is[SACK_WORDS_MAX] = {}, at = segment->tcp_at + TCP_LEN, words;
	__s64 change;

	if (bpf_skb_load_bytes(skb, at, &begin, 4))
		return -1;
	/* With timestamps, SACK blocks come after them. */
	if (begin == bpf_htonl(TIMESTAMPS_BEGIN)) {
		at += TIMESTAMPS_LEN;
		if (at + 4 > segment->payload_at)
			return 0;
		if (bpf_skb_load_bytes(skb, at, &begin, 4))
			return -1;
	}
	begin = bpf_ntohl(begin);
	words = ((begin & 0xff) - 2) / 4;
	if ((begin & ~0xffu) != SACK_BEGIN || words == 0 || words > SACK_WORDS_MAX ||
	    at + 4 + words * 4 > segment->payload_at)
		return 0;
	OPAQUE(words);
	/* The check is repeated for the verifier, which knows nothing about the value after OPAQUE. */
	if (words == 0 || words > SACK_WORDS_MAX)
		return 0;
	if (bpf_skb_load_bytes(skb, at + 4, was, words * 4))
		return -1;
	for (__u32 i = 0; i < SACK_WORDS_MAX; i++)
		is[i] = i < words ? bpf_htonl(bpf_ntohl(was[i]) + add) : 0;
	change = bpf_csum_diff(was, sizeof(was), is, sizeof(is), 0);
	return bpf_l4_csum_replace(skb, segment->tcp_at + TCP_SUM_AT, 0, change, 0) ||
	       bpf_skb_store_bytes(skb, at + 4, is, words * 4, 0);
}

/* Adds to the segment's sequence and acknowledgement numbers. Returns nonzero on failure; the frame must then be
 * dropped. The checksum is updated incrementally, so a wrong checksum stays wrong. */
SEPARATE int shift(struct __sk_buff *skb, const struct segment *segment ARG, __u32 add_seq, __u32 add_ack)
{
	__u32 was[2] = { bpf_htonl(segment->seq), bpf_htonl(segment->ack) }, is[2] = { bpf_htonl(segment->seq + add_seq) };
	__s64 change;

	is[1] = segment->flags & FLAG_ACK ? bpf_htonl(segment->ack + add_ack) : was[1];
	change = bpf_csum_diff(was, sizeof(was), is, sizeof(is), 0);
	if (bpf_l4_csum_replace(skb, segment->tcp_at + TCP_SUM_AT, 0, change, 0) ||
	    bpf_skb_store_bytes(skb, segment->tcp_at + TCP_SEQ_AT, is, sizeof(is), 0))
		return -1;
	return segment->payload_at - segment->tcp_at > TCP_LEN ? shift_sack(skb, segment, add_ack) : 0;
}

/* Translates a segment for the kernel's socket. */
static __always_inline int shift_in(struct __sk_buff *skb, const struct segment *segment,
				    const struct connection *connection)
{
	skb->tc_index = TC_INDEX_SHIFTED_IN;
	return shift(skb, segment, -connection->socket_rcv, -connection->socket_snd);
}

/* Translates a segment for the client. */
static __always_inline int shift_out(struct __sk_buff *skb, const struct segment *segment,
				     const struct connection *connection)
{
	skb->tc_index = TC_INDEX_SHIFTED_OUT;
	return shift(skb, segment, connection->socket_snd, connection->socket_rcv);
}

/* Whether the socket expects `seq` next, so that it accepts a reset with this number (RFC 5961 §3.2). */
SEPARATE int expects(struct __sk_buff *skb, const struct segment *segment ARG, __u32 seq)
{
	struct bpf_sock *sk = socket_of(skb, segment);
	struct tcp_sock *tcp;
	int is = 0;

	if (!sk)
		return 0;
	tcp = bpf_skc_to_tcp_sock(sk);
	is = tcp && tcp->rcv_nxt == seq;
	bpf_sk_release(sk);
	return is;
}

/* Ends the parked socket in the client's name: with FIN and ACK if the client closes the connection, with RST if the
 * client is gone. */
static __always_inline void close_parked(struct __sk_buff *skb, const struct segment *segment,
				     struct connection *connection, __u32 flags)
{
	connection->socket = SOCKET_ENDED;
	inject(skb, segment, connection->socket_rcv, connection->socket_snd, flags);
}

/* Passes the current request to the parked socket. Returns 0 on success. */
static __always_inline int resume_parked(struct __sk_buff *skb, const struct segment *segment, struct connection *connection)
{
	__u32 rcv = connection->socket_rcv, snd = connection->socket_snd;

	if (!is_waiting(skb, segment, rcv, snd))
		return -1;
	connection->socket = SOCKET_NONE;
	connection->socket_rcv = segment->seq - rcv;
	connection->socket_snd = segment->ack - snd;
	/* The egress program on another processor translates as soon as it reads the new state, so the offsets are
	 * written first. */
	barrier();
	*(volatile __u8 *)&connection->state = STATE_KERNEL;
	count(reason_tcp_resumed);
	return 0;
}

#else

static __always_inline void close_parked(context *ctx, const struct segment *segment, struct connection *connection,
				     __u32 flags)
{
}

static __always_inline int resume_parked(context *ctx, const struct segment *segment, struct connection *connection)
{
	return -1;
}

#endif
