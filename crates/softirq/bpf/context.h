/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The one difference between the tiers: what a frame is, and how it is read, resized and sent. */
#pragma once

#include "maps.h"

/* Marks on frames between the programs at TC: a segment injected towards the kernel in a client's name; an answer; a
 * segment that re-enters the program. All levels use the same marks, each on frames of its ports (is_marked). */
#define TC_INDEX_INJECTED 0x4c57
#define TC_INDEX_ANSWER 0x4c58
#define TC_INDEX_REPEATED 0x4c59
/* On frames whose numbers were translated, in either direction: another device, on which this one lies or which
 * lies on this one, brings them by here again. */
#define TC_INDEX_SHIFTED_IN 0x4c5a
#define TC_INDEX_SHIFTED_OUT 0x4c5b

#define TC_ACT_SHOT 2

/* A verdict that is none: nothing was sent, and the frame is what it was. */
#define NOT_SENT (-1000)

#ifdef TIER_XDP

typedef struct xdp_md context;
#define KEPT_PARTS_MAX PARTS_MAX
#define VERDICT_PASS XDP_PASS
#define VERDICT_DROP XDP_DROP

static __always_inline long frame_load(context *ctx, __u32 at, void *to, __u32 len)
{
	return bpf_xdp_load_bytes(ctx, at, to, len);
}

static __always_inline long frame_store(context *ctx, __u32 at, const void *from, __u32 len)
{
	return bpf_xdp_store_bytes(ctx, at, (void *)from, len);
}

/* From `from` bytes to `to`. */
static __always_inline long frame_resize(context *ctx, __u32 from, __u32 to)
{
	return bpf_xdp_adjust_tail(ctx, (int)to - (int)from);
}

static __always_inline int frame_reply(context *ctx)
{
	return XDP_TX;
}

/* No other program sees what is sent from here. */
static __always_inline void frame_is_answer(context *ctx)
{
}

/* What the driver says of the checksum is not to be had here. */
static __always_inline __u8 frame_summed(context *ctx)
{
	return 0;
}

static __always_inline __u32 interface_of(context *ctx)
{
	return ctx->ingress_ifindex;
}

/* No socket has it. */
static __always_inline int frame_is_owned(context *ctx)
{
	return 0;
}

static __always_inline int frame_disown(context *ctx)
{
	return 0;
}

/* Native XDP there is not. */
static __always_inline int is_on_loopback(context *ctx)
{
	return 0;
}

/* Not 0: the driver has no room for it, or does not pass it on. */
static __always_inline int frame_mark(context *ctx, __u32 mark)
{
	struct control *control = steering();
	__u32 *meta;

	if (!control)
		return -1;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta))) {
		control->meta_broken = 1;
		return -1;
	}
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return -1;
	*meta = mark;
	return 0;
}

/* Whether the program at TC will see the frame from its beginning: it must pass then, and nothing may
 * have been done about it. */
static __always_inline int frame_again(context *ctx)
{
	struct control *control = steering();
	return control && !control->meta_broken && !frame_mark(ctx, META_AGAIN);
}

#else

typedef struct __sk_buff context;
#define KEPT_PARTS_MAX KEPT_PARTS_MAX_TC
#define VERDICT_PASS TCX_NEXT
#define VERDICT_DROP TC_ACT_SHOT
static __always_inline long frame_load(context *ctx, __u32 at, void *to, __u32 len)
{
	return bpf_skb_load_bytes(ctx, at, to, len);
}

static __always_inline long frame_store(context *ctx, __u32 at, const void *from, __u32 len)
{
	return bpf_skb_store_bytes(ctx, at, from, len, 0);
}

static __always_inline long frame_resize(context *ctx, __u32 from, __u32 to)
{
	return bpf_skb_change_tail(ctx, to, 0);
}

static __always_inline int frame_reply(context *ctx)
{
	return bpf_redirect(ctx->ifindex, 0);
}

/* The program at egress passes it. */
static __always_inline void frame_is_answer(context *ctx)
{
	ctx->tc_index = TC_INDEX_ANSWER;
}

/* What is known of the checksum. */
static __always_inline __u8 frame_summed(context *ctx)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	return BPF_CORE_READ_BITFIELD(skb, ip_summed);
}

static __always_inline __u32 interface_of(context *ctx)
{
	return ctx->ifindex;
}

/* Whether it counts for a socket on this machine, that of the client, as veth leaves it. If such a frame
 * becomes longer, the kernel does not say that it takes more memory, and the client's TCP computes with that:
 * Linux 6.18 divides by zero then (__tcp_measure_rcv_mss). */
static __always_inline int frame_is_owned(context *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	if (!sk)
		return 0;
	sk = bpf_sk_fullsock(sk);
	return sk && sk->protocol == IPPROTO_TCP;
}

/* A copy that counts for nobody comes instead of it. */
static __always_inline int frame_disown(context *ctx)
{
	bpf_clone_redirect(ctx, ctx->ifindex, BPF_F_INGRESS);
	return VERDICT_DROP;
}

static __always_inline int is_on_loopback(context *ctx)
{
	return interface_of(ctx) == LOOPBACK_IFINDEX;
}

/* This is the program at TC. */
static __always_inline int frame_again(context *ctx)
{
	return 0;
}

#endif

static __always_inline void *frame_begin(context *ctx)
{
	return (void *)(long)ctx->data;
}

static __always_inline void *frame_end(context *ctx)
{
	return (void *)(long)ctx->data_end;
}
