/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* How far the exchange of a connection is that the kernel has: where its request ends, and where the response.
 * Only who knows that of every exchange since the handover can tell a request from a body that looks like one,
 * so what is not understood once is not followed any more. It is kept in fields that such a connection
 * does not need otherwise:
 *
 *   rcv_nxt, request_len   the last request, and of its length the lower bits
 *   snd_nxt                where its response begins
 *   answer                 where that ends, if it is known; or the next chunk's header
 *   answer_len             the marks below
 *
 * What comes writes it before the request goes up, what goes out (outgoing.h) before the response leaves. */
#pragma once

#include "connections.h"
#include "framing.h"

/* The end of its request is known. */
#define FOLLOWED 1
/* It was a HEAD. */
#define FOLLOWED_HEAD 2
/* The end of the response is known. */
#define FOLLOWED_END 4
/* It comes in chunks, and where the next begins is known. */
#define FOLLOWED_CHUNKS 8
/* So many more requests are looked at. */
#define FOLLOWED_PATIENCE 0xff0
#define FOLLOWED_LOOK 0x10
#define FOLLOWED_LOOKS (48 * FOLLOWED_LOOK)
/* Upper bits of the request's length. */
#define FOLLOWED_LENGTH 0xf000

static __always_inline int is_followed(const struct connection *connection, __u32 mark)
{
	return connection->answer_len & mark;
}

/* It stays the kernel's for as long as it lives. */
static __always_inline void unfollow(struct connection *connection)
{
	connection->answer_len = 0;
}

static __always_inline __u32 request_end(const struct connection *connection)
{
	return connection->rcv_nxt + (connection->request_len | (connection->answer_len & FOLLOWED_LENGTH));
}

/* Requests that were followed, by each processor: that costs a tenth of a request, with its response. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} looks SEC(".maps");

/* From so many on, one connection of eight is followed; those tell when it is worth it again. */
#define LOOKS_MAX 512
/* So many are paid for by a connection that is taken back. */
#define LOOKS_WON 16

static __always_inline __u32 *looks_memory(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&looks, &zero);
}

static __always_inline int is_worth_following(const struct segment *segment)
{
	__u32 *count = looks_memory();
	return count && (*count < LOOKS_MAX || !(segment->hash >> 40 & 7));
}

static __always_inline void count_look(void)
{
	__u32 *count = looks_memory();
	if (count && *count < LOOKS_MAX)
		*count += 1;
}

static __always_inline void count_taken_back(void)
{
	__u32 *count = looks_memory();
	if (count)
		*count -= *count < LOOKS_WON ? *count : LOOKS_WON;
}

/* The request's first bytes, in scratch; how many. */
static __always_inline __u32 load_start(context *ctx, const struct segment *segment, struct scratch *scratch)
{
	__u32 len = segment->payload_len < REQUEST_MAX ? segment->payload_len : REQUEST_MAX;

	OPAQUE(len);
	if (len == 0 || len > REQUEST_MAX || frame_load(ctx, segment->payload_at, scratch->head, len))
		return 0;
	*(__u64 *)(scratch->head + (len & (HEAD_SIZE - 1))) = 0;
	return len;
}

/* What is known of a request that goes up for this reason: its length << 8 | marks; 0: nothing. */
SEPARATE __u32 framing_of_request(context *ctx, const struct segment *segment ARG, __u32 reason)
{
	struct scratch *scratch = scratch_memory();
	__u32 len = segment->payload_len, at;

	if (!scratch)
		return 0;
	switch (reason) {
	case reason_up_miss:
	case reason_up_expired:
	case reason_up_large:
	case reason_up_window:
	case reason_up_room:
		/* All of it was read. */
		scratch->head[0] = 0;
		if (frame_load(ctx, segment->payload_at, scratch->head, 1))
			return 0;
		break;
	case reason_up_field:
	case reason_up_cookie:
	case reason_up_method:
	case reason_up_long:
		at = load_start(ctx, segment, scratch);
		if (reason != reason_up_field && reason != reason_up_cookie && !is_post(scratch))
			return 0;
		len = length_of_request(scratch, at, len);
		break;
	default:
		return 0;
	}
	return len && len <= 0xffff ? len << 8 | FOLLOWED | (scratch->head[0] == 'H' ? FOLLOWED_HEAD : 0) : 0;
}

static __always_inline void note_request(struct connection *connection, __u32 framing, __u32 patience)
{
	__u32 len = framing >> 8;

	connection->request_len = len & 0xfff;
	connection->answer_len = (framing & 0xff) | patience | (len & FOLLOWED_LENGTH);
}

/* Whether what is handed up may be answered here again. */
static __always_inline int may_come_back(const struct control *control)
{
	return !(control->settings & (SETTING_KEEP_TIME_WAIT | SETTING_STAY_UP));
}

/* A request of a connection of ours goes up for this reason. Not 0 if it is followed. */
static __always_inline int begin_following(context *ctx, const struct control *control,
					   const struct segment *segment, struct connection *connection,
					   __u32 reason)
{
	__u32 framing = 0;

	if (may_come_back(control) &&
	    (connection->socket == SOCKET_KEPT || is_worth_following(segment)))
		framing = framing_of_request(ctx, segment, reason);
	connection->answer = 0;
	connection->answer_len = 0;
	if (framing) {
		count_look();
		note_request(connection, framing, FOLLOWED_LOOKS);
	}
	return framing;
}

/* The kernel gets the next request, too, for this reason. */
static __always_inline void follow_on(context *ctx, const struct segment *segment, struct connection *connection,
				      __u32 reason)
{
	__u32 patience = connection->answer_len & FOLLOWED_PATIENCE;
	__u32 framing = framing_of_request(ctx, segment, reason);

	patience -= patience ? FOLLOWED_LOOK : 0;
	if (!framing || !patience) {
		unfollow(connection);
		return;
	}
	connection->rcv_nxt = segment->seq;
	connection->snd_nxt = segment->ack;
	note_request(connection, framing, patience);
}
