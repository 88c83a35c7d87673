//! Compares the parser with itself: heads split at every byte, followed by other bytes, and mutated at random with a
//! fixed seed. [`check`] tests the invariants of every input.

use lowroad_http::h1::{H1RequestHead, head_complete, parse};
use lowroad_http::host;
use lowroad_http::limits::RequestLimits;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::request::RequestTarget;

const CORPUS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: loadgen/1.0\r\nAccept: */*\r\n\r\n",
    "\r\nHEAD /a/b%20c//d?e=f HTTP/1.0\r\nConnection: keep-alive, x\r\n\r\n",
    "POST http://Example.com:80/x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\nExpect: 100-continue\r\n\r\nhello world!",
    "PUT /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n",
    "PUT /u HTTP/1.1\r\nhost: [::1]:80\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a.example.\r\n\r\n",
    "CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n",
    "GET /big HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\nIf-None-Match: \"a\"\r\nAccept-Encoding: br;q=0.5\r\n\
     If-None-Match: W/\"b\", \"c\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\nRange: bytes=0-9,20-\r\n\
     If-Range: \"a\"\r\nReferer: http://a/b\r\nIf-Match: *\r\nIf-Unmodified-Since: x\r\n\r\n",
    "GET /w HTTP/1.1\r\nHost:  \t a \t \r\nX-Obs: caf\u{e9} \t tab\u{ff}~\r\nX-Empty:\r\nsec-ch-ua: \"x\";v=\"1\"\r\n\
     Upgrade-Insecure-Requests: 1\r\nDNT: 1\r\n!#$%&'*+-.^_`|~09: ok\r\n\r\n",
    "GET /articles/2026/levels.html?from=home HTTP/1.1\r\nHost: www.example.com\r\nConnection: keep-alive\r\n\
     User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0\r\n\
     Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\r\n",
    "GET / HTTP/2.0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n folded: x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n",
];

/// Every public part of a request as text, so that two can be compared.
fn view(head: &H1RequestHead<'_>) -> String {
    let request = &head.request;
    let fields: Vec<_> = request.fields().collect();
    let lists = [
        request.accept_encoding(),
        request.if_match(),
        request.if_none_match(),
    ];
    let lists = lists.map(|values| values.iter().collect::<Vec<_>>());
    let line = head.line();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {} {} {:?} {:?} {:?} {:?} {:?} {:?} {} {line:?} {lists:?} {fields:?}",
        request.method,
        head.version,
        request.target,
        request.authority,
        head.framing,
        head.keep_alive,
        head.expect_continue,
        request.if_modified_since(),
        request.if_unmodified_since(),
        request.if_range(),
        request.range(),
        request.referer(),
        request.user_agent(),
        head.len,
    )
}

/// The result as text; `None` for a partial head.
fn outcome(bytes: &[u8], limits: &RequestLimits) -> Result<Option<String>, RequestRefusal> {
    Ok(match parse(bytes, limits)? {
        None => None,
        Some(head) => {
            check(&head, bytes);
            Some(view(&head))
        }
    })
}

/// The invariants of every accepted request.
fn check(parsed: &H1RequestHead<'_>, bytes: &[u8]) {
    let request = &parsed.request;
    assert!(parsed.len <= bytes.len());
    let head = &bytes[..parsed.len];
    assert!(head.ends_with(b"\r\n\r\n"));
    assert!(head_complete(head, head.len() - 1));
    let inside =
        |part: &[u8]| head.as_ptr_range().contains(&part.as_ptr()) && part.len() <= head.len();
    assert!(inside(parsed.line()) && inside(request.raw_target()));
    for (name, value) in request.fields() {
        assert!(inside(name) && inside(value) && !name.is_empty());
        assert!(!value.starts_with(b" ") && !value.ends_with(b"\t"));
        assert!(!value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n')));
    }
    let named = |known: &'static str| {
        let is = |name: &[u8]| name.eq_ignore_ascii_case(known.as_bytes());
        let found = request.fields().filter(move |(name, _)| is(name));
        found.map(|(_, value)| value)
    };
    assert!(
        request
            .accept_encoding()
            .iter()
            .eq(named("accept-encoding"))
    );
    assert!(request.if_match().iter().eq(named("if-match")));
    assert!(request.if_none_match().iter().eq(named("if-none-match")));
    assert!(named("host").count() <= 1 && named("content-length").count() <= 1);
    let (length, coding) = (
        named("content-length").next(),
        named("transfer-encoding").next(),
    );
    assert!(length.is_none() || coding.is_none());
    if let Some(host) = request.authority {
        assert!(host::is_valid(host));
        assert_eq!(
            host.is_empty(),
            host::normalize(host, &mut [0; 256]).is_none()
        );
    }
    if let RequestTarget::Origin { path, query, .. } = request.target {
        assert!(path.starts_with(b"/"));
        let visible = |part: &[u8]| part.iter().all(|b| b.is_ascii_graphic() && *b != b'#');
        assert!(visible(path) && query.is_none_or(visible));
    }
}

#[test]
fn head_is_parsed_equally_at_every_split() {
    let limits = RequestLimits::default();
    for head in CORPUS {
        let bytes = head.as_bytes();
        let whole = outcome(bytes, &limits);
        let end = match parse(bytes, &limits) {
            Ok(Some(head)) => head.len,
            Ok(None) => panic!("the corpus has whole heads: {head:?}"),
            Err(_) => bytes.len(),
        };
        for split in 0..end {
            let part = outcome(&bytes[..split], &limits);
            match &whole {
                Ok(_) => assert_eq!(part, Ok(None), "{split} of {head:?}"),
                Err(refusal) => assert!(
                    part == Ok(None) || part == Err(*refusal),
                    "{split} of {head:?}"
                ),
            }
        }
        for after in ["x", "\r\n\r\n", "\0\n", "GET / HTTP/1.1\r\n"] {
            let longer = [bytes, after.as_bytes()].concat();
            assert_eq!(outcome(&longer, &limits), whole, "{head:?}");
        }
    }
}

/// An xorshift generator; the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }

    fn byte(&mut self) -> u8 {
        const SPECIAL: &[u8] = b"\r\n \t:/%?#*.,;\"\0\x7f\x80\xff\x0bAz09-_\\@[]";
        SPECIAL[self.below(SPECIAL.len())]
    }

    /// Replaces, inserts, removes or copies a few bytes.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            let end = (at + 1 + self.below(12)).min(bytes.len());
            match self.below(5) {
                0 if at < bytes.len() => bytes[at] = self.byte(),
                1 if at < bytes.len() => drop(bytes.drain(at..end)),
                2 if at < bytes.len() => {
                    let copy = bytes[at..end].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, copy).for_each(drop);
                }
                _ => bytes.insert(at, self.byte()),
            }
        }
    }
}

#[test]
fn mutated_heads_keep_the_invariants() {
    let tight = RequestLimits {
        head_len_max: 120,
        target_len_max: 20,
        fields_max: 5,
        ..RequestLimits::default()
    };
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..6000 {
        let mut bytes = CORPUS[round % CORPUS.len()].as_bytes().to_vec();
        random.mutate(&mut bytes);
        let whole = outcome(&bytes, &RequestLimits::default());
        match &whole {
            Ok(Some(_)) => accepted += 1,
            Ok(None) => (),
            Err(_) => refused += 1,
        }
        // Every prefix: no panic, and the same result.
        let split = random.below(bytes.len() + 1);
        let part = outcome(&bytes[..split], &RequestLimits::default());
        match (&part, &whole) {
            (Ok(None), _) | (Err(_), Err(_)) => (),
            (Ok(Some(_)), _) => assert_eq!(part, whole, "{bytes:?}"),
            (Err(_), Ok(_)) => panic!("{split} of {bytes:?}: {part:?}"),
        }
        let within = outcome(&bytes, &tight);
        assert!(
            within.is_err() || within == whole || within == Ok(None),
            "{bytes:?}"
        );
    }
    assert!(accepted > 500 && refused > 500, "{accepted} {refused}");
}
