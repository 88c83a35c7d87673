/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Our first sequence number says what the SYN said, and that we have said so (RFC 4987 §3.6):
 * 24 bits of a keyed hash, 3 of the class of the MSS, 4 of the window scale, 1 of SACK. What the SYN
 * said exactly is remembered too, as long as nobody needs the place. */
#pragma once

#include "packet.h"

/* What a client can do, as its SYN says. */
struct abilities {
	__u16 mss;
	__u8 options;
};

/* The smallest is what everybody takes; nothing of IPv6 is below 1220. */
static __always_inline __u16 mss_of_class(__u32 class)
{
	switch (class) {
	case 0: return 536;
	case 1: return 1220;
	case 2: return 1300;
	case 3: return 1360;
	case 4: return 1400;
	case 5: return 1440;
	case 6: return 1452;
	default: return 1460;
	}
}

#define ROTATE(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))
#define SIP_ROUND(v0, v1, v2, v3) do { \
	v0 += v1; v1 = ROTATE(v1, 13); v1 ^= v0; v0 = ROTATE(v0, 32); \
	v2 += v3; v3 = ROTATE(v3, 16); v3 ^= v2; \
	v0 += v3; v3 = ROTATE(v3, 21); v3 ^= v0; \
	v2 += v1; v1 = ROTATE(v1, 17); v1 ^= v2; v2 = ROTATE(v2, 32); \
} while (0)

/* SipHash-2-4 (Aumasson and Bernstein 2012) of whole words. Both address families give the same
 * number of words: it costs IPv4 two more rounds, and saves a second copy of the program. */
static __noinline __u64 sip_hash(const __u64 *key, const __u64 *words)
{
	__u64 v0 = key[0] ^ 0x736f6d6570736575ull, v1 = key[1] ^ 0x646f72616e646f6dull;
	__u64 v2 = key[0] ^ 0x6c7967656e657261ull, v3 = key[1] ^ 0x7465646279746573ull;
	for (int i = 0; i < 6; i++) {
		v3 ^= words[i];
		SIP_ROUND(v0, v1, v2, v3);
		SIP_ROUND(v0, v1, v2, v3);
		v0 ^= words[i];
	}
	v3 ^= 48ull << 56;
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	v0 ^= 48ull << 56;
	v2 ^= 0xff;
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	return v0 ^ v1 ^ v2 ^ v3;
}

/* The hash's 24 bits, in the upper part of the number. `low` is the rest of the number. */
static __always_inline __u32 cookie_hash(const struct control *control, const struct tuple *tuple,
					 __u32 client_isn, __u64 minute, __u32 low)
{
	const __u64 *words_of_tuple = (const __u64 *)tuple;
	__u64 words[6] = {
		words_of_tuple[0], words_of_tuple[1], words_of_tuple[2], words_of_tuple[3],
		(__u64)client_isn << 32 | (__u32)tuple->client_port_be << 16 | tuple->local_port_be,
		minute << 8 | low,
	};
	return sip_hash(control->cookie_key[minute >> 6 & 1], words) & 0xffffff00;
}

#define MINUTE_NS 60000000000ull

static __always_inline __u32 make_cookie(const struct control *control, const struct segment *syn,
					 const struct abilities *can)
{
	__u32 low = (can->options & 0x1f) << 3;
#pragma unroll
	for (int i = 1; i < 8; i++)
		if (can->mss >= mss_of_class(i))
			low++;
	return cookie_hash(control, &syn->tuple, syn->seq, syn->now_ns / MINUTE_NS, low) | low;
}

/* Whether the segment's acknowledgement is a cookie of this minute or the last, and what it says. */
static __always_inline int check_cookie(const struct control *control, const struct segment *segment,
					struct abilities *can)
{
	__u32 number = segment->ack - 1, low = number & 0xff;
	__u64 minute = segment->now_ns / MINUTE_NS;
	if (cookie_hash(control, &segment->tuple, segment->seq - 1, minute, low) != (number & 0xffffff00) &&
	    cookie_hash(control, &segment->tuple, segment->seq - 1, minute - 1, low) != (number & 0xffffff00))
		return 0;
	can->mss = mss_of_class(low & 7);
	can->options = low >> 3;
	return 1;
}

static __always_inline struct half_open *place_of_half_open(const struct segment *segment)
{
	__u32 index = segment->hash & (HALF_OPEN_ENTRIES - 1);
	return bpf_map_lookup_elem(&half_open, &index);
}

static __always_inline void remember(const struct segment *syn, __u32 number, const struct abilities *can)
{
	struct half_open *place = place_of_half_open(syn);
	__u32 tag = syn->hash >> 32;
	if (!place)
		return;
	place->who = (__u64)(tag ^ syn->seq) << 32 | number;
	place->what = (__u64)(tag ^ number) << 32 | (__u32)can->mss << 16 | can->options;
}

/* Whether the segment completes a handshake that is remembered, as the very next after the SYN: what
 * has overtaken others must not open the connection behind them. */
static __always_inline int recall(const struct segment *segment, struct abilities *can)
{
	struct half_open *place = place_of_half_open(segment);
	__u32 tag = segment->hash >> 32, number = segment->ack - 1;
	if (!place || place->who != ((__u64)(tag ^ (segment->seq - 1)) << 32 | number))
		return 0;
	__u64 what = place->what;
	if (what >> 32 != (tag ^ number))
		return 0;
	place->who = 0;
	can->mss = what >> 16;
	can->options = what;
	return 1;
}


/* Whether this SYN was answered before, and its client has not been heard of since. */
static __always_inline int is_repeated(const struct segment *syn)
{
	struct half_open *place = place_of_half_open(syn);
	__u32 tag = syn->hash >> 32;

	return place && place->who >> 32 == (tag ^ syn->seq);
}

/* Whether it belongs to a handshake that is remembered, but is not the first after the SYN. */
static __always_inline int overtakes(const struct segment *segment)
{
	struct half_open *place = place_of_half_open(segment);
	__u32 tag = segment->hash >> 32, number = segment->ack - 1;

	return place && (__u32)place->who == number && place->what >> 32 == (tag ^ number);
}

/* Reads the options of a SYN (RFC 9293 §3.2, RFC 7323, RFC 2018). */
static __always_inline int read_abilities(context *ctx, const struct segment *syn, struct abilities *can)
{
	__u8 bytes[44] = {};
	__u32 len = syn->payload_at - syn->tcp_at - TCP_LEN, at = 0;
	can->mss = 536;
	can->options = OPTION_SCALE_NONE;
	if (!len)
		return 0;
	if (len > 40 || frame_load(ctx, syn->tcp_at + TCP_LEN, bytes, len))
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
			can->mss = (__u16)bytes[at + 2] << 8 | bytes[at + 3];
		else if (bytes[at] == 3 && next == at + 3)
			can->options = (can->options & OPTION_SACK) |
				       (bytes[at + 2] > 14 ? 14 : bytes[at + 2]);
		else if (bytes[at] == 4)
			can->options |= OPTION_SACK;
		at = next;
	}
	return 0;
}
