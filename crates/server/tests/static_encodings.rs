//! Content codings: precompressed files beside the original, and responses that are compressed once and stored.
//!
//! RFC 9110 §8.4.1, §12.5.3 (Accept-Encoding), §12.5.5 (Vary).

use std::io::Read;
use std::time::{Duration, SystemTime};

use lowroad_testkit::{ClientResponse, TempFolder, TestClient, TestServer};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
const ENCODINGS: [&str; 3] = ["br", "zstd", "gzip"];

/// Lines that compress well but are all different.
fn prose(len: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|n: u64| format!("{n}: the {} low road\n", n * n).into_bytes());
    lines.take(len).collect()
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn decoded(encoding: Option<&str>, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match encoding {
        None => out.extend_from_slice(body),
        Some("gzip") => {
            let mut decoder = flate2::read::GzDecoder::new(body);
            decoder.read_to_end(&mut out).expect("gzip");
        }
        Some("br") => brotli::BrotliDecompress(&mut &body[..], &mut out).expect("br"),
        Some("zstd") => out = zstd::bulk::decompress(body, 8 << 20).expect("zstd"),
        Some(other) => panic!("unknown encoding {other}"),
    }
    out
}

fn accept(client: &mut TestClient, path: &str, value: &str) -> ClientResponse {
    client.get(path, &format!("Accept-Encoding: {value}\r\n"))
}

#[test]
fn text_is_compressed_by_accept_encoding() {
    let folder = TempFolder::new();
    for len in [300, 5_000, 100_000] {
        folder.file(format!("{len}.txt"), prose(len));
    }
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let mut client = server.connect();
    for len in [300, 5_000, 100_000] {
        let path = format!("/{len}.txt");
        let plain = client.get(&path, "");
        assert!(plain.body == prose(len), "{path}");
        assert_eq!(plain.field("vary"), Some("Accept-Encoding"), "{path}");
        assert_eq!(plain.field("content-encoding"), None, "{path}");
        let mut tags = vec![plain.field("etag").expect("a tag").to_string()];
        for encoding in ENCODINGS {
            let got = accept(&mut client, &path, encoding);
            assert_eq!(got.field("content-encoding"), Some(encoding), "{path}");
            assert_eq!(got.field("vary"), Some("Accept-Encoding"), "{path}");
            assert_eq!(got.field("content-type"), plain.field("content-type"));
            assert_eq!(got.field("last-modified"), plain.field("last-modified"));
            assert!(
                got.body.len() < len * 9 / 10,
                "{path} {encoding}: not shorter"
            );
            assert!(
                decoded(Some(encoding), &got.body) == plain.body,
                "{path} {encoding}"
            );
            let tag = got.field("etag").expect("a tag").to_string();
            assert!(
                !tags.contains(&tag),
                "{path} {encoding}: {tag} is another's"
            );
            tags.push(tag);
            // The same request again, and HEAD.
            assert_eq!(accept(&mut client, &path, encoding).body, got.body);
            let head =
                format!("HEAD {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {encoding}\r\n\r\n");
            client.send(head);
            let head = client.response_to_head();
            assert_eq!(
                head.dateless_head(),
                got.dateless_head(),
                "{path} {encoding}"
            );
        }
    }
}

#[test]
fn each_encoding_has_its_own_etag() {
    let folder = TempFolder::new();
    folder.file("a.css", prose(20_000));
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let mut client = server.connect();
    let plain_tag = client
        .get("/a.css", "")
        .field("etag")
        .expect("a tag")
        .to_string();
    for encoding in ENCODINGS {
        let got = accept(&mut client, "/a.css", encoding);
        let tag = got.field("etag").expect("a tag").to_string();
        let fields = format!("Accept-Encoding: {encoding}\r\nIf-None-Match: {tag}\r\n");
        let again = client.get("/a.css", &fields);
        assert_eq!(again.status, 304, "{encoding}");
        assert_eq!(again.field("etag"), Some(&*tag));
        assert_eq!(again.field("vary"), Some("Accept-Encoding"));
        assert_eq!(again.field("content-encoding"), None);
        let fields = format!("Accept-Encoding: {encoding}\r\nIf-None-Match: {plain_tag}\r\n");
        assert_eq!(client.get("/a.css", &fields).status, 200, "{encoding}");
        let fields = format!("If-None-Match: {tag}\r\n");
        assert_eq!(client.get("/a.css", &fields).status, 200, "{encoding}");
        // Ranges apply to the encoded bytes.
        let fields =
            format!("Accept-Encoding: {encoding}\r\nRange: bytes=10-99\r\nIf-Range: {tag}\r\n");
        let part = client.get("/a.css", &fields);
        assert_eq!((part.status, &part.body[..]), (206, &got.body[10..100]));
        assert_eq!(part.field("content-encoding"), Some(encoding));
        let range = format!("bytes 10-99/{}", got.body.len());
        assert_eq!(part.field("content-range"), Some(&*range));
        let fields = format!(
            "Accept-Encoding: {encoding}\r\nRange: bytes=10-99\r\nIf-Range: {plain_tag}\r\n"
        );
        assert_eq!(client.get("/a.css", &fields).status, 200, "{encoding}");
    }
}

