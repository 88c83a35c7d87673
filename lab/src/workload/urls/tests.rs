//! Tests of the bytes of requests, of rejected lists, and of the shares of URLs.

use super::super::draw::tests::assert_fits;
use super::*;

fn list(specs: Vec<UrlSpec>, version: WorkloadVersion, cookies: bool) -> UrlWorkload {
    UrlWorkload::new(specs, "h:80", version, PerConnection::Fixed(5), cookies).expect("a good list")
}

fn text(session: &mut dyn ClientSession, last: bool) -> String {
    let mut out = Vec::new();
    session.request(last, &mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn requests_are_serialized_exactly() {
    let url = || vec![UrlSpec::get("/a?b")];
    let mut session = list(url(), WorkloadVersion::Http11, false).session(0, 1);
    assert_eq!(
        session.open(),
        ConnectionOpening {
            version: WorkloadVersion::Http11,
            requests: 5
        }
    );
    assert_eq!(
        text(&mut *session, false),
        "GET /a?b HTTP/1.1\r\nHost: h:80\r\n\r\n"
    );
    assert_eq!(
        text(&mut *session, true),
        "GET /a?b HTTP/1.1\r\nHost: h:80\r\nConnection: close\r\n\r\n"
    );

    let mut session = list(url(), WorkloadVersion::Http10KeepAlive, false).session(0, 1);
    assert_eq!(
        text(&mut *session, false),
        "GET /a?b HTTP/1.0\r\nHost: h:80\r\nConnection: keep-alive\r\n\r\n"
    );
    assert_eq!(
        text(&mut *session, true),
        "GET /a?b HTTP/1.0\r\nHost: h:80\r\n\r\n"
    );

    let mut session = list(url(), WorkloadVersion::Http10, false).session(0, 1);
    assert_eq!(session.open().requests, 1);
    assert_eq!(
        text(&mut *session, true),
        "GET /a?b HTTP/1.0\r\nHost: h:80\r\n\r\n"
    );
}

#[test]
fn request_has_body_fields_and_cookies() {
    let spec = UrlSpec {
        method: "POST".to_string(),
        fields: vec![
            ("Host".to_string(), "other".to_string()),
            ("X".to_string(), "y".to_string()),
        ],
        body: b"data".to_vec(),
        ..UrlSpec::get("/p")
    };
    let mut session = list(vec![spec], WorkloadVersion::Http11, true).session(0, 1);
    assert!(session.interest().cookies);
    session.handle_response(&ReceivedResponse {
        status: 200,
        set_cookie: Some("k=v; Path=/"),
        text: None,
    });
    assert_eq!(
        text(&mut *session, false),
        "POST /p HTTP/1.1\r\nHost: other\r\nX: y\r\nContent-Length: 4\r\nCookie: k=v\r\n\r\ndata"
    );
}

#[test]
fn conditional_request_expects_304() {
    let style = UrlStyle {
        host: "h".to_string(),
        version: WorkloadVersion::Http11,
        per_connection: PerConnection::Unlimited,
        cookies: false,
        conditional: 1.0,
    };
    let session = |spec| {
        let urls = UrlWorkload::with_classes(vec!["x".to_string()], vec![(0, spec)], style.clone());
        urls.expect("a good list").session(0, 1)
    };
    let missing = UrlSpec {
        expected_status: Some(404),
        ..UrlSpec::get("/")
    };
    assert_eq!(
        session(missing).request(false, &mut Vec::new()).status,
        Some(404)
    );
    let mut session = session(UrlSpec::get("/"));
    let mut out = Vec::new();
    let expected = session.request(false, &mut out);
    assert_eq!((expected.status, expected.len), (Some(304), Some(0)));
    assert!(String::from_utf8_lossy(&out).ends_with(&format!("{}\r\n", request::CONDITION)));
}

#[test]
fn rejected_url_lists_name_a_remedy() {
    let refuse = |specs: Vec<UrlSpec>| {
        let urls = UrlWorkload::new(
            specs,
            "h",
            WorkloadVersion::Http11,
            PerConnection::Unlimited,
            false,
        );
        urls.err().expect("refused")
    };
    let field = |name: &str, value: &str| UrlSpec {
        fields: vec![(name.to_string(), value.to_string())],
        ..UrlSpec::get("/")
    };
    assert!(refuse(vec![]).contains("no URL"));
    assert!(refuse(vec![UrlSpec::get("a")]).contains("begins with /"));
    assert!(
        refuse(vec![UrlSpec {
            weight: 0.0,
            ..UrlSpec::get("/")
        }])
        .contains("weight 0")
    );
    assert!(
        refuse(vec![UrlSpec {
            weight: f64::NAN,
            ..UrlSpec::get("/")
        }])
        .contains("not a weight")
    );
    assert!(
        refuse(vec![UrlSpec {
            method: "G T".to_string(),
            ..UrlSpec::get("/")
        }])
        .contains("not a usable method")
    );
    assert!(refuse(vec![field("A", "b\r\nC: d")]).contains("not a field"));
    assert!(refuse(vec![field("connection", "close")]).contains("version"));
}

#[test]
fn weights_determine_shares() {
    let weights = [1.0, 2.0, 7.0];
    let specs = weights.iter().map(|&weight| UrlSpec {
        weight,
        ..UrlSpec::get(format!("/{weight}"))
    });
    let urls = list(specs.collect(), WorkloadVersion::Http11, false);
    assert_eq!(urls.classes(), ["GET /1", "GET /2", "GET /7"]);
    let mut session = urls.session(3, 9);
    let mut counts = [0; 3];
    let mut out = Vec::new();
    for _ in 0..1_000_000 {
        out.clear();
        counts[usize::from(session.request(false, &mut out).class)] += 1;
    }
    assert_fits(&counts, &weights, "shares of a list");
}

#[test]
fn equal_seeds_give_equal_traffic() {
    let specs: Vec<UrlSpec> = (0..300)
        .map(|number| UrlSpec::get(format!("/{number}")))
        .collect();
    let urls = list(specs, WorkloadVersion::Http11, false);
    assert_eq!(urls.classes(), ["all"]);
    let draw = |number| {
        let mut session = urls.session(number, 4);
        (0..50)
            .map(|_| text(&mut *session, false))
            .collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}
