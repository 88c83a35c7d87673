//! Graceful shutdown while programs respond.

use std::net::TcpStream;

use lowroad_testkit::wait_until;

use crate::host::Host;
use crate::talk::{self, End};

/// Number of tries. In half of them, the call and the client that reads it are on different workers.
const TRIES: usize = 6;

/// Sends the second part of its response only after a file appears.
const GATED_PHP: &str = "<?php header('Content-Type: text/plain'); header('Cache-Control: max-age=60');\n\
    echo 'beginning '; flush(); @ob_flush(); flush();\n\
    while (!file_exists('DIR/state/rest')) { usleep(5000); clearstatcache(); }\n\
    echo 'end';\n";

/// A call that one connection has started continues for another one that reads its body, even if the worker of the call
/// has no connections left.
#[test]
fn drain_finishes_body_shared_with_another_worker() {
    for _ in 0..TRIES {
        let mut host = Host::start(&[]);
        if !host.has_php() {
            return lowroad_testkit::skip("drain", "there is no php-fpm");
        }
        let folder = host.path("").display().to_string();
        let script = GATED_PHP.replace("DIR", folder.trim_end_matches('/'));
        host.file("root/gated.php", &script);
        let mut first = host.connect();
        first.send("GET /gated.php HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(talk::head(&mut first).starts_with("HTTP/1.1 200"));
        let mut second = host.connect();
        second.send("GET /gated.php HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = talk::head(&mut second);
        assert!(
            head.contains("\r\nAge: "),
            "it has a call of its own: {head}"
        );
        drop(first);
        host.server.signal("TERM");
        host.server.wait_for_error_line("draining");
        // An idle worker ends when its listeners close.
        let address = host.address();
        wait_until("the listeners' end", || {
            TcpStream::connect(address).is_err().then_some(())
        });
        host.file("state/rest", "");
        let (body, end) = talk::chunks(&mut second);
        assert_eq!((body.as_slice(), end), (&b"beginning end"[..], End::Chunk));
        drop(second);
        assert!(host.server.wait_for_end().success());
    }
}
