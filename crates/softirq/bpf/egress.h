/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Egress: segments that the kernel sends from the level's ports. Tracks where the server's responses end, translates
 * sequence numbers, and drops the segments that the old socket of a reclaimed connection sends, since the client must
 * not receive them. */
#pragma once

#include "handshake.h"

/* Parses a segment to a client. Sequence numbers and payload in `segment` are the server's; the tuple is that of the
 * client's segments. */
static __always_inline int parse_outgoing(struct __sk_buff *skb, const struct control *control,
					  struct segment *segment)
{
	void *begin = frame_begin(skb), *end = frame_end(skb);
	struct ethhdr *eth = begin;
	struct tcphdr *tcp = begin + V4_TCP_AT;

	if (begin + V4_TCP_AT + TCP_LEN > end)
		return NOT_OURS;
	segment->is_v6 = eth->h_proto == bpf_htons(ETH_P_IPV6);
	segment->tcp_at = V4_TCP_AT;
	if (segment->is_v6) {
		struct ipv6hdr *ip = begin + ETH_HLEN;

		tcp = begin + V6_TCP_AT;
		segment->tcp_at = V6_TCP_AT;
		if (begin + V6_TCP_AT + TCP_LEN > end || ip->nexthdr != IPPROTO_TCP ||
		    !is_in(control->ports, bpf_ntohs(tcp->source)))
			return NOT_OURS;
		memcpy(segment->tuple.client_be, &ip->daddr, 16);
		memcpy(segment->tuple.local_be, &ip->saddr, 16);
	} else {
		struct iphdr *ip = begin + ETH_HLEN;

		if (eth->h_proto != bpf_htons(ETH_P_IP) || *(__u8 *)ip != 0x45 || ip->protocol != IPPROTO_TCP ||
		    ip->frag_off & bpf_htons(0x3fff) || !is_in(control->ports, bpf_ntohs(tcp->source)))
			return NOT_OURS;
		set_v4(&segment->tuple, ip->daddr, ip->saddr);
	}
	segment->tuple.client_port_be = tcp->dest;
	segment->tuple.local_port_be = tcp->source;
	segment->seq = bpf_ntohl(tcp->seq);
	segment->ack = bpf_ntohl(tcp->ack_seq);
	segment->window = bpf_ntohs(tcp->window);
	segment->flags = ((__u8 *)tcp)[13];
	segment->payload_at = segment->tcp_at + tcp->doff * 4;
	/* The length in the IP header of a GSO frame is not the frame's. */
	segment->payload_len = skb->len - segment->payload_at;
	if (skb->len < segment->payload_at)
		return NOT_PLAIN;
	segment->hash = hash_of(&segment->tuple, control);
	return PARSED;
}

/* Loads up to `most` bytes of the payload, from `at` on, into scratch, followed by zeros. Returns the number of loaded
 * bytes. */
static __always_inline __u32 load_payload(struct __sk_buff *skb, const struct segment *segment, __u32 at, __u32 most)
{
	struct scratch *scratch = scratch_memory();
	__u32 len = segment->payload_len - at;

	if (!scratch || at >= segment->payload_len)
		return 0;
	if (len > most)
		len = most;
	OPAQUE(len);
	if (len == 0 || len > RESPONSE_HEAD_MAX ||
	    bpf_skb_load_bytes(skb, segment->payload_at + at, scratch->head, len))
		return 0;
	*(__u64 *)(scratch->head + (len & (HEAD_SIZE - 1))) = 0;
	return len;
}

/* Parses a response's head at offset `at` of the payload, and records where the response ends. Returns the length of an
 * interim response, after which the final one begins, or 0. */
SEPARATE __u32 on_response_head(struct __sk_buff *skb, const struct segment *segment ARG,
				struct connection *connection ARG, __u32 at)
{
	struct scratch *scratch = scratch_memory();
	__u32 len = load_payload(skb, segment, at, RESPONSE_HEAD_MAX), status, begin = segment->seq + at;

