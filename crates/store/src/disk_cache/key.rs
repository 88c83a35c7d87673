//! The keys of objects on disk. They are stable across restarts: they begin with the site's fingerprint, and not with
//! the number that the site has in this process.
//!
//! ```text
//!  identity  0  host target            a response (over TLS, a space before the host), or a marker: Vary, number
//!  identity  1  number  len  host target  values    one of its variants
//!  identity  2  the rest of either key             the update of a validated response
//! ```
//! The number is chosen when a resource is found to vary. Removing the marker hides all variants: the next marker has
//! another number, so the old variants are never found again and are eventually evicted.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;
use lowroad_cache::vary::SelectingFields;

use crate::key;

/// The short form of a site's fingerprint.
pub type SiteIdentity = [u8; 16];

/// A primary key: the key of a resource, of the first kind above.
pub type PrimaryKey = Box<[u8]>;

const RESOURCE: u8 = 0;
const VARIANT: u8 = 1;
const RENEWAL: u8 = 2;

/// Precedes the host in keys of responses over TLS; a host can't contain a space.
const OVER_TLS: &[u8] = b" ";

/// The short form of a fingerprint.
pub fn site_identity(fingerprint: &str) -> SiteIdentity {
    let half_hash = |seed| {
        let mut hasher = FixedState::with_seed(seed).build_hasher();
        hasher.write(fingerprint.as_bytes());
        hasher.finish().to_le_bytes()
    };
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&half_hash(1));
    identity[8..].copy_from_slice(&half_hash(2));
    identity
}

/// The primary key on disk for a key in memory; `None` if `memory_key` is not the key of a handler's response.
pub fn primary(site: &SiteIdentity, memory_key: &[u8]) -> Option<PrimaryKey> {
    let (host, target) = key::handler_key_parts(memory_key)?;
    let scheme = match key::is_over_tls(memory_key) {
        true => OVER_TLS,
        false => b"",
    };
    Some(
        [&site[..], &[RESOURCE], scheme, host, target]
            .concat()
            .into(),
    )
}

/// The key of a variant of a resource.
pub fn variant(primary: &[u8], family: u64, selecting: &SelectingFields) -> Option<Box<[u8]>> {
    let (site, resource) = primary.split_first_chunk::<16>()?;
    let resource = resource.strip_prefix(&[RESOURCE])?;
    let mut key = [&site[..], &[VARIANT], &family.to_le_bytes()].concat();
    // The resource is preceded by its length, so that its end is unambiguous.
    append_bytes(&mut key, resource);
    for (name, value) in selecting.iter() {
        append_bytes(&mut key, name);
        append_bytes(&mut key, value);
    }
    Some(key.into())
}

/// The key of a response's update.
pub fn renewal(response: &[u8]) -> Option<Box<[u8]>> {
    let (site, rest) = response.split_first_chunk::<16>()?;
    Some([&site[..], &[RENEWAL], rest].concat().into())
}

/// The key of the response to which an update belongs; `None` if `key` is not the key of an update.
pub fn base_key(key: &[u8]) -> Option<Box<[u8]>> {
    let (site, rest) = key.split_first_chunk::<16>()?;
    let rest = rest.strip_prefix(&[RENEWAL])?;
    Some([&site[..], rest].concat().into())
}

/// Host and target in a key of any kind.
pub fn parts(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = key.get(16..)?;
    let (kind, rest) = rest
        .strip_prefix(&[RENEWAL])
        .unwrap_or(rest)
        .split_first()?;
    let resource = match *kind {
        RESOURCE => rest,
        VARIANT => {
            let (len, rest) = rest.get(8..)?.split_first_chunk()?;
            rest.get(..usize::try_from(u32::from_le_bytes(*len)).ok()?)?
        }
        _ => return None,
    };
    // The scheme is removed, since purges apply to both schemes.
    let resource = resource.strip_prefix(OVER_TLS).unwrap_or(resource);
    // A host has no slash, so the first one begins the target.
    let slash = resource.iter().position(|byte| *byte == b'/')?;
    Some(resource.split_at(slash))
}

fn append_bytes(key: &mut Vec<u8>, bytes: &[u8]) {
    // The cast is exact: keys come from request heads, which are far shorter.
    key.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    key.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: SiteIdentity = [7; 16];

    fn in_memory(resource: &[u8]) -> Vec<u8> {
        [&9u32.to_le_bytes()[..], &[1], resource].concat()
    }

    #[test]
    fn keys_contain_host_and_target() {
        let primary = primary(&SITE, &in_memory(b"a:80/x?y")).expect("a program's");
        assert_eq!(parts(&primary), Some((&b"a:80"[..], &b"/x?y"[..])));
        let one = SelectingFields::from_vary([&b"x"[..]], [(&b"x"[..], &b"1"[..])].into_iter());
        let one = one.expect("it can be compared");
        let variant_of = |family| variant(&primary, family, &one).expect("a resource");
        assert_eq!(parts(&variant_of(1)), parts(&primary));
        assert_ne!(variant_of(1), variant_of(2));
        assert_eq!(variant(&variant_of(1), 1, &one), None);
        let renewal = renewal(&variant_of(1)).expect("a response");
        assert_eq!(parts(&renewal), parts(&primary));
        assert_eq!(
            (base_key(&renewal), base_key(&primary)),
            (Some(variant_of(1)), None)
        );
        assert_eq!(parts(b"short"), None);
    }

    #[test]
    fn keys_of_responses_over_tls_differ() {
        let of = |maker| {
            let key = [&9u32.to_le_bytes()[..], &[maker], b"a:80/x?y"].concat();
            primary(&SITE, &key).expect("a program's")
        };
        assert_ne!(of(1), of(2));
        assert_eq!(parts(&of(1)), parts(&of(2)));
    }

    #[test]
    fn variant_keys_are_unambiguous() {
        let of = |values: [&'static [u8]; 2]| {
            let names = [&b"a"[..], &b"b"[..]];
            let selecting = SelectingFields::from_vary(names, names.into_iter().zip(values));
            let primary = primary(&SITE, &in_memory(b"h/")).expect("a program's");
            variant(&primary, 1, &selecting.expect("it can be compared"))
        };
        assert_ne!(of([b"1", b"23"]), of([b"12", b"3"]));
    }

    #[test]
    fn site_identities_are_distinct_and_stable() {
        assert_eq!(site_identity("a"), site_identity("a"));
        assert_ne!(site_identity("a"), site_identity("b"));
    }
}
