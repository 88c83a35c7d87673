/* Modules for the Lowroad web server, in C. docs/modules.md explains it in ten minutes.
 *
 * A module answers requests. It is a state machine: the server calls lowroad_handle with an event,
 * the module does the work that is possible immediately, and returns whether the response is complete or
 * the module waits for another event. It must not block: meanwhile, other requests of the worker have to wait.
 *
 * The same source makes a shared library, `cc -shared -fPIC -o hello.so hello.c`, and a WebAssembly
 * module, `clang --target=wasm32 -nostdlib -Wl,--no-entry -o hello.wasm hello.c`.
 *
 * Text is passed as a pointer and a length unless the comment says "C string". The server does not use a pointer
 * after the function to which it was passed has returned.
 */
#ifndef LOWROAD_H
#define LOWROAD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. Adding functions at the end keeps the version; any other change increments it. */
#define LOWROAD_ABI 1

/* A call: a request that the module is answering; in lowroad_start, the worker. The server owns the struct, and the
 * pointer is valid only until the module's function returns: the next event of the call has another pointer. To resume
 * a call later, keep its lowroad_ticket. */
typedef struct lowroad_call lowroad_call;

/* The events that lowroad_handle receives. */
enum lowroad_event {
    LOWROAD_REQUEST = 1,   /* A request arrived. This is always the first event of a call. */
    LOWROAD_BODY = 2,      /* `number` bytes of the request's body are available to lowroad_read. */
    LOWROAD_BODY_END = 3,  /* The body is complete; also sent for a request without a body. */
    LOWROAD_TIMER = 4,     /* The time set with lowroad_timer has passed. */
    LOWROAD_FETCHED = 5,   /* Fetch `number` is complete; see lowroad_fetched. */
    LOWROAD_CONTINUED = 6, /* lowroad_continue was called. */
    LOWROAD_ROOM = 7,      /* The output buffer has room again, after lowroad_send returned 0. */
    LOWROAD_GONE = 8       /* The client closed, or the time limit passed. No further event; free the call's memory. */
};

/* The results of lowroad_handle. */
enum lowroad_next {
    LOWROAD_DONE = 0,   /* The response is complete. No further event. */
    LOWROAD_WAIT = 1,   /* The module waits for the next event. */
    LOWROAD_FAILED = -1 /* The client gets 500, or a truncated response if its head was sent. No further event. */
};

/* The values that lowroad_get returns. */
enum lowroad_what {
    LOWROAD_METHOD = 1,    /* "GET" */
    LOWROAD_TARGET = 2,    /* path and query as sent */
    LOWROAD_PATH = 3,      /* decoded path; begins with '/', no dot segments, no NUL */
    LOWROAD_QUERY = 4,     /* the target after '?', as sent */
    LOWROAD_HOST = 5,      /* the requested host */
    LOWROAD_PEER = 6,      /* the client's address, "192.0.2.1" */
    LOWROAD_FIELD = 7,     /* the request field `name` (case-insensitive); the first one */
    LOWROAD_COOKIE = 8,    /* the cookie `name` */
    LOWROAD_PARAMETER = 9, /* the parameter `name` of the query, decoded; the first one */
    LOWROAD_FIELDS = 10,   /* all request fields, "Name: value\r\n" each */
    LOWROAD_ROOT = 11,     /* the document root */
    LOWROAD_SETTING = 12,  /* the module's setting `name`; in lowroad_start too */
    LOWROAD_WORKER = 13    /* the worker's number, "0"; in lowroad_start too */
};

/* The severity of a log line. */
enum lowroad_level { LOWROAD_ERROR = 0, LOWROAD_WARN = 1, LOWROAD_INFO = 2, LOWROAD_DEBUG = 3 };

/* ---- Functions that a module defines ---- */

#if defined(__wasm__)
#define LOWROAD_EXPORT(name) __attribute__((export_name(#name)))
#else
#define LOWROAD_EXPORT(name) __attribute__((visibility("default")))
#endif

/* Optional. Called once for each worker before its first request. The returned pointer is passed to
 * all calls of that worker, and never used by two threads at a time. NULL: the module cannot start;
 * log the reason with lowroad_log. */
LOWROAD_EXPORT(lowroad_start) void *lowroad_start(lowroad_call *worker);

/* Handles an event. Returns one of enum lowroad_next. */
LOWROAD_EXPORT(lowroad_handle)
int lowroad_handle(void *state, lowroad_call *call, int event, uint32_t number);

/* Optional. Called when the worker ends or the module is replaced, after all calls of this worker. Not
 * called in WebAssembly, where an instance's memory is freed as a whole. */
LOWROAD_EXPORT(lowroad_stop) void lowroad_stop(void *state);

/* ---- The server's functions, raw ---- */

#if defined(__wasm__)

