//! Checks a certificate chain for likely mistakes. Only names and times are compared; signatures are verified by
//! clients.

use rustls::pki_types::CertificateDer;

use super::problem::ProblemReason;
use crate::x509::{AltName, X509Certificate, display_name};

/// All problems of a chain at `unix_s`. If a certificate after the first one cannot be parsed, the chain counts as
/// being in the wrong order.
pub(super) fn warnings(chain: &[CertificateDer<'_>], unix_s: u64) -> Vec<ProblemReason> {
    let parsed: Vec<_> = chain
        .iter()
        .map(|der| X509Certificate::parse(der))
        .collect();
    // The caller reports a first certificate that can't be parsed.
    let Some(Some(leaf)) = parsed.first() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    // A self-signed certificate is its own authority, so its CA flag is correct.
    if leaf.is_authority && !leaf.is_self_issued() {
        found.push(ProblemReason::Authority);
    }
    if !leaf.names.iter().any(is_of_host) {
        found.push(ProblemReason::NoName);
    }
    found.extend(check_time(&parsed, unix_s));
    found.extend(check_links(&parsed));
    found
}

fn is_of_host(name: &AltName) -> bool {
    matches!(name, AltName::Dns(_) | AltName::Ip(_))
}

/// Checks validity: a chain is valid while all of its certificates are.
fn check_time(chain: &[Option<X509Certificate<'_>>], unix_s: u64) -> Option<ProblemReason> {
    let now_s = i64::try_from(unix_s).unwrap_or(i64::MAX);
    let links = || chain.iter().flatten();
    let not_after_s = links().map(|link| link.not_after_s).min()?;
    let not_before_s = links().map(|link| link.not_before_s).max()?;
    if now_s > not_after_s {
        return Some(ProblemReason::Expired(not_after_s));
    }
    (now_s < not_before_s).then_some(ProblemReason::NotYetValid(not_before_s))
}

/// Checks that each certificate is issued by the next one.
///
/// The last certificate is issued by an authority that clients trust; the root itself may be omitted. A single
/// certificate with the URL of its issuer's certificate lacks the intermediate: public authorities never sign server
/// certificates with their root. Private authorities do; their certificates have no such URL, and clients that trust
/// the root need no intermediate.
fn check_links(chain: &[Option<X509Certificate<'_>>]) -> Option<ProblemReason> {
    // RFC 8446, section 4.4.2: each certificate certifies the one before it.
    for (index, pair) in chain.windows(2).enumerate() {
        let [Some(link), Some(next)] = pair else {
            return Some(ProblemReason::WrongOrder(index + 2));
        };
        if link.issuer != next.subject {
            return Some(ProblemReason::WrongOrder(index + 2));
        }
    }
    // Clients fail without the intermediate unless they have cached it.
    match chain {
        [Some(root)] if !root.is_self_issued() && root.has_issuer_url => {
            Some(ProblemReason::IncompleteChain(display_name(root.issuer)))
        }
        _ => None,
    }
}
