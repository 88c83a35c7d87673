/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* From a SYN to a connection. The state is bounded, so a SYN flood can't exhaust it. */
#pragma once

#include "cookie.h"
#include "connections.h"
#include "migrate.h"

static __always_inline int pass_to_kernel(enum reason reason)
{
	count(reason);
	return VERDICT_PASS;
}

static __always_inline int drop(enum reason reason)
{
	count(reason);
	return VERDICT_DROP;
}

static __always_inline int is_alive(const struct control *control, const struct segment *segment)
{
	/* The daemon reads a finer clock, so its heartbeat may be ahead of the coarse time. */
	__s64 silence_ns = segment->now_ns - control->heartbeat_ns;
	return control->mode == MODE_SERVE && silence_ns < (__s64)HEARTBEAT_LIMIT_NS;
}

/* Whether the segment's port is being detached, either alone or with the whole level. */
static __always_inline int is_draining(const struct control *control, const struct segment *segment)
{
	return control->mode != MODE_SERVE ||
	       is_in(control->leaving, bpf_ntohs(segment->tuple.local_port_be));
}

/* The PREFIX_ constant of the longest prefix that contains the client; PREFIX_ALLOWED without one. */
static __always_inline __u32 client_access(const struct control *control, const struct segment *segment)
{
	struct prefix prefix = { .bits = 128 };
	if (!(control->settings & SETTING_DENY))
		return PREFIX_ALLOWED;
	memcpy(prefix.address_be, segment->tuple.client_be, 16);
	__u32 *access = bpf_map_lookup_elem(&denied_clients, &prefix);
	return access ? *access : PREFIX_ALLOWED;
}

static __always_inline int is_denied(const struct control *control, const struct segment *segment)
{
	return client_access(control, segment) != PREFIX_ALLOWED;
}

static __always_inline struct admission_key admission_key_of(context *ctx, const struct segment *segment)
{
	struct admission_key key = {
		.interface = interface_of(ctx), .local_port_be = segment->tuple.local_port_be,
	};

	memcpy(key.client_be, segment->tuple.client_be, 16);
	memcpy(key.local_be, segment->tuple.local_be, 16);
	return key;
}

/* Whether the kernel has admitted the client on this interface, within the given time and under the current filter
 * rules. */
SEPARATE int is_admitted(context *ctx, const struct segment *segment ARG, __u64 within_ns)
{
	struct control *control = level_control();
	struct admission_key key = admission_key_of(ctx, segment);

	if (!control)
		return 0;
	__u64 *when = bpf_map_lookup_elem(&admissions, &key);
	return when && *when > control->rules_ns && (__s64)(segment->now_ns - *when) < (__s64)within_ns;
}

#define EVER_NS (~0ull >> 1)

/* Whether the machine filters its input and has not admitted the client. */
static __always_inline int is_unknown_client(context *ctx, const struct control *control,
				       const struct segment *segment, __u64 within_ns)
{
	return control->settings & SETTING_ADMIT && !is_admitted(ctx, segment, within_ns);
}

/* Whether the segment belongs to one of the daemon's own connections to the server. These come from the server's own
 * address or from a reserved probe source address. */
static __always_inline int is_exempt(const struct control *control, const struct segment *segment)
{
	return (segment->tuple.client_be[3] == segment->tuple.local_be[3] ||
		segment->tuple.client_be[3] == bpf_htonl(OUTSIDER)) &&
	       is_in(control->exempt, bpf_ntohs(segment->tuple.client_port_be));
}