#define LOWROAD_IMPORT(name) __attribute__((import_module("lowroad"), import_name(name))) extern
LOWROAD_IMPORT("get") int64_t lowroad_raw_get(lowroad_call *, uint32_t, const char *, size_t, char *, size_t);
LOWROAD_IMPORT("read") int64_t lowroad_raw_read(lowroad_call *, uint32_t, void *, size_t);
LOWROAD_IMPORT("left") int64_t lowroad_raw_left(lowroad_call *, uint32_t);
LOWROAD_IMPORT("status") int lowroad_raw_status(lowroad_call *, uint32_t);
LOWROAD_IMPORT("field") int lowroad_raw_field(lowroad_call *, const char *, size_t, const char *, size_t);
LOWROAD_IMPORT("send") int lowroad_raw_send(lowroad_call *, const void *, size_t);
LOWROAD_IMPORT("send_stored") int lowroad_raw_send_stored(lowroad_call *, const char *, size_t);
LOWROAD_IMPORT("flush") int lowroad_raw_flush(lowroad_call *);
LOWROAD_IMPORT("timer") int lowroad_raw_timer(lowroad_call *, uint32_t);
LOWROAD_IMPORT("fetch") int lowroad_raw_fetch(lowroad_call *, const char *, size_t);
LOWROAD_IMPORT("fetched") int lowroad_raw_fetched(lowroad_call *, uint32_t);
LOWROAD_IMPORT("memory") uint64_t lowroad_raw_memory(lowroad_call *);
LOWROAD_IMPORT("set_memory") int lowroad_raw_set_memory(lowroad_call *, uint64_t);
LOWROAD_IMPORT("ticket") uint64_t lowroad_raw_ticket(lowroad_call *);
LOWROAD_IMPORT("continue") int lowroad_raw_continue(uint64_t);
LOWROAD_IMPORT("log") int lowroad_raw_log(lowroad_call *, uint32_t, const char *, size_t);
LOWROAD_IMPORT("now_ms") uint64_t lowroad_raw_now_ms(void);
#define LOWROAD_CALL(name) lowroad_raw_##name

LOWROAD_EXPORT(lowroad_abi) __attribute__((weak)) uint32_t lowroad_abi(void);
__attribute__((weak)) uint32_t lowroad_abi(void) { return LOWROAD_ABI; }

#else

/* The server's functions, passed to the library when it is loaded. */
struct lowroad_host {
    uint32_t abi;  /* LOWROAD_ABI of the server */
    uint32_t size; /* the struct's size in the server, in bytes */
    int64_t (*get)(lowroad_call *, uint32_t, const char *, size_t, char *, size_t);
    int64_t (*read)(lowroad_call *, uint32_t, void *, size_t);
    int64_t (*left)(lowroad_call *, uint32_t);
    int (*status)(lowroad_call *, uint32_t);
    int (*field)(lowroad_call *, const char *, size_t, const char *, size_t);
    int (*send)(lowroad_call *, const void *, size_t);
    int (*send_stored)(lowroad_call *, const char *, size_t);
    int (*flush)(lowroad_call *);
    int (*timer)(lowroad_call *, uint32_t);
    int (*fetch)(lowroad_call *, const char *, size_t);
    int (*fetched)(lowroad_call *, uint32_t);
    uint64_t (*memory)(lowroad_call *);
    int (*set_memory)(lowroad_call *, uint64_t);
    uint64_t (*ticket)(lowroad_call *);
    int (*continue_)(uint64_t);
    int (*log)(lowroad_call *, uint32_t, const char *, size_t);
    uint64_t (*now_ms)(void);
};

/* Weak, so that several files of one module may include this header. Hidden, so that the
 * dynamic linker does not resolve the variable to that of another module. */
__attribute__((weak, visibility("hidden"))) const struct lowroad_host *lowroad_server;
#define LOWROAD_CALL(name) lowroad_server->name

/* The server calls this first, to check the version. */
LOWROAD_EXPORT(lowroad_abi) __attribute__((weak)) uint32_t lowroad_abi(void) { return LOWROAD_ABI; }

/* The server calls this second, to pass its functions. -1: the module needs functions that this server lacks. */
LOWROAD_EXPORT(lowroad_load) __attribute__((weak)) int lowroad_load(const struct lowroad_host *host)
{
    if (host->abi != LOWROAD_ABI || host->size < sizeof(struct lowroad_host))
        return -1;
    lowroad_server = host;
    return 0;
}

#endif

/* ---- The server's functions for modules. int: 0 or more for success, -1 if refused (reason in the error log) ---- */

static inline size_t lowroad_len(const char *text)
{
    size_t len = 0;
    while (text && text[len])
        len++;
    return len;
}

/* Copies a value as a C string into buf of `cap` bytes, truncated if necessary. Returns the value's full
 * length, which may be more than was copied; -1 if the request has no such value. `name` is a C string, or NULL if
 * `what` takes no name. */
static inline int64_t lowroad_get(lowroad_call *call, enum lowroad_what what, const char *name, char *buf, size_t cap)
{
    size_t room = cap ? cap - 1 : 0;
    int64_t len = LOWROAD_CALL(get)(call, (uint32_t)what, name, lowroad_len(name), buf, room);
    if (cap)
        buf[len < 0 ? 0 : (size_t)len < room ? (size_t)len : room] = 0;
    return len;
}

/* Takes up to `cap` bytes of the request's available body (from = 0), or of fetch `from`.
 * Returns the number of bytes. The next part of the body arrives, with an event, after all of this part was taken. */
