/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Socket interception (sk_lookup): assigns new connections to a server's port to Lowroad's listeners on other ports.
 * The kernel runs the program when it looks up a listener: for a SYN and for a migrating connection, but never for a
 * segment of an existing socket (Documentation/bpf/prog_sk_lookup.rst). Independent of the softirq level. */
#include "denied_clients.h"
#include "intercepted.h"

/* bits/socket.h */
#define AF_INET 2

/* The listener of each intercepted address. The kernel removes a socket when it is closed, however its process
 * ended. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, INTERCEPTED_MAX);
	__type(key, struct intercepted_address);
	__type(value, __u64);
} listen_sockets SEC(".maps");

struct endpoints {
	__u32 remote_be[4];
	__u32 local_be[4];
};

/* Both addresses, IPv4 as ::ffff:a.b.c.d. Reads both forms through volatile: from two branches clang would make one
 * load at a computed offset of the context, which the verifier rejects ("dereference of modified ctx ptr"). */
static __always_inline struct endpoints endpoints_of(const volatile struct bpf_sk_lookup *ctx)
{
	__u32 remote_be = ctx->remote_ip4, local_be = ctx->local_ip4;
	struct endpoints v6 = {
		{ ctx->remote_ip6[0], ctx->remote_ip6[1], ctx->remote_ip6[2], ctx->remote_ip6[3] },
		{ ctx->local_ip6[0], ctx->local_ip6[1], ctx->local_ip6[2], ctx->local_ip6[3] },
	};
	struct endpoints v4 = {
		{ 0, 0, bpf_htonl(0xffff), remote_be },
		{ 0, 0, bpf_htonl(0xffff), local_be },
	};

	return ctx->family == AF_INET ? v4 : v6;
}

static __always_inline int is_same(const __u32 *a, const __u32 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

/* Whether the longest prefix that matches the client denies it. */
static __always_inline int is_denied(const struct endpoints *endpoints)
{
	struct prefix prefix = { .bits = 128 };
	__u32 *rule;

	memcpy(prefix.address_be, endpoints->remote_be, sizeof(prefix.address_be));
	rule = bpf_map_lookup_elem(&denied_clients, &prefix);
	return rule && *rule == PREFIX_DENIED;
}

/* Connections from this machine are left to its server: Lowroad's own requests to the server, which come from reserved
 * addresses, and those of other local clients, which the server may treat differently from remote ones. No other host
 * can use these addresses: the kernel drops such packets, or sends the replies to this machine. The interface is no
 * criterion: for a connection to a local address, the kernel reports the interface with that address instead of lo. */
static __always_inline int is_from_this_machine(const struct endpoints *endpoints)
{
	__u32 probe_v4[4] = { 0, 0, bpf_htonl(0xffff), bpf_htonl(OUTSIDER) };
	__u32 probe_v6[4] = { bpf_htonl(0x20010db8), 0, 0, bpf_htonl(OUTSIDER) };
	struct endpoints other = *endpoints;

	/* Pass-through connections use the probe source address with its last bit set. */
	other.remote_be[3] &= ~bpf_htonl(1);
	return is_same(endpoints->remote_be, endpoints->local_be) || is_same(other.remote_be, probe_v4) ||
	       is_same(other.remote_be, probe_v6);
}

/* Without an assigned socket, SK_PASS continues the normal lookup, as if there were no program. */
SEC("sk_lookup")
int lowroad_lookup(struct bpf_sk_lookup *ctx)
{
	struct intercepted_address address = {};
	struct bpf_sock *sk;
	struct endpoints endpoints;

	if (ctx->protocol != IPPROTO_TCP)
		return SK_PASS;
	endpoints = endpoints_of(ctx);
	if (is_from_this_machine(&endpoints) || is_denied(&endpoints))
		return SK_PASS;
	memcpy(address.address_be, endpoints.local_be, sizeof(address.address_be));
	address.port = ctx->local_port;
	sk = bpf_map_lookup_elem(&listen_sockets, &address);
	if (!sk)
		return SK_PASS;
	/* If several sockets share the port (SO_REUSEPORT), the kernel selects one by the connection's hash. A socket
	 * that is about to close can't be assigned; the kernel then finds the server's listener. */
	bpf_sk_assign(ctx, sk, 0);
	bpf_sk_release(sk);
	return SK_PASS;
}

char LICENSE[] SEC("license") = "GPL";
