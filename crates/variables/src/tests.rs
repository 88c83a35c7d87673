//! Templates: notation, values, and encodings that hold for every request.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use crate::*;

/// A request with these properties.
#[derive(Clone)]
struct SampleRequest {
    authority: Vec<u8>,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Default for SampleRequest {
    fn default() -> SampleRequest {
        SampleRequest {
            authority: b"a.example:8080".to_vec(),
            path: b"/a b".to_vec(),
            query: Some(b"x=1%202&y=a%26b+c&x=3".to_vec()),
            fields: vec![
                (b"X-Tenant".to_vec(), b"t".to_vec()),
                (b"Cookie".to_vec(), b"id=7; id=8".to_vec()),
                (b"cookie".to_vec(), b"b=c=d".to_vec()),
            ],
        }
    }
}

impl RequestFacts for SampleRequest {
    fn authority(&self) -> &[u8] {
        &self.authority
    }

    fn client(&self) -> IpAddr {
        "::ffff:192.0.2.7".parse().expect("an address")
    }

    fn client_port(&self) -> u16 {
        4711
    }

    fn is_https(&self) -> bool {
        true
    }

    fn method(&self) -> &str {
        "GET"
    }

    fn path(&self) -> &[u8] {
        &self.path
    }

    fn query(&self) -> Option<&[u8]> {
        self.query.as_deref()
    }

    fn request_uri(&self) -> Cow<'_, [u8]> {
        let query = self.query.as_deref();
        let query = query.map_or(Vec::new(), |query| [b"?", query].concat());
        let path: &[u8] = match &*self.path {
            b"/a b" => b"/a%20b",
            path => path,
        };
        [path, &query[..]].concat().into()
    }

    fn fields(&self) -> Box<dyn Iterator<Item = (&[u8], &[u8])> + '_> {
        let fields = self.fields.iter();
        Box::new(fields.map(|(name, value)| (&name[..], &value[..])))
    }

    fn request_id(&self) -> u128 {
        0xab
    }

    fn tls(&self) -> Option<TlsFacts<'_>> {
        Some(TlsFacts {
            version: "TLSv1.3",
            subject: "CN=a",
            ..TlsFacts::default()
        })
    }
}

fn parse(text: &str) -> Template {
    Template::parse(text, TemplateScope::fields(9)).expect(text)
}

fn field(text: &str, request: &SampleRequest) -> String {
    let input = TemplateInput {
        facts: request,
        captures: &[b"one", b"two"],
    };
    String::from_utf8(parse(text).field_value(input)).expect("text")
}

fn url(text: &str, request: &SampleRequest) -> Option<String> {
    let input = TemplateInput {
        facts: request,
        captures: &[b"a%2Fb/c&d"],
    };
    let mut out = Vec::new();
    let is_written = parse(text).write_url(input, |byte| byte.is_ascii_graphic(), &mut out);
    is_written.then(|| String::from_utf8(out).expect("ASCII"))
}

#[test]
fn variables_are_replaced_by_properties_of_the_request() {
    let request = SampleRequest::default();
    for (text, expected) in [
        ("", ""),
        ("a$$b", "a$b"),
        ("$host|$authority", "a.example|a.example:8080"),
        ("${scheme}s $method", "httpss GET"),
        ("$client:$client_port", "192.0.2.7:4711"),
        ("$path $query", "/a b x=1%202&y=a%26b+c&x=3"),
        ("$request_uri", "/a%20b?x=1%202&y=a%26b+c&x=3"),
        ("$arg_x,$arg_y,$arg_z", "1 2,a&b c,"),
        ("$cookie_id-$cookie_b-$cookie_c", "7-c=d-"),
        ("$header_x_tenant ${header_X-Tenant}", "t t"),
        ("$request_id", "000000000000000000000000000000ab"),
        ("$1$2$3", "onetwo"),
        ("$12", "one2"),
        ("$tls_version $client_certificate_subject", "TLSv1.3 CN=a"),
        (" $tls_cipher ", ""),
    ] {
        assert_eq!(field(text, &request), expected, "{text}");
    }
    let address = SampleRequest {
        authority: b"[::1]:80".to_vec(),
        ..request
    };
    assert_eq!(field("$host", &address), "[::1]");
}

