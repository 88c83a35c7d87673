/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Request memos: the bytes of recent requests, and the responses to which they were resolved. Clients repeat their
 * requests, and the same bytes need not be parsed again. Each processor has its own memos, so there are no races. A
 * memo may refer to a response that is no longer published, so it is validated before use:
 *
 * - A response removed from the index has expires_ns 0, or its purge was counted (control->purges).
 * - A slot that was reused for another response has another id; if a new daemon happens to assign the same id, the
 *   key's hash differs. */
#pragma once

#include "responses.h"

#define MEMO_MAX 512
/* Words that are compared between two checks against the frame's end. */
#define STRIDE 4
#define MEMO_ENTRIES 1024
#define MEMO_SHIFT (64 - 10)

struct memo {
	/* The inputs of the result other than the request's bytes; 0 marks an empty memo. */
	__u64 terms;
	/* The local address. */
	__u64 local[2];
	/* Hash of the last request that did not match the memo in this entry: if that request is repeated next, it gets
	 * the entry. */
	__u64 candidate;
	/* Hash of the response's key. */
	__u64 hash;
	__u32 number;
	__u32 id;
	__u32 purges;
	__u16 is_head;
	__u16 closes;
	/* The request; its last word is padded with zeros. The margin is there because the verifier can't see that the
	 * request ends at MEMO_MAX. */
	__u64 words[MEMO_MAX / 8 + STRIDE];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MEMO_ENTRIES);
	__type(key, __u32);
	__type(value, struct memo);
} request_memos SEC(".maps");

/* The result of parsing and lookup. */
struct request_summary {
	__u64 hash;
	__u32 number;
	__u16 is_head;
	__u16 closes;
};

static __always_inline __u64 terms_of(const struct segment *segment, const struct control *control)
{
	/* Whether misses are reported does not affect the result. */
	return (__u64)(control->settings & ~SETTING_LEARN) << 32 | (__u32)segment->tuple.local_port_be << 16 | segment->payload_len;
}

/* Whether the memo's request had this address, port and settings. */
static __always_inline int has_terms(const struct memo *memo, const struct segment *segment,
				     const struct control *control)
{
	return memo->terms == terms_of(segment, control) && memo->local[0] == local_word(segment, 0) &&
	       memo->local[1] == local_word(segment, 1);
}

static __always_inline struct memo *memo_at(const struct segment *segment)
{
	__u32 index = segment->payload_hash >> MEMO_SHIFT;
	return bpf_map_lookup_elem(&request_memos, &index);
}

/* Reads the last one to seven bytes of the payload, padded with zeros. Always reads eight bytes, which may begin in the
 * header. */
static __always_inline int last_partial_word(context *ctx, const struct segment *segment, __u32 left, __u64 *word)
{
	__u32 from = (segment->payload_at + segment->payload_len - 8) & 0x3ff;
	OPAQUE(from);
	void *at = frame_begin(ctx) + from;

	if (at + 8 > frame_end(ctx))
		return -1;
	*word = *(__u64 *)at >> ((64 - 8 * left) & 63);
	return 0;
}

/* Makes the frame's first `len` bytes linear; XDP can't. */
static __always_inline long frame_pull(context *ctx, __u32 len)
{
#ifndef TIER_XDP
	if (frame_begin(ctx) + len > frame_end(ctx))
		return bpf_skb_pull_data(ctx, len);
#endif
	return 0;
}

struct payload_sums {
	__u64 hash;
	__u64 sum;
};

static __always_inline void add_word(struct payload_sums *sums, __u64 word, const __u32 *key)
{
	sums->sum += word;
	/* End-around carry. */
	if (sums->sum < word)
		sums->sum++;
	sums->hash += nh_of_word(word, key);
	/* Add word by word: of four at a time, the compiler would keep half on the stack. */
	OPAQUE(sums->hash);
}

/* Computes hash and checksum of the payload in one pass: sets the hash, and returns the checksum. Negative if the
 * payload is too long for a memo. */
