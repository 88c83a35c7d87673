//! The selection of the certificate by server name, key type and protocol.

use lowroad_tls::certificates::{CertificateMap, CertificateStore};
use lowroad_tls::{ClientConnector, ServerTrust, TlsAcceptor, TlsFault, TlsServerSettings};

use crate::pair::{Exchange, SideFailure, clock, rsa_key, self_signed, signed};

/// SHA-256 of the certificate that a client with the SNI `name` receives.
fn presented_fingerprint(
    store: &CertificateStore,
    name: &str,
    protocol: &str,
) -> Result<String, TlsFault> {
    let acceptor = TlsAcceptor::new(&TlsServerSettings::new(store.clone(), clock())).unwrap();
    let connector = ClientConnector::new(
        &ServerTrust::any_certificate(),
        &[protocol],
        None,
        0,
        clock(),
    )
    .unwrap();
    let mut exchange = Exchange::new(&acceptor, &connector, name);
    match exchange.run() {
        Ok(()) => {
            let der = exchange.client.server_certificate().unwrap();
            let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, der);
            let digits = digest.as_ref().iter().map(|byte| format!("{byte:02X}"));
            Ok(digits.collect())
        }
        Err(SideFailure::Server(failure)) => Err(failure.fault),
        Err(SideFailure::Client(failure)) => panic!("{failure}"),
    }
}

#[test]
fn exact_name_precedes_wildcard_and_default() {
    let (exact, wild, default) = (
        signed(&["a.example.org"]),
        signed(&["*.example.org"]),
        signed(&["other.example"]),
    );
    let mut certificates = CertificateMap::new();
    certificates.add(&wild);
    certificates.add(&exact);
    certificates.add_default(&default);
    let store = CertificateStore::new(certificates);
    let presented_fingerprint = |name| presented_fingerprint(&store, name, "http/1.1").unwrap();
    assert_eq!(presented_fingerprint("a.example.org"), exact.fingerprint());
    // Names are compared without regard to case.
    assert_eq!(presented_fingerprint("A.EXAMPLE.org"), exact.fingerprint());
    assert_eq!(presented_fingerprint("b.example.org"), wild.fingerprint());
    // A wildcard matches exactly one label.
    assert_eq!(
        presented_fingerprint("b.b.example.org"),
        default.fingerprint()
    );
    assert_eq!(presented_fingerprint("example.org"), default.fingerprint());
    // SNI contains no addresses (RFC 6066, section 3).
    assert_eq!(presented_fingerprint("192.0.2.1"), default.fingerprint());

    let certificates = store.current();
    assert!(certificates.covers("X.example.org") && !certificates.covers("example.org"));
    assert!(certificates.is_same(Some("b.example.org"), "c.example.org"));
    assert!(!certificates.is_same(Some("b.example.org"), "a.example.org"));
    // Both select the default.
    assert!(certificates.is_same(None, "unknown.example"));
    assert!(!certificates.is_same(None, "a.example.org"));
}

#[test]
fn unknown_sni_without_default_certificate_is_refused() {
    let mut certificates = CertificateMap::new();
    certificates.add(&signed(&["a.example.org"]));
    let store = CertificateStore::new(certificates);
    assert!(presented_fingerprint(&store, "a.example.org", "http/1.1").is_ok());
    assert_eq!(
        presented_fingerprint(&store, "b.example.org", "http/1.1"),
        Err(TlsFault::NoCertificate)
    );
}

#[test]
fn ecdsa_certificate_is_preferred_to_rsa() {
    let rsa = self_signed("a.example.org", &rsa_key());
    let ecdsa = self_signed("a.example.org", &rcgen::KeyPair::generate().unwrap());
    let mut certificates = CertificateMap::new();
    certificates.add(&rsa);
    let store = CertificateStore::new(certificates.clone());
    assert_eq!(
        // The client offers a protocol that the listener doesn't support.
        presented_fingerprint(&store, "a.example.org", "h"),
        Err(TlsFault::NothingInCommon)
    );
    assert_eq!(
        presented_fingerprint(&store, "a.example.org", "http/1.1").unwrap(),
        rsa.fingerprint()
    );
    certificates.add(&ecdsa);
    store.replace(certificates);
    assert_eq!(
        presented_fingerprint(&store, "a.example.org", "http/1.1").unwrap(),
        ecdsa.fingerprint()
    );
}

#[test]
fn challenge_certificate_requires_acme_tls_1() {
    let (own, challenge) = (signed(&["a.example.org"]), signed(&["a.example.org"]));
    let mut certificates = CertificateMap::new();
    certificates.add(&own);
    certificates.add_challenge("a.example.org", &challenge);
    let store = CertificateStore::new(certificates);
    assert_eq!(
        presented_fingerprint(&store, "a.example.org", "http/1.1").unwrap(),
        own.fingerprint()
    );
    assert_eq!(
        presented_fingerprint(&store, "a.example.org", "acme-tls/1").unwrap(),
        challenge.fingerprint()
    );
    assert_eq!(
        presented_fingerprint(&store, "b.example.org", "acme-tls/1"),
        Err(TlsFault::NoCertificate)
    );
}

/// The extension of RFC 8737 is critical, and known to ACME servers only.
#[test]
fn challenge_certificate_with_critical_extension_is_loaded() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(["a.example.org".to_owned()]).unwrap();
    params.custom_extensions = vec![rcgen::CustomExtension::new_acme_identifier(&[7; 32])];
    let certificate = params.self_signed(&key).unwrap().pem();
    let challenge = crate::pair::load(&certificate, &key.serialize_pem());
    assert!(challenge.dns_names().eq(["a.example.org"]));
    // The key of another certificate is still rejected.
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let texts = lowroad_tls::certificates::PemTexts {
        certificates_file: "c.pem".as_ref(),
        certificates: certificate.as_bytes(),
        key_file: "k.pem".as_ref(),
        key: other.as_bytes(),
        staple: None,
    };
    assert!(lowroad_tls::certificates::CertificatePair::load(&texts, crate::pair::NOW_S).is_err());
}

#[test]
fn connections_survive_replacement_of_certificates() {
    let store = crate::pair::store();
    let acceptor = TlsAcceptor::new(&TlsServerSettings::new(store.clone(), clock())).unwrap();
    let mut exchange = Exchange::established(&acceptor, &crate::pair::connector());
    store.replace(CertificateMap::new());
    exchange.send_from_server(b"still here");
    exchange.run().unwrap();
    assert_eq!(exchange.at_client, b"still here");
    let mut next = Exchange::new(&acceptor, &crate::pair::connector(), "localhost");
    assert!(
        matches!(next.run(), Err(SideFailure::Server(f)) if f.fault == TlsFault::NoCertificate)
    );
}
