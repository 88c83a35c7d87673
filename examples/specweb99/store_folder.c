/* See store.h. The data is in the folder that the setting `data` names. Reading it does not wait for
 * long: two short files, which stay in memory, and a log whose writers are quick. */
#include <stdlib.h>
#include <unistd.h>

#include "files.h"
#include "store.h"

struct store {
    struct spec_files files;
};

struct store *store_begin(lowroad_call *worker)
{
    char folder[FOLDER_MAX] = "", number[8] = "";
    struct store *store = malloc(sizeof *store);
    lowroad_get(worker, LOWROAD_SETTING, "data", folder, sizeof folder);
    lowroad_get(worker, LOWROAD_WORKER, NULL, number, sizeof number);
    /* Workers are threads of one process: each signs with a number of its own. */
    int64_t process = (int64_t)getpid() * 1000 + atoi(number);
    if (store && files_begin(&store->files, folder, process, 1))
        return store;
    lowroad_log(worker, LOWROAD_ERROR, "specweb99: the setting data must name the folder with Custom.Ads");
    free(store);
    return NULL;
}

void store_end(struct store *store)
{
    files_end(&store->files);
    free(store);
}

struct spec_data store_data(struct store *store, lowroad_call *call, struct wanted **wanted)
{
    (void)call;
    (void)wanted;
    return files_data(&store->files);
}

void store_forget(struct wanted *wanted)
{
    (void)wanted;
}

int store_waits(const struct wanted *wanted)
{
    (void)wanted;
    return 0;
}

void store_fetched(struct wanted *wanted, lowroad_call *call, uint32_t number)
{
    (void)wanted;
    (void)call;
    (void)number;
}

int store_send_log(struct store *store, lowroad_call *call, struct wanted *wanted, size_t len)
{
    enum { PIECE = 64 << 10 };
    (void)wanted;
    char *piece = malloc(PIECE);
    size_t at = 0;
    while (piece && at < len) {
        size_t count = len - at < PIECE ? len - at : PIECE;
        if (!files_read(&store->files, "post.log", at, piece, count) || lowroad_send(call, piece, count) < 0)
            break;
        at += count;
    }
    free(piece);
    return at == len;
}
