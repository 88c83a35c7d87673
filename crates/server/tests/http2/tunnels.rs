//! Tunnels in streams (RFC 8441), to origins that speak WebSocket over HTTP/1.1.

use std::io::{Read, Write};
use std::sync::mpsc;

use lowroad_http::h2::ErrorCode;
use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TempFolder, TestServer};

use crate::peer::Peer;
use crate::place::PROGRAM;

/// A server with files and this origin.
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

/// An origin that sends hello, echoes, and ends with bye. The channel reports the end.
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
fn bytes_go_both_ways_and_so_do_their_ends() {
    let (origin, over) = echo();
    let front = Front::of(origin);
    let mut peer = front.peer();
    let chat = peer.connect_to("/chat/a");
    peer.until("hello", |it| it.got[&chat].body == b"hello");
    assert_eq!(peer.got[&chat].status, 200);
    let much = vec![b'x'; 1 << 20];
    peer.tell(chat, &much);
    let other = peer.get("/good.txt");
    assert_eq!(peer.whole(other).body, b"good");
    peer.tell_end(chat);
    let got = peer.whole(chat);
    assert_eq!((got.body.len(), got.reset), (8 + much.len(), None));
    assert!(got.body.ends_with(b"xbye"));
    over.recv().expect("the origin has heard the end");
    let asked = &front.origin.requests()[0];
    assert_eq!(asked.target, "/chat/a");
    assert_eq!(asked.field("upgrade"), Some("websocket"));
    assert_eq!(asked.field("connection"), Some("upgrade"));
    assert_eq!(asked.field("sec-websocket-version"), Some("13"));
    let key = asked.field("sec-websocket-key").expect("a key");
    assert!(key.len() == 24 && key.ends_with("=="), "{key}");
    assert_eq!(front.status.value("tunnels"), 1);
}

#[test]
fn a_client_that_resets_its_stream_ends_the_origins_connection() {
    let (origin, over) = echo();
    let front = Front::of(origin);
    let mut peer = front.peer();
    let chat = peer.connect_to("/chat/a");
    peer.until("hello", |it| it.got[&chat].body == b"hello");
    let mut out = Vec::new();
    peer.put_reset(chat, &mut out);
    peer.say(&out);
    over.recv().expect("the origin has heard the end");
    let other = peer.get("/good.txt");
    assert_eq!(peer.whole(other).body, b"good");
}

#[test]
fn an_origin_that_goes_ends_the_stream_and_nothing_else() {
    let origin = TestOrigin::start(|_, stream| {
        let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nbye";
        let _ = stream.write_all(switched.as_bytes());
        false
    });
    let front = Front::of(origin);
    let mut peer = front.peer();
    let chat = peer.connect_to("/chat/a");
    let got = peer.whole(chat);
    assert_eq!((got.status, &got.body[..]), (200, &b"bye"[..]));
    let other = peer.get("/good.txt");
    assert_eq!(peer.whole(other).body, b"good");
}

#[test]
fn what_speaks_no_websocket_says_so() {
    let refusing = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
    let front = Front::of(TestOrigin::with_response(move |_| refusing.to_owned()));
    let mut peer = front.peer();
    for (path, status, body) in [
        ("/good.txt", 501, &b""[..]),
        ("/chat/a", 403, b"no"),
        ("/missing", 404, b""),
    ] {
        let chat = peer.connect_to(path);
        let got = peer.whole(chat);
        assert_eq!(got.status, status, "{path}");
        assert!(body.is_empty() || got.body == body, "{path}");
    }
    let other = peer.get("/good.txt");
    assert_eq!(peer.whole(other).body, b"good");
}

#[test]
fn silent_tunnels_are_closed() {
    let (origin, over) = echo();
    let front = Front::with(origin, "timeout = \"1s\"");
    let mut peer = front.peer();
    let chat = peer.connect_to("/chat/a");
    let got = peer.whole(chat);
    assert_eq!(
        (got.reset, &got.body[..]),
        (Some(ErrorCode::CANCEL), &b"hello"[..])
    );
    over.recv().expect("the origin has heard the end");
    assert_eq!(front.status.value("tunnel_timeouts"), 1);
}
