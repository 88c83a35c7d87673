//! Path prefixes excluded from a cache in front of another web server, because that server restricts them to local or
//! to selected clients (status pages, administration).
//!
//! In doubt, a path is excluded: a wrong exclusion costs a hit, a missed one discloses a page. So the comparison
//! ignores case, and a target is compared in two forms: with percent escapes decoded, and normalized as a server may
//! do, without empty segments, dot segments and path parameters (`;x`).

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::pattern::decode_escapes;

/// Excluded by default: status pages of servers, pages that are usually restricted to some addresses, and the paths of
/// ACME challenges, where even a slightly old response is wrong.
const WELL_KNOWN: [&str; 23] = [
    // Apache.
    "/server-status",
    "/server-info",
    "/balancer-manager",
    "/ldap-status",
    // nginx: the paths of its manual and of Debian's monitoring.
    "/nginx_status",
    "/nginx-status",
    "/stub_status",
    "/basic_status",
    // PHP-FPM.
    "/status",
    "/ping",
    "/fpm-",
    "/php-fpm",
    // HAProxy, Prometheus, Spring, Go.
    "/haproxy",
    "/metrics",
    "/actuator",
    "/debug/",
    // Administration.
    "/admin",
    "/phpmyadmin",
    "/wp-admin",
    "/wp-login",
    "/private",
    "/internal",
    // Certificates (RFC 8555 §8.3).
    "/.well-known/acme-challenge/",
];

/// Whether a prefix is excluded by default.
#[must_use]
pub fn is_well_known(prefix: &str) -> bool {
    WELL_KNOWN.contains(&prefix)
}

/// The excluded path prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcludedPaths(Vec<PathPrefix>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathPrefix {
    text: String,
    decoded: Vec<u8>,
    resolved: Vec<u8>,
}

/// A text that is not a path prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPathPrefix(String);

impl fmt::Display for InvalidPathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidPathPrefix(text) = self;
        write!(
            f,
            "{text}: not the beginning of a path (allowed: /PATH, without query)"
        )
    }
}

impl core::error::Error for InvalidPathPrefix {}

impl ExcludedPaths {
    /// Parses path prefixes.
    ///
    /// # Errors
    /// The first text that is not a path prefix.
    pub fn read(texts: &[String]) -> Result<ExcludedPaths, InvalidPathPrefix> {
        let read = |text: &String| {
            let is_path = text.starts_with('/') && !text.contains(['?', '#', ' ']);
            is_path
                .then(|| PathPrefix {
                    text: text.clone(),
                    decoded: decode_fully(text.as_bytes()),
                    resolved: resolve_prefix(text.as_bytes()),
                })
                .ok_or_else(|| InvalidPathPrefix(text.clone()))
        };
        texts
            .iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map(ExcludedPaths)
    }

    /// Parses path prefixes, and adds those excluded by default.
    ///
    /// # Errors
    /// The first text that is not a path prefix.
    pub fn read_with_well_known(texts: &[String]) -> Result<ExcludedPaths, InvalidPathPrefix> {
        ExcludedPaths::read(&ExcludedPaths::with_well_known(texts))
    }

    /// Excludes all paths.
    #[must_use]
    pub fn all_paths() -> ExcludedPaths {
        ExcludedPaths(Vec::from([PathPrefix {
            text: "/".to_owned(),
            decoded: Vec::new(),
            resolved: Vec::new(),
        }]))
    }

    /// The operator's prefixes, and the prefixes excluded by default.
    #[must_use]
    pub fn with_well_known(texts: &[String]) -> Vec<String> {
        let well_known = WELL_KNOWN.iter().map(ToString::to_string);
        texts.iter().cloned().chain(well_known).collect()
    }

    /// The first prefix that excludes a target, as configured.
    pub fn matching_prefix(&self, target: &[u8]) -> Option<&str> {
        if self.0.is_empty() {
            return None;
        }
        let (decoded, resolved) = (decode_fully(target), normalized_path(target));
        let is_match = |prefix: &&PathPrefix| {
            // A match of either form excludes the target.
            decoded.starts_with(&prefix.decoded) || resolved.starts_with(&prefix.resolved)
        };
        self.0.iter().find(is_match).map(|prefix| &*prefix.text)
    }
}

/// The path of a target in lower case, with percent escapes decoded repeatedly, since some servers decode twice.
fn decode_fully(target: &[u8]) -> Vec<u8> {
    let path = target
        .split(|byte| *byte == b'?')
        .next()
        .unwrap_or_default();
    let mut path = path.to_ascii_lowercase();
    loop {
        let decoded = decode_escapes(&path).to_ascii_lowercase();
        // Each round that changes the path makes it shorter, so the loop ends.
        if decoded.len() == path.len() {
            return decoded;
        }
        path = decoded;
    }
}

