/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The only difference between the XDP and the TC tier: the type of a frame's context, and how to read, resize and send
 * the frame. */
#pragma once

#include "maps.h"

/* Marks on frames between the programs at TC: a segment injected towards the kernel in a client's name; a response;
 * a segment that re-enters the program. All levels use the same marks, each on frames of its ports (is_marked). */
#define TC_INDEX_INJECTED 0x4c57
#define TC_INDEX_ANSWER 0x4c58
#define TC_INDEX_REPEATED 0x4c59
/* Marks on frames with translated sequence numbers, inbound and outbound. A stacked device (bond, VLAN, bridge) would
 * bring these frames through the programs a second time. */
#define TC_INDEX_SHIFTED_IN 0x4c5a
#define TC_INDEX_SHIFTED_OUT 0x4c5b

#define TC_ACT_SHOT 2

/* Not a verdict: nothing was sent, and the frame is unchanged. */
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

/* Resizes the frame from `from` to `to` bytes. */
static __always_inline long frame_resize(context *ctx, __u32 from, __u32 to)
{
	return bpf_xdp_adjust_tail(ctx, (int)to - (int)from);
}

static __always_inline int frame_reply(context *ctx)
{
	return XDP_TX;
}

/* XDP_TX bypasses the egress program, so the frame needs no mark. */
static __always_inline void mark_as_answer(context *ctx)
{
}

/* XDP has no metadata about the driver's checksum verification. */
static __always_inline __u8 frame_summed(context *ctx)
{
	return 0;
}

static __always_inline __u32 interface_of(context *ctx)
{
	return ctx->ingress_ifindex;
}

/* XDP runs before the kernel allocates an skb, so no socket owns the frame. */
static __always_inline int frame_is_owned(context *ctx)
{
	return 0;
}

static __always_inline int frame_disown(context *ctx)
{
	return 0;
}

/* The loopback device has no native XDP. */
static __always_inline int is_on_loopback(context *ctx)
{
	return 0;
}

/* Stores a mark in the frame's metadata. Returns nonzero if the driver has no room for metadata, or does not pass it
 * on. */
static __always_inline int frame_mark(context *ctx, __u32 mark)
{
	struct control *control = level_control();
	__u32 *meta;

	if (!control)
		return -1;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta))) {
		/* From now on the program at TC checks every frame. */
		control->meta_broken = 1;
		return -1;
	}
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return -1;
	*meta = mark;
	return 0;
}

/* Marks the frame for full processing by the program at TC. If true, the caller must return VERDICT_PASS, and must
 * not have changed any state for the frame. */
static __always_inline int defer_to_tc(context *ctx)
{
	struct control *control = level_control();
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

/* The mark lets the egress program pass it. */
static __always_inline void mark_as_answer(context *ctx)
{
	ctx->tc_index = TC_INDEX_ANSWER;
}

/* The kernel's knowledge of the checksum (skb->ip_summed). */
static __always_inline __u8 frame_summed(context *ctx)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	return BPF_CORE_READ_BITFIELD(skb, ip_summed);
}

static __always_inline __u32 interface_of(context *ctx)
{
	return ctx->ifindex;
}

/* Whether the skb is charged to a local socket: that of a client on the other end of a veth pair. If such a frame were
 * lengthened, its truesize would not grow with it, and the client's TCP would divide by zero (Linux 6.18,
 * __tcp_measure_rcv_mss). */
static __always_inline int frame_is_owned(context *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	if (!sk)
		return 0;
	sk = bpf_sk_fullsock(sk);
	return sk && sk->protocol == IPPROTO_TCP;
}

/* Replaces the frame with a clone, which belongs to no socket. */
static __always_inline int frame_disown(context *ctx)
{
	/* The clone has no skb->sk. */
	bpf_clone_redirect(ctx, ctx->ifindex, BPF_F_INGRESS);
	return VERDICT_DROP;
}

static __always_inline int is_on_loopback(context *ctx)
{
	return interface_of(ctx) == LOOPBACK_IFINDEX;
}

/* Returns 0: this is the program at TC, so no frame needs to be deferred. */
static __always_inline int defer_to_tc(context *ctx)
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
