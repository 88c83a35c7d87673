/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What is done with a segment, by the state of its connection. docs/softirq.md has this as a table.
 * The rule that everything follows from: at most one segment of ours is under way, and it answers
 * the client's last; so what gets lost, the client sends again, and nobody here needs a timer. */
#pragma once

#include "answers.h"

static __always_inline int acknowledge(context *ctx, const struct segment *segment,
				       const struct connection *connection, enum reason reason)
{
	count(reason);
	return reply_bare(ctx, segment, acknowledged_from(connection), acknowledged_to(connection),
			  FLAG_ACK, connection->options);
}

/* Our FIN, for the first time or once more. */
static __always_inline int finish(context *ctx, const struct segment *segment,
				  const struct connection *connection)
{
	count(reason_tcp_fin);
	return reply_bare(ctx, segment, connection->snd_nxt - 1, connection->rcv_nxt,
			  FLAG_FIN | FLAG_ACK, connection->options);
}

/* The end of what can be done here: the client finds out at once. */
static __always_inline int reset(context *ctx, const struct segment *segment,
				 struct connection *connection, enum reason reason)
{
	count(reason);
	connection->tag = 0;
	return reply_bare(ctx, segment, segment->ack, segment->seq + segment->payload_len,
			  FLAG_RST | FLAG_ACK, connection->options);
}

static __always_inline int up(context *ctx, const struct segment *segment,
			      struct connection *connection, enum reason reason)
{
	count(reason);
	return hand_over(ctx, segment, connection);
}

/* A request at rcv_nxt, with everything of ours acknowledged. */
static __always_inline int on_request(context *ctx, const struct control *control,
				      struct segment *segment, struct connection *connection)
{
	struct choice choice;

	if (control->mode != MODE_SERVE)
		return up(ctx, segment, connection, reason_up_drain);
	if (!is_alive(control, segment))
		return up(ctx, segment, connection, reason_up_daemon);
	if (segment->flags & (FLAG_FIN | FLAG_URG))
		return up(ctx, segment, connection, reason_up_flags);
	if (is_denied(control, segment))
		return up(ctx, segment, connection, reason_up_denied);
	if (is_stranger(control, segment, EVER_NS))
		return up(ctx, segment, connection, reason_up_unadmitted);
	if (!choose(ctx, segment, connection, &choice))
		return up(ctx, segment, connection, choice.reason);
	if (write_answer(ctx, segment, connection, &choice, connection->snd_nxt))
		return up(ctx, segment, connection, reason_up_room);
	connection->rcv_nxt = segment->seq + segment->payload_len;
	connection->snd_nxt += choice.len + !!choice.closes;
	connection->answer = choice.answer;
	connection->answer_len = choice.len;
	connection->request_len = segment->payload_len;
	connection->state = choice.closes ? STATE_CLOSING : STATE_OPEN;
	account(segment, &choice);
	return frame_reply(ctx);
}

/* The last request once more. The client may have the answer already, or not, so nobody else may
 * answer it: it gets the same again, fresh or not, as long as it is there, or the end. */
static __always_inline int on_same_request(context *ctx, const struct segment *segment,
					   struct connection *connection)
{
	struct choice choice = {
		.number = (connection->answer & ((1 << ANSWER_NUMBER_BITS) - 1)) - 1,
		.len = connection->answer_len,
		.closes = connection->state == STATE_CLOSING,
	};
	struct response *response = bpf_map_lookup_elem(&responses, &choice.number);

	if (!response || !response->id || answer_of(choice.number, response) != connection->answer)
		return reset(ctx, segment, connection, reason_tcp_gone);
	if (!has_window(segment, connection, choice.len))
		return drop(reason_up_window);
	if (write_answer(ctx, segment, connection, &choice,
			 connection->snd_nxt - choice.len - choice.closes))
		return drop(reason_drop_no_room);
	count(reason_answer_again);
	return frame_reply(ctx);
}

static __always_inline int on_reset(context *ctx, const struct segment *segment,
				    struct connection *connection)
{
	__u32 beside = segment->seq - connection->rcv_nxt;

	if (beside && beside < WINDOW)
		return acknowledge(ctx, segment, connection, reason_tcp_challenge);
	if (!beside)
		connection->tag = 0;
	return drop(reason_tcp_reset);
}

