/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* HTTP parser: from the bytes of a request to the key of its response. Accepts only requests that it completely
 * understands, and gives a reason for punting the others; that does not mean that the client made an error. Processes
 * eight bytes at a time (SWAR). See RFC 9112 §3, §5; RFC 9110 §5.6. */
#pragma once

#include "packet.h"

#define ONES 0x0101010101010101ull
#define HIGHS 0x8080808080808080ull

/* The high bit of each byte that is at least `least`; correct for bytes below 0x80. */
static __always_inline __u64 at_least(__u64 word, __u8 least)
{
	return ((word | HIGHS) - ONES * least) & HIGHS;
}

/* Number of bytes before the first one with its high bit set; there must be one. */
static __always_inline __u32 bytes_before(__u64 marks)
{
	return ((((marks - 1) & ~marks) & ONES) * ONES >> 56) - 1;
}

/* The high bit of each byte that is not a letter, digit or hyphen. */
static __always_inline __u64 not_in_name(__u64 word)
{
	__u64 lower = word | ONES * 0x20;
	__u64 in = (at_least(lower, 'a') & ~at_least(lower, 'z' + 1)) |
		   (at_least(word, '0') & ~at_least(word, '9' + 1)) |
		   (at_least(word, '-') & ~at_least(word, '-' + 1));
	return (~in | word) & HIGHS;
}

/* The high bit of each byte below `least`, or outside of visible ASCII. */
static __always_inline __u64 not_visible(__u64 word, __u8 least)
{
	return (~at_least(word, least) | at_least(word, 0x7f) | word) & HIGHS;
}

static __always_inline __u64 head_word(const struct scratch *scratch, __u32 at)
{
	return *(const __u64 *)(scratch->head + (at & (HEAD_SIZE - 1)));
}

static __always_inline void put_key_word(struct scratch *scratch, __u32 at, __u64 word)
{
	*(__u64 *)(scratch->key + (at & (KEY_SIZE - 1))) = word;
}

static __always_inline __u64 key_word(const struct scratch *scratch, __u32 at)
{
	return *(const __u64 *)(scratch->key + (at & (KEY_SIZE - 1)));
}

/* The first eight characters of a lower-case word. */
static __always_inline __u64 word_of(const char *text, int len)
{
	__u64 word = 0;
#pragma unroll
	for (int i = 0; i < 8; i++)
		if (i < len)
			word |= (__u64)text[i] << (8 * i);
	return word;
}
#define WORD(text) word_of(text, sizeof(text) - 1)

/* Properties of a request (request.seen). */
#define SEEN_HOST 1
#define SEEN_CONNECTION 2
#define SEEN_ENCODING 4
#define SEEN_NONE_MATCH 8
#define SEEN_SINCE 16
#define SEEN_END 32
#define SEEN_CLOSE 64
#define SEEN_KEEP_ALIVE 128

/* Context of bpf_loop callbacks. */
struct cursor {
	struct scratch *scratch;
};

static long scan_step(__u64 index, struct cursor *cursor)
{
	struct scratch *scratch = cursor->scratch;
	__u32 at = scratch->request.to;
	__u64 marks = not_visible(head_word(scratch, at), scratch->request.from);

	scratch->request.to = at + (marks ? bytes_before(marks) : 8);
	return marks != 0;
}

/* End of the visible bytes from `at` on. The zeros behind the request end the scan. */
static __always_inline __u32 end_of_visible(struct scratch *scratch, __u32 at, __u8 least)
{
	struct cursor cursor = { scratch };
	scratch->request.to = at;
	scratch->request.from = least;
	bpf_loop(REQUEST_MAX / 8 + 1, scan_step, &cursor, 0);
	return scratch->request.to;
}

static long copy_step(__u64 index, struct cursor *cursor)
{
	struct scratch *scratch = cursor->scratch;
	__u32 offset = index * 8;
	put_key_word(scratch, scratch->request.to + offset, head_word(scratch, scratch->request.from + offset));
	return 0;
}

