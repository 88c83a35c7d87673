//! A client and a server in virtual time, with loss, and HTTP/3 on top. The cipher is the null cipher, so that equal
//! seeds give equal datagrams.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use lowroad_http::StatusCode;
use lowroad_http::fields::{FieldLines, FieldName};
use lowroad_http::h1::BodyLen;
use lowroad_http::h3::frames::{H3FrameHead, kind, put_frame};
use lowroad_http::h3::qpack::{put_field, put_prefix};
use lowroad_http::h3::{
    GlitchCounters, H3Server, H3ServerEvent, H3Settings, H3Turn, StreamBytes, StreamId,
};
use lowroad_quic::null_cipher::NullCipher;
use lowroad_quic::proto::{self, ConnectionIdGenerator, Dir, TransportConfig};
use lowroad_quic::{ConnectionKey, IncomingDatagram, QuicEndpoint, QuicEvent, SeededIds};

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";
const LATENCY_US: u64 = 10_000;
const CLIENT: &str = "192.0.2.1:1000";
const SERVER: &str = "192.0.2.2:443";
const BODY_LEN: u64 = 100_000;

struct FixedTime;

impl proto::TimeSource for FixedTime {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn endpoint(seed: u64, worker: u8, server: bool, epoch: Instant) -> QuicEndpoint {
    let mut config = proto::EndpointConfig::new(Arc::new(NullCipher));
    config.rng_seed(Some([seed as u8 ^ worker; 32]));
    config.cid_generator(move || {
        Box::new(SeededIds::new(worker, seed + u64::from(worker))) as Box<dyn ConnectionIdGenerator>
    });
    let server = server.then(|| {
        let mut config = proto::ServerConfig::new(Arc::new(NullCipher), Arc::new(NullCipher));
        config.time_source(Arc::new(FixedTime));
        config.transport_config(Arc::new(TransportConfig::default()));
        Arc::new(config)
    });
    QuicEndpoint::new(config, server, epoch)
}

/// A server of HTTP/3 on a connection.
struct HttpConnection {
    server: H3Server,
    settings: H3Settings,
    counters: GlitchCounters,
    control: Vec<u8>,
    decoder: Vec<u8>,
    /// Bytes that QUIC has not taken, and whether the stream ends after them.
    unsent: BTreeMap<u64, (Vec<Bytes>, bool)>,
}

impl HttpConnection {
    fn new() -> HttpConnection {
        let settings = H3Settings::default();
        let (mut control, mut decoder) = (Vec::new(), Vec::new());
        let mut counters = GlitchCounters::default();
        let server = H3Server::new(&mut H3Turn {
            now_ms: 1,
            settings: &settings,
            control: &mut control,
            decoder: &mut decoder,
            counters: &mut counters,
        });
        HttpConnection {
            server,
            settings,
            counters,
            control,
            decoder,
            unsent: BTreeMap::new(),
        }
    }

    fn input(&mut self, stream: u64, bytes: &[u8], is_end: bool) {
        let mut used = 0;
        loop {
            let (mut text, mut head_slot) = (Vec::new(), None);
            let mut turn = H3Turn {
                now_ms: 1,
                settings: &self.settings,
                control: &mut self.control,
                decoder: &mut self.decoder,
                counters: &mut self.counters,
            };
            let input = StreamBytes {
                bytes: &bytes[used..],
                is_end,
            };
            let step = self
                .server
                .next(stream, input, &mut text, &mut head_slot, &mut turn)
                .expect("a correct client");
            used += step.used;
            match step.event {
                None if step.used == 0 => break,
                Some(H3ServerEvent::Request(head)) => {
                    let (id, mut out) = (head.stream, Vec::new());
                    let (ok, lines) = (StatusCode::OK, FieldLines::NONE);
                    let len = BodyLen::Known(BODY_LEN);
                    assert!(self.server.respond(id, ok, lines, len, &DATE, &mut out));
                    assert_eq!(self.server.whole_body(id, BODY_LEN), Ok(true));
                    self.unsent.entry(stream).or_default().0.push(out.into());
                }
                Some(H3ServerEvent::Reset { .. } | H3ServerEvent::Refused { .. }) => {
                    panic!("{:?}", step.event)
                }
                _ => {}
            }
        }
        assert_eq!(used, bytes.len());
    }

