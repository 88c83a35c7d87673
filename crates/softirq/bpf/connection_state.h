/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Predicates over the state of a connection (enum connection_state, shared.h). */
#pragma once

#include "shared.h"

/* The state of a connection; of one without a place STATE_OVER, which is as good as none. */
static __always_inline __u8 state_of(const struct connection *connection)
{
	return connection ? connection->state : STATE_OVER;
}

/* Its requests are answered here. */
static __always_inline int is_live(const struct connection *connection)
{
	return connection->state == STATE_OPEN || connection->state == STATE_CLOSING;
}

/* Both sides have ended it, or it was reset. */
static __always_inline int has_ended(const struct connection *connection)
{
	return connection->state == STATE_DONE || connection->state == STATE_OVER;
}

/* The kernel processes its segments. */
static __always_inline int is_kernels(const struct connection *connection)
{
	return connection->state == STATE_KERNEL || connection->state == STATE_ASKED;
}

/* The kernel has it, with a socket whose sequence numbers are behind the client's. */
static __always_inline int is_shifted(const struct connection *connection)
{
	return connection->state == STATE_KERNEL && (connection->socket_rcv | connection->socket_snd);
}

/* The kernel has a socket for it, or will have one. */
static __always_inline int has_socket_soon(const struct connection *connection)
{
	return connection->state == STATE_KERNEL || connection->state == STATE_HANDED;
}

/* A segment with IP options or extension headers would break it: its numbers are known here only. */
static __always_inline int needs_plain_segments(const struct connection *connection)
{
	return is_live(connection) || connection->state == STATE_HANDED || is_shifted(connection);
}

/* Its sequence numbers are known here only: without its place it would hang. */
static __always_inline int needs_place(const struct connection *connection)
{
	if (is_shifted(connection))
		return connection->socket != SOCKET_ENDED;
	return connection->socket == SOCKET_KEPT && is_live(connection);
}
