//! HTTP/2 in clear text with prior knowledge (h2c): stored responses, files, conditional requests, concurrent streams.

use std::process::Command;

use super::support::{Place, noise, run};

const WAY: &str = "--http2-prior-knowledge";

#[test]
fn h2c_serves_stored_and_unstored_files() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    let server = place.run(&place.site("a", "listen = \"127.0.0.2:0\"", ""));
    for len in [0, 1, 16_384, 100_000, 10 << 20] {
        let bytes = noise(len);
        place.folder.file(format!("site/{len}"), &bytes);
        let url = format!("http://a.example/{len}");
        // Requested twice: after the first response a file is stored, unless it is too long.
        let form = "%{http_version} %{http_code}\n";
        for _ in 0..2 {
            let got = place.curl(server.addresses[0], &[WAY, "-w", form, &url]);
            let text = [&bytes[..], b"2 200\n"].concat();
            assert!(got.out == text, "{len}: {} {}", got.out.len(), got.errors);
        }
        if len > 1000 {
            let got = place.curl(server.addresses[0], &[WAY, "-r", "10-999", &url]);
            assert!(got.out == bytes[10..1000], "{len}: {}", got.out.len());
        }
        let head = place.fetch(server.addresses[0], &[WAY, "-I", &url]);
        assert!(
            head.contains(&format!("content-length: {len}\r\n")),
            "{head}"
        );
    }
    let missing = &[
        WAY,
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "http://a.example/none",
    ];
    assert_eq!(place.fetch(server.addresses[0], missing), "404");
}

#[test]
fn h2c_answers_concurrent_streams() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    place.folder.file("site/small", noise(1000));
    place.folder.file("site/long", noise(300_000));
    let server = place.run(&place.site("a", "listen = \"127.0.0.2:0\"", ""));
    if !std::path::Path::new("/usr/bin/h2load").exists() {
        return lowroad_testkit::skip("h2c_answers_concurrent_streams", "no h2load");
    }
    let (plain, tls) = (server.addresses[0], server.addresses[1]);
    for (name, count) in [("small", 5000), ("long", 200)] {
        for url in [
            format!("http://{plain}/{name}"),
            format!("https://{tls}/{name}"),
        ] {
            let mut command = Command::new("timeout");
            command.args([
                "60",
                "h2load",
                "-c8",
                "-m16",
                "-n",
                &count.to_string(),
                &url,
            ]);
            let said = run(&mut command, b"").text();
            let line = format!("{count} succeeded, 0 failed, 0 errored, 0 timeout");
            assert!(said.contains(&line), "{url}: {said}");
            assert!(
                said.contains(&format!("status codes: {count} 2xx")),
                "{url}: {said}"
            );
        }
    }
}
