/* The dynamic set as a CGI program (RFC 3875): a process for each request. Its data folder is the
 * variable SPECWEB99_DATA. */
#include <stdlib.h>
#include <unistd.h>

#include "gateway.h"

static const char *variable(void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

/* A CGI program must not read more than CONTENT_LENGTH: the end may never come. */
static size_t read_body(void *context, char *into, size_t len)
{
    size_t *left = context;
    if (len > *left)
        len = *left;
    ssize_t count = len > 0 ? read(STDIN_FILENO, into, len) : 0;
    *left -= count > 0 ? (size_t)count : 0;
    return count > 0 ? (size_t)count : 0;
}

static int write_out(void *context, const char *bytes, size_t len)
{
    (void)context;
    while (len > 0) {
        ssize_t count = write(STDOUT_FILENO, bytes, len);
        if (count <= 0)
            return 0;
        bytes += count;
        len -= (size_t)count;
    }
    return 1;
}

int main(void)
{
    const char *folder = getenv("SPECWEB99_DATA"), *len = getenv("CONTENT_LENGTH");
    size_t left = len ? strtoul(len, NULL, 10) : 0;
    struct gateway gateway = {&left, variable, read_body, write_out};
    struct spec_files files;
    int has_folder = files_begin(&files, folder ? folder : "", getpid(), 0);
    gateway_answer(&gateway, has_folder ? &files : NULL);
    files_end(&files);
    return 0;
}
