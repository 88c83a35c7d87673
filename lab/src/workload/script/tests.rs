//! Tests of scripts: the parser, and the requests of users.

use super::*;

const SHOP: &str = r#"
[[step]]
path = "/login"
take = { token = 'name="csrf" value="([^"]*)"', next = 'href="([^"]+)"' }
think = "1s-3s"

[[step]]
path = "/login"
form = { user = "a b", token = "{token}" }
fields = { X-Token = "<{token}>" }
status = 302

[[step]]
path = "{next}"
"#;

fn script(text: &str) -> Result<ScriptWorkload, String> {
    ScriptWorkload::parse(text, "shop", WorkloadVersion::Http11, ScriptConnection::All)
}

fn sent(user: &mut dyn ClientSession) -> String {
    let mut out = Vec::new();
    user.request(false, &mut out);
    String::from_utf8(out).expect("text")
}

fn answer(user: &mut dyn ClientSession, status: u16, text: &str) {
    user.handle_response(&ReceivedResponse {
        status,
        set_cookie: None,
        text: Some(text.as_bytes()),
    });
}

#[test]
fn values_and_cookies_go_from_step_to_step() {
    let script = script(SHOP).expect("a script");
    assert_eq!(script.classes()[1], "2 POST /login");
    let mut user = script.session(0, 1);
    user.open();
    for round in 0..2 {
        let first = sent(&mut *user);
        assert_eq!(
            first, "GET /login HTTP/1.1\r\nHost: shop\r\n\r\n",
            "{round}"
        );
        let page = "HTTP/1.1 200 OK\r\nset-cookie: s=1; Path=/\r\nset-cookie: v=\u{1}\r\nSet-Cookie: t=2\r\n\r\n\
                    Set-Cookie: u=3\r\n<input name=\"csrf\" value=\"x&amp;y\"> <a href=\"http://shop/a b?q#f\">";
        answer(&mut *user, 200, page);
        assert!(!user.is_incomplete());
        assert!((1_000_000_000..=3_000_000_000).contains(&user.pause_ns()));
        let second = sent(&mut *user);
        assert!(second.starts_with("POST /login HTTP/1.1\r\n"), "{second}");
        assert!(second.contains("\r\nX-Token: <x&y>\r\n"), "{second}");
        assert!(second.contains("\r\nCookie: s=1; t=2\r\n"), "{second}");
        assert!(second.contains("\r\nContent-Length: 20\r\n"), "{second}");
        assert!(second.ends_with("\r\n\r\ntoken=x%26y&user=a+b"), "{second}");
        answer(&mut *user, 302, "HTTP/1.1 302 Found\r\n\r\n");
        assert_eq!(user.pause_ns(), 0);
        assert!(sent(&mut *user).starts_with("GET /a%20b?q HTTP/1.1\r\n"));
        answer(&mut *user, 200, "");
    }
}

#[test]
fn failed_step_restarts_with_a_new_user() {
    let script = script(SHOP).expect("a script");
    let good = "HTTP/1.1 200 OK\r\nSet-Cookie: s=1\r\n\r\nname=\"csrf\" value=\"x\" href=\"/\"";
    let mut user = script.session(0, 1);
    let begins = |user: &mut dyn ClientSession| {
        let first = sent(user);
        first.starts_with("GET /login") && !first.contains("Cookie")
    };
    user.open();
    sent(&mut *user);
    answer(&mut *user, 200, "nothing");
    assert!(user.is_incomplete() && begins(&mut *user));
    answer(&mut *user, 200, "name=\"csrf\" value=\"a\nb\" href=\"/\"");
    assert!(
        user.is_incomplete() && begins(&mut *user),
        "that can't be sent"
    );
    answer(&mut *user, 200, good);
    sent(&mut *user);
    answer(&mut *user, 200, "unexpected status");
    assert!(!user.is_incomplete() && begins(&mut *user));
    answer(&mut *user, 200, good);
    sent(&mut *user);
    // The connection ends before the response.
    user.open();
    assert!(begins(&mut *user));
    answer(&mut *user, 200, good);
    sent(&mut *user);
    user.handle_failure();
    assert!(user.pause_ns() == 0 && begins(&mut *user));
    answer(&mut *user, 200, good);
    // The connection ends after one request.
    user.open();
    assert!(sent(&mut *user).starts_with("POST"));
}

#[test]
fn script_errors_name_step_and_problem() {
    for (text, part) in [
        ("", "1 to 100 [[step]]"),
        ("[[step]]", "missing field `path`"),
        (
            "[[step]]\npath = 'a'",
            "step 1: \"a\": a path begins with /",
        ),
        ("[[step]]\npath = '/{x}'", "no earlier step takes \"x\""),
        ("[[step]]\npath = '/{x'", "brace twice"),
        ("[[step]]\npath = '/'\nverb = 'GET'", "unknown field `verb`"),
        ("[[step]]\npath = '/'\ntake = { a = '(' }", "take.a: regex"),
        (
            "[[step]]\npath = '/'\nthink = '3s-1s'",
            "ends before it begins",
        ),
        (
            "[[step]]\npath = '/'\nthink = 'long'",
            "think: give a number",
        ),
        ("[[step]]\npath = '/'\nmethod = 'G T'", "is not a method"),
        (
            "[[step]]\npath = '/'\nfields = { Host = 'x' }",
            "Host is set by the lab",
        ),
        (
            "[[step]]\npath = '/'\nfields = { 'a b' = 'x' }",
            "can't be a field",
        ),
        (
            "[[step]]\npath = '/'\nfields = { Expect = '100-continue' }",
            "bodies are sent at once",
        ),
        (
            "[[step]]\npath = '/'\nmethod = 'CONNECT'",
            "is not a method",
        ),
        ("[[step]]\npath = '/'\nbody = 'a'\nform = {}", "not both"),
    ] {
        let said = script(text).err().unwrap_or_default();
        assert!(said.contains(part), "{text}: {said}");
    }
    let braces = script("[[step]]\npath = '/{{a}}'").expect("a script");
    let mut user = braces.session(0, 1);
    user.open();
    assert!(sent(&mut *user).starts_with("GET /{a} HTTP/1.1\r\n"));
}
