use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use lowroad_config::PathPattern;
use lowroad_handler::HandlerRequest;
use lowroad_handler::request::{
    RawTarget, RequestBody, RequestHead, SubrequestLoad, SubrequestSource,
};
use lowroad_http::method::Method;
use lowroad_http::version::HttpVersion;
use lowroad_variables::{Template, TemplateScope};

use super::CgiEnvironment;
use crate::script::LocatedScript;

struct NoObjects;

impl SubrequestSource for NoObjects {
    fn find_in_memory(&self, _: &[u8]) -> Option<Bytes> {
        None
    }
    fn load(&self, _: &[u8]) -> SubrequestLoad {
        Box::pin(async { None })
    }
}

fn request(host: &'static str, lines: &'static str) -> HandlerRequest {
    HandlerRequest {
        method: Method::Post,
        version: HttpVersion::Http11,
        head: RequestHead::new(
            RawTarget {
                path: b"/a%20b.php/x",
                query: Some(b"q=1&r"),
            },
            b"/a b.php/x",
            host.as_bytes(),
            lines.as_bytes(),
        ),
        peer: "::ffff:192.0.2.7".parse().expect("an address"),
        peer_port: 40_000,
        local: "192.0.2.1:8080".parse().expect("an address"),
        tls: None,
        forwarded: None,
        root: Arc::from(Path::new("/srv/www")),
        objects: Arc::new(NoObjects),
        body: RequestBody::none(),
        interims: Default::default(),
        extra: Default::default(),
    }
}

fn variables(
    request: &HandlerRequest,
    info: &str,
    authorization: bool,
    extra: &[(String, Template)],
) -> BTreeMap<String, String> {
    let script = LocatedScript {
        name: b"/a b.php".to_vec(),
        info: info.as_bytes().to_vec(),
    };
    let environment = CgiEnvironment {
        request,
        script: &script,
        file: Some(Path::new("/srv/www/a b.php")),
        root: &request.root,
        body_len: request.body.len.filter(|len| *len > 0),
        authorization,
        extra,
        pattern: &PathPattern::parse("/a*").expect("a pattern"),
    };
    let mut all = BTreeMap::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    environment.for_each_variable(|name, value| {
        let before = all.insert(text(name), text(value));
        assert_eq!(before, None, "{} came twice", text(name));
    });
    all
}

