/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* TCP state machine: processes a segment according to the state of its connection. docs/softirq.md has a table of it.
 * Invariant: while a response is in flight, its request is not completely acknowledged. If a segment is lost, the
 * client therefore retransmits its request, and this side needs no retransmission timer. */
#pragma once

#include "flight.h"
#include "reclaim.h"

static __always_inline int acknowledge(context *ctx, const struct segment *segment,
				       const struct connection *connection, enum reason reason)
{
	__u32 seq = acknowledged_from(connection);

	/* The client has acknowledged a part of the flight, and would drop segments with older sequence numbers. */
	if (is_flight(connection) && segment->ack - seq <= in_flight(connection))
		seq = segment->ack;
	count(reason);
	return reply_bare(ctx, segment, seq, acknowledged_to(connection), FLAG_ACK, connection->options);
}

/* Sends our FIN, for the first time or again. */
static __always_inline int finish(context *ctx, const struct segment *segment,
				  const struct connection *connection)
{
	count(reason_tcp_fin);
	return reply_bare(ctx, segment, connection->snd_nxt - 1, connection->rcv_nxt,
			  FLAG_FIN | FLAG_ACK, connection->options);
}

/* Resets a connection that can't be continued here, so that the client need not wait for its timeout. */
static __always_inline int reset(context *ctx, const struct segment *segment,
				 struct connection *connection, enum reason reason)
{
	if (connection->socket == SOCKET_KEPT) {
		if (defer_to_tc(ctx))
			return VERDICT_PASS;
		close_parked(ctx, segment, connection, FLAG_RST);
	}
	count(reason);
	/* The entry remains, so that late copies of the handshake do not reopen the connection. */
	connection->state = STATE_OVER;
	return reply_bare(ctx, segment, segment->ack, segment->seq + segment->payload_len,
			  FLAG_RST | FLAG_ACK, connection->options);
}

static __always_inline int punt(context *ctx, const struct segment *segment,
			      struct connection *connection, enum reason reason)
{
	struct control *control = level_control();
	int is_kept = connection->socket == SOCKET_KEPT, is_understood = 0;

	/* Only TC can translate the segment's sequence numbers. */
	if (is_kept && defer_to_tc(ctx))
		return VERDICT_PASS;
	count(reason);
	if (control)
		is_understood = start_tracking(ctx, control, segment, connection, reason);
	/* A request that can't be tracked may be part of a long exchange, so it gets a new socket, which needs no
	 * translation. */
	if (is_kept && is_understood && !is_closing(segment) && !resume_parked(ctx, segment, connection))
		return pass_to_socket(ctx, segment, connection);
	return migrate(ctx, segment, connection);
}

/* Sends a response of several segments. If this tier can't, the program at TC processes the frame. */
static __always_inline int on_long_answer(context *ctx, const struct control *control,
					  const struct segment *segment, struct connection *connection,
					  const struct response_choice *choice)
{
	int verdict;

	if (!can_send(ctx, choice->parts))
		return defer_to_tc(ctx) ? VERDICT_PASS : punt(ctx, segment, connection, reason_up_large);
	verdict = begin_flight(ctx, segment, connection, choice);
	if (verdict == NOT_SENT)
		return punt(ctx, segment, connection, reason_up_room);
	account(control, segment, choice);
	return verdict;
}

/* Answers a request at rcv_nxt; the client has acknowledged everything that was sent. */
static __always_inline int on_request(context *ctx, const struct control *control,
				      struct segment *segment, struct connection *connection)
{
	struct response_choice choice;

	/* The client has sent its request in several parts. If the response were lost, the client might retransmit only
	 * the first part, which would not be recognized as a repetition. */
	if (segment->is_pieced)
		return punt(ctx, segment, connection, reason_up_cut);
	if (is_draining(control, segment))
		return punt(ctx, segment, connection, reason_up_drain);
	if (!is_alive(control, segment))
		return punt(ctx, segment, connection, reason_up_daemon);
	/* Our response would acknowledge the data, but not the FIN. */
	if (segment->flags & (FLAG_FIN | FLAG_URG))
		return punt(ctx, segment, connection, reason_up_flags);
	if (is_denied(control, segment))
		return punt(ctx, segment, connection, reason_up_denied);
	if (is_unknown_client(ctx, control, segment, EVER_NS))
		return punt(ctx, segment, connection, reason_up_unadmitted);
	if (!choose(ctx, segment, connection, &choice))
		return punt(ctx, segment, connection, choice.reason);
	if (choice.parts > 1)
		return on_long_answer(ctx, control, segment, connection, &choice);
	if (write_answer(ctx, segment, connection, &choice, connection->snd_nxt))
		return punt(ctx, segment, connection, reason_up_room);
	set_in_flight(connection, segment, &choice, segment->payload_len);
	account(control, segment, &choice);
	return frame_reply(ctx);
}

