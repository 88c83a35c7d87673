/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What the programs and user space both see: the values of the maps, limits, and the names of all
 * exits. User space gets these types from this file (bindgen), so they stand nowhere else.
 * Byte order: fields that end in _be are as on the wire, all others as the machine has them. */
#pragma once

#include <linux/types.h>

/* Part of the name of the folder of pinned maps: raise it when a type below changes. */
#define LAYOUT_VERSION 9

/* The TCP timestamps option with its padding (RFC 7323 appendix A). */
#define TIMESTAMPS_LEN 12
/* Maximum response bytes in one segment (Ethernet 1500, timestamps). */
#define RESPONSE_MAX 1448
/* IPv6 routers do not fragment, and their ICMP errors would not find a socket: 1280 - 60 - 12 (RFC 8200 §5). */
#define RESPONSE_MAX_V6 1208
/* Segments of an answer: as many as the kernel sends at first (RFC 6928). */
#define PARTS_MAX 10
/* The same at TC where the connection stays open: more cost more there than the kernel takes for them
 * (docs/performance.md). */
#define KEPT_PARTS_MAX_TC 3
/* Data before a frame, by which native XDP tells the program at TC what to do: hand it over; or take it
 * from the beginning, because it needs what only TC can. */
#define META_HAND_OVER 0x4c6f5721
#define META_AGAIN 0x4c6f5722
/* Of the interface in a key of the map of what is copied; below is the number of copies. */
#define FAN_OUT_SHIFT 8
#define KEY_MAX 440
/* What is copied out of a segment to be read as a request. */
#define REQUEST_MAX 1500
#define DATE_LEN 29
#define AGE_LEN 5

/* What a key begins with: class, port, and the address that was asked (IPv4 as ::ffff:a.b.c.d), port and
 * address as on the wire; one machine's servers may answer differently at each. */
#define KEY_PORT_AT 1
#define KEY_ADDRESS_AT 3
#define KEY_START 19
/* Then come its pieces, each with its bytes as received. */
#define KEY_TARGET 1
#define KEY_HOST 2
#define KEY_ACCEPT_ENCODING 3
#define KEY_IF_NONE_MATCH 4
#define KEY_IF_MODIFIED_SINCE 5
/* Bits of a key's class. */
#define CLASS_CLOSE 1
#define CLASS_HTTP_10 2

/* A stored response. Nothing of it but its times changes while the index names it, and for some seconds
 * after: it may have to be sent again. The programs write nothing here: all processors read it. */
struct response {
	/* CLOCK_MONOTONIC, ns: from then on it is not answered. */
	__u64 expires_ns;
	/* CLOCK_MONOTONIC, ns, not after now: when its Age was 0. Before boot it wraps round, and so does
	 * the difference. */
	__u64 born_ns;
	__u64 hash;
	/* Counts publications, never 0: the same number is the same bytes. */
	__u32 id;
	/* Where its bytes begin in the store, Date and Age as zeros. */
	__u32 at;
	/* Sums of native 16-bit words, folded: of each RESPONSE_MAX bytes; of each RESPONSE_MAX_V6 bytes; and of
	 * the head. */
	__u16 sums[2][PARTS_MAX];
	__u16 head_sum;
	__u16 len;
	__u16 head_len;
	/* Where the values of Date and Age begin; 0 is none. */
	__u16 date_at;
	__u16 age_at;
	__u16 key_len;
	__u16 status;
	__u16 spare;
	__u8 key[KEY_MAX + 8];
};

/* So much of the store may be read from where a part begins, whatever its length. */
#define STORE_MARGIN (RESPONSE_MAX + 8)

/* Entries are (upper half of the hash) << 32 | (number of the response + 1), or 0. */
#define INDEX_WAYS 8
struct index_bucket {
	__u64 entry[INDEX_WAYS];
};

/* Addresses and ports as on the wire; IPv4 as ::ffff:a.b.c.d. */
struct tuple {
	__u32 client_be[4];
	__u32 local_be[4];
	__u16 client_port_be;
	__u16 local_port_be;
};

/* The last word, as a number, of 203.0.113.254, 2001:db8::cb00:71fe and fe80::cb00:71fe, the source addresses of our
 * requests, to which the server gives its answer for unknown clients. It is even: connections that are passed through
 * come from the address above it. */
#define OUTSIDER 0xcb0071fe

/* A prefix length in bits, and an address; IPv4 as ::ffff:a.b.c.d. */
struct prefix {
	__u32 bits;
	__u32 address_be[4];
};

/* What a prefix in `denied` says; the longest that fits a client holds. */
#define PREFIX_DENIED 1
#define PREFIX_ALLOWED 2