/* Appends a part to the key. Copies whole words; the next part overwrites the excess bytes. */
static __always_inline void add_to_key(struct scratch *scratch, __u8 id, __u32 from, __u32 to)
{
	struct cursor cursor = { scratch };
	struct request *request = &scratch->request;
	__u32 len = to - from;

	/* The first comparison prevents an overflow in the second. */
	if (len > KEY_MAX || request->key_len + len + 1 > KEY_MAX) {
		request->reason = reason_up_long;
		return;
	}
	scratch->key[request->key_len & (KEY_SIZE - 1)] = id;
	request->from = from;
	request->to = request->key_len + 1;
	request->key_len += len + 1;
	bpf_loop((len + 7) / 8, copy_step, &cursor, 0);
}

/* Appends a field to the key. The field may occur only once, and its value must not begin or end with a space. */
static __always_inline void add_field_to_key(struct scratch *scratch, __u8 id, __u32 mark, __u32 from, __u32 to)
{
	struct request *request = &scratch->request;
	__u8 first = scratch->head[from & (HEAD_SIZE - 1)];
	__u8 last = scratch->head[(to - 1) & (HEAD_SIZE - 1)];

	/* Parsers differ in how they trim whitespace. */
	if (from == to || first == ' ' || last == ' ' || (request->seen & mark)) {
		request->reason = mark == SEEN_HOST ? reason_up_host : reason_up_syntax;
		return;
	}
	request->seen |= mark;
	add_to_key(scratch, id, from, to);
}

static __always_inline void parse_connection_field(struct scratch *scratch, __u32 from, __u32 to)
{
	struct request *request = &scratch->request;
	__u64 word = head_word(scratch, from) | ONES * 0x20;
	__u64 rest = head_word(scratch, from + 8) | ONES * 0x20;

	/* Several Connection fields form one list (RFC 9110 §5.3), which is not parsed here. */
	if (request->seen & SEEN_CONNECTION) {
		request->reason = reason_up_field;
		return;
	}
	request->seen |= SEEN_CONNECTION;
	if (to - from == 5 && (word & 0xffffffffffull) == WORD("close"))
		request->seen |= SEEN_CLOSE;
	else if (to - from == 10 && word == WORD("keep-ali") && (rest & 0xffff) == WORD("ve"))
		request->seen |= SEEN_KEEP_ALIVE;
	else
		request->reason = reason_up_field;
}

/* Whether this is a field in which a TLS terminator or another proxy reports a scheme, host, target or method that
 * differs from the request line's: the server's response may depend on it. X-Forwarded-For is no such field, since it
 * only identifies the client. */
static __always_inline int is_of_terminator(__u32 name_len, const __u64 *name)
{
	if (name[0] == WORD("x-forwar"))
		return name_len != 15 || name[1] != WORD("ded-for");
	if (name[0] == WORD("x-origin") || name[0] == WORD("x-rewrit") || name[0] == WORD("x-http-m") ||
	    name[0] == WORD("x-method") || name[0] == WORD("x-scheme") || name[0] == WORD("x-url-sc"))
		return 1;
	return name_len == 6 && name[0] == WORD("x-host");
}

