//! Responses of origins that do not wait for the request's body.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use lowroad_testkit::TempFolder;

use crate::place::Place;

/// More than the buffers of the sockets hold.
const LEN: usize = 24 << 20;

/// An origin that answers as soon as it has a head, and reads the rest. Returns its URL.
fn early_origin() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer_early(stream));
        }
    });
    format!("http://{address}")
}

fn answer_early(mut stream: TcpStream) {
    let (mut buffer, mut head) = ([0; 65_536], Vec::new());
    while !head.windows(4).any(|it| it == b"\r\n\r\n") {
        let len = stream.read(&mut buffer).expect("a head");
        head.extend_from_slice(&buffer[..len]);
    }
    let start = format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n");
    let mut reader = stream.try_clone().expect("a descriptor");
    let body = thread::spawn(move || while reader.read(&mut buffer).is_ok_and(|len| len > 0) {});
    // The proxy may close the connection when the client's body is cut.
    _ = stream.write_all(&[start.as_bytes(), &vec![b'e'; LEN]].concat());
    _ = body.join();
}

#[test]
fn early_response_reaches_a_client_that_ends_its_upload() {
    let route = format!(
        "[[site.route]]\npattern = \"/**\"\norigin = \"{}\"\nrequest_buffering = false\n",
        early_origin()
    );
    let place = Place::after(TempFolder::new(), &[], &route);
    for framing in ["Content-Length: 1000000", "Transfer-Encoding: chunked"] {
        let mut client = place.server.connect();
        // The part of a body, which is the part of a chunk, too.
        client.send(format!(
            "POST /a HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\nfffff\r\nabc"
        ));
        assert!(client.receive_once());
        client.finish();
        let response = client.whole_response().expect("the whole response");
        assert_eq!(
            (response.status, response.body.len()),
            (200, LEN),
            "{framing}"
        );
        assert!(client.wait_for_close(), "{framing}");
    }
}
