//! Tests `H2Server` and `H2Client` against those of the `h2` crate, over a pipe in memory that splits the bytes at
//! random: bodies in both directions, trailers, interim responses, resets, windows of all sizes, many concurrent
//! streams. `LOWROAD_SEED` selects a single case.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use lowroad_http::fields::FieldLines;
use lowroad_http::h1::BodyLen;
use lowroad_http::h2::{
    ConnectionTurn, ErrorCode, GlitchCounters, H2Client, H2ClientEvent, H2Server, H2ServerEvent,
    H2Settings, OutgoingRequest, StreamId,
};
use lowroad_http::protocol::ServerProtocol;
use lowroad_http::{Method, RequestLimits, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";
const CASES: u64 = 60;

/// Random numbers from a seed.
#[derive(Clone)]
struct RandomSource(u64);

impl RandomSource {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    /// A length: mostly small, sometimes large.
    fn len(&mut self) -> usize {
        let max = [1, 10, 1000, 20_000, 200_000][self.below(5)];
        self.below(max)
    }

    fn fork(&mut self) -> RandomSource {
        RandomSource(self.0 ^ self.below(1 << 30) as u64)
    }
}

fn bytes(len: usize, of: usize) -> Vec<u8> {
    (0..len)
        .map(|at| ((at * 7 + of * 13) % 251) as u8)
        .collect()
}

fn cases(run: impl AsyncFn(RandomSource)) {
    let one = std::env::var("LOWROAD_SEED")
        .ok()
        .and_then(|it| it.parse().ok());
    let seeds = one.map_or(0..CASES, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let printed = Printed(seed);
        runtime
            .expect("a runtime")
            .block_on(run(RandomSource(seed)));
        // The seed is printed only if the case panics.
        std::mem::forget(printed);
    }
}

/// Prints the seed of a failed case.
struct Printed(u64);

impl Drop for Printed {
    fn drop(&mut self) {
        eprintln!("LOWROAD_SEED={}", self.0);
    }
}

/// One end of the pipe: bytes are transferred in pieces of random lengths.
struct Pipe {
    io: DuplexStream,
    draw: RandomSource,
    input: Vec<u8>,
    out: Vec<u8>,
    counters: GlitchCounters,
    settings: H2Settings,
}

impl Pipe {
    fn new(io: DuplexStream, mut draw: RandomSource) -> Pipe {
        let settings = H2Settings {
            limits: RequestLimits {
                body_len_max: 1 << 30,
                ..RequestLimits::default()
            },
            window_len_max: [65_535, 100_000, 1 << 20][draw.below(3)],
            ..H2Settings::default()
        };
        Pipe {
            io,
            draw,
            input: Vec::new(),
            out: Vec::new(),
            counters: GlitchCounters::default(),
            settings,
        }
    }

    /// Transfers bytes in both directions concurrently, since the other end may read only as much as it has room to
    /// answer. False at the end.
    async fn transfer(&mut self) -> bool {
        let mut buffer = vec![0; 1 + self.draw.len()];
        let len = (1 + self.draw.len()).min(self.out.len());
        let (mut from, mut to) = tokio::io::split(&mut self.io);
        tokio::select! {
            read = from.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return false,
                Ok(len) => self.input.extend_from_slice(&buffer[..len]),
            },
            written = to.write(&self.out[..len]), if len > 0 => match written {
                Ok(len) => drop(self.out.drain(..len)),
                Err(_) => return false,
            },
        }
        true
    }

    /// Whether more may be written: the pending output is bounded.
    fn has_room(&self) -> bool {
        self.out.len() < 50_000
    }
}

/// The state of an exchange at `H2Server`.
#[derive(Default)]
struct Exchange {
    is_echo: bool,
    to_send: VecDeque<u8>,
}

