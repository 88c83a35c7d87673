/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Message framing (RFC 9112 §6): parses heads and chunks line by line, in scratch memory, to find the length of a
 * message. Gives up on unusual syntax. Independent of the connection table. */
#pragma once

#include "request.h"

/* Properties of a head (request.seen). */
#define HEAD_ENDS 1
#define HEAD_LENGTH 2
#define HEAD_CHUNKED 4
#define HEAD_ODD 8

static __always_inline __u64 lower_word(const struct scratch *scratch, __u32 at)
{
	return head_word(scratch, at) | ONES * 0x20;
}

#define BYTES(count) (~0ull >> (64 - 8 * (count)))

/* Whether the line is "Connection: keep-alive" exactly. */
static __always_inline int is_keep_alive(const struct scratch *scratch, __u32 at, __u32 to)
{
	return to - at == 22 && lower_word(scratch, at + 8) == WORD("on: keep") &&
	       (lower_word(scratch, at + 16) & BYTES(6)) == WORD("-alive");
}

#define LENGTH_DIGITS_MAX 9

static __always_inline void parse_length_field(struct scratch *scratch, __u32 at, __u32 to)
{
	struct request *request = &scratch->request;
	__u64 length = 0;

	/* Duplicate lengths are a sign of request smuggling (RFC 9112 §6.3). */
	if (to <= at || to - at > LENGTH_DIGITS_MAX || request->seen & HEAD_LENGTH) {
		request->seen |= HEAD_ODD;
		return;
	}
	for (int i = 0; i < LENGTH_DIGITS_MAX && at < to; i++, at++) {
		__u8 digit = scratch->head[at & (HEAD_SIZE - 1)] - '0';
		if (digit > 9)
			request->seen |= HEAD_ODD;
		length = length * 10 + digit;
	}
	request->seen |= HEAD_LENGTH;
	request->hash = length;
}

/* Parses a field line that begins with "Content-". */
static __always_inline void parse_content_field(struct scratch *scratch, __u32 at, __u32 to)
{
	__u64 rest = lower_word(scratch, at + 8);

	if (rest == WORD("length: "))
		parse_length_field(scratch, at + 16, to);
	else if ((rest & BYTES(6)) == WORD("length"))
		scratch->request.seen |= HEAD_ODD;
}

/* End of the line at `at`; 0 if the line's syntax is not supported. */
static __always_inline __u32 end_of_line(struct scratch *scratch, __u32 at)
{
	__u32 to = end_of_visible(scratch, at, 0x20);
/* A line that begins with a space is obsolete line folding (RFC 9112 §5.2). */

	return to + 2 > scratch->request.len || (head_word(scratch, to) & 0xffff) != WORD("\r\n") ||
			       scratch->head[at & (HEAD_SIZE - 1)] == ' ' ? 0 : to;
}

/* Whether the field switches the protocol, encodes the body, or authenticates the connection. */
static __always_inline int is_unsupported_field(const struct scratch *scratch, __u64 name, __u32 at, __u32 to)
{
	if (name == WORD("connecti"))
		return !is_keep_alive(scratch, at, to);
	return name == WORD("transfer") || name == WORD("authoriz") || name == WORD("proxy-au") ||
	       name == WORD("proxy-co") || name == WORD("http2-se") || (name & BYTES(7)) == WORD("upgrade") ||
	       (name & BYTES(7)) == WORD("trailer") || (name & BYTES(6)) == WORD("expect");
}

static long request_line_step(__u64 index, struct cursor *cursor)
{
	struct scratch *scratch = cursor->scratch;
	struct request *request = &scratch->request;
	__u32 at = request->at, to;
	__u64 name = lower_word(scratch, at);

	if ((head_word(scratch, at) & 0xffff) == WORD("\r\n")) {
		request->at = at + 2;
		request->seen |= HEAD_ENDS;
		return 1;
	}
	to = end_of_line(scratch, at);
	if (!to || is_unsupported_field(scratch, name, at, to))
		request->seen |= HEAD_ODD;
	else if (name == WORD("content-"))
		parse_content_field(scratch, at, to);
	request->at = to + 2;
	return (request->seen & HEAD_ODD) != 0;
}

/* Whether the request is a POST with a plain target, the only method besides GET and HEAD that is tracked. */
static __always_inline int is_post(struct scratch *scratch)
{
	__u32 to = end_of_visible(scratch, 5, 0x21);

	return (head_word(scratch, 0) & BYTES(6)) == WORD("POST /") &&
	       head_word(scratch, to + 1) == WORD("HTTP/1.1") && scratch->head[to & (HEAD_SIZE - 1)] == ' ' &&
	       (head_word(scratch, to + 9) & 0xffff) == WORD("\r\n");
}

