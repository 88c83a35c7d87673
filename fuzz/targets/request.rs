//! Fuzz target: request heads. The input is the bytes that a client sends.
//!
//! Checks beside "no panic": no slice outside the buffer is returned; reads and the bytes behind the head change
//! nothing; a refused input stays refused with more bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lowroad_http::h1::{self, H1RequestHead};
use lowroad_http::request::{OwnedRequest, PartialRequest, Request, RequestTarget};
use lowroad_http::{
    BodyFraming, FieldLineValues, HttpVersion, RequestLimits, RequestRefusal, host, target,
};

fuzz_target!(|input: &[u8]| {
    check_partial(input);
    // With the small limits, refusals by limits are in reach.
    for limits in [RequestLimits::default(), SMALL] {
        check(input, &limits);
    }
});

/// An accepted head has the same host for parsers that read only a part of it.
fn check_partial(input: &[u8]) {
    let partial = PartialRequest::from_head(input);
    assert!(partial.authority.is_none_or(host::is_valid));
    if let Ok(Some(head)) = h1::parse(input, &RequestLimits::default())
        // An absolute-form target replaces the Host field (RFC 9112 §3.2.2).
        && head.request.raw_target().starts_with(b"/")
        && let Some(authority) = partial.authority
    {
        assert_eq!(head.request.authority, Some(authority));
    }
}

/// Limits that are in reach of a fuzzer's short inputs.
const SMALL: RequestLimits = RequestLimits {
    head_len_max: 160,
    target_len_max: 24,
    fields_max: 4,
    body_len_max: 8,
    chunk_extension_len_max: 4,
    trailers_len_max: 16,
};

/// Bytes that a pipelining client, or an attacker, may send behind a request.
const FOLLOWERS: [&[u8]; 4] = [b"GET / HTTP/1.1\r\n\r\n", b"\r\n", b"\n\n", b"\0"];

fn check(input: &[u8], limits: &RequestLimits) {
    match h1::parse(input, limits) {
        Ok(Some(head)) => check_complete(input, &head, limits),
        Ok(None) => {
            assert!(input.len() < limits.head_len_max);
            assert!(!input.windows(4).any(|end| end == b"\r\n\r\n"));
            // A last CR can hide a fault until the next byte arrives, but not undo it.
            check_prefixes(input, limits, |early| match early {
                Ok(complete) => assert!(!complete),
                Err(_) => check_hopeless(input, limits),
            });
        }
        // A prefix may still be valid. If it isn't, the refusal is the same, unless the request is both faulty and too
        // large: the next bytes decide which fault is found first.
        Err(whole) => check_prefixes(input, limits, |early| match early {
            Ok(complete) => assert!(!complete, "accepted, then refused: {whole:?}"),
            Err(early) if is_limit(early) || is_limit(whole) => {}
            Err(early) => assert_eq!(early.status(), whole.status(), "{early:?}, {whole:?}"),
        }),
    }
}

fn is_limit(refusal: RequestRefusal) -> bool {
    matches!(
        refusal,
        RequestRefusal::HeadTooLarge
            | RequestRefusal::TargetTooLong
            | RequestRefusal::TooManyFields
    )
}

fn check_complete(input: &[u8], whole: &H1RequestHead<'_>, limits: &RequestLimits) {
    let (request, head_len) = (&whole.request, whole.len);
    assert!(head_len <= input.len() && head_len <= limits.head_len_max);
    let head = &input[..head_len];
    assert!(head.ends_with(b"\r\n\r\n"));
    assert!(h1::head_complete(head, head_len - 1));
    check_slices(head, whole);
    check_meaning(whole);
    let kept = OwnedRequest::from_request(request);
    assert_eq!(seen_of(&kept.get()), seen_of(request));

    let seen = seen(whole);
    for follower in FOLLOWERS {
        let pipelined = [head, follower].concat();
        let Ok(Some(again)) = h1::parse(&pipelined, limits) else {
            panic!("refused for what follows the head");
        };
        assert_eq!(self::seen(&again), seen);
    }
    // No proper prefix of a head is complete.
    check_prefixes(head, limits, |early| assert_eq!(early, Ok(false)));
}

/// No continuation makes it a valid request.
fn check_hopeless(input: &[u8], limits: &RequestLimits) {
    for rest in [
        &b"\n"[..],
        b"\r\n",
        b"\n\r\n",
        b"\r\n\r\n",
        b" / HTTP/1.0\r\n\r\n",
    ] {
        let longer = [input, rest].concat();
        let parsed = h1::parse(&longer, limits);
        assert!(!matches!(parsed, Ok(Some(_))), "refused, then accepted");
    }
}

