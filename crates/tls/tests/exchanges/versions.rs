//! TLS versions, cipher suites and key updates, with `rustls` itself as the client, since this crate's client cannot be
//! limited to a version.

use std::io::{Read, Write};
use std::sync::Arc;

use lowroad_tls::certificates::{CertificateMap, CertificatePair, CertificateStore, PemTexts};
use lowroad_tls::{MinimumVersion, TlsAcceptor, TlsFault, TlsServer, TlsServerSettings};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::pair::{AUTHORITY, NOW_S, acceptor, clock, settings};

pub fn client(versions: &[&'static rustls::SupportedProtocolVersion]) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(AUTHORITY.pem().as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let mut config = ClientConfig::builder_with_provider(lowroad_tls::provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.time_provider = Arc::new(crate::pair::clock());
    config.enable_secret_extraction = true;
    let name = ServerName::try_from("localhost").unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}

/// Exchanges bytes until neither side sends any. Returns the server's fault.
pub fn run(
    server: &mut TlsServer,
    client: &mut ClientConnection,
    plain: &mut Vec<u8>,
) -> Option<TlsFault> {
    loop {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut out = Vec::new();
        let failed = server.receive(&mut wire, plain, &mut out).err();
        let mut rest = &out[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            let _ = client.process_new_packets();
        }
        if let Some(failure) = failed {
            return Some(failure.fault);
        }
        if wire.is_empty() && out.is_empty() {
            return None;
        }
    }
}

#[test]
fn tls_1_2_transfers_data_in_both_directions() {
    let mut server = acceptor().accept().unwrap();
    let mut client = client(&[&rustls::version::TLS12]);
    let mut plain = Vec::new();
    client.writer().write_all(b"question").unwrap();
    assert_eq!(run(&mut server, &mut client, &mut plain), None);
    assert_eq!(server.version(), Some(MinimumVersion::Tls12));
    assert_eq!(plain, b"question");
    let mut out = Vec::new();
    let answer = vec![b'a'; 50_000];
    server.encrypt(&[&answer], &mut out, 0).unwrap();
    let mut got = Vec::new();
    let mut rest = &out[..];
    while !rest.is_empty() {
        client.read_tls(&mut rest).unwrap();
        client.process_new_packets().unwrap();
        let mut part = vec![0; 100_000];
        let len = client.reader().read(&mut part).unwrap_or(0);
        got.extend_from_slice(&part[..len]);
    }
    assert!(got == answer);
}

/// Accepts any server, but asserts that it staples this response.
#[derive(Debug)]
struct Stapled(&'static [u8]);

impl ServerCertVerifier for Stapled {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        staple: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        assert_eq!(staple, self.0);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        lowroad_tls::provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[test]
fn ocsp_response_is_stapled() {
    const STAPLE: &[u8] = &[0x30, 3, 0x0a, 1, 0];
    let (chain, key) = AUTHORITY.sign_pem(&[], NOW_S).unwrap();
    let texts = PemTexts {
        certificates_file: "c".as_ref(),
        certificates: chain.as_bytes(),
        key_file: "k".as_ref(),
        key: key.as_bytes(),
        staple: Some(("s".as_ref(), STAPLE)),
    };
    let mut certificates = CertificateMap::new();
    certificates.add(&CertificatePair::load(&texts, NOW_S).unwrap().0);
    let settings = TlsServerSettings::new(CertificateStore::new(certificates), clock());
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut server = TlsAcceptor::new(&settings).unwrap().accept().unwrap();
        let config = ClientConfig::builder_with_provider(lowroad_tls::provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Stapled(STAPLE)))
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        assert_eq!(run(&mut server, &mut client, &mut Vec::new()), None);
        assert!(server.is_established());
    }
}

#[test]
fn tls_1_2_is_refused_if_minimum_is_1_3() {
    let mut settings = settings();
    settings.version_min = MinimumVersion::Tls13;
    let acceptor = TlsAcceptor::new(&settings).unwrap();
    let mut server = acceptor.accept().unwrap();
    let mut client = client(&[&rustls::version::TLS12]);
    let fault = run(&mut server, &mut client, &mut Vec::new());
    assert_eq!(fault, Some(TlsFault::NothingInCommon));
}

#[test]
fn client_key_updates_are_followed() {
    follow_key_updates(false);
    follow_key_updates(true);
}

fn follow_key_updates(settled: bool) {
    let mut server = acceptor().accept().unwrap();
    let mut client = client(&[&rustls::version::TLS13]);
    let mut plain = Vec::new();
    assert_eq!(run(&mut server, &mut client, &mut plain), None);
    if settled {
        server.settle().unwrap();
    }
    for round in 0..3u8 {
        client.refresh_traffic_keys().unwrap();
        client.writer().write_all(&[b'0' + round]).unwrap();
        assert_eq!(run(&mut server, &mut client, &mut plain), None);
        // The server's response begins with its own key update.
        let mut out = Vec::new();
        server.encrypt(&[b"answer"], &mut out, 0).unwrap();
        let mut rest = &out[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
        let mut got = [0; 6];
        client.reader().read_exact(&mut got).unwrap();
        assert_eq!(&got, b"answer");
    }
    assert_eq!(plain, b"012");
}

#[test]
fn endless_key_updates_are_refused() {
    for settled in [false, true] {
        let mut server = acceptor().accept().unwrap();
        let mut client = client(&[&rustls::version::TLS13]);
        assert_eq!(run(&mut server, &mut client, &mut Vec::new()), None);
        if settled {
            server.settle().unwrap();
        }
        // The number of updates is limited, since each one costs the server a key derivation.
        let fault = (0..1000).find_map(|_| {
            client.refresh_traffic_keys().unwrap();
            run(&mut server, &mut client, &mut Vec::new())
        });
        assert_eq!(fault, Some(TlsFault::Protocol), "{settled}");
    }
}

/// Both ends of an established connection, for each TLS 1.3 suite.
pub fn settled_with_each_suite() -> impl Iterator<Item = (TlsServer, ClientConnection)> {
    let suites = lowroad_tls::provider().cipher_suites.clone();
    let suites = suites.into_iter().filter(|it| it.tls13().is_some());
    suites.map(|suite| {
        let mut provider = rustls::crypto::CryptoProvider::clone(&lowroad_tls::provider());
        // With a single suite, the server has no choice.
        provider.cipher_suites = vec![suite];
        let config = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Stapled(&[])))
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut server = acceptor().accept().unwrap();
        assert_eq!(run(&mut server, &mut client, &mut Vec::new()), None);
        server.settle().unwrap();
        (server, client)
    })
}

