//! `[traces]`: the result of valid tables, and the problem for each mistake.

use super::*;

#[test]
fn all_keys_of_traces_are_read() {
    let config = good(&in_site(
        "[traces]\nendpoint = \"https://collector:4319/x/traces?a=b\"\nca = \"/ca.pem\"\nsample = 0.015\n\
         accept_parent = false\nservice_name = \"shop\"\ntimeout = \"2s\"\nqueue_max = 100\n\
         [traces.headers]\nX-Scope-OrgID = \"a b\"\n[traces.header_files]\nAuthorization = \"/token\"\n\
         [traces.resource]\n\"a.b\" = 1",
    ));
    let expected = TracesConfig {
        endpoint: TracesEndpoint {
            server: OriginUrl::Http {
                encrypted: true,
                host: "collector".into(),
                port: 4319,
            },
            target: "/x/traces?a=b".into(),
        },
        authorities: Some("/ca.pem".into()),
        headers: vec![("X-Scope-OrgID".into(), "a b".into())],
        header_files: vec![("Authorization".into(), "/token".into())],
        sample_millionths: 15_000,
        accept_parent: false,
        service_name: "shop".into(),
        resource: vec![("a.b".into(), "1".into())],
        timeout_ms: 2_000,
        queue_len_max: 100,
    };
    assert_eq!(config.traces, Some(expected));
}

#[test]
fn traces_are_off_without_their_table() {
    assert_eq!(good(&in_site("")).traces, None);
    let config = good(&in_site("[traces]"));
    assert_eq!(config.traces, Some(TracesConfig::default()));
}

#[test]
fn endpoint_without_path_gets_the_standard_path() {
    for url in ["http://127.0.0.1:4318", "http://127.0.0.1:4318/"] {
        let config = good(&in_site(&format!("[traces]\nendpoint = \"{url}\"")));
        assert_eq!(config.traces, Some(TracesConfig::default()), "{url}");
    }
}

#[test]
fn sample_is_a_share_of_one() {
    for (text, millionths) in [
        ("0", 0),
        ("1", 1_000_000),
        ("1.0", 1_000_000),
        ("0.000001", 1),
    ] {
        let config = good(&in_site(&format!("[traces]\nsample = {text}")));
        let sample = config.traces.map(|traces| traces.sample_millionths);
        assert_eq!(sample, Some(millionths));
    }
    for text in ["1.1", "-0.1", "2", "\"x\"", "0.0000001", "nan", "1e-3"] {
        let problem = shown(&in_site(&format!("[traces]\nsample = {text}")));
        assert!(problem.contains("a share of all traces"), "{problem}");
    }
}

#[test]
fn traces_mistakes_are_reported_with_position() {
    for (lines, expected) in [
        (
            "endpoint = \"127.0.0.1:4318\"",
            "4:12: traces.endpoint: \"127.0.0.1:4318\" is not the URL of a collector (allowed: http://HOST:PORT/PATH \
             or https://…; without a path, /v1/traces is used)",
        ),
        (
            "endpoint = \"unix:///x\"",
            "4:12: traces.endpoint: \"unix:///x\" is not the URL of a collector (allowed: http://HOST:PORT/PATH \
             or https://…; without a path, /v1/traces is used)",
        ),
        (
            "[traces.headers]\nHost = \"x\"",
            "5:1: traces.headers.Host: \"Host\" is set by the server (allowed: a name like Authorization or x-api-key)",
        ),
        (
            "[traces.headers]\n\"a b\" = \"x\"",
            "5:1: traces.headers.a b: \"a b\" is not the name of a field (allowed: a name like Authorization or x-api-key)",
        ),
        (
            "[traces.headers]\nX-Key = \"a\"\nx-key = \"b\"",
            "6:1: traces.headers.x-key: \"x-key\" is set twice; the case of names does not matter (allowed: a name like \
             Authorization or x-api-key)",
        ),
        (
            "[traces.headers]\nX-Key = \"a\"\n[traces.header_files]\nx-key = \"/b\"",
            "7:1: traces.header_files.x-key: \"x-key\" is set twice; the case of names does not matter (allowed: a name \
             like Authorization or x-api-key)",
        ),
        (
            "[traces.headers]\nx = \"a\\r\\nb\"",
            "5:5: traces.headers.x: \"a\\r\\nb\" is not a text (allowed: a string, not empty, without control characters)",
        ),
    ] {
        assert_eq!(shown(&in_site(&format!("[traces]\n{lines}"))), expected);
    }
    let problem = shown(&in_site("[traces]\nca = \"/ca.pem\""));
    assert!(problem.contains("https:"), "{problem}");
}
