/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Parses frames into segments, and rewrites them into replies. */
#pragma once

#include "context.h"
#include "hash.h"

#define FLAG_FIN 0x01
#define FLAG_SYN 0x02
#define FLAG_RST 0x04
#define FLAG_PSH 0x08
#define FLAG_ACK 0x10
#define FLAG_URG 0x20

#define TCP_LEN 20
#define V4_TCP_AT (ETH_HLEN + 20)
#define V6_TCP_AT (ETH_HLEN + 40)
/* Minimum length of an Ethernet frame. A reply is padded if the incoming frame was, since not all drivers pad. */
#define FRAME_MIN 60

/* A parsed TCP segment; sequence numbers in host order. */
struct segment {
	struct tuple tuple;
	__u32 seq;
	__u32 ack;
	__u64 hash;
	/* Time of arrival, CLOCK_MONOTONIC. */
	__u64 now_ns;
	/* Hash of the payload, by which its memo is found; 0 if not computed. */
	__u64 payload_hash;
	__u32 frame_len;
	__u32 payload_len;
	__u16 window;
	__u16 payload_at;
	__u8 tcp_at;
	__u8 flags;
	__u8 is_v6;
	/* State of the TCP checksum: CHECKSUM_ of the kernel; 0 if unknown. */
	__u8 summed;
	/* The segment was buffered in several parts, of which the first alone would not be accepted as its request
	 * (buffered.h). */
	__u8 is_pieced;
	/* The segment has timestamps, at the position that all stacks use. */
	__u8 has_timestamps;
	/* Length of the timestamps option in replies to the segment's client. */
	__u8 reply_options_len;
	__u8 spare;
	/* In network byte order: the client's timestamp, and ours as last echoed by the client; 0 without
	 * timestamps. */
	__u32 tsval_be;
	__u32 tsecr_be;
	/* Offset of our timestamps on the segment's connection. */
	__u32 clock_offset;
};

/* Half of the local address, in network byte order. */
static __always_inline __u64 local_word(const struct segment *segment, int half)
{
	return ((const __u64 *)segment->tuple.local_be)[half];
}

static __always_inline int is_in(const __u64 *ports, __u16 port)
{
	return ports[(port >> 6) & 1023] >> (port & 63) & 1;
}

#ifndef TIER_XDP

/* Offsets of the two ports in the TCP header. */
#define TCP_SOURCE_AT 0
#define TCP_DEST_AT 2

/* Whether this level has marked the frame. Several levels may share an interface and use the same marks, but each port
 * belongs to one level; `port_at` is the offset of this machine's port in the TCP header. Marked frames have no IP
 * options. */
static __always_inline int is_marked(struct __sk_buff *skb, __u32 mark, __u32 port_at)
{
	void *begin = frame_begin(skb), *end = frame_end(skb), *tcp = begin + V4_TCP_AT;
	struct control *control = level_control();
	struct ethhdr *eth = begin;

	if (skb->tc_index != mark || !control || tcp + TCP_LEN > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		tcp = begin + V6_TCP_AT;
		if (tcp + TCP_LEN > end)
			return 0;
	}
	return is_in(control->ports, bpf_ntohs(*(__u16 *)(tcp + port_at)));
}

#endif

/* The coarse clock as last read by each processor. */
struct clock {
	__u64 jiffies;
	__u64 now_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct clock);
} clocks SEC(".maps");

/* CLOCK_MONOTONIC with the resolution of a tick. The coarse clock changes together with jiffies, which are cheaper to
 * read. */
static __always_inline __u64 coarse_now_ns(void)
{
	__u64 jiffies = bpf_jiffies64();
	__u32 zero = 0;
	struct clock *clock = bpf_map_lookup_elem(&clocks, &zero);

	if (!clock)
		return bpf_ktime_get_coarse_ns();
	if (clock->jiffies != jiffies) {
		clock->jiffies = jiffies;
		clock->now_ns = bpf_ktime_get_coarse_ns();
	}
	return clock->now_ns;
}

