//! Fuzz target: HTTP/1 connections. The input is the bytes that one end receives, or the operations of both ends.
//!
//! Checks beside "no panic": an end parses the same events regardless of the reads; and the messages that one end
//! writes are parsed by the other with the same meaning.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lowroad_http::fields::FieldLines;
use lowroad_http::h1::{
    self, BodyLen, H1Client, H1ClientEvent, H1Server, H1ServerEvent, InputStep,
};
use lowroad_http::protocol::{ServerProtocol, StreamId};
use lowroad_http::{Method, RequestLimits, StatusCode};

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";

fuzz_target!(|input: &[u8]| {
    let Some((mode, input)) = input.split_first() else {
        return;
    };
    match mode % 3 {
        0 => cut_alike(input, serve),
        1 => cut_alike(input, visit),
        _ => talk(input),
    }
});

/// The parsed events as text, and the number of consumed bytes.
type Heard = (Vec<String>, usize);

fn cut_alike(input: &[u8], hear: fn(&[u8], usize) -> Heard) {
    // An incomplete head is parsed once its end has arrived; this provides the end of the last one.
    let input = &[input, b"\r\n\r\n"].concat();
    let at_once = hear(input, input.len().max(1));
    for read_len in [1, 2, 3, 7, 16] {
        assert_eq!(hear(input, read_len), at_once, "reads of {read_len}");
    }
}

/// A server that responds to each complete request.
fn serve(input: &[u8], read_len: usize) -> Heard {
    let (mut server, limits) = (H1Server::default(), RequestLimits::default());
    let (mut words, mut used, mut come) = (Vec::new(), 0, 0);
    let mut sent = Vec::new();
    loop {
        let mut place = None;
        let step = match server.next(&input[used..come], &limits, &mut place) {
            Ok(step) => step,
            // The kind of fault may depend on how many bytes had arrived.
            Err(_) => {
                words.push("refused".into());
                return (words, 0);
            }
        };
        used += step.used;
        assert!(used <= come);
        let is_idle = step.used == 0 && step.event.is_none();
        match step.event {
            Some(H1ServerEvent::Request(head)) => {
                assert_eq!(head.len, step.used);
                words.push(format!("request {:?}", head.line()));
            }
            Some(H1ServerEvent::Data(data)) => add_data(&mut words, data),
            Some(H1ServerEvent::End { trailers }) => {
                words.push(format!("end {}", trailers.count()));
                server.respond(StatusCode::OK, b"", BodyLen::Known(0), &DATE, &mut sent);
                assert!(server.end(b"", &mut sent).is_ok());
            }
            None => {}
        }
        if server.is_finished() {
            words.push("over".into());
            return (words, 0);
        }
        if is_idle {
            if come == input.len() {
                return (words, used);
            }
            come = input.len().min(come + read_len);
        }
    }
}

/// A client with a series of requests; the first byte of the input selects the method.
fn visit(input: &[u8], read_len: usize) -> Heard {
    let (mut client, limits) = (H1Client::default(), RequestLimits::default());
    let (mut words, mut used, mut come) = (Vec::new(), 0, 0);
    let method = match input.first() {
        Some(b'h') => Method::Head,
        _ => Method::Get,
    };
    let input = input.get(1..).unwrap_or_default();
    let ask = |client: &mut H1Client| {
        let asked = client.request(method, b"/", b"Host: h\r\n", BodyLen::None, &mut Vec::new());
        assert_eq!(asked, Ok(false));
    };
    ask(&mut client);
    loop {
        let step = match client.next(&input[used..come], &limits) {
            Ok(step) => step,
            Err(_) => {
                words.push("fault".into());
                return (words, 0);
            }
        };
        used += step.used;
        assert!(used <= come);
        let is_idle = step.used == 0 && step.event.is_none();
        match step.event {
            Some(H1ClientEvent::RepairableHead) => {
                let mended = h1::repair_head(&input[used..come]).expect("the head is whole");
                assert_eq!(h1::repair_head(&mended).as_ref(), Some(&mended));
                let mut client = H1Client::default();
                ask(&mut client);
                let step = client.next(&mended, &limits);
                let is_irregular =
                    |step: &InputStep<_>| matches!(step.event, Some(H1ClientEvent::RepairableHead));
                assert!(!step.is_ok_and(|step| is_irregular(&step)), "it was mended");
                words.push("irregular".into());
                return (words, 0);
            }
            Some(H1ClientEvent::RepairableTrailers) => {
                let mended = h1::repair_trailers(&input[used..come]).expect("they are whole");
                assert_eq!(h1::repair_trailers(&mended).as_ref(), Some(&mended));
                let step = client.next(&mended, &limits);
                let is_irregular = |step: &InputStep<_>| {
                    matches!(step.event, Some(H1ClientEvent::RepairableTrailers))
                };
                assert!(
                    !step.is_ok_and(|step| is_irregular(&step)),
                    "they were mended"
                );
                words.push("irregular trailers".into());
                return (words, 0);
            }
            Some(H1ClientEvent::Upgraded(_)) => panic!("no upgrade was asked for"),
            Some(H1ClientEvent::Interim(head)) => words.push(format!("interim {:?}", head.status)),
            Some(H1ClientEvent::Response(head)) => {
                words.push(format!(
                    "response {:?} {}",
                    head.status,
                    head.fields.count()
                ));
            }
            Some(H1ClientEvent::Data(data)) => add_data(&mut words, data),
            Some(H1ClientEvent::End { trailers }) => {
                words.push(format!("end {}", trailers.count()));
                if !client.is_idle() {
                    return (words, 0);
                }
                ask(&mut client);
            }
            None => {}
        }
        if is_idle {
            if come == input.len() {
                words.push(format!("ended {:?}", client.handle_eof()));
                return (words, used);
            }
            come = input.len().min(come + read_len);
        }
    }
}