enum connection_state {
	/* Ours: answered here. */
	STATE_OPEN = 1,
	/* Ours, and we have sent FIN. */
	STATE_CLOSING = 2,
	/* Both sides have sent FIN; kept to acknowledge the client's again. */
	STATE_DONE = 3,
	/* The segment at rcv_nxt is on its way to a listener, perhaps not for the first time. */
	STATE_HANDED = 4,
	/* The kernel has a socket for it. */
	STATE_KERNEL = 5,
	/* Nothing is left of it but its handshake, which must not open it again. */
	STATE_OVER = 6,
	/* The same, if it takes it: its SYN was left to the kernel to see whether its client is let in. */
	STATE_ASKED = 7,
};

#define ANSWER_NUMBER_BITS 19 /* of a connection's answer */

/* There is none, or the kernel has the connection and it has not closed. */
#define SOCKET_NONE 0
/* It waits for the next request that goes up; kept.h. */
#define SOCKET_KEPT 1
/* It has closed, or was ended, and may have something to say yet. */
#define SOCKET_ENDED 2

#define OPTION_SCALE_MASK 0x0f /* of the client; 15 is none */
#define OPTION_SCALE_NONE 0x0f
#define OPTION_SACK 0x10
/* Not of the client: how often the answer under way was sent for less than its request. */
#define OPTION_PARTS 0xe0
#define OPTION_PARTS_ONE 0x20

/* Of one TCP connection. While the kernel has it, its numbers say how far the exchange there is, and answer_len
 * what is known of that: following.h. */
struct connection {
	struct tuple tuple;
	/* Upper half of the hash, odd; 0 is free. */
	__u32 tag;
	__u32 rcv_nxt;
	__u32 snd_nxt;
	/* The response that snd_nxt counts and the client has not acknowledged: its number + 1, and above
	 * that bits of its id; 0 is none. */
	__u32 answer;
	/* Its length, without FIN, and how much of its request is not acknowledged: all, or WITHHELD. */
	__u16 answer_len;
	__u16 request_len;
	__u16 mss;
	/* Units of 2^30 ns: when it was last heard of. */
	__u16 seen;
	__u8 state;
	__u8 options;
	/* Of our first sequence number, so that the same handshake does not open it again. */
	__u16 handshake;
	/* What has become of the kernel's socket while the connection is ours: SOCKET_. Written at egress, too. */
	__u8 socket;
	/* Both sides send timestamps (RFC 7323). */
	__u8 has_timestamps;
	__u8 spare[2];
	/* What the socket expects next, and what it sends next, while it waits; while the kernel has the connection,
	 * by how much the client's numbers are ahead of that. */
	__u32 socket_rcv;
	__u32 socket_snd;
	/* Offset of our timestamps from CLOCK_MONOTONIC in milliseconds. */
	__u32 clock_offset;
};

/* With eight, two choices and half the places taken, nobody is turned away (measured: none of 10^6; with
 * four 1 of 30,000). */
#define CONNECTION_WAYS 8
struct connection_bucket {
	struct connection way[CONNECTION_WAYS];
};

/* What a SYN said. Two words, each of which names the tuple, by hashes under two keys, so that neither a
 * torn one nor that of another tuple is taken for it. */
struct half_open {
	/* The second hash + (the client's first sequence number << 32 | ours); 0: nobody */
	__u64 who;
	/* (tag ^ our number) << 32 | mss << 16 | options */
	__u64 what;
	/* How many were overwritten here before they were heard of again, and when the last was: units of
	 * 2^30 ns. */
	__u32 forgotten;
	__u32 forgotten_at;
	/* When the SYN came, in the same units. */
	__u32 at;
	__u32 spare;
};

/* Hashes of what was asked for. */
struct asked {
	__u32 tag;
	/* Units of 2^30 ns: not reported again before. */
	__u32 not_before;
};

struct date {
	__u8 text[32];
	/* Sum of its 16-bit words, from an even offset. */
	__u32 sum;
	__u32 spare;
};

enum mode {
	MODE_OFF = 0,
	MODE_SERVE = 1,
	/* New connections go to the kernel, live ones with their next request. */
	MODE_DRAIN = 2,
};

#define SETTING_LOG 1 /* answers are recorded */
#define SETTING_IGNORE_COOKIES 2
#define SETTING_IGNORE_CACHE_CONTROL 4 /* of requests */
#define SETTING_LEARN 8
#define SETTING_NO_SACK 32 /* the kernel would not take over a connection that has it */
#define SETTING_NO_SCALE 64
#define SETTING_NO_TIMESTAMPS 1024
#define SETTING_DENY 16 /* the map of denied prefixes is not empty */
#define SETTING_ADMIT 128 /* only clients that the kernel has let in are answered */
#define SETTING_STAY_UP 512 /* what was handed up stays up */
#define SETTING_KEEP_TIME_WAIT 256 /* nobody but the kernel may end what is in TIME_WAIT */

