/* See core.h. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#include "form.h"

enum {
    FIRST_USER = 10000,
    SHOWN_MAX = 256,
    FILE_NAME = 17, /* "dir00012/class1_3" */
};

const char spec_after[] = "\n</pre>\n</body></html>\n";

/* ---- Pages ---- */

static void begin_page(struct spec_answer *answer, const struct spec_request *request, int status)
{
    struct text text = {answer->before, 0, sizeof answer->before, 0};
    answer->status = status;
    answer->content = SPEC_NOTHING;
    answer->ad = -1;
    answer->path[0] = answer->set_cookie[0] = 0;
    text_put(&text, "<html>\n<head><title>SPECweb99 Dynamic GET & POST Test</title></head>\n<body>\n"
                    "<p>SERVER_SOFTWARE = ");
    /* What is the client's must not become HTML. */
    text_html(&text, request->software, SHOWN_MAX);
    text_put(&text, "\n<p>REMOTE_ADDR = ");
    text_html(&text, request->peer, SHOWN_MAX);
    text_put(&text, "\n<p>SCRIPT_NAME = ");
    text_html(&text, request->script, SHOWN_MAX);
    text_put(&text, "\n<p>QUERY_STRING = ");
    text_html(&text, request->query, QUERY_MAX);
    text_put(&text, "\n<pre>\n");
    answer->before_len = text.len;
}

void spec_refuse(struct spec_answer *answer, const struct spec_request *request, int status, const char *why)
{
    begin_page(answer, request, status);
    struct text text = {answer->before, answer->before_len, sizeof answer->before, 0};
    text_put(&text, why);
    answer->before_len = text.len;
}

static enum spec_result refuse(struct spec_answer *answer, const struct spec_request *request, int status,
                               const char *why)
{
    spec_refuse(answer, request, status, why);
    return SPEC_GOOD;
}

const char *spec_reason(int status)
{
    switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    default: return "Internal Server Error";
    }
}

/* ---- Names of files and users ---- */

/* The site's path of a file: one '/' in front. 0 if it leads out of the site or is too long. */
static int site_path(char path[PATH_MAX_LEN], const char *name)
{
    while (*name == '/')
        name++;
    size_t len = strlen(name);
    if (strstr(name, "..") || len + 2 > PATH_MAX_LEN)
        return 0;
    path[0] = '/';
    memcpy(path + 1, name, len + 1);
    return 1;
}

static int is_word(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9')
           || byte == '_';
}

/* Whether all bytes are ones that paths of the set have. */
static int is_plain_path(const char *bytes, size_t len)
{
    for (size_t at = 0; at < len; at++)
        if (!is_word(bytes[at]) && bytes[at] != '.' && bytes[at] != '-' && bytes[at] != '/')
            return 0;
    return 1;
}

/* Whether a query is the name of a file of the set, "…/dir00012/class1_3"; its class. */
static int is_file_name(const char *query, int *file_class)
{
    size_t len = strlen(query);
    if (len < FILE_NAME || (len > FILE_NAME && query[len - FILE_NAME - 1] != '/') || strstr(query, "//"))
        return 0;
    const char *name = query + len - FILE_NAME;
    int64_t dir;
    if (!is_plain_path(query, len - FILE_NAME) || memcmp(name, "dir", 3) != 0
        || text_read_number(name + 3, 5, 5, &dir) != 5 || memcmp(name + 8, "/class", 6) != 0 || name[14] < '0'
        || name[14] > '3' || name[15] != '_' || name[16] < '0' || name[16] > '8')
        return 0;
    *file_class = name[14] - '0';
    return 1;
}