/* FIN at rcv_nxt, without data. */
static __always_inline int on_fin(context *ctx, const struct segment *segment,
				  struct connection *connection)
{
	/* Our answer is under way yet: the FIN comes again, with its acknowledgement. */
	if (segment->ack != connection->snd_nxt)
		return drop(reason_tcp_fin);
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

/* Not at rcv_nxt: from the past or from the future. */
static __always_inline int on_other_seq(context *ctx, const struct segment *segment,
					struct connection *connection)
{
	__u32 before = connection->rcv_nxt - segment->seq;

	if (segment->payload_len && before == connection->request_len && connection->answer) {
		/* With more behind it, or with less: clients cut anew what is lost, and would do it again. What
		 * is behind comes again once this is acknowledged. */
		struct segment first = *segment;
		first.payload_len = before;
		return on_same_request(ctx, &first, connection);
	}
	if (connection->state == STATE_DONE && before == 1 && segment->flags & FLAG_FIN) {
		/* Our FIN, or the acknowledgement of the client's, was lost. */
		if (segment->ack != connection->snd_nxt)
			return finish(ctx, segment, connection);
		return acknowledge(ctx, segment, connection, reason_tcp_fin);
	}
	if (before == 1 && segment->payload_len <= 1 && !(segment->flags & FLAG_FIN) &&
	    connection->state == STATE_OPEN)
		return acknowledge(ctx, segment, connection, reason_tcp_probe);
	if (!segment->payload_len && !(segment->flags & FLAG_FIN))
		return drop(reason_tcp_ack);
	return acknowledge(ctx, segment, connection,
			   (__s32)before > 0 ? reason_tcp_old : reason_tcp_early);
}

/* A segment of a connection of ours. */
static __always_inline int on_ours(context *ctx, const struct control *control,
				   struct segment *segment, struct connection *connection)
{
	if (segment->flags & FLAG_RST)
		return on_reset(ctx, segment, connection);
	/* RFC 9293 §3.10.7.4, fourth and fifth */
	if (segment->flags & FLAG_SYN)
		return acknowledge(ctx, segment, connection, reason_tcp_challenge);
	if (!(segment->flags & FLAG_ACK))
		return drop(reason_drop_odd);
	if (segment->seq != connection->rcv_nxt)
		return on_other_seq(ctx, segment, connection);
	if (segment->payload_len) {
		if (connection->state != STATE_OPEN)
			return reset(ctx, segment, connection, reason_tcp_closed);
		if (segment->ack != connection->snd_nxt)
			return drop(reason_drop_pipelined);
		return on_request(ctx, control, segment, connection);
	}
	if (segment->flags & FLAG_FIN)
		return connection->state == STATE_DONE ? drop(reason_tcp_fin)
						       : on_fin(ctx, segment, connection);
	if (segment->ack == connection->snd_nxt) {
		connection->answer = 0;
		if (connection->state == STATE_DONE)
			connection->tag = 0;
	}
	return drop(reason_tcp_ack);
}

/* No connection is known: perhaps a handshake completes, perhaps the kernel knows more.
 * What comes back is a reason to pass the segment, or reason_count: there is a connection now. */
SEPARATE int on_unknown(context *ctx, const struct segment *segment ARG)
{
	__u32 state;

	if (open_connection(segment, 0))
		return reason_count;
	if ((segment->flags & (FLAG_ACK | FLAG_SYN | FLAG_RST)) != FLAG_ACK)
		return reason_pass_unknown;
	/* A listener would reset it. It comes again, or what it acknowledges is not lost. */
	if (overtakes(segment))
		return reason_drop_early;
	state = socket_state(ctx, segment);
	if (state && state != TCP_STATE_LISTEN) {
		/* Next time nobody looks. */
		mark(segment, STATE_KERNEL);
		return reason_pass_kernel;
	}
	return state && open_connection(segment, 1) ? reason_count : reason_pass_unknown;
}

/* The sum of a TCP header and its options; negative: it isn't in one piece. */
static __always_inline __s64 sum_of_header(context *ctx, const struct segment *segment)
{
	void *at = frame_begin(ctx) + (segment->tcp_at & 0x3f), *end = frame_end(ctx);
	__u32 left = segment->payload_at - segment->tcp_at;
	__u64 sum;

	if (at + TCP_LEN > end)
		return -1;
	sum = words_of(at, 5);
	at += TCP_LEN;
	for (int i = 0; i < 10 && left > TCP_LEN; i++, at += 4, left -= 4) {
		OPAQUE(end);
		if (at + 4 > end)
			return -1;
		sum += *(__u32 *)at;
	}
	return sum;
}

/* The sum of a long segment, or of one in pieces; negative: the kernel looks for itself. */
SEPARATE __s64 sum_of_long(context *ctx, const struct segment *segment ARG)
{
	__u32 len = segment->payload_at - segment->tcp_at + segment->payload_len, done = 0;
	struct scratch *scratch = scratch_memory();
	__s64 sum = 0;

	/* Longer ones are not answered here. */
	if (!scratch || len > REQUEST_MAX)
		return -1;
	OPAQUE(len);
	if (len < TCP_LEN || len > REQUEST_MAX || frame_load(ctx, segment->tcp_at, scratch->head, len))
		return -1;
	*(__u64 *)(scratch->head + (len & (HEAD_SIZE - 1))) = 0;
#pragma unroll
	for (int i = 0; i < 3; i++) {
		__u32 rest = (len - done + 3) & ~3;
		if (len <= done)
			break;
		rest = rest > 512 ? 512 : rest;
		OPAQUE(rest);
		if (rest > 512)
			break;
		sum = bpf_csum_diff(0, 0, (__be32 *)(scratch->head + 512 * i), rest, sum);
		done += 512;
	}
	return (__u32)sum;
}

/* From a peer on this machine whose device would have filled in the rest. */
static __always_inline int has_partial_sum(context *ctx, const struct segment *segment, __u16 pseudo)
{
	__u16 check = 0;
	return !frame_load(ctx, segment->tcp_at + 16, &check, sizeof(check)) && check == pseudo;
}

/* Whether the TCP checksum is right; for devices whose own verdict XDP can't see. */
SEPARATE int has_right_sum(context *ctx, struct segment *segment ARG)
{
	__u32 len = segment->payload_at - segment->tcp_at + segment->payload_len;
	int payload = 0;
	__s64 sum = -1;

#ifndef TIER_XDP
	/* The device has looked. */
	if (bpf_csum_level(ctx, BPF_CSUM_LEVEL_QUERY) >= 0)
		return 1;
#endif
	if (segment->payload_len)
		payload = walk(ctx, segment);
	if (payload >= 0)
		sum = sum_of_header(ctx, segment);
	if (sum >= 0)
		sum += payload;
	else
		sum = sum_of_long(ctx, segment);
	if (sum < 0)
		return 1;
	__u64 pseudo = segment->is_v6 ? words_of(&segment->tuple, 8)
				      : (__u64)segment->tuple.client_be[3] + segment->tuple.local_be[3];
	pseudo += bpf_htons(IPPROTO_TCP) + bpf_htons(len);
	return fold(sum + pseudo) == 0xffff || has_partial_sum(ctx, segment, fold(pseudo));
}

/* A segment that can't be of the connection as it is known: nowhere near its window. */
static __always_inline int is_far(const struct segment *segment, const struct connection *connection)
{
	return segment->seq - connection->rcv_nxt + 0x10000 > 0x20000 && !(segment->flags & FLAG_FIN);
}

static __always_inline int on_segment(context *ctx, const struct control *control,
				      struct segment *segment)
{
	struct connection *connection = find(segment);
	__u16 now = seen_at(segment->now_ns);
	int is_syn = (segment->flags & (FLAG_SYN | FLAG_ACK)) == FLAG_SYN;