/* IPv4 addresses are stored as ::ffff:a.b.c.d. */
static __always_inline void set_v4(struct tuple *tuple, __u32 client_be, __u32 local_be)
{
	tuple->client_be[0] = tuple->local_be[0] = 0;
	tuple->client_be[1] = tuple->local_be[1] = 0;
	tuple->client_be[2] = tuple->local_be[2] = bpf_htonl(0xffff);
	tuple->client_be[3] = client_be;
	tuple->local_be[3] = local_be;
}

static __always_inline __u16 fold(__u64 sum)
{
	__u32 low = sum, high = sum >> 32;

	low += high;
	if (low < high)
		low++;
	/* Adds both halves with end-around carry; the result is in the upper half. */
	low += low << 16 | low >> 16;
	return low >> 16;
}

static __always_inline __u64 words_of(const void *begin, int count)
{
	const __u32 *words = begin;
	__u64 sum = 0;
	for (int i = 0; i < count; i++)
		sum += words[i];
	return sum;
}

/* NOP, NOP, timestamps: the layout of all stacks (RFC 7323 appendix A). */
#define TIMESTAMPS_BEGIN 0x0101080a

static __always_inline void read_timestamps(const struct tcphdr *tcp, void *end, struct segment *segment)
{
	const __u32 *options = (void *)tcp + TCP_LEN;

	segment->has_timestamps = 0;
	segment->tsval_be = segment->tsecr_be = 0;
	if (tcp->doff < (TCP_LEN + TIMESTAMPS_LEN) / 4 || (void *)(options + 3) > end ||
	    options[0] != bpf_htonl(TIMESTAMPS_BEGIN))
		return;
	segment->has_timestamps = 1;
	segment->tsval_be = options[1];
	segment->tsecr_be = options[2];
}

/* The clock of kernel sockets' timestamps: a connection may have both owners in turn, and its client drops segments
 * with older timestamps (PAWS). */
static __always_inline __u32 now_ms(void)
{
	return bpf_ktime_get_ns() / 1000000;
}

enum parsed { PARSED, NOT_OURS, NOT_PLAIN, WRONG_SUM };

