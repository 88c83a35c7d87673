/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Path MTU discovery on connections with translated sequence numbers: routers report by ICMP that a segment was too
 * long for a link, or undeliverable (RFC 1191, RFC 8201). They quote the segment as it was sent, but the kernel accepts
 * only sequence numbers of its socket, so the quoted number is translated. */
#pragma once

#include "parked.h"

#define ICMP_LEN 8
#define ICMP_SUM_AT 2
#define ICMP_UNREACHABLE 3
#define IPPROTO_ICMP_V6 58
#define ICMP_V6_UNREACHABLE 1
#define ICMP_V6_TOO_BIG 2
/* Bytes of the quoted TCP header that are always present (RFC 792). */
#define QUOTED_TCP_LEN 8

/* Offset of the quoted IP header of a segment sent by this machine; 0 if there is none. */
static __always_inline __u32 quote_at(void *begin, void *end)
{
	struct ethhdr *eth = begin;
	__u8 *v4 = begin + ETH_HLEN, *v6 = v4;

	if (begin + ETH_HLEN + 20 + ICMP_LEN + 20 + QUOTED_TCP_LEN > end)
		return 0;
	/* Byte 9: protocol; byte 20: ICMP type. */
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return v4[0] == 0x45 && v4[9] == IPPROTO_ICMP && v4[20] == ICMP_UNREACHABLE ? ETH_HLEN + 20 + ICMP_LEN : 0;
	if (eth->h_proto != bpf_htons(ETH_P_IPV6) || begin + ETH_HLEN + 40 + ICMP_LEN > end)
		return 0;
	/* Byte 6: next header; byte 40: ICMPv6 type. */
	return v6[6] == IPPROTO_ICMP_V6 && (v6[40] == ICMP_V6_UNREACHABLE || v6[40] == ICMP_V6_TOO_BIG)
		       ? ETH_HLEN + 40 + ICMP_LEN : 0;
}

#ifndef TIER_XDP

/* Parses the quoted headers at `at`: sets tuple, hash and seq; tcp_at becomes the offset of the quoted TCP header. */
static __always_inline int read_quote(struct __sk_buff *skb, const struct control *control, struct segment *segment,
				      __u32 at)
{
	__u32 tcp[2], ip[10];

	segment->is_v6 = at == ETH_HLEN + 40 + ICMP_LEN;
	segment->tcp_at = at + (segment->is_v6 ? 40 : 20);
	if (bpf_skb_load_bytes(skb, at, ip, 20) || bpf_skb_load_bytes(skb, segment->tcp_at, tcp, QUOTED_TCP_LEN))
		return -1;
	if (segment->is_v6) {
		if (((__u8 *)ip)[6] != IPPROTO_TCP || bpf_skb_load_bytes(skb, at, ip, 40))
			return -1;
		/* The quoted segment was sent from here to the client. */
		memcpy(segment->tuple.local_be, ip + 2, 16);
		memcpy(segment->tuple.client_be, ip + 6, 16);
	} else {
		if (((__u8 *)ip)[0] != 0x45 || ((__u8 *)ip)[9] != IPPROTO_TCP)
			return -1;
		set_v4(&segment->tuple, ip[4], ip[3]);
	}
	segment->tuple.local_port_be = (__u16)tcp[0];
	segment->tuple.client_port_be = tcp[0] >> 16;
	segment->seq = bpf_ntohl(tcp[1]);
	segment->hash = hash_of(&segment->tuple, control);
	return is_in(control->ports, bpf_ntohs(segment->tuple.local_port_be)) ? 0 : -1;
}

/* Translates the quoted sequence number if its connection needs that. After a failure, the kernel ignores the
 * message. */
SEPARATE int shift_quote(struct __sk_buff *skb, struct segment *segment ARG, __u32 at)
{
	struct control *control = level_control();
	struct connection *connection;
	__u32 was, is;

	if (!control || read_quote(skb, control, segment, at))
		return 0;
	connection = find_connection(segment);
	if (!connection || !is_shifted(connection))
		return 0;
	was = bpf_htonl(segment->seq);
	is = bpf_htonl(segment->seq - connection->socket_snd);
	skb->tc_index = TC_INDEX_SHIFTED_IN;
	/* The ICMP checksum covers the quoted bytes. */
	return bpf_l4_csum_replace(skb, at - ICMP_LEN + ICMP_SUM_AT, was, is, 4) ||
	       bpf_skb_store_bytes(skb, segment->tcp_at + TCP_SEQ_AT, &is, 4, 0);
}

#endif

/* Processes a frame that is not a TCP segment to one of the ports. */
static __always_inline void on_other_frame(context *ctx, void *begin, void *end, struct segment *segment)
{
	__u32 at = quote_at(begin, end);

	if (!at)
		return;
#ifdef TIER_XDP
	defer_to_tc(ctx);
#else
	shift_quote(ctx, segment, at);
#endif
}