/// Serves until the client closes: `/echo` returns the body and trailers of the request, `/len/N` returns N bytes,
/// `/hint` sends an interim response first, `/reset` resets the stream.
async fn serve(io: DuplexStream, draw: RandomSource) -> GlitchCounters {
    let mut pipe = Pipe::new(io, draw);
    let settings = pipe.settings;
    let mut server = H2Server::new(&mut ConnectionTurn {
        now_ms: 1,
        settings: &settings,
        out: &mut pipe.out,
        counters: &mut pipe.counters,
    });
    let mut exchanges: HashMap<StreamId, Exchange> = HashMap::new();
    loop {
        let mut used = 0;
        loop {
            let (mut text, mut place) = (Vec::new(), None);
            let mut turn = ConnectionTurn {
                now_ms: 1,
                settings: &settings,
                out: &mut pipe.out,
                counters: &mut pipe.counters,
            };
            let step = server.next(&pipe.input[used..], &mut text, &mut place, &mut turn);
            let step = step.expect("a client that is right");
            used += step.used;
            match step.event {
                None if step.used == 0 => break,
                None => {}
                Some(event) => handle_event(&mut server, &mut exchanges, &event, &mut pipe.out),
            }
        }
        pipe.input.drain(..used);
        send(&mut server, &mut exchanges, &mut pipe);
        let is_over = server.is_finished() && pipe.out.is_empty();
        if is_over || !pipe.transfer().await {
            return pipe.counters;
        }
    }
}

fn handle_event(
    server: &mut H2Server,
    exchanges: &mut HashMap<StreamId, Exchange>,
    event: &H2ServerEvent<'_, '_>,
    out: &mut Vec<u8>,
) {
    match event {
        H2ServerEvent::Request(head) => {
            let stream = head.stream;
            let target = String::from_utf8_lossy(head.request.raw_target()).into_owned();
            assert_eq!(head.request.authority, Some(&b"h.example"[..]));
            let cookies = head
                .request
                .fields()
                .filter(|(name, _)| *name == b"cookie")
                .count();
            // Cookie crumbs are joined (RFC 9113 §8.2.3).
            assert!(cookies <= 1);
            let mut exchange = Exchange::default();
            let len = target
                .strip_prefix("/len/")
                .and_then(|len| len.parse::<usize>().ok());
            if target == "/reset" {
                server.reset(stream, ErrorCode::CANCEL, out);
                return;
            }
            if target == "/hint" {
                server.interim(
                    stream,
                    StatusCode::EARLY_HINTS,
                    FieldLines::new(b"link: </a>\r\n"),
                    out,
                );
            }
            exchange.is_echo = target == "/echo";
            let body_len = match len {
                Some(len) => BodyLen::Known(len as u64),
                None if exchange.is_echo => BodyLen::Unknown,
                None => BodyLen::None,
            };
            let lines = FieldLines::new(b"X-Own: a\r\nServer: lowroad\r\n");
            let has_body = server.respond(stream, StatusCode::OK, lines, body_len, &DATE, out);
            if let Some(len) = len.filter(|_| has_body) {
                exchange.to_send.extend(bytes(len, stream.0 as usize));
                assert_eq!(server.body(stream, len as u64), Ok(true));
                assert_eq!(server.end(stream, FieldLines::NONE), Ok(()));
            }
            if exchange.is_echo && !head.has_body {
                assert_eq!(server.end(stream, FieldLines::NONE), Ok(()));
            }
            exchanges.insert(stream, exchange);
        }
        H2ServerEvent::Data { stream, data } => {
            let Some(exchange) = exchanges.get_mut(stream).filter(|it| it.is_echo) else {
                server.release_capacity(*stream, data.len(), out);
                return;
            };
            exchange.to_send.extend(*data);
            assert_eq!(server.body(*stream, data.len() as u64), Ok(true));
        }
        H2ServerEvent::End { stream, trailers } => {
            if exchanges.get(stream).is_some_and(|it| it.is_echo) {
                assert_eq!(server.end(*stream, trailers.clone()), Ok(()));
            }
        }
        H2ServerEvent::Reset { stream, .. } => {
            exchanges.remove(stream);
            server.release_reset_stream(*stream, out);
        }
        H2ServerEvent::Refused { refusal, .. } => panic!("{refusal:?}"),
    }
}

/// Sends the bodies round-robin; the window of an echoed body is returned only now.
fn send(server: &mut H2Server, exchanges: &mut HashMap<StreamId, Exchange>, pipe: &mut Pipe) {
    while pipe.has_room()
        && let Some(piece) = server.send(1 + pipe.draw.len(), &mut pipe.out)
    {
        let exchange = exchanges.get_mut(&piece.stream).expect("it has a body");
        pipe.out
            .extend(exchange.to_send.drain(..piece.len as usize));
        if exchange.is_echo {
            server.release_capacity(piece.stream, piece.len as usize, &mut pipe.out);
        }
        if piece.is_last {
            exchanges.remove(&piece.stream);
        }
    }
}

