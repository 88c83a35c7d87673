/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Buffered segments: pipelined requests, or a FIN, that a client sends before it has acknowledged our response. They
 * are buffered here unacknowledged. The acknowledgement of the response is then rewritten into the buffered segment,
 * so that the client's retransmission timer need not fire, but still runs as long as anything may be lost.
 * Connections share the buffers: if one is overwritten, the client's retransmission is processed instead. */
#pragma once

#include "connections.h"
#include "checksum.h"

#define HELD_ENTRIES 128
#define HELD_MAX 1400
/* The frame that is rewritten must become longer: only then does the kernel verify its checksum again. */
#define HELD_MIN 8

/* Clients may cut a retransmission differently, but no shorter (Linux: tcp_min_snd_mss). A shorter segment is not
 * accepted as a request: it would cost less than a request, and trigger as much. */
#define REPEAT_MIN 48

struct held {
	struct tuple tuple;
	/* Lock: one processor at a time; the others do not buffer. */
	__u32 busy;
	/* Sequence number of the first byte. */
	__u32 seq;
	__u16 len;
	/* Length of the first piece. */
	__u16 first_len;
	__u8 has_fin;
	__u8 spare[3];
	/* Twice the maximum, so that the verifier need not see that pieces end at HELD_MAX. */
	__u8 bytes[2 * HELD_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HELD_ENTRIES);
	__type(key, __u32);
	__type(value, struct held);
} segment_buffers SEC(".maps");

/* Locks the connection's buffer, which must be released; 0 if another processor has it. */
static __always_inline struct held *borrow_buffer(const struct segment *segment)
{
	__u32 index = segment->hash & (HELD_ENTRIES - 1);
	struct held *held = bpf_map_lookup_elem(&segment_buffers, &index);
	return held && __sync_val_compare_and_swap(&held->busy, 0, 1) == 0 ? held : 0;
}

static __always_inline void release_buffer(struct held *held)
{
	__sync_val_compare_and_swap(&held->busy, 1, 0);
}

static __always_inline int is_same_tuple(const struct tuple *a, const struct tuple *b)
{
	const __u64 *left = (const __u64 *)a, *right = (const __u64 *)b;
	__u64 differs = (a->client_port_be ^ b->client_port_be) | (a->local_port_be ^ b->local_port_be);
#pragma unroll
	for (int i = 0; i < 4; i++)
		differs |= left[i] ^ right[i];
	return !differs;
}

/* Whether the buffer holds the next data of this connection. */
static __always_inline int is_buffer_of(const struct held *held, const struct segment *segment,
				      const struct connection *connection)
{
	return held->seq == connection->rcv_nxt && is_same_tuple(&held->tuple, &segment->tuple);
}

static __always_inline int buffer_request(context *ctx, const struct segment *segment, struct held *held, __u32 skip)
{
	__u32 at = held->len, len = segment->payload_len - skip;

	/* No data follows a FIN. */
	if (held->has_fin || at + len > HELD_MAX)
		return -1;
	if (len) {
		OPAQUE(at);
		OPAQUE(len);
		if (at > HELD_MAX || len == 0 || len > HELD_MAX ||
		    frame_load(ctx, segment->payload_at + skip, held->bytes + at, len))
			return -1;
	}
	if (!at)
		held->first_len = len;
	held->len += len;
	held->has_fin = segment->flags & FLAG_FIN;
	return 0;
}

/* Buffers the segment from its byte `skip` on, if that is the next data, or continues the buffered data: 0 on
 * success. */
SEPARATE int hold(context *ctx, const struct segment *segment ARG,
		  const struct connection *connection ARG, __u32 skip)
{
	struct held *held = borrow_buffer(segment);
	__u32 seq = segment->seq + skip;
	int failed = -1;

	if (!held)
		return -1;
	/* The next data of a connection replaces the buffer's content, possibly of another connection. */
	if (seq == connection->rcv_nxt) {
		held->tuple = segment->tuple;
		held->seq = seq;
		held->len = held->has_fin = 0;
	}
	if (is_buffer_of(held, segment, connection) && held->seq + held->len == seq)
		failed = buffer_request(ctx, segment, held, skip);
	release_buffer(held);
	return failed;
}

