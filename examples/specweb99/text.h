/* Text in a buffer of fixed size, and numbers in it: what snprintf does, without its weight in
 * WebAssembly. What does not fit is left out, and `cut` says so. */
#ifndef SPEC_TEXT_H
#define SPEC_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct text {
    char *bytes;
    size_t len, cap;
    int cut;
};

/* Appends bytes. */
void text_bytes(struct text *text, const char *bytes, size_t len);

/* Appends a C string. */
void text_put(struct text *text, const char *string);

/* Appends at most `len_max` bytes of a C string with &, < and > as HTML has them. */
void text_html(struct text *text, const char *string, size_t len_max);

/* Appends a number, right-justified in `width` columns with `fill` in front. */
void text_number(struct text *text, int64_t number, int width, char fill);

/* The same in upper-case hexadecimal digits. */
void text_hex(struct text *text, uint32_t number, int width);

/* Reads the decimal digits that the bytes begin with, `digits_max` at most; returns how many. */
size_t text_read_number(const char *bytes, size_t len, size_t digits_max, int64_t *number);

/* Reads a column of a record: spaces, then digits of that base. */
uint32_t text_read_column(const char *bytes, size_t len, uint32_t base);

/* Whether the bytes begin with a C string. */
int text_begins(const char *bytes, size_t len, const char *string);

#endif
