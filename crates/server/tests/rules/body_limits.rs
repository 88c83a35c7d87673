//! Limits for the bodies of a site's and a route's requests.

use std::io::Write;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestClient};

use crate::place::{Place, check};

/// The status of a request with this body, with a length or in chunks of one byte.
fn status(client: &mut TestClient, path: &str, body_len: usize, is_chunked: bool) -> u16 {
    let body = "b".repeat(body_len);
    let framing = match is_chunked {
        true => "Transfer-Encoding: chunked".into(),
        false => format!("Content-Length: {body_len}"),
    };
    let content = match is_chunked {
        true => "1\r\nb\r\n".repeat(body_len) + "0\r\n\r\n",
        false => body,
    };
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{content}"
    ));
    client.response().status
}

fn place(origin: &TestOrigin) -> Place {
    let lines = format!(
        "body_len_max = 10\n\
         [[site.route]]\npattern = \"/small/**\"\norigin = \"{0}\"\nbody_len_max = 5\n\
         [[site.route]]\npattern = \"/streamed/**\"\norigin = \"{0}\"\nrequest_buffering = false\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"{0}\"\n",
        origin.url()
    );
    Place::after(TempFolder::new(), &[], &lines)
}

fn origin() -> TestOrigin {
    TestOrigin::start(|_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .is_ok()
    })
}

#[test]
fn bodies_beyond_limit_of_site_or_route_get_413() {
    let origin = origin();
    let place = place(&origin);
    for (path, len_max) in [("/a", 10), ("/small/a", 5), ("/streamed/a", 10)] {
        for is_chunked in [false, true] {
            let mut client = place.server.connect();
            let context = format!("{path}, chunked: {is_chunked}");
            assert_eq!(
                status(&mut client, path, len_max, is_chunked),
                200,
                "{context}"
            );
            // The connection is reusable after an allowed body, and closed after a longer one.
            assert_eq!(
                status(&mut client, path, len_max + 1, is_chunked),
                413,
                "{context}"
            );
            assert!(client.wait_for_close(), "{context}");
        }
    }
    assert_eq!(place.get("/a").status, 200);
}

#[test]
fn chunked_body_that_never_ends_is_refused_at_limit() {
    let origin = origin();
    let place = place(&origin);
    let mut client = place.server.connect();
    client.send(
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbbbbb\r\n6\r\nbbbbbb\r\n",
    );
    assert_eq!(client.response().status, 413);
    assert_eq!(origin.count(), 0);
}

#[test]
fn limit_above_that_of_server_is_warned_of() {
    let warnings = check("body_len_max = \"2M\"\n");
    assert!(warnings.contains("raise that one"), "{warnings}");
    assert!(!check("body_len_max = \"1M\"\n").contains("raise that one"));
}
