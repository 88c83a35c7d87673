//! Early data (0-RTT) is never accepted: it is skipped, and the handshake continues (RFC 8446, section 4.2.10). The
//! tickets that permit early data are from another server with the same name.

use std::io::Write;
use std::sync::Arc;

use lowroad_tls::{TlsAcceptor, TlsFault, TlsServer};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use crate::pair::{AUTHORITY, NOW_S, acceptor, clock, settings, tickets};

/// A client configuration that sends early data if the ticket permits it, and splits messages into records of
/// `fragment_len`.
fn client_config(provider: &Arc<CryptoProvider>, fragment_len: Option<usize>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(AUTHORITY.pem().as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_early_data = true;
    config.max_fragment_size = fragment_len;
    // The tests' time, at which certificates and tickets are valid.
    config.time_provider = Arc::new(clock());
    config.into()
}

fn client(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("localhost").unwrap();
    ClientConnection::new(config.clone(), name).unwrap()
}

/// Gives the client tickets from another server, which accept `early_len_max` bytes of early data.
fn give_tickets(config: &Arc<ClientConfig>, provider: &Arc<CryptoProvider>, early_len_max: u32) {
    let (chain, key) = AUTHORITY.sign_pem(&[], NOW_S).unwrap();
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes());
    let mut issuer = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            chain.map(Result::unwrap).collect(),
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    issuer.max_early_data_size = early_len_max;
    issuer.time_provider = Arc::new(clock());
    let mut issuer = ServerConnection::new(issuer.into()).unwrap();
    let mut client = client(config);
    loop {
        let (mut to_issuer, mut to_client) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_tls(&mut to_issuer).unwrap();
        }
        let mut rest = &to_issuer[..];
        while !rest.is_empty() {
            issuer.read_tls(&mut rest).unwrap();
            issuer.process_new_packets().unwrap();
        }
        while issuer.wants_write() {
            issuer.write_tls(&mut to_client).unwrap();
        }
        let mut rest = &to_client[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
        if to_issuer.is_empty() && to_client.is_empty() {
            return;
        }
    }
}

/// Exchanges bytes, those of the client in pieces of `step` bytes. Returns the server's fault.
fn run(
    server: &mut TlsServer,
    client: &mut ClientConnection,
    step: usize,
    plain: &mut Vec<u8>,
) -> Option<TlsFault> {
    loop {
        let (mut wire, mut out) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        for piece in wire.chunks_mut(step) {
            if let Err(failure) = server.receive(piece, plain, &mut out) {
                return Some(failure.fault);
            }
        }
        if wire.is_empty() && out.is_empty() {
            return None;
        }
        let mut rest = &out[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
    }
}

/// Early data of `len` bytes in records of `record_len`.
#[derive(Debug)]
struct EarlyData {
    len: usize,
    record_len: usize,
    step: usize,
    /// See [`client_config`].
    fragment_len: Option<usize>,
}

/// Returns the server's fault. If there is none, checks that the server has got only the request after the handshake.
fn send_early_data(
    acceptor: &TlsAcceptor,
    provider: &Arc<CryptoProvider>,
    early: &EarlyData,
) -> Option<TlsFault> {
    let config = client_config(provider, early.fragment_len);
    // More than the server skips, so that the server's limit applies.
    give_tickets(&config, provider, 64 * 1024);
    let mut client = client(&config);
    let mut writer = client.early_data().expect("the ticket permits it");
    for piece in vec![b'e'; early.len].chunks(early.record_len) {
        writer.write_all(piece).unwrap();
    }
    let (mut server, mut plain) = (acceptor.accept().unwrap(), Vec::new());
    let fault = run(&mut server, &mut client, early.step, &mut plain);
    if fault.is_none() {
        // The client learns that its early data were rejected, and can send them again.
        assert!(server.is_established() && !client.is_early_data_accepted());
        client.writer().write_all(b"question").unwrap();
        assert_eq!(run(&mut server, &mut client, early.step, &mut plain), None);
        assert_eq!(plain, b"question");
    }
    fault
}

/// Up to the amount of early data that servers permit by default (one full record), in one or several records.
fn permitted() -> impl Iterator<Item = EarlyData> {
    let lens = [
        (16_384, 16_384),
        (16_384, 4_096),
        (16_000, 160),
        (16_384, 20),
        (1, 1),
    ];
    let with_step = move |step| {
        lens.map(|(len, record_len)| EarlyData {
            len,
            record_len,
            step,
            fragment_len: None,
        })
    };
    [usize::MAX, 4_096, 1_000, 1]
        .into_iter()
        .flat_map(with_step)
}

#[test]
fn rejected_early_data_is_skipped() {
    let mut with_tickets = settings();
    with_tickets.tickets = Some(tickets(&clock()));
    for acceptor in [acceptor(), TlsAcceptor::new(&with_tickets).unwrap()] {
        for early in permitted() {
            let fault = send_early_data(&acceptor, &lowroad_tls::provider(), &early);
            assert_eq!(fault, None, "{early:?}");
        }
    }
}

/// A provider with a first key exchange group that the other server supports and this one doesn't, so that this one
/// sends a HelloRetryRequest.
fn provider_for_hello_retry() -> Arc<CryptoProvider> {
    let mut provider = CryptoProvider::clone(&lowroad_tls::provider());
    provider.kx_groups = vec![kx_group::MLKEM768, kx_group::SECP256R1];
    provider.into()
}

#[test]
fn early_data_before_second_client_hello_is_skipped() {
    for early in permitted() {
        let fault = send_early_data(&acceptor(), &provider_for_hello_retry(), &early);
        assert_eq!(fault, None, "{early:?}");
    }
}

#[test]
fn early_data_before_fragmented_messages_is_skipped() {
    for (len, step) in [(0, usize::MAX), (0, 50), (2_000, usize::MAX), (2_000, 50)] {
        let early = EarlyData {
            len,
            record_len: 2_000,
            step,
            // Shorter than the Finished message.
            fragment_len: Some(32),
        };
        let fault = send_early_data(&acceptor(), &lowroad_tls::provider(), &early);
        assert_eq!(fault, None, "{early:?}");
    }
}

#[test]
fn early_data_over_limit_fails_the_connection() {
    for step in [usize::MAX, 1_000] {
        let early = EarlyData {
            len: 40_000,
            record_len: 1_000,
            step,
            fragment_len: None,
        };
        let fault = send_early_data(&acceptor(), &lowroad_tls::provider(), &early);
        assert_eq!(fault, Some(TlsFault::Undecryptable), "step {step}");
        let fault = send_early_data(&acceptor(), &provider_for_hello_retry(), &early);
        assert_eq!(fault, Some(TlsFault::Protocol), "step {step}");
    }
}

#[test]
fn tickets_do_not_permit_early_data() {
    let mut settings = settings();
    settings.tickets = Some(tickets(&clock()));
    let acceptor = TlsAcceptor::new(&settings).unwrap();
    let config = client_config(&lowroad_tls::provider(), None);
    for is_resumed in [false, true] {
        let mut client = client(&config);
        // The second round has a ticket of the first.
        assert!(client.early_data().is_none());
        let mut server = acceptor.accept().unwrap();
        let fault = run(&mut server, &mut client, usize::MAX, &mut Vec::new());
        assert_eq!((fault, server.is_resumed()), (None, is_resumed));
    }
}
