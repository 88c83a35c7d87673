//! Authentication by another server and by tokens.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use lowroad_testkit::origin::{OriginRequest, TestOrigin};
use lowroad_testkit::{TempFolder, wait_until};

use crate::place::{Place, check};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A server that admits, refuses and fails by the cookie of a request.
fn auth_server() -> TestOrigin {
    TestOrigin::with_response(|request| {
        let (status, fields, text) = match request.field("cookie").unwrap_or_default() {
            "user=ann" => (
                "200 OK",
                "Remote-User: ann\r\nX-Groups: a\r\nX-Groups: b\r\n",
                "yes",
            ),
            "user=bob" => ("204 No Content", "Remote-User: bob\r\n", ""),
            "user=ghost" => ("200 OK", "", ""),
            "out" => (
                "302 Found",
                "Location: http://login/?r=1\r\nSet-Cookie: s=1\r\nX-Internal: 1\r\n",
                "",
            ),
            "forbidden" => ("403 Forbidden", "Content-Type: text/plain\r\n", "not you"),
            "teapot" => ("418 Teapot", "", "short"),
            "broken" => return "nonsense\r\n\r\n".into(),
            _ => (
                "401 Unauthorized",
                "WWW-Authenticate: Form\r\nX-Internal: 1\r\n",
                "",
            ),
        };
        let length = match status {
            "204 No Content" => String::new(),
            _ => format!("Content-Length: {}\r\n", text.len()),
        };
        format!("HTTP/1.1 {status}\r\n{fields}{length}\r\n{text}")
    })
}

/// An application that returns its fields and body, with permission to store the response.
fn application() -> TestOrigin {
    TestOrigin::with_response(|request| {
        let body = String::from_utf8_lossy(&request.body);
        let text = format!("{}\n{body}", request.head);
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: public, max-age=60, s-maxage=60\r\n\
             CDN-Cache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )
    })
}

fn place(auth: &str, application: &TestOrigin) -> Place {
    let lines = format!(
        "[[site.rule]]\npattern = \"/app/**\"\n{auth}\n\
         [[site.header]]\nset = {{ X-Is = \"$header_Remote_User\" }}\n\
         [[site.route]]\npattern = \"/app/**\"\norigin = \"{0}\"\n\
         [[site.route]]\npattern = \"/open/**\"\norigin = \"{0}\"\n",
        application.url()
    );
    Place::new(&["root/a.txt"], &lines)
}

fn forward(auth: &TestOrigin) -> String {
    format!(
        "forward_auth = {{ url = \"{}/verify?x=1\", copy = [\"Remote-User\", \"X-Groups\"] }}",
        auth.url()
    )
}

#[test]
fn permission_of_the_server_admits_and_sets_fields() {
    let (auth, application) = (auth_server(), application());
    let place = place(&forward(&auth), &application);
    let mut client = place.server.connect();
    // A client can neither set the fields, in any spelling, nor have them removed.
    client.send(
        "POST /app/x?y=1 HTTP/1.1\r\nHost: a\r\nCookie: user=ann\r\nRemote-User: root\r\n\
         remote_user: root\r\nREMOTE-USER: root\r\nX-Original-URI: /open\r\nIf-None-Match: \"a\"\r\n\
         Connection: Remote-User, X-Groups\r\nContent-Length: 4\r\n\r\nbody",
    );
    let got = client.response();
    assert_eq!(got.status, 200, "{}", got.head);
    assert_eq!(got.field("x-is"), Some("ann"));
    let seen = application.requests().remove(0);
    let values = |request: &OriginRequest, name: &str| -> Vec<String> {
        let lines = request
            .head
            .lines()
            .filter_map(|line| line.split_once(": "));
        let named = lines.filter(|(field, _)| field.replace('_', "-").eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.to_owned()).collect()
    };
    assert_eq!(values(&seen, "remote-user"), ["ann"]);
    assert_eq!(values(&seen, "x-groups"), ["a, b"]);
    assert_eq!((&*seen.method, &seen.body[..]), ("POST", &b"body"[..]));
    let asked = auth.requests().remove(0);
    assert_eq!((&*asked.method, &*asked.target), ("GET", "/verify?x=1"));
    for (name, value) in [
        ("x-forwarded-method", "POST"),
        ("x-forwarded-uri", "/app/x?y=1"),
        ("x-original-uri", "/app/x?y=1"),
        ("x-original-url", "http://a/app/x?y=1"),
        ("x-forwarded-host", "a"),
        ("x-forwarded-for", "127.0.0.1"),
    ] {
        assert_eq!(values(&asked, name), [value], "{}", asked.head);
    }
    for name in ["content-length", "transfer-encoding", "if-none-match"] {
        assert_eq!(values(&asked, name), [""; 0], "{}", asked.head);
    }
    // Neither the path without the rule passes fields that only the server sets.
    assert_eq!(
        place.get_with("/open/", "Remote-User: root\r\n").status,
        200
    );
    assert_eq!(values(&application.requests()[1], "remote-user"), [""; 0]);
    assert_eq!(auth.count(), 1);
}

