//! Limits, Retry, tokens and stateless resets.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use lowroad_quic::{
    Admission, CloseReason, ConnectionAttempt, ConnectionKey, EcnBits, IncomingDatagram,
    ProcessWorker, QuicCipher, QuicClientCipher, QuicEndpoint, QuicEndpointConfig, QuicEvent,
    QuicLimits, QuicRoute, SteeringTable,
};
use quinn_proto::TokenStore;

use crate::network::{Application, Faults, TestEndpoint, World, config};

/// Records events, and decides in a fixed way.
struct Recorder {
    events: Vec<QuicEvent>,
    admission: fn(Rc<()>) -> Admission<Rc<()>>,
    permit: Rc<()>,
    attempts: Vec<ConnectionAttempt>,
}

impl Recorder {
    fn new(admission: fn(Rc<()>) -> Admission<Rc<()>>) -> Recorder {
        Recorder {
            events: Vec::new(),
            admission,
            permit: Rc::new(()),
            attempts: Vec::new(),
        }
    }

    fn is_open(&self) -> bool {
        self.events
            .iter()
            .any(|event| matches!(event, QuicEvent::Opened))
    }

    fn end(&self) -> Option<CloseReason> {
        match self.events.last() {
            Some(QuicEvent::Over(reason)) => Some(*reason),
            _ => None,
        }
    }
}

impl Application for Recorder {
    fn event(&mut self, _: &mut TestEndpoint, _: ConnectionKey, event: QuicEvent) {
        self.events.push(event);
    }

    fn admit(&mut self, attempt: &ConnectionAttempt) -> Admission<Rc<()>> {
        self.attempts.push(*attempt);
        (self.admission)(self.permit.clone())
    }
}

fn limited(limits: QuicLimits) -> QuicEndpointConfig {
    QuicEndpointConfig {
        limits,
        ..config(5, 1, QuicCipher::null())
    }
}

fn world(limits: QuicLimits) -> World {
    World::new(5, 1, Faults::default(), &limited(limits))
}

/// Connects once, and runs for a second.
fn attempt(world: &mut World, cipher: &QuicClientCipher, server: &mut Recorder) -> Recorder {
    let mut client = Recorder::new(Admission::Accept);
    world.connect(cipher);
    world.run_for(&mut client, server, 1_000_000);
    client
}

/// Gives the same token for each connection.
#[derive(Default)]
struct OneToken(Mutex<Option<Bytes>>);

impl TokenStore for OneToken {
    fn insert(&self, _: &str, token: Bytes) {
        self.0.lock().expect("one thread").get_or_insert(token);
    }

    fn take(&self, _: &str) -> Option<Bytes> {
        self.0.lock().expect("one thread").clone()
    }
}

#[test]
fn clients_prove_their_address_by_retry_or_token() {
    let limits = QuicLimits {
        retry_from: 0,
        ..QuicLimits::default()
    };
    let (mut world, mut server) = (world(limits), Recorder::new(Admission::Accept));
    let cipher = QuicClientCipher::null().with_tokens(Arc::new(OneToken::default()));
    // Without a token, with a token, and with the same token again.
    for retried in [1, 1, 2] {
        let client = attempt(&mut world, &cipher, &mut server);
        assert!(client.is_open());
        assert_eq!(world.ends[1].counters().retried, retried);
    }
    assert!(server.attempts.iter().all(|attempt| attempt.is_validated));
    assert_eq!(world.ends[1].counters().opened, 3);
}

#[test]
fn tokens_of_other_addresses_prove_nothing() {
    let limits = QuicLimits {
        retry_from: 0,
        ..QuicLimits::default()
    };
    let (mut world, mut server) = (world(limits), Recorder::new(Admission::Accept));
    let store = Arc::new(OneToken::default());
    store.insert("", Bytes::from_static(&[1; 60]));
    let cipher = QuicClientCipher::null().with_tokens(store);
    assert!(attempt(&mut world, &cipher, &mut server).is_open());
    assert_eq!(world.ends[1].counters().retried, 1);
}

#[test]
fn refused_clients_receive_the_reason() {
    for (admission, is_answered) in [
        ((|_| Admission::Refuse) as fn(_) -> _, true),
        // Refused, once the address is proved.
        (|_| Admission::Retry, true),
        (|_| Admission::Ignore, false),
    ] {
        let (mut world, mut server) = (world(QuicLimits::default()), Recorder::new(admission));
        let client = attempt(&mut world, &QuicClientCipher::null(), &mut server);
        // CONNECTION_REFUSED.
        let reason = is_answered.then_some(CloseReason::PeerTransport(2));
        assert_eq!(client.end(), reason);
        let counters = world.ends[1].counters();
        assert_eq!(counters.accepted, 0);
        assert!(
            counters.refused + counters.ignored + counters.retried > 0,
            "{counters:?}"
        );
        assert!(server.events.is_empty());
        assert_eq!(world.ends[1].connection_count(), 0);
    }
}

#[test]
fn limits_of_connections_and_handshakes_are_counted() {
    let mut server = Recorder::new(Admission::Accept);
    let none = QuicLimits {
        connections_max: 1,
        ..QuicLimits::default()
    };
    let mut world_of_one = world(none);
    assert!(attempt(&mut world_of_one, &QuicClientCipher::null(), &mut server).is_open());
    let refused = attempt(&mut world_of_one, &QuicClientCipher::null(), &mut server);
    assert_eq!(refused.end(), Some(CloseReason::PeerTransport(2)));
    assert_eq!(world_of_one.ends[1].counters().refused_connections, 1);

    let none = QuicLimits {
        handshakes_max: 0,
        ..QuicLimits::default()
    };
    let mut world_of_none = world(none);
    let refused = attempt(&mut world_of_none, &QuicClientCipher::null(), &mut server);
    assert_eq!(refused.end(), Some(CloseReason::PeerTransport(2)));
    assert_eq!(world_of_none.ends[1].counters().refused_handshakes, 1);

    let silent = QuicLimits {
        handshakes_max: 0,
        answers_max: 0,
        ..QuicLimits::default()
    };
    let mut silent_world = world(silent);
    let unanswered = attempt(&mut silent_world, &QuicClientCipher::null(), &mut server);
    assert_eq!(unanswered.end(), None);
    assert!(silent_world.ends[1].counters().dropped_answers > 0);
}