/* Length of the request in scratch, including its body; 0 if it is unknown, or if more data follows in the segment. */
static __always_inline __u32 length_of_request(struct scratch *scratch, __u32 len, __u32 payload_len)
{
	struct request *request = &scratch->request;
	struct cursor cursor = { scratch };
	__u64 whole;

	request->len = len;
	request->seen = 0;
	request->hash = 0;
	request->at = end_of_visible(scratch, 0, 0x20) + 2;
	bpf_loop(LINES_MAX, request_line_step, &cursor, 0);
	whole = request->at + request->hash;
	return (request->seen & (HEAD_ENDS | HEAD_ODD)) == HEAD_ENDS && whole >= payload_len ? whole : 0;
}

#ifndef TIER_XDP

/* Maximum length of a response head that is parsed. */
#define RESPONSE_HEAD_MAX 1024
static __always_inline void parse_response_field(struct scratch *scratch, __u32 at, __u32 to)
{
	struct request *request = &scratch->request;
	__u64 name = lower_word(scratch, at);

	if (name == WORD("content-")) {
		parse_content_field(scratch, at, to);
	} else if (name == WORD("transfer")) {
		int is_plain = to - at == 26 && lower_word(scratch, at + 8) == WORD("-encodin") &&
			       lower_word(scratch, at + 16) == WORD("g: chunk") &&
			       (lower_word(scratch, at + 24) & BYTES(2)) == WORD("ed");
		request->seen |= is_plain ? HEAD_CHUNKED : HEAD_ODD;
	} else if (name == WORD("connecti") && !is_keep_alive(scratch, at, to)) {
		request->seen |= HEAD_ODD;
	}
}

static long response_line_step(__u64 index, struct cursor *cursor)
{
	struct scratch *scratch = cursor->scratch;
	struct request *request = &scratch->request;
	__u32 at = request->at, to;

	if ((head_word(scratch, at) & 0xffff) == WORD("\r\n")) {
		request->at = at + 2;
		request->seen |= HEAD_ENDS;
		return 1;
	}
	to = end_of_line(scratch, at);
	if (to)
		parse_response_field(scratch, at, to);
	else
		request->seen |= HEAD_ODD;
	request->at = to + 2;
	return (request->seen & HEAD_ODD) != 0;
}

/* Parses the response head in scratch, of which `len` bytes are present. Returns its status, or 0 if the head is
 * incomplete or its syntax is not supported. Leaves the end of the head in request.at, its properties in request.seen,
 * and the content length in request.hash. */
static __always_inline __u32 read_response_head(struct scratch *scratch, __u32 len)
{
	struct request *request = &scratch->request;
	struct cursor cursor = { scratch };
	__u64 word = head_word(scratch, 8);
	__u8 hundreds = (word >> 8) - '0', tens = (word >> 16) - '0', ones = (word >> 24) - '0';

	if (head_word(scratch, 0) != WORD("HTTP/1.1") || (word & 0xff) != ' ' || hundreds - 1 > 4u || tens > 9 ||
	    ones > 9)
		return 0;
	request->len = len;
	request->seen = 0;
	request->hash = 0;
	request->at = end_of_visible(scratch, 12, 0x20);
	if ((head_word(scratch, request->at) & 0xffff) != WORD("\r\n"))
		return 0;
	request->at += 2;
	bpf_loop(LINES_MAX, response_line_step, &cursor, 0);
	/* A response with both a length and chunked coding is an attack or an error (RFC 9112 §6.3). */
	if ((request->seen & (HEAD_ENDS | HEAD_ODD)) != HEAD_ENDS ||
	    (request->seen & (HEAD_LENGTH | HEAD_CHUNKED)) == (HEAD_LENGTH | HEAD_CHUNKED))
		return 0;
	return hundreds * 100 + tens * 10 + ones;
}

/* Number of bytes loaded of a chunk header; enough for the last chunk with the end of the body. */
#define CHUNK_HEAD_MAX 16
#define CHUNK_DIGITS_MAX 7
#define NO_CHUNK (~0u)

/* Parses the chunk header in scratch, of which `len` bytes are present. Returns the distance to the next one; with
 * CHUNK_LAST, to the end of the body. */
#define CHUNK_LAST 0x80000000
static __always_inline __u32 read_chunk(const struct scratch *scratch, __u32 len)
{
	__u32 size = 0, at = 0;

	for (; at < CHUNK_DIGITS_MAX; at++) {
		__u8 byte = scratch->head[at], digit = byte - '0', letter = (byte | 0x20) - 'a';
		if (digit > 9 && letter > 5)
			break;
		size = size << 4 | (digit <= 9 ? digit : letter + 10);
	}
	if (!at || at + 2 > len || (head_word(scratch, at) & 0xffff) != WORD("\r\n"))
		return NO_CHUNK;
	if (size)
		return at + 2 + size + 2;
	/* Trailer fields are not supported. */
	if (at + 4 > len || (head_word(scratch, at + 2) & 0xffff) != WORD("\r\n"))
		return NO_CHUNK;
	return CHUNK_LAST | (at + 4);
}

#endif
