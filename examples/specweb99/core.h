/* The server's side of SPECweb99-like dynamic requests: a page around a file, with an ad for the
 * user that a cookie names, forms that are logged, and the two commands that begin and end a run.
 *
 * It reads and writes nothing itself: the data comes through struct spec_data, and what it makes is
 * said in struct spec_answer, which a front (cgi.c, fastcgi.c, module.c) sends. */
#ifndef SPEC_CORE_H
#define SPEC_CORE_H

#include <stddef.h>
#include <stdint.h>

#include "ads.h"

enum {
    LOG_HEAD = 11,    /* "%10d\n": how many records there are */
    LOG_RECORD = 139, /* see log_record */
    QUERY_MAX = 1024, /* longer queries are refused */
    FORM_MAX = 4096,  /* longer forms are refused */
    PATH_MAX_LEN = 512,
    BEFORE_MAX = 8192,
};

/* What is to be answered; C strings, empty where there is nothing. */
struct spec_request {
    const char *method, *query, *cookie;    /* cookie: the value of the field */
    const char *software, *peer, *script;   /* only shown */
    const char *form;                       /* the body, form_len bytes */
    size_t form_len;                        /* more than FORM_MAX: there is more, not kept */
};

/* A form as it is logged. */
struct spec_form {
    int64_t time_s, dir, file_class, number, client, user;
    char path[PATH_MAX_LEN]; /* a C string */
};

/* How something went. BUSY: try the whole request again soon; nothing has happened. */
enum spec_result { SPEC_GOOD, SPEC_FAILED, SPEC_BUSY };

/* The data folder: User.Personality, Custom.Ads, post.log. */
struct spec_data {
    void *context;
    int64_t (*now_s)(void *context);
    /* `len` bytes of a file from an offset; NULL if it has not so many. They stay until the next call. */
    const char *(*look)(void *context, const char *name, size_t offset, size_t len);
    /* Puts a new file in a file's place, whole or not at all. */
    enum spec_result (*replace)(void *context, const char *name, const char *bytes, size_t len);
    /* Adds a record to post.log and counts it, while nobody else does. */
    enum spec_result (*append)(void *context, const struct spec_form *form);
    /* Makes post.log empty. */
    enum spec_result (*empty)(void *context);
};

/* What stands between the two parts of a page. */
enum spec_content {
    SPEC_NOTHING,
    SPEC_FILE, /* the site's file at `path`; put_ad is due before if `ad` is not -1 */
    SPEC_LOG,  /* the first `log_len` bytes of post.log */
};

/* A page: `before`, the content, `spec_after`. */
struct spec_answer {
    int status;
    enum spec_content content;
    int ad;
    size_t log_len;
    char path[PATH_MAX_LEN]; /* a C string that begins with '/' */
    char set_cookie[96];     /* the value of a Set-Cookie field; empty: none */
    size_t before_len;
    char before[BEFORE_MAX];
};

/* The end of every page. */
extern const char spec_after[];

/* Answers; SPEC_BUSY if it is to be tried again. Always fills in the answer otherwise. */
enum spec_result spec_answer(const struct spec_data *data, const struct spec_request *request,
                             struct spec_answer *answer);

/* Makes an answer of a status and what is wrong. */
void spec_refuse(struct spec_answer *answer, const struct spec_request *request, int status, const char *why);

/* The query with which a front that has no disk has another one log a form: a command that is ours,
 * not SPECweb99's. */
void spec_append_query(struct text *query, const struct spec_form *form);

/* A record of post.log. `process` stands in it twice: writers that do not wait for each other show. */
void spec_log_record(char record[LOG_RECORD], const struct spec_form *form, int64_t number, int64_t process);

/* The first line of post.log. */
void spec_log_head(char head[LOG_HEAD], int64_t records);

/* How many records a first line says there are; -1 if it is none. */
int64_t spec_log_records(const char head[LOG_HEAD]);

/* The reason phrase of a status that answers have. */
const char *spec_reason(int status);

#endif