#[test]
fn accept_encoding_weights_are_respected() {
    let folder = TempFolder::new();
    folder.file("a.txt", prose(5_000));
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let mut client = server.connect();
    for (value, encoding) in [
        ("gzip, deflate, br, zstd", Some("br")),
        ("gzip, zstd", Some("zstd")),
        ("gzip;q=1.0, br;q=0.5", Some("gzip")),
        ("br;q=0.1, zstd;q=0.2, gzip;q=0.15", Some("zstd")),
        ("br;q=0, *", Some("zstd")),
        ("*;q=0", None),
        ("identity", None),
        ("gzip;q=0", None),
        ("gzip;q=0.5, identity", None),
        ("identity;q=0, gzip", Some("gzip")),
        ("deflate", None),
        ("", None),
        ("nonsense;;q=x", None),
        ("GZIP", Some("gzip")),
    ] {
        let got = accept(&mut client, "/a.txt", value);
        assert_eq!(got.field("content-encoding"), encoding, "{value}");
        assert_eq!(decoded(encoding, &got.body), prose(5_000), "{value}");
        assert_eq!(got.field("vary"), Some("Accept-Encoding"), "{value}");
    }
}

#[test]
fn short_incompressible_and_large_files_are_not_compressed() {
    let folder = TempFolder::new();
    folder.file("short.txt", prose(255));
    folder.file("noise.txt", noise(50_000));
    folder.file("picture.png", prose(5_000));
    folder.file("large.txt", prose(2 << 20));
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let mut client = server.connect();
    for (path, body) in [
        ("/short.txt", prose(255)),
        ("/noise.txt", noise(50_000)),
        ("/picture.png", prose(5_000)),
        ("/large.txt", prose(2 << 20)),
    ] {
        for _ in 0..2 {
            let got = accept(&mut client, path, "gzip, br, zstd");
            assert_eq!(got.field("content-encoding"), None, "{path}");
            assert!(got.body == body, "{path}");
        }
    }
    // Files with only one variant have no Vary.
    assert_eq!(client.get("/short.txt", "").field("vary"), None);
    assert_eq!(client.get("/picture.png", "").field("vary"), None);
}

#[test]
fn second_request_in_an_encoding_is_a_cache_hit() {
    let folder = TempFolder::new();
    folder.file("a.txt", prose(5_000));
    folder.file("b.txt", prose(5_000));
    let server = TestServer::serve(PROGRAM, &folder, &["--log", "json"]);
    let mut client = server.connect();
    for (path, encoding) in [("/a.txt", "br"), ("/a.txt", "gzip"), ("/b.txt", "identity")] {
        for outcome in ["miss", "hit", "hit"] {
            accept(&mut client, path, encoding);
            let line = server.wait_for_line("\"request\"");
            let wanted = format!("\"outcome\":\"{outcome}\"");
            assert!(line.contains(&wanted), "{path} {encoding}: {line}");
        }
    }
}

/// A file with precompressed siblings. The contents of the siblings differ visibly from the original.
fn prepared(folder: &TempFolder, name: &str) {
    folder.file(name, prose(3_000));
    for suffix in ["br", "zst", "gz"] {
        folder.file(
            format!("{name}.{suffix}"),
            format!("prepared {name} {suffix}"),
        );
    }
}