/// All properties of a head, as text for comparison: the head may hold more of the buffer than it exposes.
fn seen(head: &H1RequestHead<'_>) -> String {
    let connection = (
        head.version,
        head.framing,
        head.keep_alive,
        head.expect_continue,
    );
    let line = (head.line(), head.len);
    format!("{line:?} {connection:?} {}", seen_of(&head.request))
}

fn seen_of(request: &Request<'_>) -> String {
    let line = (
        request.method,
        request.target,
        request.authority,
        request.raw_target(),
    );
    let single = singles(request);
    let lists = lists(request).map(|values| values.iter().collect::<Vec<_>>());
    let fields: Vec<_> = request.fields().collect();
    format!("{line:?} {single:?} {lists:?} {fields:?}")
}

fn singles<'b>(request: &Request<'b>) -> [Option<&'b [u8]>; 6] {
    [
        request.if_modified_since(),
        request.if_unmodified_since(),
        request.if_range(),
        request.range(),
        request.referer(),
        request.user_agent(),
    ]
}

fn lists<'b>(request: &Request<'b>) -> [FieldLineValues<'b>; 3] {
    [
        request.accept_encoding(),
        request.if_match(),
        request.if_none_match(),
    ]
}

/// Calls `judge` with the result for each proper prefix: whether it is complete, or its refusal.
fn check_prefixes(
    input: &[u8],
    limits: &RequestLimits,
    judge: impl Fn(Result<bool, RequestRefusal>),
) {
    // All prefixes, or a sample if there are many: the time would be quadratic.
    for len in (0..input.len()).step_by(input.len() / 512 + 1) {
        let parsed = h1::parse(&input[..len], limits);
        judge(parsed.map(|parsed| parsed.is_some()));
    }
}

fn check_slices(head: &[u8], whole: &H1RequestHead<'_>) {
    let inside = |slice: &[u8]| {
        let (outer, inner) = (head.as_ptr_range(), slice.as_ptr_range());
        assert!(slice.is_empty() || (outer.start <= inner.start && inner.end <= outer.end));
    };
    let request = &whole.request;
    inside(whole.line());
    inside(request.raw_target());
    match request.target {
        // The path of an absolute-form without one is a constant.
        RequestTarget::Origin {
            path: b"/", query, ..
        } => query.into_iter().for_each(inside),
        RequestTarget::Origin { path, query, .. } => {
            [Some(path), query].into_iter().flatten().for_each(inside)
        }
        RequestTarget::Authority(authority) => inside(authority),
        RequestTarget::Asterisk => {}
    }
    let singles = singles(request).into_iter().chain([request.authority]);
    singles.flatten().for_each(inside);
    for values in lists(request) {
        values.iter().for_each(inside);
    }
    for (name, value) in request.fields() {
        assert!(!name.is_empty());
        assert!(!value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)));
        inside(name);
        inside(value);
    }
}

/// Checks the relations between the parts of a request against all of its fields.
fn check_meaning(head: &H1RequestHead<'_>) {
    let request = &head.request;
    let count = |name: &[u8]| {
        request
            .fields()
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .count()
    };
    match head.framing {
        BodyFraming::None => assert_eq!(count(b"content-length") + count(b"transfer-encoding"), 0),
        // Both fields together allow request smuggling (RFC 9112 §6.1).
        BodyFraming::Length(_) => {
            assert_eq!(
                (count(b"content-length"), count(b"transfer-encoding")),
                (1, 0)
            );
        }
        BodyFraming::Chunked => {
            assert_eq!(
                (count(b"content-length"), count(b"transfer-encoding")),
                (0, 1)
            );
            assert_eq!(head.version, HttpVersion::Http11);
        }
    }
    assert!(count(b"host") <= 1);
    match request.authority {
        Some(host) => assert!(host::is_valid(host)),
        // Only HTTP/1.0 permits requests without Host (RFC 9112 §3.2).
        None => assert_eq!((head.version, count(b"host")), (HttpVersion::Http10, 0)),
    }
    assert!(!head.expect_continue || head.framing != BodyFraming::None);
    assert_eq!(
        request.if_none_match().is_empty(),
        count(b"if-none-match") == 0
    );
    check_values(request, b"accept-encoding", &request.accept_encoding());
    check_values(request, b"if-match", &request.if_match());
    if let RequestTarget::Origin { path, plain, .. } = request.target {
        assert_eq!(path.first(), Some(&b'/'));
        let mut scratch = vec![0; path.len()];
        let decoded = target::decode(path, &mut scratch);
        assert!(!plain || decoded == Ok(path));
    }
}

/// Values and fields are two views of the same lines.
fn check_values(request: &Request<'_>, name: &[u8], values: &FieldLineValues<'_>) {
    let fields = request
        .fields()
        .filter(|(field, _)| field.eq_ignore_ascii_case(name));
    assert!(values.iter().eq(fields.map(|(_, value)| value)));
}
