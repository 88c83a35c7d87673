/* Users and ads: the files User.Personality and Custom.Ads, how they are made, and which ad a user
 * gets. Works on bytes in memory; knows no disk and no requests. */
#ifndef SPEC_ADS_H
#define SPEC_ADS_H

#include <stddef.h>
#include <stdint.h>

#include "text.h"

enum {
    ADS = 360,
    AD_RECORD = 39,   /* "%5d %8X %8X %3d %10d\n": ad, demographics, weights, least match, expiry */
    USER_RECORD = 15, /* "%5d %8X\n": user, demographics */
    ADS_LEN = ADS * AD_RECORD,
};

/* The ad that a user gets. */
struct choice {
    int ad;      /* 0 to 359, or -1 if nobody knows the user */
    int weight;  /* how well it fits */
    int expired; /* whether its time is over */
};

/* What ads are made from. */
struct keeping {
    int64_t now_s;   /* the time, seconds since 1970 */
    int64_t run_s;   /* how long a run takes */
    int64_t threads; /* of all clients */
    int64_t over[2]; /* first ads of the two runs of ads whose time is over */
};

/* What a record of User.Personality says the user looks for. */
uint32_t user_wishes(const char record[USER_RECORD]);

/* The next ad after the last one that fits well enough; the last one again if none does. `ads` is
 * the whole of Custom.Ads. */
struct choice choose_ad(const char ads[ADS_LEN], uint32_t wishes, int last_ad, int64_t now_s);

/* Puts the name of the ad's picture into all tags of a file; its length stays. */
void put_ad(char *file, size_t len, int ad);

/* Appends the record of a user. */
void make_user(struct text *text, int64_t user);

/* Appends all of Custom.Ads. */
void make_ads(struct text *text, const struct keeping *keeping);

#endif
