//! Workers in front of another web server change nothing that clients can see, except that responses are stored:
//! responses are compressed as without workers, an early response keeps the connection open, and the access log has
//! each request.

use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::path::PathBuf;

use lowroad_testkit::net::{CLIENT, LinkMangling, TestPath};
use lowroad_testkit::{ClientResponse, TempFolder, TestClient, wait_until};

use crate::attached::{get, server_v4};
use crate::skipped;
use crate::worker::{ALONE, ServerLink, Workers};

/// nginx returns the Via of the request, and compresses without listing Accept-Encoding in Vary.
const NGINX: &str = "gzip on; gzip_types *; gzip_min_length 1; gzip_vary off; expires 10m; add_header Seen-Via $http_via;";

fn ask(line: &ServerLink, page: &str, fields: &str) -> ClientResponse {
    let request = format!("GET {page} HTTP/1.1\r\nHost: test\r\n{fields}\r\n");
    line.path.client.enter(|| {
        let mut client = TestClient::connect(server_v4(80));
        client.send(&request);
        client.response()
    })
}

#[test]
fn responses_are_compressed_as_without_workers() {
    if skipped("responses_are_compressed_as_without_workers", &["nginx"]) {
        return;
    }
    let line = ServerLink::nginx(&[30_000], NGINX);
    let _workers = Workers::start(&line.path.server, ALONE);
    for via in ["", "1.1 other"] {
        let fields = match via {
            "" => "Accept-Encoding: gzip\r\n".to_owned(),
            via => format!("Via: {via}\r\n"),
        };
        // A request with a cookie is never answered from the cache.
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

/// Like the level, the workers distinguish requests by Accept-Encoding even if Vary does not list it.
#[test]
fn stored_response_answers_one_accept_encoding() {
    if skipped("stored_response_answers_one_accept_encoding", &["nginx"]) {
        return;
    }
    let line = ServerLink::nginx(&[30_000], NGINX);
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
            // A response is stored at the second request for it.
            assert!(
                round < 2 || response.field("age").is_some(),
                "{fields}: {head}"
            );
        }
    }
}

#[test]
fn early_response_keeps_connection_if_rest_of_body_is_short() {
    if skipped(
        "early_response_keeps_connection_if_rest_of_body_is_short",
        &["nginx"],
    ) {
        return;
    }
    let line = ServerLink::nginx(&[2_000], "");
    let _workers = Workers::start(&line.path.server, ALONE);
    let page = line.page(0);
    line.path.client.enter(|| {
        let mut client = TestClient::connect(server_v4(80));
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

/// The access log of workers.
struct AccessLog {
    _folder: TempFolder,
    path: PathBuf,
}

impl AccessLog {
    fn new() -> (AccessLog, File) {
        let folder = TempFolder::new();
        let path = folder.path().join("log");
        let file = File::create(&path).expect("a file");
        let log = AccessLog {
            _folder: folder,
            path,
        };
        (log, file)
    }

    /// Waits for a line with this text.
    fn wait_for(&self, text: &str) -> String {
        wait_until(text, || {
            let lines = fs::read_to_string(&self.path).expect("a log");
            let found = lines.lines().find(|line| line.contains(text));
            found.map(str::to_owned)
        })
    }
}

#[test]
fn access_log_has_each_request_with_its_client() {
    if skipped("access_log_has_each_request_with_its_client", &[]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    // This server accepts connections and reads, but never responds.
    let listener = path.server.enter(|| TcpListener::bind("0.0.0.0:80"));
    let listener = listener.expect("a port");
    let (log, file) = AccessLog::new();
    let options = [ALONE, &["--log", "combined"]].concat();
    let _workers = Workers::start_to(&path.server, &options, file.into());
    for (request, status) in [
        ("GET /waits HTTP/1.1\r\nHost: test\r\n\r\n", 499),
        ("GET /passed/../a HTTP/1.1\r\nHost: test\r\n\r\n", 0),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0),
    ] {
        let client = path.client.enter(|| {
            let mut client = TestClient::connect(server_v4(80));
            client.send(request);
            client
        });
        // A connection without any bytes is a connection test of `attach`.
        let reaches = |listener: &TcpListener| {
            let (mut server, _) = listener.accept().ok()?;
            let len = server.read(&mut [0; 1024]).ok()?;
            (len > 0).then_some(server)
        };
        let _server = wait_until("the request", || reaches(&listener));
        client.reset();
        let first = request.lines().next().unwrap_or_default();
        let line = log.wait_for(first);
        assert!(line.starts_with(&CLIENT.0.to_string()), "{line}");
        assert!(line.contains(&format!("\" {status} 0 ")), "{line}");
    }
}