/* Processes a field by its lower-case name. Fields that cannot affect the response are skipped. */
static __always_inline void parse_field(struct scratch *scratch, __u32 name_len, const __u64 *name,
				  __u32 from, __u32 to)
{
	struct request *request = &scratch->request;

	if ((name[0] & 0xffff) == WORD("x-")) {
		if (is_of_terminator(name_len, name))
			request->reason = reason_up_field;
		return;
	}
	switch (name_len) {
	case 2:
		if (name[0] == WORD("te"))
			request->reason = reason_up_field;
		break;
	case 4:
		if (name[0] == WORD("host"))
			add_field_to_key(scratch, KEY_HOST, SEEN_HOST, from, to);
		break;
	case 5:
		if (name[0] == WORD("range"))
			request->reason = reason_up_field;
		break;
	case 6:
		if (name[0] == WORD("cookie")) {
			if (!(request->settings & SETTING_IGNORE_COOKIES))
				request->reason = reason_up_cookie;
		} else if (name[0] == WORD("expect")) {
			request->reason = reason_up_field;
		} else if (name[0] == WORD("pragma")) {
			if (!(request->settings & SETTING_IGNORE_CACHE_CONTROL))
				request->reason = reason_up_field;
		}
		break;
	case 7:
		if (name[0] == WORD("upgrade") || name[0] == WORD("trailer"))
			request->reason = reason_up_field;
		break;
	case 8:
		if (name[0] == WORD("if-match") || name[0] == WORD("if-range"))
			request->reason = reason_up_field;
		break;
	case 9:
		if (name[0] == WORD("forwarde") && name[1] == WORD("d"))
			request->reason = reason_up_field;
		break;
	/* Connection; CF-Visitor. */
	case 10:
		if (name[0] == WORD("connecti") && name[1] == WORD("on"))
			parse_connection_field(scratch, from, to);
		else if (name[0] == WORD("cf-visit"))
			request->reason = reason_up_field;
		break;
	/* If-None-Match; Authorization; Cache-Control. */
	case 13:
		if (name[0] == WORD("if-none-") && name[1] == WORD("match"))
			add_field_to_key(scratch, KEY_IF_NONE_MATCH, SEEN_NONE_MATCH, from, to);
		else if (name[0] == WORD("authoriz"))
			request->reason = reason_up_field;
		else if (name[0] == WORD("cache-co") &&
			 !(request->settings & SETTING_IGNORE_CACHE_CONTROL))
			request->reason = reason_up_field;
		break;
	/* Content-Length; HTTP2-Settings. */
	case 14:
		if (name[0] == WORD("content-") || name[0] == WORD("http2-se"))
			request->reason = reason_up_field;
		break;
	/* Accept-Encoding; Front-End-Https. */
	case 15:
		if (name[0] == WORD("accept-e") && name[1] == WORD("ncoding"))
			add_field_to_key(scratch, KEY_ACCEPT_ENCODING, SEEN_ENCODING, from, to);
		else if (name[0] == WORD("front-en"))
			request->reason = reason_up_field;
		break;
	/* Proxy-Connection. */
	case 16:
		if (name[0] == WORD("proxy-co"))
			request->reason = reason_up_field;
		break;
	/* If-Modified-Since; Transfer-Encoding. */
	case 17:
		if (name[0] == WORD("if-modif") && name[1] == WORD("ied-sinc") && name[2] == WORD("e"))
			add_field_to_key(scratch, KEY_IF_MODIFIED_SINCE, SEEN_SINCE, from, to);
		else if (name[0] == WORD("transfer"))
			request->reason = reason_up_field;
		break;
	/* If-Unmodified-Since; Proxy-Authorization. */
	case 19:
		if (name[0] == WORD("if-unmod") || name[0] == WORD("proxy-au"))
			request->reason = reason_up_field;
		break;
	/* CloudFront-Forwarded-Proto. */
	case 26:
		if (name[0] == WORD("cloudfro"))
			request->reason = reason_up_field;
		break;
	}
}

/* Parses a line of the head, or the empty line at its end. */
static long line_step(__u64 index, struct cursor *cursor)
{
	struct scratch *scratch = cursor->scratch;
	struct request *request = &scratch->request;
	__u32 at = request->at, name_len = 0, from, to;
	__u64 name[4] = {}, marks = 0;

	if ((head_word(scratch, at) & 0xffff) == WORD("\r\n")) {
		/* Pipelined bytes follow: the reply would acknowledge them although they were not processed. */
		request->seen |= SEEN_END;
		if (at + 2 != request->len)
			request->reason = reason_up_more;
		return 1;
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u64 word = head_word(scratch, at + 8 * i);
		marks = not_in_name(word);
		name[i] = word | ONES * 0x20;
		if (marks)
			break;
		name_len += 8;
	}
	if (!marks) {
		request->reason = reason_up_syntax;
		return 1;
	}
	__u32 rest = bytes_before(marks);
	__u64 kept = rest ? ~0ull >> (64 - 8 * rest) : 0;
#pragma unroll
	for (int i = 0; i < 4; i++)
		if (name_len == 8 * i)
			name[i] &= kept;
	name_len += rest;
	if (!name_len || (head_word(scratch, at + name_len) & 0xffff) != WORD(": ")) {
		request->reason = at + name_len >= request->len ? reason_up_cut : reason_up_syntax;
		return 1;
	}
	from = at + name_len + 2;
	to = end_of_visible(scratch, from, 0x20);
	if (to + 2 > request->len) {
		request->reason = reason_up_cut;
		return 1;
	}
	if ((head_word(scratch, to) & 0xffff) != WORD("\r\n")) {
		request->reason = reason_up_syntax;
		return 1;
	}
	parse_field(scratch, name_len, name, from, to);
	request->at = to + 2;
	return request->reason != reason_count;
}

