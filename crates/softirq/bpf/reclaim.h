/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Reclaiming: a connection that migrated to the kernel is answered on the fast path again. Conditions: the server's
 * response was completely sent and acknowledged, and the next request can be answered here. The kernel's socket stays
 * open and is parked (parked.h); segments that it sends in the meantime do not reach the client (egress.h).
 *
 * Races:
 * - The server closes the connection. The level sets the state before it examines the socket: a FIN sent afterwards is
 *   dropped at egress, and one sent before shows in the socket's state, so that the connection stays with the kernel.
 * - The kernel retransmits its response. The client has acknowledged all of it, and the egress program drops the copy.
 * - The client retransmits its request. The retransmission is at rcv_nxt - request_len of a live connection, and gets
 *   the same response. A copy of an earlier request is acknowledged as old.
 * - The client sends the next request before it has the whole response. The request is passed on, and tracking stops.
 * - The server sends an unsolicited response (408). It is beyond the tracked response, and tracking stops.
 * - Two processors process two segments. One finds the socket idle and its segment's number expected; the other's
 *   number is then before or after rcv_nxt. */
#pragma once

#include "answers.h"
#include "response_tracking.h"

/* Whether the segment is the next request of a kernel connection, judged by its sequence numbers. If the previous
 * response is incomplete, the client pipelines, and tracking stops. */
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

/* Whether this level is about to be detached or bypassed, so that no more segments may be translated. */
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

/* Makes the connection live from this segment on, if its kernel socket is idle. */
static __always_inline int migrate_with_request(context *ctx, const struct segment *segment, struct connection *connection)
{
	__u32 rcv = segment->seq - connection->socket_rcv, snd = segment->ack - connection->socket_snd;
	__u16 marks = connection->answer_len;

	connection->rcv_nxt = segment->seq;
	connection->snd_nxt = segment->ack;
	connection->answer = connection->answer_len = connection->request_len = 0;
	/* From now on, the egress program drops the socket's segments. The store must be visible to all processors
	 * before the socket is examined. */
	*(volatile __u8 *)&connection->state = STATE_OPEN;
	/* An atomic operation serves as a full memory barrier. */
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

/* Processes the next request of a kernel connection. Returns 1 if the connection was reclaimed; the caller then answers
 * the segment. */
SEPARATE int take_back(context *ctx, struct segment *segment ARG, struct connection *connection ARG)
{
	struct response_choice choice;

	/* The connection will migrate again, to a new socket that has the client's numbers. */
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

/* Passes a segment of a kernel connection to its socket, translated if needed. */
static __always_inline int pass_to_socket(context *ctx, const struct segment *segment,
					  struct connection *connection)
{
	if (!is_shifted(connection))
		return pass_to_kernel(reason_pass_kernel);
#ifdef TIER_XDP
	/* TC translates the segment: either by processing the frame itself, or because of the mark. */
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