	if (connection && connection->state >= STATE_KERNEL && !is_syn) {
		if (connection->state == STATE_ASKED && on_asked(ctx, segment))
			connection->state = STATE_KERNEL;
		if (connection->seen != now)
			connection->seen = now;
		return pass(reason_pass_kernel);
	}
	if (constants.verify_sums && !has_right_sum(ctx, segment))
		return connection ? drop(reason_drop_sum) : pass(reason_drop_sum);
	if (is_syn)
		return on_syn(ctx, segment);
	if (!connection) {
		int reason = on_unknown(ctx, segment);
		if (reason == reason_drop_early)
			return drop(reason_drop_early);
		if (reason != reason_count)
			return pass(reason & 0xff);
	} else if (segment->seq != connection->rcv_nxt && !is_of_handshake(segment, connection)) {
		/* The client may have begun anew from the same port. */
		open_connection(segment, is_far(segment, connection));
	}
	if (!connection || segment->seq != connection->rcv_nxt)
		connection = find(segment);
	if (!connection)
		return VERDICT_DROP;
	if (connection->seen != now)
		connection->seen = now;
	if (connection->state == STATE_HANDED) {
		if (!(segment->flags & FLAG_RST))
			return hand_over(ctx, segment, connection);
		/* If it is the kernel's by now, the kernel knows what to do; else it is over. */
		if (segment->seq == connection->rcv_nxt)
			connection->tag = 0;
		return pass(reason_tcp_reset);
	}
	return on_ours(ctx, control, segment, connection);
}
