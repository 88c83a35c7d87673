/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Fast path for small cached responses: answers an HTTP request in response to the segment that carries it, before the
 * kernel assigns the segment to a socket.
 * The file is compiled twice: with TIER_XDP for native XDP, without it for TC. The TC object has three programs: one at
 * ingress that does everything (without native XDP), one at ingress behind native XDP that does only the work for which
 * XDP lacks helpers, and one at egress. Call graph:
 *
 *   frame -> parse -> on_segment -> on_syn | on_connection_segment -> on_request -> choose -> write_answer
 *                                |                                              \-> punt -> migrate -> assign
 *                                \-> take_back -> on_connection_segment
 *   frame -> on_egress -> on_response | on_parked_leftover
 *
 * Headers: packet.h: frames; checksum.h: checksums; hash.h: hashes for tables. handshake.h, half_open.h, cookie.h: from
 * SYN to connection. connections.h: the connection table; connection_state.h: predicates over its states. tcp.h: the
 * state machine; buffered.h: buffered early segments; flight.h, parts.h: responses of several segments. answers.h: from
 * a request to its response; memo.h: request memos; request.h: HTTP parser; responses.h: stored responses; events.h:
 * events for user space. socket_lookup.h, migrate.h, time_wait.h, inject.h: kernel sockets and migration.
 * response_tracking.h, framing.h: tracking of the exchange on a migrated connection; reclaim.h: reclaiming it;
 * parked.h, path_mtu.h: parked sockets and translated sequence numbers; egress.h: egress; ip_fragments.h, ip_options.h:
 * IP options, extension headers, fragments. */
#include "path_mtu.h"
#include "tcp.h"
#include "ip_fragments.h"
#ifndef TIER_XDP
#include "egress.h"
#endif

static __always_inline int is_off(const struct control *control)
{
	return control->mode == MODE_OFF || control->resting == ASLEEP;
}

static __always_inline int on_frame(context *ctx, void *begin, void *end, __u32 frame_len)
{
	struct control *control = level_control();
	struct segment segment;
	enum parsed parsed;

	if (!control || is_off(control))
		return VERDICT_PASS;
	parsed = parse(begin, end, frame_len, control, &segment);
#ifdef TIER_XDP
	/* bpf_skb_adjust_room, which removes such headers, exists at TC only. */
	if (parsed != PARSED && is_wrapped(begin, end))
		return defer_to_tc(ctx) ? VERDICT_PASS : pass_to_kernel(reason_pass_fragment);
#endif
	switch (parsed) {
	case PARSED:
		return on_segment(ctx, control, &segment);
	case NOT_PLAIN:
		return pass_to_kernel(reason_pass_fragment);
	case WRONG_SUM:
		return pass_to_kernel(reason_drop_sum);
	default:
		on_other_frame(ctx, begin, end, &segment);
		return pass_to_kernel(reason_pass_other);
	}
}

#ifdef TIER_XDP

SEC("xdp.frags")
int lowroad_xdp(struct xdp_md *ctx)
{
	void *begin = frame_begin(ctx), *end = frame_end(ctx);
	return on_frame(ctx, begin, end, bpf_xdp_get_buff_len(ctx));
}

/* Runs on each copy of a frame at devmap egress, and turns it into one segment of a long response. */
SEC("xdp.frags/devmap")
int lowroad_part(struct xdp_md *ctx)
{
	return make_part(ctx);
}

#else

static __always_inline int on_skb(struct __sk_buff *skb)
{
	struct control *control = level_control();

	/* This check comes first, so that an inactive level costs other traffic next to nothing. */
	if (!control || is_off(control))
		return VERDICT_PASS;
	/* A tag that is still present belongs to a VLAN without an interface on this machine, or carries only a
	 * priority: the kernel decides. */
	if (skb->vlan_present)
		return pass_to_kernel(reason_pass_other);
	/* The headers are usually in the linear part of a large frame, but drivers need not put them there. */
	if ((void *)(long)skb->data + V6_TCP_AT + TCP_LEN > (void *)(long)skb->data_end)
		bpf_skb_pull_data(skb, skb->len < V6_TCP_AT + TCP_LEN ? skb->len : V6_TCP_AT + TCP_LEN);
	if (is_wrapped((void *)(long)skb->data, (void *)(long)skb->data_end))
		return on_wrapped(skb);
	return on_frame(skb, (void *)(long)skb->data, (void *)(long)skb->data_end, skb->len);
}

/* Whether this level has already injected or translated the frame, so that it must pass unchanged. */
static __always_inline int is_for_kernel(struct __sk_buff *skb)
{
	return is_injected(skb) || skb->tc_index == TC_INDEX_SHIFTED_IN;
}

SEC("tc")
int lowroad_tc(struct __sk_buff *skb)
{
	return is_for_kernel(skb) ? TCX_NEXT : on_skb(skb);
}

static __always_inline int on_migrated_segment(struct __sk_buff *skb)
{
	struct control *control = level_control();
	struct connection *connection;
	struct segment segment;

	if (!control || parse((void *)(long)skb->data, (void *)(long)skb->data_end, skb->len, control,
			      &segment) != PARSED)
		return TCX_NEXT;
	connection = find_connection(&segment);
	if (!connection)
		return TCX_NEXT;
	/* The helpers for assignment and for checksum updates exist at TC only. */
	if (connection->state == STATE_HANDED && assign(skb, &segment, connection))
		return TC_ACT_SHOT;
	if (is_shifted(connection) && shift_in(skb, &segment, connection))
		return TC_ACT_SHOT;
	return TCX_NEXT;
}

/* Ingress program behind native XDP. Processes the frames that the XDP program has marked. If the driver does not
 * deliver metadata, checks every frame for a migrating connection. */
SEC("tc")
int lowroad_marked(struct __sk_buff *skb)
{
	__u32 *meta = (void *)(long)skb->data_meta, mark = 0;
	struct control *control = level_control();

	if (!control || is_for_kernel(skb))
		return TCX_NEXT;
	if ((void *)(meta + 1) <= (void *)(long)skb->data)
		mark = *meta;
	else if (control->meta_broken)
		mark = META_HAND_OVER;
	if (mark == META_AGAIN)
		return on_skb(skb);
	/* A re-injected segment has a mark in tc_index, but no metadata. */
	return mark == META_HAND_OVER || skb->tc_index == TC_INDEX_REPEATED ? on_migrated_segment(skb) : TCX_NEXT;
}

/* Egress program of both tiers. Responses that this level sends from TC pass through it, too. */
SEC("tc")
int lowroad_out(struct __sk_buff *skb)
{
	if (is_marked(skb, TC_INDEX_ANSWER, TCP_SOURCE_AT)) {
		skb->tc_index = 0;
		return TCX_NEXT;
	}
	return skb->tc_index == TC_INDEX_SHIFTED_OUT ? TCX_NEXT : on_egress(skb);
}

#endif

/* The helpers used here require a GPL-compatible program; the file itself is dual-licensed. */
char LICENSE[] SEC("license") = "GPL";
