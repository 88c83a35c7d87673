/* See ads.h. */
#include "ads.h"

#include <string.h>

enum {
    FITTING_EVERY = 24,        /* one ad in so many fits every user */
    OVER = 24,                 /* ads of each run of ads whose time is over */
    MATCH_LEAST = 75,          /* what other ads ask for: as much as there can be */
    YEAR_AND_A_DAY = 31622400, /* seconds by which ads are over */
};

uint32_t user_wishes(const char record[USER_RECORD])
{
    return text_read_column(record + 6, 8, 16);
}

static int weight_of(uint32_t common, uint32_t weights)
{
    return (int)((common & 0x30000000 ? weights >> 16 & 15 : 0) + (common & 0x0f000000 ? weights >> 12 & 15 : 0)
                 + (common & 0x00f00000 ? weights >> 8 & 15 : 0) + (common & 0x000ffc00 ? weights >> 4 & 15 : 0)
                 + (common & 0x000003ff ? weights & 15 : 0));
}

struct choice choose_ad(const char ads[ADS_LEN], uint32_t wishes, int last_ad, int64_t now_s)
{
    struct choice choice = {last_ad % ADS, 0, 0};
    const char *record;
    int least;
    last_ad = choice.ad;
    do {
        choice.ad = choice.ad + 1 == ADS ? 0 : choice.ad + 1;
        record = ads + choice.ad * AD_RECORD;
        uint32_t common = wishes & text_read_column(record + 6, 8, 16);
        choice.weight = weight_of(common, text_read_column(record + 15, 8, 16));
        least = (int)text_read_column(record + 24, 3, 10);
    } while (choice.weight < least && choice.ad != last_ad);
    choice.expired = now_s > (int64_t)text_read_column(record + 28, 10, 10);
    return choice;
}

void put_ad(char *file, size_t len, int ad)
{
    static const char tag[] = "<!WEB99CAD><IMG SRC=\"/file_set/dirNNNNN/classX_Y\"><!/WEB99CAD>";
    enum { TAG = sizeof tag - 1, NAME_AT = 31 };
    char name[16];
    struct text text = {name, 0, sizeof name, 0};
    text_put(&text, "dir");
    text_number(&text, ad / 36, 5, '0');
    text_put(&text, "/class");
    text_number(&text, ad % 36 / 9, 1, '0');
    char *end = file + len;
    while ((size_t)(end - file) >= TAG && (file = memchr(file, '<', (size_t)(end - file) - TAG + 1))) {
        if (memcmp(file, tag, TAG) != 0) {
            file++;
            continue;
        }
        memcpy(file + NAME_AT, name, text.len);
        file[NAME_AT + text.len + 1] = (char)('0' + ad % 9);
        file += TAG;
    }
}

/* A number that looks random, from 1 to 12300. */
static uint32_t spread_of(int64_t index)
{
    uint32_t spread = (uint32_t)(index % ADS) * 10000 % 12301;
    return spread ? spread : 12300;
}

/* One bit each for gender, age, region and two interests. Ads differ from users in two values of
 * the second interest. */
static uint32_t demographics(int64_t index, int of_ad)
{
    uint32_t spread = spread_of(index);
    uint32_t low = spread & 15, middle = spread >> 4 & 15, high = spread >> 8 & 15;
    uint32_t second = low % 10;
    if (of_ad && (second == 4 || second == 5))
        second = 9 - second;
    return (spread % 2 ? 0x20000000u : 0x10000000u) | 0x08000000u >> spread % 4 | 0x00800000u >> (low + high) % 4
           | 0x00080000u >> (low + middle) % 10 | 0x00000200u >> second;
}

void make_user(struct text *text, int64_t user)
{
    text_number(text, user, 5, ' ');
    text_put(text, " ");
    text_hex(text, demographics(user, 0), 8);
    text_put(text, "\n");
}

static int is_over(int ad, const int64_t over[2])
{
    return (ad + ADS - over[0] % ADS) % ADS < OVER || (ad + ADS - over[1] % ADS) % ADS < OVER;
}

void make_ads(struct text *text, const struct keeping *keeping)
{
    int64_t expires_s = keeping->now_s + 2 * keeping->run_s;
    for (int ad = 0; ad < ADS; ad++) {
        int fits_all = ad % FITTING_EVERY == keeping->threads % FITTING_EVERY;
        uint32_t weights = spread_of(ad) * spread_of(ad) % 1048576;
        if (!weights)
            weights = 0x27104;
        text_number(text, ad, 5, ' ');
        text_put(text, " ");
        text_hex(text, demographics(ad, 1) | (fits_all ? 0x3ff : 0), 8);
        text_put(text, " ");
        text_hex(text, fits_all ? 0x3ffff : weights, 8);
        text_put(text, " ");
        text_number(text, fits_all ? 1 : MATCH_LEAST, 3, ' ');
        text_put(text, " ");
        text_number(text, expires_s - (is_over(ad, keeping->over) ? YEAR_AND_A_DAY : 0), 10, ' ');
        text_put(text, "\n");
    }
}
