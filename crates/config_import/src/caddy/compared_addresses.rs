//! The addresses that the matchers of a site compare.
//!
//! Caddy's `remote_ip` is the address of the connection. Its `client_ip` is the address that the global `trusted_proxies`
//! report; those of a `reverse_proxy` only concern fields of its requests. Conditions of Lowroad have one address, which the
//! `trusted_proxies` of the site report.

use super::globals::GlobalOptions;
use super::tree::CaddyDirective;

/// The kinds of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComparedAddresses {
    /// `remote_ip`
    has_peer: bool,
    /// `client_ip`
    has_client: bool,
}

impl ComparedAddresses {
    /// The addresses that a block and those in it compare.
    pub fn of_block(block: &CaddyDirective) -> ComparedAddresses {
        let mut found = ComparedAddresses::default();
        found.add(block);
        found
    }

    fn add(&mut self, block: &CaddyDirective) {
        for word in &block.words {
            // Expressions call the matchers as functions.
            let has = |name: &str| word.text == name || word.text.contains(&format!("{name}("));
            self.has_peer |= has("remote_ip");
            self.has_client |= has("client_ip");
        }
        for child in block.children() {
            self.add(child);
        }
    }

    /// Whether no single address can stand for those of both matchers.
    pub fn is_ambiguous(self, globals: &GlobalOptions) -> bool {
        self.has_peer && self.has_client && !globals.trusted_proxies.is_empty()
    }

    /// The value of `trusted_proxies` of a site, and whether it lacks proxies that Caddy trusts. `own` are those of the
    /// site's `reverse_proxy`.
    pub fn trusted(self, globals: &GlobalOptions, own: &[String]) -> (Option<String>, bool) {
        let all = globals.trusted_by(own);
        let kept = match (self.has_peer, self.has_client) {
            (false, false) => all.clone(),
            (false, true) => globals.trusted_by(&[]),
            (true, _) => None,
        };
        let is_less = kept != all;
        (kept, is_less)
    }
}
