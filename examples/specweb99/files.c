/* See files.h.
 *
 * Of post.log, a record is written before it is counted, so a reader that goes by the first line
 * sees whole records without a lock. Writers wait for each other with flock; WASI has none, so there
 * the one that makes the file post.log.lock may write. The two kinds do not see each other: one
 * folder is for one kind of front at a time. */
#define _GNU_SOURCE
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_MAX_LEN = FOLDER_MAX + 64 };

static void join(char path[NAME_MAX_LEN], const struct spec_files *files, const char *name, const char *end)
{
    struct text text = {path, 0, NAME_MAX_LEN - 1, 0};
    text_put(&text, files->folder);
    text_put(&text, "/");
    text_put(&text, name);
    text_put(&text, end);
    path[text.len] = 0;
}

static int open_data(const struct spec_files *files, const char *name, int flags)
{
    char path[NAME_MAX_LEN];
    join(path, files, name, "");
    return open(path, flags | O_CLOEXEC, 0666);
}

/* ---- Locks ---- */

#ifdef __wasi__

enum { STALE_S = 2 };

/* Whoever made the lock and did not take it away again was ended in between. */
static void break_stale_lock(const char *path)
{
    struct stat stat_of;
    if (stat(path, &stat_of) == 0 && time(NULL) - stat_of.st_mtim.tv_sec > STALE_S)
        unlink(path);
}

static int open_log(const struct spec_files *files)
{
    char path[NAME_MAX_LEN];
    join(path, files, "post.log", ".lock");
    int lock = open(path, O_CREAT | O_EXCL | O_WRONLY, 0666);
    if (lock < 0) {
        int why = errno;
        if (why == EEXIST)
            break_stale_lock(path);
        errno = why;
        return -1;
    }
    close(lock);
    int log = open_data(files, "post.log", O_RDWR | O_CREAT);
    if (log < 0)
        unlink(path);
    return log;
}

static void close_log(const struct spec_files *files, int log)
{
    char path[NAME_MAX_LEN];
    close(log);
    join(path, files, "post.log", ".lock");
    unlink(path);
}

static enum spec_result why_not(void)
{
    return errno == EEXIST ? SPEC_BUSY : SPEC_FAILED;
}

#else

#include <sys/file.h>

/* Waits for other writers: each holds the lock for three short system calls. */
static int open_log(const struct spec_files *files)
{
    int log = open_data(files, "post.log", O_RDWR | O_CREAT);
    if (log < 0)
        return -1;
    while (flock(log, LOCK_EX) != 0) {
        if (errno != EINTR) {
            close(log);
            return -1;
        }
    }
    return log;
}

static void close_log(const struct spec_files *files, int log)
{
    (void)files;
    close(log);
}

static enum spec_result why_not(void)
{
    return SPEC_FAILED;
}

#endif

/* ---- What the core asks for ---- */

static int64_t now_s(void *context)
{
    (void)context;
    return (int64_t)time(NULL);
}

static enum spec_result append(void *context, const struct spec_form *form)
{
    struct spec_files *files = context;
    char head[LOG_HEAD], record[LOG_RECORD];
    int log = open_log(files);
    if (log < 0)
        return why_not();
    ssize_t got = pread(log, head, LOG_HEAD, 0);
    int64_t number = (got == LOG_HEAD ? spec_log_records(head) : got == 0 ? 0 : -1) + 1;
    int good = 0;
    if (number > 0) {
        spec_log_record(record, form, number, files->process);
        spec_log_head(head, number);
        off_t at = LOG_HEAD + (off_t)(number - 1) * LOG_RECORD;
        good = pwrite(log, record, LOG_RECORD, at) == LOG_RECORD && pwrite(log, head, LOG_HEAD, 0) == LOG_HEAD;
    }
    close_log(files, log);
    return good ? SPEC_GOOD : SPEC_FAILED;
}

static enum spec_result empty(void *context)
{
    struct spec_files *files = context;
    char head[LOG_HEAD];
    int log = open_log(files);
    if (log < 0)
        return why_not();
    spec_log_head(head, 0);
    int good = pwrite(log, head, LOG_HEAD, 0) == LOG_HEAD && ftruncate(log, LOG_HEAD) == 0;
    close_log(files, log);
    return good ? SPEC_GOOD : SPEC_FAILED;
}

