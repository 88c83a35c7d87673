/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Segments of live connections that have IPv4 options or IPv6 extension headers, or are fragmented. The kernel has no
 * socket for these connections, and would reset them. This program removes options and extension headers, and lets the
 * segment re-enter the level. For fragments, and for options that only the kernel can process, the connection migrates
 * to the server, and its client retransmits the segment once. All other packets pass unchanged, including those that
 * the kernel will drop. All of this is possible only at TC. */
#pragma once

#include "ip_options.h"
#include "parked.h"

/* Whether the frame may have IP options or extension headers, or be a first fragment, judged by an IP header at the
 * usual offset. */
static __always_inline int is_wrapped(void *begin, void *end)
{
	struct ethhdr *eth = begin;
	__u8 *ip = begin + ETH_HLEN;

	/* A first fragment may be shorter than TCP's header. */
	if (begin + V4_TCP_AT > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		return is_extension(ip[6]);
	/* IPv4 with options, or a first fragment; later fragments have no ports. */
	return eth->h_proto == bpf_htons(ETH_P_IP) && ip[9] == IPPROTO_TCP && !(ip[6] & 0x1f) && !ip[7] &&
	       (ip[0] > 0x45 || ip[6] & 0x20) && ip[0] < 0x50;
}

#ifndef TIER_XDP

/* Reads the ports and sequence numbers of the TCP header, as far as the frame contains them; a first fragment has at
 * least the ports and the sequence number. Returns nonzero if these are missing. */
static __always_inline int read_numbers(struct __sk_buff *skb, struct segment *segment, const struct wrapping *found)
{
	__u32 at = segment->tcp_at + found->len, tcp[4] = {};

	if (found->tcp_len >= sizeof(tcp)) {
		if (bpf_skb_load_bytes(skb, at, tcp, sizeof(tcp)))
			return -1;
	} else if (!found->needs_kernel || found->tcp_len < 8 || bpf_skb_load_bytes(skb, at, tcp, 8)) {
		return -1;
	}
	segment->tuple.client_port_be = tcp[0];
	segment->tuple.local_port_be = tcp[0] >> 16;
	segment->seq = bpf_ntohl(tcp[1]);
	segment->ack = bpf_ntohl(tcp[2]);
	/* Zero if the first fragment ends before these fields. */
	segment->flags = bpf_ntohl(tcp[3]) >> 16;
	segment->window = bpf_ntohl(tcp[3]);
	return 0;
}

static __always_inline int has_all_numbers(const struct wrapping *found)
{
	return found->tcp_len >= 16;
}

/* Parses the headers of a frame for which is_wrapped() holds. Returns 0 if it is addressed to one of the ports, and the
 * kernel would not drop it. */
SEPARATE int read_wrapped(struct __sk_buff *skb, struct segment *segment ARG, struct wrapping *found ARG)
{
	struct control *control = level_control();
	__u32 words[10];

	if (!control || bpf_skb_load_bytes(skb, ETH_HLEN, words, 20))
		return -1;
	segment->is_v6 = (*(__u8 *)words >> 4) == 6;
	if (segment->is_v6) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, words, 40))
			return -1;
		memcpy(&segment->tuple, words + 2, 32);
		/* Rejects IPv4-mapped addresses (RFC 4942 §2.2). */
		if (words[4] == bpf_htonl(0xffff) || read_extensions(skb, *((__u8 *)words + 6), found))
			return -1;
		segment->tcp_at = V6_TCP_AT;
	} else {
		set_v4(&segment->tuple, words[3], words[4]);
		if (read_v4_options(skb, found))
			return -1;
		segment->tcp_at = V4_TCP_AT;
	}
	if (read_numbers(skb, segment, found))
		return -1;
	segment->summed = frame_summed(skb);
	segment->hash = hash_of(&segment->tuple, control);
	return is_in(control->ports, bpf_ntohs(segment->tuple.local_port_be)) ? 0 : -1;
}

/* Removes `len` bytes after the IP header. Returns nonzero on failure; the frame must then be dropped. */
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
		/* Computes the checksum of the shorter header. */
		ip[2] &= bpf_htonl(0xffff0000);
		ip[2] |= (__u32)(__u16)~fold(words_of(ip, 5)) << 16;
	}
	return bpf_skb_store_bytes(skb, ETH_HLEN, ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM);
}

/* Window assumed for a client until its next segment, if the window field is in a later fragment. */
#define SMALL_WINDOW 256

