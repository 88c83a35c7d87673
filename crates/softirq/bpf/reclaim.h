/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Reclaiming: a connection that migrated to the kernel is answered on the fast path again, if the server's response
 * was sent and acknowledged completely, and the next request can be answered here. The kernel's socket stays open
 * and is parked (parked.h); segments that it sends in the meantime do not reach the client (egress.h).
 *
 * Races:
 * - The server closes. The state is set before the socket is examined: a FIN sent later is dropped at egress, and
 * one sent before shows in the socket's state, so that the connection stays with the kernel.
 * - The kernel retransmits its response: the client has acknowledged all of it, and the copy is dropped.
 * - The client retransmits its request: it is at rcv_nxt - request_len of a live connection, and gets the same
 * response. A copy of an earlier request is acknowledged as old.
 * - The client sends the next request before it has the whole response: the request passes, and tracking stops.
 * - The server sends an unsolicited response (408): it is beyond the tracked response, and tracking stops.
 * - Two processors have two segments: one finds the socket idle and its number expected, the other's number is then
 * before or after rcv_nxt. */
#pragma once

#include "answers.h"
#include "response_tracking.h"

/* Whether the segment is the next request of a kernel connection, judged by its sequence numbers. If the response
 * before it is not complete, the client pipelines, and tracking stops. */
static __always_inline int is_next_request(const struct segment *segment, struct connection *connection)
{
	if (connection->state != STATE_KERNEL || !is_tracked(connection, FOLLOWED) || !segment->payload_len ||
	    segment->seq != request_end(connection))
		return 0;
	if (is_tracked(connection, FOLLOWED_END) && segment->ack == connection->answer &&
	    !(segment->flags & (FLAG_FIN | FLAG_SYN | FLAG_RST | FLAG_URG)))
		return 1;
	stop_tracking(connection);
	return 0;
}

/* Whether this level is about to be detached or bypassed, so that translation must end. */
static __always_inline int is_closing(const struct segment *segment)
{
	struct control *control = level_control();
	return !control || control->resting != AWAKE || is_draining(control, segment);
}

/* Whether the fast path may answer the segment. */
SEPARATE int may_take_back(context *ctx, const struct segment *segment ARG)
{
	struct control *control = level_control();

	return control && may_reclaim(control) && !control->handover_broken && !is_closing(segment) &&
	       is_alive(control, segment) && !is_denied(control, segment) &&
	       !is_unknown_client(ctx, control, segment, EVER_NS);
}

/* Makes the connection live from this segment on, if its socket is idle. */
static __always_inline int migrate_with_request(context *ctx, const struct segment *segment, struct connection *connection)
{
	__u32 rcv = segment->seq - connection->socket_rcv, snd = segment->ack - connection->socket_snd;
	__u16 marks = connection->answer_len;

	connection->rcv_nxt = segment->seq;
	connection->snd_nxt = segment->ack;
	connection->answer = connection->answer_len = connection->request_len = 0;
	/* The egress program drops the socket's segments from now on; visible to all processors before the socket is
	 * examined. */
	*(volatile __u8 *)&connection->state = STATE_OPEN;
	/* An atomic operation as a full memory barrier. */
	__sync_val_compare_and_swap(&connection->answer, 0, 0);
	if (!is_waiting(ctx, segment, rcv, snd)) {
		connection->answer_len = marks;
		connection->state = STATE_KERNEL;
		return 0;
	}
	connection->socket_rcv = rcv;
	connection->socket_snd = snd;
	connection->socket = SOCKET_KEPT;
	count_reclaimed();
	count(reason_tcp_taken_back);
	return 1;
}

/* Processes the next request of a kernel connection. Returns 1 if the connection was reclaimed, and the segment is
 * to be answered. */
SEPARATE int take_back(context *ctx, struct segment *segment ARG, struct connection *connection ARG)
{
	struct response_choice choice;

	/* A reclaimed connection migrates to a new socket with the client's numbers. */
	if (is_shifted(connection) && is_closing(segment) && migrate_with_request(ctx, segment, connection))
		return 1;
	if (!may_take_back(ctx, segment)) {
		stop_tracking(connection);
		return 0;
	}
	count_tracking();
	if (choose(ctx, segment, connection, &choice)) {
		if (migrate_with_request(ctx, segment, connection))
			return 1;
		choice.reason = reason_up_miss;
	}
	track_segment(ctx, segment, connection, choice.reason);
	return 0;
}

/* Passes a segment of a kernel connection, translated if needed. */
static __always_inline int pass_to_socket(context *ctx, const struct segment *segment,
					  struct connection *connection)
{
	if (!is_shifted(connection))
		return pass_to_kernel(reason_pass_kernel);
#ifdef TIER_XDP
	/* TC translates the segment, either at once or as a marked frame. */
	if (defer_to_tc(ctx))
		return VERDICT_PASS;
#else
	if (segment->flags & FLAG_RST && expects(ctx, segment, segment->seq - connection->socket_rcv))
		connection->socket = SOCKET_ENDED;
	if (shift_in(ctx, segment, connection))
		return drop(reason_drop_no_room);
#endif
	return pass_to_kernel(reason_pass_kernel);
}