	if (!scratch)
		return 0;
	status = len < CHUNK_HEAD_MAX ? 0 : read_response_head(scratch, len);
	/* 101 is not an interim response: it switches the protocol. */
	if (status / 100 == 1 && status != 101) {
		connection->snd_nxt = begin + scratch->request.at;
		return scratch->request.at;
	}
	connection->answer = begin + scratch->request.at;
	if (status < 200)
		stop_tracking(connection);
	else if (status == 204 || status == 304 || is_tracked(connection, FOLLOWED_HEAD))
		connection->answer_len |= FOLLOWED_END;
	else if (scratch->request.seen & HEAD_CHUNKED)
		connection->answer_len |= FOLLOWED_CHUNKS;
	else if (scratch->request.seen & HEAD_LENGTH) {
		connection->answer += scratch->request.hash;
		connection->answer_len |= FOLLOWED_END;
	} else
		stop_tracking(connection);
	return 0;
}

struct chunk_cursor {
	struct __sk_buff *skb;
	const struct segment *segment;
	struct connection *connection;
};

static long chunk_step(__u64 index, struct chunk_cursor *cursor)
{
	struct connection *connection = cursor->connection;
	const struct segment *segment = cursor->segment;
	struct scratch *scratch = scratch_memory();
	__u32 at = connection->answer - segment->seq, len, step;

	if (!scratch || at >= segment->payload_len)
		return 1;
	len = load_payload(cursor->skb, segment, at, CHUNK_HEAD_MAX);
	step = len ? read_chunk(scratch, len) : NO_CHUNK;
	if (step == NO_CHUNK) {
		stop_tracking(connection);
		return 1;
	}
	/* The position of the next chunk header, or of the end of the body. */
	connection->answer += step & ~CHUNK_LAST;
	if (!(step & CHUNK_LAST))
		return 0;
	connection->answer_len = (connection->answer_len & ~FOLLOWED_CHUNKS) | FOLLOWED_END;
	return 1;
}

/* Maximum number of chunks that end in one frame, which may have 64 KB. */
#define CHUNKS_MAX 64

SEPARATE int on_chunks(struct __sk_buff *skb, const struct segment *segment ARG, struct connection *connection ARG)
{
	struct chunk_cursor cursor = { skb, segment, connection };

	/* A retransmission: its chunk headers were parsed before, unless it reaches beyond the next header. */
	if ((__s32)(connection->answer - segment->seq) < 0) {
		if ((__s32)(segment->seq + segment->payload_len - connection->answer) > 0)
			stop_tracking(connection);
		return 0;
	}
	bpf_loop(CHUNKS_MAX, chunk_step, &cursor, 0);
	return 0;
}

/* Processes data that the server sends on a tracked connection, possibly a retransmission. */
static __always_inline void on_response(struct __sk_buff *skb, const struct segment *segment,
					struct connection *connection)
{
	__u32 end = segment->seq + segment->payload_len, at = 0;

	if (!is_tracked(connection, FOLLOWED_END | FOLLOWED_CHUNKS)) {
		if ((__s32)(end - connection->snd_nxt) <= 0)
			return;
		/* The head must begin with the response's first byte, since segments out of order are not
		 * reassembled. */
		if (segment->seq != connection->snd_nxt) {
			stop_tracking(connection);
			return;
		}
		/* Data from the server proves that the kernel has created the socket. */
		if (connection->state == STATE_HANDED) {
			connection->state = STATE_KERNEL;
			count(reason_tcp_kept);
		}
		at = on_response_head(skb, segment, connection, 0);
		if (at && at < segment->payload_len && on_response_head(skb, segment, connection, at))
			stop_tracking(connection);
	}
	if (is_tracked(connection, FOLLOWED_CHUNKS))
		on_chunks(skb, segment, connection);
	/* Data beyond the response: either unsolicited, or the response to a pipelined request. */
	if (is_tracked(connection, FOLLOWED_END) && (__s32)(end - connection->answer) > 0)
		stop_tracking(connection);
}

/* Ends the socket that sent the segment, by a reset in the name of its client. */
static __always_inline void end_leftover(struct __sk_buff *skb, const struct segment *segment)
{
	if (!inject(skb, segment, segment->ack, 0, FLAG_RST | INJECT_TURNED))
		count(reason_tcp_ended);
}