#[test]
fn refusal_of_the_server_is_sent_with_chosen_fields() {
    let (auth, application) = (auth_server(), application());
    let place = place(&forward(&auth), &application);
    let got = place.get_with("/app/", "Cookie: out\r\n");
    assert_eq!(
        (got.status, got.field("location")),
        (302, Some("http://login/?r=1"))
    );
    assert_eq!(got.field("set-cookie"), Some("s=1"));
    assert_eq!(got.field("cache-control"), Some("no-store"));
    assert_eq!(got.field("x-internal"), None);
    let got = place.get("/app/");
    assert_eq!(
        (got.status, got.field("www-authenticate")),
        (401, Some("Form"))
    );
    let got = place.get_with("/app/", "Cookie: forbidden\r\n");
    assert_eq!((got.status, got.text()), (403, "not you".into()));
    // Any other answer denies.
    assert_eq!(place.get_with("/app/", "Cookie: teapot\r\n").status, 500);
    assert_eq!(place.get_with("/app/", "Cookie: broken\r\n").status, 503);
    assert_eq!(application.count(), 0);
    // The explanation continues as if the server admitted the request.
    let explained = place.explain("/app/");
    assert!(
        explained.contains("forward_auth") && explained.contains("decides"),
        "{explained}"
    );
    assert!(explained.contains("origin"), "{explained}");
}

#[test]
fn server_that_is_down_admits_no_request() {
    let (auth, application) = (auth_server(), application());
    let rule = forward(&auth);
    // The port is free from here on, so connections to it are refused.
    drop(auth);
    let place = place(&rule, &application);
    for cookie in ["user=ann", "out", ""] {
        let got = place.get_with("/app/", &format!("Cookie: {cookie}\r\n"));
        assert_eq!(got.status, 503, "{cookie}");
    }
    assert_eq!(application.count(), 0);
}

#[test]
fn responses_behind_authentication_are_private() {
    let (auth, application) = (auth_server(), application());
    let place = place(&forward(&auth), &application);
    for user in ["ann", "bob", "ann"] {
        let got = place.get_with("/app/x", &format!("Cookie: user={user}\r\n"));
        assert!(
            got.text().contains(&format!("Remote-User: {user}\r\n")),
            "{}",
            got.text()
        );
        assert!(
            got.head.contains("Cache-Control: private, max-age=60\r\n"),
            "{}",
            got.head
        );
        // A cache in front that obeys one of these would send the response to other clients.
        for shared in ["public", "s-maxage", "CDN-Cache-Control"] {
            assert!(!got.head.contains(shared), "{}", got.head);
        }
    }
    // Each request was decided separately, without a stored response.
    assert_eq!((application.count(), auth.count()), (3, 3));
    assert_eq!(place.get("/app/x").status, 401);
}

