/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The clients that are left to the server. The programs of the level and the interception program each have such a
 * map. */
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
