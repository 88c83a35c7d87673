//! Windows, aborts and ends of streams and connections.

use bytes::Bytes;
use lowroad_quic::{
    CloseReason, ConnectionKey, QuicCipher, QuicClientCipher, QuicEndpointConfig, QuicEvent,
};

use crate::http_peers::{HttpClient, HttpServer};
use crate::network::{Application, Faults, TestEndpoint, World, config};
use crate::null_world;

const UPLOAD_LEN: usize = 3_000_000;

/// Sends an upload on one stream.
#[derive(Default)]
struct Uploader {
    rest: Vec<Bytes>,
    events: Vec<QuicEvent>,
}

impl Uploader {
    fn new(len: usize) -> Uploader {
        let text: Vec<u8> = (0..len).map(|index| (index / 7) as u8).collect();
        Uploader {
            rest: vec![text.into()],
            events: Vec::new(),
        }
    }

    fn rest_len(&self) -> usize {
        self.rest.iter().map(Bytes::len).sum()
    }
}

impl Application for Uploader {
    fn event(&mut self, endpoint: &mut TestEndpoint, key: ConnectionKey, event: QuicEvent) {
        if let QuicEvent::Opened = event {
            assert_eq!(endpoint.open(key, true), Some(0));
        }
        if matches!(event, QuicEvent::Opened | QuicEvent::Writable { .. }) {
            // The server may have stopped the upload.
            let is_open = endpoint.write(key, 0, &mut self.rest).is_ok();
            self.rest.retain(|part| !part.is_empty());
            if is_open && self.rest.is_empty() {
                assert_eq!(endpoint.finish(key, 0), Ok(()));
            }
        }
        self.events.push(event);
    }
}

/// Keeps or refuses what it receives.
#[derive(Default)]
struct Receiver {
    received: Vec<u8>,
    is_ended: bool,
    is_paused: bool,
    events: Vec<QuicEvent>,
    key: Option<ConnectionKey>,
}

impl Application for Receiver {
    fn event(&mut self, endpoint: &mut TestEndpoint, key: ConnectionKey, event: QuicEvent) {
        self.key = Some(key);
        match event {
            QuicEvent::Bytes {
                stream,
                bytes,
                is_end,
            } => {
                assert!(!self.is_ended);
                if self.is_paused {
                    // A part is taken.
                    let used = bytes.len().min(10);
                    self.received.extend_from_slice(&bytes[..used]);
                    endpoint.put_back(key, stream, bytes.slice(used..), is_end);
                } else {
                    self.received.extend_from_slice(&bytes);
                    self.is_ended = is_end;
                }
            }
            event => self.events.push(event),
        }
    }
}

fn is_upload(bytes: &[u8]) -> bool {
    let mut bytes = bytes.iter().enumerate();
    bytes.all(|(index, byte)| *byte == (index / 7) as u8)
}

fn world(faults: Faults) -> World {
    let mut world = null_world(3, 1, faults);
    world.connect(&QuicClientCipher::null());
    world
}

#[test]
fn bytes_that_are_not_taken_hold_the_window() {
    let mut world = world(Faults::default());
    let (mut client, mut server) = (Uploader::new(UPLOAD_LEN), Receiver::default());
    server.is_paused = true;
    world.run_for(&mut client, &mut server, 2_000_000);
    // QUIC on the client's side has taken more than the server.
    let sent_len = UPLOAD_LEN - client.rest_len();
    // The connection's window, and two parts that were read.
    assert!((100_000..140_000).contains(&sent_len), "{sent_len}");
    assert_eq!(server.received.len(), 10);

    server.is_paused = false;
    world.ends[1].resume_reading(server.key.expect("a connection"), 0);
    world.run(&mut client, &mut server, |_, _, server| server.is_ended);
    assert_eq!(server.received.len(), UPLOAD_LEN);
    assert!(is_upload(&server.received));
}

#[test]
fn uploads_arrive_in_order_with_pauses_and_faults() {
    for seed in 1..5 {
        let faults = Faults {
            loss: 20,
            reordering: 100,
            duplication: 50,
            ..Faults::default()
        };
        let mut world = null_world(seed, 1, faults);
        world.connect(&QuicClientCipher::null());
        let (mut client, mut server) = (Uploader::new(300_000), Receiver::default());
        world.run(&mut client, &mut server, |world, _, server| {
            if let Some(key) = server.key {
                // Pauses come at any time, also while bytes of an earlier one wait.
                server.is_paused = world.random() % 2 == 0;
                world.ends[1].resume_reading(key, 0);
                world.alarm_us = Some(world.now_us + 1000);
            }
            server.is_ended
        });
        assert_eq!(server.received.len(), 300_000);
        assert!(is_upload(&server.received));
    }
}