/// The plaintext that a client reads from these records; " (end)" stands for close_notify.
pub fn read(client: &mut ClientConnection, mut wire: &[u8]) -> Vec<u8> {
    let mut got = Vec::new();
    while !wire.is_empty() {
        client.read_tls(&mut wire).unwrap();
        client.process_new_packets().unwrap();
    }
    match client.reader().read_to_end(&mut got) {
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        Ok(_) => got.extend_from_slice(b" (end)"),
    }
    got
}

#[test]
fn settled_connections_support_each_cipher_suite() {
    for (mut server, mut client) in settled_with_each_suite() {
        let suite = client.negotiated_cipher_suite();
        client.writer().write_all(b"question").unwrap();
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        assert_eq!(run(&mut server, &mut client, &mut plain), None);
        assert_eq!(plain, b"question", "{suite:?}");
        server.encrypt(&[b"ans", b"wer"], &mut out, 0).unwrap();
        assert_eq!(read(&mut client, &out), b"answer", "{suite:?}");
    }
}

#[test]
fn cipher_suite_preference_is_configurable() {
    use rustls::crypto::aws_lc_rs::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256,
    };
    for (own_order, expected) in [
        (true, "TLS13_AES_128_GCM_SHA256"),
        (false, "TLS13_CHACHA20_POLY1305_SHA256"),
    ] {
        let mut settings = settings();
        settings.prefers_server_ciphers = own_order;
        let mut server = TlsAcceptor::new(&settings).unwrap().accept().unwrap();
        let mut provider = rustls::crypto::CryptoProvider::clone(&lowroad_tls::provider());
        // The preference of a client without AES instructions.
        provider.cipher_suites = vec![TLS13_CHACHA20_POLY1305_SHA256, TLS13_AES_128_GCM_SHA256];
        let config = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Stapled(&[])))
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        assert_eq!(run(&mut server, &mut client, &mut Vec::new()), None);
        assert_eq!(server.cipher(), Some(expected));
    }
}