#[test]
fn h2_crate_client_with_our_server() {
    cases(async |mut draw| {
        let (near, far) = tokio::io::duplex(200 + draw.len());
        let serving = tokio::spawn(serve(far, draw.fork()));
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size([1000, 65_535, 1 << 20][draw.below(3)]);
        builder.header_table_size([0, 200, 4096][draw.below(3)]);
        let (asking, connection) = builder.handshake::<_, Bytes>(near).await.expect("a start");
        let connection = tokio::spawn(connection);
        let count = 1 + draw.below(30);
        let mut asked = Vec::new();
        for number in 0..count {
            let asking = asking.clone().ready().await.expect("ready");
            asked.push(tokio::spawn(send_random_request(
                asking,
                draw.fork(),
                number,
            )));
        }
        for one in asked {
            one.await.expect("an answer");
        }
        drop(asking);
        connection.await.expect("it ends").expect("without a fault");
        let counters = serving.await.expect("it ends");
        assert_eq!((counters.ended, counters.malformed), (0, 0));
    });
}

/// Sends one random request with the client of the `h2` crate.
async fn send_random_request(
    mut asking: h2::client::SendRequest<Bytes>,
    mut draw: RandomSource,
    number: usize,
) {
    let len = draw.len();
    let (method, path) = match draw.below(6) {
        0 => ("POST", "/echo".into()),
        1 => ("PUT", "/echo".into()),
        2 => ("HEAD", format!("/len/{len}")),
        3 => ("GET", ["/hint", "/none", "/reset"][draw.below(3)].into()),
        _ => ("GET", format!("/len/{len}")),
    };
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://h.example{path}"));
    for at in 0..draw.below(4) {
        request = request.header("cookie", format!("c{at}=d"));
        request = request.header(format!("x-{}", draw.below(50)), "v".repeat(draw.below(200)));
    }
    let has_body = path == "/echo";
    let request = request.body(()).expect("a request");
    let (response, mut to) = asking.send_request(request, !has_body).expect("sent");
    let sent = bytes(len, number);
    let with_trailers = draw.below(2) == 0;
    let sending = tokio::spawn({
        let sent = sent.clone();
        async move {
            if !has_body {
                return;
            }
            let mut rest = &sent[..];
            while !rest.is_empty() {
                let part = (1 + draw.len()).min(rest.len());
                to.reserve_capacity(part);
                while to.capacity() == 0 {
                    if std::future::poll_fn(|context| to.poll_capacity(context))
                        .await
                        .is_none()
                    {
                        return;
                    }
                }
                let part = part.min(to.capacity());
                let last = part == rest.len() && !with_trailers;
                to.send_data(Bytes::copy_from_slice(&rest[..part]), last)
                    .expect("sent");
                rest = &rest[part..];
            }
            if with_trailers {
                let mut trailers = HeaderMap::new();
                trailers.insert("x-sum", "12".parse().expect("a value"));
                to.send_trailers(trailers).expect("sent");
            } else if sent.is_empty() {
                to.send_data(Bytes::new(), true).expect("sent");
            }
        }
    });
    let response = match response.await {
        Ok(response) => response,
        Err(why) => {
            assert!(
                path == "/reset" && why.reason() == Some(h2::Reason::CANCEL),
                "{why}"
            );
            return;
        }
    };
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-own"]),
        (200, &"a".parse().expect("a value"))
    );
    assert_eq!(response.headers()["date"].as_bytes(), DATE);
    let stream = response.body().stream_id().as_u32() as usize;
    let mut body = response.into_body();
    let mut got = Vec::new();
    while let Some(part) = body.data().await {
        let part = part.expect("data");
        body.flow_control()
            .release_capacity(part.len())
            .expect("window");
        got.extend_from_slice(&part);
    }
    let trailers = body.trailers().await.expect("trailers");
    sending.await.expect("sent");
    match (method, path.as_str()) {
        (_, "/echo") => {
            assert_eq!(got, sent);
            assert_eq!(trailers.is_some(), with_trailers);
        }
        ("GET", path) if path.starts_with("/len/") => assert_eq!(got, bytes(len, stream)),
        _ => assert!(got.is_empty()),
    }
}