#[test]
fn files_behind_authentication_are_private() {
    let auth = auth_server();
    let lines = format!(
        "[[site.rule]]\npattern = \"/in/**\"\n{}\n\
         [[site.cache_control]]\npattern = \"/**\"\nvalue = \"public, max-age=60\"\n",
        forward(&auth)
    );
    let place = Place::new(&["root/in/a.txt", "root/out.txt"], &lines);
    for (path, control) in [
        ("/in/a.txt", "Cache-Control: private, max-age=60\r\n"),
        ("/out.txt", "Cache-Control: public, max-age=60\r\n"),
    ] {
        let got = place.get_with(path, "Cookie: user=ann\r\n");
        assert_eq!(got.status, 200, "{path}");
        assert!(got.head.contains(control), "{}", got.head);
        assert_eq!(got.head.matches("Cache-Control").count(), 1, "{}", got.head);
    }
}

#[test]
fn one_of_several_methods_suffices() {
    let (auth, application) = (auth_server(), application());
    let rule = format!(
        "auth = \"users\"\njwt = {{ secret = \"{SECRET}\" }}\n{}\nsatisfy = \"any\"\nexcept = \"127.0.0.9\"",
        forward(&auth)
    );
    let folder = TempFolder::new();
    folder.file(
        "users",
        "ann:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=\nbob:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/\n",
    );
    let lines = format!(
        "[[site.rule]]\npattern = \"/app/**\"\n{rule}\n[[site.route]]\npattern = \"/app/**\"\norigin = \"{}\"\n",
        application.url()
    );
    let place = Place::after(folder, &["root/a.txt"], &lines);
    let basic = |user: &str, password: &str| {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        format!("Authorization: Basic {pair}\r\n")
    };
    let status = |fields: &str| place.get_with("/app/", fields).status;
    assert_eq!(status(&basic("ann", "myPassword")), 200);
    assert_eq!(status(&basic("bob", "myPassword")), 200);
    assert_eq!(
        status(&bearer(&token(serde_json::json!({ "exp": LATER })))),
        200
    );
    assert_eq!(auth.count(), 0, "the server is asked last");
    assert_eq!(status("Cookie: user=bob\r\n"), 200);
    assert_eq!(
        status(&format!("{}Cookie: user=bob\r\n", basic("ann", "wrong"))),
        200
    );
    assert_eq!(status(&basic("ann", "wrong")), 401);
    // The refusal of the server names the other methods, too.
    let refused = place.get_with("/app/", "");
    let challenges: Vec<_> = (refused.head.lines())
        .filter_map(|line| line.strip_prefix("WWW-Authenticate: "))
        .filter_map(|challenge| challenge.split_whitespace().next())
        .collect();
    assert_eq!(
        (refused.status, &challenges[..]),
        (401, &["Form", "Basic", "Bearer"][..])
    );
    assert_eq!(
        status(&bearer(&token(serde_json::json!({ "exp": 1 })))),
        401
    );
    // An address of `except` needs no method.
    let exempt = "127.0.0.9".parse().expect("an address");
    let mut client = lowroad_testkit::TestClient::connect_from(exempt, place.server.address());
    assert_eq!(client.get("/app/", "").status, 200);
}

/// In the year 2100.
const LATER: u64 = 4_102_444_800;

fn token(claims: serde_json::Value) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    encode(&Header::new(Algorithm::HS256), &claims, &key).expect("a token")
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn token_is_required_and_sets_fields() {
    let application = application();
    let rule = format!(
        "jwt = {{ secret = \"{SECRET}\", audience = \"api\", fields = {{ Remote-User = \"sub\" }} }}"
    );
    let place = place(&rule, &application);
    let got = place.get("/app/");
    assert_eq!(
        (got.status, got.field("www-authenticate")),
        (401, Some("Bearer"))
    );
    let claims = serde_json::json!({ "exp": LATER, "aud": "api", "sub": "ann" });
    let got = place.get_with(
        "/app/",
        &format!("{}Remote-User: root\r\n", bearer(&token(claims))),
    );
    assert_eq!((got.status, got.field("x-is")), (200, Some("ann")));
    let text = got.text();
    assert!(
        text.contains("Remote-User: ann") && !text.contains("root"),
        "{text}"
    );
    let expired = token(serde_json::json!({ "exp": 1, "aud": "api" }));
    let got = place.get_with("/app/", &bearer(&expired));
    assert_eq!(got.status, 401);
    assert!(
        got.head.contains("error_description=\"expired\""),
        "{}",
        got.head
    );
    assert!(place.explain("/app/").contains("jwt with a secret"));
    let log = place.folder.path().join("access.log");
    wait_until("the user in the log", || {
        std::fs::read_to_string(&log)
            .ok()?
            .contains("ann")
            .then_some(())
    });
}

