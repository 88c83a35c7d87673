/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* A connection that the kernel has comes back: when the response above was sent and acknowledged completely, and
 * the next request can be answered here. The kernel's socket stays as it is, and waits (kept.h); what it says
 * meanwhile does not reach the client (outgoing.h).
 *
 * At the same moment, and with what follows:
 * - The server closes. The connection is ours before its socket is looked at: a FIN that leaves later is not
 *   passed on, and one that has left is seen by the socket's state, so that the connection stays up.
 * - The kernel sends its response again: what it had in flight is acknowledged, and the copy is dropped.
 * - The client sends its request again: it is at rcv_nxt - request_len of a connection of ours, and gets the same
 *   answer. A copy of an earlier request is acknowledged as old.
 * - The client sends the next request before it has the whole response: it passes, and is not followed any more.
 * - The server says what it was not asked (408): that is beyond the response, and not followed any more.
 * - Two processors have two segments: one of them finds the socket idle and its number expected, the other's
 *   number is that of the past or of the future. */
#pragma once

#include "answers.h"
#include "following.h"

/* Whether the segment is the next request of a connection that the kernel has, as far as numbers tell. If the response
 * before it is not complete, the client pipelines. */
static __always_inline int is_next_request(const struct segment *segment, struct connection *connection)
{
	if (connection->state != STATE_KERNEL || !is_followed(connection, FOLLOWED) || !segment->payload_len ||
	    segment->seq != request_end(connection))
		return 0;
	if (is_followed(connection, FOLLOWED_END) && segment->ack == connection->answer &&
	    !(segment->flags & (FLAG_FIN | FLAG_SYN | FLAG_RST | FLAG_URG)))
		return 1;
	unfollow(connection);
	return 0;
}

/* This level is about to go, or to sleep: what it does for a connection must end. */
static __always_inline int is_leaving(const struct segment *segment)
{
	struct control *control = steering();
	return !control || control->resting != AWAKE || is_draining(control, segment);
}

/* Whether this level may answer it. */
SEPARATE int may_take_back(context *ctx, const struct segment *segment ARG)
{
	struct control *control = steering();

	return control && may_come_back(control) && !control->handover_broken && !is_leaving(segment) &&
	       is_alive(control, segment) && !is_denied(control, segment) &&
	       !is_stranger(ctx, control, segment, EVER_NS);
}

/* The connection is ours again from this segment on, if its socket waits for it, and for nothing else. */
static __always_inline int take_over(context *ctx, const struct segment *segment, struct connection *connection)
{
	__u32 rcv = segment->seq - connection->socket_rcv, snd = segment->ack - connection->socket_snd;
	__u16 marks = connection->answer_len;

	connection->rcv_nxt = segment->seq;
	connection->snd_nxt = segment->ack;
	connection->answer = connection->answer_len = connection->request_len = 0;
	/* From now on nothing of what it says gets out; seen by all before the socket is looked at. */
	*(volatile __u8 *)&connection->state = STATE_OPEN;
	__sync_val_compare_and_swap(&connection->answer, 0, 0);
	if (!is_waiting(ctx, segment, rcv, snd)) {
		connection->answer_len = marks;
		connection->state = STATE_KERNEL;
		return 0;
	}
	connection->socket_rcv = rcv;
	connection->socket_snd = snd;
	connection->socket = SOCKET_KEPT;
	count_taken_back();
	count(reason_tcp_taken_back);
	return 1;
}

/* The next request of a connection of the kernel: 1 if it is ours now, and the segment is to be answered. */
SEPARATE int take_back(context *ctx, struct segment *segment ARG, struct connection *connection ARG)
{
	struct choice choice;

	/* What follows goes to a new socket, whose numbers are the client's. */
	if (is_shifted(connection) && is_leaving(segment) && take_over(ctx, segment, connection))
		return 1;
	if (!may_take_back(ctx, segment)) {
		unfollow(connection);
		return 0;
	}
	count_look();
	if (choose(ctx, segment, connection, &choice)) {
		if (take_over(ctx, segment, connection))
			return 1;
		choice.reason = reason_up_miss;
	}
	follow_on(ctx, segment, connection, choice.reason);
	return 0;
}

/* A segment of a connection of the kernel. */
static __always_inline int pass_to_socket(context *ctx, const struct segment *segment,
					  struct connection *connection)
{
	if (!is_shifted(connection))
		return pass(reason_pass_kernel);
#ifdef TIER_XDP
	/* TC translates it, from here or as what is marked. */
	if (frame_again(ctx))
		return VERDICT_PASS;
#else
	if (segment->flags & FLAG_RST && expects(ctx, segment, segment->seq - connection->socket_rcv))
		connection->socket = SOCKET_ENDED;
	if (shift_in(ctx, segment, connection))
		return drop(reason_drop_no_room);
#endif
	return pass(reason_pass_kernel);
}
