//! Destinations of redirects and rewrites: captures, encoding, and the forms of a path.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use lowroad_variables::{TemplateScope, TlsFacts};

use super::*;
use crate::RequestConditions;

fn regex(text: &str) -> PathSelector {
    PathSelector::Regex(PathExpression::parse(text).expect("an expression"))
}

fn template(text: &str) -> Template {
    Template::parse(text, TemplateScope::url(9)).expect(text)
}

/// A request with this query, and a host.
struct QueryFacts<'q>(Option<&'q str>);

impl RequestFacts for QueryFacts<'_> {
    fn authority(&self) -> &[u8] {
        b"h.example:81"
    }

    fn client(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }

    fn client_port(&self) -> u16 {
        0
    }

    fn is_https(&self) -> bool {
        false
    }

    fn method(&self) -> &str {
        "GET"
    }

    fn path(&self) -> &[u8] {
        b"/"
    }

    fn query(&self) -> Option<&[u8]> {
        self.0.map(str::as_bytes)
    }

    fn request_uri(&self) -> Cow<'_, [u8]> {
        b"/%61?b"[..].into()
    }

    fn fields(&self) -> Box<dyn Iterator<Item = (&[u8], &[u8])> + '_> {
        Box::new(std::iter::empty())
    }

    fn request_id(&self) -> u128 {
        0
    }

    fn tls(&self) -> Option<TlsFacts<'_>> {
        None
    }
}

/// Decodes a path.
fn decoded(raw: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = raw.get(at) {
        let digits = raw.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let byte = escaped.unwrap_or(*byte);
        if (byte, out.last()) != (b'/', Some(&b'/')) {
            out.push(byte);
        }
        at += if escaped.is_some() { 3 } else { 1 };
    }
    out
}

fn rewritten(from: PathSelector, to: &str, path: &[u8], query: Option<&str>) -> Option<String> {
    let rewrite = RewriteConfig {
        from,
        to: template(to),
        missing: false,
        exists: false,
        conditions: RequestConditions::default(),
    };
    let decoded = decoded(path);
    let path = RequestPath::new(path, &decoded);
    let target = rewrite.target(path, &QueryFacts(query))?;
    Some(String::from_utf8(target).expect("ASCII"))
}

#[test]
fn regex_groups_replace_their_numbers_in_target() {
    for (from, to, path, query, expected) in [
        (
            r"^/blog/(\d+)$",
            "/post?id=$1",
            "/blog/7",
            None,
            Some("/post?id=7"),
        ),
        (r"^/blog/(\d+)$", "/post?id=$1", "/blog/x", None, None),
        (
            r"^/blog/(\d+)$",
            "/post?id=$1",
            "/blog/7",
            Some("a=b"),
            Some("/post?id=7"),
        ),
        (
            r"^/(.*)$",
            "/index.php?q=$1&$query",
            "/a/b",
            Some("c=d"),
            Some("/index.php?q=a/b&c=d"),
        ),
        (
            r"^/(.*)$",
            "/index.php?q=$1&$query",
            "/a/b",
            None,
            Some("/index.php?q=a/b"),
        ),
        (
            r"^/(.*)$",
            "/index.php?$query",
            "/a",
            Some(""),
            Some("/index.php"),
        ),
        (
            r"^/(.*)$",
            "/index.php",
            "/a",
            Some("c"),
            Some("/index.php?c"),
        ),
        (
            r"^/(a)?(b)?$",
            "/[$1][$2][$3]$$x$$",
            "/b",
            None,
            Some("/[][b][]$x$"),
        ),
        (
            "^/([a-z]{2})/(.*)$",
            "/$2?lang=$1",
            "/de/x y",
            None,
            Some("/x%20y?lang=de"),
        ),
        ("old", "/new", "/very/old/page", None, Some("/new")),
    ] {
        let got = rewritten(regex(from), to, path.as_bytes(), query);
        assert_eq!(got.as_deref(), expected, "{from} {to} {path}");
    }
}

