//! Workers in front of another web server change nothing that its clients can see, apart from what is stored: its
//! responses are compressed as without them, and an early response keeps the connection.

use lowroad_testkit::{Client, Response};

use crate::attached::{get, server_v4};
use crate::skipped;
use crate::worker::{ALONE, Line, Workers};

/// Shows the Via of the request, and compresses without saying so in Vary.
const NGINX: &str = "gzip on; gzip_types *; gzip_min_length 1; gzip_vary off; expires 10m; add_header Seen-Via $http_via;";

fn ask(line: &Line, page: &str, fields: &str) -> Response {
    let request = format!("GET {page} HTTP/1.1\r\nHost: test\r\n{fields}\r\n");
    line.path.client.enter(|| {
        let mut client = Client::connect(server_v4(80));
        client.send(&request);
        client.response()
    })
}

#[test]
fn responses_are_compressed_as_without_a_proxy() {
    if skipped("responses_are_compressed_as_without", &["nginx"]) {
        return;
    }
    let line = Line::nginx(&[30_000], NGINX);
    let _workers = Workers::start(&line.path.server, ALONE);
    for via in ["", "1.1 other"] {
        let fields = match via {
            "" => "Accept-Encoding: gzip\r\n".to_owned(),
            via => format!("Via: {via}\r\n"),
        };
        // Never answered from the cache.
        let response = ask(&line, line.page(0), &(fields + "Cookie: a=b\r\n"));
        let seen = response.field("seen-via").unwrap_or_default();
        assert_eq!(seen, via, "{}", response.head);
        let encoding = response.field("content-encoding");
        assert_eq!(
            encoding,
            via.is_empty().then_some("gzip"),
            "{}",
            response.head
        );
    }
}

/// The level below distinguishes requests by Accept-Encoding, whatever Vary names; so do the workers.
#[test]
fn a_stored_response_is_for_one_accept_encoding() {
    if skipped("a_stored_response_is_for_one_accept_encoding", &["nginx"]) {
        return;
    }
    let line = Line::nginx(&[30_000], NGINX);
    let _workers = Workers::start(&line.path.server, ALONE);
    let accepted = [
        "Accept-Encoding: gzip\r\n",
        "",
        "Accept-Encoding: identity\r\n",
    ];
    for round in 0..3 {
        for fields in accepted {
            let response = ask(&line, line.page(0), fields);
            let wanted = fields.contains("gzip").then_some("gzip");
            let head = &response.head;
            assert_eq!(
                response.field("content-encoding"),
                wanted,
                "{round} {fields}: {head}"
            );
            // Admitted at the second request.
            assert!(
                round < 2 || response.field("age").is_some(),
                "{fields}: {head}"
            );
        }
    }
}

#[test]
fn an_early_response_keeps_the_connection_where_the_rest_is_short() {
    if skipped("an_early_response_keeps_the_connection", &["nginx"]) {
        return;
    }
    let line = Line::nginx(&[2_000], "");
    let _workers = Workers::start(&line.path.server, ALONE);
    let page = line.page(0);
    line.path.client.enter(|| {
        let mut client = Client::connect(server_v4(80));
        for _ in 0..3 {
            client.send(format!(
                "POST {page} HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\n"
            ));
            let refused = client.response();
            assert_eq!(refused.status, 405, "{}", refused.head);
            assert_eq!(refused.field("connection"), None, "{}", refused.head);
            client.send([b'x'; 1000]);
            client.send(get(page));
            assert_eq!(client.response().body.len(), 2_000);
        }
    });
}
