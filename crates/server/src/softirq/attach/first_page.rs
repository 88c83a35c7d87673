//! The first-page check after attaching. It reports whether the level can answer the server's first page, and which
//! status pages the server shows only to this machine. The names of the server's sites are not known here, so Host is
//! an address.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use lowroad_cache::storage_policy::StorageRefusal;
use lowroad_softirq::fetch::address_fetcher::{AddressFetcher, ServerConnector};
use lowroad_softirq::key::{ConnectionClass, KeyParts, RequestKey};
use lowroad_softirq::learner::{self, FetchDenial, LearnSettings, VerdictTerms};
use lowroad_softirq::response::FetchError;
use lowroad_softirq::response::fetched_response::RevalidationFields;

use super::origin;
use crate::terminal_output;

/// Default paths of the status pages of Apache (the first two) and nginx.
const STATUS_PATHS: [&str; 3] = ["/server-status", "/server-info", "/nginx_status"];

/// The inputs of the check.
pub struct LevelQuery<'a> {
    /// The attached ports.
    pub ports: &'a [u16],
    /// The daemon's storing rules.
    pub learning: LearnSettings,
    /// Connects to the web server behind the attached port.
    pub connect: ServerConnector,
}

impl LevelQuery<'_> {
    /// Runs the check and prints its findings. Stops early when `has_ended` is true.
    pub fn check(&self, has_ended: &AtomicBool) {
        let mut fetcher = AddressFetcher::new(&self.connect, true);
        for port in self.ports {
            // `check_servers` has already reported ports without a usable server.
            let Ok(server) = origin::server_address(*port) else {
                continue;
            };
            for path in ["/"].iter().chain(&STATUS_PATHS) {
                if has_ended.load(Ordering::Relaxed) {
                    return;
                }
                if let Some(text) = self.check_page(&mut fetcher, server, path) {
                    terminal_output::note(format_args!("http://{server}{path} {text}"));
                }
            }
        }
    }

    /// Checks one page. Returns the message to print, if there is one.
    fn check_page(
        &self,
        fetcher: &mut AddressFetcher,
        server: SocketAddr,
        path: &str,
    ) -> Option<String> {
        // The key has the header fields of a browser, because only a compressed response may be short enough.
        let host = server.to_string();
        let parts = KeyParts {
            class: ConnectionClass::default(),
            address: server.ip(),
            port: server.port(),
            target: path.as_bytes(),
            host: host.as_bytes(),
            accept_encoding: Some(b"gzip, deflate"),
            if_none_match: None,
            if_modified_since: None,
        };
        let key = RequestKey::build(&parts)?;
        // The page is fetched both from this machine's address and from the probe address; the two responses must be
        // equal.
        let response = match fetcher.fetch(&key.parts(), &RevalidationFields::default()) {
            Ok(response) => response,
            Err(FetchError::DiffersBySource {
                machine,
                probe: outsider,
            }) => {
                return Some(format!(
                    "has status {machine} for this machine and {outsider} for other clients, so \
                     it is not stored"
                ));
            }
            Err(error) if path == "/" => {
                return Some(format!(
                    "could not be requested from a foreign address: {error}"
                ));
            }
            Err(_) => return None,
        };
        if path != "/" || response.status != 200 {
            return None;
        }
        let denial = FetchDenial::for_path(&parts, &self.learning).or_else(|| {
            let terms = VerdictTerms {
                key: parts,
                settings: &self.learning,
                delay_ms: 0,
            };
            learner::judge(Ok(response), None, &terms).err()
        })?;
        Some(denial_text(&denial))
    }
}

/// A message that the level does not answer a page, and whether that may change.
fn denial_text(denial: &FetchDenial) -> String {
    let duration = match denial {
        FetchDenial::NotStorable(StorageRefusal::JustChanged) | FetchDenial::ServerError(_) => {
            "for now"
        }
        _ => "while its response stays the same",
    };
    format!("is not answered on the fast path {duration}: {denial}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_denial_is_reported_as_temporary() {
        let changed = denial_text(&FetchDenial::NotStorable(StorageRefusal::JustChanged));
        assert!(changed.starts_with("is not answered on the fast path for now: "));
        let private = denial_text(&FetchDenial::NotStorable(StorageRefusal::Private));
        assert!(private.contains(" while its response stays the same: Cache-Control has private"));
    }
}