#[test]
fn our_client_with_h2_crate_server() {
    cases(async |mut draw| {
        let (near, far) = tokio::io::duplex(200 + draw.len());
        let mut builder = h2::server::Builder::new();
        builder.initial_window_size([1000, 65_535, 1 << 20][draw.below(3)]);
        builder.max_concurrent_streams(1 + draw.below(50) as u32);
        builder.header_table_size([0, 200, 4096][draw.below(3)]);
        let seed = draw.fork();
        let serving = tokio::spawn(async move {
            let mut connection = builder.handshake::<_, Bytes>(far).await.expect("a start");
            let mut draw = seed;
            while let Some(next) = connection.accept().await {
                let (request, answer) = match next {
                    Ok(next) => next,
                    // The client closed before it had received everything.
                    Err(why) if why.is_io() => return,
                    Err(why) => panic!("a client that is right: {why}"),
                };
                tokio::spawn(respond_with_h2_crate(request, answer, draw.fork()));
            }
        });
        run_client(near, draw).await;
        serving.await.expect("it ends");
    });
}

/// Responds with the server of the `h2` crate: echoes the body, or sends as many bytes as requested.
async fn respond_with_h2_crate(
    request: Request<h2::RecvStream>,
    mut answer: h2::server::SendResponse<Bytes>,
    mut draw: RandomSource,
) {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    if path == "/reset" {
        return answer.send_reset(h2::Reason::CANCEL);
    }
    let mut content = Vec::new();
    while let Some(part) = body.data().await {
        let part = part.expect("data");
        body.flow_control()
            .release_capacity(part.len())
            .expect("window");
        content.extend_from_slice(&part);
    }
    if let Some(len) = path.strip_prefix("/len/") {
        content = bytes(len.parse().expect("a number"), 1);
    }
    let mut response = Response::builder().status(200);
    for _ in 0..draw.below(5) {
        response = response.header(format!("x-{}", draw.below(50)), "v".repeat(draw.below(200)));
    }
    let response = response.body(()).expect("a response");
    let with_trailers = draw.below(2) == 0;
    let is_end = content.is_empty() && !with_trailers;
    let Ok(mut to) = answer.send_response(response, is_end) else {
        return;
    };
    if is_end {
        return;
    }
    let mut rest = &content[..];
    while !rest.is_empty() {
        let part = (1 + draw.len()).min(rest.len());
        to.reserve_capacity(part);
        while to.capacity() == 0 {
            if std::future::poll_fn(|context| to.poll_capacity(context))
                .await
                .is_none()
            {
                return;
            }
        }
        let part = part.min(to.capacity());
        let last = part == rest.len() && !with_trailers;
        if to
            .send_data(Bytes::copy_from_slice(&rest[..part]), last)
            .is_err()
        {
            return;
        }
        rest = &rest[part..];
    }
    if with_trailers {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "12".parse().expect("a value"));
        assert!(to.send_trailers(trailers).is_ok());
    }
}

/// A response that the client expects.
struct ExpectedResponse {
    to_send: VecDeque<u8>,
    wanted: Vec<u8>,
    got: Vec<u8>,
}

/// Sends many requests, and checks the responses.
async fn run_client(io: DuplexStream, mut draw: RandomSource) {
    let mut pipe = Pipe::new(io, draw.fork());
    let settings = pipe.settings;
    let mut client = H2Client::new(&mut ConnectionTurn {
        now_ms: 1,
        settings: &settings,
        out: &mut pipe.out,
        counters: &mut pipe.counters,
    });
    let mut left = 1 + draw.below(60);
    let mut asked: HashMap<StreamId, ExpectedResponse> = HashMap::new();
    while left > 0 || !asked.is_empty() {
        while left > 0 && client.is_open() && client.can_request() && draw.below(4) > 0 {
            left -= 1;
            let (stream, it) = send_request(&mut client, &mut draw, &mut pipe.out);
            asked.insert(stream, it);
        }
        while pipe.has_room()
            && let Some(piece) = client.send(1 + draw.len(), &mut pipe.out)
        {
            let it = asked.get_mut(&piece.stream).expect("it has a body");
            pipe.out.extend(it.to_send.drain(..piece.len as usize));
        }
        // Without a request only the initial settings arrive.
        if asked.is_empty() && client.is_open() && pipe.out.is_empty() {
            continue;
        }
        assert!(pipe.transfer().await, "the server stays");
        let mut used = 0;
        loop {
            let mut text = Vec::new();
            let mut turn = ConnectionTurn {
                now_ms: 1,
                settings: &settings,
                out: &mut pipe.out,
                counters: &mut pipe.counters,
            };
            let step = client.next(&pipe.input[used..], &mut text, &mut turn);
            let step = step.expect("a server that is right");
            used += step.used;
            match step.event {
                None if step.used == 0 => break,
                None => {}
                Some(event) => check_event(&mut client, &mut asked, &event, &mut pipe.out),
            }
        }
        pipe.input.drain(..used);
    }
    assert_eq!(client.streams(), 0);
    client.end_with_error(ErrorCode::NO_ERROR, "", &mut pipe.out);
    while !pipe.out.is_empty() && pipe.transfer().await {}
    assert_eq!((pipe.counters.ended, pipe.counters.malformed), (0, 0));
}