#[test]
fn permits_are_dropped_with_connections_and_failed_handshakes() {
    let (mut world, mut server) = (
        world(QuicLimits::default()),
        Recorder::new(Admission::Accept),
    );
    let client = attempt(&mut world, &QuicClientCipher::null(), &mut server);
    assert!(client.is_open());
    assert_eq!(Rc::strong_count(&server.permit), 2);
    world.ends[0].close(ConnectionKey(0), 0x100, "", world.now_us);
    let mut client = Recorder::new(Admission::Accept);
    world.run(&mut client, &mut server, |_, _, _| false);
    assert_eq!(server.end(), Some(CloseReason::PeerApplication(0x100)));
    assert_eq!(Rc::strong_count(&server.permit), 1);

    // A client that is not heard of again.
    world.connect(&QuicClientCipher::null());
    world.run_for(&mut client, &mut server, 15_000);
    assert_eq!(
        (world.ends[1].handshakes(), Rc::strong_count(&server.permit)),
        (1, 2)
    );
    // From now on nothing arrives.
    world.faults.loss = 1000;
    world.run(&mut client, &mut server, |_, _, _| false);
    assert_eq!(
        (world.ends[1].handshakes(), Rc::strong_count(&server.permit)),
        (0, 1)
    );
    let counters = world.ends[1].counters();
    assert_eq!((counters.failed, counters.handshake_timeouts), (1, 1));
}

#[test]
fn a_process_with_the_same_keys_resets_lost_connections() {
    let (mut world, mut server) = (
        world(QuicLimits::default()),
        Recorder::new(Admission::Accept),
    );
    attempt(&mut world, &QuicClientCipher::null(), &mut server);
    // Only the keys are the same.
    let config = QuicEndpointConfig {
        seed: [9; 32],
        ..limited(QuicLimits::default())
    };
    world.ends[1] = QuicEndpoint::server(config, Instant::now());
    let stream = world.ends[0]
        .open(ConnectionKey(0), true)
        .expect("a stream");
    let mut bytes = [Bytes::from_static(&[7; 100])];
    let written = world.ends[0].write(ConnectionKey(0), stream, &mut bytes);
    assert_eq!(written, Ok(100));
    let mut client = Recorder::new(Admission::Accept);
    world.run_for(&mut client, &mut server, 1_000_000);
    assert_eq!(client.end(), Some(CloseReason::StatelessReset));
}

#[test]
fn unknown_versions_are_negotiated_and_garbage_is_dropped() {
    let mut server: TestEndpoint =
        QuicEndpoint::server(limited(QuicLimits::default()), Instant::now());
    let mut answer = |bytes: &[u8]| {
        let from: SocketAddr = "192.0.2.1:1".parse().expect("an address");
        let datagram = IncomingDatagram {
            from,
            local_ip: None,
            ecn: EcnBits(2),
            bytes: BytesMut::from(bytes),
        };
        server.take(datagram, 1, |_| Admission::Refuse);
        let mut out = Vec::new();
        server.emit_answer(&mut out).map(|_| out)
    };
    // A reserved version, for tests of this kind (RFC 9000 §15).
    let mut unknown = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8];
    unknown.resize(1200, 1);
    let versions = answer(&unknown).expect("an answer");
    assert_eq!(versions[1..5], [0; 4]);
    assert!(versions.ends_with(&[0, 0, 0, 1]));
    // Too short to be answered, a foreign identifier, an Initial packet that can't be decrypted.
    assert_eq!(answer(&unknown[..1199]), None);
    assert_eq!(answer(&[0x40; 60]), None);
    unknown[1..5].copy_from_slice(&1_u32.to_be_bytes());
    assert_eq!(answer(&unknown), None);
    assert_eq!(server.counters().answers, 1);
}

#[test]
fn a_new_process_knows_datagrams_of_the_old_one() {
    let (mut world, mut server) = (
        world(QuicLimits::default()),
        Recorder::new(Admission::Accept),
    );
    attempt(&mut world, &QuicClientCipher::null(), &mut server);
    let (key, mut out) = (ConnectionKey(0), Vec::new());
    let stream = world.ends[0].open(key, true).expect("a stream");
    let mut bytes = [Bytes::from_static(b"x")];
    assert_eq!(world.ends[0].write(key, stream, &mut bytes), Ok(1));
    let now_us = world.now_us;
    assert!(world.ends[0].emit(key, now_us, 1, &mut out).is_some());

    let table = SteeringTable {
        key: config(5, 1, QuicCipher::null()).keys.connection_ids(),
        here: ProcessWorker {
            generation: 1,
            worker: 0,
        },
        workers: 1,
    };
    let old = ProcessWorker {
        generation: 0,
        worker: 0,
    };
    assert_eq!(table.route(&out), QuicRoute::Process(old));

    // The first packet of another client carries an identifier that the client has chosen.
    let other = world.connect(&QuicClientCipher::null());
    assert!(world.ends[0].emit(other, now_us, 1, &mut out).is_some());
    assert_eq!(table.route(&out), QuicRoute::New(0));
}
