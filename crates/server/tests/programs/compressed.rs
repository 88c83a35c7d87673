//! Compression of programs' responses: by every handler, streamed and stored, and within the limits.

use std::io::Read;

use lowroad_testkit::{ClientResponse, skip};

use crate::host::Host;
use crate::kept::counting;
use crate::talk::{self, End};

const GZIP: &str = "Accept-Encoding: gzip\r\n";
const ZSTD: &str = "Accept-Encoding: gzip, deflate, br, zstd\r\n";

const ROUTES: &str = r#"
[site.compress]
len_min = 1
programs = true
[[site.route]]
pattern = "/linked"
module = "linked"
[[site.route]]
pattern = "/library"
module = "library"
[[site.route]]
pattern = "/wasm"
module = "wasm"
[[site.route]]
pattern = "/plain/**"
cgi = "DIR/cgi"
compress = false
[[site.route]]
pattern = "/br/**"
cgi = "DIR/cgi"
compress = ["br"]
[[site.route]]
pattern = "/cgi/**"
cgi = "DIR/cgi"
[[site.route]]
pattern = "*.lrp"
pages = "db"
[[site.route]]
pattern = "*.php"
fastcgi = "unix:DIR/fpm.sock"
"#;

/// A program that repeats a line.
const LINES: &str = "printf 'Content-Type: text/plain\\nETag: \"a\"\\n\\n'\n\
    i=0; while [ $i -lt 2000 ]; do echo 'a line that is not the only one'; i=$((i+1)); done\n";

fn decoded(got: &ClientResponse) -> String {
    let mut back = String::new();
    let body = &got.body[..];
    match got.field("content-encoding") {
        None => return got.text(),
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_string(&mut back),
        Some("zstd") => zstd::stream::read::Decoder::new(body)
            .expect("a decoder")
            .read_to_string(&mut back),
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_string(&mut back),
        Some(other) => panic!("{other}"),
    }
    .expect("the whole of it");
    back
}

#[test]
fn responses_of_every_handler_are_compressed() {
    let host = Host::with_routes(ROUTES, &[("lines", LINES)]);
    let long = "x".repeat(500);
    host.file(
        "root/long.lrp",
        &format!("{long}{{{{ row('SELECT 1 AS n').n }}}}"),
    );
    host.file(
        "root/long.php",
        &format!("<?php echo str_repeat('{long}', 100);"),
    );
    let name = format!("?name={}", "You".repeat(30));
    let kinds = [
        format!("/linked{name}"),
        format!("/library{name}"),
        format!("/wasm{name}"),
        "/cgi/lines".into(),
        "/long.lrp".into(),
        "/long.php".into(),
    ];
    for path in &kinds {
        if path.ends_with(".php") && !host.has_php() {
            skip("responses_of_every_handler_are_compressed", "no php-fpm");
            continue;
        }
        let mut client = host.connect();
        let (plain, _) = talk::request_on(&mut client, "GET", path, "");
        assert_eq!((plain.status, plain.field("content-encoding")), (200, None));
        assert_eq!(plain.field("vary"), Some("Accept-Encoding"), "{path}");
        for (fields, coding) in [(GZIP, "gzip"), (ZSTD, "zstd")] {
            let (got, _) = talk::request_on(&mut client, "GET", path, fields);
            assert_eq!(got.field("content-encoding"), Some(coding), "{path}");
            assert!(got.body.len() < plain.body.len(), "{path}");
            assert_eq!(decoded(&got), plain.text(), "{path}");
        }
        let (head, _) = talk::request_on(&mut client, "HEAD", path, GZIP);
        assert_eq!(head.field("vary"), Some("Accept-Encoding"), "{path}");
        let (again, _) = talk::request_on(&mut client, "GET", path, "");
        assert_eq!(again.body, plain.body, "{path}");
    }
    let (got, _) = talk::ask(host.address(), "GET", "/plain/lines", GZIP);
    assert_eq!(
        (got.field("content-encoding"), got.field("vary")),
        (None, None)
    );
    assert_eq!(got.field("etag"), Some("\"a\""));
    let (got, _) = talk::ask(host.address(), "GET", "/br/lines", ZSTD);
    assert_eq!(got.field("content-encoding"), Some("br"));
    assert_eq!(decoded(&got).lines().count(), 2000);
    assert_eq!(got.field("etag"), Some("W/\"a\""));
}

