//! Slow readers of long responses: the server buffers the rest of the response, so that the program can finish.

use lowroad_testkit::{TestClient, skip, wait_until};

use crate::host::Host;
use crate::talk::{self, End, ask};

/// More than all sockets and streams between program and client can hold.
const LEN: usize = 20_000_000;

/// Two concurrent calls of each program; php-fpm has two processes.
const ROUTES: &str = r#"
[[site.route]]
pattern = "/cgi/**"
cgi = "DIR/cgi"
concurrency = 2
[[site.route]]
pattern = "/stream"
module = "features"
concurrency = 2
[[site.route]]
pattern = "*.php"
fastcgi = "unix:DIR/fpm.sock"
"#;

/// Prints the numbers from 1 to 2,500,000 with eight digits each, and then records that it has ended.
const LONG: &str = "printf 'Content-Type: text/plain\\n\\n'\n\
                    seq -f %08.0f 1 2500000 | tr -d '\\n'\necho x >>DIR/state/sent\n";

const LONG_PHP: &str = "<?php\nheader('Content-Type: text/plain');\n\
    for ($i = 1; $i <= 2500000; $i += 1000) {\n\
    $part = ''; for ($j = $i; $j < $i + 1000; $j++) $part .= sprintf('%08d', $j); echo $part; }\n\
    file_put_contents(__DIR__ . '/../state/sent', \"x\\n\", FILE_APPEND);\n";

/// A client that sends a request and does not read.
fn request_without_reading(host: &Host, path: &str) -> TestClient {
    let mut client = host.connect();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

fn counts_to_the_end(mut reader: TestClient) {
    let (got, end) = talk::answer(&mut reader, "GET");
    assert_eq!((got.status, got.body.len(), end), (200, LEN, End::Chunk));
    for (number, digits) in (1..).zip(got.body.chunks(8)) {
        let digits = str::from_utf8(digits).expect("digits");
        assert_eq!(digits.parse(), Ok(number));
    }
}

#[test]
fn slow_readers_do_not_occupy_programs() {
    let host = Host::with_routes(ROUTES, &[("long", LONG)]);
    host.file("root/long.php", LONG_PHP);
    for (path, other) in [("/cgi/long", "/cgi/say"), ("/long.php", "/say.php")] {
        if path.ends_with(".php") && !host.has_php() {
            skip("slow_readers_do_not_occupy_programs", "no php-fpm");
            continue;
        }
        let _ = std::fs::remove_file(host.path("state/sent"));
        let mut readers = Vec::new();
        for round in 1..=4 {
            readers.push(request_without_reading(&host, path));
            wait_until("the program to have said all", || {
                (host.state("sent").lines().count() == round).then_some(())
            });
        }
        wait_until("a free place", || {
            let (got, _) = ask(host.address(), "GET", other, "");
            (got.status == 200).then_some(())
        });
        assert!(host.status().value("spool_bytes") > 0);
        readers.into_iter().for_each(counts_to_the_end);
        host.status().wait_for("spool_bytes", 0);
        host.status().wait_for("spool_files", 0);
    }
}

#[test]
fn slow_readers_do_not_occupy_modules() {
    let host = Host::with_routes(ROUTES, &[]);
    let readers = [
        request_without_reading(&host, "/stream"),
        request_without_reading(&host, "/stream"),
    ];
    host.status().wait_for("spool_responses", 2);
    wait_until("a free place", || {
        let (got, _) = ask(host.address(), "GET", "/stream", "");
        (got.status == 200).then_some(())
    });
    for mut reader in readers {
        let (got, end) = talk::answer(&mut reader, "GET");
        assert_eq!((got.body.len(), end), (10_000_000, End::Chunk));
    }
    host.status().wait_for("spool_files", 0);
}

#[test]
fn temp_file_max_limits_a_spooled_response() {
    let settings = "[buffering]\ntemp_path = \"DIR/temp\"\ntemp_file_max = \"1M\"\n";
    let host = Host::with_settings(settings, ROUTES, &[("long", LONG)]);
    let reader = request_without_reading(&host, "/cgi/long");
    wait_until("the program to wait", || {
        (host.status().value("spool_held_back") > 0).then_some(())
    });
    assert!(host.status().value("spool_bytes") <= 1 << 20);
    assert_eq!(host.state("sent"), "");
    counts_to_the_end(reader);
    host.status().wait_for("spool_bytes", 0);
}

#[test]
fn truncated_response_is_sent_truncated() {
    let dies = "printf 'Content-Type: text/plain\\n\\n'\nhead -c 20000000 /dev/zero\n\
                echo x >>DIR/state/sent\nkill -9 $$\n";
    let host = Host::with_routes(ROUTES, &[("dies", dies)]);
    let mut reader = request_without_reading(&host, "/cgi/dies");
    wait_until("the program's end", || {
        (host.state("sent") == "x\n").then_some(())
    });
    assert!(talk::head(&mut reader).starts_with("HTTP/1.1 200 "));
    reader.wait_for_close();
    assert!(reader.received.len() > 20_000_000);
    assert!(!reader.received.ends_with(b"\r\n0\r\n\r\n"));
}

#[test]
fn disconnected_client_releases_its_spool() {
    let host = Host::with_routes(ROUTES, &[("long", LONG)]);
    let reader = request_without_reading(&host, "/cgi/long");
    wait_until("something to wait", || {
        (host.status().value("spool_bytes") > 0).then_some(())
    });
    drop(reader);
    host.status().wait_for("spool_bytes", 0);
    host.status().wait_for("spool_files", 0);
}
