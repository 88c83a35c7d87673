//! Which servers a client accepts.

use lowroad_tls::certificates::{CertificateMap, CertificatePair, CertificateStore, ProblemReason};
use lowroad_tls::{ClientConnector, ServerTrust, TlsAcceptor, TlsFault, TlsServerSettings};

use crate::pair::{Exchange, SideFailure, acceptor, clock, load, rsa_key, self_signed, trust};

/// The client's fault for a server with this name; `None` if it is accepted.
fn fault(acceptor: &TlsAcceptor, trust: &ServerTrust, name: &str) -> Option<TlsFault> {
    let connector = ClientConnector::new(trust, &[], None, 0, clock()).expect("a connector");
    match Exchange::new(acceptor, &connector, name).run() {
        Ok(()) => None,
        Err(SideFailure::Client(failure)) => Some(failure.fault),
        Err(SideFailure::Server(failure)) => panic!("{failure}"),
    }
}

/// A server certificate that is also a CA certificate, and its PEM.
fn ca_as_server_certificate(name: &str) -> (CertificatePair, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new([name.to_owned()]).expect("a name");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(2090, 1, 1);
    let pem = params.self_signed(&key).expect("a certificate").pem();
    (load(&pem, &key.serialize_pem()), pem)
}

fn acceptor_for(pair: &CertificatePair) -> TlsAcceptor {
    let mut certificates = CertificateMap::new();
    certificates.add_default(pair);
    TlsAcceptor::new(&TlsServerSettings::new(
        CertificateStore::new(certificates),
        clock(),
    ))
    .expect("settings")
}

#[test]
fn server_name_is_checked_unless_ignored() {
    let ignoring = trust().ignoring_names();
    for (trust, name, expected) in [
        (trust(), "localhost", None),
        (
            trust(),
            "elsewhere.example",
            Some(TlsFault::CertificateName),
        ),
        (ignoring.clone(), "elsewhere.example", None),
        (ServerTrust::any_certificate(), "elsewhere.example", None),
    ] {
        assert_eq!(fault(&acceptor(), &trust, name), expected, "{trust:?}");
    }
    let unknown = acceptor_for(&self_signed("other.example", &rsa_key()));
    let refused = fault(&unknown, &ignoring, "other.example");
    assert_eq!(
        refused,
        Some(TlsFault::CertificateIssuer),
        "only the name is ignored"
    );
    assert_eq!(
        fault(&unknown, &ServerTrust::any_certificate(), "x.example"),
        None
    );
    let (_, other_pem) = ca_as_server_certificate("other.example");
    let mut more = trust();
    more.add_pem(other_pem.as_bytes()).expect("an authority");
    assert_eq!(
        fault(&acceptor(), &more, "localhost"),
        None,
        "both are known"
    );
}

#[test]
fn added_certificate_is_accepted_as_server_if_enabled() {
    let (pair, pem) = ca_as_server_certificate("own.example");
    let acceptor = acceptor_for(&pair);
    let trust = ServerTrust::from_pem(pem.as_bytes()).expect("an authority");
    assert_eq!(
        fault(&acceptor, &trust, "own.example"),
        Some(TlsFault::Certificate)
    );
    let accepting = trust.accepting_added();
    assert_eq!(fault(&acceptor, &accepting, "own.example"), None);
    let named = fault(&acceptor, &accepting, "other.example");
    assert_eq!(named, Some(TlsFault::CertificateName));
    assert_eq!(
        fault(&crate::pair::acceptor(), &accepting, "localhost"),
        Some(TlsFault::CertificateIssuer)
    );
}

#[test]
fn trust_without_valid_authorities_is_refused() {
    assert_eq!(
        ServerTrust::from_pem(b"").unwrap_err(),
        ProblemReason::NoCertificate
    );
    let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(
        ServerTrust::from_pem(broken),
        Err(ProblemReason::Malformed(_))
    ));
    assert!(!ServerTrust::any_certificate().is_empty() && !trust().is_empty());
}
