/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Half-open connections: the contents of answered SYNs, and the number of overwritten entries. New entries overwrite
 * old ones, so that a SYN flood exhausts nothing; an overwritten handshake may still complete by its cookie.
 * Independent of cookie.h.
 *
 * An entry is bound to its tuple by two hashes with different keys; both must match. */
#pragma once

#include "packet.h"

/* The client's TCP options, from its SYN. */
struct syn_offer {
	__u16 mss;
	__u8 options;
};

/* A pending handshake: both initial sequence numbers, and the contents of the SYN. */
struct handshake {
	__u32 client_isn;
	__u32 isn;
	struct syn_offer offer;
};

/* Units of 2^30 ns for which an overwritten handshake may complete by its cookie: clients retransmit after 1 s and 3
 * s. */
#define FORGOTTEN_LIFE 8

static __always_inline struct half_open *half_open_slot(__u64 hash)
{
	__u32 index = hash & (HALF_OPEN_ENTRIES - 1);
	return bpf_map_lookup_elem(&half_open, &index);
}

/* Reads the pending handshake of this tuple, if the entry belongs to it. */
static __always_inline int read_half_open(const struct half_open *slot, const struct tuple *tuple, __u64 hash,
					  const struct control *control, struct handshake *found)
{
	__u64 identity = *(volatile __u64 *)&slot->identity, contents = *(volatile __u64 *)&slot->contents;
	__u64 numbers = identity - identity_of(tuple, control);

	found->client_isn = numbers >> 32;
	found->isn = numbers;
	found->offer.mss = contents >> 16;
	found->offer.options = contents;
	/* Both words must match: another processor may write between the two reads. */
	return identity && contents >> 32 == ((__u32)(hash >> 32) ^ found->isn);
}

/* Units of 2^30 ns for which a SYN with another sequence number does not displace an entry; as in Linux. */
#define HALF_OPEN_LIFE 63

static __always_inline int find_half_open(const struct segment *segment, const struct control *control,
					  struct handshake *found)
{
	struct half_open *slot = half_open_slot(segment->hash);
	return slot && read_half_open(slot, &segment->tuple, segment->hash, control, found);
}

static __always_inline int is_young(const struct segment *syn)
{
	struct half_open *slot = half_open_slot(syn->hash);
	return slot && (__u32)(syn->now_ns >> 30) - slot->at <= HALF_OPEN_LIFE;
}

static __always_inline int was_recently_removed(const struct half_open *slot, __u32 now)
{
	return now - slot->forgotten_at <= FORGOTTEN_LIFE;
}

/* Records a handshake. An entry of another tuple in the same slot is overwritten and counted. */
static __always_inline void record_half_open(const struct tuple *tuple, __u64 hash, const struct control *control,
				     const struct handshake *handshake, __u64 now_ns)
{
	struct half_open *slot = half_open_slot(hash);
	__u32 tag = hash >> 32, now = now_ns >> 30;
	struct handshake old;

	if (!slot)
		return;
	/* The overwritten handshake may still complete by its cookie. */
	if (slot->identity && !read_half_open(slot, tuple, hash, control, &old)) {
		slot->forgotten = was_recently_removed(slot, now) ? slot->forgotten + 1 : 1;
		slot->forgotten_at = now;
	}
	slot->at = now;
	slot->identity = identity_of(tuple, control) + ((__u64)handshake->client_isn << 32 | handshake->isn);
	slot->contents = (__u64)(tag ^ handshake->isn) << 32 | (__u32)handshake->offer.mss << 16 |
			 handshake->offer.options;
}

/* Removes the half-open entry of the segment's tuple. */
static __always_inline void remove_half_open(const struct segment *segment)
{
	struct half_open *slot = half_open_slot(segment->hash);
	if (slot)
		slot->identity = 0;
}

/* Whether an overwritten handshake may complete by its cookie now. Each overwritten entry permits one attempt, so an
 * attacker needs a SYN for each guess. */
static __always_inline int may_complete_by_cookie(const struct segment *segment)
{
	struct half_open *slot = half_open_slot(segment->hash);

	/* Concurrent processors may decrement the count below zero; negative counts permit nothing. */
	if (!slot || (__s32)slot->forgotten <= 0 || !was_recently_removed(slot, segment->now_ns >> 30))
		return 0;
	__sync_fetch_and_add(&slot->forgotten, -1);
	return 1;
}
