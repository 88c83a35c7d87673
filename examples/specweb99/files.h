/* The data folder on a disk, for every front: plain POSIX, and WASI where that is all there is.
 * Several processes and threads may use one folder, each with a struct of its own. */
#ifndef SPEC_FILES_H
#define SPEC_FILES_H

#include "core.h"

enum { FOLDER_MAX = 512 };

/* A data file in memory. */
struct kept {
    char *bytes;
    size_t len, cap;
    int64_t changed_ns;
    uint64_t number; /* of its inode */
};

struct spec_files {
    char folder[FOLDER_MAX];
    int64_t process; /* what stands in post.log for who wrote it */
    int keeps;       /* files stay in memory, and are read again when they have changed */
    struct kept kept[3];
};

/* Begins with a folder; 0 if its name is empty or too long. */
int files_begin(struct spec_files *files, const char *folder, int64_t process, int keeps);

/* Frees what is kept. */
void files_end(struct spec_files *files);

/* The folder as the core sees it. */
struct spec_data files_data(struct spec_files *files);

/* Reads `len` bytes of a data file from an offset; 0 if it has not so many. */
int files_read(struct spec_files *files, const char *name, size_t offset, char *into, size_t len);

#endif
