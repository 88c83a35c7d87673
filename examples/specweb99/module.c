/* The dynamic set as a module of Lowroad: the same source for a shared library and for WebAssembly.
 *
 * A file goes out by reference, without passing through here, unless an ad is put into it: then it
 * is fetched first. */
#include <lowroad.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"

/* What a call keeps while it waits. */
struct page {
    struct wanted *wanted;
    uint32_t file;   /* the fetch of the file, once the answer is known */
    size_t form_len; /* FORM_MAX + 1: there was more */
    char form[FORM_MAX + 1];
    struct spec_answer answer;
};

/* A request's values as C strings; longer ones are cut, which the core refuses or only shows. */
struct values {
    char method[8], query[QUERY_MAX + 2], cookie[1024], peer[64], path[256];
};

static struct page *page_of(lowroad_call *call)
{
    return (struct page *)(uintptr_t)lowroad_memory(call);
}

static struct page *new_page(lowroad_call *call)
{
    struct page *page = malloc(sizeof *page);
    if (page) {
        page->wanted = NULL;
        page->file = 0;
        page->form_len = 0;
        page->answer.before_len = 0;
        lowroad_set_memory(call, (uintptr_t)page);
    }
    return page;
}

/* The last thing that is done with a call. */
static int end(lowroad_call *call, int next)
{
    struct page *page = page_of(call);
    if (page) {
        store_forget(page->wanted);
        free(page);
        lowroad_set_memory(call, 0);
    }
    return next;
}

static void send_head(lowroad_call *call, const struct spec_answer *answer)
{
    if (answer->status != 200)
        lowroad_status(call, (uint32_t)answer->status);
    lowroad_field(call, "Content-Type", "text/html");
    if (answer->set_cookie[0])
        lowroad_field(call, "Set-Cookie", answer->set_cookie);
    lowroad_send(call, answer->before, answer->before_len);
}

/* An answer that needs nothing more. */
static int send_answer(struct store *store, lowroad_call *call, const struct spec_answer *answer,
                       struct wanted *wanted)
{
    int good = 1;
    send_head(call, answer);
    if (answer->content == SPEC_FILE)
        good = lowroad_send_stored(call, answer->path) >= 0;
    else if (answer->content == SPEC_LOG)
        good = store_send_log(store, call, wanted, answer->log_len);
    good = good && lowroad_send(call, spec_after, strlen(spec_after)) >= 0;
    return end(call, good ? LOWROAD_DONE : LOWROAD_FAILED);
}

static void read_values(lowroad_call *call, struct values *values, struct spec_request *request)
{
    lowroad_get(call, LOWROAD_METHOD, NULL, values->method, sizeof values->method);
    lowroad_get(call, LOWROAD_QUERY, NULL, values->query, sizeof values->query);
    lowroad_get(call, LOWROAD_FIELD, "Cookie", values->cookie, sizeof values->cookie);
    lowroad_get(call, LOWROAD_PEER, NULL, values->peer, sizeof values->peer);
    lowroad_get(call, LOWROAD_PATH, NULL, values->path, sizeof values->path);
    struct page *page = page_of(call);
    *request = (struct spec_request){
        .method = values->method,
        .query = values->query,
        .cookie = values->cookie,
        .software = "Lowroad",
        .peer = values->peer,
        .script = values->path,
        .form = page ? page->form : "",
        .form_len = page ? page->form_len : 0,
    };
}

/* Tries to answer; waits if something has to be fetched first, or if another one is writing. */
static int answer(struct store *store, lowroad_call *call)
{
    struct values values;
    struct spec_request request;
    struct spec_answer answer;
    struct page *page = page_of(call);
    struct wanted *none = NULL, **wanted = page ? &page->wanted : &none;
    read_values(call, &values, &request);
    struct spec_data data = store_data(store, call, wanted);
    int is_busy = spec_answer(&data, &request, &answer) == SPEC_BUSY;
    int waits = is_busy || store_waits(*wanted);
    if (!waits && answer.ad < 0) {
        int next = send_answer(store, call, &answer, *wanted);
        if (!page)
            store_forget(none);
        return next;
    }
    if (!page && !(page = new_page(call))) {
        store_forget(none);
        return LOWROAD_FAILED;
    }
    page->wanted = *wanted;
    if (waits) {
        if (!store_waits(page->wanted))
            lowroad_timer(call, 1);
        return LOWROAD_WAIT;
    }
    page->answer = answer;
    int file = lowroad_fetch(call, answer.path);
    page->file = file > 0 ? (uint32_t)file : 0;
    return file > 0 ? LOWROAD_WAIT : end(call, LOWROAD_FAILED);
}

/* The file is there: it gets its ad. */
static int send_with_ad(lowroad_call *call, struct page *page)
{
    int64_t left = lowroad_left(call, page->file);
    char *bytes = left > 0 ? malloc((size_t)left) : NULL;
    if (lowroad_fetched(call, page->file) != 200 || !bytes) {
        struct values values;
        struct spec_request request;
        free(bytes);
        read_values(call, &values, &request);
        spec_refuse(&page->answer, &request, 404, "No such file.");
        return send_answer(NULL, call, &page->answer, NULL);
    }
    size_t len = (size_t)lowroad_read(call, page->file, bytes, (size_t)left);
    put_ad(bytes, len, page->answer.ad);
    send_head(call, &page->answer);
    lowroad_send(call, bytes, len);
    lowroad_send(call, spec_after, strlen(spec_after));
    free(bytes);
    return end(call, LOWROAD_DONE);
}

/* Keeps what there is of a form. Bodies of other requests are read and dropped. */
static int read_form(lowroad_call *call)
{
    struct page *page = page_of(call);
    char rest[512];
    int64_t count;
    do {
        size_t room = page && !page->file ? FORM_MAX + 1 - page->form_len : 0;
        count = room > 0 ? lowroad_read(call, 0, page->form + page->form_len, room)
                         : lowroad_read(call, 0, rest, sizeof rest);
        if (count > 0 && room > 0)
            page->form_len += (size_t)count;
    } while (count > 0);
    return LOWROAD_WAIT;
}

static int is_post(lowroad_call *call)
{
    char method[8];
    lowroad_get(call, LOWROAD_METHOD, NULL, method, sizeof method);
    return strcmp(method, "POST") == 0;
}

static int begin(struct store *store, lowroad_call *call)
{
    if (!is_post(call))
        return answer(store, call);
    return new_page(call) ? LOWROAD_WAIT : LOWROAD_FAILED;
}

void *lowroad_start(lowroad_call *worker)
{
    return store_begin(worker);
}

void lowroad_stop(void *state)
{
    store_end(state);
}

int lowroad_handle(void *state, lowroad_call *call, int event, uint32_t number)
{
    struct page *page = page_of(call);
    switch (event) {
    case LOWROAD_REQUEST:
        return begin(state, call);
    case LOWROAD_BODY:
        return read_form(call);
    case LOWROAD_BODY_END:
        /* Others than forms are under way already. */
        return is_post(call) ? answer(state, call) : LOWROAD_WAIT;
    case LOWROAD_FETCHED:
        if (page && page->file && page->file == number)
            return send_with_ad(call, page);
        if (page)
            store_fetched(page->wanted, call, number);
        return answer(state, call);
    case LOWROAD_TIMER:
        return answer(state, call);
    case LOWROAD_GONE:
        return end(call, LOWROAD_DONE);
    default:
        return LOWROAD_WAIT;
    }
}
