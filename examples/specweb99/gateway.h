/* What CGI and FastCGI programs have in common: requests as variables, answers as a head and bytes. */
#ifndef SPEC_GATEWAY_H
#define SPEC_GATEWAY_H

#include "files.h"

/* One request, as the protocol brings it. */
struct gateway {
    void *context;
    /* The value of a variable, or NULL. */
    const char *(*variable)(void *context, const char *name);
    /* Reads of the body; how many bytes, 0 at its end. */
    size_t (*read)(void *context, char *into, size_t len);
    /* Writes to the client; 0 if it is gone. */
    int (*write)(void *context, const char *bytes, size_t len);
};

/* Answers one request. `files` may be NULL: then the folder of data is not known. */
void gateway_answer(const struct gateway *gateway, struct spec_files *files);

#endif
