/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Verifies the TCP checksum of segments of any length. Independent of the connection table. */
#pragma once

#include "memo.h"

/* Sum of a TCP header and its options; negative if the header is not linear. */
static __always_inline __s64 sum_of_header(context *ctx, const struct segment *segment)
{
	void *at = frame_begin(ctx) + (segment->tcp_at & 0x3f), *end = frame_end(ctx);
	__u32 left = segment->payload_at - segment->tcp_at;
	__u64 sum;

	if (at + TCP_LEN > end)
		return -1;
	sum = words_of(at, 5);
	at += TCP_LEN;
	/* Usually timestamps are the only options, and their values are in registers. */
	if (segment->has_timestamps) {
		sum += (__u64)bpf_htonl(TIMESTAMPS_BEGIN) + segment->tsval_be + segment->tsecr_be;
		at += TIMESTAMPS_LEN;
		left -= TIMESTAMPS_LEN;
	}
	for (int i = 0; i < 10 && left > TCP_LEN; i++, at += 4, left -= 4) {
		OPAQUE(end);
		if (at + 4 > end)
			return -1;
		sum += *(__u32 *)at;
	}
	return sum;
}

/* Maximum length that bpf_csum_diff accepts. */
#define SUM_CHUNK 512
#define SUM_CHUNKS_MAX (65536 / SUM_CHUNK + 1)

struct sum_cursor {
	context *ctx;
	struct scratch *scratch;
};

static long sum_step(__u64 index, struct sum_cursor *cursor)
{
	struct scratch *scratch = cursor->scratch;
	struct request *request = &scratch->request;
	__u32 len = request->len < SUM_CHUNK ? request->len : SUM_CHUNK;

	OPAQUE(len);
	if (len == 0 || len > SUM_CHUNK || frame_load(cursor->ctx, request->at, scratch->head, len))
		return 1;
	*(__u64 *)(scratch->head + (len & (HEAD_SIZE - 1))) = 0;
	request->at += len;
	request->len -= len;
	/* bpf_csum_diff takes multiples of four bytes; zeros follow. */
	len = (len + 3) & ~3;
	OPAQUE(len);
	if (len > SUM_CHUNK)
		return 1;
	request->hash = bpf_csum_diff(0, 0, (__be32 *)scratch->head, len, request->hash);
	return request->len == 0;
}

/* Sum of a long or non-linear segment; negative if it can't be read. */
SEPARATE __s64 sum_of_long(context *ctx, const struct segment *segment ARG)
{
	struct scratch *scratch = scratch_memory();
	struct sum_cursor cursor = { .ctx = ctx, .scratch = scratch };

	if (!scratch)
		return -1;
	scratch->request.at = segment->tcp_at;
	scratch->request.len = segment->payload_at - segment->tcp_at + segment->payload_len;
	scratch->request.hash = 0;
	bpf_loop(SUM_CHUNKS_MAX, sum_step, &cursor, 0);
	/* Bytes remain if a part could not be loaded. */
	return scratch->request.len ? -1 : (__s64)(__u32)scratch->request.hash;
}

/* Sum of the pseudo-header. */
static __always_inline __u64 pseudo_sum(const struct segment *segment)
{
	__u32 len = segment->payload_at - segment->tcp_at + segment->payload_len;
	__u64 sum = segment->is_v6 ? words_of(&segment->tuple, 8)
				   : (__u64)segment->tuple.client_be[3] + segment->tuple.local_be[3];
	return sum + bpf_htons(IPPROTO_TCP) + bpf_htons(len);
}

/* Whether the checksum may be a partial one, which XDP can't tell from the metadata. Drivers with native XDP do not
 * deliver packets with partial checksums; should one arrive all the same, it must not be dropped. */
static __always_inline int looks_partial(context *ctx, const struct segment *segment, __u64 pseudo)
{
#ifdef TIER_XDP
	__u16 check = 0;
	return !frame_load(ctx, segment->tcp_at + 16, &check, sizeof(check)) && check == fold(pseudo);
#else
	return 0;
#endif
}

/* Slow path for segments that are long or non-linear, or have a wrong checksum. */
SEPARATE int has_odd_sum(context *ctx, const struct segment *segment ARG)
{
	__s64 sum = sum_of_long(ctx, segment);
	__u64 pseudo = pseudo_sum(segment);

	return sum >= 0 && (fold(sum + pseudo) == 0xffff || looks_partial(ctx, segment, pseudo));
}

/* Whether the TCP checksum is right, if it is not verified yet. */
static __always_inline int has_right_sum(context *ctx, const struct control *control, struct segment *segment)
{
	__s64 payload = segment->payload_len ? sum_payload(ctx, control, segment) : 0, sum;

	if (payload >= 0) {
		sum = sum_of_header(ctx, segment);
		if (sum >= 0 && fold(sum + payload + pseudo_sum(segment)) == 0xffff)
			return 1;
	}
	return has_odd_sum(ctx, segment);
}