/// Appends body data; adjacent pieces are merged, since their sizes depend on the reads.
fn add_data(words: &mut Vec<String>, data: &[u8]) {
    assert!(!data.is_empty());
    let text: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
    match words.last_mut() {
        Some(last) if last.starts_with("data ") => last.push_str(&text),
        _ => words.push(format!("data {text}")),
    }
}

/// Exchanges requests and responses; bytes of the input select the body's parts, whether its length is known, and the
/// size of the other end's reads.
fn talk(input: &[u8]) {
    let (mut client, mut server) = (H1Client::default(), H1Server::default());
    let limits = RequestLimits::default();
    for op in input.chunks_exact(4) {
        // The last response has closed the connection.
        if !client.is_idle() {
            return;
        }
        let [request_kind, response_kind, count, read_len] = [op[0], op[1], op[2], op[3]];
        let read_len = usize::from(read_len).max(1);
        let body = vec![b'x'; usize::from(count)];
        let mut wire = Vec::new();
        let len = body_len(request_kind, &body);
        let method = if request_kind & 4 == 0 {
            Method::Put
        } else {
            Method::Head
        };
        let has_body = client
            .request(method, b"/a", b"Host: h\r\n", len, &mut wire)
            .expect("idle");
        if has_body {
            // Parts of odd sizes, which become chunks if the length is unknown.
            for part in body.chunks(7) {
                client
                    .data(part.len() as u64, &mut wire)
                    .expect("as announced");
                wire.extend_from_slice(part);
                wire.extend_from_slice(client.data_end());
            }
            client.end(b"", &mut wire).expect("as announced");
        }
        let heard = hear_request(&mut server, &wire, read_len, &limits);
        assert_eq!(heard, if has_body { body.clone() } else { Vec::new() });
        wire.clear();
        if response_kind & 8 != 0 {
            server.close();
        }
        // An interim response may precede the final one (RFC 9110 §15.2).
        if response_kind & 16 != 0 {
            server.interim(
                StreamId(1),
                StatusCode::CONTINUE,
                FieldLines::NONE,
                &mut wire,
            );
        }
        let status = [
            StatusCode::OK,
            StatusCode::NOT_FOUND,
            StatusCode::NO_CONTENT,
            StatusCode::NOT_MODIFIED,
        ];
        let status = status[usize::from(response_kind >> 5 & 3)];
        let len = body_len(response_kind, &body);
        let is_sent = server.respond(status, b"A: b\r\n", len, &DATE, &mut wire);
        for part in body.chunks(5).filter(|_| len != BodyLen::None) {
            if server
                .data(part.len() as u64, &mut wire)
                .expect("as announced")
            {
                wire.extend_from_slice(part);
                wire.extend_from_slice(server.data_end());
            }
        }
        server.end(b"", &mut wire).expect("as announced");
        let heard = hear_response(&mut client, &wire, read_len, &limits);
        // A response to HEAD, 204 and 304 have no content (RFC 9112 §6.3).
        assert_eq!(heard, if is_sent { body } else { Vec::new() });
        // Both ends agree whether the connection persists.
        assert_eq!(client.is_idle(), !server.is_finished());
    }
}

fn body_len(kind: u8, body: &[u8]) -> BodyLen {
    match kind & 3 {
        0 => BodyLen::Unknown,
        1 => BodyLen::None,
        _ => BodyLen::Known(body.len() as u64),
    }
}

fn hear_request(
    server: &mut H1Server,
    wire: &[u8],
    read_len: usize,
    limits: &RequestLimits,
) -> Vec<u8> {
    let (mut used, mut come, mut body) = (0, 0, Vec::new());
    loop {
        let mut place = None;
        let step = server
            .next(&wire[used..come], limits, &mut place)
            .expect("a request");
        used += step.used;
        match step.event {
            Some(H1ServerEvent::Data(data)) => body.extend_from_slice(data),
            Some(H1ServerEvent::End { .. }) => {
                assert_eq!(used, wire.len());
                return body;
            }
            Some(H1ServerEvent::Request(_)) => {}
            None => {
                assert!(come < wire.len(), "no end");
                come = wire.len().min(come + read_len);
            }
        }
    }
}

fn hear_response(
    client: &mut H1Client,
    wire: &[u8],
    read_len: usize,
    limits: &RequestLimits,
) -> Vec<u8> {
    let (mut used, mut come, mut body) = (0, 0, Vec::new());
    loop {
        let step = client.next(&wire[used..come], limits).expect("a response");
        used += step.used;
        match step.event {
            Some(H1ClientEvent::Data(data)) => body.extend_from_slice(data),
            Some(H1ClientEvent::End { .. }) => {
                assert_eq!(used, wire.len());
                return body;
            }
            Some(_) => {}
            None => {
                assert!(come < wire.len(), "no end");
                come = wire.len().min(come + read_len);
            }
        }
    }
}
