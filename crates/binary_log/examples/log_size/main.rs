//! Compares the size of the binary log with that of the combined log and its compressed forms:
//! `cargo run --release -p lowroad-binary-log --example log_size -- specweb99|browsers COUNT REQUESTS_A_SECOND [FOLDER]`.
//! With a folder, both logs are written there. Blocks close after two seconds, as in a server.

mod browsers;
mod draws;
mod specweb99;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use lowroad_binary_log::{BlockEncoder, LogReader, ReadEvent};
use lowroad_log::{AccessEntry, LineFormat, LineFormatter};

/// The age at which a block closes.
const BLOCK_AGE_MS: u64 = 2000;

/// A source of records.
pub trait TrafficMix {
    /// Calls a function with the next record. The times are 0.
    fn next(&mut self, call: &mut dyn FnMut(AccessEntry<'_>));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, count, rate, folder @ ..] = &arguments[..] else {
        eprintln!("log_size specweb99|browsers COUNT REQUESTS_A_SECOND [FOLDER]");
        std::process::exit(2);
    };
    let mut mix: Box<dyn TrafficMix> = match &name[..] {
        "specweb99" => Box::new(specweb99::SpecWebMix::new()),
        _ => Box::new(browsers::BrowserMix::new()),
    };
    let count = count.parse().expect("a number of requests");
    let rate: f64 = rate.parse().expect("requests a second");
    let logs = write_logs(&mut *mix, count, rate);
    if let [folder] = folder {
        let folder = Path::new(folder);
        std::fs::write(folder.join("access.log"), &logs.combined).expect("written");
        std::fs::write(folder.join("access.lrlog"), &logs.binary).expect("written");
    }
    assert_eq!(records_of(&logs.binary), count);
    let encoded_s = logs.encoded_ns as f64 / 1e9;
    println!("{name}: {count} requests, {rate} a second; encoded in {encoded_s:.2} s");
    for (form, len) in [
        ("combined", logs.combined.len()),
        ("gzip -9", gzip_len(&logs.combined)),
        ("zstd -3", zstd_len(&logs.combined, 3)),
        ("zstd -19", zstd_len(&logs.combined, 19)),
        ("extended", logs.extended.len()),
        ("extended, gzip -9", gzip_len(&logs.extended)),
        ("binary", logs.binary.len()),
    ] {
        let share = len as f64 / logs.combined.len() as f64;
        let each = len as f64 / count as f64;
        println!("{form:>17} {len:>12} bytes {each:>7.2} a request {share:>7.4}");
    }
}

struct WrittenLogs {
    combined: Vec<u8>,
    /// With outcomes, durations and hosts, as the binary log has them.
    extended: Vec<u8>,
    binary: Vec<u8>,
    /// The time that encoding took.
    encoded_ns: u128,
}

fn write_logs(mix: &mut dyn TrafficMix, count: u64, rate: f64) -> WrittenLogs {
    let mut random = draws::RandomDraws::new(7);
    let mut combined_lines = LineFormatter::new(LineFormat::Combined);
    let mut extended_lines = LineFormatter::new(LineFormat::Extended);
    let mut encoder = BlockEncoder::new(1).expect("an encoder");
    let (mut combined, mut extended, mut binary) = (Vec::new(), Vec::new(), Vec::new());
    encoder.begin_file(&mut binary).expect("a file");
    let mut unix_ms = 1_795_207_512_000.0;
    let mut block_end_ms = unix_ms as u64 + BLOCK_AGE_MS;
    let mut encoded_ns = 0;
    for _ in 0..count {
        // Poisson arrivals.
        unix_ms += -random.unit().ln() * 1000.0 / rate;
        let duration_us = random.duration_us();
        mix.next(&mut |entry| {
            let entry = AccessEntry {
                unix_ms: unix_ms as u64,
                duration_us,
                ..entry
            };
            combined_lines.append(&entry, &mut combined);
            extended_lines.append(&entry, &mut extended);
            let started = Instant::now();
            if encoder.is_full() || entry.unix_ms >= block_end_ms {
                encoder.finish_block(&mut binary).expect("a block");
                block_end_ms = entry.unix_ms + BLOCK_AGE_MS;
            }
            encoder.push(&entry);
            encoded_ns += started.elapsed().as_nanos();
        });
    }
    encoder.finish_block(&mut binary).expect("a block");
    WrittenLogs {
        combined,
        extended,
        binary,
        encoded_ns,
    }
}

/// Counts the records that a reader finds.
fn records_of(binary: &[u8]) -> u64 {
    let mut reader = LogReader::new().expect("a reader");
    let mut count = 0;
    for chunk in binary.chunks(1 << 20) {
        reader.push(chunk);
        while let Some(event) = reader.next_event() {
            match event {
                ReadEvent::Records(block) => count += block.len() as u64,
                ReadEvent::Damage(damage) => panic!("{damage}"),
            }
        }
    }
    assert!(reader.finish().is_none());
    count
}

fn zstd_len(text: &[u8], level: i32) -> usize {
    zstd::bulk::compress(text, level).expect("compressed").len()
}

fn gzip_len(text: &[u8]) -> usize {
    let gzip = Command::new("gzip")
        .arg("-9")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut gzip = gzip.expect("gzip");
    let (mut input, mut output) = (
        gzip.stdin.take().expect("a pipe"),
        gzip.stdout.take().expect("a pipe"),
    );
    std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(text).expect("written"));
        let mut compressed = Vec::new();
        output.read_to_end(&mut compressed).expect("read");
        gzip.wait().expect("ended");
        compressed.len()
    })
}
