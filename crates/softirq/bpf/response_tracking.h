/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Response tracking: records the progress of the exchange on a kernel connection, that is, where the request ends and
 * where its response ends. A request can be distinguished from a body that looks like one only if this is known of
 * every exchange since the migration; after one message that can't be parsed, tracking therefore stops for good. The
 * state is stored in fields that such a connection does not use otherwise:
 *
 *   rcv_nxt, request_len   start of the last request, and the lower bits of its length
 *   snd_nxt                start of its response
 *   answer                 end of the response, if known; or the header of the next chunk
 *   answer_len             the marks below
 *
 * Ingress writes these fields before it passes a request, and egress (egress.h) before the response leaves. */
#pragma once

#include "connections.h"
#include "framing.h"

/* The end of the request is known. */
#define FOLLOWED 1
/* The request is a HEAD. */
#define FOLLOWED_HEAD 2
/* The end of the response is known. */
#define FOLLOWED_END 4
/* The response is chunked, and the start of the next chunk is known. */
#define FOLLOWED_CHUNKS 8
/* Number of further requests that will be tracked. */
#define FOLLOWED_PATIENCE 0xff0
#define FOLLOWED_LOOK 0x10
#define FOLLOWED_LOOKS (48 * FOLLOWED_LOOK)
/* Upper bits of the request's length. */
#define FOLLOWED_LENGTH 0xf000

static __always_inline int is_tracked(const struct connection *connection, __u32 mark)
{
	return connection->answer_len & mark;
}

/* Stops tracking; the connection stays with the kernel until it ends. */
static __always_inline void stop_tracking(struct connection *connection)
{
	connection->answer_len = 0;
}

static __always_inline __u32 request_end(const struct connection *connection)
{
	return connection->rcv_nxt + (connection->request_len | (connection->answer_len & FOLLOWED_LENGTH));
}

/* Number of tracked requests, per processor: tracking a request and its response costs a tenth of a request. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} trackings SEC(".maps");

/* Beyond this number, only one connection in eight is tracked; these show whether tracking pays off again. */
#define LOOKS_MAX 512
/* Number of tracked requests for which one reclaimed connection compensates. */
#define LOOKS_WON 16

static __always_inline __u32 *tracking_memory(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&trackings, &zero);
}

static __always_inline int is_worth_tracking(const struct segment *segment)
{
	__u32 *count = tracking_memory();
	return count && (*count < LOOKS_MAX || !(segment->hash >> 40 & 7));
}

static __always_inline void count_tracking(void)
{
	__u32 *count = tracking_memory();
	if (count && *count < LOOKS_MAX)
		*count += 1;
}

static __always_inline void count_reclaimed(void)
{
	__u32 *count = tracking_memory();
	if (count)
		*count -= *count < LOOKS_WON ? *count : LOOKS_WON;
}

/* Loads the start of the request into scratch. Returns its length. */
static __always_inline __u32 load_start(context *ctx, const struct segment *segment, struct scratch *scratch)
{
	__u32 len = segment->payload_len < REQUEST_MAX ? segment->payload_len : REQUEST_MAX;

	OPAQUE(len);
	if (len == 0 || len > REQUEST_MAX || frame_load(ctx, segment->payload_at, scratch->head, len))
		return 0;
	/* The parser reads up to eight bytes beyond the end. */
	*(__u64 *)(scratch->head + (len & (HEAD_SIZE - 1))) = 0;
	return len;
}

/* Framing of a request that is punted for this reason: (its length) << 8
 * marks; 0 if unknown. */
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
		/* The parser has consumed the whole segment as one request without a body, so only its method is
		 * unknown. */
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
	/* The connection stores 16 bits of the length. */
	return len && len <= 0xffff ? len << 8 | FOLLOWED | (scratch->head[0] == 'H' ? FOLLOWED_HEAD : 0) : 0;
}

static __always_inline void record_request(struct connection *connection, __u32 framing, __u32 patience)
{
	__u32 len = framing >> 8;

	/* The lower 12 bits; the upper four are among the marks. */
	connection->request_len = len & 0xfff;
	connection->answer_len = (framing & 0xff) | patience | (len & FOLLOWED_LENGTH);
}

/* Whether migrated connections may be reclaimed. */
static __always_inline int may_reclaim(const struct control *control)
{
	return !(control->settings & (SETTING_KEEP_TIME_WAIT | SETTING_STAY_UP));
}

/* Starts tracking when a request of a live connection is punted for this reason. Returns nonzero if the request is
 * tracked. */
static __always_inline int start_tracking(context *ctx, const struct control *control,
					   const struct segment *segment, struct connection *connection,
					   __u32 reason)
{
	__u32 framing = 0;

	/* Without tracking, a new socket would replace the parked one. */
	if (may_reclaim(control) &&
	    (connection->socket == SOCKET_KEPT || is_worth_tracking(segment)))
		framing = framing_of_request(ctx, segment, reason);
	connection->answer = 0;
	connection->answer_len = 0;
	if (framing) {
		count_tracking();
		record_request(connection, framing, FOLLOWED_LOOKS);
	}
	return framing;
}

/* Continues tracking when the next request, too, is left to the kernel, for this reason. */
static __always_inline void track_segment(context *ctx, const struct segment *segment, struct connection *connection,
				      __u32 reason)
{
	__u32 patience = connection->answer_len & FOLLOWED_PATIENCE;
	__u32 framing = framing_of_request(ctx, segment, reason);

	patience -= patience ? FOLLOWED_LOOK : 0;
	if (!framing || !patience) {
		stop_tracking(connection);
		return;
	}
	connection->rcv_nxt = segment->seq;
	connection->snd_nxt = segment->ack;
	record_request(connection, framing, patience);
}
