//! Tests of the bytes of requests, of a client's traffic, and of the expected responses.

use super::super::draw::tests::assert_fits;
use super::*;

fn workload(pairs: &[(&str, &str)]) -> SpecWeb99 {
    let given = pairs
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    SpecWeb99::new(&given, "h").expect("good settings")
}

/// The first request that contains these bytes.
fn request_with(
    session: &mut dyn ClientSession,
    part: &str,
    last: bool,
) -> (String, ExpectedResponse) {
    for _ in 0..10_000 {
        let mut out = Vec::new();
        let expected = session.request(last, &mut out);
        let text = String::from_utf8(out).expect("text");
        if text.contains(part) {
            return (text, expected);
        }
    }
    panic!("no request with {part}");
}

/// Opens connections until one has this version.
fn open(session: &mut dyn ClientSession, version: WorkloadVersion) -> ConnectionOpening {
    (0..1000)
        .map(|_| session.open())
        .find(|opening| opening.version == version)
        .expect("drawn")
}

#[test]
fn dir_counts_match_the_specweb_table() {
    let table = [
        (100, 90),
        (200, 156),
        (400, 287),
        (1000, 680),
        (2000, 1336),
        (4000, 2647),
    ];
    for (connections, dirs) in table.into_iter().chain([(7500, 4943)]) {
        assert_eq!(dir_count(connections), dirs, "{connections}");
    }
}

#[test]
fn static_requests_are_serialized_exactly() {
    let workload = workload(&[
        ("dirs", "1"),
        ("dynamic", "0"),
        ("file_set", "/x/file_set/"),
    ]);
    let mut session = workload.session(0, 1);
    assert!(!session.interest().cookies);
    assert_eq!(open(&mut *session, WorkloadVersion::Http10).requests, 1);
    let (text, expected) = request_with(&mut *session, "class1_4", true);
    assert_eq!(
        text,
        "GET /x/file_set/dir00000/class1_4 HTTP/1.0\r\nHost: h\r\n\r\n"
    );
    assert_eq!(
        (expected.status, expected.len, expected.class),
        (Some(200), Some(5120), 1)
    );
    assert!((5..=15).contains(&open(&mut *session, WorkloadVersion::Http11).requests));
    let (text, expected) = request_with(&mut *session, "class2_0", true);
    let due = "GET /x/file_set/dir00000/class2_0 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    assert_eq!((&*text, expected.len), (due, Some(10_240)));
}

#[test]
fn ads_follow_the_cookie() {
    let workload = workload(&[("dirs", "1"), ("dynamic", "100"), ("protocol", "1.0")]);
    let mut session = workload.session(201, 1);
    assert!(session.interest().cookies);
    open(&mut *session, WorkloadVersion::Http10KeepAlive);
    for field in [
        "found_cookie=Ad_id=77&Ad_weight=15&Expired=0",
        "my_cookie=10001",
        "found_cookie=Ad_id=-1&x",
    ] {
        session.handle_response(&ReceivedResponse {
            status: 200,
            set_cookie: Some(field),
            text: None,
        });
    }
    let (text, expected) = request_with(&mut *session, "class1_4 ", false);
    let without_cookie = "GET /specweb99.php?/file_set/dir00000/class1_4 HTTP/1.0\r\nHost: h\r\n\
                          Connection: keep-alive\r\n";
    assert!(text.starts_with(without_cookie), "{text}");
    assert_eq!((expected.status, expected.len), (Some(200), None));
    // POST requests have more fields after the cookie.
    let cookie = "\r\nCookie: my_cookie=user_id=10001&last_ad=77\r\n\r\n";
    let (text, _) = request_with(&mut *session, cookie, false);
    assert!(
        text.starts_with("GET /specweb99.php?/file_set/") && text.ends_with(cookie),
        "{text}"
    );
}

#[test]
fn post_form_is_serialized_exactly() {
    let workload = workload(&[("dirs", "1"), ("dynamic", "100"), ("script", "/s")]);
    let mut session = workload.session(12, 1);
    open(&mut *session, WorkloadVersion::Http11);
    session.handle_response(&ReceivedResponse {
        status: 200,
        set_cookie: Some("found_cookie=Ad_id=5&Ad_weight=1"),
        text: None,
    });
    let (text, _) = request_with(&mut *session, "class=0&num=4", false);
    let body = "urlroot=/file_set/&dir=00000&class=0&num=4&client=12";
    let due = format!(
        "POST /s HTTP/1.1\r\nHost: h\r\nCookie: my_cookie=user_id=10012&last_ad=5\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(text, due);
}

#[test]
fn a_million_requests_match_the_mix() {
    let workload = workload(&[
        ("mix", "official"),
        ("connections", "200"),
        ("conditional", "10"),
    ]);
    assert_eq!(workload.classes().len(), 8);
    let mut by_class = [0u64; 8];
    let mut conditional = 0u64;
    let mut out = Vec::new();
    for number in 0..10 {
        let mut session = workload.session(number, 5);
        let mut asked = 0;
        while asked < 100_000 {
            for _ in 0..session.open().requests {
                out.clear();
                let expected = session.request(false, &mut out);
                by_class[usize::from(expected.class)] += 1;
                conditional += u64::from(expected.status == Some(304));
                asked += 1;
            }
        }
    }
    // With decks, the shares of classes are closer to the expected ones than with independent draws, so these bounds
    // are only for operations; the deck's own test checks classes.
    let files: u64 = by_class[..4].iter().sum();
    let operations = [files, by_class[4], by_class[5], by_class[6], by_class[7]];
    assert_fits(&operations, &[70.0, 12.45, 0.15, 12.6, 4.8], "operations");
    assert_fits(
        &[conditional, files - conditional],
        &[1.0, 9.0],
        "conditional",
    );
    for (class, share) in specset::CLASS_WEIGHTS.iter().enumerate() {
        let found = by_class[class] as f64 / files as f64;
        let deviation = (share * (1.0 - share) / files as f64).sqrt();
        assert!(
            (found - share).abs() < 4.5 * deviation,
            "class {class}: {found}"
        );
    }
}

#[test]
fn equal_seeds_give_equal_traffic() {
    let draw = |number, seed| {
        let mut session = workload(&[("dynamic", "50")]).session(number, seed);
        let mut out = Vec::new();
        for _ in 0..200 {
            session.open();
            session.request(false, &mut out);
        }
        out
    };
    assert_eq!(draw(3, 1), draw(3, 1));
    assert_ne!(draw(3, 1), draw(4, 1));
    assert_ne!(draw(3, 1), draw(3, 2));
}

#[test]
fn wrong_settings_are_rejected() {
    let fail = |key: &str, value: &str| {
        let given = [(key.to_string(), value.to_string())].into();
        SpecWeb99::new(&given, "h").err().expect("refused")
    };
    assert!(fail("dynamic", "101").contains("from 0 to 100"));
    assert!(fail("mix", "my").contains("paper, official"));
    assert!(fail("dir", "1").contains("dirs"));
    assert!(fail("files", "/nowhere/at/all").contains("lowroad-lab files"));
}