/// Keys from a URL: a failed fetch is repeated, and tokens with unknown keys cause no fetch each.
#[test]
fn key_set_is_fetched_and_unknown_keys_cause_no_flood() {
    static IS_UP: AtomicBool = AtomicBool::new(false);
    let pair = rcgen::KeyPair::generate().expect("a key");
    let point = pair.public_key_raw();
    let [x, y] = [&point[1..33], &point[33..]].map(|part| URL_SAFE_NO_PAD.encode(part));
    let set = serde_json::json!({ "keys": [
        { "kty": "EC", "crv": "P-256", "kid": "one", "use": "sig", "alg": "ES256", "x": x, "y": y },
    ] });
    let issuer = TestOrigin::with_response(move |_| {
        let set = set.to_string();
        match IS_UP.load(SeqCst) {
            true => format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{set}",
                set.len()
            ),
            false => "HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n".into(),
        }
    });
    let application = application();
    let rule = format!("jwt = {{ jwks = \"{}/keys\" }}", issuer.url());
    let place = place(&rule, &application);
    let signed = |id: &str| {
        let key = EncodingKey::from_ec_der(&pair.serialize_der());
        let header = Header {
            kid: Some(id.into()),
            ..Header::new(Algorithm::ES256)
        };
        let token = encode(&header, &serde_json::json!({ "exp": LATER }), &key).expect("a token");
        place.get_with("/app/", &bearer(&token)).status
    };
    wait_until("a fetch", || (issuer.count() > 0).then_some(()));
    assert_eq!(signed("one"), 503, "no key is known");
    IS_UP.store(true, SeqCst);
    wait_until("the key", || (signed("one") == 200).then_some(()));
    // A fetch for each of these tokens would be an attack on the issuer.
    let count = issuer.count();
    for number in 0..200 {
        assert_eq!(signed(&number.to_string()), 401);
    }
    assert!(issuer.count() <= count + 1, "{} fetches", issuer.count());
    // A public key is no secret.
    let confused = token(serde_json::json!({ "exp": LATER }));
    assert_eq!(place.get_with("/app/", &bearer(&confused)).status, 401);
}

#[test]
fn wrong_authentication_is_reported() {
    for (line, message) in [
        ("forward_auth = \"auth\"\n", "there is no origin"),
        ("forward_auth = \"http://a/#b\"\n", "the URL of a server"),
        (
            "forward_auth = { url = \"http://a\", copy = [\"Cookie\"] }\n",
            "field of the client",
        ),
        (
            "forward_auth = { url = \"http://a\", copy = [\"A_B\"] }\n",
            "contains _",
        ),
        ("jwt = { secret = \"short\" }\n", "can be guessed"),
        ("jwt = { leeway = 1 }\n", "not one source of keys"),
        (
            "jwt = { jwks = \"http://a\", algorithms = [\"HS256\"] }\n",
            "does not fit the keys",
        ),
        (
            "jwt = { jwks = \"http://a\" }\nauth = \"users\"\n",
            "one Authorization",
        ),
        (
            "jwt = { jwks = \"http://a\" }\nsatisfy = \"any\"\n",
            "only with two of",
        ),
        ("jwt = { jwks = \"http://a\" }\ndeny = 403\n", "two actions"),
        (
            "header = \"x-user: root\"\njwt = { jwks = \"http://a\", fields = { X-User = \"sub\" } }\n",
            "any client meets the condition",
        ),
    ] {
        let report = check(&format!("[[site.rule]]\n{line}"));
        assert!(report.contains(message), "{line}: {report}");
    }
}
