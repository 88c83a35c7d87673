//! Measures response times on links that lose frames, with the level and with the kernel's own TCP. To be run alone:
//! `cargo test --test attach -- --ignored --nocapture how_long_answers_take`

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lowroad_testkit::net::{LinkMangling, ManglingRule, TestPath, TestSite, WebServer};

use crate::attached::{Attached, server_v4};
use crate::{setting, skipped};

const LENS: [usize; 3] = [4000, 10_000, 100];
const CLIENTS: usize = 16;
const DELAY_MS: u64 = 5;

/// Sends a request on `stream`, the connection of the previous one. Returns the time until the response is complete.
fn ask(stream: &mut TcpStream, len: usize, closes: bool) -> Option<Duration> {
    let close = if closes { "Connection: close\r\n" } else { "" };
    let at = LENS.iter().position(|known| *known == len)?;
    let request = format!("GET /{at}-{len}.bin HTTP/1.1\r\nHost: test\r\n{close}\r\n");
    let begin = Instant::now();
    stream.write_all(request.as_bytes()).ok()?;
    let mut received = Vec::new();
    let mut buffer = [0; 20_000];
    let is_whole = |received: &[u8]| {
        let head = received.windows(4).position(|four| four == b"\r\n\r\n");
        head.is_some_and(|at| received.len() >= at + 4 + len)
    };
    while !is_whole(&received) {
        let count = stream.read(&mut buffer);
        if !matches!(count, Ok(1..)) {
            eprintln!(
                "{} bytes, then {count:?} after {:?}",
                received.len(),
                begin.elapsed()
            );
        }
        let count = count.ok().filter(|count| *count > 0)?;
        received.extend_from_slice(&buffer[..count]);
    }
    Some(begin.elapsed())
}

/// The response times of this many requests.
fn times(
    path: &TestPath,
    address: SocketAddr,
    len: usize,
    closes: bool,
    count: usize,
) -> Vec<Duration> {
    let all = Mutex::new(Vec::new());
    path.client.enter(|| {
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let mut own = Vec::new();
                    let mut kept = None;
                    while own.len() < count / CLIENTS {
                        let mut stream = match kept.take() {
                            Some(stream) => stream,
                            None => TcpStream::connect(address).expect("a connection"),
                        };
                        stream.set_nodelay(true).expect("a mode");
                        let patience = Some(Duration::from_secs(20));
                        stream.set_read_timeout(patience).expect("a timeout");
                        let Some(time) = ask(&mut stream, len, closes) else {
                            eprintln!("an answer failed: {:?}", stream.local_addr());
                            continue;
                        };
                        own.push(time);
                        kept = (!closes).then_some(stream);
                    }
                    all.lock().expect("no holder panics").extend(own);
                });
            }
        });
    });
    all.into_inner().expect("no holder panics")
}

fn summarize(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_millis();
    format!(
        "median {} ms, 90 % {} ms, 95 % {} ms, 99 % {} ms, 99.5 % {} ms",
        at(0.5),
        at(0.9),
        at(0.95),
        at(0.99),
        at(0.995)
    )
}

#[test]
#[ignore = "a measurement of minutes"]
fn how_long_answers_take() {
    if skipped("how_long_answers_take", &["nginx"]) {
        return;
    }
    let count = setting("LOWROAD_LOSSY_REQUESTS", 4000);
    for loss_percent in [5.0] {
        let lossy = ManglingRule {
            loss_percent,
            delay_ms: DELAY_MS,
            ..ManglingRule::default()
        };
        let path = TestPath::new(&LinkMangling::both(17, lossy), 1500).expect("a path");
        let site = TestSite::new(17, &LENS);
        let conf = "add_header Cache-Control max-age=3600; keepalive_requests 100000;";
        let _nginx = WebServer::nginx(&path.server, &site, 80, conf).expect("nginx");
        for (len, closes) in [(4000, false), (10_000, true)] {
            let by_kernel = times(&path, server_v4(80), len, closes, count);
            eprintln!("  kernel: {}", summarize(by_kernel));
            let attached = Attached::start(&path.server, 80, &["--ttl", "600", "--tier", "tc"]);
            times(&path, server_v4(80), len, closes, 320);
            eprintln!("{:?}", attached.counts());
            let before = attached.count("answer_hit");
            let by_level = times(&path, server_v4(80), len, closes, count);
            let hits = attached.count("answer_hit") - before;
            eprintln!(
                "{loss_percent} % lost, {len} bytes, closes: {closes}, {count} answers ({hits} here, {} again)",
                attached.count("answer_again")
            );
            eprintln!("  level:  {}", summarize(by_level));
        }
    }
}
