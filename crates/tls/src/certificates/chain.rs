//! What is doubtful about a certificate and those that follow it. It compares names and times; whether signatures
//! are right is seen by clients.

use rustls::pki_types::CertificateDer;

use super::problem::Reason;
use crate::x509::{AltName, Certificate, display_name};

/// All doubts about a chain, at this time. What cannot be parsed behind the first is a wrong link.
pub(super) fn doubts(chain: &[CertificateDer<'_>], unix_s: u64) -> Vec<Reason> {
    let parsed: Vec<_> = chain.iter().map(|der| Certificate::parse(der)).collect();
    let Some(Some(own)) = parsed.first() else {
        return Vec::new();
    };
    let mut doubts = Vec::new();
    if own.is_authority && !own.is_self_issued() {
        doubts.push(Reason::Authority);
    }
    if !own.names.iter().any(is_of_host) {
        doubts.push(Reason::NoName);
    }
    doubts.extend(of_time(&parsed, unix_s));
    doubts.extend(of_links(&parsed));
    doubts
}

fn is_of_host(name: &AltName) -> bool {
    matches!(name, AltName::Dns(_) | AltName::Ip(_))
}

/// A chain is as old as its oldest link.
fn of_time(chain: &[Option<Certificate<'_>>], unix_s: u64) -> Option<Reason> {
    let now_s = i64::try_from(unix_s).unwrap_or(i64::MAX);
    let links = || chain.iter().flatten();
    let not_after_s = links().map(|link| link.not_after_s).min()?;
    let not_before_s = links().map(|link| link.not_before_s).max()?;
    if now_s > not_after_s {
        return Some(Reason::Expired(not_after_s));
    }
    (now_s < not_before_s).then_some(Reason::NotYetValid(not_before_s))
}

/// Each has signed the one before. The last is signed by an authority that clients have; what an authority itself
/// has signed last need not be there. A lone certificate that says where its issuer's is to be had lacks the link between:
/// public authorities never sign one with their root. Others do, and clients that trust the root need no more.
fn of_links(chain: &[Option<Certificate<'_>>]) -> Option<Reason> {
    for (place, pair) in chain.windows(2).enumerate() {
        let [Some(link), Some(next)] = pair else {
            return Some(Reason::WrongOrder(place + 2));
        };
        if link.issuer != next.subject {
            return Some(Reason::WrongOrder(place + 2));
        }
    }
    match chain {
        [Some(own)] if !own.is_self_issued() && own.names_issuer => {
            Some(Reason::IncompleteChain(display_name(own.issuer)))
        }
        _ => None,
    }
}
