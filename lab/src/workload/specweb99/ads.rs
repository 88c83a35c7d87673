//! The data of the dynamic program about users and ads: the files `User.Personality` and `Custom.Ads`.
//! `peers/php/specweb99.php` creates the same files on a reset. No I/O.

/// Number of ads.
pub(super) const ADS: usize = 360;

/// One ad in this many fits every user.
const FITTING_EVERY: usize = 24;

/// Number of ads in each of the two expired ranges.
const EXPIRED_LEN: usize = 24;

/// The parameters of the ads.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdTables {
    /// Number of client threads.
    pub(super) threads: u32,
    /// When ads expire, in seconds since 1970.
    pub(super) expires_s: u64,
    /// When the expired ads expired, in seconds since 1970.
    pub(super) expired_s: u64,
    /// First ad of each of the two expired ranges.
    pub(super) expired: [usize; 2],
}

impl AdTables {
    /// Parameters for reproducible files: ads expire in 2100, or expired at the end of 2024. Each run begins with a
    /// reset, which creates new ads with the time of the run.
    pub(super) fn fixed(threads: u32) -> AdTables {
        let (expires_s, expired_s) = (4_102_444_800, 1_735_689_600);
        AdTables {
            threads,
            expires_s,
            expired_s,
            expired: [1, 100],
        }
    }

    fn is_expired(&self, ad: usize) -> bool {
        // The distance is modulo the number of ads, since a range may wrap around at the last ad.
        self.expired
            .iter()
            .any(|first| (ad + ADS - first % ADS) % ADS < EXPIRED_LEN)
    }

    /// The file `Custom.Ads`: 360 records of 39 bytes.
    pub(super) fn custom_ads(&self) -> Vec<u8> {
        let mut text = String::new();
        for ad in 0..ADS {
            let fits_all = ad % FITTING_EVERY == self.threads as usize % FITTING_EVERY;
            let extra = if fits_all { 0x3ff } else { 0 };
            let demographics = demographics(ad, true) | extra;
            let (weights, min_match) = if fits_all {
                (0x3_ffff, 1)
            } else {
                (weights(ad), 75)
            };
            let expiry_s = if self.is_expired(ad) {
                self.expired_s
            } else {
                self.expires_s
            };
            text += &format!("{ad:5} {demographics:8X} {weights:8X} {min_match:3} {expiry_s:10}\n");
        }
        text.into_bytes()
    }
}

/// The file `User.Personality`: a record of 15 bytes for each user.
pub(super) fn personalities(users: u32) -> Vec<u8> {
    let record = |user: u32| format!("{user:5} {:8X}\n", demographics(user as usize, false));
    (0..users).map(record).collect::<String>().into_bytes()
}

/// A pseudo-random number from 1 to 12300.
fn spread(index: usize) -> usize {
    match (index % ADS) * 10_000 % 12_301 {
        0 => 12_300,
        other => other,
    }
}

/// Demographic bits: gender, age, region and two interests. Ads differ from users in two values of the second interest.
fn demographics(index: usize, is_ad: bool) -> u32 {
    let spread = spread(index);
    let (low, middle, high) = (spread & 15, spread >> 4 & 15, spread >> 8 & 15);
    let gender = if spread % 2 == 1 {
        0x2000_0000
    } else {
        0x1000_0000
    };
    let age = 0x0800_0000 >> (spread % 4);
    let region = 0x0080_0000 >> ((low + high) % 4);
    let interest_1 = 0x0008_0000 >> ((low + middle) % 10);
    let interest_2 = match low % 10 {
        4 if is_ad => 0x10,
        5 if is_ad => 0x20,
        other => 0x200 >> other,
    };
    gender | age | region | interest_1 | interest_2
}

/// The weights of the five properties for an ad, 4 bits each.
fn weights(ad: usize) -> usize {
    match spread(ad) * spread(ad) % 1_048_576 {
        0 => 0x2_7104,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ad_records_have_the_documented_format() {
        let ads = AdTables::fixed(100).custom_ads();
        assert_eq!(ads.len(), 360 * 39);
        let text = String::from_utf8(ads).expect("text");
        for (ad, line) in text.lines().enumerate() {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            assert_eq!(columns[0], ad.to_string());
            assert_eq!((line.len(), columns.len()), (38, 5));
            let fits_all = ad % 24 == 100 % 24;
            assert_eq!(columns[3] == "1", fits_all);
            assert_eq!(columns[2] == "3FFFF", fits_all);
            let over = (1..25).contains(&ad) || (100..124).contains(&ad);
            assert_eq!(columns[4] == "4102444800", !over);
        }
        let users = personalities(1000);
        assert_eq!(users.len(), 1000 * 15);
        for (user, record) in users.chunks(15).enumerate() {
            let text = std::str::from_utf8(record).expect("text");
            assert!(text.starts_with(&format!("{user:5} ")) && text.ends_with('\n'));
            let word = u32::from_str_radix(text[6..14].trim(), 16).expect("hex");
            let bits = |mask| (word & mask as u32).count_ones();
            for mask in [
                0x3000_0000,
                0x0f00_0000,
                0x00f0_0000,
                0x000f_fc00,
                0x0000_03ff,
            ] {
                assert_eq!(bits(mask), 1);
            }
        }
    }

    #[test]
    fn expired_ad_range_wraps_around() {
        let keeping = AdTables {
            expired: [350, 90],
            ..AdTables::fixed(1)
        };
        let over = (0..ADS).filter(|&ad| keeping.is_expired(ad)).count();
        assert_eq!(over, 48);
        assert!(keeping.is_expired(13) && !keeping.is_expired(14) && !keeping.is_expired(349));
    }

    /// Searches for each user and last ad by the rule of the dynamic program, and checks the length of the search.
    #[test]
    fn every_search_ends_at_an_ad_that_fits_all() {
        for user in 0..ADS {
            let wishes = demographics(user, false);
            for ad in 0..ADS {
                let common = wishes & demographics(ad, true);
                let groups = [(0x3000_0000, 16), (0x0f00_0000, 12), (0x00f0_0000, 8)];
                let groups = groups.iter().chain(&[(0x000f_fc00, 4), (0x0000_03ff, 0)]);
                let weight: usize = groups
                    .filter(|(mask, _)| common & mask != 0)
                    .map(|(_, shift)| weights(ad) >> shift & 15)
                    .sum();
                assert!(weight < 75, "an ordinary ad fits: user {user}, ad {ad}");
            }
            assert_ne!(wishes & 0x3ff, 0, "an ad with all interests fits");
        }
    }
}