/* User and last ad from "my_cookie=user_id=10001&last_ad=20" among the cookies. */
static int find_user(const char *cookie, int64_t *user, int64_t *last_ad)
{
    static const char key[] = "my_cookie=user_id=", next[] = "&last_ad=";
    const char *found = cookie;
    while ((found = strstr(found, key))) {
        int is_begin = found == cookie || !is_word(found[-1]);
        found += sizeof key - 1;
        size_t digits = text_read_number(found, strlen(found), 9, user);
        const char *rest = found + digits;
        if (!is_begin || !digits || !text_begins(rest, strlen(rest), next))
            continue;
        rest += sizeof next - 1;
        if (text_read_number(rest, strlen(rest), 9, last_ad))
            return 1;
    }
    return 0;
}

/* ---- The kinds of requests ---- */

/* The ad for a user, as a cookie, and in the file where it has tags. */
static enum spec_result rotate_ad(const struct spec_data *data, const struct spec_request *request,
                                  struct spec_answer *answer, int file_class, int64_t user, int64_t last_ad)
{
    struct choice choice = {-1, 0, 1};
    const char *record = NULL;
    if (user >= FIRST_USER)
        record = data->look(data->context, "User.Personality", (size_t)(user - FIRST_USER) * USER_RECORD, USER_RECORD);
    if (record) {
        uint32_t wishes = user_wishes(record);
        const char *ads = data->look(data->context, "Custom.Ads", 0, ADS_LEN);
        if (!ads)
            return refuse(answer, request, 500, "Custom.Ads is missing or broken.");
        choice = choose_ad(ads, wishes, (int)(last_ad % ADS), data->now_s(data->context));
    }
    struct text cookie = {answer->set_cookie, 0, sizeof answer->set_cookie - 1, 0};
    text_put(&cookie, "found_cookie=Ad_id=");
    text_number(&cookie, choice.ad, 0, ' ');
    text_put(&cookie, "&Ad_weight=");
    text_number(&cookie, choice.weight, 0, ' ');
    text_put(&cookie, "&Expired=");
    text_number(&cookie, choice.expired, 0, ' ');
    answer->set_cookie[cookie.len] = 0;
    if (file_class == 1 || file_class == 2)
        answer->ad = choice.ad;
    return SPEC_GOOD;
}

static enum spec_result get(const struct spec_data *data, const struct spec_request *request,
                            struct spec_answer *answer)
{
    int file_class;
    if (!is_file_name(request->query, &file_class))
        return refuse(answer, request, 400,
                      "The query is no file of the set, no command/Reset and no command/Fetch.");
    begin_page(answer, request, 200);
    if (!site_path(answer->path, request->query))
        return refuse(answer, request, 404, "No such file.");
    answer->content = SPEC_FILE;
    int64_t user, last_ad;
    if (!find_user(request->cookie, &user, &last_ad))
        return SPEC_GOOD;
    return rotate_ad(data, request, answer, file_class, user, last_ad);
}

/* Reads a form; what is wrong with it, or NULL. */
static const char *read_form(const char *text, size_t len, struct spec_form *form)
{
    char root[PATH_MAX_LEN - 32];
    if (len > FORM_MAX)
        return "The form is too long.";
    if (form_text(text, len, "urlroot", root, sizeof root) < 0
        || !is_plain_path(root, strlen(root)))
        return "The form's urlroot is missing or wrong.";
    if (!form_number(text, len, "dir", 5, &form->dir))
        return "The form's dir is missing or wrong.";
    if (!form_number(text, len, "class", 1, &form->file_class) || form->file_class > 3)
        return "The form's class is missing or wrong.";
    if (!form_number(text, len, "num", 1, &form->number) || form->number > 8)
        return "The form's num is missing or wrong.";
    if (!form_number(text, len, "client", 10, &form->client))
        return "The form's client is missing or wrong.";
    struct text path = {form->path, 0, sizeof form->path - 1, 0};
    text_put(&path, root);
    text_put(&path, "dir");
    text_number(&path, form->dir, 5, '0');
    text_put(&path, "/class");
    text_number(&path, form->file_class, 0, ' ');
    text_put(&path, "_");
    text_number(&path, form->number, 0, ' ');
    form->path[path.len] = 0;
    return NULL;
}

