//! TLS 1.2, with `rustls` as it comes for a client: this crate's has no way to offer less.

use std::io::{Read, Write};
use std::sync::Arc;

use lowroad_tls::{Acceptor, Fault, Server, Version};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::pair::{AUTHORITY, acceptor, settings};

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
    let name = ServerName::try_from("localhost").unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}

/// Lets both talk until neither has anything to say. What the server failed with.
pub fn run(
    server: &mut Server,
    client: &mut ClientConnection,
    plain: &mut Vec<u8>,
) -> Option<Fault> {
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
fn tls_1_2_works_both_ways() {
    let mut server = acceptor().accept().unwrap();
    let mut client = client(&[&rustls::version::TLS12]);
    let mut plain = Vec::new();
    client.writer().write_all(b"question").unwrap();
    assert_eq!(run(&mut server, &mut client, &mut plain), None);
    assert_eq!(server.version(), Some(Version::Tls12));
    assert_eq!(plain, b"question");
    let mut out = Vec::new();
    let answer = vec![b'a'; 50_000];
    server.seal(&[&answer], &mut out, 0).unwrap();
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

#[test]
fn tls_1_2_is_refused_if_1_3_is_the_oldest() {
    let mut settings = settings();
    settings.version_min = Version::Tls13;
    let acceptor = Acceptor::new(&settings).unwrap();
    let mut server = acceptor.accept().unwrap();
    let mut client = client(&[&rustls::version::TLS12]);
    let fault = run(&mut server, &mut client, &mut Vec::new());
    assert_eq!(fault, Some(Fault::NothingInCommon));
}

#[test]
fn key_updates_of_the_client_are_followed() {
    let mut server = acceptor().accept().unwrap();
    let mut client = client(&[&rustls::version::TLS13]);
    let mut plain = Vec::new();
    assert_eq!(run(&mut server, &mut client, &mut plain), None);
    for round in 0..3u8 {
        client.refresh_traffic_keys().unwrap();
        client.writer().write_all(&[b'0' + round]).unwrap();
        assert_eq!(run(&mut server, &mut client, &mut plain), None);
        // The server's answer begins with its own update.
        let mut out = Vec::new();
        server.seal(&[b"answer"], &mut out, 0).unwrap();
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
fn key_updates_without_end_are_refused() {
    let mut server = acceptor().accept().unwrap();
    let mut client = client(&[&rustls::version::TLS13]);
    assert_eq!(run(&mut server, &mut client, &mut Vec::new()), None);
    let fault = (0..1000).find_map(|_| {
        client.refresh_traffic_keys().unwrap();
        run(&mut server, &mut client, &mut Vec::new())
    });
    assert_eq!(fault, Some(Fault::Protocol));
}