#[test]
fn captures_in_query_are_encoded() {
    for (path, expected) in [
        (&b"/a&b=c"[..], "/?q=a%26b%3Dc"),
        (b"/a#b?c", "/?q=a%23b%3Fc"),
        (b"/a\r\nb", "/?q=a%0D%0Ab"),
        (b"/\xff%25$1", "/?q=%FF%25%241"),
    ] {
        let got = rewritten(regex("^/(.*)$"), "/?q=$1", path, None);
        assert_eq!(got.as_deref(), Some(expected));
    }
    let to_slash = rewritten(regex("^/x(.*)$"), "/$1", b"/x//evil.example/", None);
    assert_eq!(to_slash.as_deref(), Some("/evil.example/"));
}

#[test]
fn dot_matches_line_breaks_in_paths() {
    let all = regex("^/private/.*$");
    assert!(all.capture(b"/private/a\nb").is_some());
    assert!(all.capture(b"/private/\n").is_some());
    assert!(all.capture(b"\n/private/").is_none());
    assert!(regex("^/a$").capture(b"/a\n").is_none());
}

#[test]
fn invalid_regex_is_reported_in_one_line() {
    for (text, message) in [
        ("(", "unclosed group"),
        ("[a", "unclosed character class"),
        ("(?=a)", "look-around"),
        (r"(a)\1", "backreferences are not supported"),
        ("(a{500}){500}", "Compiled regex exceeds size limit"),
        (
            "(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)",
            "10 groups are more than 9",
        ),
    ] {
        let error = PathExpression::parse(text).expect_err(text);
        assert!(
            error.contains(message) && !error.contains('\n'),
            "{text}: {error}"
        );
    }
    assert!(PathExpression::parse(&"a".repeat(1025)).is_err());
}

#[test]
fn regex_matching_has_no_catastrophic_backtracking() {
    let hard = regex("^/(a+)+(a|b|ab)*(.*)*c$");
    assert!(
        hard.capture(format!("/{}", "a".repeat(8000)).as_bytes())
            .is_none()
    );
}

#[test]
fn regexes_are_compared_by_text() {
    assert_eq!(regex("^/a"), regex("^/a"));
    assert_ne!(regex("^/a"), regex("^/b"));
    assert_eq!(format!("{:?}", regex("^/a")), "Regex(Expression(\"^/a\"))");
}

fn location(from: &str, to: &str, path: &[u8], query: Option<&str>) -> Option<String> {
    let redirect = RedirectConfig {
        from: PathSelector::Pattern(PathPattern::parse(from).expect("a pattern")),
        to: template(to),
        status: 301,
        conditions: RequestConditions::default(),
    };
    let decoded = decoded(path);
    let path = RequestPath::new(path, &decoded);
    let bytes = redirect.location(path, &QueryFacts(query))?;
    Some(String::from_utf8(bytes).expect("ASCII"))
}

#[test]
fn redirect_location_has_captures_query_and_fragment() {
    for (from, to, path, query, expected) in [
        ("/a", "/b", "/a", None, Some("/b")),
        ("/a", "/b", "/c", None, None),
        ("/a", "/b", "/a", Some("x=1&y"), Some("/b?x=1&y")),
        (
            "/a",
            "https://$host$request_uri",
            "/a",
            None,
            Some("https://h.example/%61?b"),
        ),
        (
            "/a",
            "https://$authority/$scheme",
            "/a",
            None,
            Some("https://h.example:81/http"),
        ),
        ("/a", "/b", "/a", Some(""), Some("/b?")),
        ("/a", "/b?own", "/a", Some("x=1"), Some("/b?own")),
        ("/a", "/b#part", "/a", Some("x=1"), Some("/b?x=1#part")),
        ("/old/**", "/new/$1", "/old/x/y", None, Some("/new/x/y")),
        ("/old/**", "/new/$1", "/old/", None, Some("/new/")),
        (
            "/old/*",
            "/new?name=$1#$1",
            "/old/x",
            Some("q"),
            Some("/new?name=x#x"),
        ),
        (
            "/**",
            "https://other.example/$1",
            "/x",
            Some("q"),
            Some("https://other.example/x?q"),
        ),
    ] {
        assert_eq!(
            location(from, to, path.as_bytes(), query).as_deref(),
            expected,
            "{from} {to} {path}"
        );
    }
}

