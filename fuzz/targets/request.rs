//! Fuzz target: heads of requests. The input is what a client sends, as it is.
//!
//! Checked beside "no panic": nothing outside the buffer is given out; how the bytes are cut into
//! reads and what follows the head changes nothing; what was refused once stays refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lowroad_http::request::{self, Framing, Parsed, Request, Target, Version};
use lowroad_http::{Limits, Refusal, Values, host, target};

fuzz_target!(|input: &[u8]| {
    for limits in [Limits::default(), SMALL] {
        check(input, &limits);
    }
});

/// Limits that a fuzzer's short inputs reach.
const SMALL: Limits = Limits {
    head_len_max: 160,
    target_len_max: 24,
    fields_max: 4,
    body_len_max: 8,
    chunk_extension_len_max: 4,
    trailers_len_max: 16,
};

/// What a pipelining client, or an attacker, has behind its request.
const FOLLOWERS: [&[u8]; 4] = [b"GET / HTTP/1.1\r\n\r\n", b"\r\n", b"\n\n", b"\0"];

fn check(input: &[u8], limits: &Limits) {
    match request::parse(input, limits) {
        Ok(Parsed::Complete(request)) => check_complete(input, &request, limits),
        Ok(Parsed::Partial) => {
            assert!(input.len() < limits.head_len_max);
            assert!(!input.windows(4).any(|end| end == b"\r\n\r\n"));
            // A last CR can hide a fault until the next byte is there, but not take it back.
            check_prefixes(input, limits, |early| match early {
                Ok(complete) => assert!(!complete),
                Err(_) => check_hopeless(input, limits),
            });
        }
        // A prefix may be fine still. If it is not, the client hears the same, unless the request
        // is faulty and too large at once: the bytes to come decide which is noticed first.
        Err(whole) => check_prefixes(input, limits, |early| match early {
            Ok(complete) => assert!(!complete, "accepted, then refused: {whole:?}"),
            Err(early) if is_limit(early) || is_limit(whole) => {}
            Err(early) => assert_eq!(early.status(), whole.status(), "{early:?}, {whole:?}"),
        }),
    }
}

fn is_limit(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::HeadTooLarge | Refusal::TargetTooLong | Refusal::TooManyFields
    )
}

fn check_complete(input: &[u8], request: &Request<'_>, limits: &Limits) {
    let head_len = request.head_len;
    assert!(head_len <= input.len() && head_len <= limits.head_len_max);
    let head = &input[..head_len];
    assert!(head.ends_with(b"\r\n\r\n"));
    assert!(request::head_complete(head, head_len - 1));
    check_slices(head, request);
    check_meaning(request);

    let seen = seen(request);
    for follower in FOLLOWERS {
        let pipelined = [head, follower].concat();
        let Ok(Parsed::Complete(again)) = request::parse(&pipelined, limits) else {
            panic!("refused for what follows the head");
        };
        assert_eq!(self::seen(&again), seen);
    }
    check_prefixes(head, limits, |early| assert_eq!(early, Ok(false)));
}

/// Nothing that may come makes a request of it.
fn check_hopeless(input: &[u8], limits: &Limits) {
    for rest in [
        &b"\n"[..],
        b"\r\n",
        b"\n\r\n",
        b"\r\n\r\n",
        b" / HTTP/1.0\r\n\r\n",
    ] {
        let longer = [input, rest].concat();
        let parsed = request::parse(&longer, limits);
        assert!(
            !matches!(parsed, Ok(Parsed::Complete(_))),
            "refused, then accepted"
        );
    }
}

