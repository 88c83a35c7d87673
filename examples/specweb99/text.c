/* See text.h. */
#include "text.h"

#include <string.h>

void text_bytes(struct text *text, const char *bytes, size_t len)
{
    if (len > text->cap - text->len) {
        text->cut = 1;
        len = text->cap - text->len;
    }
    memcpy(text->bytes + text->len, bytes, len);
    text->len += len;
}

void text_put(struct text *text, const char *string)
{
    text_bytes(text, string, strlen(string));
}

void text_html(struct text *text, const char *string, size_t len_max)
{
    const char *plain = string;
    const char *end = string + strnlen(string, len_max);
    for (; string < end; string++) {
        const char *entity = *string == '&' ? "&amp;" : *string == '<' ? "&lt;" : *string == '>' ? "&gt;" : NULL;
        if (!entity)
            continue;
        text_bytes(text, plain, (size_t)(string - plain));
        text_put(text, entity);
        plain = string + 1;
    }
    text_bytes(text, plain, (size_t)(end - plain));
}

static void number_in_base(struct text *text, uint64_t number, uint32_t base, int negative, int width, char fill)
{
    char digits[24];
    int count = 0;
    do
        digits[count++] = "0123456789ABCDEF"[number % base];
    while (number /= base);
    if (negative)
        digits[count++] = '-';
    for (; width > count; width--)
        text_bytes(text, &fill, 1);
    while (count)
        text_bytes(text, &digits[--count], 1);
}

void text_number(struct text *text, int64_t number, int width, char fill)
{
    int negative = number < 0;
    number_in_base(text, negative ? 0 - (uint64_t)number : (uint64_t)number, 10, negative, width, fill);
}

void text_hex(struct text *text, uint32_t number, int width)
{
    number_in_base(text, number, 16, 0, width, ' ');
}

size_t text_read_number(const char *bytes, size_t len, size_t digits_max, int64_t *number)
{
    size_t at = 0;
    *number = 0;
    for (; at < len && at < digits_max && bytes[at] >= '0' && bytes[at] <= '9'; at++)
        *number = *number * 10 + (bytes[at] - '0');
    return at;
}

uint32_t text_read_column(const char *bytes, size_t len, uint32_t base)
{
    uint32_t number = 0;
    size_t at = 0;
    while (at < len && bytes[at] == ' ')
        at++;
    for (; at < len; at++) {
        char digit = bytes[at];
        uint32_t value = digit >= 'A' ? (uint32_t)(digit - 'A') + 10 : (uint32_t)(digit - '0');
        if (value >= base)
            break;
        number = number * base + value;
    }
    return number;
}

int text_begins(const char *bytes, size_t len, const char *string)
{
    size_t string_len = strlen(string);
    return len >= string_len && memcmp(bytes, string, string_len) == 0;
}
