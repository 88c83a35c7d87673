/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Sends responses of several segments. TC sends them as clones of the current frame, one after the other. Native XDP
 * can send only one frame for each received one: there, the frame is overwritten with the number of a batch, the kernel
 * broadcasts copies of it (DEVMAP with BPF_F_BROADCAST), and a program at devmap egress turns each copy into a segment
 * of the response. Independent of TCP rules. */
#pragma once

#include "answers.h"

/* Consecutive segments of a response. */
struct parts {
	/* Slot number of the response. */
	__u32 number;
	/* Sequence number of the response's first byte. */
	__u32 seq;
	__u32 ack;
	/* Bytes of the response, and bytes in each segment but the last. */
	__u16 len;
	__u16 cut;
	/* Window as in the header, scaled. */
	__u16 window;
	__u8 first;
	__u8 count;
	__u8 closes;
	__u8 spare[3];
};

/* Rewrites the frame into one segment. Returns 0, or a negative number if it fails; the frame is unchanged then. */
SEPARATE int write_part(context *ctx, const struct control *control ARG, const struct segment *segment ARG,
			const struct parts *parts ARG, __u32 index)
{
	__u32 number = parts->number, cut = parts->cut, from = index * cut, left = parts->len - from;
	struct response *response = bpf_map_lookup_elem(&responses, &number);
	int is_last = left <= cut;
	struct answer answer = {
		.seq = parts->seq + from, .ack = parts->ack, .window = parts->window,
		.flags = FLAG_ACK | (is_last ? FLAG_PSH : 0) | (is_last && parts->closes ? FLAG_FIN : 0),
		.is_turned = index != parts->first,
	};

	if (!response || from >= parts->len)
		return -1;
#ifdef TIER_XDP
	/* Each segment is made from a separate copy with the original addresses. */
	answer.is_turned = 0;
#endif
	OPAQUE(index);
	if (index >= PARTS_MAX)
		return -1;
	answer.sum = response->sums[cut != RESPONSE_MAX][index];
	return write_response(ctx, control, segment, response, &answer, from, is_last ? left : cut);
}

#ifdef TIER_XDP

/* A batch of segments, made from copies of one frame. */
struct part_batch {
	struct segment segment;
	struct parts parts;
	/* Serial number, which the copies carry. */
	__u32 serial;
	/* Number of segments made so far. */
	__u32 made;
};

/* The batches of a processor. Copies are sent at the end of the driver's NAPI poll at the latest, and about sixteen at
 * a time, so fewer batches than this are pending. */
#define PART_BATCHES 64
struct part_batch_ring {
	/* Serial number of the last batch. */
	__u32 serial;
	__u32 spare;
	struct part_batch batch[PART_BATCHES];
};

/* Offset of the serial number in the frame: behind the longest headers. */
#define SERIAL_AT (V6_TCP_AT + TCP_LEN)
#define BATCH_FRAME_LEN (SERIAL_AT + sizeof(__u32))

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct part_batch_ring);
} part_batches SEC(".maps");

static __always_inline struct part_batch *find_part_batch(__u32 serial)
{
	__u32 zero = 0;
	struct part_batch_ring *all = bpf_map_lookup_elem(&part_batches, &zero);

	if (!all)
		return 0;
	/* Otherwise the compiler would compute the offset before the null check. */
	OPAQUE(all);
	return &all->batch[serial & (PART_BATCHES - 1)];
}

/* The serial number in the frame; 0 if the frame is too short. */
static __always_inline __u32 *serial_in(context *ctx)
{
	__u32 *serial = frame_begin(ctx) + SERIAL_AT;
	return (void *)(serial + 1) <= frame_end(ctx) ? serial : 0;
}

/* For each interface and number of segments (both in the key), a DEVMAP that lists the interface that many times. User
 * space fills it if the driver can send redirected frames. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_DEVMAP);
		__uint(max_entries, 1);
		__uint(key_size, sizeof(__u32));
		__uint(value_size, sizeof(struct bpf_devmap_val));
	});
} fan_out SEC(".maps");

static __always_inline void *copies_for(context *ctx, __u32 count)
{
	__u64 key = (__u64)interface_of(ctx) << FAN_OUT_SHIFT | count;
	return bpf_map_lookup_elem(&fan_out, &key);
}

/* Whether this program can send this many segments. */
static __always_inline int can_send(context *ctx, __u32 count)
{
	return count == 1 || copies_for(ctx, count);
}

/* Records the batch for the copies of the frame, which already has its new length. Returns 0 on success. */
static __always_inline int record_part_batch(context *ctx, const struct segment *segment, const struct parts *parts)
{
	__u32 zero = 0, *serial = serial_in(ctx);
	struct part_batch_ring *all = bpf_map_lookup_elem(&part_batches, &zero);
	struct part_batch *batch;

	if (!all || !serial)
		return -1;
	batch = find_part_batch(++all->serial);
	if (!batch)
		return -1;
	batch->segment = *segment;
	/* The copies have this length. */
	batch->segment.frame_len = BATCH_FRAME_LEN;
	batch->parts = *parts;
	batch->serial = *serial = all->serial;
	batch->made = 0;
	return 0;
}

/* Sends the segments, or returns NOT_SENT. */
SEPARATE int send_parts(context *ctx, const struct segment *segment ARG, const struct parts *parts ARG)
{
	struct control *control = level_control();
	void *copies;

	if (!control)
		return NOT_SENT;
	if (parts->count == 1)
		return write_part(ctx, control, segment, parts, parts->first) ? NOT_SENT : frame_reply(ctx);
	copies = copies_for(ctx, parts->count);
	if (!copies || frame_resize(ctx, segment->frame_len, BATCH_FRAME_LEN))
		return NOT_SENT;
	/* The frame is truncated by now, so after a failure only the client can repeat the request. */
	return record_part_batch(ctx, segment, parts) ? VERDICT_DROP : bpf_redirect_map(copies, 0, BPF_F_BROADCAST);
}

/* Turns the frame, which is one of the copies, into the next segment. Copies arrive in order, on the processor that
 * sent them; if any are missing, they are the last ones. */
static __always_inline int make_part(context *ctx)
{
	__u32 *serial = serial_in(ctx);
	struct part_batch *batch = serial ? find_part_batch(*serial) : 0;
	struct control *control = level_control();

	/* A foreign frame, or a copy of a batch that was overwritten. */
	if (!control || !batch || batch->serial != *serial || batch->made >= batch->parts.count)
		return XDP_DROP;
	return write_part(ctx, control, &batch->segment, &batch->parts, batch->parts.first + batch->made++)
		       ? XDP_DROP : XDP_PASS;
}

#else

static __always_inline int can_send(context *ctx, __u32 count)
{
	return 1;
}

/* Sends the segments, or returns NOT_SENT. After the first one, a failure is handled like a loss on the wire. */
SEPARATE int send_parts(context *ctx, const struct segment *segment ARG, const struct parts *parts ARG)
{
	struct control *control = level_control();

	for (__u32 i = 0; control && i < PARTS_MAX && i < parts->count; i++) {
		if (write_part(ctx, control, segment, parts, parts->first + i))
			return i ? VERDICT_DROP : NOT_SENT;
		if (i + 1 < parts->count)
			/* The clone carries this segment; the frame is reused for the next one. */
			bpf_clone_redirect(ctx, ctx->ifindex, 0);
	}
	return frame_reply(ctx);
}

#endif
