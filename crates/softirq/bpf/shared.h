/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Types shared with user space: the values of the maps, limits, and the names of all exits. User space generates its
 * types from this file by bindgen, so they are defined only here.
 * Byte order: fields that end in _be are in network byte order, all others in host order. */
#pragma once

#include <linux/types.h>

/* Part of the name of the folder of pinned maps; must be incremented when a type below changes. */
#define LAYOUT_VERSION 9

/* The TCP timestamps option with its padding (RFC 7323 appendix A). */
#define TIMESTAMPS_LEN 12
/* Maximum number of response bytes in one segment (MTU 1500, timestamps). */
#define RESPONSE_MAX 1448
/* IPv6 routers do not fragment, and their ICMP errors would find no socket, so the minimum MTU is used: 1280 - 60 - 12
 * (RFC 8200 §5). */
#define RESPONSE_MAX_V6 1208
/* Maximum number of segments of a response: the kernel's initial congestion window (RFC 6928). */
#define PARTS_MAX 10
/* The same for TC on a connection that stays open: sending more segments costs more there than in the kernel
 * (docs/performance.md). */
#define KEPT_PARTS_MAX_TC 3
/* Frame metadata by which native XDP instructs the program at TC: to migrate the connection, or to process the frame
 * from the beginning, because that needs helpers that only TC has. */
#define META_HAND_OVER 0x4c6f5721
#define META_AGAIN 0x4c6f5722
/* Shift of the interface index in a key of the fan-out map; the lower bits contain the number of copies. */
#define FAN_OUT_SHIFT 8
#define KEY_MAX 440
/* Maximum number of bytes copied out of a segment for the request parser. */
#define REQUEST_MAX 1500
#define DATE_LEN 29
#define AGE_LEN 5

/* Layout of a key's start: class, port, and the requested local address (IPv4 as ::ffff:a.b.c.d); port and address in
 * network byte order. A machine's servers may respond differently at each address and port. */
#define KEY_PORT_AT 1
#define KEY_ADDRESS_AT 3
#define KEY_START 19
/* Identifiers of the parts that follow in a key, each with its bytes as received. */
#define KEY_TARGET 1
#define KEY_HOST 2
#define KEY_ACCEPT_ENCODING 3
#define KEY_IF_NONE_MATCH 4
#define KEY_IF_MODIFIED_SINCE 5
/* Bits of a key's class. */
#define CLASS_CLOSE 1
#define CLASS_HTTP_10 2

/* A stored response. While the index refers to it, and for some seconds afterwards, only its times change, since it may
 * have to be retransmitted. The programs never write here, since all processors read it. */
struct response {
	/* End of its freshness (CLOCK_MONOTONIC, ns). */
	__u64 expires_ns;
	/* Time at which its Age was 0 (CLOCK_MONOTONIC, ns); not in the future. A time before boot wraps around, and so
	 * does the difference. */
	__u64 born_ns;
	__u64 hash;
	/* Publication counter, never 0: while it has not changed, the slot contains the same response. */
	__u32 id;
	/* Offset of its bytes in the store. The values of Date and Age are zeros there. */
	__u32 at;
	/* Folded checksums of 16-bit words in host order: of each RESPONSE_MAX bytes, of each RESPONSE_MAX_V6 bytes,
	 * and of the head. */
	__u16 sums[2][PARTS_MAX];
	__u16 head_sum;
	__u16 len;
	__u16 head_len;
	/* Offsets of the values of Date and Age; 0 if there is no such field. */
	__u16 date_at;
	__u16 age_at;
	__u16 key_len;
	__u16 status;
	__u16 spare;
	__u8 key[KEY_MAX + 8];
};

/* Number of bytes that may be read from the start of any segment in the store, regardless of its length. */
#define STORE_MARGIN (RESPONSE_MAX + 8)

/* An index entry is (upper half of the hash) << 32
 * (slot number of the response + 1), or 0. */
#define INDEX_WAYS 8
struct index_bucket {
	__u64 entry[INDEX_WAYS];
};

