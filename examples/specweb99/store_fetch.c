/* See store.h. The data files are fetched from the site, below the path that the setting `data`
 * names ("/specweb99-data"). What has to be written (forms, and the reset) goes to another front of
 * this set, a FastCGI or CGI program, whose http:// URL is the setting `log`.
 *
 * An answer is tried: what it lacks is fetched, and then it is tried again with what has come. */
#include <stdlib.h>
#include <string.h>

#include "store.h"

enum { SETTING_MAX = 256, URL_MAX = SETTING_MAX + QUERY_MAX + 64, FETCHES = 4 };

struct store {
    char data[SETTING_MAX], log[SETTING_MAX];
};

/* A fetch: of a data file, or of the log's URL where `name` is "". */
struct fetch {
    const char *name;
    uint32_t number;
    int is_over, status;
    char *bytes;
    size_t len;
};

struct wanted {
    struct store *store;
    lowroad_call *call;
    int count, waits;
    struct fetch fetches[FETCHES];
};

struct store *store_begin(lowroad_call *worker)
{
    struct store *store = calloc(1, sizeof *store);
    if (store && lowroad_get(worker, LOWROAD_SETTING, "data", store->data, SETTING_MAX) > 0
        && lowroad_get(worker, LOWROAD_SETTING, "log", store->log, SETTING_MAX) > 0)
        return store;
    lowroad_log(worker, LOWROAD_ERROR,
                "specweb99: the settings data (a path of the site) and log (an http:// URL) must be there");
    free(store);
    return NULL;
}

void store_end(struct store *store)
{
    free(store);
}

static struct fetch *find(struct wanted *wanted, const char *name)
{
    for (int at = 0; at < wanted->count; at++)
        if (strcmp(wanted->fetches[at].name, name) == 0)
            return &wanted->fetches[at];
    return NULL;
}

static void begin(struct wanted *wanted, const char *name, const char *target)
{
    int number = wanted->count < FETCHES ? lowroad_fetch(wanted->call, target) : -1;
    if (number < 0)
        return;
    struct fetch *fetch = &wanted->fetches[wanted->count++];
    memset(fetch, 0, sizeof *fetch);
    fetch->name = name;
    fetch->number = (uint32_t)number;
    wanted->waits = 1;
}

static int64_t now_s(void *context)
{
    (void)context;
    return (int64_t)(lowroad_now_ms() / 1000);
}

static const char *look(void *context, const char *name, size_t offset, size_t len)
{
    struct wanted *wanted = context;
    struct fetch *fetch = find(wanted, name);
    if (!fetch) {
        char path[URL_MAX];
        struct text text = {path, 0, sizeof path - 1, 0};
        text_put(&text, wanted->store->data);
        text_put(&text, "/");
        text_put(&text, name);
        path[text.len] = 0;
        begin(wanted, name, path);
        return NULL;
    }
    int is_there = fetch->is_over && fetch->status == 200 && offset <= fetch->len && len <= fetch->len - offset;
    return is_there ? fetch->bytes + offset : NULL;
}

/* Has the other front do it, with this query. */
static enum spec_result pass_on(struct wanted *wanted, const struct text *query)
{
    struct fetch *fetch = find(wanted, "");
    if (fetch)
        return fetch->is_over && fetch->status == 200 ? SPEC_GOOD : SPEC_FAILED;
    char url[URL_MAX];
    struct text text = {url, 0, sizeof url - 1, 0};
    text_put(&text, wanted->store->log);
    text_put(&text, "?");
    text_bytes(&text, query->bytes, query->len);
    url[text.len] = 0;
    begin(wanted, "", url);
    return wanted->waits && !text.cut ? SPEC_BUSY : SPEC_FAILED;
}

static enum spec_result append(void *context, const struct spec_form *form)
{
    char bytes[QUERY_MAX];
    struct text query = {bytes, 0, sizeof bytes, 0};
    spec_append_query(&query, form);
    return pass_on(context, &query);
}

/* The reset as a whole: replace has nothing left to do. */
static enum spec_result empty(void *context)
{
    struct wanted *wanted = context;
    char bytes[QUERY_MAX + 1];
    int64_t len = lowroad_get(wanted->call, LOWROAD_QUERY, NULL, bytes, sizeof bytes);
    if (len < 0 || len > QUERY_MAX)
        return SPEC_FAILED;
    struct text query = {bytes, (size_t)len, sizeof bytes, 0};
    return pass_on(wanted, &query);
}

static enum spec_result replace(void *context, const char *name, const char *bytes, size_t len)
{
    (void)context;
    (void)name;
    (void)bytes;
    (void)len;
    return SPEC_GOOD;
}

struct spec_data store_data(struct store *store, lowroad_call *call, struct wanted **wanted)
{
    if (!*wanted)
        *wanted = calloc(1, sizeof **wanted);
    if (!*wanted)
        abort();
    (*wanted)->store = store;
    (*wanted)->call = call;
    (*wanted)->waits = 0;
    struct spec_data data = {*wanted, now_s, look, replace, append, empty};
    return data;
}

void store_forget(struct wanted *wanted)
{
    for (int at = 0; wanted && at < wanted->count; at++)
        free(wanted->fetches[at].bytes);
    free(wanted);
}

int store_waits(const struct wanted *wanted)
{
    return wanted && wanted->waits;
}

void store_fetched(struct wanted *wanted, lowroad_call *call, uint32_t number)
{
    for (int at = 0; wanted && at < wanted->count; at++) {
        struct fetch *fetch = &wanted->fetches[at];
        if (fetch->number != number)
            continue;
        int64_t left = lowroad_left(call, number);
        fetch->is_over = 1;
        fetch->status = lowroad_fetched(call, number);
        fetch->bytes = left > 0 ? malloc((size_t)left) : NULL;
        if (fetch->bytes)
            fetch->len = (size_t)lowroad_read(call, number, fetch->bytes, (size_t)left);
    }
}

int store_send_log(struct store *store, lowroad_call *call, struct wanted *wanted, size_t len)
{
    (void)store;
    struct fetch *fetch = wanted ? find(wanted, "post.log") : NULL;
    return fetch && fetch->len >= len && lowroad_send(call, fetch->bytes, len) >= 0;
}
