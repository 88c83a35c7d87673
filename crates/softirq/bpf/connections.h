/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Connection table: an array in which each connection has two candidate buckets of eight slots. Processors share no
 * lists and no locks. A slot that was idle for long enough may be reused for another connection. */
#pragma once

#include "connection_state.h"
#include "half_open.h"

static __always_inline __u16 seen_at(__u64 now_ns)
{
	return now_ns >> 30;
}

/* Units of `seen` from `then` to `now`. A processor's clock may lag one tick behind another's, which has then already
 * written the next unit; that counts as 0, not as the longest time. */
static __always_inline __u16 units_since(__u16 now, __u16 then)
{
	__u16 units = now - then;
	return units == 0xffff ? 0 : units;
}

static __always_inline __u32 tag_of(const struct segment *segment)
{
	return segment->hash >> 32 | 1;
}

static __always_inline struct connection_bucket *bucket_of(const struct segment *segment, int second)
{
	__u32 index = segment->hash;
	if (second)
		/* As in partial-key cuckoo hashing, the second bucket follows from the first and the tag. */
		index ^= tag_of(segment) * 0x5bd1e995;
	index &= constants.connection_mask;
	return bpf_map_lookup_elem(&connections, &index);
}

static __always_inline struct connection *find_way(struct connection_bucket *bucket, __u32 tag)
{
#pragma unroll
	for (int i = 0; i < CONNECTION_WAYS; i++)
		if (bucket->way[i].tag == tag)
			return &bucket->way[i];
	return 0;
}

static __always_inline int is_of(const struct connection *connection, const struct tuple *tuple)
{
	const __u64 *a = (const __u64 *)&connection->tuple, *b = (const __u64 *)tuple;
	__u64 differs = connection->tuple.client_port_be ^ tuple->client_port_be;

	differs |= connection->tuple.local_port_be ^ tuple->local_port_be;
#pragma unroll
	for (int i = 0; i < 4; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

static __always_inline struct connection *find_connection(const struct segment *segment)
{
	__u32 tag = tag_of(segment);
	struct connection_bucket *bucket = bucket_of(segment, 0);
	struct connection *found = bucket ? find_way(bucket, tag) : 0;
	/* Different tuples may have the same tag. */
	if (found && is_of(found, &segment->tuple))
		return found;
	bucket = bucket_of(segment, 1);
	found = bucket ? find_way(bucket, tag) : 0;
	return found && is_of(found, &segment->tuple) ? found : 0;
}

/* Units of `seen` for which a finished connection keeps its slot: the client may not have received our FIN yet. */
#define LINGER 4

/* Prepares the options of replies to the segment: timestamps, if its connection has them. */
static __always_inline void set_reply_options(struct segment *segment, const struct connection *connection)
{
	segment->reply_options_len = connection->has_timestamps ? TIMESTAMPS_LEN : 0;
	segment->clock_offset = connection->clock_offset;
}

/* Eviction rank of a slot: 0 is free, then connections that have just finished, then markers of kernel connections,
 * then live connections by idle time. Live connections rank 0x10000 at least, those that need their slot
 * (needs_slot) higher. */
static __always_inline __u32 eviction_rank(const struct connection *connection, __u16 now, __u32 idle)
{
	__u16 age = units_since(now, connection->seen);
	if (!connection->tag)
		return 0;
	if (needs_slot(connection))
		return age > idle ? 0x10000 : 0x20000 + 0x7fff - age;
	/* The server has closed, and the end of its response may still be in flight. */
	if (is_shifted(connection) && age <= LINGER)
		return 0x20000;
	if (age > idle)
		return 0;
	if (has_ended(connection))
		return age <= LINGER;
	/* The idle limit is 0x7fff at most, so the difference is never negative. */
	return (is_kernel_owned(connection) ? 2 : 0x10000) + 0x7fff - age;
}

/* Surveys a bucket. Returns (number of free slots) << 32
 * (lowest rank) << 8
 * (index of the slot with that rank). */
SEPARATE __u64 survey(const struct connection_bucket *bucket ARG, __u32 now, __u32 idle)
{
	__u64 least = ~0u, vacant = 0;
	/* Always 0, but unknown to the verifier, which would otherwise follow each possible rank of one slot through
	 * all slots after it. */
	__u32 same = now;
	OPAQUE(same);
	__u64 zero = now - same;
	OPAQUE(zero);

	for (__u32 i = 0; i < CONNECTION_WAYS; i++) {
		__u64 value = ((__u64)eviction_rank(&bucket->way[i], now, idle) << 8 | i) + zero;
		vacant += value < 1 << 8;
		least = value < least ? value : least;
	}
	return vacant << 32 | least;
}

#define WORTH_LIVE (0x10000 << 8)

/* Records the handshake of an evicted connection again if its client has not sent a request yet, so that the request
 * can complete the handshake a second time. */
SEPARATE int remember_evicted(const struct connection *old ARG, __u64 now_ns)
{
	struct control *control = level_control();
	struct handshake handshake = {
		.client_isn = old->rcv_nxt - 1, .isn = old->snd_nxt - 1,
		.offer = { .mss = old->mss, .options = old->options },
	};

	if (control && old->state == STATE_OPEN && !old->request_len)
		record_half_open(&old->tuple, hash_of(&old->tuple, control), control, &handshake, now_ns);
	return 0;
}

/* Allocates a slot for the segment's connection and evicts the slot's old content. A live connection is evicted only in
 * favour of another live one (`is_ours`). Sets the tuple, but not the tag: the caller writes the tag last, which
 * publishes the slot. */
static __always_inline struct connection *allocate_connection(const struct segment *segment, __u32 idle, int is_ours)
{
	__u32 tag = tag_of(segment);
	__u16 now = seen_at(segment->now_ns);
	struct connection_bucket *first = bucket_of(segment, 0), *second = bucket_of(segment, 1);
	struct connection *slot, *other;

	if (!first || !second)
		return 0;
	/* A known connection keeps its slot. If two connections in one bucket had the same tag, lookups would find only
	 * the first. */
	slot = find_way(first, tag);
	other = find_way(second, tag);
	if (other && (!slot || is_of(other, &segment->tuple)))
		slot = other;
	if (slot && !is_of(slot, &segment->tuple) && eviction_rank(slot, now, idle) >= WORTH_LIVE >> 8)
		return 0;
	if (!slot) {
		__u64 of_first = survey(first, now, idle), of_second = survey(second, now, idle);
		/* Chooses the bucket with more free slots; without free slots, the bucket with the lower-ranked
		 * victim. */
		int is_second = of_first >> 32 != of_second >> 32 ? of_second >> 32 > of_first >> 32
								  : (__u32)of_second < (__u32)of_first;
		__u32 least = is_second ? of_second : of_first;

		if (least >= WORTH_LIVE) {
			if (!is_ours)
				return 0;
			count(reason_tcp_evicted);
		}
		slot = &(is_second ? second : first)->way[least & (CONNECTION_WAYS - 1)];
		if (least >= WORTH_LIVE)
			remember_evicted(slot, segment->now_ns);
	}
	/* Without a tag, the slot is invisible to other processors while it is filled. */
	slot->tag = 0;
	slot->tuple = segment->tuple;
	slot->answer = 0;
	slot->answer_len = 0;
	slot->request_len = 0;
	slot->socket = SOCKET_NONE;
	slot->socket_rcv = slot->socket_snd = 0;
	slot->seen = now;
	slot->handshake = 0;
	return slot;
}
