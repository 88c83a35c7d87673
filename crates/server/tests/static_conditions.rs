//! Conditional and range requests, for each way of sending a file: inline, from the arena, and from the file.
//!
//! RFC 9110 §13 (especially the order in §13.2.2) and §14.

use std::time::{Duration, UNIX_EPOCH};

use lowroad_testkit::{TempFolder, TestServer};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
/// The date of all files: Sun, 06 Nov 1994 08:49:37 GMT.
const DATED_S: u64 = 784_111_777;
const DATED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
const FILES: [(&str, usize); 3] = [
    ("/small.bin", 1000),
    ("/medium.bin", 100_000),
    ("/large.bin", 3 << 20),
];

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at / 7 % 251) as u8 ^ (at >> 13) as u8)
        .collect()
}

fn serve() -> (TempFolder, TestServer) {
    let folder = TempFolder::new();
    for (path, len) in FILES {
        let dated = UNIX_EPOCH + Duration::from_secs(DATED_S);
        folder.file_modified_at(&path[1..], pattern(len), dated);
    }
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    (folder, server)
}

fn etag(server: &TestServer, path: &str) -> String {
    let got = server.get(path);
    got.field("etag").expect("a tag").to_string()
}

#[test]
fn preconditions_are_evaluated_in_rfc_9110_order() {
    let (_folder, server) = serve();
    // E stands for the file's ETag.
    let cases = [
        ("If-Match: E", 200),
        ("If-Match: *", 200),
        ("If-Match: \"x\", E", 200),
        ("If-Match: \"x\"", 412),
        // If-Match compares strongly (RFC 9110 §13.1.1), If-None-Match weakly (§13.1.2).
        ("If-Match: W/E", 412),
        ("If-Unmodified-Since: @", 200),
        ("If-Unmodified-Since: >", 200),
        ("If-Unmodified-Since: <", 412),
        // An invalid date is ignored (RFC 9110 §13.1.4).
        ("If-Unmodified-Since: yesterday", 200),
        // Order as in RFC 9110 §13.2.2: step 1 before step 2,
        ("If-Match: E\r\nIf-Unmodified-Since: <", 200),
        ("If-Match: \"x\"\r\nIf-Unmodified-Since: >", 412),
        ("If-None-Match: E", 304),
        ("If-None-Match: W/E", 304),
        ("If-None-Match: *", 304),
        ("If-None-Match: \"x\", \"y,z\", E", 304),
        ("If-None-Match: \"x\"\r\nIf-None-Match: E", 304),
        ("If-None-Match: \"x\"", 200),
        ("If-Modified-Since: @", 304),
        ("If-Modified-Since: >", 304),
        ("If-Modified-Since: <", 200),
        ("If-Modified-Since: yesterday", 200),
        // steps 1 and 2 before step 3,
        ("If-Match: \"x\"\r\nIf-None-Match: E", 412),
        ("If-Match: E\r\nIf-None-Match: E", 304),
        ("If-Unmodified-Since: <\r\nIf-None-Match: E", 412),
        // step 3 before step 4,
        ("If-None-Match: \"x\"\r\nIf-Modified-Since: @", 200),
        ("If-None-Match: E\r\nIf-Modified-Since: <", 304),
        ("If-Match: \"x\"\r\nIf-Modified-Since: @", 412),
        // and all of them before step 5.
        ("If-None-Match: E\r\nRange: bytes=0-1", 304),
        ("If-Modified-Since: @\r\nRange: bytes=0-1", 304),
        ("If-Match: \"x\"\r\nRange: bytes=0-1", 412),
        ("If-Match: \"x\"\r\nRange: bytes=99999999-", 412),
        ("If-None-Match: \"x\"\r\nRange: bytes=0-1", 206),
        ("If-Match: E\r\nIf-Range: E\r\nRange: bytes=0-1", 206),
        ("If-Match: E\r\nIf-Range: \"x\"\r\nRange: bytes=0-1", 200),
    ];
    let mut client = server.connect();
    for (path, _) in FILES {
        let tag = etag(&server, path);
        for (fields, status) in cases {
            let fields = fields
                .replace('E', &tag)
                .replace('@', DATED)
                .replace('<', BEFORE)
                .replace('>', AFTER);
            let got = client.get(path, &format!("{fields}\r\n"));
            assert_eq!(got.status, status, "{path} {fields}");
            client.send(format!(
                "HEAD {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"
            ));
            // Ranges apply to GET only.
            let status = if status == 206 { 200 } else { status };
            assert_eq!(
                client.response_to_head().status,
                status,
                "HEAD {path} {fields}"
            );
        }
    }
}

#[test]
fn not_modified_has_last_modified_and_etag() {
    let (_folder, server) = serve();
    let mut client = server.connect();
    for (path, _) in FILES {
        let etag = etag(&server, path);
        let got = client.get(path, &format!("If-None-Match: {etag}\r\n"));
        let head =
            format!("HTTP/1.1 304 Not Modified\r\nLast-Modified: {DATED}\r\nETag: {etag}\r\n\r\n");
        assert_eq!(got.dateless_head(), head);
    }
    let gone = client.get("/missing", "If-None-Match: *\r\nIf-Match: \"x\"\r\n");
    assert_eq!(
        gone.status, 404,
        "conditions count only where there is something"
    );
}