/* Four-tuple in network byte order; IPv4 as ::ffff:a.b.c.d. */
struct tuple {
	__u32 client_be[4];
	__u32 local_be[4];
	__u16 client_port_be;
	__u16 local_port_be;
};

/* Last word, in host order, of the probe source addresses 203.0.113.254, 2001:db8::cb00:71fe and fe80::cb00:71fe, from
 * which the daemon fetches like an unknown client. It is even, since pass-through connections use the next higher
 * address. */
#define OUTSIDER 0xcb0071fe

/* A prefix length in bits, and an address; IPv4 as ::ffff:a.b.c.d. */
struct prefix {
	__u32 bits;
	__u32 address_be[4];
};

/* Values of the map of denied clients. The longest prefix that matches a client decides. */
#define PREFIX_DENIED 1
#define PREFIX_ALLOWED 2
#define PREFIX_DROPPED 3 /* the server refuses these clients, so their SYNs are dropped */

enum connection_state {
	/* Live: its requests are answered on the fast path. */
	STATE_OPEN = 1,
	/* Live, and our FIN has been sent. */
	STATE_CLOSING = 2,
	/* Both sides have sent FIN; the entry remains so that the client's FIN can be acknowledged again. */
	STATE_DONE = 3,
	/* Migrating: the segment at rcv_nxt was passed to a listener, possibly more than once. */
	STATE_HANDED = 4,
	/* The kernel has a socket for the connection. */
	STATE_KERNEL = 5,
	/* Over: the entry only remembers the handshake, copies of which must not reopen the connection. */
	STATE_OVER = 6,
	/* As STATE_KERNEL, if the kernel accepts the connection: its SYN was left to the kernel to find out whether the
	 * filter admits the client. */
	STATE_ASKED = 7,
};

#define ANSWER_NUMBER_BITS 19 /* in connection.answer */

/* There is no parked socket, or the kernel has the connection and its socket has not closed. */
#define SOCKET_NONE 0
/* Parked: the socket waits for the next request that is punted (parked.h). */
#define SOCKET_KEPT 1
/* The socket has closed or was reset, but may still send. */
#define SOCKET_ENDED 2

#define OPTION_SCALE_MASK 0x0f /* of the client; 15: none */
#define OPTION_SCALE_NONE 0x0f
#define OPTION_SACK 0x10
/* Not an option of the client: the number of times that the response in flight was retransmitted for segments that cost
 * less than a request. */
#define OPTION_PARTS 0xe0
#define OPTION_PARTS_ONE 0x20

/* A TCP connection. While the kernel has it, the sequence numbers describe the progress of the exchange, and answer_len
 * contains the tracking state (response_tracking.h). */
struct connection {
	struct tuple tuple;
	/* Upper half of the hash, made odd; 0 if the slot is free. */
	__u32 tag;
	__u32 rcv_nxt;
	__u32 snd_nxt;
	/* The response in flight, which snd_nxt includes and which the client has not completely acknowledged: its slot
	 * number + 1, and above that the lower bits of its id; 0 if there is none. */
	__u32 answer;
	/* Length of the response in flight, without FIN; and number of unacknowledged bytes of its request: all, or
	 * WITHHELD. */
	__u16 answer_len;
	__u16 request_len;
	__u16 mss;
	/* Time of the last segment, in units of 2^30 ns. */
	__u16 seen;
	__u8 state;
	__u8 options;
	/* Bits of our initial sequence number, by which copies of the handshake are recognized, so that they do not
	 * reopen the connection. */
	__u16 handshake;
	/* State of the kernel's socket while the connection is live: SOCKET_. The egress program writes this field,
	 * too. */
	__u8 socket;
	/* Both sides send timestamps (RFC 7323). */
	__u8 has_timestamps;
	__u8 spare[2];
	/* While a socket is parked: the next sequence numbers that the socket expects and sends. While the kernel has
	 * the connection: how far the client's numbers are ahead of the socket's. */
	__u32 socket_rcv;
	__u32 socket_snd;
	/* Offset of our timestamps from CLOCK_MONOTONIC in milliseconds. */
	__u32 clock_offset;
};

