//! The share of clients to which a request belongs.

use std::net::IpAddr;

use lowroad_config::{ClientShare, HashBy};

use crate::{ConditionInput, request_cookies};

/// The number of buckets into which clients are divided.
const BUCKETS: u64 = 10_000;

/// Whether the client of a request belongs to a share. The result is the same on every machine and after every start.
pub fn is_in_share(input: &ConditionInput<'_>, share: &ClientShare) -> bool {
    let bucket = match &share.by {
        HashBy::Cookie(name) => {
            let mut cookies = request_cookies(input.request);
            let cookie = cookies.find(|(cookie, _)| *cookie == name.as_bytes());
            cookie.map(|(_, value)| bucket(value))
        }
        HashBy::Header(name) => {
            let mut fields = input.request.fields();
            let field = fields.find(|(field, _)| field.eq_ignore_ascii_case(name.as_bytes()));
            field.map(|(_, value)| bucket(value))
        }
        HashBy::Address | HashBy::Url => None,
    };
    // A client without the cookie is one that visits for the first time.
    let bucket = bucket.unwrap_or_else(|| address_bucket(input.client));
    bucket < u64::from(share.percent) * BUCKETS / 100
}

/// IPv4-mapped addresses count as IPv4, and IPv6 clients by the first 64 bits, within which they change addresses.
fn address_bucket(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => bucket(&address.octets()),
        IpAddr::V6(address) => bucket(&address.octets()[..8]),
    }
}

/// The bucket of a key, by FNV-1a with the finalizer of SplitMix64.
fn bucket(key: &[u8]) -> u64 {
    // Neighbouring addresses must not be in the same bucket, so the bits are mixed.
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % BUCKETS
}
