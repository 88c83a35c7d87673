/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Migration: gives a connection to the server's kernel TCP. The kernel creates the socket from the current segment,
 * in mid-connection, as a child of the listener (bpf_sk_assign_tcp_reqsk). */
#pragma once

#include "parked.h"
#include "time_wait.h"

#ifndef TIER_XDP

/* Units of `seen` for which a listener may be missing, for example while the server restarts. */
#define LISTENER_WAIT 4

/* Flag in connection.answer, which a migrating connection does not use otherwise; stored with the time since which the
 * listener has been missing. */
#define NO_LISTENER 0x10000

/* Handles a missing listener: the segment is dropped, so that the client retransmits it, perhaps to a restarted server.
 * Returns nonzero if the kernel must not get this segment. */
static __always_inline int defer_to_listener(const struct segment *segment, struct connection *connection)
{
	__u16 now = seen_at(segment->now_ns);

	if (!connection->answer)
		connection->answer = NO_LISTENER | now;
	/* From now on, the kernel resets the connection, so that the client need not wait any longer. */
	if (units_since(now, connection->answer) >= LISTENER_WAIT) {
		count(reason_tcp_no_listener);
		return 0;
	}
	count(reason_drop_no_listener);
	return -1;
}

/* Maximum number of bytes that a new socket may receive before the level sees that the kernel has the connection. */
#define FIRST_WINDOW 0x20000

/* Whether the kernel's socket is an old one from before the connection was reclaimed, and not parked: it expects a
 * number from before the requests that were answered here. A new socket has already received this segment. */
static __always_inline int is_old(const struct tcp_sock *tcp, const struct connection *connection)
{
	return tcp && tcp->rcv_nxt - connection->rcv_nxt > FIRST_WINDOW;
}

/* Resets the old socket, which may still wait for the client's FIN, and re-injects the segment behind the reset. */
SEPARATE int end_and_repeat(struct __sk_buff *skb, const struct segment *segment ARG, __u32 expected)
{
	/* One attempt per frame: if it fails, the client's retransmission triggers the next one. */
	if (skb->tc_index != TC_INDEX_REPEATED && !inject_reset(skb, segment, expected) &&
	    !inject_reset(skb, segment, expected + 1)) {
		count(reason_tcp_ended);
		skb->tc_index = TC_INDEX_REPEATED;
		inject_buffered(skb);
	}
	return -1;
}

/* Assigns the connection to a listener. Returns nonzero if the kernel must not get this segment. If the accept queue is
 * full, the kernel silently fails to create the socket; the client then retransmits the segment, which is assigned
 * again. */
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
	/* The socket is looked up for every segment, since the kernel may have silently failed to create it. */
	sk = socket_of(skb, segment);
	if (!sk)
		return defer_to_listener(segment, connection);
	if (connection->answer)
		connection->answer = 0;
	if (sk->state == TCP_STATE_TIME_WAIT) {
		/* The reset that ends the old connection is still queued, or was lost. The client will retransmit its
		 * segment. */
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
	/* The kernel adopts the sequence numbers of this segment for the connection. If they are unexpected, either the
	 * listener dropped an earlier segment, or this is an old copy that does not acknowledge our last response. */
	if (segment->seq != connection->rcv_nxt || segment->ack != connection->snd_nxt) {
		bpf_sk_release(sk);
		count(reason_drop_early);
		return -1;
	}
	if (attrs.tstamp_ok) {
		attrs.rcv_tsval = bpf_ntohl(segment->tsval_be);
		/* The socket's timestamp clock then continues ours, so that the client's PAWS check drops no
		 * segment. */
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

/* Migrates the connection with the whole segment; it belongs to the kernel from now on. */
static __always_inline int migrate(context *ctx, const struct segment *segment,
				     struct connection *connection)
{
	connection->socket = SOCKET_NONE;
	connection->socket_rcv = connection->socket_snd = 0;
	connection->state = STATE_HANDED;
#ifdef TIER_XDP
	frame_mark(ctx, META_HAND_OVER);
#else
	/* If the segment is dropped, the client retransmits it. */
	if (assign(ctx, segment, connection))
		return VERDICT_DROP;
#endif
	return VERDICT_PASS;
}
