/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Answers of several segments, and how they leave: at TC as copies of the frame at hand, one behind the
 * other; in native XDP, which sends one frame for each that came, as copies that the kernel makes of a
 * frame which says what they shall be (DEVMAP with BPF_F_BROADCAST): a program behind that makes the
 * parts of them. It knows no rules of TCP. */
#pragma once

#include "answers.h"

/* Consecutive parts of an answer. */
struct parts {
	/* Of the response. */
	__u32 number;
	/* Of the answer's first byte. */
	__u32 seq;
	__u32 ack;
	/* Of the answer; and of each part but the last. */
	__u16 len;
	__u16 cut;
	/* As it stands in the header. */
	__u16 window;
	__u8 first;
	__u8 count;
	__u8 closes;
	__u8 spare[3];
};

/* Makes the frame one part: 0, or negative with the frame as it was. */
SEPARATE int write_part(context *ctx, const struct segment *segment ARG, const struct parts *parts ARG, __u32 index)
{
	__u32 number = parts->number, cut = parts->cut, from = index * cut, left = parts->len - from;
	struct response *response = bpf_map_lookup_elem(&responses, &number);
	struct control *control = steering();
	int is_last = left <= cut;
	struct answer answer = {
		.seq = parts->seq + from, .ack = parts->ack, .window = parts->window,
		.flags = FLAG_ACK | (is_last ? FLAG_PSH : 0) | (is_last && parts->closes ? FLAG_FIN : 0),
		.is_turned = index != parts->first,
	};

	if (!response || !control || index >= PARTS_MAX || from >= parts->len)
		return -1;
#ifdef TIER_XDP
	/* Each is made of a frame of its own. */
	answer.is_turned = 0;
#endif
	answer.sum = response->sums[cut != RESPONSE_MAX][index];
	return write_response(ctx, control, segment, response, &answer, from, is_last ? left : cut);
}

#ifdef TIER_XDP

/* What a frame says of the parts that are made of its copies, behind its headers. */
struct parcel {
	struct segment segment;
	struct parts parts;
	/* Counted by each processor. */
	__u32 serial;
	/* Of the parcel that the last part was made of, and how many were. */
	__u32 served;
	__u32 made;
	__u32 spare;
};

#define PARCEL_LEN offsetof(struct parcel, served)
#define PARCEL_AT (V6_TCP_AT + TCP_LEN)

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct parcel);
} parcels SEC(".maps");

/* For each interface and each number of parts (both in the key) an array that names the interface so many
 * times: user space fills it where the driver sends frames of others. */
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

/* Whether so many parts can be sent from here. */
static __always_inline int can_send(context *ctx, __u32 count)
{
	return count == 1 || copies_for(ctx, count);
}

/* Sends the parts, or NOT_SENT. */
SEPARATE int send_parts(context *ctx, const struct segment *segment ARG, const struct parts *parts ARG)
{
	__u32 zero = 0, len = PARCEL_AT + PARCEL_LEN;
	struct parcel *parcel = bpf_map_lookup_elem(&parcels, &zero);
	void *copies;

	if (parts->count == 1)
		return write_part(ctx, segment, parts, parts->first) ? NOT_SENT : frame_reply(ctx);
	copies = copies_for(ctx, parts->count);
	if (!parcel || !copies || frame_resize(ctx, segment->frame_len, len))
		return NOT_SENT;
	parcel->segment = *segment;
	parcel->segment.frame_len = len;
	parcel->parts = *parts;
	parcel->serial++;
	frame_store(ctx, PARCEL_AT, parcel, PARCEL_LEN);
	return bpf_redirect_map(copies, 0, BPF_F_BROADCAST);
}

/* The frame, one of the copies, becomes the next part. They come in their order, on the processor that sent
 * them; if one is missing, it is the last. */
static __always_inline int make_part(context *ctx)
{
	__u32 zero = 0;
	struct parcel *last = bpf_map_lookup_elem(&parcels, &zero), *parcel;
	struct scratch *scratch = scratch_memory();

	if (!scratch || !last)
		return XDP_DROP;
	OPAQUE(scratch);
	parcel = (struct parcel *)scratch->head;
	if (frame_load(ctx, PARCEL_AT, parcel, PARCEL_LEN))
		return XDP_DROP;
	if (last->served != parcel->serial) {
		last->served = parcel->serial;
		last->made = 0;
	}
	if (last->made >= parcel->parts.count)
		return XDP_DROP;
	return write_part(ctx, &parcel->segment, &parcel->parts, parcel->parts.first + last->made++) ? XDP_DROP
												     : XDP_PASS;
}

#else

static __always_inline int can_send(context *ctx, __u32 count)
{
	return 1;
}

/* Sends the parts, or NOT_SENT. What is lost behind the first is lost as on the wire. */
SEPARATE int send_parts(context *ctx, const struct segment *segment ARG, const struct parts *parts ARG)
{
	for (__u32 i = 0; i < PARTS_MAX && i < parts->count; i++) {
		if (write_part(ctx, segment, parts, parts->first + i))
			return i ? VERDICT_DROP : NOT_SENT;
		if (i + 1 < parts->count)
			bpf_clone_redirect(ctx, ctx->ifindex, 0);
	}
	return frame_reply(ctx);
}

#endif