/* Of eight bytes each: so many of a request or a key are hashed at most. */
#define HASHED_WORDS_MAX 64

/* Secrets, all different; hash.h. */
struct hash_key {
	/* The last two are for what stands beside. */
	__u32 words[2 * (HASHED_WORDS_MAX + 2)];
	/* For two hashes of a tuple. */
	__u32 tuple[2][10];
	/* Odd. */
	__u64 mix[2];
};

/* Why the kernel would not take connections over. The programs only tell 0 from others. */
enum handover_problem {
	HANDOVER_WORKS = 0,
	/* It says so of each: Multipath TCP, an option that is switched off. */
	HANDOVER_REFUSED = 1,
	/* It has made no socket of what was handed: a firewall, or what else stands between. */
	HANDOVER_NOT_TAKEN = 2,
	/* net.ipv4.tcp_syncookies is 0. */
	HANDOVER_NO_COOKIES = 3,
};

/* Whether this level rests, since it gains nothing. */
enum resting {
	AWAKE = 0,
	/* Connections are left to the kernel; those of ours go on. */
	RESTING = 1,
	/* None of ours is left: no frame is looked at. */
	ASLEEP = 2,
};

/* So many reasons not to publish a response are told apart at most. */
#define DENIAL_KINDS 8

/* How user space steers the programs. */
struct control {
	/* CLOCK_MONOTONIC, ns: when the daemon was last heard of. */
	__u64 heartbeat_ns;
	__u32 mode;
	__u32 settings;
	/* Responses that can be asked for; 0: connections are left to the kernel. */
	__u32 published;
	/* Which of `dates` is now. */
	__u32 date_now;
	/* Units of 2^30 ns without a segment, after which a connection's place may be taken. */
	__u32 idle;
	/* Who keeps it, and how often it was purged. */
	__u32 pid;
	__u32 purges;
	/* Data before the frame does not arrive at the TC program: it looks for itself. */
	__u32 meta_broken;
	/* One of enum handover_problem: not 0, connections are left to the kernel. */
	__u32 handover_broken;
	/* Of the interface with the smallest. */
	__u32 mtu;
	/* One of enum resting. */
	__u32 resting;
	struct date dates[2];
	/* SipHash keys of cookies; (minutes >> 6) & 1 is used. */
	__u64 cookie_key[2][2];
	struct hash_key hash_key;
	/* The second (units of 2^30 ns) in which somebody last had a wrong cookie, and how many had. */
	__u32 wrong_cookies_at;
	__u32 wrong_cookies;
	/* CLOCK_MONOTONIC, ns: who was let in before is asked for anew, since the rules have changed. */
	__u64 rules_ns;
	/* The rest is no business of the programs. CLOCK_MONOTONIC, ns: until when it rests, and until when
	 * nothing new is fetched, since it is hardly asked for; 0: not. */
	__u64 rest_until_ns;
	__u64 pause_until_ns;
	/* Of how many requests it had answered how many when it began to rest. */
	__u64 rest_requests;
	__u64 rest_answers;
	/* How often the daemon did not publish what was asked for, by why. */
	__u64 denials[DENIAL_KINDS];
	/* Ports that are answered, and source ports on this machine that are left alone. */
	__u64 ports[1024];
	__u64 exempt[1024];
	/* Ports of these that are being taken off: as if the mode were MODE_DRAIN. */
	__u64 leaving[1024];
};

/* What user space sets before it loads; the verifier leaves out what it turns off. */
struct constants {
	/* Numbers of buckets - 1; both are powers of two. */
	__u32 connection_mask;
	__u32 index_mask;
	/* Number of places for responses - 1; a power of two. */
	__u32 response_mask;
	/* No part of a response begins behind it in the store. */
	__u32 store_last;
};

/* For so long after the kernel has let a client in, its new connections are answered. */
#define ADMISSION_NS 60000000000ull

/* How long the programs go on without the daemon. */
#define HEARTBEAT_LIMIT_NS 30000000000ull

#define EVENT_ASKED 1
#define EVENT_ANSWERED 2

/* In the ring: a response that is asked for and is not here. The key follows. */
struct asked_event {
	__u64 hash;
	__u16 kind;
	__u16 key_len;
	__u32 spare;
};

/* In the ring: an answer. The request's head follows. */
struct answered_event {
	__u64 when_ns;
	__u16 kind;
	__u16 head_len;
	__u16 status;
	__u16 body_len;
	struct tuple tuple;
	__u32 id;
};

/* What is counted of an exit, by each processor. */
struct counted {
	__u64 count;
	/* Head and body of what was sent; of answer_hit only. */
	__u64 bytes;
};