#[test]
fn single_range_gets_206() {
    let (_folder, server) = serve();
    let mut client = server.connect();
    for (path, len) in FILES {
        let body = pattern(len);
        let last = len - 1;
        for (spec, start, end) in [
            ("0-0".to_string(), 0, 1),
            ("0-99".to_string(), 0, 100),
            ("100-".to_string(), 100, len),
            (format!("{last}-"), last, len),
            ("-1".to_string(), last, len),
            ("-500".to_string(), len - 500, len),
            (format!("-{len}"), 0, len),
            // A suffix longer than the file selects the whole (RFC 9110 §14.1.2).
            (format!("-{}", len + 1), 0, len),
            (format!("0-{last}"), 0, len),
            (format!("7-{}", len * 2), 7, len),
            ("7-99999999999999999999999".to_string(), 7, len),
            // Touching or overlapping ranges are combined; those beyond the end are ignored.
            ("0-9,10-19".to_string(), 0, 20),
            ("5-14,0-9".to_string(), 0, 15),
            (format!("3-4,{len}-"), 3, 5),
            (" 0-0 , ".to_string(), 0, 1),
        ] {
            let got = client.get(path, &format!("Range: bytes={spec}\r\n"));
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\nLast-Modified: {DATED}\r\nETag: {}\r\n\
                 Content-Type: application/octet-stream\r\nAccept-Ranges: bytes\r\n\
                 Content-Range: bytes {start}-{}/{len}\r\nContent-Length: {}\r\n\r\n",
                etag(&server, path),
                end - 1,
                end - start
            );
            assert_eq!(got.dateless_head(), head, "{path} {spec}");
            assert!(got.body == body[start..end], "{path} {spec}: other bytes");
        }
    }
}

#[test]
fn several_ranges_get_multipart_byteranges() {
    let (_folder, server) = serve();
    let mut client = server.connect();
    for (path, len) in FILES {
        let body = pattern(len);
        for (spec, ranges) in [
            ("0-9,20-29", vec![(0, 10), (20, 30)]),
            ("-10,0-9", vec![(len - 10, len), (0, 10)]),
            ("0-0,-1", vec![(0, 1), (len - 1, len)]),
            (
                "500-599,100-199,300-399",
                vec![(500, 600), (100, 200), (300, 400)],
            ),
            ("0-9,20-29,5-14", vec![(0, 15), (20, 30)]),
            ("0-199,400-", vec![(0, 200), (400, len)]),
        ] {
            let got = client.get(path, &format!("Range: bytes={spec}\r\n"));
            assert_eq!(got.status, 206, "{path} {spec}");
            let content_type = got.field("content-type").unwrap_or_default();
            let boundary = content_type.strip_prefix("multipart/byteranges; boundary=");
            let boundary = boundary.expect("a boundary");
            let mut expected = Vec::new();
            for (start, end) in ranges {
                let head = format!(
                    "\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\n\
                     Content-Range: bytes {start}-{}/{len}\r\n\r\n",
                    end - 1
                );
                expected.extend_from_slice(head.as_bytes());
                expected.extend_from_slice(&body[start..end]);
            }
            expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
            assert!(got.body == expected, "{path} {spec}: other bytes");
            assert_eq!(got.field("content-range"), None, "{path} {spec}");
            assert_eq!(
                got.field("etag"),
                Some(&*etag(&server, path)),
                "{path} {spec}"
            );
        }
    }
}

#[test]
fn unsatisfiable_range_gets_416_and_invalid_range_is_ignored() {
    let (_folder, server) = serve();
    let mut client = server.connect();
    for (path, len) in FILES {
        for spec in [format!("{len}-"), format!("{len}-{}", len * 2), "-0".into()] {
            let got = client.get(path, &format!("Range: bytes={spec}\r\n"));
            assert_eq!(got.status, 416, "{path} {spec}");
            let length = format!("bytes */{len}");
            assert_eq!(got.field("content-range"), Some(&*length), "{path} {spec}");
        }
        // More ranges than the server serves in one response.
        let many = (0..40)
            .map(|at| format!("{0}-{0}", at * 3))
            .collect::<Vec<_>>();
        for value in [
            "lines=0-1".to_string(),
            "bytes".to_string(),
            "bytes=".to_string(),
            "bytes=9-8".to_string(),
            "bytes=a-b".to_string(),
            "bytes=0-1,x".to_string(),
            "bytes=1 - 2".to_string(),
            "bytes=-".to_string(),
            // More than the whole file, or too many ranges.
            "bytes=0-,0-,0-".to_string(),
            format!("bytes={}", many.join(",")),
        ] {
            let got = client.get(path, &format!("Range: {value}\r\n"));
            assert_eq!((got.status, got.body.len()), (200, len), "{path} {value}");
        }
    }
}

