/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* TIME_WAIT: after the server has closed a connection, its socket stays in TIME_WAIT for a minute, during which the
 * kernel accepts no migrated connection from the same client port. If a SYN may reopen the connection (RFC 9293
 * §3.10.7.4, RFC 6191), this level ends the old one: it injects an RST in the client's name, with the exact sequence
 * number that the kernel expects. This needs a second frame, which only TC can make. */
#pragma once

#include "inject.h"
#include "socket_lookup.h"

/* Parts of the kernel's types; libbpf relocates the field offsets (CO-RE). */
struct sock_common {
	__u32 skc_tw_rcv_nxt;
} __attribute__((preserve_access_index));
struct inet_timewait_sock {
	struct sock_common __tw_common;
	unsigned char tw_substate;
} __attribute__((preserve_access_index));
struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
	__u32 tw_ts_recent;
	int tw_ts_recent_stamp;
} __attribute__((preserve_access_index));

#ifndef TIER_XDP

#define NOT_REOPENED (1ull << 32)

/* The sequence number that the kernel expects on a connection in TIME_WAIT, if the SYN may replace that connection: the
 * SYN's number must be above all of the old connection's, and so must its timestamp, if the old one had timestamps. A
 * newer timestamp alone is not enough here, since this level does not drop segments with old timestamps. */
SEPARATE __u64 reopened_at(struct __sk_buff *skb, const struct segment *syn ARG, __s64 timestamp)
{
	struct bpf_sock *sk = socket_of(skb, syn);
	__u64 found = NOT_REOPENED;
	struct tcp_timewait_sock *old;

	if (!sk)
		return found;
	old = bpf_skc_to_tcp_timewait_sock(sk);
	if (old) {
		__u32 mark = old->tw_sk.__tw_common.skc_tw_rcv_nxt, recent = old->tw_ts_recent;
		int has_times = timestamp >= 0 && old->tw_ts_recent_stamp && recent;

		/* The socket may be in FIN_WAIT2 instead (tw_substate). */
		if (old->tw_sk.tw_substate == TCP_STATE_TIME_WAIT && (__s32)(syn->seq - mark) > 0 &&
		    (!has_times || (__s32)((__u32)timestamp - recent) >= 0))
			found = mark;
	}
	bpf_sk_release(sk);
	return found;
}

/* Whether a SYN with a four-tuple in TIME_WAIT may open a new connection. The injected reset ends the old connection
 * before the segments behind the SYN are processed, if they are in the same queue as the reset. */
static __always_inline int reopen(struct __sk_buff *skb, const struct segment *syn)
{
	__u64 mark = reopened_at(skb, syn, timestamp_of(skb, syn));

	if (mark == NOT_REOPENED || inject_reset(skb, syn, mark))
		return 0;
	count(reason_tcp_reused);
	return 1;
}

#else

/* XDP can't inject a second frame. */
static __always_inline int reopen(context *ctx, const struct segment *syn)
{
	return 0;
}

#endif

enum listener { LISTENER_NONE, LISTENER_FOUND, LISTENER_AGAIN };

/* Whether a new connection would find a listener. Ends an old connection in TIME_WAIT if necessary, or leaves that to
 * the program at TC. */
SEPARATE int find_listener(context *ctx, const struct segment *syn ARG, int may_end)
{
	struct control *control = level_control();
	__u32 state = socket_state(ctx, syn);

	if (state == TCP_STATE_LISTEN)
		return LISTENER_FOUND;
	/* If there is no listener for the new connection, the old one stays. */
	if (!may_end || state != TCP_STATE_TIME_WAIT || !control || control->settings & SETTING_KEEP_TIME_WAIT ||
	    !is_listened_to(ctx, syn))
		return LISTENER_NONE;
	if (defer_to_tc(ctx))
		return LISTENER_AGAIN;
	return reopen(ctx, syn) ? LISTENER_FOUND : LISTENER_NONE;
}
