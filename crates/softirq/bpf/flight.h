/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Flight: a response of several segments. All of them acknowledge the request except for its last byte, so that the
 * client's own retransmission timer runs until it has acknowledged the whole response; this side needs no timer.
 * Duplicate and partial acknowledgements trigger earlier retransmissions of lost segments (RFC 5681 §3.2, RFC 5827, RFC
 * 6582). Connections share the entries for loss recovery: if an entry is overwritten, the client's timer triggers the
 * retransmission. */
#pragma once

#include "buffered.h"
#include "parts.h"

/* Bytes of the request that stay unacknowledged during a flight. Every request is longer than this. */
#define WITHHELD 1

enum phase {
	PHASE_NONE,
	/* Fast retransmit: a segment was retransmitted after duplicate acknowledgements. */
	PHASE_FAST,
	/* The client's retransmission timer has fired. */
	PHASE_TIMER,
};

struct recovery {
	/* Identity of the flight: the tag of its connection, and the sequence number of its first byte. */
	__u32 tag;
	__u32 seq;
	/* Bytes of the response that the client has acknowledged. */
	__u16 acked;
	__u16 window;
	__u8 duplicates;
	__u8 phase;
	__u16 spare;
};

#define RECOVERY_ENTRIES 4096
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RECOVERY_ENTRIES);
	__type(key, __u32);
	__type(value, struct recovery);
} recoveries SEC(".maps");

static __always_inline int is_flight(const struct connection *connection)
{
	return connection->answer && connection->request_len == WITHHELD;
}

/* Number of bytes of the response in flight that the segment acknowledges, counting FIN. An older acknowledgement gives
 * a large number. */
static __always_inline __u32 acknowledged_part(const struct segment *segment,
					       const struct connection *connection)
{
	return segment->ack - acknowledged_from(connection);
}

static __always_inline __u32 in_flight(const struct connection *connection)
{
	return connection->snd_nxt - acknowledged_from(connection);
}

/* Whether the segment belongs to a flight that the client has not completely acknowledged. */
static __always_inline int is_of_flight(const struct segment *segment, const struct connection *connection)
{
	return is_flight(connection) && acknowledged_part(segment, connection) < in_flight(connection) &&
	       segment->seq - connection->rcv_nxt + REQUEST_MAX <= REQUEST_MAX + WINDOW;
}

/* Whether the client has the whole flight, but retransmits the withheld byte of its request because its acknowledgement
 * of the flight was lost. If so, everything that the client retransmits is acknowledged. */
static __always_inline int has_all_of_flight(const struct segment *segment, const struct connection *connection)
{
	return is_flight(connection) && segment->ack == connection->snd_nxt &&
	       connection->rcv_nxt - segment->seq - 1 < REQUEST_MAX;
}

/* Clears the recovery state of an earlier connection with the same port and the same sequence numbers. */
static __always_inline void reset_recovery(const struct segment *segment, const struct connection *connection)
{
	__u32 index = segment->hash & (RECOVERY_ENTRIES - 1);
	struct recovery *found = bpf_map_lookup_elem(&recoveries, &index);

	if (found && found->tag == connection->tag)
		found->tag = 0;
}

/* Starts the flight: updates the connection and sends the segments. NOT_SENT: nothing has changed. */
SEPARATE int begin_flight(context *ctx, const struct segment *segment ARG, struct connection *connection ARG,
			  const struct response_choice *choice ARG)
{
	__u32 rcv_nxt = connection->rcv_nxt, snd_nxt = connection->snd_nxt;
	struct parts parts = {
		.number = choice->number, .seq = snd_nxt,
		.ack = segment->seq + segment->payload_len - WITHHELD, .len = choice->len, .cut = choice->cut,
		.window = window_for(connection->options), .count = choice->parts, .closes = choice->closes,
	};
	int verdict;

	reset_recovery(segment, connection);
	/* Recorded before sending, since the client's acknowledgement may arrive immediately on another processor. */
	set_in_flight(connection, segment, choice, WITHHELD);
	verdict = send_parts(ctx, segment, &parts);
	if (verdict == NOT_SENT) {
		connection->answer = 0;
		connection->rcv_nxt = rcv_nxt;
		connection->snd_nxt = snd_nxt;
		connection->state = STATE_OPEN;
	}
	return verdict;
}

/* Retransmits up to `most` segments that the client lacks. NOT_SENT: the response is no longer stored. */
SEPARATE int send_again(context *ctx, const struct segment *segment ARG, const struct connection *connection ARG,
			__u32 most)
{
	struct control *control = level_control();
	__u32 all;
	struct parts parts = {
		.number = in_flight_number(connection), .seq = acknowledged_from(connection), .ack = connection->rcv_nxt - WITHHELD,
		.len = connection->answer_len, .window = window_for(connection->options),
		.closes = connection->state == STATE_CLOSING,
	};
	int verdict;

	if (!control || !is_still_stored(connection))
		return NOT_SENT;
	parts.cut = cut_for(control, segment, connection);
	all = parts_of(parts.len, parts.cut);
	/* The segment size has changed since the flight began, since an interface with a smaller MTU was added. */
	if (all > PARTS_MAX)
		return NOT_SENT;
	parts.first = acknowledged_part(segment, connection) / parts.cut;
	/* The client has everything except the FIN. */
	if (parts.first >= all)
		parts.first = all - 1;
	parts.count = most < all - parts.first ? most : all - parts.first;
	/* A single segment can always be sent. */
	if (!can_send(ctx, parts.count))
		parts.count = 1;
	count(reason_answer_again);
	verdict = send_parts(ctx, segment, &parts);
	return verdict == NOT_SENT ? VERDICT_DROP : verdict;
}