#[test]
fn precompressed_siblings_are_served_by_accept_encoding() {
    let folder = TempFolder::new();
    for name in ["a.json", "a.bin", "sub/index.html"] {
        prepared(&folder, name);
    }
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let mut client = server.connect();
    for (path, name) in [
        ("/a.json", "a.json"),
        ("/a.bin", "a.bin"),
        ("/sub/", "sub/index.html"),
    ] {
        let plain = client.get(path, "");
        assert_eq!(plain.body, prose(3_000), "{path}");
        assert_eq!(plain.field("vary"), Some("Accept-Encoding"), "{path}");
        for (encoding, suffix) in [("br", "br"), ("zstd", "zst"), ("gzip", "gz")] {
            let got = accept(&mut client, path, encoding);
            assert_eq!(got.text(), format!("prepared {name} {suffix}"));
            assert_eq!(got.field("content-encoding"), Some(encoding), "{path}");
            assert_eq!(
                got.field("content-type"),
                plain.field("content-type"),
                "{path}"
            );
            assert_eq!(got.field("vary"), Some("Accept-Encoding"), "{path}");
            assert_ne!(got.field("etag"), plain.field("etag"), "{path}");
            let tag = got.field("etag").expect("a tag");
            let fields = format!("Accept-Encoding: {encoding}\r\nIf-None-Match: {tag}\r\n");
            assert_eq!(client.get(path, &fields).status, 304, "{path} {encoding}");
        }
    }
    // Requested by its own name, a precompressed sibling is an ordinary file.
    let own = accept(&mut client, "/a.json.gz", "gzip");
    assert_eq!(own.field("content-encoding"), None);
    assert_eq!(own.field("content-type"), Some("application/gzip"));
}

#[test]
fn sibling_older_than_its_original_is_not_served() {
    let folder = TempFolder::new();
    let now = SystemTime::now();
    let ago = |seconds| now - Duration::from_secs(seconds);
    folder.file_modified_at("older.bin", "original", ago(100));
    folder.file_modified_at("older.bin.gz", "sibling", ago(101));
    folder.file_modified_at("same.bin", "original", ago(100));
    folder.file_modified_at("same.bin.gz", "sibling", ago(100));
    folder.file_modified_at("older.txt", prose(3_000), ago(100));
    folder.file_modified_at("older.txt.gz", "sibling", ago(101));
    std::fs::create_dir(folder.path().join("same.bin.br")).expect("a folder");
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let mut client = server.connect();
    let got = accept(&mut client, "/older.bin", "gzip");
    assert_eq!((got.text().as_str(), got.field("vary")), ("original", None));
    assert_eq!(
        accept(&mut client, "/same.bin", "gzip, br").text(),
        "sibling"
    );
    // An outdated sibling is ignored, and text is compressed instead.
    let got = accept(&mut client, "/older.txt", "gzip");
    assert_eq!(decoded(Some("gzip"), &got.body), prose(3_000));
}

#[test]
fn large_file_is_compressed_only_by_siblings() {
    let folder = TempFolder::new();
    folder.file("large.txt", prose(3 << 20));
    folder.file("large.txt.gz", noise(2 << 20));
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let mut client = server.connect();
    for _ in 0..2 {
        let got = accept(&mut client, "/large.txt", "br, gzip");
        assert_eq!(got.field("content-encoding"), Some("gzip"));
        assert!(got.body == noise(2 << 20));
        let fields = "Accept-Encoding: gzip\r\nRange: bytes=1000000-1499999\r\n";
        let part = client.get("/large.txt", fields);
        assert_eq!(
            (part.status, part.field("content-encoding")),
            (206, Some("gzip"))
        );
        assert!(part.body == noise(2 << 20)[1_000_000..1_500_000]);
        assert!(client.get("/large.txt", "").body == prose(3 << 20));
    }
}

#[test]
fn compression_can_be_disabled_by_site() {
    let folder = TempFolder::new();
    prepared(&folder, "a.json");
    folder.file("b.txt", prose(5_000));
    let config = |compress: &str| {
        format!(
            "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{}\"\ncompress = {{ {compress} }}\n",
            folder.path().display()
        )
    };
    let chosen = |text: &str, path: &str| {
        let server = TestServer::run(PROGRAM, &folder, &config(text));
        let got = accept(&mut server.connect(), path, "br, zstd, gzip");
        got.field("content-encoding").unwrap_or("none").to_string()
    };
    assert_eq!(
        chosen("precompressed = false, enabled = false", "/a.json"),
        "none"
    );
    assert_eq!(chosen("enabled = false", "/a.json"), "br");
    assert_eq!(chosen("enabled = false", "/b.txt"), "none");
    assert_eq!(chosen("encodings = [\"gzip\"]", "/a.json"), "gzip");
    assert_eq!(chosen("encodings = [\"gzip\", \"zstd\"]", "/b.txt"), "zstd");
    assert_eq!(chosen("len_min = 5001", "/b.txt"), "none");
    let server = TestServer::run(PROGRAM, &folder, &config("precompressed = false"));
    let got = accept(&mut server.connect(), "/a.json", "gzip");
    assert_eq!(decoded(Some("gzip"), &got.body), prose(3_000));
}