/* With eight slots per bucket, two candidate buckets and half of the slots taken, no connection is rejected (measured:
 * 0 of 10^6; with four slots 1 of 30,000). */
#define CONNECTION_WAYS 8
struct connection_bucket {
	struct connection way[CONNECTION_WAYS];
};

/* Contents of a SYN: two words, bound to the tuple by hashes with different keys, so that neither a torn entry nor
 * another tuple's entry is accepted. */
struct half_open {
	/* (The second hash) + (client's initial sequence number << 32
	 * ours); 0 if free. */
	__u64 identity;
	/* (tag ^ our initial sequence number) << 32 | mss << 16 | options */
	__u64 contents;
	/* Number of entries overwritten here before their handshakes completed, and time of the last overwrite in units
	 * of 2^30 ns. */
	__u32 forgotten;
	__u32 forgotten_at;
	/* Arrival of the SYN, in the same units. */
	__u32 at;
	__u32 spare;
};

/* Hash of a request without a stored response. */
struct asked {
	__u32 tag;
	/* Units of 2^30 ns: the request is not reported again before this time. */
	__u32 not_before;
};

struct date {
	__u8 text[32];
	/* Sum of the text's 16-bit words, at an even offset. */
	__u32 sum;
	__u32 spare;
};

enum mode {
	MODE_OFF = 0,
	MODE_SERVE = 1,
	/* New connections go to the kernel; live ones migrate at their next request. */
	MODE_DRAIN = 2,
};

#define SETTING_LOG 1 /* answers are reported as events */
#define SETTING_IGNORE_COOKIES 2
#define SETTING_IGNORE_CACHE_CONTROL 4 /* of requests */
#define SETTING_LEARN 8
#define SETTING_NO_SACK 32 /* the kernel would refuse to migrate a connection that has it */
#define SETTING_NO_SCALE 64
#define SETTING_NO_TIMESTAMPS 1024
#define SETTING_DENY 16 /* the map of denied prefixes is not empty */
#define SETTING_ADMIT 128 /* only clients that the kernel has admitted are answered */
#define SETTING_STAY_UP 512 /* migrated connections are not reclaimed */
#define SETTING_KEEP_TIME_WAIT 256 /* only the kernel ends sockets in TIME_WAIT */

/* Maximum length of the input of a hash, request or key, in words of eight bytes. */
#define HASHED_WORDS_MAX 64

/* Random secrets, all different (hash.h). */
struct hash_key {
	/* The last two words are for values hashed in addition to the bytes: the length or the address. */
	__u32 words[2 * (HASHED_WORDS_MAX + 2)];
	/* Keys of the two hashes of a tuple. */
	__u32 tuple[2][10];
	/* Odd multipliers. */
	__u64 mix[2];
};

/* Whether the kernel accepts migrated connections, and if not, the reason. The programs only distinguish 0 from the
 * other values. */
enum handover_problem {
	HANDOVER_WORKS = 0,
	/* The kernel refuses all migrated connections, because of Multipath TCP or a disabled TCP option. */
	HANDOVER_REFUSED = 1,
	/* The kernel creates no sockets from migrated segments, because a firewall or another packet filter drops
	 * them. */
	HANDOVER_NOT_TAKEN = 2,
	/* net.ipv4.tcp_syncookies is 0. */
	HANDOVER_NO_COOKIES = 3,
};

/* Level bypass: whether new connections are left to the kernel, because the fast path gains nothing. */
enum resting {
	AWAKE = 0,
	/* Connections are left to the kernel; live ones continue. */
	RESTING = 1,
	/* No live connection remains; frames are not examined. */
	ASLEEP = 2,
};

/* Maximum number of kinds of denials that are counted. */
#define DENIAL_KINDS 8

