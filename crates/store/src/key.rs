//! The keys of stored objects in memory: site, source (files or a handler), host and path. For handlers, the path is
//! not decoded or normalized, because handlers may distinguish equivalent forms.

/// The source of the object under a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeySource {
    Files = 0,
    Program = 1,
    /// A handler, for requests over TLS. Handlers may distinguish the schemes, for instance in links and redirects. So
    /// responses to plain-text requests are not reused for TLS clients (cache poisoning).
    HandlerOverTls = 2,
}

/// The site of a handler's response, and the scheme of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteScope {
    /// The site's number.
    pub site_id: u32,
    /// The request used TLS.
    pub is_https: bool,
}

/// A key with its hash.
#[derive(Clone, Copy, Debug)]
pub struct HashedKey<'k> {
    /// The hash.
    pub hash: u64,
    /// The key.
    pub bytes: &'k [u8],
}

/// The length of the site's number.
const SITE_LEN: usize = size_of::<u32>();

/// Writes the key of a file with this decoded path. `host` is the normalised name if each host has its own folder,
/// otherwise empty.
#[inline]
pub fn write_file_key(key: &mut Vec<u8>, site_id: u32, host: &[u8], path: &[u8]) {
    start(key, site_id, KeySource::Files);
    key.extend_from_slice(host);
    key.extend_from_slice(path);
}

/// Writes the key of a handler's response to a target (path and query) under a Host, with or without TLS.
pub fn write_handler_key(
    key: &mut Vec<u8>,
    site: SiteScope,
    host: &[u8],
    path: &[u8],
    query: Option<&[u8]>,
) {
    let maker = match site.is_https {
        false => KeySource::Program,
        true => KeySource::HandlerOverTls,
    };
    start(key, site.site_id, maker);
    key.extend_from_slice(host);
    key.extend_from_slice(path);
    if let Some(query) = query {
        key.push(b'?');
        key.extend_from_slice(query);
    }
}

/// Whether the key of a handler's response is for requests over TLS.
pub fn is_over_tls(key: &[u8]) -> bool {
    key.get(SITE_LEN) == Some(&(KeySource::HandlerOverTls as u8))
}

/// Host and target in the key of a handler's response; `None` for the key of a file.
pub fn handler_key_parts(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let (maker, rest) = key.get(SITE_LEN..)?.split_first()?;
    if *maker == KeySource::Files as u8 {
        return None;
    }
    // A host has no slash, so the first one begins the target.
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    Some(rest.split_at(slash))
}

#[inline]
fn start(key: &mut Vec<u8>, site_id: u32, maker: KeySource) {
    key.clear();
    key.extend_from_slice(&site_id.to_le_bytes());
    key.push(maker as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handler_keys_contain_host_and_target() {
        let program = [&7u32.to_le_bytes()[..], &[1], b"a:80/x/y?z"].concat();
        assert_eq!(
            handler_key_parts(&program),
            Some((&b"a:80"[..], &b"/x/y?z"[..]))
        );
        let mut key = Vec::new();
        for over_tls in [false, true] {
            let site = SiteScope {
                site_id: 7,
                is_https: over_tls,
            };
            write_handler_key(&mut key, site, b"a:80", b"/x/y", Some(b"z"));
            assert_eq!(key == program, !over_tls);
            assert_eq!(handler_key_parts(&key), handler_key_parts(&program));
        }
        let file = [&7u32.to_le_bytes()[..], &[0], b"/x"].concat();
        assert_eq!(handler_key_parts(&file), None);
        assert_eq!(handler_key_parts(b""), None);
    }
}
