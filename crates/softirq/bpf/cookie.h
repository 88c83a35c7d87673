/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* SYN cookies (RFC 4987 §3.6): our initial sequence number is a keyed hash of the connection's identity, which can't
 * be guessed; three of its 32 bits also encode a coarse class of the SYN's options. The exact options are stored as
 * long as the half-open entry is not overwritten (half_open.h); the cookie serves overwritten handshakes.
 *
 * Of the 2^32 numbers, only eight are valid cookies in a minute, so that an attacker can hardly guess one without
 * seeing our SYN-ACK. */
#pragma once

#include "half_open.h"

#define ROTATE(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))
#define SIP_ROUND(v0, v1, v2, v3) do { \
	v0 += v1; v1 = ROTATE(v1, 13); v1 ^= v0; v0 = ROTATE(v0, 32); \
	v2 += v3; v3 = ROTATE(v3, 16); v3 ^= v2; \
	v0 += v3; v3 = ROTATE(v3, 21); v3 ^= v0; \
	v2 += v1; v1 = ROTATE(v1, 17); v1 ^= v2; v2 = ROTATE(v2, 32); \
} while (0)

#define COOKIE_WORDS_MAX 6

/* SipHash-2-4 (Aumasson and Bernstein 2012) of `count` whole words. */
static __noinline __u64 sip_hash(const __u64 *key, const __u64 *words, __u64 count)
{
	__u64 v0 = key[0] ^ 0x736f6d6570736575ull, v1 = key[1] ^ 0x646f72616e646f6dull;
	__u64 v2 = key[0] ^ 0x6c7967656e657261ull, v3 = key[1] ^ 0x7465646279746573ull;
	for (int i = 0; i < COOKIE_WORDS_MAX && i < count; i++) {
		v3 ^= words[i];
		SIP_ROUND(v0, v1, v2, v3);
		SIP_ROUND(v0, v1, v2, v3);
		v0 ^= words[i];
	}
	/* The last word has the length in bytes, 8 * count, in its upper byte. */
	v3 ^= count << 59;
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	v0 ^= count << 59;
	v2 ^= 0xff;
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	return v0 ^ v1 ^ v2 ^ v3;
}

static __always_inline __u32 cookie_hash(const struct control *control, const struct tuple *tuple,
					 __u32 client_isn, __u64 minute)
{
	const __u64 *key = control->cookie_key[minute >> 6 & 1], *words_of_tuple = (const __u64 *)tuple;
	__u64 words[COOKIE_WORDS_MAX] = {
		(__u64)client_isn << 32 | (__u32)tuple->client_port_be << 16 | tuple->local_port_be,
		minute,
	};

	/* For IPv4, half as many words are hashed. */
	if (is_v4(tuple)) {
		words[2] = (__u64)tuple->client_be[3] << 32 | tuple->local_be[3];
		return sip_hash(key, words, 3) >> 32;
	}
#pragma unroll
	for (int i = 0; i < 4; i++)
		words[2 + i] = words_of_tuple[i];
	return sip_hash(key, words, 6) >> 32;
}

/* The upper bits of a cookie are those of the hash XORed with the class. */
#define CLASS_SHIFT 29
#define MSS_LARGE 1360

/* Encodes options as a class: the largest one that the client's options include. After decoding, windows and segments
 * may therefore be smaller than necessary. Most clients announce SACK and a scale of 6 to 8. */
static __always_inline __u32 class_of(const struct syn_offer *offer)
{
	__u32 scale = offer->options & OPTION_SCALE_MASK, class = 1;

	if (scale == OPTION_SCALE_NONE)
		class = 0;
	else if (scale >= 6 && offer->options & OPTION_SACK)
		class = scale >= 7 ? 3 : 2;
	return class << 1 | (offer->mss >= MSS_LARGE);
}

static __always_inline void read_class(__u32 class, int is_v6, struct syn_offer *offer)
{
	offer->mss = class & 1 ? MSS_LARGE : is_v6 ? 1220 : 536;
	switch (class >> 1) {
	case 0: offer->options = OPTION_SCALE_NONE; break;
	case 1: offer->options = 0; break;
	case 2: offer->options = OPTION_SACK | 6; break;
	default: offer->options = OPTION_SACK | 7;
	}
}

#define MINUTE_NS 60000000000ull
/* A cookie of the previous minute stays valid for this long. */
#define COOKIE_LIFE_NS 10000000000ull

static __always_inline __u32 make_cookie(const struct control *control, const struct segment *syn,
					 const struct syn_offer *offer)
{
	return cookie_hash(control, &syn->tuple, syn->seq, syn->now_ns / MINUTE_NS) ^
	       class_of(offer) << CLASS_SHIFT;
}

static __always_inline int is_cookie_of(const struct control *control, const struct segment *segment,
					__u64 minute, struct syn_offer *offer)
{
	__u32 class = (segment->ack - 1) ^ cookie_hash(control, &segment->tuple, segment->seq - 1, minute);

	read_class(class >> CLASS_SHIFT, segment->is_v6, offer);
	/* All bits below the class must match. */
	return !(class << (32 - CLASS_SHIFT));
}

