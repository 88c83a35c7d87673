/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Buffered segments: pipelined requests, or a FIN, that a client sends before it has acknowledged our response. They
 * are buffered here without being acknowledged. When the acknowledgement of the response arrives, the frame of that
 * acknowledgement is rewritten into the buffered segment. So the client's retransmission timer seldom fires, but keeps
 * running while anything may be lost. Connections share the buffers: if a buffer is overwritten, the client's
 * retransmission is processed instead. */
#pragma once

#include "connections.h"
#include "checksum.h"

#define BUFFER_ENTRIES 128
#define BUFFERED_MAX 1400
/* The rewrite must lengthen the frame: only then does the kernel verify the frame's checksum again. */
#define BUFFERED_MIN 8

/* Clients may split a retransmission differently, but into no shorter segments (Linux: tcp_min_snd_mss). A shorter
 * segment is not accepted as a repeated request: it would cost the client less than a request, and have the same
 * effect. */
#define REPEAT_MIN 48

struct segment_buffer {
	struct tuple tuple;
	/* Lock of the buffer. A processor that does not get it does not buffer its segment. */
	__u32 busy;
	/* Sequence number of the first buffered byte. */
	__u32 seq;
	__u16 len;
	/* Length of the first buffered segment. */
	__u16 first_len;
	__u8 has_fin;
	__u8 spare[3];
	/* The length is twice the maximum, since the verifier can't see that the data ends at BUFFERED_MAX. */
	__u8 bytes[2 * BUFFERED_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUFFER_ENTRIES);
	__type(key, __u32);
	__type(value, struct segment_buffer);
} segment_buffers SEC(".maps");

/* Locks the connection's buffer, which the caller must release; 0 if another processor holds the lock. */
static __always_inline struct segment_buffer *borrow_buffer(const struct segment *segment)
{
	__u32 index = segment->hash & (BUFFER_ENTRIES - 1);
	struct segment_buffer *buffer = bpf_map_lookup_elem(&segment_buffers, &index);
	return buffer && __sync_val_compare_and_swap(&buffer->busy, 0, 1) == 0 ? buffer : 0;
}

static __always_inline void release_buffer(struct segment_buffer *buffer)
{
	__sync_val_compare_and_swap(&buffer->busy, 1, 0);
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
static __always_inline int is_buffer_of(const struct segment_buffer *buffer, const struct segment *segment,
				      const struct connection *connection)
{
	return buffer->seq == connection->rcv_nxt && is_same_tuple(&buffer->tuple, &segment->tuple);
}

static __always_inline int buffer_request(context *ctx, const struct segment *segment, struct segment_buffer *buffer,
					  __u32 skip)
{
	__u32 at = buffer->len, len = segment->payload_len - skip;

	/* No data follows a FIN. */
	if (buffer->has_fin || at + len > BUFFERED_MAX)
		return -1;
	if (len) {
		OPAQUE(at);
		OPAQUE(len);
		if (at > BUFFERED_MAX || len == 0 || len > BUFFERED_MAX ||
		    frame_load(ctx, segment->payload_at + skip, buffer->bytes + at, len))
			return -1;
	}
	if (!at)
		buffer->first_len = len;
	buffer->len += len;
	buffer->has_fin = segment->flags & FLAG_FIN;
	return 0;
}

/* Buffers the segment from its byte `skip` on, if these bytes are the next data of the connection, or continue the
 * buffered data. Returns 0 on success. */
SEPARATE int buffer_data(context *ctx, const struct segment *segment ARG,
		  const struct connection *connection ARG, __u32 skip)
{
	struct segment_buffer *buffer = borrow_buffer(segment);
	__u32 seq = segment->seq + skip;
	int failed = -1;

	if (!buffer)
		return -1;
	/* The connection's next data replaces the buffer's content, which may belong to another connection. */
	if (seq == connection->rcv_nxt) {
		buffer->tuple = segment->tuple;
		buffer->seq = seq;
		buffer->len = buffer->has_fin = 0;
	}
	if (is_buffer_of(buffer, segment, connection) && buffer->seq + buffer->len == seq)
		failed = buffer_request(ctx, segment, buffer, skip);
	release_buffer(buffer);
	return failed;
}

/* Overwrites the frame's headers, except for timestamps and the TCP checksum. */
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

/* Rewrites the frame into the segment that `segment` describes: first its data, then its headers. */
static __always_inline int write_buffered(context *ctx, const struct segment *segment, struct segment_buffer *buffer,
				      __u32 old_len)
{
	__u32 len = buffer->len;
	__u16 check;
	__s64 sum;

	OPAQUE(len);
	if (len == 0 || len > BUFFERED_MAX || frame_resize(ctx, old_len, segment->frame_len) ||
	    frame_store(ctx, segment->payload_at, buffer->bytes, len) || write_buffered_headers(ctx, segment))
		return -1;
	/* A partial checksum covers the pseudo-header only. */
	check = fold(pseudo_sum(segment));
	if (segment->summed != CHECKSUM_PARTIAL) {
		sum = sum_of_long(ctx, segment);
		if (sum < 0)
			return -1;
		check = ~fold(sum + check);
	}
	return frame_store(ctx, segment->tcp_at + 16, &check, sizeof(check));
}

/* Rewrites a segment that acknowledges all our data into the buffered segment. Returns 1; 0 if nothing is buffered; a
 * negative number if the frame is damaged, so that the client must retransmit the buffered data. */
SEPARATE int take_buffered(context *ctx, struct segment *segment ARG, const struct connection *connection ARG)
{
	struct segment_buffer *buffer = borrow_buffer(segment);
	int result = 0;

	if (!buffer)
		return 0;
	if (is_buffer_of(buffer, segment, connection) && (buffer->len >= BUFFERED_MIN || (!buffer->len && buffer->has_fin))) {
		__u32 old_len = segment->frame_len;

		segment->seq = buffer->seq;
		segment->flags = FLAG_ACK | (buffer->len ? FLAG_PSH : 0) | (buffer->has_fin ? FLAG_FIN : 0);
		segment->payload_len = buffer->len;
		/* Data overwrites options other than timestamps. */
		segment->payload_at = segment->tcp_at + TCP_LEN + (segment->has_timestamps ? TIMESTAMPS_LEN : 0);
		/* The memo hash was computed over the old payload. */
		segment->payload_hash = 0;
		if (buffer->len)
			segment->frame_len = segment->payload_at + buffer->len;
		segment->is_pieced = buffer->first_len < buffer->len && buffer->first_len < REPEAT_MIN;
		result = buffer->len && write_buffered(ctx, segment, buffer, old_len) ? -1 : 1;
		buffer->len = buffer->has_fin = 0;
	}
	release_buffer(buffer);
	return result;
}