/* Parses Ethernet, IP and TCP. Accepts plain packets only: no fragments, no IP options, no VLAN tags. */
static __always_inline enum parsed parse(void *begin, void *end, __u32 frame_len,
					 const struct control *control, struct segment *segment)
{
	struct tcphdr *tcp;
	__u64 header_sum = 0xffff;
	__u32 ip_len;
	__u16 protocol;

	if (begin + V4_TCP_AT + TCP_LEN > end)
		return NOT_OURS;
	/* By word: struct ethhdr is packed, so the compiler would read the field byte by byte. */
	protocol = *(__u16 *)(begin + ETH_HLEN - 2);
	if (protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = begin + ETH_HLEN;
		if (ip->protocol != IPPROTO_TCP)
			return NOT_OURS;
		tcp = begin + V4_TCP_AT;
		/* IPv4 with a header of five words; neither the MF flag nor a fragment offset. */
		if (*(__u8 *)ip != 0x45 || (ip->frag_off & bpf_htons(0x3fff)))
			return NOT_PLAIN;
		if (!is_in(control->ports, bpf_ntohs(tcp->dest)))
			return NOT_OURS;
		set_v4(&segment->tuple, ip->saddr, ip->daddr);
		header_sum = words_of(ip, 5);
		segment->tcp_at = V4_TCP_AT;
		segment->is_v6 = 0;
		ip_len = ETH_HLEN + bpf_ntohs(ip->tot_len);
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = begin + ETH_HLEN;
		if (begin + V6_TCP_AT + TCP_LEN > end)
			return NOT_OURS;
		/* IPv4-mapped addresses must not appear on the wire (RFC 4942 §2.2). */
		if (ip->nexthdr != IPPROTO_TCP || ip->saddr.s6_addr32[2] == bpf_htonl(0xffff))
			return NOT_OURS;
		tcp = begin + V6_TCP_AT;
		if (!is_in(control->ports, bpf_ntohs(tcp->dest)))
			return NOT_OURS;
		memcpy(segment->tuple.client_be, &ip->saddr, 16);
		memcpy(segment->tuple.local_be, &ip->daddr, 16);
		segment->tcp_at = V6_TCP_AT;
		segment->is_v6 = 1;
		ip_len = V6_TCP_AT + bpf_ntohs(ip->payload_len);
	} else {
		return NOT_OURS;
	}
	segment->tuple.client_port_be = tcp->source;
	segment->tuple.local_port_be = tcp->dest;
	segment->seq = bpf_ntohl(tcp->seq);
	segment->ack = bpf_ntohl(tcp->ack_seq);
	segment->window = bpf_ntohs(tcp->window);
	segment->flags = ((__u8 *)tcp)[13];
	segment->payload_at = segment->tcp_at + tcp->doff * 4;
	segment->frame_len = frame_len;
	/* Frames may be longer than the packet, since short ones are padded. */
	if (tcp->doff < 5 || ip_len < segment->payload_at || ip_len > segment->frame_len)
		return NOT_PLAIN;
	/* Packets with a wrong checksum must be dropped without a reply (RFC 1122 §3.2.1.2). IPv6 headers have no
	 * checksum. */
	if (fold(header_sum) != 0xffff)
		return WRONG_SUM;
	segment->payload_len = ip_len - segment->payload_at;
	segment->hash = hash_of(&segment->tuple, control);
	read_timestamps(tcp, end, segment);
	segment->reply_options_len = 0;
	segment->payload_hash = 0;
	segment->summed = 0;
	segment->is_pieced = 0;
	segment->now_ns = coarse_now_ns();
	return PARSED;
}

/* The headers of a reply. */
struct answer {
	__u32 seq;
	__u32 ack;
	/* Folded sum of the payload. */
	__u32 sum;
	__u16 payload_len;
	/* Window as in the header: scaled, except in a SYN-ACK. */
	__u16 window;
	__u8 flags;
	/* Length of a SYN-ACK's options, which are already in the frame. */
	__u8 options_len;
	/* The frame's Ethernet addresses are already swapped. */
	__u8 is_turned;
};

/* By words: the compiler would copy an array of bytes one by one. */
static __always_inline void swap_addresses(struct ethhdr *eth)
{
	__u32 *words = (__u32 *)eth;
	__u16 *halves = (__u16 *)eth;
	__u32 to = words[0], from = *(__u32 *)(halves + 3);
	__u16 to_end = halves[2], from_end = halves[5];

	words[0] = from;
	halves[2] = from_end;
	*(__u32 *)(halves + 3) = to;
	halves[5] = to_end;
}

/* Writes an IPv4 header without options. `sum` is the sum of both addresses. */
static __always_inline void write_v4(__u32 *words, const struct segment *segment, __u16 len, __u16 id, __u64 sum)
{
	__u32 first = (__u32)bpf_htons(len) << 16 | 0x45, ttl = IPPROTO_TCP << 8 | 64;

	words[0] = first;
	words[1] = id;
	words[2] = (__u32)(__u16)~fold(sum + first + id + ttl) << 16 | ttl;
	words[3] = segment->tuple.local_be[3];
	words[4] = segment->tuple.client_be[3];
}

/* Writes Ethernet, IP and TCP headers over those of the segment; the frame must already have its final length. Without
 * the DF bit: an ICMP error would not reach this level, so routers must be allowed to fragment IPv4 packets. */