/* Settings and state with which user space controls the programs. */
struct control {
	/* Time of the daemon's last heartbeat (CLOCK_MONOTONIC, ns). */
	__u64 heartbeat_ns;
	__u32 mode;
	__u32 settings;
	/* Number of published responses; if 0, connections are left to the kernel. */
	__u32 published;
	/* Index of the current entry of `dates`. */
	__u32 date_now;
	/* Time without a segment, in units of 2^30 ns, after which a connection's slot may be reused. */
	__u32 idle;
	/* Process id of the daemon, and purge counter (a purge may increment it more than once). */
	__u32 pid;
	__u32 purges;
	/* Frame metadata does not reach the TC program, which therefore checks every frame. */
	__u32 meta_broken;
	/* One of enum handover_problem; if not 0, connections are left to the kernel. */
	__u32 handover_broken;
	/* Smallest MTU of the interfaces. */
	__u32 mtu;
	/* One of enum resting. */
	__u32 resting;
	struct date dates[2];
	/* SipHash keys of SYN cookies; the one at (minutes >> 6) & 1 is in use. */
	__u64 cookie_key[2][2];
	struct hash_key hash_key;
	/* Time of the last wrong cookie in units of 2^30 ns, and number of wrong cookies in that unit. */
	__u32 wrong_cookies_at;
	__u32 wrong_cookies;
	/* Last change of the filter rules (CLOCK_MONOTONIC, ns). Earlier admissions are void. */
	__u64 rules_ns;
	/* The programs do not use the fields from here to `denials`. End of the bypass, and end of the pause in
	 * fetching, which begins when fetches bring too few hits (CLOCK_MONOTONIC, ns); 0 if there is none. */
	__u64 rest_until_ns;
	__u64 pause_until_ns;
	/* Requests and answers in the sample that triggered the bypass. */
	__u64 rest_requests;
	__u64 rest_answers;
	/* Responses that the daemon did not publish, by kind of denial. */
	__u64 denials[DENIAL_KINDS];
	/* Bit sets of ports: ports that are answered, and local source ports that are exempt. */
	__u64 ports[1024];
	__u64 exempt[1024];
	/* Bit set of ports that are being detached; for these, the mode is MODE_DRAIN. */
	__u64 leaving[1024];
};

/* Constants that user space sets before it loads the programs; the verifier removes the branches that they disable. */
struct constants {
	/* Numbers of buckets - 1; both numbers are powers of two. */
	__u32 connection_mask;
	__u32 index_mask;
	/* Number of response slots - 1; a power of two. */
	__u32 response_mask;
	/* Highest offset in the store at which a segment of a response may begin. */
	__u32 store_last;
};

/* Time for which an admission by the kernel is valid for new connections. */
#define ADMISSION_NS 60000000000ull

/* Time for which the programs continue without a heartbeat of the daemon. */
#define HEARTBEAT_LIMIT_NS 30000000000ull

#define EVENT_ASKED 1
#define EVENT_ANSWERED 2

/* Event in the ring buffer: a request for a response that is not stored. The key follows. */
struct asked_event {
	__u64 hash;
	__u16 kind;
	__u16 key_len;
	__u32 spare;
};

/* Event in the ring buffer: an answer. The request's head follows. */
struct answered_event {
	__u64 when_ns;
	__u16 kind;
	__u16 head_len;
	__u16 status;
	__u16 body_len;
	struct tuple tuple;
	__u32 id;
};

/* Counters of one reason. */
struct counted {
	__u64 count;
	/* Bytes sent, head and body; for answer_hit only. */
	__u64 bytes;
};

/* Every exit of the programs has one of these names, and each is a counter. answer_: answered on the fast path. up_:
 * the request is punted to the server. pass_: the segment belongs to no live connection of this level. tcp_: connection
 * life cycle. drop_: dropped without a reply. */
