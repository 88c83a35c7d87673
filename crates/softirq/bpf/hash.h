/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Keyed hashes of data from peers, used as positions in tables, and never sent.
 *
 * NH (Black, Halevi, Krawczyk, Krovetz, Rogaway 1999; RFC 4418 §5.2.2): a secret word is added to each four bytes, and
 * pairs of these 32-bit sums are multiplied to 64-bit products, which are added up. For any two inputs of equal length,
 * even chosen ones, the results differ by a given number under at most one key in 2^32. SipHash would cost five times
 * as much, and each segment is hashed.
 *
 * This holds only while hashes stay secret; the one value that is sent, the cookie, is therefore a SipHash (cookie.h).
 * The key is drawn when the maps are created and never changes, since all entries are found by it. */
#pragma once

#include "maps.h"

static __always_inline __u64 nh_hash(__u32 a, __u32 b, const __u32 *key)
{
	return (__u64)(a + key[0]) * (__u32)(b + key[1]);
}

static __always_inline __u64 nh_of_word(__u64 word, const __u32 *key)
{
	return nh_hash((__u32)word, word >> 32, key);
}

/* Whether the tuple is IPv4. The parser rejects IPv6 packets with IPv4-mapped addresses (packet.h). */
static __always_inline int is_v4(const struct tuple *tuple)
{
	return tuple->client_be[2] == bpf_htonl(0xffff);
}

static __always_inline __u64 nh_of_tuple(const struct tuple *tuple, const __u32 *key)
{
	__u64 ports = nh_hash((__u32)tuple->client_port_be << 16 | tuple->local_port_be, 0, key + 8);

	/* The other words are the same in all IPv4 tuples. */
	if (is_v4(tuple))
		return nh_hash(tuple->client_be[3], tuple->local_be[3], key + 6) + ports;
	return nh_hash(tuple->client_be[0], tuple->client_be[1], key) +
	       nh_hash(tuple->client_be[2], tuple->client_be[3], key + 2) +
	       nh_hash(tuple->local_be[0], tuple->local_be[1], key + 4) +
	       nh_hash(tuple->local_be[2], tuple->local_be[3], key + 6) + ports;
}

/* Mixes a sum, so that any of its bits may be used as an index; the sums of different inputs may differ in a few bits
 * only. */
static __always_inline __u64 mix_hash(__u64 sum, const struct hash_key *key)
{
	sum = (sum ^ sum >> 32) * key->mix[0];
	sum = (sum ^ sum >> 32) * key->mix[1];
	return sum ^ sum >> 32;
}

static __always_inline __u64 hash_of(const struct tuple *tuple, const struct control *control)
{
	return mix_hash(nh_of_tuple(tuple, control->hash_key.tuple[0]), &control->hash_key);
}

/* A second hash of a tuple, under a different key. */
static __always_inline __u64 identity_of(const struct tuple *tuple, const struct control *control)
{
	return nh_of_tuple(tuple, control->hash_key.tuple[1]);
}
