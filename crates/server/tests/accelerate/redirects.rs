//! Redirects of an origin with an address that differs from that of the accelerator.

use lowroad_testkit::origin::TestOrigin;

use crate::front::{TestAccelerator, response};

/// An origin with storable redirects to the URL that the path contains.
fn redirecting_origin() -> TestOrigin {
    TestOrigin::with_response(|request| {
        let address = request.target.trim_start_matches('/').replace('_', "/");
        let number = request.number;
        let fields = format!(
            "Location: {address}\r\nContent-Location: {address}\r\nRefresh: 1; url={address}\r\n\
             Cache-Control: max-age=60\r\nX-Number: {number}\r\n"
        );
        response("301 Moved Permanently", &fields, "")
    })
}

/// The path at which the origin redirects to its own address.
fn path_to_redirect_to_origin(front: &TestAccelerator, path: &str) -> String {
    format!("/{}{path}", front.origin.url().replace("//", "__"))
}

#[test]
fn origin_address_in_redirects_is_made_relative() {
    let front = TestAccelerator::new(redirecting_origin());
    let answer = front.get(&path_to_redirect_to_origin(&front, "_x?y"), "");
    assert_eq!(answer.field("location"), Some("/x?y"));
    assert_eq!(answer.field("content-location"), Some("/x?y"));
    let refresh = format!("1; url={}/x?y", front.origin.url());
    assert_eq!(answer.field("refresh"), Some(&*refresh));
    let other = front.get("/http:__127.0.0.1:1_x", "");
    assert_eq!(other.field("location"), Some("http://127.0.0.1:1/x"));
}

#[test]
fn stored_redirect_does_not_depend_on_host() {
    let front = TestAccelerator::new(redirecting_origin());
    let path = path_to_redirect_to_origin(&front, "_x");
    let ask = |host: &str| {
        let mut client = front.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let answer = client.response();
        assert_eq!(answer.field("location"), Some("/x"), "{host}");
        answer.field("x-number").map(str::to_string)
    };
    let (one, other) = (ask("one.test"), ask("other.test"));
    assert_eq!((one.as_deref(), other.as_deref()), (Some("0"), Some("1")));
    assert_eq!(
        (ask("one.test"), ask("other.test")),
        (one, other),
        "both are stored"
    );
}

#[test]
fn own_redirects_false_forwards_redirects_unchanged() {
    let front = TestAccelerator::with_route_settings(redirecting_origin(), "own_redirects = false");
    let own = format!("{}/x", front.origin.url());
    let answer = front.get(&path_to_redirect_to_origin(&front, "_x"), "");
    assert_eq!(answer.field("location"), Some(&*own));
}
