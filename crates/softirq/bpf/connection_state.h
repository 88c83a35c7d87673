/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Predicates over the state of a connection (enum connection_state, shared.h). */
#pragma once

#include "shared.h"

/* State of a connection; STATE_OVER, which counts as no connection, if there is no entry. */
static __always_inline __u8 state_of(const struct connection *connection)
{
	return connection ? connection->state : STATE_OVER;
}

/* Requests on the connection are answered on the fast path. */
static __always_inline int is_live(const struct connection *connection)
{
	return connection->state == STATE_OPEN || connection->state == STATE_CLOSING;
}

/* Both sides have closed the connection, or it was reset. */
static __always_inline int has_ended(const struct connection *connection)
{
	return connection->state == STATE_DONE || connection->state == STATE_OVER;
}

/* The kernel processes the connection's segments. */
static __always_inline int is_kernel_owned(const struct connection *connection)
{
	return connection->state == STATE_KERNEL || connection->state == STATE_ASKED;
}

/* The kernel has the connection's socket. Its sequence numbers are behind the client's, so segments are
 * translated. */
static __always_inline int is_shifted(const struct connection *connection)
{
	return connection->state == STATE_KERNEL && (connection->socket_rcv | connection->socket_snd);
}

/* The kernel has a socket for the connection, or is about to create one. */
static __always_inline int has_socket_soon(const struct connection *connection)
{
	return connection->state == STATE_KERNEL || connection->state == STATE_HANDED;
}

/* A segment with IP options or extension headers would break the connection, since only this level knows its sequence
 * numbers. */
static __always_inline int needs_plain_segments(const struct connection *connection)
{
	return is_live(connection) || connection->state == STATE_HANDED || is_shifted(connection);
}

/* Only this table knows the connection's sequence numbers: the connection would hang if its entry were evicted. */
static __always_inline int needs_slot(const struct connection *connection)
{
	if (is_shifted(connection))
		return connection->socket != SOCKET_ENDED;
	return connection->socket == SOCKET_KEPT && is_live(connection);
}