/// The decoded path without empty segments, dot segments and path parameters.
fn normalized_path(target: &[u8]) -> Vec<u8> {
    let path = decode_fully(target);
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut is_folder = false;
    // Some servers treat a backslash as a slash.
    for segment in path.split(|byte| matches!(byte, b'/' | b'\\')) {
        let name = segment
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default();
        is_folder = matches!(name, b"" | b"." | b"..");
        match name {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            _ => segments.push(name),
        }
    }
    let mut out = Vec::with_capacity(path.len() + 1);
    for name in &segments {
        out.push(b'/');
        out.extend_from_slice(name);
    }
    if is_folder {
        out.push(b'/');
    }
    out
}

/// Normalizes a prefix except for its last segment, which may be the beginning of a segment.
fn resolve_prefix(prefix: &[u8]) -> Vec<u8> {
    let path = decode_fully(prefix);
    let folder_len = path.iter().rposition(|byte| *byte == b'/');
    let (folder, last) = path.split_at(folder_len.map_or(0, |at| at + 1));
    [&normalized_path(folder), last].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(texts: &[&str]) -> ExcludedPaths {
        let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
        ExcludedPaths::read(&texts).expect("paths")
    }

    #[test]
    fn equivalent_spellings_of_a_path_are_excluded() {
        // A missed spelling would disclose a status page.
        let paths = excluded(&["/server-status", "/Intern/"]);
        for target in [
            "/server-status",
            "/server-status?auto",
            "/server-status/x",
            "/server-statuses",
            "/%73erver-status",
            // Encoded twice.
            "/%2573erver%2dstatus",
            "/SERVER-status",
            "//server-status",
            "/a/..//./server-status",
            "/../server-status",
            // Parameters of path segments.
            "/x;y/../server-status;z",
            "/%2e/server-status",
            "/a%2f..%2fserver-status",
            // Backslashes as separators.
            "/a\\..\\server-status",
            // Matches only before dot segments are removed.
            "/server-status/../x",
        ] {
            let found = paths.matching_prefix(target.as_bytes());
            assert_eq!(found, Some("/server-status"), "{target}");
        }
        assert_eq!(paths.matching_prefix(b"/intern/a"), Some("/Intern/"));
        assert_eq!(paths.matching_prefix(b"/intern//"), Some("/Intern/"));
        for target in [
            "/",
            "/intern",
            "/status",
            "/x?/server-status",
            "/a/server-status",
        ] {
            assert_eq!(paths.matching_prefix(target.as_bytes()), None, "{target}");
        }
    }

    #[test]
    fn prefix_may_end_inside_a_segment() {
        let paths = excluded(&["/.", "/a/../b"]);
        assert_eq!(paths.matching_prefix(b"/.git"), Some("/."));
        assert_eq!(paths.matching_prefix(b"//.env"), Some("/."));
        assert_eq!(paths.matching_prefix(b"/bcd"), Some("/a/../b"));
        assert_eq!(paths.matching_prefix(b"/git"), None);
    }

    #[test]
    fn slash_excludes_all_paths_and_an_empty_list_none() {
        assert_eq!(excluded(&["/"]).matching_prefix(b"/x"), Some("/"));
        assert_eq!(ExcludedPaths::default().matching_prefix(b"/x"), None);
    }

    #[test]
    fn well_known_paths_are_added_to_the_configured_ones() {
        let paths = ExcludedPaths::read_with_well_known(&["/x".into()]).expect("paths");
        assert_eq!(
            paths.matching_prefix(b"/server-status?auto"),
            Some("/server-status")
        );
        assert_eq!(paths.matching_prefix(b"/a/../Metrics"), Some("/metrics"));
        assert_eq!(paths.matching_prefix(b"/haproxy?stats"), Some("/haproxy"));
        assert_eq!(paths.matching_prefix(b"/xy"), Some("/x"));
        assert!(is_well_known("/metrics") && !is_well_known("/x"));
        for open in [
            "/",
            "/index.html",
            "/static/status.png",
            "/.well-known/security.txt",
        ] {
            assert_eq!(paths.matching_prefix(open.as_bytes()), None, "{open}");
        }
    }

    #[test]
    fn invalid_path_prefixes_are_rejected() {
        for text in ["", "x", "http://h/x", "/x?y", "/x y"] {
            let message = ExcludedPaths::read(&[text.to_owned()])
                .expect_err(text)
                .to_string();
            assert!(message.contains("allowed: /PATH"), "{message}");
        }
    }
}