/* Whether the address is in 127.0.0.0/8 or ::1, which must not appear on the wire (RFC 1122 §3.2.1.3). */
static __always_inline int is_loopback(const __u32 *address_be)
{
	if (address_be[0] || address_be[1])
		return 0;
	return address_be[2] == bpf_htonl(0xffff) ? (address_be[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000)
						  : !address_be[2] && address_be[3] == bpf_htonl(1);
}

/* Whether the SYN is addressed to this machine. Routers and bridges also receive SYNs for other hosts, which would
 * match a wildcard listener. */
static __always_inline int is_service_address(context *ctx, const struct segment *syn)
{
	const __u8 *first = frame_begin(ctx);
#ifndef TIER_XDP
	/* In promiscuous mode, frames for other hosts arrive, too. */
	if (ctx->pkt_type != PACKET_HOST && ctx->pkt_type != PACKET_LOOPBACK)
		return 0;
#endif
	/* The group bit marks link-layer broadcast and multicast. */
	if ((void *)(first + 1) > frame_end(ctx) || *first & 1)
		return 0;
	if (is_loopback(syn->tuple.local_be) || is_loopback(syn->tuple.client_be))
		return is_on_loopback(ctx) && is_loopback(syn->tuple.local_be);
	return bpf_map_lookup_elem(&addresses, syn->tuple.local_be) != 0;
}

#define NO_OPERATIONS bpf_htonl(0x01010101)

/* Whether the SYN is a retransmission of an answered SYN with a handshake that is still pending. */
static __always_inline int is_repeated(const struct segment *syn, const struct control *control,
				       struct handshake *found)
{
	return find_half_open(syn, control, found) && found->client_isn == syn->seq;
}

/* Acknowledgement number of a segment without data. Only the response may acknowledge its request: otherwise, if the
 * response were lost, the client would not retransmit the request. */
static __always_inline __u32 acknowledged_to(const struct connection *connection)
{
	return connection->rcv_nxt - (connection->answer ? connection->request_len : 0);
}

static __always_inline __u32 acknowledged_from(const struct connection *connection)
{
	__u32 fin = connection->state == STATE_CLOSING;
	return connection->snd_nxt - (connection->answer ? connection->answer_len + fin : 0);
}

/* Sends a challenge ACK: only the client itself can confirm that its live connection is gone (RFC 5961 §4). */
static __always_inline int challenge(context *ctx, const struct segment *syn, const struct connection *old)
{
	count(reason_tcp_challenge);
	return reply_bare(ctx, syn, acknowledged_from(old), acknowledged_to(old), FLAG_ACK, old->options);
}

/* Leaves a SYN to the kernel. An entry of an earlier connection with the client's port would keep later segments from
 * the kernel, so it is removed. */
static __always_inline int pass_syn(context *ctx, const struct segment *syn, struct connection *old,
				    enum reason reason)
{
	if (old && is_live(old))
		return challenge(ctx, syn, old);
	if (old && old->state == STATE_DONE)
		old->tag = 0;
	else if (old && old->state == STATE_KERNEL)
		/* Later segments may belong to a new connection, so tracking stops. */
		old->answer_len = 0;
	return pass_to_kernel(reason);
}

/* A number that identifies the current filter rules. */
static __always_inline __u32 rules_of(const struct control *control)
{
	return control->rules_ns;
}

/* Records the owner of the segment's connection, and for a SYN the filter rules under which it was passed. */
SEPARATE int mark(const struct segment *segment ARG, __u32 state)
{
	struct control *control = level_control();
	struct connection *connection = control ? allocate_connection(segment, control->idle, 0) : 0;

	if (!connection)
		return -1;
	/* A marker is not live, and allocate_connection() evicts no live connection for it. */
	connection->state = state;
	connection->rcv_nxt = rules_of(control);
	/* Written last, since other processors find the entry from then on. */
	*(volatile __u32 *)&connection->tag = tag_of(segment);
	return 0;
}

/* Leaves the SYN to the kernel, which answers it if its filter admits the client. The next segment shows by its socket
 * whether the kernel has answered. */
static __always_inline int lookup_kernel_socket(context *ctx, const struct segment *syn, struct connection *old)
{
	if (!old || !is_live(old))
		mark(syn, STATE_ASKED);
	return pass_syn(ctx, syn, old, reason_pass_unadmitted);
}

#define TCP_STATE_SYN_RECV 3
#define TCP_STATE_NEW_SYN_RECV 12

/* Processes a segment after a SYN that was left to the kernel. Once the kernel has a socket with a completed handshake,
 * the client is admitted, and its address is not forged. `rules` identifies the filter rules under which the SYN was
 * passed; the current rules might not have accepted it. */
SEPARATE int check_admission(context *ctx, const struct segment *segment ARG, __u32 rules)
{
	__u32 state = socket_state(ctx, segment);
	struct admission_key key = admission_key_of(ctx, segment);
	struct control *control = level_control();

	if (!control || rules != rules_of(control))
		return 0;
	if (!state || state == TCP_STATE_LISTEN || state == TCP_STATE_SYN_RECV ||
	    state == TCP_STATE_NEW_SYN_RECV)
		return 0;
	bpf_map_update_elem(&admissions, &key, &segment->now_ns, BPF_ANY);
	count(reason_tcp_admitted);
	return 1;
}

/* Larger than any verdict; the lower bits hold the options of the client's SYN. */
#define SYN_ACCEPTED 0x1000000

/* Returns the verdict on a SYN, or SYN_ACCEPTED if answer_syn is to answer it. Two functions, so that each has the
 * whole stack. */
SEPARATE int on_syn(context *ctx, const struct segment *syn ARG)
{
	struct control *control = level_control();
	struct connection *old = find_connection(syn);
	struct handshake known;
	struct syn_offer offer;
	int listener, is_strange;
	__u32 access;

	if (!control)
		return pass_to_kernel(reason_pass_syn_off);
	access = client_access(control, syn);
	/* The server would accept the connection only to close it. */
	if (access == PREFIX_DROPPED && is_alive(control, syn))
		return drop(reason_drop_denied);
	/* A retransmitted SYN is answered even if new connections are not accepted, since one side must process all
	 * segments of a handshake. */
	if ((!is_alive(control, syn) || is_draining(control, syn) || control->handover_broken ||
	     control->resting || (!control->published && !(control->settings & SETTING_LEARN))) &&
	    !is_repeated(syn, control, &known))
		return pass_syn(ctx, syn, old, reason_pass_syn_off);
	if (syn->payload_len || syn->flags & (FLAG_ACK | FLAG_FIN | FLAG_RST) ||
	    is_exempt(control, syn))
		return pass_syn(ctx, syn, old, reason_pass_syn_unusual);
	if (access != PREFIX_ALLOWED)
		return pass_syn(ctx, syn, old, reason_pass_denied);
	/* With a smaller MSS, the kernel would refuse to migrate the connection (bpf_sk_assign_tcp_reqsk). */
	if (read_syn_offer(ctx, syn, &offer) || offer.mss < (syn->is_v6 ? 1220 : 536))
		return pass_syn(ctx, syn, old, reason_pass_syn_unusual);
	if (!is_service_address(ctx, syn))
		return pass_to_kernel(reason_pass_syn_foreign);
	/* Options that are disabled in the kernel by sysctl: it would refuse to migrate a connection with them. */
	if (control->settings & SETTING_NO_SACK)
		offer.options &= OPTION_SCALE_MASK;
	if (control->settings & SETTING_NO_SCALE)
		offer.options |= OPTION_SCALE_NONE;
	/* The SYN-ACK replaces the SYN in its frame, so options that do not fit into the SYN's option space are
	 * declined. */
	if (syn->payload_at - syn->tcp_at - TCP_LEN < 8)
		offer.options = OPTION_SCALE_NONE;
	else if (syn->payload_at - syn->tcp_at - TCP_LEN < 12 &&
		 (offer.options & OPTION_SCALE_MASK) != OPTION_SCALE_NONE)
		offer.options &= OPTION_SCALE_MASK;
	is_strange = is_unknown_client(ctx, control, syn, ADMISSION_NS) && !is_repeated(syn, control, &known);
	/* A reclaimed connection may still have its old socket. The egress program drops that socket's segments. */
	if (old && is_live(old) && old->socket != SOCKET_NONE)
		return challenge(ctx, syn, old);
	/* If the kernel has not admitted the client, only the kernel may end its old connection. */
	listener = find_listener(ctx, syn, !is_strange);
	if (listener == LISTENER_AGAIN)
		return VERDICT_PASS;
	if (listener != LISTENER_FOUND) {
		/* With this entry, the kernel's reply would not reach the client. */
		if (old && old->state == STATE_DONE)
			old->tag = 0;
		return pass_to_kernel(reason_pass_syn_socket);
	}
	if (is_strange)
		return lookup_kernel_socket(ctx, syn, old);
	if (old && is_live(old))
		return challenge(ctx, syn, old);
	/* There is a listener, hence no kernel socket of this connection any more: the marker is stale. */
	if (old && is_kernel_owned(old))
		old->tag = 0;
	return SYN_ACCEPTED | offer.mss << 8 | offer.options;
}

/* MSS; SACK permitted, timestamps; window scale. */
#define SYN_OPTION_WORDS_MAX 5

/* Whether the client's SYN has timestamps, and the SYN-ACK has room for them. Sets the client's timestamp. */
static __always_inline int agrees_to_timestamps(context *ctx, const struct control *control, const struct segment *syn,
						__u32 *tsval_be)
{
	__s64 tsval;

	if (control->settings & SETTING_NO_TIMESTAMPS || syn->payload_at - syn->tcp_at < TCP_LEN + 4 * SYN_OPTION_WORDS_MAX)
		return 0;
	tsval = timestamp_of(ctx, syn);
	*tsval_be = bpf_htonl((__u32)tsval);
	return tsval >= 0;
}

/* Writes the options of the SYN-ACK, no longer than those of the SYN. Returns their length. */
static __always_inline __u32 choose_syn_options(context *ctx, const struct control *control, const struct segment *syn,
						const struct syn_offer *offer, __u32 *options)
{
	__u32 room = syn->payload_at - syn->tcp_at - TCP_LEN;
	__u32 scale = (offer->options & OPTION_SCALE_MASK) == OPTION_SCALE_NONE
			      ? NO_OPERATIONS : bpf_htonl(0x01030300 | WINDOW_SCALE);
	__u32 mss = control->mtu - (syn->is_v6 ? 60 : 40), most = syn->is_v6 ? 1440 : 1460;
	int has_sack = offer->options & OPTION_SACK;

	if (room < 4)
		return 0;
	options[0] = bpf_htonl(0x02040000 | (mss < most ? mss & 0xffff : most));
	if (agrees_to_timestamps(ctx, control, syn, options + 3)) {
		options[1] = bpf_htonl((has_sack ? 0x04020000 : 0x01010000) | 0x080a);
		/* Each connection has a different clock offset, so that timestamps do not reveal the uptime of this
		 * machine. */
		options[2] = bpf_get_prandom_u32();
		options[4] = scale;
		return 20;
	}
	/* Words of zeros add nothing to the checksum. */
	options[3] = 0;
	if (room < 8)
		return 4;
	options[1] = has_sack ? bpf_htonl(0x01010402) : NO_OPERATIONS;
	if (room >= 12) {
		options[2] = scale;
		return 12;
	}
	if (scale != NO_OPERATIONS)
		options[1] = scale;
	return 8;
}

/* Sends the SYN-ACK in the frame of the SYN. */
static __always_inline int send_syn_ack(context *ctx, const struct control *control, const struct segment *syn,
					const struct handshake *handshake)
{
	__u32 options[SYN_OPTION_WORDS_MAX] = {}, len = choose_syn_options(ctx, control, syn, &handshake->offer, options);
	struct answer answer = {
		.seq = handshake->isn, .ack = syn->seq + 1, .flags = FLAG_SYN | FLAG_ACK, .window = WINDOW, .options_len = len,
	};
	__u32 size = syn->tcp_at + TCP_LEN + len;

	answer.sum = fold(words_of(options, SYN_OPTION_WORDS_MAX));
	if (size < FRAME_MIN && syn->frame_len >= FRAME_MIN)
		size = FRAME_MIN;
	if (frame_resize(ctx, syn->frame_len, size))
		return drop(reason_drop_no_room);
	for (int i = 0; i < SYN_OPTION_WORDS_MAX; i++) {
		/* The mask bounds the offset for the verifier. */
		__u32 *to = frame_begin(ctx) + (syn->tcp_at & 0x3f) + TCP_LEN + 4 * i;
		if (4 * i < len && (void *)(to + 1) <= frame_end(ctx))
			*to = options[i];
	}
	write_headers(ctx, syn, &answer);
	count(reason_tcp_syn);
	return frame_reply(ctx);
}

/* Answers a SYN; `accepted` is the result of on_syn. */
SEPARATE int answer_syn(context *ctx, struct segment *syn ARG, __u32 accepted)
{
	struct control *control = level_control();
	struct handshake handshake;

	if (!control)
		return pass_to_kernel(reason_pass_syn_off);
	/* Timestamps of an earlier connection with this tuple must not be used. */
	syn->reply_options_len = 0;
	int is_known = find_half_open(syn, control, &handshake);
	/* A forged SYN must not displace the client's handshake (RFC 5961 §4); Linux does the same. */
	if (is_known && handshake.client_isn != syn->seq && is_young(syn)) {
		count(reason_tcp_challenge);
		return reply_bare(ctx, syn, handshake.isn + 1, handshake.client_isn + 1, FLAG_ACK, handshake.offer.options);
	}
	handshake.offer.mss = accepted >> 8;
	handshake.offer.options = accepted;
	/* A retransmitted SYN gets the same initial sequence number. */
	if (!is_known || handshake.client_isn != syn->seq)
		handshake.isn = make_cookie(control, syn, &handshake.offer);
	handshake.client_isn = syn->seq;
	record_half_open(&syn->tuple, syn->hash, control, &handshake, syn->now_ns);
	return send_syn_ack(ctx, control, syn, &handshake);
}

static __always_inline __u16 handshake_of(const struct segment *segment)
{
	return (segment->ack - 1) >> 8;
}

/* Whether the segment is a late copy from this connection's own handshake. */
static __always_inline int is_of_handshake(const struct segment *segment,
					   const struct connection *connection)
{
	return connection->state != STATE_DONE && connection->handshake == handshake_of(segment) &&
	       connection->rcv_nxt - segment->seq <= 0xffff;
}

/* Creates a connection from its first segment, and counts `reason`. Returns 1 on success. */
SEPARATE int open_connection(const struct segment *segment ARG, const struct syn_offer *offer ARG, __u32 reason)
{
	struct control *control = level_control();
	struct connection *connection = control ? allocate_connection(segment, control->idle, 1) : 0;

	if (!connection)
		return 0;
	connection->rcv_nxt = segment->seq;
	connection->snd_nxt = segment->ack;
	connection->mss = offer->mss;
	connection->options = offer->options;
	/* If the SYN-ACK had timestamps, the client sends timestamps in all later segments, and otherwise never (RFC
	 * 7323 §3.2). */
	connection->has_timestamps = segment->has_timestamps;
	/* The clock continues from the SYN-ACK's timestamp, which the client echoes. */
	connection->clock_offset = bpf_ntohl(segment->tsecr_be) - now_ms();
	connection->handshake = handshake_of(segment);
	connection->state = STATE_OPEN;
	/* Written last: the tag makes the slot visible to other processors. */
	*(volatile __u32 *)&connection->tag = tag_of(segment);
	count(reason);
	return 1;
}

static __always_inline int is_plain_ack(const struct segment *segment)
{
	return (segment->flags & (FLAG_ACK | FLAG_SYN | FLAG_RST)) == FLAG_ACK;
}

/* Relation of a segment to the pending handshake of its tuple. */
enum relation {
	/* No handshake is pending. */
	NO_HANDSHAKE,
	/* The segment completes the handshake. */
	COMPLETES,
	/* The segment has overtaken the one that completes the handshake. */
	OVERTAKES,
	/* The client has reset the handshake. */
	RESETS,
	/* The segment acknowledges a number other than ours. */
	MISSES,
};

/* Only the segment directly after the SYN completes a handshake: a later one would open the connection behind data that
 * has not arrived. */
SEPARATE int relation_of(const struct segment *segment ARG, struct syn_offer *offer ARG)
{
	struct control *control = level_control();
	struct handshake known;

	if (!control || !find_half_open(segment, control, &known))
		return NO_HANDSHAKE;
	if (segment->flags & FLAG_RST && segment->seq == known.client_isn + 1) {
		remove_half_open(segment);
		return RESETS;
	}
	if (!is_plain_ack(segment))
		return NO_HANDSHAKE;
	if (segment->ack != known.isn + 1)
		return MISSES;
	if (segment->seq != known.client_isn + 1)
		return OVERTAKES;
	/* Each handshake completes once. */
	remove_half_open(segment);
	*offer = known.offer;
	return COMPLETES;
}

/* Whether the segment completes a handshake with an overwritten entry. Returns reason_count if so, otherwise the
 * reason to pass or drop the segment. Never reopens a connection that is over. */
SEPARATE int completes_by_cookie(const struct segment *segment ARG, struct syn_offer *offer ARG)
{
	struct control *control = level_control();
	struct connection *old = find_connection(segment);

	if (!control || (old && old->handshake == handshake_of(segment)) || !may_complete_by_cookie(segment))
		return reason_pass_unknown;
	if (is_cookie_flood(control, segment))
		return reason_drop_cookie;
	if (check_cookie(control, segment, offer))
		return reason_count;
	count_wrong_cookie(control, segment);
	return reason_drop_cookie;
}

