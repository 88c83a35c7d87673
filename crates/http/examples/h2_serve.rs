//! Serves HTTP/2 over clear text with prior knowledge (`h2load`, `nghttp`, `curl --http2-prior-knowledge`): `/N`
//! returns N bytes, every other path returns the length of the request's body. For trying out clients, not for
//! production: it uses a blocking thread for each connection.
//!
//! ```text
//! cargo run --release -p lowroad-http --example h2_serve 127.0.0.1:8082
//! h2load -n 100000 -c 8 -m 32 http://127.0.0.1:8082/1024
//! ```

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use lowroad_http::fields::FieldLines;
use lowroad_http::h1::BodyLen;
use lowroad_http::h2::{
    ConnectionTurn, GlitchCounters, H2Server, H2ServerEvent, H2Settings, StreamId,
};
use lowroad_http::protocol::ServerProtocol;
use lowroad_http::{RequestLimits, StatusCode};

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:8082"))?;
    for socket in listener.incoming() {
        let socket = socket?;
        std::thread::spawn(move || serve(socket));
    }
    Ok(())
}

fn serve(mut socket: TcpStream) -> std::io::Result<()> {
    let settings = H2Settings {
        limits: RequestLimits {
            body_len_max: 1 << 40,
            ..RequestLimits::default()
        },
        ..H2Settings::default()
    };
    let (started, mut counters) = (Instant::now(), GlitchCounters::default());
    let (mut input, mut out, mut text) = (Vec::new(), Vec::new(), Vec::new());
    let (mut buffer, filler) = (vec![0; 64 * 1024], vec![b'x'; 16_384]);
    let mut lens: HashMap<StreamId, usize> = HashMap::new();
    let mut server = H2Server::new(&mut ConnectionTurn {
        now_ms: 0,
        settings: &settings,
        out: &mut out,
        counters: &mut counters,
    });
    socket.set_nodelay(true)?;
    while !server.is_finished() {
        let mut turn = ConnectionTurn {
            now_ms: started.elapsed().as_millis() as u64,
            settings: &settings,
            out: &mut out,
            counters: &mut counters,
        };
        let mut used = 0;
        loop {
            let mut head_slot = None;
            let step = server.next(&input[used..], &mut text, &mut head_slot, &mut turn);
            let Ok(step) = step.inspect_err(|fault| eprintln!("{fault:?}")) else {
                break;
            };
            used += step.used;
            match step.event {
                None if step.used == 0 => break,
                None => {}
                Some(H2ServerEvent::Request(head)) => {
                    let path = String::from_utf8_lossy(head.request.raw_target()).into_owned();
                    let len = path.trim_start_matches('/').parse().ok();
                    match (len, head.has_body) {
                        (None, true) => drop(lens.insert(head.stream, 0)),
                        (len, _) => answer(&mut server, head.stream, len.unwrap_or(0), &mut turn),
                    }
                }
                Some(H2ServerEvent::Data { stream, data }) => {
                    *lens.entry(stream).or_default() += data.len();
                    server.release_capacity(stream, data.len(), turn.out);
                }
                Some(H2ServerEvent::End { stream, .. }) => {
                    let len = lens.remove(&stream).unwrap_or(0);
                    answer(&mut server, stream, len as u64, &mut turn);
                }
                Some(H2ServerEvent::Refused {
                    stream, refusal, ..
                }) => {
                    let (status, len) = (refusal.status(), BodyLen::None);
                    server.respond(stream, status, FieldLines::NONE, len, &DATE, turn.out);
                }
                Some(H2ServerEvent::Reset { stream, .. }) => {
                    server.release_reset_stream(stream, turn.out)
                }
            }
        }
        input.drain(..used);
        while let Some(piece) = server.send(16_384, &mut out) {
            out.extend_from_slice(&filler[..piece.len as usize]);
            if out.len() > 256 * 1024 {
                socket.write_all(&out)?;
                out.clear();
            }
        }
        socket.write_all(&out)?;
        out.clear();
        match socket.read(&mut buffer)? {
            0 => break,
            len => input.extend_from_slice(&buffer[..len]),
        }
    }
    socket.write_all(&out)
}

fn answer(server: &mut H2Server, stream: StreamId, len: u64, turn: &mut ConnectionTurn<'_>) {
    let lines = FieldLines::new(b"Content-Type: text/plain\r\n");
    let body_len = BodyLen::Known(len);
    if server.respond(stream, StatusCode::OK, lines, body_len, &DATE, turn.out) {
        assert!(server.whole_body(stream, len).is_ok());
    }
}
