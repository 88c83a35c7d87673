//! Servers that are killed under load: all objects found at the next start are complete and correct.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use lowroad_testkit::TestClient;
use lowroad_testkit::origin::TestOrigin;

use super::{Host, body};

const PATHS: u64 = 60;
const ROUNDS: u64 = 6;
const CLIENTS: u64 = 3;

/// Short and long lengths, derived from the path.
fn len_of(number: u64) -> usize {
    match number % 4 {
        0 => 100 + number as usize,
        1 => 70_000 + 1_001 * number as usize,
        2 => 3_000 * number as usize,
        _ => 1_200_000 + 13 * number as usize,
    }
}

fn path_of(number: u64) -> String {
    format!("/{number}")
}

fn origin() -> TestOrigin {
    TestOrigin::start(|request, stream| {
        let number: u64 = request.target[1..].parse().expect("a number");
        let (body, len) = (body(&request.target, 0, len_of(number)), len_of(number));
        let head = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {len}\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), &body].concat()).is_ok()
    })
}

#[test]
fn responses_after_kills_under_load_are_correct() {
    let mut host = Host::new(origin());
    let mut found = 0;
    for round in 0..ROUNDS {
        let (checked, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let address = host.server().address();
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (checked, is_over) = (&checked, &is_over);
                scope.spawn(move || {
                    let mut seed = round * 1_000 + client + 1;
                    while !is_over.load(SeqCst) {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        check(address, (seed >> 33) % PATHS);
                        checked.fetch_add(1, SeqCst);
                    }
                });
            }
            lowroad_testkit::wait_until("some were checked", || {
                (checked.load(SeqCst) >= 40).then_some(())
            });
            // Kills the server while it writes many objects.
            host.server = None;
            is_over.store(true, SeqCst);
        });
        host.start();
        found += host.status().value("disk_objects");
        for number in 0..PATHS {
            let got = host.get(&path_of(number), "");
            assert!(
                got.body == body(&path_of(number), 0, len_of(number)),
                "{number}"
            );
        }
    }
    assert!(found > 0, "nothing was ever found again");
    assert_eq!(host.status().value("disk_corrupt"), 0);
}

/// Checks that all received bytes are correct. A kill may end the response early.
fn check(address: std::net::SocketAddr, number: u64) {
    let Ok(stream) = std::net::TcpStream::connect(address) else {
        return;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    let mut client = TestClient::new(stream);
    let path = path_of(number);
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    if client.stream().write_all(request.as_bytes()).is_err() {
        return;
    }
    if let Some(got) = client.whole_response() {
        assert!(got.body == body(&path, 0, len_of(number)), "{path}");
    }
}
