//! WebSocket tunnels in streams (RFC 8441), forwarded to origins over HTTP/1.1.

use std::io::{Read, Write};
use std::sync::mpsc;

use lowroad_http::h2::ErrorCode;
use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TempFolder, TestServer};

use crate::peer::Peer;
use crate::place::PROGRAM;

/// A server with files, in front of an origin.
struct Front {
    _folder: TempFolder,
    server: TestServer,
    status: StatusClient,
    origin: TestOrigin,
}

impl Front {
    fn of(origin: TestOrigin) -> Front {
        Front::with(origin, "")
    }

    fn with(origin: TestOrigin, route: &str) -> Front {
        let folder = TempFolder::new();
        folder.file("site/good.txt", "good");
        let config = format!(
            "[server]\nworkers = 1\nadmin = \"admin.sock\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"site\"\n\
             [[site.route]]\npattern = \"/chat/**\"\norigin = \"{}\"\n{route}\n",
            origin.url()
        );
        let server = TestServer::run(PROGRAM, &folder, &config);
        let status = StatusClient::new(PROGRAM, folder.path().join("admin.sock"));
        Front {
            _folder: folder,
            server,
            status,
            origin,
        }
    }

    fn peer(&self) -> Peer {
        Peer::connect(self.server.address())
    }
}

/// An origin that sends hello, echoes all bytes, and sends bye at the end. The channel reports the end of each
/// connection.
fn echo() -> (TestOrigin, mpsc::Receiver<()>) {
    let (tell, told) = mpsc::channel();
    let origin = TestOrigin::start(move |_, stream| {
        let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
            Connection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nhello";
        let _ = stream.write_all(switched.as_bytes());
        let mut piece = [0; 4096];
        while let Ok(len @ 1..) = stream.read(&mut piece) {
            let _ = stream.write_all(&piece[..len]);
        }
        let _ = stream.write_all(b"bye");
        let _ = tell.send(());
        false
    });
    (origin, told)
}

#[test]
fn tunnel_forwards_bytes_and_end_of_stream() {
    let (origin, over) = echo();
    let front = Front::of(origin);
    let mut peer = front.peer();
    let chat = peer.open_tunnel("/chat/a");
    peer.read_until("hello", |it| it.got[&chat].body == b"hello");
    assert_eq!(peer.got[&chat].status, 200);
    let much = vec![b'x'; 1 << 20];
    peer.send_in_tunnel(chat, &much);
    let other = peer.get("/good.txt");
    assert_eq!(peer.receive_response(other).body, b"good");
    peer.end_tunnel(chat);
    let got = peer.receive_response(chat);
    assert_eq!((got.body.len(), got.reset), (8 + much.len(), None));
    assert!(got.body.ends_with(b"xbye"));
    over.recv().expect("the origin has heard the end");
    let request = &front.origin.requests()[0];
    assert_eq!(request.target, "/chat/a");
    assert_eq!(request.field("upgrade"), Some("websocket"));
    assert_eq!(request.field("connection"), Some("upgrade"));
    assert_eq!(request.field("sec-websocket-version"), Some("13"));
    let key = request.field("sec-websocket-key").expect("a key");
    assert!(key.len() == 24 && key.ends_with("=="), "{key}");
    assert_eq!(front.status.value("tunnels"), 1);
}

#[test]
fn reset_stream_closes_the_origin_connection() {
    let (origin, over) = echo();
    let front = Front::of(origin);
    let mut peer = front.peer();
    let chat = peer.open_tunnel("/chat/a");
    peer.read_until("hello", |it| it.got[&chat].body == b"hello");
    let mut out = Vec::new();
    peer.put_reset(chat, &mut out);
    peer.send(&out);
    over.recv().expect("the origin has heard the end");
    let other = peer.get("/good.txt");
    assert_eq!(peer.receive_response(other).body, b"good");
}

#[test]
fn close_by_origin_ends_only_its_stream() {
    let origin = TestOrigin::start(|_, stream| {
        let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nbye";
        let _ = stream.write_all(switched.as_bytes());
        false
    });
    let front = Front::of(origin);
    let mut peer = front.peer();
    let chat = peer.open_tunnel("/chat/a");
    let got = peer.receive_response(chat);
    assert_eq!((got.status, &got.body[..]), (200, &b"bye"[..]));
    let other = peer.get("/good.txt");
    assert_eq!(peer.receive_response(other).body, b"good");
}

#[test]
fn extended_connect_without_websocket_gets_status() {
    let refusing = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
    let front = Front::of(TestOrigin::with_response(move |_| refusing.to_owned()));
    let mut peer = front.peer();
    for (path, status, body) in [
        ("/good.txt", 501, &b""[..]),
        ("/chat/a", 403, b"no"),
        ("/missing", 404, b""),
    ] {
        let chat = peer.open_tunnel(path);
        let got = peer.receive_response(chat);
        assert_eq!(got.status, status, "{path}");
        assert!(body.is_empty() || got.body == body, "{path}");
    }
    let other = peer.get("/good.txt");
    assert_eq!(peer.receive_response(other).body, b"good");
}

#[test]
fn idle_tunnels_are_closed() {
    let (origin, over) = echo();
    let front = Front::with(origin, "timeout = \"1s\"");
    let mut peer = front.peer();
    let chat = peer.open_tunnel("/chat/a");
    let got = peer.receive_response(chat);
    assert_eq!(
        (got.reset, &got.body[..]),
        (Some(ErrorCode::CANCEL), &b"hello"[..])
    );
    over.recv().expect("the origin has heard the end");
    assert_eq!(front.status.value("tunnel_timeouts"), 1);
}