#[test]
fn cgi_variables_are_exactly_these() {
    let mut request = request(
        "example.org:8080",
        "Host: example.org:8080\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nAccept: a\r\n",
    );
    request.body.len = Some(3);
    let got = variables(&request, "/x", false, &[]);
    let want = [
        ("CONTENT_LENGTH", "3"),
        ("CONTENT_TYPE", "text/plain"),
        ("DOCUMENT_ROOT", "/srv/www"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("HTTP_ACCEPT", "a"),
        ("HTTP_HOST", "example.org:8080"),
        ("PATH_INFO", "/x"),
        ("PATH_TRANSLATED", "/srv/www/x"),
        ("QUERY_STRING", "q=1&r"),
        ("REDIRECT_STATUS", "200"),
        ("REMOTE_ADDR", "192.0.2.7"),
        ("REMOTE_PORT", "40000"),
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_SCHEME", "http"),
        ("REQUEST_URI", "/a%20b.php/x?q=1&r"),
        ("SCRIPT_FILENAME", "/srv/www/a b.php"),
        ("SCRIPT_NAME", "/a b.php"),
        ("SERVER_ADDR", "192.0.2.1"),
        ("SERVER_NAME", "example.org"),
        ("SERVER_PORT", "8080"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        (
            "SERVER_SOFTWARE",
            concat!("lowroad/", env!("CARGO_PKG_VERSION")),
        ),
    ];
    let got: Vec<(&str, &str)> = got.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(got, want);
}

#[test]
fn remote_user_is_set_only_for_authenticated_user() {
    let mut request = request("a", "Remote-User: eve\r\nAuth-Type: x\r\n");
    let names = ["AUTH_TYPE", "REMOTE_USER"];
    let got = variables(&request, "", false, &[]);
    assert!(names.iter().all(|name| !got.contains_key(*name)));
    request.extra.user = Some("ann".into());
    let got = variables(&request, "", false, &[]);
    assert_eq!(names.map(|name| got[name].as_str()), ["Basic", "ann"]);
}

#[test]
fn dangerous_and_hop_by_hop_fields_have_no_http_variables() {
    let request = request(
        "a",
        concat!(
            "Proxy: http://evil/\r\nX_Real: 1\r\nX.Dot: 1\r\nAuthorization: Basic eA==\r\n",
            "Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nTE: x\r\nUpgrade: x\r\n",
            "Proxy-Authorization: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n",
            "X-Real: 2\r\n",
        ),
    );
    let got = variables(&request, "", false, &[]);
    let http: Vec<&str> = got
        .keys()
        .filter(|name| name.starts_with("HTTP"))
        .map(String::as_str)
        .collect();
    assert_eq!(http, ["HTTP_HOST", "HTTP_X_REAL"]);
    assert_eq!(got["HTTP_X_REAL"], "2");
    assert!(!got.contains_key("PATH_INFO") && !got.contains_key("CONTENT_LENGTH"));
    let got = variables(&request, "", true, &[]);
    assert_eq!(got["HTTP_AUTHORIZATION"], "Basic eA==");
    assert!(!got.contains_key("HTTP_PROXY"));
}

#[test]
fn repeated_fields_are_combined() {
    let request = request(
        "a",
        "Cookie: a=1\r\nX: 1\r\ncookie: b=2\r\nx: 2\r\nX: \r\nCOOKIE: c=3\r\n",
    );
    let got = variables(&request, "", false, &[]);
    assert_eq!(got["HTTP_COOKIE"], "a=1; b=2; c=3");
    assert_eq!(got["HTTP_X"], "1, 2, ");
}

#[test]
fn configured_variables_replace_all_others() {
    let request = request("a", "X: 1\r\n");
    let extra = [("HTTP_X", "own"), ("SERVER_NAME", "b"), ("MODE", "live")];
    let extra = extra.map(|(name, value)| (name.to_string(), Template::literal(value)));
    let got = variables(&request, "", false, &extra);
    assert_eq!(got["HTTP_X"], "own");
    assert_eq!(got["SERVER_NAME"], "b");
    assert_eq!(got["MODE"], "live");
}

#[test]
fn server_name_is_host_without_port() {
    for (host, want) in [
        ("example.org", "example.org"),
        ("[2001:db8::1]:80", "[2001:db8::1]"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("", "192.0.2.1"),
        ("a:", "a"),
    ] {
        let got = variables(&request(host, ""), "", false, &[]);
        assert_eq!(got["SERVER_NAME"], want);
    }
}

#[test]
fn http_host_is_effective_host() {
    let got = variables(&request("a.example", "Host: b.example\r\n"), "", false, &[]);
    assert_eq!(got["HTTP_HOST"], "a.example");
    let got = variables(&request("", ""), "", false, &[]);
    assert!(!got.contains_key("HTTP_HOST"));
}

#[test]
fn variables_of_configuration_are_expanded_for_the_request() {
    let request = request("h:81", "X-A: b\r\n");
    let extra = [
        ("ADDRESS", "$client:$client_port"),
        ("URL", "$scheme://$authority$request_uri"),
        ("FIELD", "<$header_x_a>$header_x_b"),
        ("NUL", "$arg_q"),
        ("PART", "$path"),
    ];
    let scope = TemplateScope::fields(1);
    let extra = extra.map(|(name, value)| {
        let template = Template::parse(value, scope).expect("a template");
        (name.to_string(), template)
    });
    let got = variables(&request, "", false, &extra);
    for (name, value) in [
        ("ADDRESS", "192.0.2.7:40000"),
        ("URL", "http://h:81/a%20b.php/x?q=1&r"),
        ("FIELD", "<b>"),
        ("NUL", "1"),
        ("PART", "/a b.php/x"),
    ] {
        assert_eq!(got.get(name).map(String::as_str), Some(value), "{name}");
    }
}