SEPARATE __s64 sum_payload(context *ctx, const struct control *control ARG, struct segment *segment ARG)
{
	__u32 left = segment->payload_len;
	struct payload_sums sums;
	const __u32 *key;
	__u64 word;

	/* Pulling may move the frame, so pointers into it are computed afterwards. */
	if (left > MEMO_MAX || frame_pull(ctx, segment->payload_at + left))
		return -1;
	void *at = frame_begin(ctx) + (segment->payload_at & 0x7f), *end = frame_end(ctx);
	/* The local address is hashed, too, so that each address has its own memos. */
	key = control->hash_key.words + 2 * HASHED_WORDS_MAX;
	sums.hash = nh_of_word(local_word(segment, 0), key) + nh_of_word(local_word(segment, 1), key + 2);
	sums.sum = 0;
	key = control->hash_key.words;
	for (int i = 0; i < MEMO_MAX / 8 / STRIDE && left >= 8 * STRIDE; i++) {
		OPAQUE(end);
		if (at + 8 * STRIDE > end)
			return -1;
#pragma unroll
		for (int j = 0; j < STRIDE; j++)
			add_word(&sums, ((__u64 *)at)[j], key + 2 * j);
		at += 8 * STRIDE;
		key += 2 * STRIDE;
		left -= 8 * STRIDE;
	}
	for (int i = 1; i < STRIDE && left >= 8; i++, at += 8, key += 2, left -= 8) {
		OPAQUE(end);
		if (at + 8 > end)
			return -1;
		add_word(&sums, *(__u64 *)at, key);
	}
	if (left) {
		if (last_partial_word(ctx, segment, left, &word))
			return -1;
		add_word(&sums, word, key);
	}
	segment->payload_hash = mix_hash(sums.hash, &control->hash_key);
	return (sums.sum & 0xffffffff) + (sums.sum >> 32);
}

/* Whether the memo's request consists of the same bytes. */
static __always_inline int is_memo_of(context *ctx, const struct memo *memo, const struct segment *segment)
{
	void *at = frame_begin(ctx) + (segment->payload_at & 0x7f), *end = frame_end(ctx);
	const __u64 *words = memo->words;
	__u32 left = segment->payload_len;
	__u64 word = 0;

	for (int i = 0; i < MEMO_MAX / 8 / STRIDE && left >= 8 * STRIDE; i++) {
		OPAQUE(end);
		if (at + 8 * STRIDE > end)
			return 0;
#pragma unroll
		for (int j = 0; j < STRIDE; j++)
			if (((__u64 *)at)[j] != words[j])
				return 0;
		at += 8 * STRIDE;
		words += STRIDE;
		left -= 8 * STRIDE;
	}
	for (int i = 1; i < STRIDE && left >= 8; i++, at += 8, words++, left -= 8) {
		OPAQUE(end);
		if (at + 8 > end || *(__u64 *)at != *words)
			return 0;
	}
	/* The last word is stored padded with zeros. */
	return !left || (!last_partial_word(ctx, segment, left, &word) && word == *words);
}

/* The response to the segment's request, if there is a valid memo. */
static __always_inline struct response *recall_request(context *ctx, const struct control *control,
						       const struct segment *segment, struct request_summary *summary)
{
	struct memo *memo = memo_at(segment);

	if (!memo || !has_terms(memo, segment, control) || memo->purges != control->purges)
		return 0;
	__u32 number = memo->number;
	struct response *response = bpf_map_lookup_elem(&responses, &number);
	/* The bytes are compared last, which costs most. */
	if (!response || response->id != memo->id || response->hash != memo->hash ||
	    response->expires_ns <= segment->now_ns || !is_memo_of(ctx, memo, segment))
		return 0;
	summary->number = number;
	summary->is_head = memo->is_head;
	summary->closes = memo->closes;
	return response;
}

/* Stores a memo of the request in scratch. `purges` is the purge counter before the lookup. */
SEPARATE int store_memo(const struct segment *segment ARG, const struct request_summary *summary ARG, __u32 purges)
{
	struct control *control = level_control();
	struct scratch *scratch = scratch_memory();
	struct memo *memo = memo_at(segment);
	__u32 number = summary->number;
	struct response *response = bpf_map_lookup_elem(&responses, &number);

	if (!control || !scratch || !memo || !response || segment->payload_len > MEMO_MAX)
		return 0;
	/* Only a repeated request displaces a memo; one-off requests don't. */
	if (memo->candidate != segment->payload_hash) {
		memo->candidate = segment->payload_hash;
		return 0;
	}
	memo->terms = terms_of(segment, control);
	memo->local[0] = local_word(segment, 0);
	memo->local[1] = local_word(segment, 1);
	memo->hash = summary->hash;
	memo->number = number;
	memo->id = response->id;
	memo->purges = purges;
	memo->is_head = summary->is_head;
	memo->closes = summary->closes;
	for (__u32 i = 0; i < MEMO_MAX / 8 && i * 8 < segment->payload_len; i++)
		memo->words[i] = *(__u64 *)(scratch->head + 8 * i);
	return 1;
}
