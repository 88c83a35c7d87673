//! The logs of an accelerator.

use std::net::TcpListener;

use lowroad_testkit::{TestServer, wait_until};

use crate::front::{PROGRAM, TestAccelerator, numbered_response, response};

#[test]
fn extended_log_has_the_cache_status() {
    let front = TestAccelerator::with_arguments(
        |request| match &*request.target {
            "/held" => numbered_response(request, "Cache-Control: max-age=60\r\n"),
            "/old" if request.field("if-none-match").is_some() => {
                "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".into()
            }
            "/old" => numbered_response(request, "Cache-Control: max-age=0\r\nETag: \"a\"\r\n"),
            _ => numbered_response(request, "Cache-Control: no-store\r\n"),
        },
        &["--log", "extended"],
    );
    for (path, outcome) in [
        ("/held", "miss"),
        ("/held", "hit"),
        ("/old", "miss"),
        ("/old", "revalidated"),
        ("/never", "pass"),
    ] {
        front.get(path, "User-Agent: t\r\n");
        let line = front.server.wait_for_line(&format!("GET {path} HTTP/1.1"));
        let (_, said) = line.split_once("\"t\" ").expect(&line);
        assert!(said.starts_with(&format!("{outcome} ")), "{line}");
        assert!(said.ends_with(" \"test\""), "{line}");
    }
}

#[test]
fn request_with_413_is_logged() {
    let front = TestAccelerator::with_arguments(
        |_| response("200 OK", "", ""),
        &["--log", "--body-max", "1K"],
    );
    let piece = format!("400\r\n{}\r\n", "x".repeat(0x400));
    let bodies = [
        ("/announced", "Content-Length: 2000\r\n\r\n".into()),
        (
            "/chunked",
            format!("Transfer-Encoding: chunked\r\n\r\n{piece}{piece}"),
        ),
        ("/late", "Transfer-Encoding: chunked\r\n\r\n".into()),
    ];
    for (path, rest) in bodies {
        let mut client = front.connect();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: h\r\n{rest}"));
        if path == "/late" {
            wait_until("the request", || {
                front
                    .run_command(&["status"])
                    .contains("1 waiting now")
                    .then_some(())
            });
            client.send(format!("{piece}{piece}"));
        }
        assert_eq!(client.response().status, 413, "{path}");
        let line = front.server.wait_for_line("413");
        assert!(
            line.contains(&format!("\"POST {path} HTTP/1.1\" 413")),
            "{line}"
        );
    }
}

#[test]
fn equal_faults_of_an_origin_are_logged_once() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", port.local_addr().expect("an address"));
    drop(port);
    let arguments = [
        "accelerate",
        &url,
        "--listen",
        "127.0.0.1:0",
        "--workers",
        "1",
    ];
    let server = TestServer::start(PROGRAM, &arguments);
    let number = |page: &str| {
        let (_, rest) = page.split_once("fault number ").expect("a number");
        rest.split(' ').next().expect("a word").to_string()
    };
    let pages: Vec<String> = (0..5)
        .map(|at| {
            let got = server.get(&format!("/{at}"));
            assert_eq!(got.status, 502);
            number(&got.text())
        })
        .collect();
    assert!(pages.iter().all(|page| *page == pages[0]), "{pages:?}");
    let line = server.wait_for_error_line("fault ");
    assert!(
        line.contains(&format!(
            "fault {}: 502 at /0: can't connect to origin {url}: ",
            pages[0]
        )),
        "{line}"
    );
    assert_eq!(line.matches(&*url).count(), 1, "{line}");
    let line = server.wait_for_error_line("fault ");
    let rest = format!(
        "fault {}: 502 of origin {url}, and 4 more of the same kind",
        pages[0]
    );
    assert!(line.contains(&rest), "{line}");
}