#[test]
fn compressed_response_is_flushed_after_each_part() {
    let parts = "printf 'Content-Type: text/html\\n\\nthe first part'\n\
        while ! [ -e DIR/state/go ]; do sleep 0.01; done\nprintf ', and the last'\n";
    let host = Host::with_routes(ROUTES, &[("parts", parts)]);
    let mut client = host.connect();
    client.send(format!("GET /cgi/parts HTTP/1.1\r\nHost: a\r\n{GZIP}\r\n"));
    let head = talk::head(&mut client);
    assert!(head.contains("Content-Encoding: gzip\r\n"), "{head}");
    // Decompresses the bytes received so far.
    loop {
        let data = client.received.splitn(2, |byte| *byte == b'\n').nth(1);
        let mut back = Vec::new();
        let _ = flate2::read::GzDecoder::new(data.unwrap_or_default()).read_to_end(&mut back);
        if back == b"the first part" {
            break;
        }
        assert!(client.receive_once(), "it was cut");
    }
    host.file("state/go", "");
    let (body, end) = talk::chunks(&mut client);
    assert_eq!(end, End::Chunk);
    let got = ClientResponse {
        status: 200,
        head,
        body,
    };
    assert_eq!(decoded(&got), "the first part, and the last");
}

#[test]
fn stored_response_is_compressed_once() {
    let fields = "Cache-Control: max-age=60\\nETag: \"a\"\\n";
    let script = format!("{}seq 1000\n", counting("n", fields));
    let host = Host::with_routes(ROUTES, &[("n", &script)]);
    let mut client = host.connect();
    let mut count = |accepts: &str, more: &str| {
        let (got, _) = talk::request_on(&mut client, "GET", "/cgi/n", &format!("{accepts}{more}"));
        let tag = got.field("etag").map(str::to_string);
        (
            got.status,
            decoded(&got).lines().next().map(str::to_string),
            tag,
        )
    };
    let whole = |number: &str, tag: &str| (200, Some(number.to_string()), Some(tag.to_string()));
    for _ in 0..3 {
        assert_eq!(count(GZIP, ""), whole("1", "W/\"a\""));
    }
    for _ in 0..3 {
        assert_eq!(count("", ""), whole("2", "\"a\""));
        assert_eq!(count(ZSTD, ""), whole("3", "W/\"a\""));
        assert_eq!(count(GZIP, ""), whole("1", "W/\"a\""));
        // In any spelling of the accepted coding.
        assert_eq!(count("accept-encoding:GZIP\r\n", ""), whole("1", "W/\"a\""));
    }
    let known = count(GZIP, "If-None-Match: W/\"a\"\r\n");
    assert_eq!(known, (304, None, Some("W/\"a\"".into())));
    assert_eq!(host.status().value("compressed"), 2);
}

#[test]
fn responses_beyond_compressors_max_are_not_compressed() {
    let held = "printf 'Content-Type: text/html\\n\\n'\n\
        while ! [ -e DIR/state/go ]; do sleep 0.01; done\nprintf 'over'\n";
    let scripts = [("held", held), ("lines", LINES)];
    let host = Host::with_limits("compressors_max = 1\n", ROUTES, &scripts);
    let mut client = host.connect();
    client.send(format!("GET /cgi/held HTTP/1.1\r\nHost: a\r\n{GZIP}\r\n"));
    let head = talk::head(&mut client);
    assert!(head.contains("Content-Encoding: gzip\r\n"), "{head}");
    let (got, _) = talk::ask(host.address(), "GET", "/cgi/lines", GZIP);
    assert_eq!(got.field("content-encoding"), None);
    assert_eq!(got.field("vary"), Some("Accept-Encoding"));
    assert_eq!(got.text().lines().count(), 2000);
    assert_eq!(host.status().value("compress_refused"), 1);
    host.file("state/go", "");
    assert_eq!(talk::chunks(&mut client).1, End::Chunk);
    let (got, _) = talk::ask(host.address(), "GET", "/cgi/lines", GZIP);
    assert_eq!(got.field("content-encoding"), Some("gzip"));
}
