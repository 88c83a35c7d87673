//! Files over HTTP/1.1 and HTTP/2 with TLS: complete, ranges, not modified, and HEAD.

use super::support::{Place, VERSIONS, noise, read};

#[test]
fn files_of_all_lengths_are_sent_unchanged() {
    let place = Place::new();
    let server = place.run_with_certificate();
    for len in [1, 16 * 1024, 100_000, 10 << 20] {
        let bytes = noise(len);
        let name = format!("{len}");
        place.folder.file(format!("site/{name}"), &bytes);
        let url = format!("https://a.example/{name}");
        for version in VERSIONS {
            let got = place.curl(server.address(), &[version, &url]);
            assert_eq!(got.code, Some(0), "{len} {version}: {}", got.errors);
            assert!(got.out == bytes, "{len} {version}: {} bytes", got.out.len());
        }
    }
}

#[test]
fn http_1_1_and_http_2_are_served_over_tls() {
    let place = Place::new();
    place.folder.file("site/file", "hello");
    let server = place.run_with_certificate();
    for (version, number) in VERSIONS.into_iter().zip(["1.1", "2"]) {
        let form = "%{http_code} %{http_version} %{ssl_verify_result}";
        let got = place.fetch(
            server.address(),
            &[
                version,
                "-o",
                "/dev/null",
                "-w",
                form,
                "https://a.example/file",
            ],
        );
        assert_eq!(got, format!("200 {number} 0"));
    }
    assert_eq!(place.count("h2_connections"), 1);
    assert_eq!(place.count("handshakes"), 2);
}

#[test]
fn connections_are_persistent_over_tls() {
    let place = Place::new();
    place.folder.file("site/file", "hello");
    let server = place.run_with_certificate();
    for version in VERSIONS {
        let url = "https://a.example/file";
        let form = "%{num_connects} ";
        let got = place.fetch(server.address(), &[version, "-w", form, url, url, url]);
        assert_eq!(got, "hello1 hello0 hello0 ");
    }
}

#[test]
fn head_range_and_conditional_requests_work_over_tls() {
    let place = Place::new();
    let bytes = noise(50_000);
    place.folder.file("site/file", &bytes);
    let server = place.run_with_certificate();
    let url = "https://a.example/file";
    for version in VERSIONS {
        let fetch = |arguments: &[&str]| {
            let arguments = [&[version], arguments].concat();
            place.curl(server.address(), &arguments)
        };
        let head = fetch(&["-I", url]).text();
        assert!(head.contains("50000"), "{head}");
        let part = fetch(&["-r", "100-40099", url]);
        assert!(part.out == bytes[100..40_100], "{}", part.out.len());
        let parts = fetch(&["-r", "0-9,49990-49999", "-D", "-", url]).text();
        assert!(parts.contains("multipart/byteranges"), "{parts}");
        let etag = place.path("etag").display().to_string();
        fetch(&["--etag-save", &etag, "-o", "/dev/null", url]);
        assert!(!read(&etag).is_empty());
        let again = fetch(&["--etag-compare", &etag, "-w", "%{http_code}", url]);
        assert_eq!(again.text(), "304");
    }
}