/* Recovery state of the flight; 0 if the map has no such entry. */
static __always_inline struct recovery *recovery_of(const struct segment *segment,
						    const struct connection *connection)
{
	__u32 index = segment->hash & (RECOVERY_ENTRIES - 1), seq = acknowledged_from(connection);
	struct recovery *found = bpf_map_lookup_elem(&recoveries, &index);

	if (found && (found->tag != connection->tag || found->seq != seq)) {
		*(__u64 *)&found->acked = 0;
		/* Another connection has used the entry in between. The client's progress so far counts at most
		 * once. */
		if (connection->options & OPTION_PARTS)
			found->acked = acknowledged_part(segment, connection);
		found->tag = connection->tag;
		found->seq = seq;
	}
	return found;
}

/* Whether the flight may be retransmitted once more without progress, triggered by a segment that costs its client less
 * than a request. */
static __always_inline int has_recovery_time(struct connection *connection)
{
	if ((connection->options & OPTION_PARTS) == OPTION_PARTS)
		return 0;
	connection->options += OPTION_PARTS_ONE;
	return 1;
}

/* Number of segments to retransmit; negative: too many attempts. */
#define FLIGHT_ENOUGH (-1)

/* Processes a retransmission of the request, which means that the client's timer has fired. */
static __always_inline int on_flight_timer(struct recovery *known, struct connection *connection, __u32 part,
					   __u32 cut)
{
	if (part / cut > known->acked / cut)
		connection->options &= ~OPTION_PARTS;
	if (!has_recovery_time(connection))
		return FLIGHT_ENOUGH;
	/* Older acknowledgements that arrive late are not progress. */
	if (part > known->acked)
		known->acked = part;
	known->duplicates = 0;
	known->phase = PHASE_TIMER;
	return 2;
}

/* Whether the segment has options besides timestamps, which nearly always are SACK blocks. */
static __always_inline int has_more_options(const struct segment *segment)
{
	__u32 timestamps_len = segment->has_timestamps ? TIMESTAMPS_LEN : 0;
	return segment->payload_at != segment->tcp_at + TCP_LEN + timestamps_len;
}

/* Processes a pure acknowledgement within the flight. */
static __always_inline int on_ack(struct recovery *known, const struct segment *segment,
					 struct connection *connection, __u32 part, __u32 cut)
{
	__u32 before = known->acked, outstanding, threshold;

	if (part < before)
		return 0;
	if (part > before) {
		known->acked = part;
		known->window = segment->window;
		known->duplicates = 0;
		/* The common case first: no loss. */
		if ((known->phase == PHASE_NONE && !(connection->options & OPTION_PARTS)) || part / cut == before / cut)
			return 0;
		connection->options &= ~OPTION_PARTS;
		return known->phase == PHASE_NONE ? 0 : known->phase == PHASE_FAST ? 1 : 2;
	}
	/* Without SACK, a window update looks like a duplicate acknowledgement (RFC 5681 §2). */
	if (!has_more_options(segment) && segment->window != known->window) {
		known->window = segment->window;
		return 0;
	}
	if (known->duplicates < 255)
		known->duplicates++;
	/* Early retransmit: a small flight produces too few duplicates for the threshold of three (RFC 5827). */
	outstanding = parts_of(connection->answer_len, cut) - part / cut;
	threshold = outstanding > 4 ? 3 : outstanding > 2 ? outstanding - 1 : 1;
	if (known->phase != PHASE_NONE || known->duplicates != threshold)
		return 0;
	if (!has_recovery_time(connection))
		return FLIGHT_ENOUGH;
	known->phase = PHASE_FAST;
	return 1;
}

/* Decides on a segment of a flight that is not completely acknowledged. Returns the number of segments to retransmit,
 * FLIGHT_ENOUGH, or 0 with the reason in `reason`. */
static __always_inline int flight_action(context *ctx, const struct segment *segment, struct connection *connection,
					 enum reason *reason)
{
	struct control *control = level_control();
	struct recovery *known = recovery_of(segment, connection);
	__u32 part = acknowledged_part(segment, connection);
	__s32 before = connection->rcv_nxt - segment->seq;
	__s32 len = segment->payload_len, fin = segment->flags & FLAG_FIN;

	*reason = reason_tcp_ack;
	if (!control || !known)
		return 0;
	__u32 cut = cut_for(control, segment, connection);
	if (!len && !fin)
		return on_ack(known, segment, connection, part, cut);
	/* Data beyond the request in flight belongs to the next request. */
	if (len + fin > before)
		buffer_data(ctx, segment, connection, before > 0 ? before : 0);
	if (len && before >= 1 && before <= len)
		return on_flight_timer(known, connection, part, cut);
	*reason = len && before > len ? reason_tcp_old : len ? reason_drop_pipelined : reason_tcp_fin;
	return 0;
}
