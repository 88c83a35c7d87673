/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* IPv4 options and IPv6 extension headers in front of TCP: whether they can be removed, or only the kernel can process
 * the packet, or the kernel drops it. Follows the rules of Linux (ip_options_compile, ip6_parse_tlv, and the handlers
 * of extension headers). Independent of the connection table. */
#pragma once

#include "packet.h"

/* RFC 8200 §4 */
#define IPPROTO_HOP_BY_HOP 0
#define IPPROTO_ROUTING_HEADER 43
#define IPPROTO_FRAGMENT_HEADER 44
#define IPPROTO_DESTINATION_OPTIONS 60
/* Types of routing headers that matter even without segments left (RFC 6275 §6.4, RFC 6554, RFC 8754). */
#define ROUTING_TYPE_MOBILITY 2
#define ROUTING_TYPE_SEGMENTS 4
/* RFC 8200 §4.2, RFC 2711, RFC 5570, RFC 9486 */
#define TLV_PAD1 0
#define TLV_PADN 1
#define TLV_ROUTER_ALERT 5
#define TLV_CALIPSO 7
#define TLV_IOAM 0x31
/* A receiver's action on an unknown option: it drops the packet unless these bits are 0. */
#define TLV_ACTION 0xc0
/* Limits of Linux. */
#define TLV_PADDING_MAX 7
#define TLV_COUNT_MAX 8

/* Upper bound of headers and options in a packet of 1,500 bytes. A packet with a longer chain passes unchanged. */
#define EXTENSION_STEPS_MAX 512

static __always_inline int is_extension(__u32 protocol)
{
	return protocol == IPPROTO_HOP_BY_HOP || protocol == IPPROTO_ROUTING_HEADER ||
	       protocol == IPPROTO_FRAGMENT_HEADER || protocol == IPPROTO_DESTINATION_OPTIONS;
}

#ifndef TIER_XDP

/* The headers and options between a frame's IP header and TCP. */
struct wrapping {
	__u32 len;
	/* Bytes of the TCP segment that are in the frame. */
	__u32 tcp_len;
	/* The packet is a fragment, or has options that only the kernel can process. */
	__u32 needs_kernel;
};

/* Verdicts on options, in request.seen. */
#define OPTIONS_NEED_KERNEL 1
#define OPTIONS_DROPPED 2

/* Context of the callbacks that iterate over options. */
struct options_cursor {
	struct __sk_buff *skb;
	struct scratch *scratch;
};

static long v4_option_step(__u64 index, struct options_cursor *cursor)
{
	struct scratch *scratch = cursor->scratch;
	struct request *request = &scratch->request;
	__u8 kind, len;

	kind = scratch->head[request->at & (HEAD_SIZE - 1)];
	len = scratch->head[(request->at + 1) & (HEAD_SIZE - 1)];
	if (request->at >= request->len || kind == IPOPT_END)
		return 1;
	if (kind == IPOPT_NOOP) {
		request->at++;
		return 0;
	}
	/* Source routes, and malformed options: the kernel drops the packet. */
	if (kind == IPOPT_LSRR || kind == IPOPT_SSRR || len < 2 || request->at + len > request->len) {
		request->seen |= OPTIONS_DROPPED;
		return 1;
	}
	/* Options into which the kernel records, and those for security labels and routers. */
	if (kind == IPOPT_RR || kind == IPOPT_TIMESTAMP || kind == IPOPT_CIPSO || kind == IPOPT_RA)
		request->seen |= OPTIONS_NEED_KERNEL;
	request->at += len;
	return 0;
}

/* Parses an IPv4 header with options, or that of a first fragment. Returns nonzero if the kernel drops the packet. */
SEPARATE int read_v4_options(struct __sk_buff *skb, struct wrapping *found ARG)
{
	struct options_cursor cursor = { .skb = skb, .scratch = scratch_memory() };
	struct scratch *scratch = cursor.scratch;
	__u32 header_len, total_len;
	struct iphdr *ip;

	if (!scratch || bpf_skb_load_bytes(skb, ETH_HLEN, scratch->head, 20))
		return -1;
	ip = (struct iphdr *)scratch->head;
	header_len = (scratch->head[0] & 0xf) * 4;
	OPAQUE(header_len);
	if (header_len < 20 || header_len > 60 || bpf_skb_load_bytes(skb, ETH_HLEN, scratch->head, header_len))
		return -1;
	total_len = bpf_ntohs(ip->tot_len);
	/* bpf_csum_diff needs a length that the verifier knows to be a multiple of four. */
	header_len &= 0x3c;
	if (total_len < header_len || ETH_HLEN + total_len > skb->len ||
	    fold(bpf_csum_diff(0, 0, (__be32 *)scratch->head, header_len, 0)) != 0xffff)
		return -1;
	scratch->request.at = 20;
	scratch->request.len = header_len;
	scratch->request.seen = 0;
	bpf_loop(40, v4_option_step, &cursor, 0);
	found->len = header_len - 20;
	found->tcp_len = total_len - header_len;
	found->needs_kernel = (ip->frag_off & bpf_htons(0x2000)) || scratch->request.seen & OPTIONS_NEED_KERNEL;
	return scratch->request.seen & OPTIONS_DROPPED ? -1 : 0;
}

