/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The maps. User space sets the sizes marked so before it loads; arrays of which it says
 * BPF_F_MMAPABLE it reads and writes as memory. */
#pragma once

#include "denied.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

/* A power of two; sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct connection_bucket);
} connections SEC(".maps");

/* A power of two; sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct index_bucket);
} response_index SEC(".maps");

/* Sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct response);
} responses SEC(".maps");

/* How often each response was answered, by each processor: one value of a word for each place, sized by
 * user space. In the responses themselves each hit would take their first line from all other processors. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 8192);
} response_hits SEC(".maps");

/* The bytes of all responses: one value, sized by user space, of which each response has a piece. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 8192);
} store SEC(".maps");

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
} asked SEC(".maps");

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

/* What a filter may tell apart: who asks whom for what, and by which interface he comes. */
struct entrance {
	__u32 client_be[4];
	__u32 local_be[4];
	__u32 interface;
	__u16 local_port_be;
	__u16 spare;
};

/* When the kernel has let a client in: CLOCK_MONOTONIC, ns. Only whoever has completed a handshake with the
 * kernel has a place, so that a flood of forged segments takes none. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct entrance);
	__type(value, __u64);
} admitted SEC(".maps");

/* An element of it is replaced to wait until no program runs that began before: the system call
 * returns after a grace period (kernel/bpf/syscall.c, maybe_wait_bpf_programs). */
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
} grace SEC(".maps");

/* The request is read here, not in the packet: offsets need only be masked. */
#define HEAD_SIZE 2048
#define KEY_SIZE 1024
struct request {
	__u32 len;
	/* Where the next line begins. */
	__u32 at;
	__u32 key_len;
	/* Which of the SEEN_ marks. */
	__u32 seen;
	__u32 settings;
	/* Why it is handed up; reason_count: it is not. */
	__u32 reason;
	__u32 is_head;
	__u32 is_http_10;
	/* What the loops within it work with. */
	__u32 from;
	__u32 to;
	__u64 hash;
	__u64 differs;
};

struct scratch {
	/* Here and not on the stack: the verifier does not follow what memory of maps holds, and what
	 * it does not follow it need not try in all combinations. */
	struct request request;
	struct answered_event event;
	/* No padding between: both go out in one piece. */
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

/* Set by user space before it loads. */
const volatile struct constants constants = {};

static __always_inline struct control *steering(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&control, &zero);
}

static __always_inline struct scratch *scratch_memory(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&scratch, &zero);
}

/* Counts an answer from this place. Nothing else runs on this processor meanwhile that counts. */
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
