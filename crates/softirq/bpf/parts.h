/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Answers of several segments, and how they leave: at TC as copies of the frame at hand, one behind the
 * other; in native XDP, which sends one frame for each that came, as copies that the kernel makes of a
 * frame which names what they shall be (DEVMAP with BPF_F_BROADCAST): a program behind that makes the
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
	/* Each is made of a frame of its own. */
	answer.is_turned = 0;
#endif
	OPAQUE(index);
	if (index >= PARTS_MAX)
		return -1;
	answer.sum = response->sums[cut != RESPONSE_MAX][index];
	return write_response(ctx, control, segment, response, &answer, from, is_last ? left : cut);
}

#ifdef TIER_XDP

/* What is made of the copies of a frame. */
struct parcel {
	struct segment segment;
	struct parts parts;
	/* By which the frame names it. */
	__u32 serial;
	/* How many parts were made. */
	__u32 made;
};

/* Each processor's. Copies leave at the end of the driver's round at the latest, and some sixteen of them at once,
 * so that this many are never under way. */
#define PARCELS 64
struct parcels {
	/* Of the last. */
	__u32 serial;
	__u32 spare;
	struct parcel parcel[PARCELS];
};

/* Where the number stands in the frame: behind its headers, whatever they are. */
#define SERIAL_AT (V6_TCP_AT + TCP_LEN)
#define PARCEL_LEN (SERIAL_AT + sizeof(__u32))

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct parcels);
} parcels SEC(".maps");

static __always_inline struct parcel *parcel_of(__u32 serial)
{
	__u32 zero = 0;
	struct parcels *all = bpf_map_lookup_elem(&parcels, &zero);

	if (!all)
		return 0;
	/* Before that nothing may be added to it. */
	OPAQUE(all);
	return &all->parcel[serial & (PARCELS - 1)];
}

/* The frame's number; 0: there is no room. */
static __always_inline __u32 *serial_in(context *ctx)
{
	__u32 *serial = frame_begin(ctx) + SERIAL_AT;
	return (void *)(serial + 1) <= frame_end(ctx) ? serial : 0;
}

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

/* Writes down what is to become of the copies of the frame, which has its new length: 0. */
static __always_inline int note_parcel(context *ctx, const struct segment *segment, const struct parts *parts)
{
	__u32 zero = 0, *serial = serial_in(ctx);
	struct parcels *all = bpf_map_lookup_elem(&parcels, &zero);
	struct parcel *parcel;

	if (!all || !serial)
		return -1;
	parcel = parcel_of(++all->serial);
	if (!parcel)
		return -1;
	parcel->segment = *segment;
	parcel->segment.frame_len = PARCEL_LEN;
	parcel->parts = *parts;
	parcel->serial = *serial = all->serial;
	parcel->made = 0;
	return 0;
}

/* Sends the parts, or NOT_SENT. */
SEPARATE int send_parts(context *ctx, const struct segment *segment ARG, const struct parts *parts ARG)
{
	struct control *control = steering();
	void *copies;

	if (!control)
		return NOT_SENT;
	if (parts->count == 1)
		return write_part(ctx, control, segment, parts, parts->first) ? NOT_SENT : frame_reply(ctx);
	copies = copies_for(ctx, parts->count);
	if (!copies || frame_resize(ctx, segment->frame_len, PARCEL_LEN))
		return NOT_SENT;
	return note_parcel(ctx, segment, parts) ? VERDICT_DROP : bpf_redirect_map(copies, 0, BPF_F_BROADCAST);
}

/* The frame, one of the copies, becomes the next part. They come in their order, on the processor that sent
 * them; if one is missing, it is the last. */
static __always_inline int make_part(context *ctx)
{
	__u32 *serial = serial_in(ctx);
	struct parcel *parcel = serial ? parcel_of(*serial) : 0;
	struct control *control = steering();

	if (!control || !parcel || parcel->serial != *serial || parcel->made >= parcel->parts.count)
		return XDP_DROP;
	return write_part(ctx, control, &parcel->segment, &parcel->parts, parcel->parts.first + parcel->made++)
		       ? XDP_DROP : XDP_PASS;
}

#else

static __always_inline int can_send(context *ctx, __u32 count)
{
	return 1;
}

/* Sends the parts, or NOT_SENT. What is lost behind the first is lost as on the wire. */
SEPARATE int send_parts(context *ctx, const struct segment *segment ARG, const struct parts *parts ARG)
{
	struct control *control = steering();

	for (__u32 i = 0; control && i < PARTS_MAX && i < parts->count; i++) {
		if (write_part(ctx, control, segment, parts, parts->first + i))
			return i ? VERDICT_DROP : NOT_SENT;
		if (i + 1 < parts->count)
			bpf_clone_redirect(ctx, ctx->ifindex, 0);
	}
	return frame_reply(ctx);
}

#endif
