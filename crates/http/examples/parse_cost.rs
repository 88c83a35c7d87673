//! Parses a sample head N times, to count instructions under callgrind:
//!
//! ```text
//! cargo build --release -p lowroad-http --example parse_cost
//! valgrind --tool=callgrind target/release/examples/parse_cost small 10000
//! ```
//!
//! Run it with two values of N; the difference divided by the difference of N is the cost of one parse.

use std::hint::black_box;

use lowroad_http::h1;
use lowroad_http::limits::RequestLimits;

const SMALL: &str = "GET /index.html HTTP/1.1\r\n\
    Host: localhost:8080\r\n\
    User-Agent: loadgen/1.0\r\n\
    Accept: */*\r\n\r\n";

const BROWSER: &str = "GET /articles/2026/levels.html?from=home HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    Connection: keep-alive\r\n\
    Cache-Control: max-age=0\r\n\
    sec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Sec-Fetch-Site: none\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Dest: document\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9\r\n\
    If-None-Match: \"67f2a1-1b3f\"\r\n\r\n";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let head = match arguments.get(1).map(String::as_str) {
        Some("small") => SMALL,
        Some("browser") => BROWSER,
        _ => return eprintln!("usage: parse_cost small|browser N"),
    };
    let rounds: u32 = arguments.get(2).and_then(|n| n.parse().ok()).unwrap_or(1);
    let limits = RequestLimits::default();
    for _ in 0..rounds {
        let parsed = h1::parse(black_box(head.as_bytes()), &limits);
        // The result is passed by reference, so that the black box adds no copies.
        if !matches!(black_box(&parsed), Ok(Some(_))) {
            return eprintln!("not a complete head: {parsed:?}");
        }
    }
    println!("{} bytes, {rounds} times", head.len());
}
