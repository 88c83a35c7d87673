/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Hashes of what peers send, for places in tables; nobody is sent one. It knows no tables.
 *
 * NH (Black, Halevi, Krawczyk, Krovetz, Rogaway 1999; RFC 4418 §5.2.2): each four bytes are added to a
 * secret of their own, and multiplied in pairs. Products are whole, for they are of 32 bits. Of any two
 * inputs of one length, whatever was chosen of them, the sums differ by any given number under one key in
 * 2^32 at most. SipHash would cost five times as much, and each segment is hashed.
 *
 * That holds as long as nobody sees a hash: what is sent, the cookie, is SipHash (cookie.h). The key is
 * drawn when the maps are made, and stays as long as they do, since by it everything in them is found. */
#pragma once

#include "maps.h"

static __always_inline __u64 nh(__u32 a, __u32 b, const __u32 *key)
{
	return (__u64)(a + key[0]) * (__u32)(b + key[1]);
}

static __always_inline __u64 nh_of_word(__u64 word, const __u32 *key)
{
	return nh((__u32)word, word >> 32, key);
}

/* No such address of IPv6 comes so far (packet.h). */
static __always_inline int is_v4(const struct tuple *tuple)
{
	return tuple->client_be[2] == bpf_htonl(0xffff);
}

static __always_inline __u64 nh_of_tuple(const struct tuple *tuple, const __u32 *key)
{
	__u64 ports = nh((__u32)tuple->client_port_be << 16 | tuple->local_port_be, 0, key + 8);

	/* The rest of them is the same in all of IPv4. */
	if (is_v4(tuple))
		return nh(tuple->client_be[3], tuple->local_be[3], key + 6) + ports;
	return nh(tuple->client_be[0], tuple->client_be[1], key) +
	       nh(tuple->client_be[2], tuple->client_be[3], key + 2) +
	       nh(tuple->local_be[0], tuple->local_be[1], key + 4) +
	       nh(tuple->local_be[2], tuple->local_be[3], key + 6) + ports;
}

/* Any bits of it may be taken: a sum differs from others, but perhaps only in some of its bits. */
static __always_inline __u64 mixed(__u64 sum, const struct hash_key *key)
{
	sum = (sum ^ sum >> 32) * key->mix[0];
	sum = (sum ^ sum >> 32) * key->mix[1];
	return sum ^ sum >> 32;
}

static __always_inline __u64 hash_of(const struct tuple *tuple, const struct control *control)
{
	return mixed(nh_of_tuple(tuple, control->hash_key.tuple[0]), &control->hash_key);
}

/* Another hash of it, under a key of its own. */
static __always_inline __u64 identity_of(const struct tuple *tuple, const struct control *control)
{
	return nh_of_tuple(tuple, control->hash_key.tuple[1]);
}