    /// Selects bodies by their priorities.
    fn send(&mut self) {
        let mut out = Vec::new();
        while let Some(piece) = self.server.send(16_384, &mut out) {
            let stream = u64::from(piece.stream.0) << 2;
            let (parts, is_end) = self.unsent.entry(stream).or_default();
            parts.push(std::mem::take(&mut out).into());
            parts.push(vec![b'x'; piece.len as usize].into());
            *is_end |= piece.is_last;
        }
    }
}

/// Writes what QUIC takes. Returns whether all was written.
fn flush(endpoint: &mut QuicEndpoint, key: ConnectionKey, http: &mut HttpConnection) {
    for (stream, (parts, is_end)) in &mut http.unsent {
        while !parts.is_empty() {
            let len: usize = parts.iter().map(Bytes::len).sum();
            let taken = endpoint.write(key, *stream, parts).expect("open");
            parts.retain(|part| !part.is_empty());
            // The rest waits for the window.
            if taken < len {
                break;
            }
        }
        if parts.is_empty() && std::mem::take(is_end) {
            assert_eq!(endpoint.finish(key, *stream), Ok(()));
        }
    }
    http.unsent
        .retain(|_, (parts, is_end)| !parts.is_empty() || *is_end);
}

/// A datagram on its way: the time of its arrival, its number, the index of its receiver, and its bytes.
type Flight = (u64, u64, usize, Vec<u8>);

/// The result of a run.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// The bytes of each response's body.
    bodies: BTreeMap<u64, u64>,
    datagrams: u64,
    lost: u64,
    /// A checksum of all datagrams with their times.
    trace: u64,
    end_us: u64,
}

