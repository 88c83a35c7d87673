/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* From a segment with a request to the stored response, and on to the reply. */
#pragma once

#include "events.h"
#include "handshake.h"

/* The response to send, or the reason to punt the request. */
struct response_choice {
	__u32 number;
	/* Value of connection.answer. */
	__u32 answer;
	__u32 len;
	__u32 closes;
	__u32 reason;
	/* Number of segments, and bytes in each but the last. */
	__u16 parts;
	__u16 cut;
};

static __always_inline __u32 response_for(__u32 number, const struct response *response)
{
	return response->id << ANSWER_NUMBER_BITS | (number + 1);
}

/* Slot number of the response in flight. */
static __always_inline __u32 in_flight_number(const struct connection *connection)
{
	return (connection->answer & ((1 << ANSWER_NUMBER_BITS) - 1)) - 1;
}

/* Whether the response in flight is still stored unchanged. */
static __always_inline int is_still_stored(const struct connection *connection)
{
	__u32 number = in_flight_number(connection);
	struct response *response = bpf_map_lookup_elem(&responses, &number);

	return response && response->id && response_for(number, response) == connection->answer;
}

/* Records the response to the segment's request as in flight. `unacknowledged`: bytes of the request that the response
 * does not acknowledge. */
static __always_inline void set_in_flight(struct connection *connection, const struct segment *segment,
					  const struct response_choice *choice, __u32 unacknowledged)
{
	connection->rcv_nxt = segment->seq + segment->payload_len;
	connection->snd_nxt += choice->len + !!choice->closes;
	connection->answer = choice->answer;
	connection->answer_len = choice->len;
	connection->request_len = unacknowledged;
	connection->options &= ~OPTION_PARTS;
	connection->state = choice->closes ? STATE_CLOSING : STATE_OPEN;
}

/* Whether this many bytes fit into the client's window. */
static __always_inline int has_window(const struct segment *segment, const struct connection *connection,
				      __u32 len)
{
	__u32 window = segment->window;
	if ((connection->options & OPTION_SCALE_MASK) != OPTION_SCALE_NONE)
		window <<= connection->options & OPTION_SCALE_MASK;
	return window > len;
}

/* Bytes in each segment of a longer response. All paths with a smaller MTU share one size, so that the checksums of all
 * segments can be computed in advance. */
static __always_inline __u32 cut_for(const struct control *control, const struct segment *segment,
				     const struct connection *connection)
{
	__u32 mss = RESPONSE_MAX + TIMESTAMPS_LEN;
	return segment->is_v6 || connection->mss < mss || control->mtu < mss + 40 ? RESPONSE_MAX_V6 : RESPONSE_MAX;
}

static __always_inline __u32 parts_of(__u32 len, __u32 cut)
{
	return (len + cut - 1) / cut;
}

/* Number of segments of the response; 0 if the response is too long for this level. */
static __always_inline __u32 parts_for(const struct control *control, const struct segment *segment,
				       const struct connection *connection, const struct response *response,
				       struct response_choice *choice, int is_head)
{
	__u32 limit = segment->is_v6 ? RESPONSE_MAX_V6 : RESPONSE_MAX;
	__u32 mss = connection->mss - segment->reply_options_len;
	__u32 room = control->mtu - (segment->is_v6 ? 60 : 40) - segment->reply_options_len;
	__u32 cut = cut_for(control, segment, connection), parts;

	choice->cut = cut;
	if (choice->len <= limit && choice->len <= room && choice->len <= mss)
		return 1;
	if (is_head || cut > mss || cut > room)
		return 0;
	/* Date and Age are overwritten in the first segment only. */
	if (response->date_at + DATE_LEN > cut || response->age_at + AGE_LEN > cut)
		return 0;
	parts = parts_of(choice->len, cut);
	return parts <= (choice->closes ? PARTS_MAX : KEPT_PARTS_MAX) ? parts : 0;
}

/* Loads the segment's payload for the parser, or for an event. */
SEPARATE int load_request(context *ctx, const struct segment *segment ARG)
{
	struct scratch *scratch = scratch_memory();
	__u32 len = segment->payload_len;

	if (!scratch || len == 0 || len > REQUEST_MAX)
		return -1;
	OPAQUE(len);
	if (len == 0 || len > REQUEST_MAX || frame_load(ctx, segment->payload_at, scratch->head, len))
		return -1;
	/* The parser reads up to eight bytes beyond the end, so zeros follow. */
	*(__u64 *)(scratch->head + (len & (HEAD_SIZE - 1))) = 0;
	return 0;
}