#[test]
fn if_range_requires_a_strong_match() {
    let (_folder, server) = serve();
    let mut client = server.connect();
    for (path, len) in FILES {
        let own = etag(&server, path);
        for (value, status) in [
            (own.clone(), 206),
            // If-Range compares strongly (RFC 9110 §13.1.5).
            (format!("W/{own}"), 200),
            ("\"x\"".to_string(), 200),
            (DATED.to_string(), 206),
            (AFTER.to_string(), 200),
            (BEFORE.to_string(), 200),
            ("yesterday".to_string(), 200),
        ] {
            let fields = format!("Range: bytes=10-19\r\nIf-Range: {value}\r\n");
            let got = client.get(path, &fields);
            let body_len = if status == 206 { 10 } else { len };
            assert_eq!(
                (got.status, got.body.len()),
                (status, body_len),
                "{path} {value}"
            );
        }
        // If If-Range does not match, an unsatisfiable range is ignored.
        let fields = format!("Range: bytes={len}-\r\nIf-Range: \"x\"\r\n");
        assert_eq!(client.get(path, &fields).status, 200, "{path}");
        assert_eq!(
            client.get(path, "If-Range: \"x\"\r\n").status,
            200,
            "{path}"
        );
    }
}

/// The response to a range request for the second half of a file, with the ETag of the first half in If-Range.
fn resumed(server: &TestServer, tag: &str) -> (u16, Vec<u8>) {
    let fields = format!("Range: bytes=5-\r\nIf-Range: {tag}\r\n");
    let got = server.connect().get("/file", &fields);
    (got.status, got.body)
}

#[test]
fn changed_file_of_same_length_and_time_has_another_etag() {
    // Typical dates of files from packages, archives and reproducible builds.
    for dated_s in [0, 1, 315_532_800, DATED_S] {
        let dated = UNIX_EPOCH + Duration::from_secs(dated_s);
        let folder = TempFolder::new();
        folder.file_modified_at("file", "first half", dated);
        let server = TestServer::serve(PROGRAM, &folder, &[]);
        let old = etag(&server, "/file");
        assert_eq!(resumed(&server, &old), (206, b" half".to_vec()));
        folder.file_modified_at("new", "other part", dated);
        std::fs::rename(folder.path().join("new"), folder.path().join("file")).expect("renamed");
        lowroad_testkit::wait_until("the other file", || {
            (server.get("/file").body == b"other part").then_some(())
        });
        assert_ne!(etag(&server, "/file"), old, "{dated_s}");
        assert_eq!(resumed(&server, &old), (200, b"other part".to_vec()));
        let known = server
            .connect()
            .get("/file", &format!("If-None-Match: {old}\r\n"));
        assert_eq!(known.status, 200, "{dated_s}");
        // A meaningless modification time is not sent.
        let says_time = server.get("/file").field("last-modified").is_some();
        assert_eq!(says_time, dated_s == DATED_S, "{dated_s}");
    }
}

#[test]
fn content_etags_are_equal_on_servers_with_equal_files() {
    let site = || {
        let folder = TempFolder::new();
        for (path, len) in FILES {
            folder.file(format!("www{path}"), pattern(len));
        }
        folder.file("www/text.txt", "compressible ".repeat(100));
        folder.file("www/packed.txt", "identity");
        folder.file("www/packed.txt.gz", "gzip, it says");
        let config = format!(
            "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{}\"\netag = \"content\"\n",
            folder.path().join("www").display()
        );
        let server = TestServer::run(PROGRAM, &folder, &config);
        (folder, server)
    };
    let (one, other) = (site(), site());
    let paths = FILES.map(|(path, _)| path);
    let mut tags = Vec::new();
    for path in paths.iter().chain(&["/text.txt", "/packed.txt"]) {
        for fields in ["", "Accept-Encoding: gzip\r\n"] {
            let tag_of = |server: &TestServer| {
                let got = server.connect().get(path, fields);
                got.field("etag").expect("a tag").to_string()
            };
            let tag = tag_of(&one.1);
            assert_eq!(tag, tag_of(&other.1), "{path} {fields}");
            assert!(tag.starts_with('"'), "{tag} is strong");
            tags.push(tag);
        }
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 3 + 2 * 2, "each representation has one");
    std::fs::write(one.0.path().join("www/large.bin"), pattern(3 << 20 | 1)).expect("written");
    lowroad_testkit::wait_until("another tag", || {
        (etag(&one.1, "/large.bin") != etag(&other.1, "/large.bin")).then_some(())
    });
}

#[test]
fn ranges_of_an_empty_file_get_200() {
    let folder = TempFolder::new();
    folder.file("empty.txt", "");
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let mut client = server.connect();
    for spec in ["0-", "0-1023", "0-0", "-5", "-0", "7-", "0-,-5"] {
        let got = client.get("/empty.txt", &format!("Range: bytes={spec}\r\n"));
        assert_eq!((got.status, got.body.len()), (200, 0), "{spec}");
        assert_eq!(got.field("content-range"), None, "{spec}");
    }
}