/* Retransmits the response in flight. The client may have all of it, a part, or nothing, so no other level may answer
 * the request: the client gets the same bytes, fresh or not, or a reset if they are no longer stored. */
SEPARATE int answer_again(context *ctx, const struct segment *segment ARG,
			  struct connection *connection ARG)
{
	struct response_choice choice = {
		.number = in_flight_number(connection),
		.len = connection->answer_len,
		.closes = connection->state == STATE_CLOSING,
	};

	if (!is_still_stored(connection))
		return reset(ctx, segment, connection, reason_tcp_gone);
	/* The acknowledged part takes no room in the client's window. */
	if (!has_window(segment, connection, choice.len - acknowledged_part(segment, connection)))
		return drop(reason_up_window);
	if (write_answer(ctx, segment, connection, &choice, acknowledged_from(connection)))
		return drop(reason_drop_no_room);
	count(reason_answer_again);
	return frame_reply(ctx);
}

/* Whether the segment repeats the request that the response in flight answers, from a client that has acknowledged
 * nothing of that response. The segment may contain further data, or only a part of the request. */
static __always_inline int is_same_request(const struct segment *segment,
					   const struct connection *connection)
{
	__u32 len = connection->request_len;

	return connection->answer && segment->payload_len >= (len < REPEAT_MIN ? len : REPEAT_MIN) &&
	       connection->rcv_nxt - segment->seq == len && segment->ack == acknowledged_from(connection);
}

static __always_inline int on_same_request(context *ctx, struct segment *segment,
					   struct connection *connection)
{
	__u32 len = connection->request_len;

	/* Clients may coalesce segments when they retransmit, so the data behind the request is buffered. */
	if (segment->payload_len + (segment->flags & FLAG_FIN) > len)
		buffer_data(ctx, segment, connection, len);
	segment->payload_len = len;
	return answer_again(ctx, segment, connection);
}

/* Whether the client has acknowledged only a part of a response, because a middlebox has split one of its segments. */
static __always_inline int has_part(const struct segment *segment, const struct connection *connection)
{
	__u32 ahead = segment->seq - (connection->rcv_nxt - connection->request_len);

	/* Unsigned arithmetic: more than 0 and less than everything. */
	return connection->answer && acknowledged_part(segment, connection) - 1 < in_flight(connection) - 1 &&
	       ahead <= WINDOW;
}

/* The request is acknowledged at least in part, so the client's retransmission timer no longer runs: the response is
 * retransmitted immediately. An acknowledgement costs less than a request, so the number of retransmissions is bounded;
 * after that, the connection is reset. */
static __always_inline int on_part(context *ctx, struct segment *segment, struct connection *connection)
{
	if (!has_recovery_time(connection))
		return reset(ctx, segment, connection, reason_tcp_gone);
	/* write_answer acknowledges everything up to the end of the segment, here the whole request. */
	segment->seq = connection->rcv_nxt;
	segment->payload_len = 0;
	return answer_again(ctx, segment, connection);
}

/* Processes a segment of a flight that the client has not completely acknowledged. */
SEPARATE int on_flight(context *ctx, struct segment *segment ARG, struct connection *connection ARG)
{
	enum reason reason;
	int due = flight_action(ctx, segment, connection, &reason), verdict = NOT_SENT;

	if (due > 0)
		verdict = send_again(ctx, segment, connection, due);
	else if (!due)
		return reason == reason_tcp_old ? acknowledge(ctx, segment, connection, reason) : drop(reason);
	if (verdict != NOT_SENT)
		return verdict;
	return reset(ctx, segment, connection, reason_tcp_gone);
}

/* Processes a reset. It is accepted at the sequence number that the client sends next (RFC 5961 §3.2): rcv_nxt, or,
 * while a response is in flight and its request is unacknowledged, the number that we have acknowledged last. */
static __always_inline int on_reset(context *ctx, const struct segment *segment,
				    struct connection *connection)
{
	__u32 distance = segment->seq - acknowledged_to(connection);

	if (!distance || segment->seq == connection->rcv_nxt)
		connection->state = STATE_OVER;
	else if (distance < WINDOW)
		return acknowledge(ctx, segment, connection, reason_tcp_challenge);
	return drop(reason_tcp_reset);
}

