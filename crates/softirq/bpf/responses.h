/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Finds the stored response for a key, and writes it into the frame. */
#pragma once

#include "packet.h"
#include "request.h"

struct comparison {
	struct scratch *scratch;
	struct response *response;
};

static long compare_step(__u64 index, struct comparison *comparison)
{
	__u32 at = index * 8;
	if (at > KEY_MAX)
		return 1;
	__u64 differs = *(__u64 *)(comparison->response->key + at) ^ key_word(comparison->scratch, at);
	comparison->scratch->request.differs = differs;
	return differs != 0;
}

/* Whether the keys are equal; both are padded with zeros to whole words. */
static __always_inline int has_key(struct response *response, struct scratch *scratch, __u32 len)
{
	struct comparison comparison = { .scratch = scratch, .response = response };

	if (response->key_len != len)
		return 0;
	scratch->request.differs = 0;
	bpf_loop((len + 7) / 8, compare_step, &comparison, 0);
	return !scratch->request.differs;
}

#define NO_RESPONSE (~0u)

/* Slot number of the response, or NO_RESPONSE. */
static __always_inline __u32 number_for(struct scratch *scratch, __u32 key_len, __u64 hash)
{
	__u32 index = hash & constants.index_mask, number = 0;
	struct index_bucket *bucket = bpf_map_lookup_elem(&response_index, &index);
	if (!bucket)
		return NO_RESPONSE;
	for (int i = 0; i < INDEX_WAYS; i++) {
		/* Read once: user space may replace the entry, and its two halves belong together. The response was
		 * complete before its entry was written. */
		__u64 entry = *(volatile __u64 *)&bucket->entry[i];
		if (entry && entry >> 32 == hash >> 32) {
			number = entry;
			break;
		}
	}
	number--;
	struct response *response = bpf_map_lookup_elem(&responses, &number);
	return response && has_key(response, scratch, key_len) ? number : NO_RESPONSE;
}

/* A sum of words that start at an odd offset has its bytes swapped (RFC 1071 §2). */
static __always_inline __u32 at_offset(__u32 sum, __u32 offset)
{
	__u16 folded = fold(sum);
	return offset & 1 ? (__u16)(folded << 8 | folded >> 8) : folded;
}

static __always_inline void write_date(context *ctx, __u32 at, const struct date *date)
{
	OPAQUE(at);
	void *to = frame_begin(ctx) + (at & 0x7ff);

	if (to + DATE_LEN > frame_end(ctx)) {
		frame_store(ctx, at, date->text, DATE_LEN);
		return;
	}
	/* 29 bytes: the last word overlaps the third. */
	((__u64 *)to)[0] = ((const __u64 *)date->text)[0];
	((__u64 *)to)[1] = ((const __u64 *)date->text)[1];
	((__u64 *)to)[2] = ((const __u64 *)date->text)[2];
	*(__u64 *)(to + DATE_LEN - 8) = *(const __u64 *)(date->text + DATE_LEN - 8);
}

/* Writes the age in seconds over the field's value; returns the sum of the written bytes. */
static __always_inline __u32 write_age(context *ctx, __u32 at, __u32 offset, __u64 age_s)
{
	__u8 digits[8] = {};
	__u32 rest = age_s > 99999 ? 99999 : age_s;
#pragma unroll
	for (int i = AGE_LEN - 1; i >= 0; i--) {
		digits[i] = '0' + rest % 10;
		rest /= 10;
	}
	frame_store(ctx, at + offset, digits, AGE_LEN);
	return at_offset(words_of(digits, 2), offset);
}

/* The response's bytes from `from` on; 0 if the offset is out of range. */
static __always_inline const void *stored_bytes(const struct response *response, __u32 from)
{
	__u32 zero = 0, at = response->at + from;
	const void *bytes = bpf_map_lookup_elem(&response_store, &zero);

	OPAQUE(at);
	if (!bytes || at > constants.store_last)
		return 0;
	return bytes + at;
}

/* Rewrites the frame into a segment with `len` bytes of the response, from `from` on. The frame is unchanged if this
 * fails. */
static __always_inline int write_response(context *ctx, const struct control *control,
					  const struct segment *segment, const struct response *response,
					  struct answer *answer, __u32 from, __u32 len)
{
	__u32 at = segment->tcp_at + TCP_LEN + segment->reply_options_len;
	__u32 date_at = from ? 0 : response->date_at, age_at = from ? 0 : response->age_at;
	const void *bytes = stored_bytes(response, from);

	OPAQUE(len);
	if (!bytes || len == 0 || len > RESPONSE_MAX)
		return -1;
	if (frame_resize(ctx, segment->frame_len, at + len))
		return -1;
	frame_store(ctx, at, bytes, len);
	if (date_at) {
		const struct date *date = &control->dates[control->date_now & 1];
		write_date(ctx, at + date_at, date);
		answer->sum += at_offset(date->sum, date_at);
	}
	if (age_at) {
		__u64 age_ns = segment->now_ns - response->born_ns;
		/* The daemon's clock is finer, so the response may seem to have been generated in the future. */
		if ((__s64)age_ns < 0)
			age_ns = 0;
		answer->sum += write_age(ctx, at, age_at, age_ns / 1000000000);
	}
	answer->payload_len = len;
	return write_headers(ctx, segment, answer);
}