/* Overwrites the headers of the frame, except the TCP checksum. Timestamps stay. */
static __always_inline int write_buffered_headers(context *ctx, const struct segment *segment)
{
	void *begin = frame_begin(ctx), *end = frame_end(ctx);
	struct tcphdr *tcp = begin + V4_TCP_AT;
	__u16 header_len = segment->payload_at - segment->tcp_at, tcp_len = header_len + segment->payload_len;

	if (begin + V4_TCP_AT + TCP_LEN > end)
		return -1;
	if (!segment->is_v6) {
		struct iphdr *ip = begin + ETH_HLEN;
		ip->tot_len = bpf_htons(20 + tcp_len);
		ip->check = 0;
		ip->check = ~fold(words_of(ip, 5));
	} else {
		struct ipv6hdr *ip = begin + ETH_HLEN;
		tcp = begin + V6_TCP_AT;
		if (begin + V6_TCP_AT + TCP_LEN > end)
			return -1;
		ip->payload_len = bpf_htons(tcp_len);
	}
	tcp->seq = bpf_htonl(segment->seq);
	/* Length in words, in the upper half of the byte. */
	((__u8 *)tcp)[12] = header_len << 2;
	((__u8 *)tcp)[13] = segment->flags;
	tcp->check = 0;
	tcp->urg_ptr = 0;
	return 0;
}

/* Rewrites the frame into the described segment: first its data, then its headers. */
static __always_inline int write_buffered(context *ctx, const struct segment *segment, struct held *held,
				      __u32 old_len)
{
	__u32 len = held->len;
	__u16 check;
	__s64 sum;

	OPAQUE(len);
	if (len == 0 || len > HELD_MAX || frame_resize(ctx, old_len, segment->frame_len) ||
	    frame_store(ctx, segment->payload_at, held->bytes, len) || write_buffered_headers(ctx, segment))
		return -1;
	/* A partial checksum is that of the pseudo-header only. */
	check = fold(pseudo_sum(segment));
	if (segment->summed != CHECKSUM_PARTIAL) {
		sum = sum_of_long(ctx, segment);
		if (sum < 0)
			return -1;
		check = ~fold(sum + check);
	}
	return frame_store(ctx, segment->tcp_at + 16, &check, sizeof(check));
}

/* Rewrites a segment that acknowledges all our data into the buffered one: 1. 0 if nothing is buffered; negative:
 * the frame is damaged, and the client retransmits the buffered data. */
SEPARATE int take_held(context *ctx, struct segment *segment ARG, const struct connection *connection ARG)
{
	struct held *held = borrow_buffer(segment);
	int taken = 0;

	if (!held)
		return 0;
	if (is_buffer_of(held, segment, connection) && (held->len >= HELD_MIN || (!held->len && held->has_fin))) {
		__u32 old_len = segment->frame_len;

		segment->seq = held->seq;
		segment->flags = FLAG_ACK | (held->len ? FLAG_PSH : 0) | (held->has_fin ? FLAG_FIN : 0);
		segment->payload_len = held->len;
		/* Data overwrites options other than timestamps. */
		segment->payload_at = segment->tcp_at + TCP_LEN + (segment->has_timestamps ? TIMESTAMPS_LEN : 0);
		/* The memo hash was computed over the old payload. */
		segment->payload_hash = 0;
		if (held->len)
			segment->frame_len = segment->payload_at + held->len;
		segment->is_pieced = held->first_len < held->len && held->first_len < REPEAT_MIN;
		taken = held->len && write_buffered(ctx, segment, held, old_len) ? -1 : 1;
		held->len = held->has_fin = 0;
	}
	release_buffer(held);
	return taken;
}