/// All that a server can learn of a request, for comparison: a request itself may hold more of the
/// buffer than it shows.
fn seen(request: &Request<'_>) -> String {
    let Request {
        method,
        version,
        target,
        host,
        framing,
        keep_alive,
        expect_continue,
        ..
    } = request;
    let Request {
        if_modified_since,
        if_unmodified_since,
        if_range,
        range,
        ..
    } = request;
    let Request {
        referer,
        user_agent,
        head_len,
        ..
    } = request;
    let line = (method, version, target, host, request.line(), head_len);
    let connection = (framing, keep_alive, expect_continue);
    let single = (
        if_modified_since,
        if_unmodified_since,
        if_range,
        range,
        referer,
        user_agent,
    );
    let lists = [
        &request.accept_encoding,
        &request.if_match,
        &request.if_none_match,
    ];
    let lists = lists.map(|values| values.iter().collect::<Vec<_>>());
    let fields: Vec<_> = request.fields().collect();
    format!("{line:?} {connection:?} {single:?} {lists:?} {fields:?}")
}

/// Calls `judge` with what the proper prefixes give: whether they are complete, or why refused.
fn check_prefixes(input: &[u8], limits: &Limits, judge: impl Fn(Result<bool, Refusal>)) {
    // All of them, or some if they are many: the time would grow with the square.
    for len in (0..input.len()).step_by(input.len() / 512 + 1) {
        let parsed = request::parse(&input[..len], limits);
        judge(parsed.map(|parsed| matches!(parsed, Parsed::Complete(_))));
    }
}

fn check_slices(head: &[u8], request: &Request<'_>) {
    let inside = |slice: &[u8]| {
        let (outer, inner) = (head.as_ptr_range(), slice.as_ptr_range());
        assert!(slice.is_empty() || (outer.start <= inner.start && inner.end <= outer.end));
    };
    inside(request.line());
    match request.target {
        // The path of an absolute-form without one is a constant.
        Target::Origin {
            path: b"/", query, ..
        } => query.into_iter().for_each(inside),
        Target::Origin { path, query, .. } => {
            [Some(path), query].into_iter().flatten().for_each(inside)
        }
        Target::Authority(authority) => inside(authority),
        Target::Asterisk => {}
    }
    let singles = [
        request.host,
        request.if_modified_since,
        request.if_unmodified_since,
        request.if_range,
        request.range,
        request.referer,
        request.user_agent,
    ];
    singles.into_iter().flatten().for_each(inside);
    for values in [
        &request.accept_encoding,
        &request.if_match,
        &request.if_none_match,
    ] {
        values.iter().for_each(inside);
    }
    for (name, value) in request.fields() {
        assert!(!name.is_empty());
        assert!(!value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)));
        inside(name);
        inside(value);
    }
}

/// What holds between the parts of a request, read anew from all of its fields.
fn check_meaning(request: &Request<'_>) {
    let count = |name: &[u8]| {
        request
            .fields()
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .count()
    };
    match request.framing {
        Framing::None => assert_eq!(count(b"content-length") + count(b"transfer-encoding"), 0),
        Framing::Length(_) => {
            assert_eq!(
                (count(b"content-length"), count(b"transfer-encoding")),
                (1, 0)
            );
        }
        Framing::Chunked => {
            assert_eq!(
                (count(b"content-length"), count(b"transfer-encoding")),
                (0, 1)
            );
            assert_eq!(request.version, Version::Http11);
        }
    }
    assert!(count(b"host") <= 1);
    match request.host {
        Some(host) => assert!(host::is_valid(host)),
        None => assert_eq!((request.version, count(b"host")), (Version::Http10, 0)),
    }
    assert!(!request.expect_continue || request.framing != Framing::None);
    assert_eq!(
        request.if_none_match.is_empty(),
        count(b"if-none-match") == 0
    );
    check_values(request, b"accept-encoding", &request.accept_encoding);
    check_values(request, b"if-match", &request.if_match);
    if let Target::Origin { path, plain, .. } = request.target {
        assert_eq!(path.first(), Some(&b'/'));
        let mut scratch = vec![0; path.len()];
        let decoded = target::decode(path, &mut scratch);
        assert!(!plain || decoded == Ok(path));
    }
}

/// Values and fields are two ways to the same lines.
fn check_values(request: &Request<'_>, name: &[u8], values: &Values<'_>) {
    let fields = request
        .fields()
        .filter(|(field, _)| field.eq_ignore_ascii_case(name));
    assert!(values.iter().eq(fields.map(|(_, value)| value)));
}