/* State of the iteration over extension headers and their options; stored in scratch->head. */
struct extension_walk {
	/* Offsets of the next header or option, and of the end of the current header. */
	__u32 at;
	__u32 end;
	__u32 padding;
	__u32 count;
	__u32 seen;
	__u32 next;
};

static __always_inline struct extension_walk *walk_of(struct scratch *scratch)
{
	return (struct extension_walk *)scratch->head;
}

static __always_inline int read_padding(struct __sk_buff *skb, struct extension_walk *walk, __u32 len)
{
	__u8 bytes[8] = {};
	__u32 at = walk->at + 2;

	walk->padding += 2 + len;
	walk->at += 2 + len;
	OPAQUE(len);
	if (walk->padding > TLV_PADDING_MAX || len > TLV_PADDING_MAX - 2)
		return OPTIONS_DROPPED;
	if (len && bpf_skb_load_bytes(skb, at, bytes, len))
		return OPTIONS_DROPPED;
	/* Linux drops packets with padding that is not zero. */
	return *(__u64 *)bytes ? OPTIONS_DROPPED : 0;
}

/* Parses an option of a hop-by-hop or destination options header. */
static __always_inline int read_tlv(struct __sk_buff *skb, struct extension_walk *walk)
{
	__u8 tlv[2];

	if (bpf_skb_load_bytes(skb, walk->at, tlv, sizeof(tlv)))
		return OPTIONS_DROPPED;
	/* Pad1 has no length byte. */
	if (tlv[0] == TLV_PAD1) {
		walk->at++;
		return ++walk->padding > TLV_PADDING_MAX ? OPTIONS_DROPPED : 0;
	}
	if (walk->at + 2 + tlv[1] > walk->end || tlv[0] & TLV_ACTION)
		return OPTIONS_DROPPED;
	if (tlv[0] == TLV_PADN)
		return read_padding(skb, walk, tlv[1]);
	walk->padding = 0;
	walk->at += 2 + tlv[1];
	if (++walk->count > TLV_COUNT_MAX)
		return OPTIONS_DROPPED;
	return tlv[0] == TLV_ROUTER_ALERT || tlv[0] == TLV_CALIPSO || tlv[0] == TLV_IOAM ? OPTIONS_NEED_KERNEL : 0;
}

/* Parses an extension header. */
static __always_inline int read_extension(struct __sk_buff *skb, struct extension_walk *walk)
{
	__u8 header[4];
	__u32 kind = walk->next;
	__u32 len;

	/* A hop-by-hop header is valid only directly behind the IPv6 header (RFC 8200 §4.1). */
	if (!is_extension(kind) || bpf_skb_load_bytes(skb, walk->at, header, sizeof(header)) ||
	    (kind == IPPROTO_HOP_BY_HOP && walk->at != V6_TCP_AT))
		return OPTIONS_DROPPED;
	walk->next = header[0];
	len = (header[1] + 1) * 8;
	if (kind == IPPROTO_FRAGMENT_HEADER) {
		__u16 place = (__u16)header[2] << 8 | header[3];

		walk->at = walk->end = walk->at + 8;
		/* Later fragments have no ports. */
		return place & 0xfff8 ? OPTIONS_DROPPED : place & 1 ? OPTIONS_NEED_KERNEL : 0;
	}
	walk->end = walk->at + len;
	if (kind == IPPROTO_ROUTING_HEADER) {
		walk->at = walk->end;
		/* The packet is addressed to another machine first, or the header is of a type that Linux processes
		 * only if configured. */
		return header[3] || (header[2] >= ROUTING_TYPE_MOBILITY && header[2] <= ROUTING_TYPE_SEGMENTS)
			       ? OPTIONS_DROPPED
			       : 0;
	}
	walk->at += 2;
	walk->padding = walk->count = 0;
	return 0;
}

static long extension_step(__u64 index, struct options_cursor *cursor)
{
	struct extension_walk *walk = walk_of(cursor->scratch);

	if (walk->at == walk->end && walk->next == IPPROTO_TCP)
		return 1;
	walk->seen |= walk->at < walk->end ? read_tlv(cursor->skb, walk) : read_extension(cursor->skb, walk);
	return walk->seen & OPTIONS_DROPPED ? 1 : 0;
}

/* Parses IPv6 extension headers. Returns nonzero if TCP does not follow them, or if the kernel drops the packet. */
SEPARATE int read_extensions(struct __sk_buff *skb, __u32 next, struct wrapping *found ARG)
{
	struct options_cursor cursor = { .skb = skb, .scratch = scratch_memory() };
	struct extension_walk *walk;

	if (!cursor.scratch)
		return -1;
	walk = walk_of(cursor.scratch);
	walk->at = walk->end = V6_TCP_AT;
	walk->next = next;
	walk->seen = 0;
	bpf_loop(EXTENSION_STEPS_MAX, extension_step, &cursor, 0);
	if (walk->seen & OPTIONS_DROPPED || walk->next != IPPROTO_TCP || walk->at != walk->end ||
	    walk->at + TCP_LEN > skb->len)
		return -1;
	found->len = walk->at - V6_TCP_AT;
	found->tcp_len = skb->len - walk->at;
	found->needs_kernel = walk->seen & OPTIONS_NEED_KERNEL;
	return 0;
}

#endif