#[test]
fn redirect_to_path_never_leads_to_another_host() {
    for (to, path, expected) in [
        (
            "/new/$1",
            &b"/old/a%20b%0D%0ASet-Cookie:%20x"[..],
            "/new/a%20b%0D%0ASet-Cookie:%20x",
        ),
        ("/new/$1", b"/old/\xff%25%3f#&", "/new/%FF%25%3f%23&"),
        (
            "/new/$1",
            b"/old/\"<>^`{|}",
            "/new/%22%3C%3E%5E%60%7B%7C%7D",
        ),
        ("/$1", b"/old//evil.example", "/evil.example"),
        ("/$1", b"/old/%2Fevil.example", "/%2Fevil.example"),
        ("/$1", b"/old/\\evil.example", "/%5Cevil.example"),
        ("/$1", b"/old/%5cevil.example", "/%5cevil.example"),
        ("/$1/x", b"/old/", "/x"),
        ("/$1$1", b"/old//", "/"),
        (
            "/new?to=$1",
            b"/old/a&b=c+d%26e%2F",
            "/new?to=a%26b%3Dc%2Bd%26e%2F",
        ),
        ("/new#$1", b"/old/a#b", "/new#a%23b"),
    ] {
        assert_eq!(
            location("/old/**", to, path, None).as_deref(),
            Some(expected)
        );
    }
    let split = location("/a", "/b", b"/a", Some("x\r\ny z\u{e9}"));
    assert_eq!(split.as_deref(), Some("/b?x%0D%0Ay%20z%C3%A9"));
}

#[test]
fn captures_keep_raw_bytes_of_the_request() {
    for path in [
        "projects/g%2Fp",
        "projects/g%2fp",
        "app;jsessionid=1",
        "a+b%2Bc",
        "u@h:1",
        "f(1)",
        "it's",
        "a,b=c",
        "a//b",
        "a//b///",
        "%7Ex",
        "%2F",
        "a%5Cb",
        "%e4%C4",
        "!$&*",
    ] {
        let raw = format!("/p%72e/{path}");
        for from in [
            PathSelector::Pattern(PathPattern::parse("/pre/**").expect("a pattern")),
            regex("^/pre/(.*)$"),
        ] {
            let target = rewritten(from, "/$1", raw.as_bytes(), None);
            assert_eq!(target, Some(format!("/{path}")), "{path}");
        }
        let location = location("/pre/**", "https://a.example/x/$1", raw.as_bytes(), None);
        assert_eq!(location, Some(format!("https://a.example/x/{path}")));
    }
    let raw = |path: &str| rewritten(regex("^/(.*)$"), "/$1", path.as_bytes(), None);
    assert_eq!(raw("/a\\b\"|").as_deref(), Some("/a\\b\"|"));
}

#[test]
fn encoded_slash_is_matched_kept_then_decoded() {
    let two = || regex("^/p/([^/]+)/([^/]+)$");
    for (path, expected) in [
        ("/p/a/b", Some("/a-b")),
        ("/p/a%2Fb/c", Some("/a%2Fb-c")),
        ("/p/a%2fb%2fc/d", Some("/a%2fb%2fc-d")),
        // With `%2F` kept, `a%2Fb` is one segment, and nothing matches; decoded, there are two segments.
        ("/p/a%2Fb", Some("/a-b")),
        ("/p/a%2Fb/c/d", None),
    ] {
        let target = rewritten(two(), "/$1-$2", path.as_bytes(), None);
        assert_eq!(target.as_deref(), expected, "{path}");
    }
    let forms = |raw: &str| -> Vec<String> {
        let decoded = decoded(raw.as_bytes());
        let forms = slash_forms(raw.as_bytes(), &decoded);
        forms
            .map(|form| String::from_utf8_lossy(&form).into_owned())
            .collect()
    };
    assert_eq!(forms("/a%2fb//%63"), ["/a%2Fb/c"]);
    assert_eq!(forms("/a%5Cb\\/%2f/c"), ["/a\\b\\/%2F/c", "/a/b/c"]);
}

