/* See form.h. */
#include "form.h"

#include <string.h>

#include "text.h"

static int hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit |= 32;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static int decode(const char *bytes, const char *end, char *into, size_t cap)
{
    size_t len = 0;
    while (bytes < end) {
        char byte = *bytes++;
        if (byte == '+') {
            byte = ' ';
        } else if (byte == '%' && end - bytes >= 2 && hex_digit(bytes[0]) >= 0 && hex_digit(bytes[1]) >= 0) {
            byte = (char)(hex_digit(bytes[0]) << 4 | hex_digit(bytes[1]));
            bytes += 2;
        }
        if (!byte || len + 1 >= cap)
            return -1;
        into[len++] = byte;
    }
    into[len] = 0;
    return (int)len;
}

int form_text(const char *form, size_t len, const char *key, char *into, size_t cap)
{
    size_t key_len = strlen(key);
    const char *end = form + len;
    int found = -1;
    while (form < end) {
        const char *next = memchr(form, '&', (size_t)(end - form));
        const char *pair_end = next ? next : end;
        if ((size_t)(pair_end - form) > key_len && memcmp(form, key, key_len) == 0 && form[key_len] == '=')
            found = decode(form + key_len + 1, pair_end, into, cap);
        form = next ? next + 1 : end;
    }
    return found;
}

int form_number(const char *form, size_t len, const char *key, size_t digits_max, int64_t *number)
{
    char value[16];
    int value_len = form_text(form, len, key, value, sizeof value);
    return value_len > 0 && text_read_number(value, (size_t)value_len, digits_max, number) == (size_t)value_len;
}

int form_pair(const char *value, size_t digits_max, int64_t pair[2])
{
    size_t len = strlen(value);
    size_t digits = text_read_number(value, len, digits_max, &pair[0]);
    if (!digits || value[digits] != ',')
        return 0;
    value += digits + 1;
    len = strlen(value);
    digits = text_read_number(value, len, digits_max, &pair[1]);
    return digits && digits == len;
}