/* Every exit of the programs has one of these names; each is a counter.
 * answer_: this level answered. up_: the request goes to the server. pass_: none of ours, or not
 * for this level. tcp_: the life of connections. drop_: nothing is said to that. */
#define REASONS(X) \
	X(answer_hit, "a stored response") \
	X(answer_again, "the same once more: the client had not got all of it") \
	X(up_miss, "no such response is stored") \
	X(up_expired, "the response is no longer fresh") \
	X(up_large, "longer than the client or the path takes, or than is worth it, in segments of this level") \
	X(up_window, "the client's window is too small") \
	X(up_cut, "the segment does not hold the whole head") \
	X(up_more, "bytes follow the head") \
	X(up_method, "neither GET nor HEAD") \
	X(up_target, "no plain target") \
	X(up_version, "neither HTTP/1.1 nor HTTP/1.0") \
	X(up_host, "no Host, or several") \
	X(up_field, "a field that another level understands") \
	X(up_cookie, "a Cookie") \
	X(up_syntax, "a head that is not as simple as it could be") \
	X(up_long, "a key or a head too long") \
	X(up_room, "the driver has no room behind the frame") \
	X(up_drain, "this level is being taken off") \
	X(up_daemon, "the daemon has not been heard of") \
	X(up_flags, "FIN or URG with data") \
	X(up_denied, "the client is in the list of denied prefixes") \
	X(up_unadmitted, "the machine's filter has changed since the kernel let the client in") \
	X(tcp_syn, "a SYN was answered with a cookie") \
	X(tcp_reused, "a new connection took the place of one in TIME_WAIT") \
	X(tcp_open, "a handshake completed, its SYN remembered") \
	X(tcp_open_cookie, "a handshake completed, by its cookie alone") \
	X(tcp_ack, "an acknowledgement") \
	X(tcp_fin, "the client closes") \
	X(tcp_reset, "the client resets") \
	X(tcp_challenge, "a reset beside the mark, or a SYN of a live connection, was answered with an acknowledgement (RFC 5961)") \
	X(tcp_probe, "a keep-alive probe was answered") \
	X(tcp_old, "a segment from the past was acknowledged") \
	X(tcp_early, "a segment from the future was answered with an acknowledgement") \
	X(tcp_gone, "reset: the answer under way can't be sent again") \
	X(tcp_closed, "reset: data after the end") \
	X(tcp_handed, "a listener got the connection") \
	X(tcp_kept, "the kernel has the connection now") \
	X(tcp_not_handed, "the kernel refused to take the connection over") \
	X(tcp_no_listener, "nobody has listened for seconds: the kernel resets") \
	X(tcp_taken_back, "the kernel's connection is answered here again, from a request that can be") \
	X(tcp_resumed, "a request went up to the socket that was kept since the last") \
	X(tcp_ended, "the socket that a connection had before it was taken back was ended") \
	X(tcp_admitted, "the kernel has let a client in") \
	X(tcp_evicted, "a live connection lost its place in the table") \
	X(drop_pipelined, "a request before the last answer was acknowledged; held until then if there is room") \
	X(drop_cookie, "no handshake's number, where a SYN or a flood of them was answered") \
	X(drop_early, "overtook what completes the handshake, or what a listener had no room for") \
	X(drop_no_listener, "nobody listens at the moment: the client tries again") \
	X(drop_time_wait, "what is handed up, before the kernel had ended the connection in TIME_WAIT") \
	X(drop_leftover, "of a socket whose connection is answered here: its client must not see it") \
	X(drop_wrapped, "IP options or extension headers on a connection of ours: the segment comes in without them") \
	X(drop_fragment, "a fragment of a connection of ours, which goes to the server: its client sends the segment again") \
	X(drop_odd, "without ACK, where there must be one") \
	X(drop_sum, "a wrong checksum; if of no connection of ours, it passes") \
	X(drop_no_room, "no room for an acknowledgement") \
	X(pass_other, "not TCP over Ethernet to one of the ports") \
	X(pass_fragment, "a fragment, or IP options") \
	X(pass_kernel, "of a connection of the kernel") \
	X(pass_unknown, "of no connection that is known") \
	X(pass_syn_off, "a SYN, while off, drained, at rest, without daemon or without responses") \
	X(pass_syn_socket, "a SYN for which there is a socket, or no listener") \
	X(pass_syn_unusual, "a SYN with data, a tiny MSS, or from an exempt port") \
	X(pass_syn_foreign, "a SYN for an address that is not this machine's") \
	X(pass_denied, "a SYN from a denied prefix") \
	X(pass_unadmitted, "a SYN of a client that the kernel has not let in of late") \
	X(event_lost, "the ring of events was full")

#define REASON_ENUM(name, text) reason_##name,
enum reason { REASONS(REASON_ENUM) reason_count };