static inline int64_t lowroad_read(lowroad_call *call, uint32_t from, void *buf, size_t cap)
{
    return LOWROAD_CALL(read)(call, from, buf, cap);
}

/* The number of bytes that lowroad_read could return now. */
static inline int64_t lowroad_left(lowroad_call *call, uint32_t from) { return LOWROAD_CALL(left)(call, from); }

/* Sets the status, 200 to 599. The default is 200. */
static inline int lowroad_status(lowroad_call *call, uint32_t status) { return LOWROAD_CALL(status)(call, status); }

/* Adds a field to the response; C strings. The server sets Connection, Content-Length, Date and
 * Transfer-Encoding itself. */
static inline int lowroad_field(lowroad_call *call, const char *name, const char *value)
{
    return LOWROAD_CALL(field)(call, name, lowroad_len(name), value, lowroad_len(value));
}

/* Appends bytes to the response's body. 1: the buffer has room for more; 0: the bytes were accepted, but wait
 * for LOWROAD_ROOM before sending more; -1: refused, the response is too long. */
static inline int lowroad_send(lowroad_call *call, const void *bytes, size_t len)
{
    return LOWROAD_CALL(send)(call, bytes, len);
}

/* Appends a C string to the response's body. */
static inline int lowroad_print(lowroad_call *call, const char *text)
{
    return lowroad_send(call, text, lowroad_len(text));
}

/* Appends the site's content for a path (a C string, decoded) without copying it through the module.
 * At most once in a response, and not after lowroad_flush. */
static inline int lowroad_send_stored(lowroad_call *call, const char *path)
{
    return LOWROAD_CALL(send_stored)(call, path, lowroad_len(path));
}

/* Sends the response created so far and streams the rest. Not after lowroad_send_stored. */
static inline int lowroad_flush(lowroad_call *call) { return LOWROAD_CALL(flush)(call); }

/* Sets the call's timer: LOWROAD_TIMER arrives after this many milliseconds; with 0, after the worker's
 * other ready calls were executed. A call has only one timer; setting it again replaces it. */
static inline int lowroad_timer(lowroad_call *call, uint32_t after_ms) { return LOWROAD_CALL(timer)(call, after_ms); }

/* Starts to fetch a path of the site ("/...") or an http:// URL; a C string. Returns the fetch's number (1 or
 * more), which LOWROAD_FETCHED will have. */
static inline int lowroad_fetch(lowroad_call *call, const char *target)
{
    return LOWROAD_CALL(fetch)(call, target, lowroad_len(target));
}

/* The status of a completed fetch; 0 without a response, or if the module's key `fetch` in the
 * configuration does not permit that server; -1 if the fetch is not complete. lowroad_read returns the content. */
static inline int lowroad_fetched(lowroad_call *call, uint32_t number) { return LOWROAD_CALL(fetched)(call, number); }

/* A number that the module stores for the call, often a pointer. Initially 0. */
static inline uint64_t lowroad_memory(lowroad_call *call) { return LOWROAD_CALL(memory)(call); }
static inline int lowroad_set_memory(lowroad_call *call, uint64_t memory) { return LOWROAD_CALL(set_memory)(call, memory); }

/* A number with which any thread or another call can resume this call. */
static inline uint64_t lowroad_ticket(lowroad_call *call) { return LOWROAD_CALL(ticket)(call); }

/* Resumes the call of this ticket with LOWROAD_CONTINUED. -1: the call has ended. */
static inline int lowroad_continue(uint64_t ticket)
{
#if defined(__wasm__)
    return lowroad_raw_continue(ticket);
#else
    return lowroad_server->continue_(ticket);
#endif
}

/* Writes a line (a C string) to the server's error log. */
static inline int lowroad_log(lowroad_call *call, enum lowroad_level level, const char *text)
{
    return LOWROAD_CALL(log)(call, (uint32_t)level, text, lowroad_len(text));
}

/* Milliseconds since 1970-01-01 UTC. */
static inline uint64_t lowroad_now_ms(void)
{
#if defined(__wasm__)
    return lowroad_raw_now_ms();
#else
    return lowroad_server->now_ms();
#endif
}

/* Makes the response a redirect to `where`, a C string. `status` is one of 301, 302, 303, 307 and 308. */
static inline int lowroad_redirect(lowroad_call *call, uint32_t status, const char *where)
{
    int set = lowroad_status(call, status);
    return set < 0 ? set : lowroad_field(call, "Location", where);
}

/* Permits any cache to store the response and to reuse it for this many seconds. */
static inline int lowroad_cache(lowroad_call *call, uint32_t seconds)
{
    char value[40], digits[10];
    size_t count = 0, at = 0;
    const char *from = "public, max-age="; /* Not an array: initializing it would need memcpy. */
    while (*from)
        value[at++] = *from++;
    do
        digits[count++] = (char)('0' + seconds % 10);
    while (seconds /= 10);
    while (count)
        value[at++] = digits[--count];
    value[at] = 0;
    return lowroad_field(call, "Cache-Control", value);
}

#ifdef __cplusplus
}
#endif

#endif