/// A client asks for as many responses; each datagram is lost with a probability in thousandths.
fn run(seed: u64, requests: u64, loss: u64) -> Outcome {
    let epoch = Instant::now();
    let mut ends = [
        endpoint(seed, 1, false, epoch),
        endpoint(seed, 2, true, epoch),
    ];
    let mut config = proto::ClientConfig::new(Arc::new(NullCipher));
    config.initial_dst_cid_provider(Arc::new(|| {
        proto::ConnectionId::new(&[2, 9, 9, 9, 9, 9, 9, 9])
    }));
    let client = ends[0]
        .connect(config, address(SERVER), "h", 0)
        .expect("a connection");
    let mut http: BTreeMap<ConnectionKey, HttpConnection> = BTreeMap::new();
    let mut responses: BTreeMap<u64, (Vec<u8>, bool)> = BTreeMap::new();
    let mut flying: BinaryHeap<Reverse<Flight>> = BinaryHeap::new();
    let (mut now_us, mut random) = (0, seed.max(1));
    let mut outcome = Outcome {
        bodies: BTreeMap::new(),
        datagrams: 0,
        lost: 0,
        trace: 0,
        end_us: 0,
    };
    for _ in 0..200_000 {
        // Whatever has arrived.
        while let Some(Reverse((at_us, _, _, _))) = flying.peek()
            && *at_us <= now_us
        {
            let Some(Reverse((_, _, to, bytes))) = flying.pop() else {
                break;
            };
            let from = address(if to == 0 { SERVER } else { CLIENT });
            let datagram = IncomingDatagram {
                from,
                local_ip: None,
                ecn: None,
                bytes: BytesMut::from(&bytes[..]),
            };
            ends[to].take(datagram, now_us);
        }
        for end in &mut ends {
            end.advance(now_us);
        }
        while let Some((key, event)) = ends[0].next_event() {
            match event {
                QuicEvent::Opened => ask(&mut ends[0], key, requests),
                QuicEvent::Bytes {
                    stream,
                    bytes,
                    is_end,
                } if stream & 3 == 0 => {
                    let response = responses.entry(stream).or_default();
                    response.0.extend_from_slice(&bytes);
                    response.1 |= is_end;
                }
                QuicEvent::Reset { .. } | QuicEvent::Over => panic!("{event:?}"),
                _ => {}
            }
        }
        while let Some((key, event)) = ends[1].next_event() {
            serve(&mut ends[1], key, event, &mut http);
        }
        for (to, end) in [(1, 0), (0, 1)] {
            let mut out = Vec::new();
            while let Some(train) = ends[end].emit(10, now_us, &mut out) {
                for segment in out[..train.len].chunks(train.segment_len) {
                    outcome.datagrams += 1;
                    for byte in segment.iter().chain(&now_us.to_be_bytes()) {
                        outcome.trace =
                            (outcome.trace ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
                    }
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    if (random >> 11) % 1000 < loss {
                        outcome.lost += 1;
                        continue;
                    }
                    flying.push(Reverse((
                        now_us + LATENCY_US,
                        outcome.datagrams,
                        to,
                        segment.to_vec(),
                    )));
                }
                out.clear();
            }
        }
        if responses.len() as u64 == requests && responses.values().all(|(_, is_end)| *is_end) {
            outcome.end_us = now_us;
            break;
        }
        let timers = ends.iter_mut().filter_map(QuicEndpoint::due_us).min();
        let arrival = flying.peek().map(|Reverse((at_us, _, _, _))| *at_us);
        let next = timers
            .into_iter()
            .chain(arrival)
            .min()
            .expect("something is to come");
        now_us = next.max(now_us);
    }
    ends[0].close(client, 0x100, "", now_us);
    for (stream, (bytes, is_end)) in &responses {
        assert!(*is_end, "{stream}");
        outcome.bodies.insert(*stream, body_len(bytes));
    }
    outcome
}

/// Opens the control stream, and sends requests.
fn ask(client: &mut QuicEndpoint, key: ConnectionKey, requests: u64) {
    let control = client.open(key, Dir::Uni).expect("a stream");
    assert_eq!(
        client.write(key, control, &mut [Bytes::from_static(&[0, 4, 0])]),
        Ok(3)
    );
    for _ in 0..requests {
        // GET, https and the path / of the static table.
        let (mut section, mut frame) = (Vec::new(), Vec::new());
        put_prefix(&mut section);
        section.extend_from_slice(&[0xd1, 0xd7, 0xc1]);
        put_field(FieldName::Other(":authority"), b"h", &mut section);
        put_frame(kind::HEADERS, &section, &mut frame);
        let stream = client.open(key, Dir::Bi).expect("a stream");
        let len = frame.len();
        assert_eq!(client.write(key, stream, &mut [frame.into()]), Ok(len));
        assert_eq!(client.finish(key, stream), Ok(()));
    }
}

/// Processes an event of a connection of the server.
fn serve(
    server: &mut QuicEndpoint,
    key: ConnectionKey,
    event: QuicEvent,
    all: &mut BTreeMap<ConnectionKey, HttpConnection>,
) {
    if let QuicEvent::Opened = event {
        let mut http = HttpConnection::new();
        for bytes in [&mut http.control, &mut http.decoder] {
            let stream = server.open(key, Dir::Uni).expect("a stream");
            let bytes = Bytes::from(std::mem::take(bytes));
            http.unsent.insert(stream, (vec![bytes], false));
        }
        all.insert(key, http);
    }
    let Some(http) = all.get_mut(&key) else {
        return;
    };
    match event {
        QuicEvent::Bytes {
            stream,
            bytes,
            is_end,
        } => http.input(stream, &bytes, is_end),
        QuicEvent::Over => assert!(http.server.is_response_complete(StreamId(0))),
        _ => {}
    }
    http.send();
    flush(server, key, http);
}

fn body_len(mut bytes: &[u8]) -> u64 {
    let mut sum = 0;
    while let Some((head, len)) = H3FrameHead::decode(bytes) {
        let (payload, rest) = bytes[len..].split_at(head.len as usize);
        if head.kind == kind::DATA {
            assert!(payload.iter().all(|byte| *byte == b'x'));
            sum += head.len;
        }
        bytes = rest;
    }
    assert!(bytes.is_empty());
    sum
}

#[test]
fn responses_arrive_despite_loss() {
    for (seed, loss) in [(1, 0), (2, 10), (3, 30), (4, 100)] {
        let outcome = run(seed, 20, loss);
        assert_eq!(outcome.bodies.len(), 20);
        assert!(outcome.bodies.values().all(|len| *len == BODY_LEN));
        assert_eq!(outcome.lost > 0, loss > 0, "{outcome:?}");
    }
}

#[test]
fn equal_seeds_give_equal_datagrams() {
    assert_eq!(run(7, 5, 20), run(7, 5, 20));
    assert_ne!(run(7, 5, 20).trace, run(8, 5, 20).trace);
}
