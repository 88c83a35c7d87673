/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Half-open connections: the contents of SYNs that were answered, and the number of overwritten entries. New entries
 * overwrite old ones, so that a SYN flood exhausts nothing; the handshake of an overwritten entry may still complete
 * by its cookie. Independent of cookie.h.
 *
 * An entry is bound to its tuple by two hashes under two keys: a tuple with only one of them equal does not match. */
#pragma once

#include "packet.h"

/* The client's TCP options, from its SYN. */
struct abilities {
	__u16 mss;
	__u8 options;
};

/* A pending handshake: both initial sequence numbers, and the contents of the SYN. */
struct handshake {
	__u32 client_isn;
	__u32 isn;
	struct abilities can;
};

/* Units of 2^30 ns in which an overwritten handshake may complete by its cookie: clients retransmit after 1 s and 3
 * s. */
#define FORGOTTEN_LIFE 8

static __always_inline struct half_open *place_of_half_open(__u64 hash)
{
	__u32 index = hash & (HALF_OPEN_ENTRIES - 1);
	return bpf_map_lookup_elem(&half_open, &index);
}

/* Reads the pending handshake of this tuple, if the entry holds it. */
static __always_inline int read_half_open(const struct half_open *place, const struct tuple *tuple, __u64 hash,
					  const struct control *control, struct handshake *found)
{
	__u64 who = *(volatile __u64 *)&place->who, what = *(volatile __u64 *)&place->what;
	__u64 numbers = who - identity_of(tuple, control);

	found->client_isn = numbers >> 32;
	found->isn = numbers;
	found->can.mss = what >> 16;
	found->can.options = what;
	/* Both words must match: another processor may write between the two reads. */
	return who && what >> 32 == ((__u32)(hash >> 32) ^ found->isn);
}

/* Units of 2^30 ns in which a SYN with another sequence number does not displace it; as in Linux. */
#define HALF_OPEN_LIFE 63

static __always_inline int find_half_open(const struct segment *segment, const struct control *control,
					  struct handshake *found)
{
	struct half_open *place = place_of_half_open(segment->hash);
	return place && read_half_open(place, &segment->tuple, segment->hash, control, found);
}

static __always_inline int is_young(const struct segment *syn)
{
	struct half_open *place = place_of_half_open(syn->hash);
	return place && (__u32)(syn->now_ns >> 30) - place->at <= HALF_OPEN_LIFE;
}

static __always_inline int was_recently_removed(const struct half_open *place, __u32 now)
{
	return now - place->forgotten_at <= FORGOTTEN_LIFE;
}

/* Records a handshake. If the entry belongs to another tuple, that one is overwritten, and counted. */
static __always_inline void record_half_open(const struct tuple *tuple, __u64 hash, const struct control *control,
				     const struct handshake *what, __u64 now_ns)
{
	struct half_open *place = place_of_half_open(hash);
	__u32 tag = hash >> 32, now = now_ns >> 30;
	struct handshake old;

	if (!place)
		return;
	/* The overwritten handshake may complete by its cookie. */
	if (place->who && !read_half_open(place, tuple, hash, control, &old)) {
		place->forgotten = was_recently_removed(place, now) ? place->forgotten + 1 : 1;
		place->forgotten_at = now;
	}
	place->at = now;
	place->who = identity_of(tuple, control) + ((__u64)what->client_isn << 32 | what->isn);
	place->what = (__u64)(tag ^ what->isn) << 32 | (__u32)what->can.mss << 16 | what->can.options;
}

/* Removes the half-open entry of the segment's tuple. */
static __always_inline void remove_half_open(const struct segment *segment)
{
	struct half_open *place = place_of_half_open(segment->hash);
	if (place)
		place->who = 0;
}

/* Whether an overwritten handshake may complete by its cookie now: each overwritten entry permits one attempt. A
 * guesser therefore needs a SYN for each guess. */
static __always_inline int may_be_forgotten(const struct segment *segment)
{
	struct half_open *place = place_of_half_open(segment->hash);

	/* Concurrent processors may decrement below zero, by one each; negative counts permit nothing. */
	if (!place || (__s32)place->forgotten <= 0 || !was_recently_removed(place, segment->now_ns >> 30))
		return 0;
	__sync_fetch_and_add(&place->forgotten, -1);
	return 1;
}