#[test]
fn mistakes_are_reported_with_their_position() {
    for (text, captures, offset, message) in [
        ("a $foo", 0, 2, "$foo is not a variable"),
        ("$", 0, 0, "a $ without the name of a variable"),
        ("5$ a", 0, 1, "a $ without the name of a variable"),
        ("$$$", 0, 2, "a $ without the name of a variable"),
        ("${host", 0, 0, "${ has no closing brace"),
        ("${}", 0, 0, "$ is not a variable"),
        ("$arg_", 0, 0, "$arg_ is not a variable"),
        ("$0", 9, 0, "$0 is not a variable"),
        (
            "$1",
            0,
            0,
            "$1 has no meaning here, because nothing is captured",
        ),
        (
            "$1$2",
            1,
            2,
            "$2 has no meaning here: the only capture is $1",
        ),
        ("$9", 3, 0, "$9 has no meaning here: the last capture is $3"),
    ] {
        let error = Template::parse(text, TemplateScope::fields(captures));
        let error = error.expect_err(text);
        assert_eq!((error.offset, &*error.message), (offset, message), "{text}");
        assert!(error.allowed.starts_with("$host, "), "{}", error.allowed);
        assert!(error.allowed.ends_with("$$ for a dollar sign"));
    }
    let error = Template::parse("/$client", TemplateScope::url(0)).expect_err("not in a URL");
    assert_eq!(error.message, "$client is not allowed here");
    assert!(!error.allowed.contains("$client"), "{}", error.allowed);
    assert!(error.allowed.contains("$arg_NAME"), "{}", error.allowed);
}

