/* The server as far as the module needs it, for tests: answers one request with a shared library.
 *
 *     host LIBRARY ROOT DATA METHOD TARGET COOKIE [FORM]     prints the head and the body
 *     host --repeat COUNT LIBRARY …                          the same COUNT times, prints the last
 *
 * Fetches of paths are over at once; bodies come in pieces of 7 bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <lowroad.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes that grow. */
struct bytes {
    char *at;
    size_t len;
};

struct lowroad_call {
    const char *root, *data, *method, *target, *cookie, *form;
    int status, fetched, timer;
    size_t body_at, body_end, file_at;
    uint64_t memory;
    struct bytes fields, body, file;
};

static void add(struct bytes *bytes, const void *more, size_t len)
{
    bytes->at = realloc(bytes->at, bytes->len + len + 1);
    memcpy(bytes->at + bytes->len, more, len);
    bytes->len += len;
}

static int load(struct bytes *bytes, const char *root, const char *path, size_t len)
{
    char name[4096], piece[65536];
    size_t count;
    snprintf(name, sizeof name, "%s%.*s", root, (int)len, path);
    FILE *file = fopen(name, "rb");
    if (!file)
        return 0;
    while ((count = fread(piece, 1, sizeof piece, file)) > 0)
        add(bytes, piece, count);
    fclose(file);
    return 1;
}

static int64_t give(const char *value, size_t len, char *into, size_t cap)
{
    memcpy(into, value, len < cap ? len : cap);
    return (int64_t)len;
}

static int64_t get(lowroad_call *call, uint32_t what, const char *name, size_t name_len, char *into, size_t cap)
{
    const char *query = strchr(call->target, '?');
    size_t path_len = query ? (size_t)(query - call->target) : strlen(call->target);
    switch (what) {
    case LOWROAD_METHOD: return give(call->method, strlen(call->method), into, cap);
    case LOWROAD_PATH: return give(call->target, path_len, into, cap);
    case LOWROAD_QUERY: return query ? give(query + 1, strlen(query + 1), into, cap) : -1;
    case LOWROAD_PEER: return give("127.0.0.1", 9, into, cap);
    case LOWROAD_WORKER: return give("0", 1, into, cap);
    case LOWROAD_FIELD: return *call->cookie ? give(call->cookie, strlen(call->cookie), into, cap) : -1;
    case LOWROAD_SETTING:
        return name_len == 4 && memcmp(name, "data", 4) == 0 ? give(call->data, strlen(call->data), into, cap) : -1;
    default: return -1;
    }
}

static int64_t left(lowroad_call *call, uint32_t from)
{
    return (int64_t)(from ? call->file.len - call->file_at : call->body_end - call->body_at);
}

static int64_t take(lowroad_call *call, uint32_t from, void *into, size_t cap)
{
    size_t count = (size_t)left(call, from) < cap ? (size_t)left(call, from) : cap;
    memcpy(into, from ? call->file.at + call->file_at : call->form + call->body_at, count);
    *(from ? &call->file_at : &call->body_at) += count;
    return (int64_t)count;
}

static int status(lowroad_call *call, uint32_t number) { return call->status = (int)number; }

static int field(lowroad_call *call, const char *name, size_t name_len, const char *value, size_t value_len)
{
    add(&call->fields, name, name_len);
    add(&call->fields, ": ", 2);
    add(&call->fields, value, value_len);
    add(&call->fields, "\r\n", 2);
    return 0;
}

static int send_bytes(lowroad_call *call, const void *bytes, size_t len)
{
    add(&call->body, bytes, len);
    return 1;
}

static int send_stored(lowroad_call *call, const char *path, size_t len)
{
    if (!load(&call->body, call->root, path, len))
        call->status = 404;
    return 0;
}

static int fetch(lowroad_call *call, const char *path, size_t len)
{
    call->fetched = load(&call->file, call->root, path, len) ? 200 : 404;
    return 1;
}

