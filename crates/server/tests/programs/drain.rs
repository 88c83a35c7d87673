//! The end of a server during responses of programs.

use std::net::TcpStream;

use lowroad_testkit::wait_until;

use crate::host::Host;
use crate::talk::{self, End};

/// Number of tries; in half of them a call and its reader are on two workers.
const TRIES: usize = 6;

/// Responds in two parts; the second after a file appears.
const GATED_PHP: &str = "<?php header('Content-Type: text/plain'); header('Cache-Control: max-age=60');\n\
    echo 'beginning '; flush(); @ob_flush(); flush();\n\
    while (!file_exists('DIR/state/rest')) { usleep(5000); clearstatcache(); }\n\
    echo 'end';\n";

/// A call begun by one connection continues for another one that reads its body, even if the calling worker has no
/// connections left.
#[test]
fn a_body_that_a_client_of_another_worker_reads_is_not_cut() {
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