#[test]
fn values_form_no_dot_segments() {
    for (text, value, expected) in [
        ("/safe/$arg_x/y?", "..", "/safe/%252E%252E/y"),
        ("/safe/$arg_x?", "..", "/safe/%252E%252E"),
        ("/safe/$arg_x", ".", "/safe/%252E?x=."),
        ("/safe/.$arg_x/y?", ".", "/safe/%252E%252E/y"),
        (
            "https://$host/safe/$arg_x?z=$arg_x",
            "..",
            "https://a.example/safe/%252E%252E?z=..",
        ),
        ("/safe/$arg_x?", "%2e%2e", "/safe/%252E%252E"),
        ("/safe/$arg_x#/../", "...", "/safe/...?x=...#/../"),
        ("/$arg_x?u=://a/../b", "..", "/%252E%252E?u=://a/../b"),
    ] {
        let request = SampleRequest {
            query: Some(format!("x={value}").into_bytes()),
            ..SampleRequest::default()
        };
        assert_eq!(url(text, &request).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn values_in_urls_stay_in_their_component() {
    let request = SampleRequest::default();
    for (text, expected) in [
        (
            "https://$host$request_uri",
            "https://a.example/a%20b?x=1%202&y=a%26b+c&x=3",
        ),
        ("https://$authority$path?", "https://a.example:8080/a%20b"),
        (
            "https://www.$host/$1",
            "https://www.a.example/a%2Fb/c&d?x=1%202&y=a%26b+c&x=3",
        ),
        (
            "/login?next=$request_uri",
            "/login?next=%2Fa%2520b%3Fx%3D1%25202%26y%3Da%2526b%2Bc%26x%3D3",
        ),
        ("/$arg_y?", "/a%26b%20c"),
        ("/a?#top", "/a#top"),
        ("/a?b?", "/a?b?"),
        ("/a#b?", "/a?x=1%202&y=a%26b+c&x=3#b?"),
        ("/s?q=$arg_y", "/s?q=a%26b%20c"),
        ("/s?q=$1#$1", "/s?q=a%2Fb/c%26d#a%2Fb/c%26d"),
        ("/a#b?c", "/a?x=1%202&y=a%26b+c&x=3#b?c"),
        ("/a?$query", "/a?x=1%202&y=a%26b+c&x=3"),
        ("$path?$query", "/a%20b?x=1%202&y=a%26b+c&x=3"),
    ] {
        assert_eq!(url(text, &request).as_deref(), Some(expected), "{text}");
    }
    let plain = SampleRequest {
        authority: Vec::new(),
        query: None,
        ..request
    };
    assert_eq!(url("/a?$query", &plain).as_deref(), Some("/a"));
    assert_eq!(url("/a?b&$query", &plain).as_deref(), Some("/a?b"));
    assert_eq!(url("https://$host/", &plain), None);
}

/// Requests with every byte in every value that a client controls.
fn hostile_requests() -> Vec<SampleRequest> {
    let all: Vec<u8> = (0..=255).collect();
    let texts = [
        &all[..],
        b"//evil.example/",
        b"/\\evil.example",
        b"\r\nSet-Cookie: a=b\r\n\r\n",
        b"\0",
        b" \t ",
        b"%0d%0a%00%",
        b"http://evil.example/?a#b",
    ];
    let with = |text: &[u8]| SampleRequest {
        authority: text.to_vec(),
        path: [b"/", text].concat(),
        query: Some([b"x=", text].concat()),
        fields: vec![
            (b"X-Tenant".to_vec(), text.to_vec()),
            (b"Cookie".to_vec(), [b"id=", text].concat()),
        ],
    };
    texts.into_iter().map(with).collect()
}

#[test]
fn no_output_contains_line_breaks_or_nul() {
    let texts: Vec<String> = crate::variable::Variable::examples()
        .map(|variable| variable.to_string().replace("NAME", "x"))
        .chain(["$1", "$header_x_tenant", "$cookie_id"].map(String::from))
        .collect();
    for request in hostile_requests() {
        let capture = request.path.clone();
        let input = TemplateInput {
            facts: &request,
            captures: &[&capture],
        };
        for text in &texts {
            let value = parse(text).field_value(input);
            assert!(
                !value.iter().any(|byte| matches!(byte, 0 | 10 | 13)),
                "{text}"
            );
            assert_eq!(value.trim_ascii(), value, "{text}");
            for place in ["/a/", "/a?b=", "/a#", "https://", "https://x/", ""] {
                let mut out = Vec::new();
                let is_path_byte = |byte: u8| byte.is_ascii_graphic();
                let template = parse(&format!("{place}{text}"));
                if template.write_url(input, is_path_byte, &mut out) {
                    assert!(out.iter().all(u8::is_ascii_graphic), "{place}{text}");
                }
            }
        }
    }
}

#[test]
fn client_can_not_choose_the_host_of_a_url() {
    for request in hostile_requests() {
        let capture = request.path.clone();
        let input = TemplateInput {
            facts: &request,
            captures: &[&capture],
        };
        for text in [
            "$path",
            "$request_uri",
            "/$1",
            "/$arg_x",
            "/$path",
            "/$query",
        ] {
            let mut out = Vec::new();
            let is_path_byte = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
            assert!(parse(text).write_url(input, is_path_byte, &mut out));
            assert!(out.starts_with(b"/"), "{text}");
            assert!(
                !out.starts_with(b"//") && !out.starts_with(b"/\\"),
                "{text}"
            );
        }
        let mut out = Vec::new();
        let template = parse("https://b.example$path?$arg_x");
        assert!(template.write_url(input, |_| true, &mut out));
        assert!(out.starts_with(b"https://b.example/"));
    }
}

#[test]
fn site_is_replaced_when_it_is_known() {
    let template = parse("a-$site-b$host").with_site("s");
    assert_eq!(
        template.parts(),
        [
            TemplatePart::Text("a-s-b".into()),
            TemplatePart::Variable(Variable::Host)
        ]
    );
    assert_eq!(parse("$site").with_site("s").constant(), Some("s"));
}

#[test]
fn dependences_are_those_beyond_the_cache_key() {
    let template = parse("$host$arg_a$cookie_b$header_c_d$client$request_id");
    let found: Vec<_> = template.dependences().collect();
    let expected = [
        Dependence::Field("Cookie"),
        Dependence::Field("c-d"),
        Dependence::Client,
        Dependence::Request,
    ];
    assert_eq!(found, expected);
}

fn map(from: &str, entries: &[(&str, &str)]) -> Arc<ValueMap> {
    let from = Template::parse(from, TemplateScope::map_source()).expect(from);
    let mut table = MapEntries::new(false);
    for (key, value) in entries {
        table.insert(key, value).expect(key);
    }
    Arc::new(ValueMap {
        name: "m".into(),
        from,
        default: "none".into(),
        entries: table,
        file: None,
    })
}

fn parse_with_map(text: &str, map: &Arc<ValueMap>) -> Template {
    let scope = TemplateScope::fields(0);
    Template::parse_with(text, scope, std::slice::from_ref(map)).expect(text)
}

#[test]
fn map_finds_texts_then_wildcards_then_expressions() {
    let table = [
        ("a.example", "text"),
        ("*.a.example", "near"),
        ("*.example", "far"),
        ("~^[0-9]+$", "digits"),
        ("~9", "nine"),
        ("", "empty"),
    ];
    let map = map("$header_x", &table);
    for (text, value) in [
        ("a.example", "text"),
        ("b.a.example", "near"),
        ("c.b.a.example", "near"),
        ("b.example", "far"),
        (".example", "none"),
        ("A.example", "far"),
        ("example", "none"),
        ("19", "digits"),
        ("x9", "nine"),
        ("", "empty"),
    ] {
        let request = SampleRequest {
            fields: vec![(b"X".to_vec(), text.as_bytes().to_vec())],
            ..SampleRequest::default()
        };
        let input = TemplateInput {
            facts: &request,
            captures: &[],
        };
        let template = parse_with_map("<$map_m>", &map);
        let expected = format!("<{value}>");
        assert_eq!(template.field_value(input), expected.as_bytes(), "{text}");
    }
}

#[test]
fn map_values_are_whole_urls_or_stay_in_their_place() {
    let request = SampleRequest::default();
    let input = TemplateInput {
        facts: &request,
        captures: &[],
    };
    for (text, value, expected) in [
        ("$map_m", "/new?a=1", Some("/new?a=1")),
        ("$map_m?", "/new#top", Some("/new#top")),
        ("$map_m?", "/new?a=1", Some("/new?a=1")),
        ("$map_m?", "//b.example/", None),
        ("$map_m", "/new#top", Some("/new?x=1%202&y=a%26b+c&x=3#top")),
        (
            "$map_m",
            "https://b.example/p",
            Some("https://b.example/p?x=1%202&y=a%26b+c&x=3"),
        ),
        ("$map_m", "//b.example/", None),
        ("$map_m", "/\\b.example/", None),
        ("$map_m", "javascript:1", None),
        ("$map_m", "https:///x", None),
        ("$map_m", "", None),
        ("/p/$map_m?", "a/b?c", Some("/p/a/b%3Fc")),
        (
            "https://$map_m/?",
            "c.example/d",
            Some("https://c.example%2Fd/"),
        ),
    ] {
        let map = map("$path", &[("/a b", value)]);
        let mut out = Vec::new();
        let is_url = parse_with_map(text, &map).write_url(input, |_| true, &mut out);
        let found = is_url.then(|| String::from_utf8_lossy(&out).into_owned());
        assert_eq!(found.as_deref(), expected, "{text} {value}");
    }
}

#[test]
fn map_files_have_a_key_and_a_value_in_each_line() {
    let text = "\u{feff}# comment\n\na.example  one two\n\tB.example\tthree\r\n~^x y\n";
    let entries = MapEntries::parse(text, true).expect("a map");
    for (key, value) in [
        ("A.example", Some("one two")),
        ("b.example", Some("three")),
        ("xx", Some("y")),
        ("#", None),
    ] {
        assert_eq!(entries.find(key.as_bytes()), value, "{key}");
    }
    for (text, line, column, message) in [
        ("a 1\n  b\n", 2, 3, "has no value"),
        ("a 1\nA 2\n", 2, 1, "is listed twice"),
        ("a \u{7}x\n", 1, 1, "visible ASCII"),
        ("a 1\n  b 2; \n", 2, 6, "remove the ; at the end"),
        ("a 1\n#\n~( 2\n", 3, 1, "is not a regular expression"),
    ] {
        let error = MapEntries::parse(text, true).expect_err(text);
        assert_eq!((error.line, error.column), (line, column), "{text}");
        assert!(error.message.contains(message), "{}", error.message);
    }
}

#[test]
fn a_response_depends_on_the_variables_of_a_map() {
    let all = |map: &Arc<ValueMap>| {
        let template = parse_with_map("$map_m", map);
        let found: Vec<String> = template.dependences().map(|it| format!("{it:?}")).collect();
        found.join(" ")
    };
    assert_eq!(all(&map("$host$arg_a", &[])), "");
    assert_eq!(
        all(&map("$cookie_a$client", &[])),
        "Field(\"Cookie\") Client"
    );
    let with_file = ValueMap {
        file: Some(MapFile::new("f".into(), false, FileEntries::default())),
        from: Template::parse("$host", TemplateScope::map_source()).expect("a template"),
        name: "m".into(),
        default: String::new(),
        entries: MapEntries::default(),
    };
    let with_file = Arc::new(with_file);
    assert_eq!(all(&with_file), "File");
    for (map, is_allowed) in [
        (map("$path", &[]), true),
        (with_file, true),
        (map("$cookie_a", &[]), false),
        (map("$client", &[]), false),
    ] {
        let maps = [map];
        let parsed = Template::parse_with("$map_m", TemplateScope::url(0), &maps);
        assert_eq!(parsed.is_ok(), is_allowed, "{maps:?}");
    }
    let unknown = Template::parse("a$map_x", TemplateScope::fields(0)).expect_err("no map");
    assert_eq!(
        (unknown.offset, &unknown.message[..]),
        (1, "there is no [map.x]")
    );
}
