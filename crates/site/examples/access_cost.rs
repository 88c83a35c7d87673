//! Logs many requests, to count the instructions that a record of the access log costs a worker:
//!
//! `RUSTFLAGS='--cfg rustix_use_libc' cargo build --release -p lowroad-site --example access_cost`, then
//! `GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1000000 valgrind --tool=callgrind --separate-threads=yes
//! access_cost COUNT none|combined|json|text|binary`: callgrind counts `rep movsb`, which copies long blocks, as an
//! instruction for each byte. The summary of the first thread's file is the worker's; the log's thread is the second.
//! The difference between two runs, divided by the difference of their COUNTs, is the cost of a request, without reading
//! the clocks (system calls under valgrind). `none` is the cost of this program's loop, which is to be subtracted.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use lowroad_binary_log::files::{FileLimits, LogFiles, count_records};
use lowroad_config::{AccessLogConfig, AccessLogFormat, LogTarget};
use lowroad_engine::{Exchange, ListenerId};
use lowroad_http::h1::parse;
use lowroad_http::limits::RequestLimits;
use lowroad_http::status::StatusCode;
use lowroad_http::version::HttpVersion;
use lowroad_log::TextFormat;
use lowroad_log::format::EscapeMode;
use lowroad_log::{LogDestination, LogWriter, WriterLimits};
use lowroad_site::access::{LogWorker, RequestOutcome, WorkerAccessLog};

/// The number of requests in a turn of the event loop.
const TURN: usize = 32;

const HEAD: &[u8] = b"GET /gallery/morning.jpg HTTP/1.1\r\nHost: www.lowroad.example\r\n\
    User-Agent: Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36\r\n\
    Referer: https://www.lowroad.example/gallery/\r\n\r\n";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, count, format] = &arguments[..] else {
        eprintln!("access_cost COUNT none|combined|json|text|binary");
        return;
    };
    let count: usize = count.parse().expect("a number");
    let path = std::env::temp_dir().join(format!("access_cost.{}", std::process::id()));
    let is_logged = format != "none";
    let (format, writer) = match &format[..] {
        "binary" => (AccessLogFormat::Binary, binary_writer(&path)),
        "json" => (AccessLogFormat::Json, line_writer(&path)),
        "text" => (text_format(), line_writer(&path)),
        _ => (AccessLogFormat::Combined, line_writer(&path)),
    };
    let log = AccessLogConfig::new(LogTarget::File(path.clone()), format);
    let worker = LogWorker {
        number: 0,
        count: 1,
        hostname: "localhost".into(),
    };
    let log = WorkerAccessLog::new(vec![(writer.sink(), log)], Arc::default(), worker);
    let mut log = log.expect("a log");
    let head = parse(HEAD, &RequestLimits::default())
        .expect("a request")
        .expect("a whole one");
    let peer = IpAddr::from([192, 0, 2, 7]);
    for number in 0..count {
        let exchange =
            Exchange::without_client(ListenerId(0), peer, HttpVersion::Http11, 0, 1_795_207_512);
        if !is_logged {
            std::hint::black_box(&exchange);
            continue;
        }
        let record = log.record(
            &head.request,
            &exchange,
            StatusCode::OK,
            RequestOutcome::Hit,
            None,
        );
        log.write(record, 15_154, true, 0);
        if number % TURN == TURN - 1 {
            log.end_turn();
        }
    }
    println!("{} lost", writer.lost());
    writer.close();
    // The folder for temporary files is not filled.
    let _ = std::fs::remove_file(path);
}

/// The combined format, with variables.
fn text_format() -> AccessLogFormat {
    let text = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                \"$http_referer\" \"$http_user_agent\"";
    AccessLogFormat::Text(Arc::new(
        TextFormat::parse(text, EscapeMode::Hex).expect("a format"),
    ))
}

fn line_writer(path: &std::path::Path) -> LogWriter {
    let target = LogDestination::File(path.to_owned());
    LogWriter::open_delayed(&target, Duration::from_millis(200)).expect("a log")
}

fn binary_writer(path: &std::path::Path) -> LogWriter {
    let file = LogWriter::open_target(&LogDestination::File(path.to_owned())).expect("a file");
    let limits = FileLimits {
        file_len_max: 1 << 30,
        file_age_max_ms: u64::MAX,
        total_len_max: 2 << 30,
    };
    let files = LogFiles::new(
        path.to_owned(),
        file,
        limits,
        1,
        Box::new(|event| panic!("{event:?}")),
    );
    let limits = WriterLimits {
        delay: Duration::from_secs(2),
        wake_len: 4 << 20,
        pending_len_max: 16 << 20,
        count_entries: count_records,
    };
    LogWriter::start(limits, files.expect("files")).expect("a thread")
}