static __always_inline int write_headers(context *ctx, const struct segment *segment,
					 const struct answer *answer)
{
	void *begin = frame_begin(ctx), *end = frame_end(ctx);
	__u32 options_len = answer->options_len + segment->reply_options_len;
	__u16 tcp_len = TCP_LEN + options_len + answer->payload_len;
	__u32 *words, header[4];
	__u64 sum, sum_of_options = 0;

	if (begin + V4_TCP_AT + TCP_LEN > end)
		return -1;
	mark_as_answer(ctx);
	if (!answer->is_turned)
		swap_addresses(begin);
	if (!segment->is_v6) {
		words = begin + ETH_HLEN;
		sum = (__u64)segment->tuple.local_be[3] + segment->tuple.client_be[3];
		write_v4(words, segment, 20 + tcp_len, answer->seq ^ answer->seq >> 16, sum);
		words += 5;
	} else {
		struct ipv6hdr *ip = begin + ETH_HLEN;
		if (begin + V6_TCP_AT + TCP_LEN > end)
			return -1;
		*(__u32 *)ip = bpf_htonl(0x60000000);
		ip->payload_len = bpf_htons(tcp_len);
		ip->hop_limit = 64;
		memcpy(&ip->saddr, segment->tuple.local_be, 16);
		memcpy(&ip->daddr, segment->tuple.client_be, 16);
		words = begin + V6_TCP_AT;
		sum = words_of(&segment->tuple, 8);
	}
	sum += bpf_htons(IPPROTO_TCP) + bpf_htons(tcp_len);
	/* By words, in the units of the checksum. */
	header[0] = (__u32)segment->tuple.client_port_be << 16 | segment->tuple.local_port_be;
	header[1] = bpf_htonl(answer->seq);
	header[2] = bpf_htonl(answer->ack);
	header[3] = (__u32)bpf_htons(answer->window) << 16 | (__u32)answer->flags << 8 | (TCP_LEN + options_len) << 2;
	words[0] = header[0];
	words[1] = header[1];
	words[2] = header[2];
	words[3] = header[3];
	if (segment->reply_options_len) {
		if ((void *)(words + 8) > end)
			return -1;
		words[5] = bpf_htonl(TIMESTAMPS_BEGIN);
		words[6] = bpf_htonl(now_ms() + segment->clock_offset);
		words[7] = segment->tsval_be;
		sum_of_options = words_of(words + 5, 3);
	}
	/* A packet that arrived with a partial checksum is sent with one, which the kernel or a device completes. */
	if (segment->summed == CHECKSUM_PARTIAL) {
		words[4] = fold(sum);
		return 0;
	}
	sum += (__u64)header[0] + header[1] + header[2] + header[3] + sum_of_options + answer->sum;
	words[4] = (__u16)~fold(sum);
	return 0;
}

/* Window that is advertised to the client: the default initial window of a kernel socket. */
#define WINDOW 64240
#define WINDOW_SCALE 7

static __always_inline __u16 window_for(__u8 options)
{
	return (options & OPTION_SCALE_MASK) == OPTION_SCALE_NONE ? WINDOW : WINDOW >> WINDOW_SCALE;
}

/* Sends a segment without data in the current frame. */
SEPARATE int send_bare(context *ctx, const struct segment *segment ARG, const struct answer *answer ARG)
{
	__u32 len = segment->tcp_at + TCP_LEN + segment->reply_options_len;
	if (len < FRAME_MIN && segment->frame_len >= FRAME_MIN)
		len = FRAME_MIN;
	if (frame_resize(ctx, segment->frame_len, len) || write_headers(ctx, segment, answer)) {
		count(reason_drop_no_room);
		return VERDICT_DROP;
	}
	return frame_reply(ctx);
}

static __always_inline int reply_bare(context *ctx, const struct segment *segment, __u32 seq,
				      __u32 ack, __u8 flags, __u8 options)
{
	struct answer answer = {
		.seq = seq, .ack = ack, .flags = flags, .window = window_for(options),
	};
	return send_bare(ctx, segment, &answer);
}
