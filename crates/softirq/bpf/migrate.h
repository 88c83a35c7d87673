/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Migration: gives a connection to the server's kernel TCP. The kernel creates the socket from the current segment,
 * in mid-connection, as a child of the listener (bpf_sk_assign_tcp_reqsk). */
#pragma once

#include "parked.h"
#include "time_wait.h"

#ifndef TIER_XDP

/* Units of `seen` for which a listener may be missing, as during a restart of the server. */
#define LISTENER_WAIT 4

/* Stored in connection.answer, which a migrating connection does not need otherwise, together with the time since
 * when. */
#define NO_LISTENER 0x10000

/* Handles a missing listener: the client retransmits its segment, and a restarted server gets it. Not 0 if the
 * kernel must not see this segment. */
static __always_inline int defer_to_listener(const struct segment *segment, struct connection *connection)
{
	__u16 now = seen_at(segment->now_ns);

	if (!connection->answer)
		connection->answer = NO_LISTENER | now;
	/* Then the kernel resets the connection, so that the client need not wait for longer. */
	if (units_since(now, connection->answer) >= LISTENER_WAIT) {
		count(reason_tcp_no_listener);
		return 0;
	}
	count(reason_drop_no_listener);
	return -1;
}

/* Maximum number of bytes that a new socket has received before the connection is known to be the kernel's. */
#define FIRST_WINDOW 0x20000

/* Whether the kernel's socket is an old one, from before the connection was reclaimed, that is not parked: it
 * expects a number from before the requests answered here. A new socket has already received this segment. */
static __always_inline int is_old(const struct tcp_sock *tcp, const struct connection *connection)
{
	return tcp && tcp->rcv_nxt - connection->rcv_nxt > FIRST_WINDOW;
}

/* Resets the old socket, which may still wait for its FIN, and re-injects the segment behind the reset. */
SEPARATE int end_and_repeat(struct __sk_buff *skb, const struct segment *segment ARG, __u32 expected)
{
	/* One attempt per frame: if it fails, the client's retransmission is the next. */
	if (skb->tc_index != TC_INDEX_REPEATED && !inject_reset(skb, segment, expected) &&
	    !inject_reset(skb, segment, expected + 1)) {
		count(reason_tcp_ended);
		skb->tc_index = TC_INDEX_REPEATED;
		inject_buffered(skb);
	}
	return -1;
}

/* Assigns the connection to a listener. Not 0 if the kernel must not see this segment. Creation of the socket fails
 * silently if the accept queue is full: then the client retransmits, and the segment is assigned again. */
SEPARATE int assign(struct __sk_buff *skb, const struct segment *segment ARG,
		    struct connection *connection ARG)
{
	struct bpf_tcp_req_attrs attrs = {
		.mss = connection->mss,
		.rcv_wscale = WINDOW_SCALE,
		.snd_wscale = connection->options & OPTION_SCALE_MASK,
		.wscale_ok = 1,
		.sack_ok = !!(connection->options & OPTION_SACK),
		.tstamp_ok = connection->has_timestamps,
	};
	struct bpf_sock *sk;
	struct tcp_sock *listener, *tcp;
	int failed = 1;

	if (attrs.snd_wscale == OPTION_SCALE_NONE)
		attrs.rcv_wscale = attrs.snd_wscale = attrs.wscale_ok = 0;
	/* Looked up for every segment: the kernel may have failed to create the socket without any report. */
	sk = socket_of(skb, segment);
	if (!sk)
		return defer_to_listener(segment, connection);
	if (connection->answer)
		connection->answer = 0;
	if (sk->state == TCP_STATE_TIME_WAIT) {
		/* The reset that ends it is still queued, or was lost. The client retransmits its segment. */
		struct tcp_timewait_sock *old = bpf_skc_to_tcp_timewait_sock(sk);
		if (old)
			inject_reset(skb, segment, old->tw_sk.__tw_common.skc_tw_rcv_nxt);
		bpf_sk_release(sk);
		count(reason_drop_time_wait);
		return -1;
	}
	if (sk->state != TCP_STATE_LISTEN) {
		tcp = bpf_skc_to_tcp_sock(sk);
		if (is_old(tcp, connection)) {
			__u32 expected = tcp->rcv_nxt;
			bpf_sk_release(sk);
			return end_and_repeat(skb, segment, expected);
		}
		connection->state = STATE_KERNEL;
		bpf_sk_release(sk);
		count(reason_tcp_kept);
		return 0;
	}
	/* The kernel takes the sequence numbers of this segment as those of the connection. Either the listener
	 * dropped its predecessor, or it is an old copy that does not acknowledge our last response. */
	if (segment->seq != connection->rcv_nxt || segment->ack != connection->snd_nxt) {
		bpf_sk_release(sk);
		count(reason_drop_early);
		return -1;
	}
	if (attrs.tstamp_ok) {
		attrs.rcv_tsval = bpf_ntohl(segment->tsval_be);
		/* The socket's timestamp clock then continues ours, so that the client's PAWS check drops no segment. */
		attrs.rcv_tsecr = now_ms() + connection->clock_offset;
	}
	listener = bpf_skc_to_tcp_sock(sk);
	if (listener && bpf_ksym_exists(bpf_sk_assign_tcp_reqsk))
		failed = bpf_sk_assign_tcp_reqsk(skb, (struct sock *)listener, &attrs, sizeof(attrs));
	bpf_sk_release(sk);
	count(failed ? reason_tcp_not_handed : reason_tcp_handed);
	return 0;
}

#endif

/* Migrates the connection with the whole segment: it belongs to the kernel from now on. */
static __always_inline int migrate(context *ctx, const struct segment *segment,
				     struct connection *connection)
{
	connection->socket = SOCKET_NONE;
	connection->socket_rcv = connection->socket_snd = 0;
	connection->state = STATE_HANDED;
#ifdef TIER_XDP
	frame_mark(ctx, META_HAND_OVER);
#else
	/* After a drop the client retransmits the segment. */
	if (assign(ctx, segment, connection))
		return VERDICT_DROP;
#endif
	return VERDICT_PASS;
}