static enum spec_result log_form(const struct spec_data *data, const struct spec_request *request,
                                 struct spec_answer *answer, const struct spec_form *form)
{
    enum spec_result logged = data->append(data->context, form);
    if (logged == SPEC_FAILED)
        return refuse(answer, request, 500, "post.log can't be written: the data folder must be writable.");
    return logged;
}

static enum spec_result post(const struct spec_data *data, const struct spec_request *request,
                             struct spec_answer *answer)
{
    struct spec_form form;
    int64_t last_ad;
    const char *wrong = read_form(request->form, request->form_len, &form);
    if (wrong)
        return refuse(answer, request, 400, wrong);
    begin_page(answer, request, 200);
    if (!site_path(answer->path, form.path))
        return refuse(answer, request, 404, "No such file.");
    if (!find_user(request->cookie, &form.user, &last_ad))
        form.user = 0;
    form.time_s = data->now_s(data->context);
    enum spec_result logged = log_form(data, request, answer, &form);
    if (logged == SPEC_BUSY || answer->status != 200)
        return logged;
    answer->content = SPEC_FILE;
    struct text cookie = {answer->set_cookie, 0, sizeof answer->set_cookie - 1, 0};
    text_put(&cookie, "my_cookie=");
    text_number(&cookie, form.user, 0, ' ');
    answer->set_cookie[cookie.len] = 0;
    return SPEC_GOOD;
}

/* A form that a front without a disk got. */
static enum spec_result append(const struct spec_data *data, const struct spec_request *request,
                               struct spec_answer *answer)
{
    struct spec_form form;
    size_t len = strlen(request->query);
    const char *wrong = read_form(request->query, len, &form);
    if (!wrong && (!form_number(request->query, len, "user", 9, &form.user)
                   || !form_number(request->query, len, "time", 10, &form.time_s)))
        wrong = "command/Append needs the numbers user and time.";
    if (wrong)
        return refuse(answer, request, 400, wrong);
    begin_page(answer, request, 200);
    return log_form(data, request, answer, &form);
}

void spec_append_query(struct text *query, const struct spec_form *form)
{
    const char *keys[] = {"&dir=", "&class=", "&num=", "&client=", "&user=", "&time="};
    const int64_t numbers[] = {form->dir, form->file_class, form->number, form->client, form->user, form->time_s};
    /* The path without "dir00012/class1_3": all its bytes are ones that a query may have. */
    size_t path_len = strlen(form->path);
    text_put(query, "command/Append&urlroot=");
    text_bytes(query, form->path, path_len >= FILE_NAME ? path_len - FILE_NAME : 0);
    for (int at = 0; at < 6; at++) {
        text_put(query, keys[at]);
        text_number(query, numbers[at], 0, ' ');
    }
}

/* Makes as many users as the run has clients; 1 if that went well. */
static int new_users(const struct spec_data *data, int64_t users)
{
    size_t cap = (size_t)users * (USER_RECORD + 2);
    struct text text = {malloc(cap ? cap : 1), 0, cap, 0};
    if (!text.bytes)
        return 0;
    for (int64_t user = 0; user < users; user++)
        make_user(&text, user);
    enum spec_result result = data->replace(data->context, "User.Personality", text.bytes, text.len);
    free(text.bytes);
    return result == SPEC_GOOD;
}

