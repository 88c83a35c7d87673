/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Types that the socket interception program shares with user space. */
#pragma once

#include <linux/types.h>

/* Maximum number of intercepted addresses with ports. */
#define INTERCEPTED_MAX 1024

/* A local address and port; IPv4 as ::ffff:a.b.c.d. */
struct intercepted_address {
	__u32 address_be[4];
	/* In host order. */
	__u32 port;
};
