/* See gateway.h. Files of the site come from DOCUMENT_ROOT. */
#define _GNU_SOURCE
#include "gateway.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 64 << 10 };

static const char *variable(const struct gateway *gateway, const char *name)
{
    const char *value = gateway->variable(gateway->context, name);
    return value ? value : "";
}

static size_t read_form(const struct gateway *gateway, char form[FORM_MAX + 1])
{
    size_t len = 0, count;
    while (len <= FORM_MAX && (count = gateway->read(gateway->context, form + len, FORM_MAX + 1 - len)) > 0)
        len += count;
    return len;
}

static int open_site_file(const struct gateway *gateway, const char *path, size_t *len)
{
    char name[PATH_MAX];
    struct stat stat_of;
    struct text text = {name, 0, sizeof name - 1, 0};
    text_put(&text, variable(gateway, "DOCUMENT_ROOT"));
    text_put(&text, path);
    name[text.len] = 0;
    int file = text.cut ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && (fstat(file, &stat_of) != 0 || !S_ISREG(stat_of.st_mode))) {
        close(file);
        file = -1;
    }
    *len = file >= 0 ? (size_t)stat_of.st_size : 0;
    return file;
}

static void send_head(const struct gateway *gateway, const struct spec_answer *answer, size_t content_len)
{
    char head[512];
    struct text text = {head, 0, sizeof head, 0};
    text_put(&text, "Status: ");
    text_number(&text, answer->status, 0, ' ');
    text_put(&text, " ");
    text_put(&text, spec_reason(answer->status));
    text_put(&text, "\r\nContent-Type: text/html\r\nContent-Length: ");
    text_number(&text, (int64_t)(answer->before_len + content_len + strlen(spec_after)), 0, ' ');
    if (answer->set_cookie[0]) {
        text_put(&text, "\r\nSet-Cookie: ");
        text_put(&text, answer->set_cookie);
    }
    text_put(&text, "\r\n\r\n");
    if (gateway->write(gateway->context, head, text.len))
        gateway->write(gateway->context, answer->before, answer->before_len);
}

/* Sends a file in pieces. */
static void send_plain(const struct gateway *gateway, int file, size_t len)
{
    char piece[PIECE];
    while (len > 0) {
        ssize_t count = read(file, piece, len < PIECE ? len : PIECE);
        if (count <= 0 || !gateway->write(gateway->context, piece, (size_t)count))
            return;
        len -= (size_t)count;
    }
}

/* Sends a file with its ad put in. Those with tags are short: 92,160 bytes at most. */
static void send_with_ad(const struct gateway *gateway, int file, size_t len, int ad)
{
    char *bytes = malloc(len ? len : 1);
    if (!bytes)
        return;
    size_t done = 0;
    ssize_t count;
    while (done < len && (count = read(file, bytes + done, len - done)) > 0)
        done += (size_t)count;
    put_ad(bytes, done, ad);
    gateway->write(gateway->context, bytes, done);
    free(bytes);
}

static void send_log(const struct gateway *gateway, struct spec_files *files, size_t len)
{
    char piece[PIECE];
    for (size_t at = 0; at < len;) {
        size_t count = len - at < PIECE ? len - at : PIECE;
        if (!files_read(files, "post.log", at, piece, count)
            || !gateway->write(gateway->context, piece, count))
            return;
        at += count;
    }
}

static void send_answer(const struct gateway *gateway, struct spec_files *files, const struct spec_request *request,
                        struct spec_answer *answer)
{
    int file = -1;
    size_t len = answer->content == SPEC_LOG ? answer->log_len : 0;
    if (answer->content == SPEC_FILE) {
        file = open_site_file(gateway, answer->path, &len);
        if (file < 0)
            spec_refuse(answer, request, 404, "No such file.");
    }
    send_head(gateway, answer, len);
    if (file >= 0 && answer->ad >= 0)
        send_with_ad(gateway, file, len, answer->ad);
    else if (file >= 0)
        send_plain(gateway, file, len);
    else if (answer->content == SPEC_LOG)
        send_log(gateway, files, len);
    gateway->write(gateway->context, spec_after, strlen(spec_after));
    if (file >= 0)
        close(file);
}

void gateway_answer(const struct gateway *gateway, struct spec_files *files)
{
    char form[FORM_MAX + 1];
    struct spec_answer answer;
    struct spec_request request = {
        .method = variable(gateway, "REQUEST_METHOD"),
        .query = variable(gateway, "QUERY_STRING"),
        .cookie = variable(gateway, "HTTP_COOKIE"),
        .software = variable(gateway, "SERVER_SOFTWARE"),
        .peer = variable(gateway, "REMOTE_ADDR"),
        .script = variable(gateway, "SCRIPT_NAME"),
        .form = form,
        .form_len = 0,
    };
    if (strcmp(request.method, "POST") == 0)
        request.form_len = read_form(gateway, form);
    if (!files) {
        spec_refuse(&answer, &request, 500, "SPECWEB99_DATA is not set: it names the folder with Custom.Ads.");
    } else {
        struct spec_data data = files_data(files);
        if (spec_answer(&data, &request, &answer) == SPEC_BUSY)
            spec_refuse(&answer, &request, 500, "post.log is locked.");
    }
    send_answer(gateway, files, &request, &answer);
}