/* Drops a segment that arrives before our response is acknowledged, after buffering its content. */
static __always_inline int buffer_segment(context *ctx, const struct segment *segment,
				const struct connection *connection, enum reason reason)
{
	if (connection->answer && segment->ack == acknowledged_from(connection))
		buffer_data(ctx, segment, connection, 0);
	return drop(reason);
}

/* Processes a FIN at rcv_nxt without data. */
static __always_inline int on_fin(context *ctx, const struct segment *segment,
				  struct connection *connection)
{
	/* Our response is still in flight: the buffered FIN is processed when the response is acknowledged. */
	if (segment->ack != connection->snd_nxt)
		return buffer_segment(ctx, segment, connection, reason_tcp_fin);
	connection->rcv_nxt++;
	connection->answer = 0;
	if (connection->state == STATE_CLOSING) {
		connection->state = STATE_DONE;
		return acknowledge(ctx, segment, connection, reason_tcp_fin);
	}
	connection->state = STATE_DONE;
	connection->snd_nxt++;
	return finish(ctx, segment, connection);
}

/* Processes a segment with a sequence number before or after rcv_nxt. */
static __always_inline int on_unexpected_seq(context *ctx, struct segment *segment,
					struct connection *connection)
{
	__u32 before = connection->rcv_nxt - segment->seq;

	if (is_same_request(segment, connection))
		return on_same_request(ctx, segment, connection);
	if (connection->state == STATE_DONE && before == 1 && segment->flags & FLAG_FIN) {
		/* Our FIN, or our acknowledgement of the client's FIN, was lost. */
		if (segment->ack != connection->snd_nxt)
			return finish(ctx, segment, connection);
		return acknowledge(ctx, segment, connection, reason_tcp_fin);
	}
	/* A keep-alive probe has the number before rcv_nxt (RFC 9293 §3.8.4). */
	if (before == 1 && segment->payload_len <= 1 && !(segment->flags & FLAG_FIN) &&
	    connection->state == STATE_OPEN)
		return acknowledge(ctx, segment, connection, reason_tcp_probe);
	if (!segment->payload_len && !(segment->flags & FLAG_FIN))
		return drop(reason_tcp_ack);
	/* The preceding request may have been punted and be on its way to TC, to the parked socket. */
	if ((__s32)before < 0 && connection->socket == SOCKET_KEPT && defer_to_tc(ctx))
		return VERDICT_PASS;
	return acknowledge(ctx, segment, connection,
			   (__s32)before > 0 ? reason_tcp_old : reason_tcp_early);
}

enum future_result { AHEAD_NOT_OURS, AHEAD_BUFFERED, AHEAD_REPLACED, AHEAD_DAMAGED };

/* Processes a segment beyond rcv_nxt. It may continue the buffered data, and it may acknowledge the response on which
 * the buffered data waits: the buffered segment then replaces this one and is processed. */
static __always_inline enum future_result on_future_seq(context *ctx, struct segment *segment,
					   struct connection *connection)
{
	int has_more = segment->payload_len || segment->flags & FLAG_FIN, result;

	/* The segment is beyond the window, or acknowledges unsent data, or does not fit into the buffer. */
	if (segment->seq - connection->rcv_nxt > WINDOW ||
	    acknowledged_part(segment, connection) > in_flight(connection) ||
	    (has_more && buffer_data(ctx, segment, connection, 0)))
		return AHEAD_NOT_OURS;
	if (segment->ack != connection->snd_nxt)
		return has_more ? AHEAD_BUFFERED : AHEAD_NOT_OURS;
	connection->answer = 0;
	result = take_buffered(ctx, segment, connection);
	if (result)
		return result > 0 ? AHEAD_REPLACED : AHEAD_DAMAGED;
	return has_more ? AHEAD_BUFFERED : AHEAD_NOT_OURS;
}

