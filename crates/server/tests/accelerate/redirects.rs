//! Redirects of an origin that uses another address than its clients.

use lowroad_testkit::origin::TestOrigin;

use crate::front::{TestFront, response};

/// An origin that redirects to its own address, taken from the path, in storable responses.
fn redirecting() -> TestOrigin {
    TestOrigin::with_response(|asked| {
        let address = asked.target.trim_start_matches('/').replace('_', "/");
        let number = asked.number;
        let fields = format!(
            "Location: {address}\r\nContent-Location: {address}\r\nRefresh: 1; url={address}\r\n\
             Cache-Control: max-age=60\r\nX-Number: {number}\r\n"
        );
        response("301 Moved Permanently", &fields, "")
    })
}

/// The path for which the origin redirects to another of its URLs.
fn to_own(front: &TestFront, path: &str) -> String {
    format!("/{}{path}", front.origin.url().replace("//", "__"))
}

#[test]
fn an_origin_s_own_address_is_not_told() {
    let front = TestFront::new(redirecting());
    let answer = front.get(&to_own(&front, "_x?y"), "");
    assert_eq!(answer.field("location"), Some("/x?y"));
    assert_eq!(answer.field("content-location"), Some("/x?y"));
    let refresh = format!("1; url={}/x?y", front.origin.url());
    assert_eq!(answer.field("refresh"), Some(&*refresh));
    let other = front.get("/http:__127.0.0.1:1_x", "");
    assert_eq!(other.field("location"), Some("http://127.0.0.1:1/x"));
}

#[test]
fn a_stored_redirect_has_nothing_of_a_client_s_host() {
    let front = TestFront::new(redirecting());
    let path = to_own(&front, "_x");
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
fn an_operator_can_have_them_as_they_are() {
    let front = TestFront::routing(redirecting(), "own_redirects = false");
    let own = format!("{}/x", front.origin.url());
    let answer = front.get(&to_own(&front, "_x"), "");
    assert_eq!(answer.field("location"), Some(&*own));
}