/* Parses the request in the segment and looks up its response. Returns reason_count if there is one, otherwise the
 * reason to punt. */
SEPARATE int read_and_find(context *ctx, const struct segment *segment ARG, struct request_summary *summary ARG)
{
	struct scratch *scratch = scratch_memory();
	struct control *control = level_control();
	struct request *request;

	if (!control || !scratch || load_request(ctx, segment))
		return reason_up_long;
	request = &scratch->request;
	/* The purge counter is read before the index lookup: a purge between the two invalidates the memo. */
	__u32 purges = *(volatile __u32 *)&control->purges;
	parse_request(scratch, segment, control->settings);
	if (request->reason != reason_count)
		return request->reason;
	__u64 hash = hash_of_key(scratch, control);
	__u32 number = number_for(scratch, request->key_len, hash);
	struct response *response = bpf_map_lookup_elem(&responses, &number);
	if (!response || response->expires_ns <= segment->now_ns) {
		if (control->settings & SETTING_LEARN)
			emit_requested(scratch, request->key_len, hash, segment->now_ns);
		return response ? reason_up_expired : reason_up_miss;
	}
	summary->hash = hash;
	summary->number = number;
	summary->is_head = request->is_head;
	summary->closes = scratch->key[0] & CLASS_CLOSE;
	if (segment->payload_hash)
		store_memo(segment, summary, purges);
	return reason_count;
}

/* Whether answers are reported as events, with the request. */
static __always_inline int is_recorded(const struct control *control)
{
	return control->settings & SETTING_LOG;
}

/* Chooses the stored response to the request in the segment. */
SEPARATE int choose(context *ctx, struct segment *segment ARG, const struct connection *connection ARG,
		    struct response_choice *choice ARG)
{
	struct control *control = level_control();
	struct response *response = 0;
	struct request_summary summary = {};

	choice->number = NO_RESPONSE;
	choice->reason = reason_up_miss;
	if (!control)
		return 0;
	/* The hash is already set if the checksum was verified here. */
	if (!segment->payload_hash)
		sum_payload(ctx, control, segment);
	if (segment->payload_hash)
		response = recall_request(ctx, control, segment, &summary);
	if (!response) {
		choice->reason = read_and_find(ctx, segment, &summary);
		if (choice->reason != reason_count)
			return 0;
		__u32 number = summary.number;
		response = bpf_map_lookup_elem(&responses, &number);
		if (!response)
			return 0;
	} else if (is_recorded(control)) {
		load_request(ctx, segment);
	}
	choice->len = summary.is_head ? response->head_len : response->len;
	choice->closes = summary.closes;
	choice->parts = parts_for(control, segment, connection, response, choice, summary.is_head);
	if (!choice->parts) {
		choice->reason = reason_up_large;
		return 0;
	}
	/* All segments are sent at once, so the window must hold the whole response. */
	if (!has_window(segment, connection, choice->len)) {
		choice->reason = reason_up_window;
		return 0;
	}
	choice->reason = reason_count;
	choice->number = summary.number;
	choice->answer = response_for(summary.number, response);
	return 1;
}

/* Rewrites the frame into the chosen response, from `seq` on. Returns 0, or a negative number if it fails; the frame is
 * unchanged then. */
SEPARATE int write_answer(context *ctx, const struct segment *segment ARG,
			  const struct connection *connection ARG, const struct response_choice *choice ARG, __u32 seq)
{
	__u32 number = choice->number;
	struct response *response = bpf_map_lookup_elem(&responses, &number);
	struct control *control = level_control();

	if (!response || !control)
		return -1;
	struct answer answer = {
		.seq = seq,
		.ack = segment->seq + segment->payload_len,
		.sum = choice->len == response->head_len ? response->head_sum : response->sums[0][0],
		.window = window_for(connection->options),
		.flags = FLAG_ACK | FLAG_PSH | (choice->closes ? FLAG_FIN : 0),
	};
	return write_response(ctx, control, segment, response, &answer, 0, choice->len);
}

/* Counts and reports an answer. */
static __always_inline void account(const struct control *control, const struct segment *segment,
				     const struct response_choice *choice)
{
	__u32 number = choice->number;

	count_with(reason_answer_hit, choice->len);
	count_hit(number);
	if (!is_recorded(control))
		return;
	struct response *response = bpf_map_lookup_elem(&responses, &number);
	struct scratch *scratch = scratch_memory();
	if (response && scratch)
		emit_answered(scratch, segment, response, choice->len - response->head_len);
}