/* Whether the segment acknowledges a valid cookie; decodes the cookie's class. */
static __always_inline int check_cookie(const struct control *control, const struct segment *segment,
					struct syn_offer *offer)
{
	__u64 minute = segment->now_ns / MINUTE_NS, before = (segment->now_ns - COOKIE_LIFE_NS) / MINUTE_NS;

	/* In the first seconds of a minute, cookies of the previous one are valid, too. */
	return is_cookie_of(control, segment, minute, offer) ||
	       (before != minute && is_cookie_of(control, segment, before, offer));
}

/* Protection against guessing: after this many wrong cookies within a second, all cookies are rejected for the rest of
 * the second. */
#define WRONG_COOKIES_MAX 4096

static __always_inline int is_cookie_flood(const struct control *control, const struct segment *segment)
{
	return control->wrong_cookies >= WRONG_COOKIES_MAX &&
	       control->wrong_cookies_at == (__u32)(segment->now_ns >> 30);
}

static __always_inline void count_wrong_cookie(struct control *control, const struct segment *segment)
{
	__u32 now = segment->now_ns >> 30;

	if (control->wrong_cookies_at != now) {
		control->wrong_cookies_at = now;
		control->wrong_cookies = 0;
	}
	__sync_fetch_and_add(&control->wrong_cookies, 1);
}

#define LINUX_OPTIONS_LEN 20

/* The options as words, if they have the layout of Linux: MSS, SACK, timestamps, scale; otherwise 0. */
static __always_inline const __u32 *linux_options(context *ctx, const struct segment *syn)
{
	const __u32 *words = frame_begin(ctx) + (syn->tcp_at & 0x3f) + TCP_LEN;

	if (syn->payload_at - syn->tcp_at != TCP_LEN + LINUX_OPTIONS_LEN ||
	    (void *)words + LINUX_OPTIONS_LEN > frame_end(ctx))
		return 0;
	if ((words[0] & bpf_htonl(0xffff0000)) != bpf_htonl(0x02040000) || words[1] != bpf_htonl(0x0402080a) ||
	    (words[4] & bpf_htonl(0xffffff00)) != bpf_htonl(0x01030300))
		return 0;
	return words;
}

/* TSval of a SYN; negative if it has none. */
SEPARATE __s64 timestamp_of(context *ctx, const struct segment *syn ARG)
{
	__u8 bytes[44] = {};
	__u32 len = syn->payload_at - syn->tcp_at - TCP_LEN, at = 0;
	const __u32 *words = linux_options(ctx, syn);

	if (words)
		return bpf_ntohl(words[2]);
	OPAQUE(len);
	if (len == 0 || len > 40 || frame_load(ctx, syn->tcp_at + TCP_LEN, bytes, len))
		return -1;
#pragma unroll
	for (int i = 0; i < 12; i++) {
		if (at + 10 > len || at > 30 || bytes[at] == 0)
			break;
		/* Kind 8: timestamps. Kind 1, NOP, has no length. */
		if (bytes[at] == 8)
			return (__u32)bytes[at + 2] << 24 | bytes[at + 3] << 16 | bytes[at + 4] << 8 | bytes[at + 5];
		at += bytes[at] == 1 ? 1 : bytes[at + 1];
	}
	return -1;
}

/* Parses the options of a SYN (RFC 9293 §3.2, RFC 7323, RFC 2018). */
SEPARATE int read_syn_offer(context *ctx, const struct segment *syn ARG, struct syn_offer *offer ARG)
{
	__u8 bytes[44] = {};
	__u32 len = syn->payload_at - syn->tcp_at - TCP_LEN, at = 0;
	const __u32 *words = linux_options(ctx, syn);

	/* The default MSS of IPv4 (RFC 9293 §3.7.1). */
	offer->mss = 536;
	offer->options = OPTION_SCALE_NONE;
	if (words) {
		__u32 scale = bpf_ntohl(words[4]) & 0xff;
		offer->mss = bpf_ntohl(words[0]);
		/* RFC 7323 §2.3: larger scales count as 14. */
		offer->options = OPTION_SACK | (scale > 14 ? 14 : scale);
	}
	if (!len || words)
		return 0;
	OPAQUE(len);
	if (len == 0 || len > 40 || frame_load(ctx, syn->tcp_at + TCP_LEN, bytes, len))
		return -1;
#pragma unroll
	for (int i = 0; i < 12; i++) {
		if (at >= len || at >= 40 || bytes[at] == 0)
			break;
		if (bytes[at] == 1) {
			at++;
			continue;
		}
		__u32 next = at + bytes[at + 1];
		if (bytes[at + 1] < 2 || next > len)
			return -1;
		if (bytes[at] == 2 && next == at + 4)
			offer->mss = (__u16)bytes[at + 2] << 8 | bytes[at + 3];
		else if (bytes[at] == 3 && next == at + 3)
			offer->options = (offer->options & OPTION_SACK) |
				       (bytes[at + 2] > 14 ? 14 : bytes[at + 2]);
		else if (bytes[at] == 4)
			offer->options |= OPTION_SACK;
		at = next;
	}
	return 0;
}