#define REASONS(X) \
	X(answer_hit, "a stored response") \
	X(answer_again, "a retransmission of a response") \
	X(up_miss, "no matching response is stored") \
	X(up_expired, "the response is no longer fresh") \
	X(up_large, "the response is too long for the client, the path, or this level") \
	X(up_window, "the client's window is too small") \
	X(up_cut, "the segment does not contain the whole head") \
	X(up_more, "bytes follow the head") \
	X(up_method, "neither GET nor HEAD") \
	X(up_target, "the target is not a plain path") \
	X(up_version, "neither HTTP/1.1 nor HTTP/1.0") \
	X(up_host, "no Host, or several") \
	X(up_field, "a field that only the server evaluates") \
	X(up_cookie, "a Cookie") \
	X(up_syntax, "a head with obsolete or invalid syntax") \
	X(up_long, "the key or the head is too long") \
	X(up_room, "the driver has no room behind the frame") \
	X(up_drain, "this level is being detached") \
	X(up_daemon, "the daemon has sent no heartbeat for too long") \
	X(up_flags, "FIN or URG with data") \
	X(up_denied, "the client is in the list of denied prefixes") \
	X(up_unadmitted, "the firewall's rules have changed since the kernel accepted the client") \
	X(tcp_syn, "a SYN was answered with a cookie") \
	X(tcp_reused, "a new connection replaced one in TIME_WAIT") \
	X(tcp_open, "a handshake completed, its SYN remembered") \
	X(tcp_open_cookie, "a handshake completed, by its cookie alone") \
	X(tcp_ack, "an acknowledgement") \
	X(tcp_fin, "the client closes") \
	X(tcp_reset, "the client resets") \
	X(tcp_challenge, "a reset with an inexact sequence number, or a SYN of a live connection, got a challenge ACK (RFC 5961)") \
	X(tcp_probe, "a keep-alive probe was answered") \
	X(tcp_old, "an old segment was acknowledged") \
	X(tcp_early, "a segment beyond a gap was acknowledged") \
	X(tcp_gone, "reset: the response in progress can't be retransmitted") \
	X(tcp_closed, "reset: data after the end") \
	X(tcp_handed, "a connection was migrated to a listener") \
	X(tcp_kept, "the kernel has the connection now") \
	X(tcp_not_handed, "the kernel refused to take over a connection") \
	X(tcp_no_listener, "nothing has listened for seconds: the kernel resets the connection") \
	X(tcp_taken_back, "a migrated connection was reclaimed, for a request that can be answered here") \
	X(tcp_resumed, "a request was passed to the parked socket of its connection") \
	X(tcp_ended, "the kernel socket of a reclaimed connection was ended") \
	X(tcp_admitted, "the kernel has accepted a client") \
	X(tcp_evicted, "a live connection lost its slot in the table") \
	X(drop_pipelined, "a request before the last response was acknowledged; buffered until then if there is room") \
	X(drop_cookie, "no valid SYN cookie, although SYNs were answered") \
	X(drop_early, "arrived before the handshake was complete, or while a listener's backlog was full") \
	X(drop_no_listener, "nothing listens at the moment: the client retries") \
	X(drop_time_wait, "a segment to migrate, before the kernel has ended the connection in TIME_WAIT") \
	X(drop_leftover, "from the kernel socket of a connection that is answered here: its client must not see it") \
	X(drop_wrapped, "IP options or extension headers on a connection answered here: the segment is injected again without them") \
	X(drop_fragment, "a fragment of a connection answered here, which goes to the server: its client sends the segment again") \
	X(drop_denied, "a SYN of a client in the server's deny list") \
	X(drop_odd, "without the required ACK") \
	X(drop_sum, "a wrong checksum; passed on unless its connection is answered here") \
	X(drop_no_room, "no room for an acknowledgement") \
	X(pass_other, "not TCP over Ethernet to one of the ports") \
	X(pass_fragment, "a fragment, or IP options") \
	X(pass_kernel, "of a connection of the kernel") \
	X(pass_unknown, "of no known connection") \
	X(pass_syn_off, "a SYN while off, draining, bypassed, without daemon or without responses") \
	X(pass_syn_socket, "a SYN for which there is a socket, or no listener") \
	X(pass_syn_unusual, "a SYN with data, a tiny MSS, or from an exempt port") \
	X(pass_syn_foreign, "a SYN for an address of another machine") \
	X(pass_denied, "a SYN from a denied prefix") \
	X(pass_unadmitted, "a SYN of a client that the kernel has not accepted recently") \
	X(event_lost, "the ring buffer of events was full")

#define REASON_ENUM(name, text) reason_##name,
enum reason { REASONS(REASON_ENUM) reason_count };
