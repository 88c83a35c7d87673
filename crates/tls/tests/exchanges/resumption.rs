//! Session resumption with tickets: only servers with the same keys accept them.

use lowroad_tls::{ClientConnector, TicketKeys, TicketService, TlsAcceptor, TlsClock};

use crate::pair::{Exchange, NOW_S, clock, settings, tickets, trust};

fn acceptor(tickets: &TicketService) -> TlsAcceptor {
    let mut settings = settings();
    settings.tickets = Some(tickets.clone());
    TlsAcceptor::new(&settings).unwrap()
}

fn connector(clock: &TlsClock) -> ClientConnector {
    ClientConnector::new(&trust(), &["http/1.1"], None, 16, clock.clone()).unwrap()
}

/// Whether a new connection is resumed; both sides must agree.
fn is_resumed(acceptor: &TlsAcceptor, connector: &ClientConnector) -> bool {
    let exchange = Exchange::established(acceptor, connector);
    let is_resumed = exchange.server.is_resumed();
    assert_eq!(exchange.client.is_resumed(), is_resumed);
    // The server name is also known in resumed handshakes.
    assert_eq!(exchange.server.server_name(), Some("localhost"));
    is_resumed
}

#[test]
fn session_with_ticket_is_resumed() {
    let clock = clock();
    let (acceptor, connector) = (acceptor(&tickets(&clock)), connector(&clock));
    let resumed = (0..10).filter(|_| is_resumed(&acceptor, &connector));
    // The first connection has no ticket yet.
    assert_eq!(resumed.count(), 9);
}

#[test]
fn without_tickets_every_handshake_is_full() {
    let clock = clock();
    let (acceptor, connector) = (crate::pair::acceptor(), connector(&clock));
    assert_eq!(
        (0..3).filter(|_| is_resumed(&acceptor, &connector)).count(),
        0
    );
}

#[test]
fn ticket_is_accepted_for_one_key_rotation() {
    for (later_s, resumed) in [(3600, true), (3 * 3600, false)] {
        let clock = clock();
        // The client's clock does not advance; otherwise the client would discard the session first.
        let (acceptor, connector) = (acceptor(&tickets(&clock)), connector(&TlsClock::new(NOW_S)));
        assert!(!is_resumed(&acceptor, &connector));
        clock.set(NOW_S + later_s);
        assert_eq!(is_resumed(&acceptor, &connector), resumed, "{later_s}");
    }
}

#[test]
fn process_with_inherited_keys_resumes_sessions() {
    let clock = clock();
    let (before, connector) = (tickets(&clock), connector(&clock));
    assert!(!is_resumed(&acceptor(&before), &connector));
    let serialized_keys = before.keys().to_bytes();
    let keys = TicketKeys::from_bytes(&serialized_keys).unwrap();
    let after = TicketService::new(keys, clock.clone()).unwrap();
    assert!(is_resumed(&acceptor(&after), &connector));
    // A process with other keys.
    let other_keys = tickets(&clock);
    assert!(!is_resumed(&acceptor(&other_keys), &connector));
}