/* Parses the request line, such as "GET /x HTTP/1.1". */
static __always_inline void parse_request_line(struct scratch *scratch)
{
	struct request *request = &scratch->request;
	__u64 word = head_word(scratch, 0);
	__u32 from, to;

	if ((word & 0xffffffff) == WORD("GET ")) {
		from = 4;
	} else if ((word & 0xffffffffffull) == WORD("HEAD ")) {
		from = 5;
		request->is_head = 1;
	} else {
		request->reason = reason_up_method;
		return;
	}
	if (scratch->head[from] != '/') {
		request->reason = reason_up_target;
		return;
	}
	to = end_of_visible(scratch, from, 0x21);
	/* A space, the version and CRLF take 11 bytes. */
	if (to + 11 > request->len) {
		request->reason = reason_up_cut;
		return;
	}
	word = head_word(scratch, to + 1);
	request->is_http_10 = word == WORD("HTTP/1.0");
	if (scratch->head[to & (HEAD_SIZE - 1)] != ' ' ||
	    (word != WORD("HTTP/1.1") && !request->is_http_10) ||
	    (head_word(scratch, to + 9) & 0xffff) != WORD("\r\n")) {
		request->reason = reason_up_version;
		return;
	}
	add_to_key(scratch, KEY_TARGET, from, to);
	request->at = to + 11;
}

#define LINES_MAX 48

/* Parses the request in scratch and writes its key there. */
static __always_inline void parse_request(struct scratch *scratch, const struct segment *segment,
					 __u32 settings)
{
	struct request *request = &scratch->request;
	struct cursor cursor = { scratch };

	request->len = segment->payload_len;
	request->seen = 0;
	request->settings = settings;
	request->reason = reason_count;
	request->is_head = 0;
	request->key_len = KEY_START;
	*(__u16 *)(scratch->key + KEY_PORT_AT) = segment->tuple.local_port_be;
	put_key_word(scratch, KEY_ADDRESS_AT, local_word(segment, 0));
	put_key_word(scratch, KEY_ADDRESS_AT + 8, local_word(segment, 1));
	parse_request_line(scratch);
	if (request->reason != reason_count)
		return;
	bpf_loop(LINES_MAX, line_step, &cursor, 0);
	if (request->reason != reason_count)
		return;
	if (!(request->seen & SEEN_END)) {
		request->reason = reason_up_long;
		return;
	}
	if (!(request->seen & SEEN_HOST)) {
		request->reason = reason_up_host;
		return;
	}
	/* HTTP/1.0 connections close by default (RFC 9112 §9.3). */
	int closes = request->is_http_10 ? !(request->seen & SEEN_KEEP_ALIVE) : request->seen & SEEN_CLOSE;
	scratch->key[0] = (closes ? CLASS_CLOSE : 0) | (request->is_http_10 ? CLASS_HTTP_10 : 0);
	put_key_word(scratch, request->key_len, 0);
}

struct hash_cursor {
	struct scratch *scratch;
	const struct control *control;
};

static long hash_step(__u64 index, struct hash_cursor *cursor)
{
	const __u32 *key = cursor->control->hash_key.words + 2 * (index & (HASHED_WORDS_MAX - 1));
	cursor->scratch->request.hash += nh_of_word(key_word(cursor->scratch, index * 8), key);
	return 0;
}

/* The key's hash. Keyed, so that an attacker can't fill a bucket on purpose. */
static __always_inline __u64 hash_of_key(struct scratch *scratch, const struct control *control)
{
	struct hash_cursor cursor = { scratch, control };
	__u32 len = scratch->request.key_len;

	scratch->request.hash = nh_hash(len, 0, control->hash_key.words + 2 * HASHED_WORDS_MAX);
	bpf_loop((len + 7) / 8, hash_step, &cursor, 0);
	return mix_hash(scratch->request.hash, &control->hash_key);
}
