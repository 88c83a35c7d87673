/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Segments of our connections with IPv4 options or IPv6 extension headers, or in fragments. The kernel has no socket
 * for them, and would reset the connection. This program removes options and extension headers, and the segment
 * re-enters the level; after a fragment the connection is handed to the server above, and its client retransmits the
 * segment. All others pass unchanged. Only TC can do that. */
#pragma once

#include "kept.h"

/* RFC 8200 §4 */
#define IPPROTO_HOP_BY_HOP 0
#define IPPROTO_ROUTING_HEADER 43
#define IPPROTO_FRAGMENT_HEADER 44
#define IPPROTO_DESTINATION_OPTIONS 60
/* A longer chain passes unchanged. */
#define EXTENSIONS_MAX 4

static __always_inline int is_extension(__u8 protocol)
{
	return protocol == IPPROTO_HOP_BY_HOP || protocol == IPPROTO_ROUTING_HEADER ||
	       protocol == IPPROTO_FRAGMENT_HEADER || protocol == IPPROTO_DESTINATION_OPTIONS;
}

/* Whether the frame may be one of these, by its IP header, which is at the usual offset. */
static __always_inline int is_wrapped(void *begin, void *end)
{
	struct ethhdr *eth = begin;
	__u8 *ip = begin + ETH_HLEN;

	if (begin + V6_TCP_AT > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		return is_extension(ip[6]);
	/* Options, or a first fragment: later ones have no ports. */
	return eth->h_proto == bpf_htons(ETH_P_IP) && ip[9] == IPPROTO_TCP && !(ip[6] & 0x1f) && !ip[7] &&
	       (ip[0] > 0x45 || ip[6] & 0x20) && ip[0] < 0x50;
}

#ifndef TIER_XDP

/* The headers and options between a frame's IP header and TCP. */
struct wrapping {
	__u32 len;
	__u32 is_fragment;
};

/* Reads IPv6 extension headers. Not 0 if TCP does not follow, or the packet is not for this machine yet. */
static __always_inline int read_extensions(struct __sk_buff *skb, __u8 next, struct wrapping *found)
{
	__u8 header[4];

	for (int i = 0; i < EXTENSIONS_MAX && next != IPPROTO_TCP; i++) {
		if (!is_extension(next) || bpf_skb_load_bytes(skb, V6_TCP_AT + found->len, header, sizeof(header)))
			return -1;
		if (next == IPPROTO_FRAGMENT_HEADER) {
			__u16 place = (__u16)header[2] << 8 | header[3];
			if (place & 0xfff8)
				return -1;
			found->is_fragment |= place & 1;
			found->len += 8;
		} else {
			if (next == IPPROTO_ROUTING_HEADER && header[3])
				return -1;
			found->len += (header[1] + 1) * 8;
		}
		next = header[0];
	}
	return next == IPPROTO_TCP ? 0 : -1;
}

/* Reads the headers of such a frame. 0 if it goes to one of the ports. */
SEPARATE int read_wrapped(struct __sk_buff *skb, struct segment *segment ARG, struct wrapping *found ARG)
{
	void *begin = frame_begin(skb), *end = frame_end(skb);
	struct control *control = steering();
	struct ethhdr *eth = begin;
	__u32 tcp[4];

	if (!control || begin + V6_TCP_AT > end)
		return -1;
	segment->is_v6 = eth->h_proto == bpf_htons(ETH_P_IPV6);
	if (segment->is_v6) {
		struct ipv6hdr *ip = begin + ETH_HLEN;

		memcpy(segment->tuple.client_be, &ip->saddr, 16);
		memcpy(segment->tuple.local_be, &ip->daddr, 16);
		if (read_extensions(skb, ip->nexthdr, found))
			return -1;
		segment->tcp_at = V6_TCP_AT;
	} else {
		struct iphdr *ip = begin + ETH_HLEN;

		set_v4(&segment->tuple, ip->saddr, ip->daddr);
		found->len = (*(__u8 *)ip & 0xf) * 4 - 20;
		found->is_fragment = !!(ip->frag_off & bpf_htons(0x2000));
		segment->tcp_at = V4_TCP_AT;
	}
	if (bpf_skb_load_bytes(skb, segment->tcp_at + found->len, tcp, sizeof(tcp)))
		return -1;
	segment->tuple.client_port_be = tcp[0];
	segment->tuple.local_port_be = tcp[0] >> 16;
	segment->seq = bpf_ntohl(tcp[1]);
	segment->ack = bpf_ntohl(tcp[2]);
	segment->flags = bpf_ntohl(tcp[3]) >> 16;
	segment->window = bpf_ntohl(tcp[3]);
	segment->summed = frame_summed(skb);
	segment->hash = hash_of(&segment->tuple, control);
	return is_in(control->ports, bpf_ntohs(segment->tuple.local_port_be)) ? 0 : -1;
}

/* Removes `len` bytes after the IP header. Not 0 on failure: the frame must then be dropped. */
SEPARATE int unwrap(struct __sk_buff *skb, __u32 is_v6, __u32 len)
{
	__u32 ip[5];

	if (!len || bpf_skb_adjust_room(skb, -(__s32)len, BPF_ADJ_ROOM_NET, 0) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN, ip, sizeof(ip)))
		return -1;
	if (is_v6) {
		__u32 payload_len = (bpf_ntohl(ip[1]) >> 16) - len;

		ip[1] = bpf_htonl(payload_len << 16 | IPPROTO_TCP << 8 | (bpf_ntohl(ip[1]) & 0xff));
	} else {
		__u32 word = bpf_ntohl(ip[0]);

		ip[0] = bpf_htonl(0x45000000 | (word & 0xff0000) | ((word & 0xffff) - len));
		ip[2] &= bpf_htonl(0xffff0000);
		ip[2] |= (__u32)(__u16)~fold(words_of(ip, 5)) << 16;
	}
	return bpf_skb_store_bytes(skb, ETH_HLEN, ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM);
}

