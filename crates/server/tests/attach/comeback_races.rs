//! Races with reclaimed connections: servers close late or at the same moment, or send bytes without a request.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Barrier;

use lowroad_testkit::net::{LinkMangling, TestPath};
use lowroad_testkit::{TEST_TIMEOUT, TestClient, wait_until};

use crate::attached::{Attached, get, server_v4};
use crate::comeback::sockets;
use crate::handover::listener;
use crate::skipped;

/// Reads a request's head.
fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn text_of(body: &str, fields: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n{body}",
        body.len()
    )
}

/// Answers the requests of the daemon and of warming clients. Returns the connection on which `/cold` is requested, and
/// that request.
fn accept_cold_request(listener: &TcpListener) -> (TcpStream, String) {
    let (send, receive) = std::sync::mpsc::channel();
    let listener = listener.try_clone().expect("a descriptor");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let send = send.clone();
            std::thread::spawn(move || {
                while let Some(head) = read_head(&mut stream) {
                    if head.starts_with("GET /cold ") {
                        let _ = send.send((stream, head));
                        return;
                    }
                    let hot = text_of("hot", "Cache-Control: max-age=600\r\n");
                    if stream.write_all(hot.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    receive
        .recv_timeout(lowroad_testkit::TEST_TIMEOUT)
        .expect("a connection")
}

#[test]
fn late_close_by_server_does_not_affect_new_socket() {
    if skipped("late_close_by_server_does_not_affect_new_socket", &[]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let listener = listener(&path.server, 100);
    let own = listener.try_clone().expect("a descriptor");
    let (send, receive) = std::sync::mpsc::channel();
    // A thread answers the requests on each connection and keeps the connection open.
    std::thread::spawn(move || {
        for mut stream in own.incoming().flatten() {
            let send = send.clone();
            std::thread::spawn(move || {
                while let Some(head) = read_head(&mut stream) {
                    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    let fields = match target.starts_with("/hot") {
                        true => "Cache-Control: max-age=600\r\n",
                        false => "Cache-Control: no-store\r\n",
                    };
                    let _ = stream.write_all(text_of(&target, fields).as_bytes());
                }
                let _ = send.send(stream);
            });
        }
    });
    let attached = Attached::start(&path.server, 80, &[]);
    attached.warm(&path.client, server_v4(80), &get("/hot"));
    let stream = path.client.enter(|| TcpStream::connect(server_v4(80)));
    let mut client = TestClient::new(stream.expect("a connection"));
    for round in 0..5 {
        let cold = format!("/cold?{round}");
        assert_eq!(client.get(&cold, "").text(), cold);
        for _ in 0..9 {
            assert_eq!(client.get("/hot", "").text(), "/hot");
        }
        assert_eq!(attached.count("tcp_taken_back"), round + 1);
    }
    assert_eq!(client.get("/cold?5", "").text(), "/cold?5");
    // The old sockets are still open, but the second migration has ended their connection.
    eprintln!("{:?}", attached.counts());
    // The threads of the old sockets report the end. Their number depends on timing: a connection may also return to
    // the socket that it had before.
    let first = receive.recv_timeout(TEST_TIMEOUT).expect("an old end");
    wait_until("the end of all old sockets", || {
        (sockets(&path.server, &client) == [1]).then_some(())
    });
    let ends: Vec<TcpStream> = std::iter::once(first).chain(receive.try_iter()).collect();
    drop(ends);
    assert_eq!(client.get("/cold?6", "").text(), "/cold?6");
}

#[test]
fn unrequested_bytes_of_server_are_forwarded() {
    if skipped("unrequested_bytes_of_server_are_forwarded", &[]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let listener = listener(&path.server, 100);
    let attached = Attached::start(&path.server, 80, &[]);
    let connect = || {
        let stream = path.client.enter(|| TcpStream::connect(server_v4(80)));
        TestClient::new(stream.expect("a connection"))
    };
    let mut client = connect();
    client.send(get("/cold"));
    let warm = || attached.warm(&path.client, server_v4(80), &get("/hot"));
    let (mut stream, _) = std::thread::scope(|scope| {
        let cold = scope.spawn(|| accept_cold_request(&listener));
        warm();
        cold.join().expect("no panic")
    });
    // Sends a response, and another one for which there is no request.
    stream
        .write_all(text_of("first", "").as_bytes())
        .expect("sent");
    assert_eq!(client.response().text(), "first");
    let late = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(late.as_bytes()).expect("sent");
    assert_eq!(client.response().status, 408);
    for body in ["second", "third", "fourth", "fifth", "sixth"] {
        client.send(get("/hot"));
        read_head(&mut stream).expect("it stays up");
        stream
            .write_all(text_of(body, "").as_bytes())
            .expect("sent");
        assert_eq!(client.response().text(), body);
    }
    assert_eq!(attached.count("tcp_taken_back"), 0);
    stream.shutdown(Shutdown::Both).expect("an end");
    assert!(client.wait_for_close(), "a clean end");
}

#[test]
fn close_by_server_during_reclaim_is_forwarded_or_ignored() {
    let test = "close_by_server_during_reclaim_is_forwarded_or_ignored";
    if skipped(test, &[]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let listener = listener(&path.server, 100);
    let own = listener.try_clone().expect("a descriptor");
    // Collects connections on which `/last` was requested, so that the test can close them. The daemon also requests
    // `/last`.
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in own.incoming().flatten() {
            let send = send.clone();
            std::thread::spawn(move || {
                while let Some(head) = read_head(&mut stream) {
                    let fields = match head.contains(" /hot ") {
                        true => "Cache-Control: max-age=600\r\n",
                        false => "Cache-Control: no-store\r\n",
                    };
                    if head.contains(" /last ") {
                        let _ = send.send(stream.try_clone().expect("a descriptor"));
                    }
                    let _ = stream.write_all(text_of("text", fields).as_bytes());
                }
            });
        }
    });
    let attached = Attached::start(&path.server, 80, &[]);
    attached.warm(&path.client, server_v4(80), &get("/hot"));
    let (mut answered, mut closed) = (0, 0);
    for _ in 0..200 {
        let stream = path.client.enter(|| TcpStream::connect(server_v4(80)));
        let mut client = TestClient::new(stream.expect("a connection"));
        client.get("/last", "");
        for _ in 0..3 {
            client.get("/hot", "");
        }
        let port = client.stream().local_addr().expect("an address").port();
        let end: TcpStream = wait_until("its end", || {
            let end: TcpStream = receive.try_recv().ok()?;
            end.peer_addr()
                .is_ok_and(|peer| peer.port() == port)
                .then_some(end)
        });
        let together = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                let _ = end.shutdown(Shutdown::Both);
            });
            together.wait();
            client.send(get("/hot"));
        });
        match client.whole_response() {
            Some(response) => {
                assert_eq!(response.text(), "text");
                answered += 1;
                // The level has the connection, so the state of the server's socket does not matter.
                client.send(get("/hot"));
                let response = client.whole_response();
                assert_eq!(response.expect("an answer").text(), "text");
            }
            None => {
                assert_eq!(client.received, b"");
                closed += 1;
            }
        }
    }
    eprintln!(
        "{answered} answered, {closed} closed, {:?}",
        attached.counts()
    );
    assert!(attached.count("tcp_taken_back") >= answered);
}