/* Processes a segment of a live connection. */
static __always_inline int on_connection_segment(context *ctx, const struct control *control,
				   struct segment *segment, struct connection *connection)
{
	if (segment->flags & FLAG_RST)
		return on_reset(ctx, segment, connection);
	/* A frame that triggers a response must not be charged to a local socket (frame_is_owned). */
	if ((segment->payload_len || connection->answer) && frame_is_owned(ctx))
		return frame_disown(ctx);
	/* The fourth and fifth check of RFC 9293 §3.10.7.4. */
	if (segment->flags & FLAG_SYN)
		return acknowledge(ctx, segment, connection, reason_tcp_challenge);
	if (!(segment->flags & FLAG_ACK))
		return drop(reason_drop_odd);
	if (is_of_flight(segment, connection))
		return on_flight(ctx, segment, connection);
	/* The client has acknowledged the whole flight, so its retransmitted bytes can be acknowledged, too. */
	if (has_all_of_flight(segment, connection))
		connection->answer = 0;
	if (has_part(segment, connection))
		return on_part(ctx, segment, connection);
	if (segment->seq != connection->rcv_nxt) {
		switch (on_future_seq(ctx, segment, connection)) {
		case AHEAD_NOT_OURS:
			return on_unexpected_seq(ctx, segment, connection);
		case AHEAD_BUFFERED:
			return drop(reason_drop_pipelined);
		case AHEAD_DAMAGED:
			return drop(reason_drop_no_room);
		case AHEAD_REPLACED:
			break;
		}
	}
	if (segment->payload_len) {
		if (connection->state != STATE_OPEN)
			return reset(ctx, segment, connection, reason_tcp_closed);
		if (segment->ack != connection->snd_nxt)
			return buffer_segment(ctx, segment, connection, reason_drop_pipelined);
		return on_request(ctx, control, segment, connection);
	}
	if (segment->flags & FLAG_FIN)
		return connection->state == STATE_DONE ? drop(reason_tcp_fin)
						       : on_fin(ctx, segment, connection);
	if (segment->ack == connection->snd_nxt) {
		int is_withheld = is_flight(connection);

		connection->answer = 0;
		/* A parked or old kernel socket may still send; its segments can be dropped only while the entry
		 * exists. */
		if (connection->state == STATE_DONE && connection->socket == SOCKET_NONE)
			connection->state = STATE_OVER;
		if (is_withheld)
			return acknowledge(ctx, segment, connection, reason_tcp_ack);
	}
	return drop(reason_tcp_ack);
}

/* Processes a segment without a known connection: it may complete a handshake, or belong to a kernel socket. Returns
 * the reason to pass or drop the segment, or reason_count if a connection was opened. */
SEPARATE int on_unknown(context *ctx, const struct segment *segment ARG)
{
	struct syn_offer offer = {};
	int relation = relation_of(segment, &offer), reason;
	__u32 state;

	if (relation == COMPLETES)
		return open_connection(segment, &offer, reason_tcp_open) ? reason_count : reason_pass_unknown;
	if (relation == RESETS)
		return reason_tcp_reset;
	if (!is_plain_ack(segment))
		return reason_pass_unknown;
	/* A listener would reset the connection. If the segment has data, the client retransmits it; a pure ACK is no
	 * loss. */
	if (relation == OVERTAKES)
		return reason_drop_early;
	state = socket_state(ctx, segment);
	if (state && state != TCP_STATE_LISTEN) {
		/* Marks the connection, so that its next segment needs no socket lookup. */
		mark(segment, STATE_KERNEL);
		return reason_pass_kernel;
	}
	if (!state)
		return reason_pass_unknown;
	/* For one handshake, either the cookie or the half-open entry is compared, never both; otherwise an attacker's
	 * guess could match two numbers. */
	reason = relation == MISSES ? reason_drop_cookie : completes_by_cookie(segment, &offer);
	if (reason == reason_count && !open_connection(segment, &offer, reason_tcp_open_cookie))
		return reason_pass_unknown;
	return reason;
}

/* Whether the segment is so far from the connection's window that it can't belong to this connection. */
static __always_inline int is_far(const struct segment *segment, __u32 rcv_nxt)
{
	/* Unsigned arithmetic: more than 64 KB before or after rcv_nxt. */
	return segment->seq - rcv_nxt + 0x10000 > 0x20000 && !(segment->flags & FLAG_FIN);
}

/* Opens a new connection in the place of one that is not live, if the client has reused its port. A cookie alone proves
 * the reuse only if the segment can't be a late segment of the old connection. */
SEPARATE int open_anew(const struct segment *segment ARG, __u32 rcv_nxt)
{
	struct syn_offer offer = {};
	int relation = relation_of(segment, &offer);

	if (relation == COMPLETES)
		return open_connection(segment, &offer, reason_tcp_open);
	if (relation == NO_HANDSHAKE && is_far(segment, rcv_nxt) && is_plain_ack(segment) &&
	    completes_by_cookie(segment, &offer) == reason_count)
		return open_connection(segment, &offer, reason_tcp_open_cookie);
	return 0;
}

static __always_inline int is_drop(int reason)
{
	return reason == reason_drop_early || reason == reason_drop_cookie || reason == reason_tcp_reset;
}

/* Whether the client may have reused its port. Never true for a live connection, since SYNs to it are not answered. */
static __always_inline int may_reuse_tuple(const struct segment *segment, const struct connection *connection)
{
	return !is_live(connection) && !is_of_handshake(segment, connection);
}