/* Responds to a segment from a parked socket. The acknowledgement of the socket's last response bypassed the socket, so
 * the socket retransmits that response, or sends keep-alive probes, which are acknowledged here. Anything else is
 * invalid and ends the socket. */
static __always_inline void answer_parked(struct __sk_buff *skb, const struct segment *segment,
					struct connection *connection)
{
	__s32 beyond = segment->seq + segment->payload_len - connection->socket_snd;
	struct control *control = level_control();
	__u16 age = units_since(seen_at(coarse_now_ns()), connection->seen);
	/* A client that has been silent for so long may be gone. */
	int is_stale = !control || age > control->idle;

	if (segment->flags & FLAG_FIN || beyond > 0 || is_stale) {
		connection->socket = SOCKET_ENDED;
		end_leftover(skb, segment);
	} else if (segment->payload_len || beyond == -1) {
		inject(skb, segment, connection->socket_rcv, connection->socket_snd, FLAG_ACK | INJECT_TURNED);
	}
}

/* Drops a segment that the kernel sends on a live connection: it comes from an old socket, parked or not. A FIN ends
 * the old socket, which then has nothing more to send. */
static __always_inline int on_parked_leftover(struct __sk_buff *skb, struct segment *segment,
				       struct connection *connection)
{
	int is_kept = connection->socket == SOCKET_KEPT;

	/* This is the kernel's reply to a segment that this level passed as unknown, or to a SYN for which there is no
	 * listener. */
	if (segment->flags & FLAG_RST && !is_kept && (!segment->seq || segment->seq == connection->snd_nxt))
		return TCX_NEXT;
	count(reason_drop_leftover);
	segment->summed = frame_summed(skb);
	if (segment->flags & FLAG_RST) {
		if (is_kept)
			connection->socket = SOCKET_ENDED;
	} else if (is_kept) {
		answer_parked(skb, segment, connection);
	} else if (segment->flags & FLAG_FIN) {
		end_leftover(skb, segment);
	}
	return TC_ACT_SHOT;
}

/* Passes a segment from the kernel to its client, after translating and tracking it if needed. */
static __always_inline int on_egress_data(struct __sk_buff *skb, struct segment *segment, struct connection *connection)
{
	if (is_shifted(connection)) {
		if (shift_out(skb, segment, connection))
			return TC_ACT_SHOT;
		/* Tracking uses the client's sequence numbers. */
		segment->seq += connection->socket_snd;
		segment->ack += connection->socket_rcv;
		if (segment->flags & (FLAG_FIN | FLAG_RST))
			connection->socket = SOCKET_ENDED;
	}
	if (is_tracked(connection, FOLLOWED) && segment->payload_len)
		on_response(skb, segment, connection);
	return TCX_NEXT;
}

/* Maximum number of bytes that a new socket may send before the level sees that the kernel has the connection. */
#define FIRST_FLIGHT 0x1000000

static __always_inline int on_egress(struct __sk_buff *skb)
{
	struct control *control = level_control();
	struct connection *connection;
	struct segment segment;

	if (!control || control->mode == MODE_OFF || control->resting == ASLEEP ||
	    parse_outgoing(skb, control, &segment) != PARSED)
		return TCX_NEXT;
	connection = find_connection(&segment);
	if (!connection)
		return TCX_NEXT;
	/* Old sockets send no SYN. The SYN of a new connection must pass, regardless of an old entry with the same
	 * port. */
	if (segment.flags & FLAG_SYN) {
		if (connection->state == STATE_KERNEL) {
			stop_tracking(connection);
			connection->socket = SOCKET_NONE;
			connection->socket_rcv = connection->socket_snd = 0;
		}
		return TCX_NEXT;
	}
	if (has_socket_soon(connection)) {
		/* The new socket's sequence numbers begin where ours end; a keep-alive probe has the number before the
		 * first one. */
		if (connection->state == STATE_HANDED && segment.seq - connection->snd_nxt + 1 > FIRST_FLIGHT)
			return on_parked_leftover(skb, &segment, connection);
		return on_egress_data(skb, &segment, connection);
	}
	if (is_live(connection) || connection->state == STATE_DONE)
		return on_parked_leftover(skb, &segment, connection);
	return TCX_NEXT;
}
