//! The application's bytes, split at any position, and closing.

use lowroad_tls::{FULL_LEN, PeerClose, RECORD_OVERHEAD_MAX, ReceiveProgress, SMALL_LEN, TlsFault};

use crate::pair::{Exchange, acceptor, connector, record_lens};

#[test]
fn handshake_negotiates_preferred_parameters() {
    let exchange = Exchange::established(&acceptor(), &connector());
    let server = &exchange.server;
    assert_eq!(server.server_name(), Some("localhost"));
    assert_eq!(server.protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(server.key_exchange(), Some("X25519MLKEM768"));
    assert_eq!(server.version(), Some(lowroad_tls::MinimumVersion::Tls13));
    assert_eq!(server.client_certificate(), None);
    assert!(!server.is_resumed());
    assert_eq!(exchange.client.protocol(), Some(&b"http/1.1"[..]));
    assert!(exchange.client.server_certificate().is_some());
}

#[test]
fn input_split_at_any_position_is_received() {
    for step in [1, 2, 3, 5, 100] {
        let mut exchange = Exchange::new(&acceptor(), &connector(), "localhost");
        exchange.step = step;
        exchange.run().unwrap();
        // More than two full records.
        let text: Vec<u8> = (0..40_000u32).map(|number| number as u8).collect();
        exchange
            .client
            .encrypt(&[&text], &mut exchange.to_server, 0)
            .unwrap();
        exchange.send_from_server(&text);
        exchange.run().unwrap();
        assert!(
            exchange.at_server == text && exchange.at_client == text,
            "{step}"
        );
    }
}

#[test]
fn progress_is_reported_once() {
    let mut exchange = Exchange::new(&acceptor(), &connector(), "localhost");
    let (mut established, mut closed) = (0, 0);
    for round in 0..6 {
        for byte in std::mem::take(&mut exchange.to_server) {
            let progress: ReceiveProgress = exchange
                .server
                .receive(&mut [byte], &mut Vec::new(), &mut exchange.to_client)
                .unwrap();
            established += u32::from(progress.established);
            closed += u32::from(progress.closed);
        }
        let mut wire = std::mem::take(&mut exchange.to_client);
        exchange
            .client
            .receive(&mut wire, &mut Vec::new(), &mut exchange.to_server)
            .unwrap();
        if round == 3 {
            // Reported with the byte that completes the handshake, and only once.
            assert_eq!((established, closed), (1, 0));
            exchange.client.close(&mut exchange.to_server).unwrap();
        }
    }
    assert_eq!((established, closed), (1, 1));
    assert_eq!(exchange.server.peer_close(), PeerClose::Cleanly);
}

#[test]
fn first_record_is_small_and_later_records_are_full() {
    let mut exchange = Exchange::established(&acceptor(), &connector());
    let text = vec![b'x'; SMALL_LEN + 2 * FULL_LEN + 100];
    // Slices that do not align with records.
    let pieces: Vec<&[u8]> = text.chunks(777).collect();
    exchange
        .server
        .encrypt(&pieces, &mut exchange.to_client, 10)
        .unwrap();
    let lens = record_lens(&exchange.to_client);
    let record_len = |len: usize| len + 17;
    assert_eq!(
        lens,
        [
            record_len(SMALL_LEN),
            record_len(FULL_LEN),
            record_len(FULL_LEN),
            record_len(100)
        ]
    );
    assert!(exchange.to_client.len() <= text.len() + 4 * RECORD_OVERHEAD_MAX);
    exchange.run().unwrap();
    assert!(exchange.at_client == text);

    exchange
        .server
        .encrypt(&[&text[..5000]], &mut exchange.to_client, 500)
        .unwrap();
    assert_eq!(record_lens(&exchange.to_client), [record_len(5000)]);
    exchange.to_client.clear();
    exchange
        .server
        .encrypt(&[&text[..5000]], &mut exchange.to_client, 1500)
        .unwrap();
    assert_eq!(
        record_lens(&exchange.to_client),
        [record_len(SMALL_LEN), record_len(5000 - SMALL_LEN)]
    );
}

#[test]
fn empty_slices_produce_no_record() {
    let mut exchange = Exchange::established(&acceptor(), &connector());
    exchange
        .server
        .encrypt(&[], &mut exchange.to_client, 0)
        .unwrap();
    exchange
        .server
        .encrypt(&[b"", b""], &mut exchange.to_client, 0)
        .unwrap();
    assert!(exchange.to_client.is_empty());
    exchange
        .server
        .encrypt(&[b"", b"a", b"", b"b", b""], &mut exchange.to_client, 0)
        .unwrap();
    exchange.run().unwrap();
    assert_eq!(exchange.at_client, b"ab");
}

#[test]
fn records_are_appended_to_buffer() {
    let mut exchange = Exchange::established(&acceptor(), &connector());
    let mut out = b"before".to_vec();
    exchange.server.encrypt(&[b"x"], &mut out, 0).unwrap();
    assert_eq!(&out[..7], b"before\x17");
    assert_eq!(record_lens(&out[6..]), [18]);
}

#[test]
fn encrypt_before_handshake_is_complete_fails() {
    let mut exchange = Exchange::new(&acceptor(), &connector(), "localhost");
    let mut out = Vec::new();
    let failure = exchange
        .server
        .encrypt(&[b"early"], &mut out, 0)
        .unwrap_err();
    assert_eq!(failure.fault, TlsFault::NotReady);
    assert_eq!(
        exchange.server.close(&mut out).unwrap_err().fault,
        TlsFault::NotReady
    );
    assert!(out.is_empty());
}

#[test]
fn close_is_clean_only_after_close_notify() {
    let mut exchange = Exchange::new(&acceptor(), &connector(), "localhost");
    assert_eq!(exchange.server.peer_close(), PeerClose::InHandshake);
    exchange.run().unwrap();
    assert_eq!(exchange.server.peer_close(), PeerClose::Truncated);
    exchange.client.close(&mut exchange.to_server).unwrap();
    exchange.run().unwrap();
    assert_eq!(exchange.server.peer_close(), PeerClose::Cleanly);
    // The other direction remains open.
    exchange.send_from_server(b"the rest");
    exchange.server.close(&mut exchange.to_client).unwrap();
    exchange.run().unwrap();
    assert_eq!(exchange.at_client, b"the rest");
    assert_eq!(exchange.client.peer_close(), PeerClose::Cleanly);
}

#[test]
fn input_after_close_notify_is_ignored() {
    let mut exchange = Exchange::established(&acceptor(), &connector());
    exchange.client.close(&mut exchange.to_server).unwrap();
    exchange.to_server.extend_from_slice(&[0; 100]);
    exchange.run().unwrap();
    exchange.to_server.extend_from_slice(&[0xff; 100]);
    exchange.run().unwrap();
    assert!(exchange.at_server.is_empty());
}
