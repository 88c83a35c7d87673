/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The BPF maps. User space sets the sizes marked "sized by user space" before it loads the object, and maps arrays with
 * BPF_F_MMAPABLE into its memory. */
#pragma once

#include "denied_clients.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

/* The connection table. Its size is a power of two; sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct connection_bucket);
} connections SEC(".maps");

/* The index of the responses. Its size is a power of two; sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct index_bucket);
} response_index SEC(".maps");

/* The slots of the responses; sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct response);
} responses SEC(".maps");

/* Hits of each response, counted per processor: each value has one word per response slot; sized by user space. If the
 * counters were in the responses, each hit would move the response's first cache line between processors. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 8192);
} response_hits SEC(".maps");

/* The bytes of all responses: a single value in which each response has an extent; sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 8192);
} response_store SEC(".maps");

#define HALF_OPEN_ENTRIES 16384
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HALF_OPEN_ENTRIES);
	__type(key, __u32);
	__type(value, struct half_open);
} half_open SEC(".maps");

#define ASKED_ENTRIES 65536
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ASKED_ENTRIES);
	__type(key, __u32);
	__type(value, struct asked);
} request_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, reason_count);
	__type(key, __u32);
	__type(value, struct counted);
} reasons SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} events SEC(".maps");

struct address {
	__u32 be[4];
};

/* The addresses of this machine; IPv4 as ::ffff:a.b.c.d. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct address);
	__type(value, __u32);
} addresses SEC(".maps");

/* Key of an admission: client, local address, port and interface, which are all that an input filter may
 * distinguish. */
struct admission_key {
	__u32 client_be[4];
	__u32 local_be[4];
	__u32 interface;
	__u16 local_port_be;
	__u16 spare;
};

/* Time at which the kernel accepted a client (CLOCK_MONOTONIC, ns). An entry is made only after a handshake with the
 * kernel has completed, so that a flood of forged segments adds none. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct admission_key);
	__type(value, __u64);
} admissions SEC(".maps");

/* Grace period: user space replaces the element of this map to wait until all program runs that have already begun are
 * over. The system call returns after a grace period (kernel/bpf/syscall.c, maybe_wait_bpf_programs). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(max_entries, 1);
		__type(key, __u32);
		__type(value, __u32);
	});
} admission_grace SEC(".maps");

/* State of the parser. Requests are parsed in scratch memory, not in the packet, so that offsets need only be
 * masked. */
#define HEAD_SIZE 2048
#define KEY_SIZE 1024
struct request {
	__u32 len;
	/* Offset of the next line. */
	__u32 at;
	__u32 key_len;
	/* SEEN_ bits of the fields found. */
	__u32 seen;
	__u32 settings;
	/* The reason to punt the request; reason_count if it need not be punted. */
	__u32 reason;
	__u32 is_head;
	__u32 is_http_10;
	/* Arguments and results of the loops within the parser. */
	__u32 from;
	__u32 to;
	__u64 hash;
	__u64 differs;
};

struct scratch {
	/* In a map, not on the stack: the verifier does not track values in map memory, so it need not try them in all
	 * combinations. */
	struct request request;
	struct answered_event event;
	/* Without padding between these fields, since each event is sent together with the bytes behind it. */
	__u8 head[HEAD_SIZE + 8];
	struct asked_event asked;
	__u8 key[KEY_SIZE + 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

/* Set by user space before loading. */
const volatile struct constants constants = {};

static __always_inline struct control *level_control(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&control, &zero);
}

static __always_inline struct scratch *scratch_memory(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&scratch, &zero);
}

/* Counts a hit of a response. Need not be atomic: nothing else on this processor counts in the meantime. */
static __always_inline void count_hit(__u32 number)
{
	__u32 processor = bpf_get_smp_processor_id();
	__u64 *hits = bpf_map_lookup_elem(&response_hits, &processor);
	if (hits)
		hits[number & constants.response_mask] += 1;
}

static __always_inline void count_with(enum reason reason, __u32 bytes)
{
	__u32 index = reason;
	struct counted *counted = bpf_map_lookup_elem(&reasons, &index);
	if (!counted)
		return;
	counted->count += 1;
	counted->bytes += bytes;
}

static __always_inline void count(enum reason reason)
{
	count_with(reason, 0);
}
