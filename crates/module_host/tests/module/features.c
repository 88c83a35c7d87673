/* The test module in C, with one path per feature. features.rs is the same module in Rust. */
#include <lowroad.h>
#include <stdlib.h>

#ifndef VERSION
#define VERSION "1"
#endif

static unsigned gone; /* abandoned calls of all workers; tests use one worker */

static int is(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

void *lowroad_start(lowroad_call *worker)
{
    char start[8];
    if (lowroad_get(worker, LOWROAD_SETTING, "start", start, sizeof start) == 2) {
        lowroad_log(worker, LOWROAD_ERROR, "I was told not to");
        return NULL;
    }
    return malloc(1);
}

void lowroad_stop(void *state) { free(state); }

static void number(lowroad_call *call, unsigned value)
{
    char text[2] = { (char)('0' + value % 10), 0 };
    lowroad_print(call, text);
}

static int echo(lowroad_call *call, int event)
{
    char bytes[7];
    int64_t len;
    if (event == LOWROAD_BODY)
        while ((len = lowroad_read(call, 0, bytes, sizeof bytes)) > 0)
            lowroad_send(call, bytes, (size_t)len);
    return event == LOWROAD_BODY_END ? LOWROAD_DONE : LOWROAD_WAIT;
}

static int fetch(lowroad_call *call, int event, uint32_t which)
{
    char target[128], bytes[4096];
    if (event == LOWROAD_REQUEST) {
        lowroad_get(call, LOWROAD_PARAMETER, "of", target, sizeof target);
        return lowroad_fetch(call, target) == 1 ? LOWROAD_WAIT : LOWROAD_FAILED;
    }
    if (event != LOWROAD_FETCHED)
        return LOWROAD_WAIT;
    number(call, (unsigned)lowroad_fetched(call, which) / 100);
    lowroad_send(call, bytes, (size_t)lowroad_read(call, which, bytes, sizeof bytes));
    return LOWROAD_DONE;
}

/* Sends 100 parts of 100 KB, waiting for room between them. */
static int stream(lowroad_call *call, int event)
{
    static char part[100000];
    uint64_t sent = lowroad_memory(call);
    if (event != LOWROAD_REQUEST && event != LOWROAD_ROOM)
        return LOWROAD_WAIT;
    if (!sent)
        lowroad_flush(call);
    while (sent < 100) {
        lowroad_set_memory(call, ++sent);
        if (lowroad_send(call, part, sizeof part) != 1)
            return LOWROAD_WAIT;
    }
    return LOWROAD_DONE;
}

static int hold(lowroad_call *call, int event)
{
    uint64_t ticket = lowroad_ticket(call);
    if (event == LOWROAD_REQUEST) {
        lowroad_send(call, &ticket, sizeof ticket);
        lowroad_flush(call);
    }
    if (event == LOWROAD_CONTINUED)
        lowroad_print(call, "continued");
    return event == LOWROAD_CONTINUED ? LOWROAD_DONE : LOWROAD_WAIT;
}

int lowroad_handle(void *state, lowroad_call *call, int event, uint32_t which)
{
    char path[64], value[64];
    (void)state;
    if (event == LOWROAD_GONE) {
        gone++;
        return LOWROAD_DONE;
    }
    lowroad_get(call, LOWROAD_PATH, NULL, path, sizeof path);
    if (is(path, "/echo"))
        return echo(call, event);
    if (is(path, "/fetch"))
        return fetch(call, event, which);
    if (is(path, "/stream"))
        return stream(call, event);
    if (is(path, "/hold"))
        return hold(call, event);
    if (is(path, "/fail"))
        return LOWROAD_FAILED;
    if (is(path, "/nonsense"))
        return 42;
    if (is(path, "/crash"))
        abort();
    for (volatile int once = 1; is(path, "/loop");)
        (void)once;
    if (is(path, "/forever"))
        return LOWROAD_WAIT;
    if (is(path, "/timer")) {
        if (event == LOWROAD_REQUEST)
            lowroad_timer(call, 1);
        if (event == LOWROAD_TIMER)
            lowroad_print(call, "late");
        return event == LOWROAD_TIMER ? LOWROAD_DONE : LOWROAD_WAIT;
    }
    if (is(path, "/stored")) {
        lowroad_print(call, "before ");
        lowroad_send_stored(call, "/page.html");
        lowroad_print(call, " after");
    } else if (is(path, "/redirect")) {
        lowroad_redirect(call, 303, "/elsewhere");
    } else if (is(path, "/cache")) {
        lowroad_cache(call, 3600);
    } else if (is(path, "/values")) {
        static const struct { enum lowroad_what what; const char *name; } all[] = {
            { LOWROAD_METHOD, 0 }, { LOWROAD_TARGET, 0 }, { LOWROAD_PATH, 0 }, { LOWROAD_QUERY, 0 },
            { LOWROAD_HOST, 0 }, { LOWROAD_PEER, 0 }, { LOWROAD_FIELD, "x-field" },
            { LOWROAD_COOKIE, "id" }, { LOWROAD_PARAMETER, "a" }, { LOWROAD_ROOT, 0 },
            { LOWROAD_SETTING, "key" }, { LOWROAD_WORKER, 0 }, { LOWROAD_FIELD, "x-none" },
        };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            int64_t len = lowroad_get(call, all[i].what, all[i].name, value, sizeof value);
            lowroad_print(call, len < 0 ? "none" : value);
            lowroad_print(call, "\n");
        }
    } else if (is(path, "/refused")) {
        number(call, lowroad_status(call, 99) < 0);
        number(call, lowroad_field(call, "X", "a\r\nY: b") < 0);
        number(call, lowroad_fetch(call, "/../etc/passwd") < 0);
        number(call, lowroad_send_stored(call, "page.html") < 0);
        number(call, lowroad_continue(1) < 0);
        number(call, lowroad_fetched(call, 1) < 0);
        number(call, lowroad_read(call, 9, value, sizeof value) == 0);
    } else if (is(path, "/long")) {
        static const char part[100000];
        int sent = 1;
        while (sent == 1)
            sent = lowroad_send(call, part, sizeof part);
        number(call, sent < 0);
    } else if (is(path, "/wake")) {
        lowroad_get(call, LOWROAD_QUERY, NULL, value, sizeof value);
        number(call, lowroad_continue(strtoull(value, NULL, 10)) == 0);
    } else if (is(path, "/gone")) {
        number(call, gone);
    } else if (is(path, "/version")) {
        lowroad_print(call, VERSION);
    } else {
        lowroad_status(call, 404);
        lowroad_field(call, "Content-Type", "text/plain");
        lowroad_print(call, "nothing here\n");
    }
    return LOWROAD_DONE;
}