static int flush(lowroad_call *call) { (void)call; return 0; }
static int timer(lowroad_call *call, uint32_t after_ms) { (void)after_ms; return !(call->timer = 1); }
static int fetched(lowroad_call *call, uint32_t number) { (void)number; return call->fetched; }
static uint64_t memory(lowroad_call *call) { return call->memory; }
static int set_memory(lowroad_call *call, uint64_t memory) { call->memory = memory; return 0; }
static uint64_t ticket(lowroad_call *call) { (void)call; return 1; }
static int go_on(uint64_t ticket) { (void)ticket; return -1; }
static uint64_t now_ms(void) { return (uint64_t)time(NULL) * 1000; }

static int log_line(lowroad_call *call, uint32_t level, const char *text, size_t len)
{
    (void)call;
    return fprintf(stderr, "%u: %.*s\n", level, (int)len, text);
}

static const struct lowroad_host host = {
    LOWROAD_ABI, sizeof host, get, take, left, status, field, send_bytes, send_stored, flush, timer,
    fetch, fetched, memory, set_memory, ticket, go_on, log_line, now_ms,
};

typedef int handle_fn(void *, lowroad_call *, int, uint32_t);

static int run(handle_fn *handle, void *state, lowroad_call *call)
{
    size_t form_len = strlen(call->form);
    int next = handle(state, call, LOWROAD_REQUEST, 0);
    while (next == LOWROAD_WAIT && call->body_end < form_len) {
        call->body_end += form_len - call->body_end < 7 ? form_len - call->body_end : 7;
        next = handle(state, call, LOWROAD_BODY, (uint32_t)left(call, 0));
    }
    if (next == LOWROAD_WAIT)
        next = handle(state, call, LOWROAD_BODY_END, 0);
    while (next == LOWROAD_WAIT && (call->fetched || call->timer)) {
        int event = call->timer ? LOWROAD_TIMER : LOWROAD_FETCHED;
        call->timer = 0;
        next = handle(state, call, event, event == LOWROAD_FETCHED);
    }
    return next;
}

int main(int count, char **words)
{
    long repeat = 1;
    if (count > 2 && strcmp(words[1], "--repeat") == 0) {
        repeat = atol(words[2]);
        words += 2;
        count -= 2;
    }
    if (count < 7)
        return fprintf(stderr, "host LIBRARY ROOT DATA METHOD TARGET COOKIE [FORM]\n"), 2;
    void *library = dlopen(words[1], RTLD_NOW);
    if (!library)
        return fprintf(stderr, "%s\n", dlerror()), 2;
    int (*load_host)(const struct lowroad_host *) = (int (*)(const struct lowroad_host *))dlsym(library, "lowroad_load");
    void *(*start)(lowroad_call *) = (void *(*)(lowroad_call *))dlsym(library, "lowroad_start");
    void (*stop)(void *) = (void (*)(void *))dlsym(library, "lowroad_stop");
    handle_fn *handle = (handle_fn *)dlsym(library, "lowroad_handle");
    lowroad_call first = {
        .root = words[2], .data = words[3], .method = words[4], .target = words[5], .cookie = words[6],
        .form = count > 7 ? words[7] : "", .status = 200,
    };
    lowroad_call call = first;
    void *state = load_host(&host) == 0 ? start(&call) : NULL;
    if (!state)
        return 3;
    int next = LOWROAD_FAILED;
    for (long at = 0; at < repeat; at++) {
        free(call.fields.at);
        free(call.body.at);
        free(call.file.at);
        call = first;
        next = run(handle, state, &call);
    }
    if (next == LOWROAD_DONE && call.memory == 0) {
        printf("Status: %d\r\n%.*s\r\n", call.status, (int)call.fields.len, call.fields.at);
        fwrite(call.body.at, 1, call.body.len, stdout);
    }
    stop(state);
    free(call.fields.at);
    free(call.body.at);
    free(call.file.at);
    return next == LOWROAD_DONE && call.memory == 0 ? 0 : 4;
}