/// All paths of up to five units (a character or an escape) after the first slash.
fn short_paths() -> Vec<String> {
    let (mut all, mut last) = (Vec::new(), vec!["/".to_string()]);
    for _ in 0..6 {
        all.extend(last.iter().cloned());
        let longer = |path: &String| ["/", "a", "b", "%61"].map(|unit| format!("{path}{unit}"));
        last = last.iter().flat_map(longer).collect();
    }
    all
}

/// The positions in a path before, between and after its units.
fn unit_borders(path: &str) -> impl Iterator<Item = usize> {
    let is_border = |at: usize| {
        let inside = |back: usize| at >= back && path.as_bytes()[at - back] == b'%';
        !inside(1) && !inside(2)
    };
    (1..=path.len()).filter(move |at| is_border(*at))
}

/// The text that the wildcard after `prefix` captures: the rest after the shortest part of the path that `prefix`
/// matches.
fn raw_rest<'p>(prefix: &PathPattern, path: &'p str) -> Option<&'p str> {
    let matches = |at: &usize| prefix.matches(&decoded(&path.as_bytes()[..*at]));
    let at = unit_borders(path).find(matches)?;
    Some(&path[at..])
}

#[test]
fn trailing_double_star_captures_raw_rest() {
    for text in [
        "/", "/a", "/a/", "/a/b/", "/*/", "/*/b/", "/a*/", "/**/", "/**/b/", "/**b",
    ] {
        let prefix = PathPattern::parse(text).expect("a pattern");
        for path in short_paths() {
            let pattern = PathPattern::parse(&format!("{text}**")).expect("a pattern");
            let target = rewritten(
                PathSelector::Pattern(pattern),
                "/x$1",
                path.as_bytes(),
                None,
            );
            let rest = raw_rest(&prefix, &path).map(|rest| format!("/x{rest}"));
            assert_eq!(target, rest, "{text}** {path}");
        }
    }
}

#[test]
fn trailing_star_captures_no_slash() {
    for (pattern, expression) in [("/*", "^/([^/]*)$"), ("/a/*", "^/a/([^/]*)$")] {
        for path in short_paths() {
            let glob = PathPattern::parse(pattern).expect("a pattern");
            let merged = decoded(path.as_bytes());
            let name = path.rsplit('/').next().unwrap_or_default();
            let expected = glob.matches(&merged).then(|| format!("/x{name}"));
            for from in [PathSelector::Pattern(glob), regex(expression)] {
                let target = rewritten(from, "/x$1", path.as_bytes(), None);
                assert_eq!(target, expected, "{pattern} {path}");
            }
        }
    }
}

#[test]
fn regex_groups_capture_merged_slashes() {
    for (from, path, expected) in [
        (r"^/red/(.*)$", "/red//a", "/x[/a][]"),
        (r"^/red/(.*)$", "//red///a//", "/x[//a//][]"),
        (r"^/red/(.*)$", "/red//", "/x[/][]"),
        (r"^/red(/.*)$", "/red//a", "/x[//a][]"),
        (r"^/red/([^/]+)/(.*)$", "/red//a//b", "/x[a][/b]"),
        (r"^/red/(.*)/([^/]*)$", "/red/a//b", "/x[a/][b]"),
        (r"^/red/(.*/)([^/]*)$", "/red//a//b", "/x[/a//][b]"),
        (r"^/red/((.*)/)b$", "/red//a//b", "/x[/a//][/a/]"),
        (r"^/red/([^/]*)(.*)$", "/red//a", "/x[a][]"),
        (r"^/red/(b)?(.*)$", "/red//a", "/x[][/a]"),
        (r"^/red/(.*)$", "/red/%2F/a", "/x[%2F/a][]"),
        (r"^/red/a/(.*)$", "/red%2Fa%2F%2Fb", "/x[%2Fb][]"),
    ] {
        let target = rewritten(regex(from), "/x[$1][$2]", path.as_bytes(), None);
        assert_eq!(target.as_deref(), Some(expected), "{from} {path}");
    }
}
