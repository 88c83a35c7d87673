//! Handshakes of QUIC, without packets.

use lowroad_tls::quic::{HandshakeSummary, PacketKey, QuicAlert, QuicTlsSession};
use lowroad_tls::{ClientConnector, ClientVerification, TlsAcceptor, TlsClock};

use crate::clients::{ClientCa, connector as client_connector};
use crate::pair::{acceptor, connector, settings, tickets};

/// Both sessions of a connection.
struct QuicPair {
    server: QuicTlsSession,
    client: QuicTlsSession,
}

impl QuicPair {
    fn new(acceptor: &TlsAcceptor, connector: &ClientConnector) -> QuicPair {
        let client = connector.for_quic().connect("localhost", vec![1, 1, 1]);
        QuicPair {
            server: acceptor
                .for_quic()
                .accept(vec![2, 1, 2])
                .expect("a session"),
            client: client.expect("a session"),
        }
    }

    /// Exchanges messages until there are no more.
    fn run(&mut self) -> Result<(), QuicAlert> {
        for _ in 0..4 {
            transfer(&mut self.client, &mut self.server)?;
            transfer(&mut self.server, &mut self.client)?;
        }
        Ok(())
    }

    fn established(acceptor: &TlsAcceptor, connector: &ClientConnector) -> QuicPair {
        let mut pair = QuicPair::new(acceptor, connector);
        pair.run().expect("a handshake");
        pair
    }

    fn summary(&self) -> HandshakeSummary {
        let summary = self.server.summary().expect("a complete handshake");
        HandshakeSummary::clone(&summary)
    }
}

/// Passes the messages of each level on.
fn transfer(from: &mut QuicTlsSession, to: &mut QuicTlsSession) -> Result<(), QuicAlert> {
    loop {
        let mut messages = Vec::new();
        // Messages behind new keys belong to the next level, and come with the next call.
        let has_keys = from.write(&mut messages).is_some();
        if messages.is_empty() && !has_keys {
            return Ok(());
        }
        // Split anywhere.
        let (first, second) = messages.split_at(messages.len() / 3);
        to.read(first)?;
        to.read(second)?;
    }
}

#[test]
fn a_server_keeps_the_summary_only() {
    let mut pair = QuicPair::new(&acceptor(), &connector());
    assert!(pair.server.is_handshaking() && pair.client.is_handshaking());
    transfer(&mut pair.client, &mut pair.server).expect("a hello");
    assert_eq!(pair.server.peer_parameters(), Some(&[1, 1, 1][..]));
    assert_eq!(pair.server.summary(), None);
    pair.run().expect("a handshake");
    assert!(!pair.server.is_handshaking() && !pair.client.is_handshaking());
    assert_eq!(pair.client.peer_parameters(), Some(&[2, 1, 2][..]));
    // The state of the handshake is dropped.
    assert_eq!(pair.server.peer_parameters(), None);
    let summary = pair.summary();
    assert_eq!(summary.server_name.as_deref(), Some("localhost"));
    assert!(!summary.is_resumed);
    // unexpected_message: clients have no messages after the handshake.
    let alert = pair.server.read(&[24, 0, 0, 1, 0]).expect_err("an alert");
    assert_eq!(alert.code, 10);
}

#[test]
fn keys_of_each_update_agree() {
    let mut pair = QuicPair::established(&acceptor(), &connector());
    for update in 0..4 {
        let server = pair.server.next_keys().expect("keys");
        let client = pair.client.next_keys().expect("keys");
        // Keys of the first update but one are never used; those after it agree nevertheless.
        if update == 1 {
            continue;
        }
        let mut packet = b"a packet of this update".to_vec();
        let tag = server.local.encrypt_in_place(7, b"head", &mut packet);
        packet.extend_from_slice(tag.expect("sealed").as_ref());
        let opened = client.remote.decrypt_in_place(7, b"head", &mut packet);
        assert_eq!(opened.expect("opened"), b"a packet of this update");
        assert_eq!(server.local.tag_len(), 16);
        assert!(server.remote.integrity_limit() >= 1 << 36);
    }
}

#[test]
fn sessions_of_expired_client_certificates_are_not_resumed() {
    // 2027-01-02 00:00:00 UTC.
    const ENDS_S: u64 = 1_798_848_000;
    let clients = ClientCa::new("Clients");
    let clock = TlsClock::new(ENDS_S - 60);
    let mut settings = settings();
    settings.clients = ClientVerification::Require(clients.pem.clone().into());
    settings.tickets = Some(tickets(&clock));
    settings.clock = clock.clone();
    let acceptor = TlsAcceptor::new(&settings).unwrap();
    let connector = client_connector(Some(&clients.sign(365)));
    for is_resumed in [false, true] {
        let summary = QuicPair::established(&acceptor, &connector).summary();
        assert_eq!(summary.is_resumed, is_resumed);
        assert!(summary.client_certificate.is_some());
    }
    clock.set(ENDS_S + 60);
    // First with each of the client's tickets, then without a ticket.
    for _ in 0..6 {
        let failed = QuicPair::new(&acceptor, &connector).run();
        // certificate_expired.
        assert_eq!(failed.map_err(|alert| alert.code), Err(45));
    }
}