static enum spec_result reset(const struct spec_data *data, const struct spec_request *request,
                              struct spec_answer *answer)
{
    const char *given = request->query + strlen("command/Reset");
    size_t len = strlen(given);
    int64_t load;
    struct keeping keeping;
    if (!form_number(given, len, "maxload", 7, &load) || !form_number(given, len, "pttime", 7, &keeping.run_s)
        || !form_number(given, len, "maxthread", 7, &keeping.threads))
        return refuse(answer, request, 400, "command/Reset needs the numbers maxload, pttime and maxthread.");
    char over[16];
    if (form_text(given, len, "exp", over, sizeof over) < 0 || !form_pair(over, 3, keeping.over))
        return refuse(answer, request, 400, "command/Reset needs exp, two ads with a comma between.");
    enum spec_result emptied = data->empty(data->context);
    if (emptied == SPEC_BUSY)
        return SPEC_BUSY;
    keeping.now_s = data->now_s(data->context);
    char ads[ADS_LEN + 1];
    struct text text = {ads, 0, sizeof ads, 0};
    make_ads(&text, &keeping);
    if (emptied != SPEC_GOOD || !new_users(data, load > keeping.threads ? load : keeping.threads)
        || data->replace(data->context, "Custom.Ads", ads, text.len) != SPEC_GOOD)
        return refuse(answer, request, 500, "The data can't be written: the data folder must be writable.");
    begin_page(answer, request, 200);
    return SPEC_GOOD;
}

static enum spec_result fetch(const struct spec_data *data, const struct spec_request *request,
                              struct spec_answer *answer)
{
    const char *head = data->look(data->context, "post.log", 0, LOG_HEAD);
    int64_t records = head ? spec_log_records(head) : -1;
    if (records < 0)
        return refuse(answer, request, 500, "post.log is missing or broken.");
    begin_page(answer, request, 200);
    answer->content = SPEC_LOG;
    answer->log_len = LOG_HEAD + (size_t)records * LOG_RECORD;
    return SPEC_GOOD;
}

enum spec_result spec_answer(const struct spec_data *data, const struct spec_request *request,
                             struct spec_answer *answer)
{
    if (strlen(request->query) > QUERY_MAX)
        return refuse(answer, request, 400, "The query is too long.");
    if (strcmp(request->method, "POST") == 0)
        return post(data, request, answer);
    if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0)
        return refuse(answer, request, 400, "The method is none of GET, HEAD and POST.");
    if (text_begins(request->query, strlen(request->query), "command/Reset"))
        return reset(data, request, answer);
    if (strcmp(request->query, "command/Fetch") == 0)
        return fetch(data, request, answer);
    if (text_begins(request->query, strlen(request->query), "command/Append&"))
        return append(data, request, answer);
    return get(data, request, answer);
}

/* ---- post.log ---- */

void spec_log_record(char record[LOG_RECORD], const struct spec_form *form, int64_t number, int64_t process)
{
    enum { PATH_WIDTH = 60 };
    struct text text = {record, 0, LOG_RECORD, 0};
    const int64_t numbers[] = {number, form->time_s, process, form->dir, form->file_class, form->number, form->client};
    const int widths[] = {10, 10, 10, 5, 2, 2, 10};
    for (int at = 0; at < 7; at++) {
        text_number(&text, numbers[at], widths[at], ' ');
        text_put(&text, " ");
    }
    size_t path_len = strnlen(form->path, PATH_WIDTH);
    text_bytes(&text, form->path, path_len);
    for (; path_len < PATH_WIDTH; path_len++)
        text_put(&text, " ");
    text_put(&text, " ");
    text_number(&text, process, 10, ' ');
    text_put(&text, " ");
    text_number(&text, form->user, 10, ' ');
    text_put(&text, "\n");
}

void spec_log_head(char head[LOG_HEAD], int64_t records)
{
    struct text text = {head, 0, LOG_HEAD, 0};
    text_number(&text, records, LOG_HEAD - 1, ' ');
    text_put(&text, "\n");
}

int64_t spec_log_records(const char head[LOG_HEAD])
{
    int64_t records;
    size_t at = 0;
    while (at < LOG_HEAD && head[at] == ' ')
        at++;
    size_t digits = text_read_number(head + at, LOG_HEAD - at, 10, &records);
    return digits && at + digits == LOG_HEAD - 1 && head[LOG_HEAD - 1] == '\n' ? records : -1;
}
