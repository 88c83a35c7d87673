//! First-page check after attaching: reports whether the server's first page can be answered by the level, and which
//! of the servers' status pages only this machine may see. The sites' names are unknown here, so requests name the
//! address.

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

/// Default paths of status pages: Apache's two, and nginx's.
const OF_FEW: [&str; 3] = ["/server-status", "/server-info", "/nginx_status"];

/// The inputs of the check.
pub struct Look<'a> {
    /// The attached ports.
    pub ports: &'a [u16],
    /// The daemon's rules.
    pub learning: Settings,
    /// Connects to the server above.
    pub connect: Connect,
}

impl Look<'_> {
    /// Runs the check and prints its findings. Ends early when `over` is true.
    pub fn look(&self, over: &AtomicBool) {
        let mut asker = Asker::new(&self.connect, true);
        for port in self.ports {
            // `check_servers` has reported ports without a usable server.
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

    /// Checks one page. Returns the message to print, if there is one.
    fn judged(&self, asker: &mut Asker, server: SocketAddr, path: &str) -> Option<String> {
        // The fields of a browser: a compressed response may be short enough.
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
        // Fetched from this machine's address and from the probe address, whose responses must be equal.
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
