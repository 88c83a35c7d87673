/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The clients that are left to the server, or that the server refuses. Both the level's programs and the interception program have a map of this
 * kind. */
#pragma once

#include "kernel.h"
#include "shared.h"

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct prefix);
	__type(value, __u32);
} denied_clients SEC(".maps");