/* If the client has acknowledged everything, the kernel creates the connection's socket from a copy of the frame with
 * that acknowledgement alone, and the client retransmits the segment to the socket. */
static __always_inline void lift(struct __sk_buff *skb, const struct segment *segment, struct connection *connection)
{
	if ((segment->flags & (FLAG_ACK | FLAG_SYN | FLAG_RST)) != FLAG_ACK || segment->seq != connection->rcv_nxt ||
	    segment->ack != connection->snd_nxt)
		return;
	if (connection->state == STATE_OPEN) {
		if (connection->socket == SOCKET_KEPT)
			end_kept(skb, segment, connection, FLAG_RST);
		connection->answer = 0;
		connection->socket = SOCKET_NONE;
		connection->socket_rcv = connection->socket_snd = 0;
		connection->state = STATE_HANDED;
	}
	if (connection->state == STATE_HANDED)
		inject(skb, segment, segment->seq, segment->ack, FLAG_ACK | INJECT_HANDED);
}

/* The first fragment of a segment, which has the sequence numbers. Translates them for the kernel's socket, if
 * needed. */
static __always_inline int on_fragment(struct __sk_buff *skb, struct segment *segment, struct connection *connection,
				       __u32 before)
{
	if (!is_shifted(connection)) {
		lift(skb, segment, connection);
		return drop(reason_drop_fragment);
	}
	segment->tcp_at += before;
	/* Ignores SACK blocks, which segments with data seldom have. */
	segment->payload_at = segment->tcp_at + TCP_LEN;
	return shift_in(skb, segment, connection) ? drop(reason_drop_no_room) : pass(reason_pass_kernel);
}

/* Whether the segment would break its connection: one of ours, or one that this segment opens. */
static __always_inline int needs_unwrapping(const struct segment *segment, const struct control *control,
					    const struct connection *connection)
{
	struct handshake known;

	if (!connection)
		return find_half_open(segment, control, &known);
	return is_live(connection) || connection->state == STATE_HANDED || is_shifted(connection);
}

/* A frame with such headers. It re-enters the level without them. */
static __always_inline int on_wrapped(struct __sk_buff *skb)
{
	struct control *control = steering();
	struct wrapping found = {};
	struct segment segment = {};
	struct connection *connection;

	if (!control || read_wrapped(skb, &segment, &found))
		return pass(reason_pass_fragment);
	connection = find(&segment);
	if (!needs_unwrapping(&segment, control, connection))
		return pass(reason_pass_fragment);
	if (found.is_fragment && connection)
		return on_fragment(skb, &segment, connection, found.len);
	if (!found.is_fragment && !unwrap(skb, segment.is_v6, found.len))
		send_in(skb);
	return drop(reason_drop_wrapped);
}

#endif