/* Injects a pure acknowledgement with the segment's numbers. The frame is overwritten. */
static __always_inline void inject_acknowledgement(struct __sk_buff *skb, const struct segment *segment, __u32 how)
{
	__u32 len = ETH_HLEN + 60;

	if (skb->len >= len || !bpf_skb_change_tail(skb, len, 0))
		inject(skb, segment, segment->seq, segment->ack, FLAG_ACK | how);
}

/* Migrates the connection of a fragmented segment: if the client has acknowledged everything, the kernel creates the
 * connection's socket from a pure acknowledgement, and the client retransmits the segment to that socket. */
static __always_inline void hand_over_fragmented(struct __sk_buff *skb, struct segment *segment,
						 struct connection *connection, const struct wrapping *found)
{
	/* The first fragment may lack the acknowledgement number. Without a response in flight, it can only be
	 * snd_nxt. */
	if (!has_all_numbers(found) && !connection->answer) {
		segment->ack = connection->snd_nxt;
		segment->flags = FLAG_ACK;
		segment->window = SMALL_WINDOW;
	}
	if ((segment->flags & (FLAG_ACK | FLAG_SYN | FLAG_RST)) != FLAG_ACK || segment->seq != connection->rcv_nxt ||
	    segment->ack != connection->snd_nxt)
		return;
	if (connection->state == STATE_OPEN) {
		if (connection->socket == SOCKET_KEPT)
			close_parked(skb, segment, connection, FLAG_RST);
		connection->answer = connection->answer_len = 0;
		connection->socket = SOCKET_NONE;
		connection->socket_rcv = connection->socket_snd = 0;
		connection->state = STATE_HANDED;
	}
	if (connection->state == STATE_HANDED)
		inject_acknowledgement(skb, segment, INJECT_HANDED);
}

static __always_inline int has_socket(struct __sk_buff *skb, const struct segment *segment)
{
	__u32 state = socket_state(skb, segment);
	return state && state != TCP_STATE_LISTEN && state != TCP_STATE_TIME_WAIT;
}

/* Processes a segment that only the kernel can process; of a fragmented one, the first fragment, which contains the
 * sequence numbers. Translates these for the kernel's socket if needed. */
static __always_inline int on_fragment(struct __sk_buff *skb, struct segment *segment, struct connection *connection,
				       const struct wrapping *found)
{
	if (connection->state == STATE_HANDED && has_socket(skb, segment)) {
		connection->state = STATE_KERNEL;
		return pass_to_kernel(reason_pass_kernel);
	}
	if (!is_shifted(connection)) {
		hand_over_fragmented(skb, segment, connection, found);
		return drop(reason_drop_fragment);
	}
	/* segment->tcp_at is a byte. */
	if (found->len > 0xff - V6_TCP_AT)
		return drop(reason_drop_no_room);
	segment->tcp_at += found->len;
	/* SACK blocks, which segments with data seldom have, are not translated. */
	segment->payload_at = segment->tcp_at + TCP_LEN;
	return shift_in(skb, segment, connection) ? drop(reason_drop_no_room) : pass_to_kernel(reason_pass_kernel);
}

/* Processes a segment with options, extension headers or fragmentation before its connection is open: the
 * acknowledgement of our SYN-ACK was lost, or arrives later. */
static __always_inline int open_fragmented(struct __sk_buff *skb, const struct segment *segment,
					   const struct wrapping *found)
{
	if (has_all_numbers(found))
		inject_acknowledgement(skb, segment, INJECT_HANDED);
	return drop(reason_drop_fragment);
}

/* Whether the segment would break a connection: a live one, or one that the segment opens. */
static __always_inline int needs_unwrapping(const struct segment *segment, const struct control *control,
					    const struct connection *connection)
{
	struct handshake known;

	if (!connection)
		return find_half_open(segment, control, &known);
	return needs_plain_segments(connection);
}

/* Processes a frame with options, extension headers or fragmentation. The segment re-enters the level without these. */
static __always_inline int on_wrapped(struct __sk_buff *skb)
{
	struct control *control = level_control();
	struct wrapping found = {};
	struct segment segment = {};
	struct connection *connection;

	if (!control || read_wrapped(skb, &segment, &found))
		return pass_to_kernel(reason_pass_fragment);
	connection = find_connection(&segment);
	if (!needs_unwrapping(&segment, control, connection))
		return pass_to_kernel(reason_pass_fragment);
	if (found.needs_kernel)
		return connection ? on_fragment(skb, &segment, connection, &found)
				  : open_fragmented(skb, &segment, &found);
	/* The re-injected clone is processed; this frame ends here. */
	if (!unwrap(skb, segment.is_v6, found.len))
		inject_buffered(skb);
	return drop(reason_drop_wrapped);
}

#endif
