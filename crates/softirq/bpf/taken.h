/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What the program that intercepts connections and user space both know. */
#pragma once

#include <linux/types.h>

/* Addresses with a port at most. */
#define TAKEN_MAX 1024

/* Where a client asks; IPv4 as ::ffff:a.b.c.d. */
struct taken {
	__u32 address_be[4];
	/* As the machine has it. */
	__u32 port;
};
