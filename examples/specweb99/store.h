/* Where the module has its data: a folder (store_folder.c) in a shared library, and what the server
 * fetches (store_fetch.c) in WebAssembly, which has no disk. */
#ifndef SPEC_STORE_H
#define SPEC_STORE_H

#include <lowroad.h>

#include "core.h"

struct store;  /* of a worker */
struct wanted; /* of a call: what it has fetched */

/* Begins with the module's settings; NULL if one is missing, which is logged. */
struct store *store_begin(lowroad_call *worker);
void store_end(struct store *store);

/* The data for one try at an answer. `wanted` is kept for the next try, where *wanted is NULL at the
 * first; store_forget frees it. */
struct spec_data store_data(struct store *store, lowroad_call *call, struct wanted **wanted);
void store_forget(struct wanted *wanted);

/* Whether the try had to begin a fetch: its answer does not count, the next one comes with
 * LOWROAD_FETCHED. */
int store_waits(const struct wanted *wanted);

/* A fetch is over. */
void store_fetched(struct wanted *wanted, lowroad_call *call, uint32_t number);

/* Sends the first `len` bytes of post.log; 0 if that can't be. */
int store_send_log(struct store *store, lowroad_call *call, struct wanted *wanted, size_t len);

#endif