#[test]
fn window_of_fast_uploads_grows() {
    let upload_us = |window_max: u32| {
        let mut config = config(3, 1, QuicCipher::null());
        config.settings.window_max = window_max;
        let mut world = World::new(3, 1, Faults::default(), &config);
        world.connect(&QuicClientCipher::null());
        let (mut client, mut server) = (Uploader::new(UPLOAD_LEN), Receiver::default());
        world.run(&mut client, &mut server, |_, _, server| server.is_ended);
        world.now_us
    };
    // Virtual time, so that the load of the machine does not matter.
    let (first, grown) = (upload_us(128 << 10), upload_us(4 << 20));
    assert!(grown * 4 < first * 3, "{grown} {first}");
}

#[test]
fn more_requests_are_allowed_once_they_are_used() {
    let mut world = world(Faults::default());
    let (mut client, mut server) = (HttpClient::new(400), HttpServer::new(20_000));
    world.run(&mut client, &mut server, |_, client, _| client.is_done());
    assert!(
        (100..=128).contains(&client.open_max),
        "{}",
        client.open_max
    );
}

#[test]
fn the_peer_is_told_to_stop_and_of_resets() {
    let mut world = world(Faults::default());
    let (mut client, mut server) = (Uploader::new(UPLOAD_LEN), Receiver::default());
    world.run(&mut client, &mut server, |_, _, server| {
        !server.received.is_empty()
    });
    let key = server.key.expect("a connection");
    assert!(world.ends[1].stop_reading(key, 0, 0x10c).is_ok());
    assert!(world.ends[1].reset(key, 0, 0x10b).is_ok());
    // Streams that do not exist, or not in this direction.
    assert!(world.ends[1].stop_reading(key, 3, 0).is_err());
    assert!(world.ends[1].write(key, 2, &mut []).is_ok());
    assert!(
        world.ends[1]
            .write(key, 400, &mut [Bytes::from_static(b"x")])
            .is_err()
    );
    let received = server.received.len();
    world.run_for(&mut client, &mut server, 500_000);
    assert_eq!(server.received.len(), received);
    let has = |wanted: fn(&QuicEvent) -> bool| client.events.iter().any(wanted);
    assert!(has(|event| matches!(
        event,
        QuicEvent::Stopped {
            stream: 0,
            code: 0x10c
        }
    )));
    assert!(has(|event| matches!(
        event,
        QuicEvent::Reset {
            stream: 0,
            code: 0x10b
        }
    )));
}

#[test]
fn a_reset_ends_a_paused_stream() {
    let mut world = world(Faults::default());
    let (mut client, mut server) = (Uploader::new(UPLOAD_LEN), Receiver::default());
    server.is_paused = true;
    world.run_for(&mut client, &mut server, 500_000);
    // The client's stream has unsent bytes, and the server's unread ones.
    assert!(world.ends[0].reset(ConnectionKey(0), 0, 0x10c).is_ok());
    world.run_for(&mut client, &mut server, 1_000_000);
    let last = server.events.last();
    assert!(
        matches!(
            last,
            Some(QuicEvent::Reset {
                stream: 0,
                code: 0x10c
            })
        ),
        "{last:?}"
    );
}

#[test]
fn both_sides_learn_the_end_and_forget_the_connection() {
    let mut world = world(Faults::default());
    let (mut client, mut server) = (Uploader::new(10), Receiver::default());
    world.run(&mut client, &mut server, |_, _, server| server.is_ended);
    let key = server.key.expect("a connection");
    world.ends[1].close(key, 0x100, "done", world.now_us);
    // Until no timer is left.
    world.run(&mut client, &mut server, |_, _, _| false);
    let last = (client.events.last(), server.events.last());
    let (Some(QuicEvent::Over(client_end)), Some(QuicEvent::Over(server_end))) = last else {
        panic!("{last:?}");
    };
    assert_eq!(*client_end, CloseReason::PeerApplication(0x100));
    assert_eq!(*server_end, CloseReason::Local);
    for end in &mut world.ends {
        assert_eq!(
            (end.connection_count(), end.handshakes(), end.due_us()),
            (0, 0, None)
        );
        // Calls with the key have no effect.
        assert_eq!(end.next_event(key).map(|_| ()), None);
        assert!(end.finish(key, 0).is_err());
    }
}

#[test]
fn idle_connections_end_silently() {
    let mut config: QuicEndpointConfig = config(3, 1, QuicCipher::null());
    config.settings.idle_timeout_ms = 5000;
    let mut world = World::new(3, 1, Faults::default(), &config);
    world.connect(&QuicClientCipher::null());
    let (mut client, mut server) = (Uploader::new(10), Receiver::default());
    world.run(&mut client, &mut server, |_, _, _| false);
    assert!(
        (5_000_000..6_000_000).contains(&world.now_us),
        "{}",
        world.now_us
    );
    let last = server.events.last();
    assert!(
        matches!(last, Some(QuicEvent::Over(CloseReason::Timeout))),
        "{last:?}"
    );
    assert_eq!(world.ends[1].connection_count(), 0);
}
