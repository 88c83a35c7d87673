//! What the operator is told when a level is attached: of the server's first page whether it can be answered
//! here, and which of the pages that servers have about themselves only this machine is shown. Names of
//! sites are not known here, so the server is asked by its address.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use lowroad_cache::storable::NotStorable;
use lowroad_softirq::fetch::asker::{Asker, Connect};
use lowroad_softirq::key::{Class, Key, KeyParts};
use lowroad_softirq::learn::{self, Denial, Settings, Terms};
use lowroad_softirq::response::FetchError;
use lowroad_softirq::response::fetched::Validators;

use super::origin;
use crate::say;

/// Where servers tell about themselves by default: Apache twice, nginx.
const OF_FEW: [&str; 3] = ["/server-status", "/server-info", "/nginx_status"];

/// What is needed to ask.
pub struct Look<'a> {
    /// The ports that are attached to.
    pub ports: &'a [u16],
    /// By which rules the daemon learns.
    pub learning: Settings,
    /// To the server above.
    pub connect: Connect,
}

impl Look<'_> {
    /// Asks, and says what is to be said. Ends early when it is `over`.
    pub fn look(&self, over: &AtomicBool) {
        let mut asker = Asker::new(&self.connect, true);
        for port in self.ports {
            // Whoever listens nowhere has been complained of.
            let Ok(server) = origin::server_of(*port) else {
                continue;
            };
            for path in ["/"].iter().chain(&OF_FEW) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                if let Some(text) = self.judged(&mut asker, server, path) {
                    say::note(format_args!("http://{server}{path} {text}"));
                }
            }
        }
    }

    /// What is to be said of a page.
    fn judged(&self, asker: &mut Asker, server: SocketAddr, path: &str) -> Option<String> {
        // As browsers ask: what is compressed may be short enough.
        let host = server.to_string();
        let parts = KeyParts {
            class: Class::default(),
            address: server.ip(),
            port: server.port(),
            target: path.as_bytes(),
            host: host.as_bytes(),
            accept_encoding: Some(b"gzip, deflate"),
            if_none_match: None,
            if_modified_since: None,
        };
        let key = Key::build(&parts)?;
        let told = match asker.fetch(&key.parts(), &Validators::default()) {
            Ok(told) => told,
            Err(FetchError::ForFew { machine, outsider }) => {
                return Some(format!(
                    "is answered with status {machine} to this machine and with {outsider} to others: \
                     nothing is learnt of it"
                ));
            }
            Err(error) if path == "/" => {
                return Some(format!(
                    "could not be asked for as a stranger would: {error}"
                ));
            }
            Err(_) => return None,
        };
        if path != "/" || told.status != 200 {
            return None;
        }
        let why = Denial::of_path(&parts, &self.learning).or_else(|| {
            let terms = Terms {
                key: parts,
                settings: &self.learning,
                delay_ms: 0,
            };
            learn::judge(Ok(told), None, &terms).err()
        })?;
        Some(left(&why))
    }
}

/// A message that the level does not answer a page, and for how long.
fn left(why: &Denial) -> String {
    let long = match why {
        Denial::NotStorable(NotStorable::JustChanged) | Denial::ServerError(_) => "for now",
        _ => "as long as it is answered so",
    };
    format!("is not answered below the socket {long}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_true_for_a_moment_is_said_of_that() {
        let changed = left(&Denial::NotStorable(NotStorable::JustChanged));
        assert!(changed.starts_with("is not answered below the socket for now: "));
        let private = left(&Denial::NotStorable(NotStorable::Private));
        assert!(private.contains(" as long as it is answered so: Cache-Control has private"));
    }
}
