use super::*;

const NAMES: [&str; 2] = [
    "origin app at http://10.0.0.1:80",
    "origin app at http://10.0.0.2:80",
];

fn config(lifetime_s: Option<u64>) -> OriginSticky {
    OriginSticky {
        cookie: "s".into(),
        lifetime_s,
        is_secure: None,
        is_http_only: true,
        same_site: SameSite::Lax,
        secret: None,
    }
}

fn server(tag: u64) -> SessionServer {
    SessionServer {
        tag,
        is_named_known: true,
        unix_s: 1_000,
        is_https: false,
    }
}

/// The value of a cookie that a response sets.
fn value_of(line: &str) -> &str {
    let (pair, _) = line.split_once(';').expect("attributes");
    pair.strip_prefix("s=").expect("the name")
}

fn read(sessions: &StickySessions, value: &str, unix_s: u64) -> SessionCookie {
    let lines = format!("Cookie: a=b; s={value}\r\n");
    sessions.read(FieldLines::new(lines.as_bytes()), unix_s)
}

#[test]
fn cookie_names_its_server_without_the_address() {
    let sessions = StickySessions::new(&config(None), "app", &[1; 32]);
    let [tag, other] = NAMES.map(|name| sessions.tag_of(name));
    assert_ne!(tag, other);
    let line = sessions.set_cookie(&server(tag));
    let expected = SessionCookie::Server { tag, is_due: false };
    assert_eq!(read(&sessions, value_of(&line), 1 << 40), expected);
    assert!(line.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{line}");
    assert!(!line.contains("10.0"), "{line}");
    let https = SessionServer {
        is_https: true,
        ..server(tag)
    };
    assert!(sessions.set_cookie(&https).ends_with("; Secure"));
    let empty = sessions.read(FieldLines::new(b"Cookie: a=b\r\n"), 0);
    assert_eq!(empty, SessionCookie::Missing);
}

#[test]
fn last_valid_cookie_of_the_name_counts() {
    let sessions = StickySessions::new(&config(Some(100)), "app", &[1; 32]);
    let set = |tag| sessions.set_cookie(&server(tag));
    let (first, second) = (set(7), set(8));
    let (first, second) = (value_of(&first), value_of(&second));
    let server = SessionCookie::Server {
        tag: 7,
        is_due: false,
    };
    let twice = format!("forged; s={second}; s={first}; s=0");
    assert_eq!(read(&sessions, &twice, 1_000), server);
    assert_eq!(read(&sessions, &twice, 1_100), SessionCookie::Expired);
    let expired = format!("{first}; s=forged");
    assert_eq!(read(&sessions, &expired, 1_100), SessionCookie::Expired);
    assert_eq!(read(&sessions, "0; s=1", 1_000), SessionCookie::Forged);
    // A request full of cookies does not cost a signature for each.
    let early = format!("{first}{}", "; s=0".repeat(COOKIES_MAX));
    assert_eq!(read(&sessions, &early, 1_000), SessionCookie::Forged);
    // A neighbouring host can set cookies with longer paths, which precede this one.
    let last = format!("{}{first}", "0; s=".repeat(COOKIES_MAX));
    assert_eq!(read(&sessions, &last, 1_000), server);
    let counters = SessionCounters::default();
    for value in [&last, &twice] {
        let lines = format!("Cookie: s={value}\r\n");
        let fields = FieldLines::new(lines.as_bytes());
        sessions.read_counted(fields, 1_000, &counters);
    }
    assert_eq!(counters.list()[5], ("sticky.crowded", 1));
}

#[test]
fn changed_cookies_and_those_of_other_keys_are_forged() {
    let sessions = StickySessions::new(&config(None), "app", &[1; 32]);
    let line = sessions.set_cookie(&server(7));
    let value = value_of(&line);
    for (at, digit) in value.char_indices() {
        let changed = if digit == '0' { '1' } else { '0' };
        let changed = format!("{}{changed}{}", &value[..at], &value[at + 1..]);
        assert_eq!(read(&sessions, &changed, 0), SessionCookie::Forged, "{at}");
    }
    for wrong in ["", "0", &value[1..], &format!("{value}0"), "é"] {
        assert_eq!(read(&sessions, wrong, 0), SessionCookie::Forged, "{wrong}");
    }
    let secret = lowroad_config::SecretText::new("0123456789abcdef");
    let others = [
        StickySessions::new(&config(None), "app", &[2; 32]),
        StickySessions::new(&config(None), "other", &[1; 32]),
        StickySessions::new(
            &OriginSticky {
                secret: Some(secret),
                ..config(None)
            },
            "app",
            &[1; 32],
        ),
    ];
    for other in &others {
        assert_eq!(read(other, value, 0), SessionCookie::Forged);
        assert_ne!(other.tag_of(NAMES[0]), sessions.tag_of(NAMES[0]));
    }
}

#[test]
fn lifetime_ends_and_is_renewed_after_half() {
    let sessions = StickySessions::new(&config(Some(100)), "app", &[1; 32]);
    let line = sessions.set_cookie(&server(7));
    assert!(line.contains("; Max-Age=100"), "{line}");
    let at = |unix_s| read(&sessions, value_of(&line), unix_s);
    let of = |is_due| SessionCookie::Server { tag: 7, is_due };
    assert_eq!(at(1_050), of(false));
    assert_eq!(at(1_051), of(true));
    assert_eq!(at(1_099), of(true));
    assert_eq!(at(1_100), SessionCookie::Expired);
    // A cookie of an earlier configuration is renewed.
    let shorter = StickySessions::new(&config(Some(50)), "app", &[1; 32]);
    assert_eq!(read(&shorter, value_of(&line), 1_000), of(true));
}

fn completed(first: &[(&str, &str)], status: StatusCode) -> Vec<(String, String)> {
    let sessions = StickySessions::new(&config(None), "app", &[1; 32]);
    let mut fields = ResponseFields::new();
    for (name, value) in first {
        fields.push(name, value.as_bytes());
    }
    let mut response = HandlerResponse {
        fields,
        ..HandlerResponse::new(status, "text/plain", "")
    };
    let counters = SessionCounters::default();
    sessions.complete(SessionCookie::Missing, &server(7), &mut response, &counters);
    assert_eq!(counters.list()[1], ("sticky.begun", 1));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = response.fields.iter();
    all.map(|(name, value)| (name.to_owned(), text(value)))
        .collect()
}

#[test]
fn caches_never_store_the_cookie() {
    let control = |fields: &[(String, String)]| -> Vec<String> {
        let controls = fields.iter().filter(|(name, _)| name.ends_with("Control"));
        controls.map(|(_, value)| value.clone()).collect()
    };
    let plain = completed(&[("Cache-Control", "max-age=60")], StatusCode::OK);
    assert_eq!(control(&plain), ["max-age=60", "private=\"set-cookie\""]);
    // The application's own cookie must not be removed to make the response storable.
    let own = [
        ("Set-Cookie", "id=1"),
        ("Cache-Control", "public, max-age=60"),
    ];
    assert_eq!(
        control(&completed(&own, StatusCode::OK)),
        ["private, max-age=60"]
    );
    let targeted = [("CDN-Cache-Control", "max-age=60")];
    assert_eq!(control(&completed(&targeted, StatusCode::OK)), ["private"]);
    assert!(completed(&[], StatusCode::NOT_MODIFIED).is_empty());
    assert!(completed(&[], StatusCode::PARTIAL_CONTENT).is_empty());
}
