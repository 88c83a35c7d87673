//! The servers that a client accepts.

use lowroad_tls::certificates::{Certificates, Pair, Reason, Store};
use lowroad_tls::{Acceptor, Connector, Fault, Settings, Trust};

use crate::pair::{Exchange, Failed, acceptor, clock, load, rsa_key, self_signed, trust};

/// The client's fault with a server of this name; `None` if it is accepted.
fn fault(acceptor: &Acceptor, trust: &Trust, name: &str) -> Option<Fault> {
    let connector = Connector::new(trust, &[], None, 0, clock()).expect("a connector");
    match Exchange::new(acceptor, &connector, name).run() {
        Ok(()) => None,
        Err(Failed::Client(failure)) => Some(failure.fault),
        Err(Failed::Server(failure)) => panic!("{failure}"),
    }
}

/// A server's own certificate that is also an authority's, and its PEM.
fn own_authority(name: &str) -> (Pair, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new([name.to_owned()]).expect("a name");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(2090, 1, 1);
    let pem = params.self_signed(&key).expect("a certificate").pem();
    (load(&pem, &key.serialize_pem()), pem)
}

fn serving(pair: &Pair) -> Acceptor {
    let mut certificates = Certificates::new();
    certificates.add_default(pair);
    Acceptor::new(&Settings::new(Store::new(certificates), clock())).expect("settings")
}

#[test]
fn names_are_checked_unless_they_are_ignored() {
    let ignoring = trust().ignoring_names();
    for (trust, name, expected) in [
        (trust(), "localhost", None),
        (trust(), "elsewhere.example", Some(Fault::CertificateName)),
        (ignoring.clone(), "elsewhere.example", None),
        (Trust::any_certificate(), "elsewhere.example", None),
    ] {
        assert_eq!(fault(&acceptor(), &trust, name), expected, "{trust:?}");
    }
    let unknown = serving(&self_signed("other.example", &rsa_key()));
    let refused = fault(&unknown, &ignoring, "other.example");
    assert_eq!(
        refused,
        Some(Fault::CertificateIssuer),
        "only the name is ignored"
    );
    assert_eq!(
        fault(&unknown, &Trust::any_certificate(), "x.example"),
        None
    );
    let (_, other_pem) = own_authority("other.example");
    let mut more = trust();
    more.add_pem(other_pem.as_bytes()).expect("an authority");
    assert_eq!(
        fault(&acceptor(), &more, "localhost"),
        None,
        "both are known"
    );
}

#[test]
fn an_authority_s_own_certificate_is_accepted_if_that_is_wanted() {
    let (pair, pem) = own_authority("own.example");
    let acceptor = serving(&pair);
    let trust = Trust::from_pem(pem.as_bytes()).expect("an authority");
    assert_eq!(
        fault(&acceptor, &trust, "own.example"),
        Some(Fault::Certificate)
    );
    let accepting = trust.accepting_added();
    assert_eq!(fault(&acceptor, &accepting, "own.example"), None);
    let named = fault(&acceptor, &accepting, "other.example");
    assert_eq!(named, Some(Fault::CertificateName));
    assert_eq!(
        fault(&crate::pair::acceptor(), &accepting, "localhost"),
        Some(Fault::CertificateIssuer)
    );
}

#[test]
fn there_must_be_authorities() {
    assert_eq!(Trust::from_pem(b"").unwrap_err(), Reason::NoCertificate);
    let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(Trust::from_pem(broken), Err(Reason::Malformed(_))));
    assert!(!Trust::any_certificate().is_empty() && !trust().is_empty());
}
