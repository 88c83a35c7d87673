/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Answers requests for hot small responses from the segment that asks, before there is a socket.
 * Built twice: for native XDP with TIER_XDP, without for TC, where there are three programs: one at ingress
 * that does everything, one that stands behind native XDP and does what only TC can, and one at egress. From top to
 * bottom:
 *
 *   frame -> parse -> on_segment -> on_syn | on_ours -> on_request -> choose -> send
 *                                |                   \-> up -> hand_over -> assign
 *                                \-> take_back -> on_ours
 *   frame -> on_outgoing -> on_response | on_leftover
 *
 * packet.h: frames; sums.h: their checksums; hash.h: places in tables. handshake.h, half_open.h, cookie.h:
 * SYN to connection. connections.h: the table; connection_state.h: predicates over its states. tcp.h: the rules;
 * held.h: early segments; flight.h, parts.h: answers of several segments. answers.h: a request to its answer; memo.h: requests seen before; request.h:
 * HTTP; responses.h: the store; events.h: what user space hears. sockets.h, handover.h, time_wait.h,
 * injected.h: the kernel's sockets. following.h, framing.h: what these exchange; take_back.h: connections
 * that come back; kept.h, path_mtu.h: numbers that are translated; outgoing.h: what the kernel sends; wrapped.h:
 * IP options, extension headers, fragments.
 */
#include "path_mtu.h"
#include "tcp.h"
#include "wrapped.h"
#ifndef TIER_XDP
#include "outgoing.h"
#endif

static __always_inline int is_off(const struct control *control)
{
	return control->mode == MODE_OFF || control->resting == ASLEEP;
}

static __always_inline int on_frame(context *ctx, void *begin, void *end, __u32 frame_len)
{
	struct control *control = steering();
	struct segment segment;
	enum parsed parsed;

	if (!control || is_off(control))
		return VERDICT_PASS;
	parsed = parse(begin, end, frame_len, control, &segment);
#ifdef TIER_XDP
	/* The program at TC removes headers that native XDP can't. */
	if (parsed != PARSED && is_wrapped(begin, end))
		return frame_again(ctx) ? VERDICT_PASS : pass(reason_pass_fragment);
#endif
	switch (parsed) {
	case PARSED:
		return on_segment(ctx, control, &segment);
	case NOT_PLAIN:
		return pass(reason_pass_fragment);
	case WRONG_SUM:
		return pass(reason_drop_sum);
	default:
		on_foreign(ctx, begin, end, &segment);
		return pass(reason_pass_other);
	}
}

#ifdef TIER_XDP

SEC("xdp.frags")
int lowroad_xdp(struct xdp_md *ctx)
{
	void *begin = frame_begin(ctx), *end = frame_end(ctx);
	return on_frame(ctx, begin, end, bpf_xdp_get_buff_len(ctx));
}

/* Makes the parts of a long answer of the copies of a frame, on their way out. */
SEC("xdp.frags/devmap")
int lowroad_part(struct xdp_md *ctx)
{
	return make_part(ctx);
}

#else

static __always_inline int on_skb(struct __sk_buff *skb)
{
	struct control *control = steering();

	/* Before anything that costs. */
	if (!control || is_off(control))
		return VERDICT_PASS;
	/* Of a VLAN that has no interface here, or with a priority only: the kernel knows which. */
	if (skb->vlan_present)
		return pass(reason_pass_other);
	/* Drivers leave the headers of large frames in one piece, but need not. */
	if ((void *)(long)skb->data + V6_TCP_AT + TCP_LEN > (void *)(long)skb->data_end)
		bpf_skb_pull_data(skb, skb->len < V6_TCP_AT + TCP_LEN ? skb->len : V6_TCP_AT + TCP_LEN);
	if (is_wrapped((void *)(long)skb->data, (void *)(long)skb->data_end))
		return on_wrapped(skb);
	return on_frame(skb, (void *)(long)skb->data, (void *)(long)skb->data_end, skb->len);
}

/* It is as the kernel is to get it. */
static __always_inline int is_for_kernel(struct __sk_buff *skb)
{
	return is_injected(skb) || skb->tc_index == TC_INDEX_SHIFTED_IN;
}

SEC("tc")
int lowroad_tc(struct __sk_buff *skb)
{
	return is_for_kernel(skb) ? TCX_NEXT : on_skb(skb);
}

static __always_inline int on_handed(struct __sk_buff *skb)
{
	struct control *control = steering();
	struct connection *connection;
	struct segment segment;

	if (!control || parse((void *)(long)skb->data, (void *)(long)skb->data_end, skb->len, control,
			      &segment) != PARSED)
		return TCX_NEXT;
	connection = find(&segment);
	if (!connection)
		return TCX_NEXT;
	if (connection->state == STATE_HANDED && assign(skb, &segment, connection))
		return TC_ACT_SHOT;
	if (is_shifted(connection) && shift_in(skb, &segment, connection))
		return TC_ACT_SHOT;
	return TCX_NEXT;
}

/* Behind native XDP: what the program there has marked; nothing else is looked at, if marks arrive. */
SEC("tc")
int lowroad_marked(struct __sk_buff *skb)
{
	__u32 *meta = (void *)(long)skb->data_meta, mark = 0;
	struct control *control = steering();

	if (!control || is_for_kernel(skb))
		return TCX_NEXT;
	if ((void *)(meta + 1) <= (void *)(long)skb->data)
		mark = *meta;
	else if (control->meta_broken)
		mark = META_HAND_OVER;
	if (mark == META_AGAIN)
		return on_skb(skb);
	return mark == META_HAND_OVER || skb->tc_index == TC_INDEX_REPEATED ? on_handed(skb) : TCX_NEXT;
}

/* At TC egress, with both tiers. Answers that this level sends from TC pass here too. */
SEC("tc")
int lowroad_out(struct __sk_buff *skb)
{
	if (is_marked(skb, TC_INDEX_ANSWER, TCP_SOURCE_AT)) {
		skb->tc_index = 0;
		return TCX_NEXT;
	}
	return skb->tc_index == TC_INDEX_SHIFTED_OUT ? TCX_NEXT : on_outgoing(skb);
}

#endif

/* The helpers that are used are for programs that say so; the file itself is dual-licensed. */
char LICENSE[] SEC("license") = "GPL";