fn send_request(
    client: &mut H2Client,
    draw: &mut RandomSource,
    out: &mut Vec<u8>,
) -> (StreamId, ExpectedResponse) {
    let len = draw.len();
    let (method, path) = match draw.below(5) {
        0 => (Method::Post, "/echo".into()),
        1 => (Method::Put, "/echo".into()),
        2 if len.is_multiple_of(3) => (Method::Get, "/reset".into()),
        _ => (Method::Get, format!("/len/{len}")),
    };
    let sent = if path == "/echo" {
        bytes(len, 5)
    } else {
        Vec::new()
    };
    let wanted = match path.as_str() {
        "/echo" => sent.clone(),
        "/reset" => Vec::new(),
        _ => bytes(len, 1),
    };
    let ask = OutgoingRequest {
        method,
        is_https: false,
        authority: b"h.example",
        path: path.as_bytes(),
        protocol: None,
    };
    let body_len = match (sent.len() as u64, draw.below(2)) {
        (0, _) => BodyLen::None,
        (_, 0) => BodyLen::Unknown,
        (len, _) => BodyLen::Known(len),
    };
    let lines = format!(
        "User-Agent: test\r\nX-Long: {}\r\n",
        "v".repeat(draw.below(300))
    );
    let stream = client
        .request(&ask, FieldLines::new(lines.as_bytes()), body_len, out)
        .expect("it may be asked");
    if !sent.is_empty() {
        assert_eq!(client.body(stream, sent.len() as u64), Ok(true));
        assert_eq!(client.end(stream, FieldLines::new(b"x-end: 1\r\n")), Ok(()));
    }
    let it = ExpectedResponse {
        to_send: sent.into(),
        wanted,
        got: Vec::new(),
    };
    (stream, it)
}

fn check_event(
    client: &mut H2Client,
    asked: &mut HashMap<StreamId, ExpectedResponse>,
    event: &H2ClientEvent<'_>,
    out: &mut Vec<u8>,
) {
    let over = match event {
        H2ClientEvent::Interim(head) => panic!("{head:?}"),
        H2ClientEvent::Response(head) => {
            assert_eq!(head.status, StatusCode::OK);
            if head.has_body {
                return;
            }
            head.stream
        }
        H2ClientEvent::Data { stream, data } => {
            let it = asked.get_mut(stream).expect("it was asked for");
            it.got.extend_from_slice(data);
            client.release_capacity(*stream, data.len(), out);
            return;
        }
        H2ClientEvent::End { stream, trailers } => {
            assert!(trailers.clone().all(|line| line == (b"x-sum", b"12")));
            *stream
        }
        // The limit of the `h2` crate also counts streams that are closed on this side.
        H2ClientEvent::Reset {
            stream,
            code: ErrorCode::REFUSED_STREAM,
        } => {
            asked.remove(stream);
            return;
        }
        H2ClientEvent::Reset { stream, code } => {
            assert_eq!(*code, ErrorCode::CANCEL);
            *stream
        }
        H2ClientEvent::GoneAway { .. } => return,
    };
    let it = asked.remove(&over).expect("it was asked for");
    assert!(
        it.got == it.wanted,
        "{} of {}",
        it.got.len(),
        it.wanted.len()
    );
}