static enum spec_result replace(void *context, const char *name, const char *bytes, size_t len)
{
    struct spec_files *files = context;
    char path[NAME_MAX_LEN], new_path[NAME_MAX_LEN], end[24];
    struct text text = {end, 0, sizeof end - 1, 0};
    text_put(&text, ".");
    text_number(&text, files->process, 0, ' ');
    end[text.len] = 0;
    join(path, files, name, "");
    join(new_path, files, name, end);
    int file = open(new_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0)
        return SPEC_FAILED;
    size_t done = 0;
    while (done < len) {
        ssize_t count = write(file, bytes + done, len - done);
        if (count <= 0)
            break;
        done += (size_t)count;
    }
    int good = close(file) == 0 && done == len && rename(new_path, path) == 0;
    if (!good)
        unlink(new_path);
    return good ? SPEC_GOOD : SPEC_FAILED;
}

static int room(struct kept *kept, size_t len)
{
    if (len > kept->cap) {
        char *bytes = realloc(kept->bytes, len);
        if (!bytes)
            return 0;
        kept->bytes = bytes;
        kept->cap = len;
    }
    return 1;
}

static int read_all(int file, char *into, size_t len, size_t offset)
{
    size_t done = 0;
    while (done < len) {
        ssize_t count = pread(file, into + done, len - done, (off_t)(offset + done));
        if (count <= 0)
            return 0;
        done += (size_t)count;
    }
    return 1;
}

static int64_t changed_ns(const struct stat *stat_of)
{
    return (int64_t)stat_of->st_mtim.tv_sec * 1000000000 + stat_of->st_mtim.tv_nsec;
}

/* Reads a file if it is not the one that is kept; 0 if it can't be read. */
static int keep(struct spec_files *files, struct kept *kept, const char *name)
{
    char path[NAME_MAX_LEN];
    struct stat stat_of;
    join(path, files, name, "");
    if (stat(path, &stat_of) != 0)
        return 0;
    if (kept->bytes && kept->number == stat_of.st_ino && kept->changed_ns == changed_ns(&stat_of))
        return 1;
    int file = open_data(files, name, O_RDONLY);
    if (file < 0)
        return 0;
    int good = fstat(file, &stat_of) == 0 && room(kept, (size_t)stat_of.st_size + 1)
               && read_all(file, kept->bytes, (size_t)stat_of.st_size, 0);
    close(file);
    kept->len = good ? (size_t)stat_of.st_size : 0;
    kept->number = good ? stat_of.st_ino : 0;
    kept->changed_ns = good ? changed_ns(&stat_of) : 0;
    return good;
}

int files_read(struct spec_files *files, const char *name, size_t offset, char *into, size_t len)
{
    int file = open_data(files, name, O_RDONLY);
    if (file < 0)
        return 0;
    int good = read_all(file, into, len, offset);
    close(file);
    return good;
}

static const char *look(void *context, const char *name, size_t offset, size_t len)
{
    struct spec_files *files = context;
    int is_log = strcmp(name, "post.log") == 0;
    struct kept *kept = &files->kept[is_log ? 2 : name[0] == 'C'];
    if (files->keeps && !is_log) {
        int is_there = keep(files, kept, name) && offset <= kept->len && len <= kept->len - offset;
        return is_there ? kept->bytes + offset : NULL;
    }
    return room(kept, len) && files_read(files, name, offset, kept->bytes, len) ? kept->bytes : NULL;
}

int files_begin(struct spec_files *files, const char *folder, int64_t process, int keeps)
{
    size_t len = strlen(folder);
    memset(files, 0, sizeof *files);
    files->process = process;
    files->keeps = keeps;
    if (len == 0 || len >= FOLDER_MAX)
        return 0;
    memcpy(files->folder, folder, len + 1);
    return 1;
}

void files_end(struct spec_files *files)
{
    for (int at = 0; at < 3; at++)
        free(files->kept[at].bytes);
}

struct spec_data files_data(struct spec_files *files)
{
    struct spec_data data = {files, now_s, look, replace, append, empty};
    return data;
}
