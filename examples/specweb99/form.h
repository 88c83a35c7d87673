/* Parameters of queries and forms: "key=value&key=value", percent-encoded. Of a key that is there
 * twice, the last counts. */
#ifndef SPEC_FORM_H
#define SPEC_FORM_H

#include <stddef.h>
#include <stdint.h>

/* Copies the decoded value of a key as a C string. Returns its length; -1 if there is none, if it
 * has a NUL, or if it does not fit. */
int form_text(const char *form, size_t len, const char *key, char *into, size_t cap);

/* Reads a value of 1 to `digits_max` digits and nothing else; 0 if it is missing or wrong. */
int form_number(const char *form, size_t len, const char *key, size_t digits_max, int64_t *number);

/* Reads two numbers of up to `digits_max` digits with a comma between. */
int form_pair(const char *value, size_t digits_max, int64_t pair[2]);

#endif
