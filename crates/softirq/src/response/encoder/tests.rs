use super::*;

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn response(status: u16, fields: &[(&str, &str)], body: &str) -> FetchedResponse {
    let owned = |(n, v): &(&str, &str)| (n.as_bytes().to_vec(), v.as_bytes().to_vec());
    FetchedResponse {
        status,
        reason: b"Fine".to_vec(),
        fields: fields.iter().map(owned).collect(),
        body: body.into(),
        at_unix_secs: 784_111_777,
    }
}

fn options(closes: bool, is_http10: bool, with_age: bool) -> PrepareOptions {
    PrepareOptions {
        class: ConnectionClass::new(closes, is_http10),
        with_age,
        len_max: 1460,
    }
}

fn text(response: &FetchedResponse, options: &PrepareOptions) -> String {
    let prepared = prepare(response, options).expect("a response");
    let head_len = usize::from(prepared.head_len);
    assert_eq!(&prepared.bytes[head_len..], response.body);
    assert!(prepared.bytes[..head_len].ends_with(b"\r\n\r\n"));
    let date_at = usize::from(prepared.date_at.expect("always there"));
    assert!(date::parse(&prepared.bytes[date_at..date_at + DATE_LEN], 0).is_some());
    assert_eq!(&prepared.bytes[date_at + DATE_LEN..date_at + 31], b"\r\n");
    assert_eq!(prepared.age_at.is_some(), options.with_age);
    if let Some(at) = prepared.age_at.map(usize::from) {
        assert_eq!(&prepared.bytes[at - 5..at + 7], b"Age: 00000\r\n");
    }
    String::from_utf8(prepared.bytes).expect("ASCII")
}

#[test]
fn fields_keep_their_order_and_case() {
    let fields = [
        ("x-B", "2"),
        ("DATE", DATE),
        ("x-A", "1, \"y\""),
        ("content-length", "3"),
        ("x-B", ""),
    ];
    assert_eq!(
        text(&response(200, &fields, "abc"), &options(false, false, true)),
        format!(
            "HTTP/1.1 200 Fine\r\nx-B: 2\r\nDATE: {DATE}\r\nx-A: 1, \"y\"\r\n\
             content-length: 3\r\nx-B: \r\nAge: 00000\r\n\r\nabc"
        )
    );
}

#[test]
fn hop_by_hop_fields_are_removed() {
    let fields = [
        ("Connection", "keep-alive, X-Hop"),
        ("Keep-Alive", "timeout=5"),
        ("x-hop", "1"),
        ("connection", " X-other"),
        ("X-Other", "2"),
        ("Transfer-Encoding", "chunked"),
        ("TE", "trailers"),
        ("Trailer", "x"),
        ("Upgrade", "h2c"),
        ("Proxy-Authenticate", "x"),
        ("Proxy", "stays"),
        ("Date", DATE),
    ];
    assert_eq!(
        text(
            &response(200, &fields, "abc"),
            &options(false, false, false)
        ),
        format!(
            "HTTP/1.1 200 Fine\r\nProxy: stays\r\nDate: {DATE}\r\nContent-Length: 3\r\n\r\nabc"
        )
    );
}

#[test]
fn connection_field_depends_on_the_class() {
    let plain = response(200, &[("Date", DATE), ("Connection", "close")], "");
    let line = |closes, is_http10| {
        let text = text(&plain, &options(closes, is_http10, false));
        let lines = text.lines().filter(|l| l.starts_with("Connection"));
        lines.collect::<Vec<_>>().join("|")
    };
    assert_eq!(line(false, false), "");
    assert_eq!(line(true, false), "Connection: close");
    assert_eq!(line(true, true), "Connection: close");
    assert_eq!(line(false, true), "Connection: keep-alive");
}

