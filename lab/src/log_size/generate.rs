//! Writes generated requests as a combined, an extended and a binary log, with the encoders of the server.

use std::io;

use lowroad_binary_log::{BlockEncoder, LogReader, ReadEvent};
use lowroad_log::{AccessEntry, LineFormat, LineFormatter};

use super::draws::RandomDraws;

/// The age at which the server closes a block.
const BLOCK_AGE_MS: u64 = 2000;
/// The time of the first request.
const START_MS: f64 = 1_795_207_512_000.0;

/// A source of records.
pub trait TrafficMix {
    /// Calls a function with the next record. The times are 0.
    fn next(&mut self, call: &mut dyn FnMut(AccessEntry<'_>));
}

/// The same requests in three formats.
pub struct WrittenLogs {
    /// The combined log, as Apache and nginx write it.
    pub combined: Vec<u8>,
    /// The combined log with outcomes, durations and hosts, which the binary log has as well.
    pub extended: Vec<u8>,
    /// The binary log.
    pub binary: Vec<u8>,
}

/// Generates `count` requests, `rate` a second on average, and logs them in all formats.
///
/// # Errors
/// The compression library fails, or the binary log does not contain all records.
pub fn write_logs(mix: &mut dyn TrafficMix, count: u64, rate: f64) -> io::Result<WrittenLogs> {
    let mut random = RandomDraws::new(7);
    let mut combined_lines = LineFormatter::new(LineFormat::Combined);
    let mut extended_lines = LineFormatter::new(LineFormat::Extended);
    let (mut combined, mut extended) = (Vec::new(), Vec::new());
    let mut log = BinaryLog::new()?;
    let mut unix_ms = START_MS;
    for _ in 0..count {
        // The requests arrive independently of each other (a Poisson process).
        unix_ms += -random.unit().ln() * 1000.0 / rate;
        let duration_us = random.duration_us();
        let mut logged = Ok(());
        mix.next(&mut |entry| {
            let entry = AccessEntry {
                unix_ms: unix_ms as u64,
                duration_us,
                ..entry
            };
            combined_lines.append(&entry, &mut combined);
            extended_lines.append(&entry, &mut extended);
            logged = log.push(&entry);
        });
        logged?;
    }
    let binary = log.finish()?;
    match record_count(&binary)? == count {
        true => Ok(WrittenLogs {
            combined,
            extended,
            binary,
        }),
        false => Err(io::Error::other("the binary log lacks records")),
    }
}

/// A binary log in memory, with blocks as the server closes them.
struct BinaryLog {
    encoder: BlockEncoder,
    bytes: Vec<u8>,
    block_end_ms: u64,
}

impl BinaryLog {
    fn new() -> io::Result<BinaryLog> {
        let (mut encoder, mut bytes) = (BlockEncoder::new(1)?, Vec::new());
        encoder.begin_file(&mut bytes)?;
        Ok(BinaryLog {
            encoder,
            bytes,
            block_end_ms: START_MS as u64 + BLOCK_AGE_MS,
        })
    }

    fn push(&mut self, entry: &AccessEntry<'_>) -> io::Result<()> {
        if self.encoder.is_full() || entry.unix_ms >= self.block_end_ms {
            self.encoder.finish_block(&mut self.bytes)?;
            self.block_end_ms = entry.unix_ms + BLOCK_AGE_MS;
        }
        self.encoder.push(entry);
        Ok(())
    }

    fn finish(mut self) -> io::Result<Vec<u8>> {
        self.encoder.finish_block(&mut self.bytes)?;
        Ok(self.bytes)
    }
}

/// Counts the records that a reader finds.
fn record_count(binary: &[u8]) -> io::Result<u64> {
    let mut reader = LogReader::new()?;
    let mut count = 0;
    for chunk in binary.chunks(1 << 20) {
        reader.push(chunk);
        while let Some(event) = reader.next_event() {
            match event {
                ReadEvent::Records(block) => count += block.len() as u64,
                ReadEvent::Damage(damage) => return Err(io::Error::other(damage.to_string())),
            }
        }
    }
    match reader.finish() {
        None => Ok(count),
        Some(_) => Err(io::Error::other("the binary log ends within a block")),
    }
}