/* Whether the segment goes to the kernel without further processing; if not, its connection may be reclaimed. */
static __always_inline int is_bypassed(context *ctx, const struct segment *segment,
					     struct connection *connection, __u16 now)
{
	if (connection->state == STATE_ASKED && check_admission(ctx, segment, connection->rcv_nxt))
		connection->state = STATE_KERNEL;
	/* The time is written only once per unit, since each write takes the cache line from other processors. */
	if (connection->seen != now)
		connection->seen = now;
	return !is_next_request(segment, connection);
}

/* Processes a segment of a connection that is migrating to a listener. */
static __always_inline int on_migrated(context *ctx, struct segment *segment, struct connection *connection)
{
	if (!(segment->flags & FLAG_RST))
		return migrate(ctx, segment, connection);
	/* If the kernel has created the socket, it processes the reset. If not, the connection is over. */
	if (segment->seq == connection->rcv_nxt)
		connection->state = STATE_OVER;
	return pass_to_kernel(reason_tcp_reset);
}

/* Whether the segment ends a connection that has a parked socket. */
static __always_inline int ends_parked(const struct segment *segment, const struct connection *connection)
{
	__u32 acknowledged = acknowledged_to(connection);

	return connection->socket == SOCKET_KEPT && segment->flags & (FLAG_FIN | FLAG_RST) &&
	       segment->seq - acknowledged <= connection->rcv_nxt - acknowledged;
}

static __always_inline int has_wrong_sum(context *ctx, const struct control *control, struct segment *segment)
{
	segment->summed = frame_summed(ctx);
	return segment->summed != CHECKSUM_UNNECESSARY && segment->summed != CHECKSUM_PARTIAL &&
	       !has_right_sum(ctx, control, segment);
}

/* Entry point: dispatches on the state of the connection. First come segments for the kernel and invalid ones, then
 * connections to open or to reclaim, and finally the segments of live and migrating connections. */
static __always_inline int on_segment(context *ctx, const struct control *control,
				      struct segment *segment)
{
	struct connection *connection = find_connection(segment);
	__u16 now = seen_at(segment->now_ns);
	int is_syn = (segment->flags & (FLAG_SYN | FLAG_ACK)) == FLAG_SYN, verdict;

	switch (state_of(connection)) {
	case STATE_OVER:
		connection = 0;
		break;
	case STATE_KERNEL:
	case STATE_ASKED:
		if (!is_syn && is_bypassed(ctx, segment, connection, now))
			return pass_to_socket(ctx, segment, connection);
	}
	if (connection)
		set_reply_options(segment, connection);
	/* Segments that were passed to the kernel above are not verified here, since the kernel verifies them
	 * itself. */
	if (has_wrong_sum(ctx, control, segment))
		return connection ? drop(reason_drop_sum) : pass_to_kernel(reason_drop_sum);
	if (is_syn) {
		verdict = on_syn(ctx, segment);
		return verdict > 0xff ? answer_syn(ctx, segment, verdict) : verdict;
	}
	switch (state_of(connection)) {
	case STATE_OVER:
		verdict = on_unknown(ctx, segment);
		if (verdict != reason_count)
			return is_drop(verdict) ? drop(verdict & 0xff) : pass_to_kernel(verdict & 0xff);
		break;
	case STATE_KERNEL:
	case STATE_ASKED:
		/* As in on_connection_segment: the response lengthens the frame. */
		if (frame_is_owned(ctx))
			return frame_disown(ctx);
		if (!take_back(ctx, segment, connection))
			return pass_to_socket(ctx, segment, connection);
		break;
	default:
		if (segment->seq != connection->rcv_nxt && may_reuse_tuple(segment, connection))
			open_anew(segment, connection->rcv_nxt);
	}
	/* open_connection or open_anew may have filled the slot with another connection. */
	if (!connection || segment->seq != connection->rcv_nxt)
		connection = find_connection(segment);
	if (!connection)
		return VERDICT_DROP;
	set_reply_options(segment, connection);
	if (connection->seen != now)
		connection->seen = now;
	if (connection->state == STATE_HANDED)
		return on_migrated(ctx, segment, connection);
	if (ends_parked(segment, connection)) {
		if (defer_to_tc(ctx))
			return VERDICT_PASS;
		close_parked(ctx, segment, connection, segment->flags & FLAG_RST ? FLAG_RST : FLAG_FIN | FLAG_ACK);
	}
	return on_connection_segment(ctx, control, segment, connection);
}