#[test]
fn date_of_another_length_is_replaced() {
    for bad in [
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "now",
        "",
        "Sun Nov  6 08:49:37 1994",
    ] {
        let text = text(
            &response(200, &[("Date", bad)], ""),
            &options(false, false, false),
        );
        assert_eq!(text.matches("Date: ").count(), 1, "{bad}");
        assert!(text.contains(&format!("Date: {DATE}\r\n")), "{bad}");
    }
    let twice = [("Date", "bad"), ("date", DATE), ("Date", DATE)];
    let text = text(&response(200, &twice, ""), &options(false, false, false));
    assert_eq!(text.to_lowercase().matches("date: ").count(), 1);
}

#[test]
fn age_field_is_replaced_or_kept() {
    let aged = response(200, &[("Date", DATE), ("age", "7")], "");
    let replaced = text(&aged, &options(false, false, true));
    assert!(!replaced.contains("age: 7") && replaced.contains("Age: 00000\r\n"));
    assert!(text(&aged, &options(false, false, false)).contains("age: 7\r\n"));
}

#[test]
fn content_length_is_checked_and_added() {
    let with = |status, length, body| {
        let length = [("Date", DATE), ("Content-Length", length)];
        prepare(
            &response(status, &length, body),
            &options(false, false, false),
        )
        .map(|p| String::from_utf8_lossy(&p.bytes).contains("Content-Length"))
    };
    assert_eq!(with(200, "3", "abc"), Ok(true));
    assert_eq!(with(200, "4", "abc"), Err(PrepareError::Length));
    assert_eq!(with(200, "+3", "abc"), Err(PrepareError::Length));
    assert_eq!(with(204, "0", ""), Ok(false));
    // A 304 may carry the length of the content of a 200.
    assert_eq!(with(304, "12345", ""), Ok(true));
    assert_eq!(with(304, "0", "x"), Err(PrepareError::BodyNotAllowed));
    let without = text(&response(304, &[], ""), &options(false, false, false));
    assert!(!without.contains("Content-Length"));
    let twice = [("Content-Length", "1"), ("Content-Length", "1")];
    let once = text(&response(200, &twice, "x"), &options(false, false, false));
    assert_eq!(once.matches("Content-Length").count(), 1);
}

#[test]
fn response_over_the_length_limit_is_rejected() {
    let fitting = |len: usize| {
        prepare(
            &response(200, &[], &"x".repeat(len)),
            &options(false, false, true),
        )
    };
    let head_len = fitting(100).expect("fits").head_len;
    let room = 1460 - usize::from(head_len);
    // With one more byte, Content-Length still has four digits, instead of the three above.
    assert_eq!(fitting(room - 1).expect("fits").bytes.len(), 1460);
    let refused = PrepareError::TooLong {
        len: 1461,
        len_max: 1460,
    };
    assert_eq!(fitting(room), Err(refused));
    // Offsets have 16 bits, regardless of the limit.
    let long = PrepareOptions {
        len_max: usize::MAX,
        ..options(false, false, true)
    };
    assert!(prepare(&response(200, &[], &"x".repeat(65_536)), &long).is_err());
}

#[test]
fn invalid_fields_and_statuses_are_rejected() {
    let options = options(false, false, true);
    for (name, value) in [
        ("a b", "x"),
        ("", "x"),
        ("a:", "x"),
        ("a", "x\r\ny: z"),
        ("a", "x\0"),
    ] {
        let refused = prepare(&response(200, &[(name, value)], ""), &options);
        assert_eq!(refused, Err(PrepareError::Field), "{name:?} {value:?}");
    }
    for status in [0, 100, 199, 1000] {
        let refused = prepare(&response(status, &[], ""), &options);
        assert_eq!(refused, Err(PrepareError::Status(status)));
    }
}

#[test]
fn is_same_as_ignores_only_the_date() {
    let encode = |date, x| {
        let fields = [("Date", date), ("x", x)];
        prepare(&response(200, &fields, "abc"), &options(false, false, true)).expect("a response")
    };
    let later = "Mon, 07 Nov 1994 08:49:37 GMT";
    assert!(encode(DATE, "1").is_same_as(&encode(later, "1")));
    assert!(!encode(DATE, "1").is_same_as(&encode(DATE, "2")));
    assert!(!encode(DATE, "1").is_same_as(&encode(DATE, "11")));
}
