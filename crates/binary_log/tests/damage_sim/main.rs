//! Simulation of the binary log: reading returns random records unchanged, and random damage loses the damaged blocks
//! only. `LOWROAD_SEED` runs one case.

mod samples;

use lowroad_binary_log::batch;
use lowroad_binary_log::frame::{BlockHeader, BlockKind, HEADER_LEN};
use lowroad_binary_log::{BlockEncoder, DamageCause, LogReader, ReadEvent};

use samples::{RandomDraws, SampleRecord};

const SEEDS: u64 = 150;

/// A file, and the records of each of its blocks.
#[derive(Default)]
struct SampleFile {
    bytes: Vec<u8>,
    blocks: Vec<SampleBlock>,
}

struct SampleBlock {
    start: usize,
    end: usize,
    kind: BlockKind,
    /// Depends on the dictionary before it.
    has_dictionary: bool,
    records: Vec<SampleRecord>,
}

fn sample_file(draws: &mut RandomDraws) -> SampleFile {
    let mut file = SampleFile::default();
    for _ in 0..1 + draws.below(3) {
        let mut encoder = BlockEncoder::new(draws.next() as u32).expect("an encoder");
        let before = file.bytes.len();
        encoder.begin_file(&mut file.bytes).expect("a file");
        note_blocks(&mut file, before, Vec::new());
        for _ in 0..draws.below(12) {
            let count = match draws.below(4) {
                0 => draws.below(400),
                _ => draws.below(12),
            };
            let records: Vec<_> = (0..count).map(|_| SampleRecord::draw(draws)).collect();
            records
                .iter()
                .for_each(|record| encoder.push(&record.entry()));
            let before = file.bytes.len();
            encoder.finish_block(&mut file.bytes).expect("a block");
            note_blocks(&mut file, before, records);
        }
    }
    file
}

/// Adds the appended blocks to the file's list: a block of these records, schemas and dictionaries.
fn note_blocks(file: &mut SampleFile, mut start: usize, records: Vec<SampleRecord>) {
    let mut records = Some(records);
    while let Some(bytes) = file.bytes[start..].first_chunk::<HEADER_LEN>() {
        let header = BlockHeader::decode(bytes).expect("a header");
        let end = start + header.block_len();
        let is_records = header.kind == BlockKind::Records;
        file.blocks.push(SampleBlock {
            start,
            end,
            kind: header.kind,
            has_dictionary: header.dictionary != 0,
            records: match is_records {
                true => records.take().expect("one block of records"),
                false => Vec::new(),
            },
        });
        start = end;
    }
}

/// The result of reading.
#[derive(Default)]
struct ReadResult {
    records: Vec<SampleRecord>,
    lost: u64,
    offsets: Vec<u64>,
}

fn read(bytes: &[u8], draws: &mut RandomDraws) -> ReadResult {
    let mut reader = LogReader::new().expect("a reader");
    let mut result = ReadResult::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let largest = if draws.below(4) == 0 { 40 } else { 1 << 16 };
        let (chunk, after) = rest.split_at((1 + draws.below(largest) as usize).min(rest.len()));
        rest = after;
        reader.push(chunk);
        while let Some(event) = reader.next_event() {
            result.note(event);
        }
    }
    while let Some(event) = reader.finish() {
        result.note(event);
    }
    result
}

impl ReadResult {
    fn note(&mut self, event: ReadEvent) {
        match event {
            ReadEvent::Records(block) => {
                let mut line = Vec::new();
                let records = (0..block.len())
                    .map(|record| SampleRecord::from_entry(&block.entry(record, &mut line)));
                self.records.extend(records.collect::<Vec<_>>());
            }
            ReadEvent::Damage(damage) => {
                assert!(!damage.to_string().is_empty());
                self.lost += damage.lost_records();
                self.offsets.push(damage.offset);
            }
        }
    }
}

/// Damages the bytes in a random way. Returns the range of the original bytes that has changed.
fn damage(bytes: &mut Vec<u8>, draws: &mut RandomDraws) -> std::ops::Range<usize> {
    let start = draws.below(bytes.len() as u64) as usize;
    let end = (start + 1 + draws.below(300) as usize).min(bytes.len());
    match draws.below(6) {
        // One changed bit, zeros, or other bytes.
        0 => {
            bytes[start] ^= 1 << draws.below(8);
            start..start + 1
        }
        1 => {
            bytes[start..end].fill(0);
            start..end
        }
        2 => {
            bytes[start..end].fill_with(|| draws.next() as u8);
            start..end
        }
        // Bytes are missing, or were inserted.
        3 => {
            bytes.drain(start..end);
            start..end
        }
        4 => {
            let text =
                b"192.0.2.1 - - \"GET / HTTP/1.1\" 200 5\n".repeat(1 + draws.below(9) as usize);
            bytes.splice(start..start, text);
            // An insertion between two blocks damages none.
            start..start
        }
        // Truncated.
        _ => {
            let len = bytes.len();
            bytes.truncate(start);
            start..len
        }
    }
}

/// The records that must be read, in spite of damage to a range.
fn readable(file: &SampleFile, range: &std::ops::Range<usize>) -> Vec<SampleRecord> {
    let mut is_dictionary_whole = false;
    let mut records = Vec::new();
    for block in &file.blocks {
        let is_inserted = range.is_empty() && block.start < range.start && range.start < block.end;
        let is_hit = is_inserted || (range.start < block.end && block.start < range.end);
        match block.kind {
            BlockKind::Dictionary => is_dictionary_whole = !is_hit,
            BlockKind::Records if !is_hit && (is_dictionary_whole || !block.has_dictionary) => {
                records.extend(block.records.iter().cloned());
            }
            _ => {}
        }
    }
    records
}

fn run(seed: u64) {
    let mut draws = RandomDraws::new(seed);
    let file = sample_file(&mut draws);
    let all: Vec<_> = file
        .blocks
        .iter()
        .flat_map(|block| block.records.clone())
        .collect();
    let whole = read(&file.bytes, &mut draws);
    assert!(whole.offsets.is_empty(), "seed {seed}: {:?}", whole.offsets);
    let differs = whole
        .records
        .iter()
        .zip(&all)
        .find(|(read, written)| read != written);
    assert_eq!(differs, None, "seed {seed}");
    assert_eq!(whole.records.len(), all.len(), "seed {seed}");
    for _ in 0..8 {
        let mut bytes = file.bytes.clone();
        let range = damage(&mut bytes, &mut draws);
        if bytes == file.bytes {
            continue;
        }
        let result = read(&bytes, &mut draws);
        let readable = readable(&file, &range);
        assert!(
            result.records == readable,
            "seed {seed}, damage of {range:?}: {} of {} records",
            result.records.len(),
            readable.len()
        );
        let is_cut_between_blocks = range.end == file.bytes.len()
            && file.blocks.iter().any(|block| block.start == range.start);
        assert!(
            is_cut_between_blocks || !result.offsets.is_empty(),
            "seed {seed}: {range:?}"
        );
        assert!(
            result.lost <= (all.len() - readable.len()) as u64,
            "seed {seed}"
        );
    }
}

#[test]
fn damage_loses_the_damaged_blocks_only() {
    if let Ok(seed) = std::env::var("LOWROAD_SEED") {
        return run(seed.parse().expect("a number"));
    }
    (0..SEEDS).for_each(run);
}

#[test]
fn incomplete_block_of_a_killed_writer_ends_at_the_next_block() {
    // The file is truncated within each block, at several offsets, and continued by another process.
    let mut draws = RandomDraws::new(1);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut records = Vec::new();
    for (session, out) in [(1, &mut first), (2, &mut second)] {
        let mut encoder = BlockEncoder::new(session).expect("an encoder");
        encoder.begin_file(out).expect("a file");
        for _ in 0..3 {
            let record = SampleRecord::draw(&mut draws);
            encoder.push(&record.entry());
            records.push(record);
            encoder.finish_block(out).expect("a block");
        }
    }
    for cut in 1..first.len() {
        let bytes = [&first[..cut], &second].concat();
        let result = read(&bytes, &mut draws);
        assert!(result.records.ends_with(&records[3..]), "cut at {cut}");
        assert!(
            result.records.len() >= 3 && result.offsets.len() <= 1,
            "cut at {cut}"
        );
    }
}

#[test]
fn block_within_a_request_line_is_not_read() {
    // A client sends a complete block as its request line, and the block that contains the line is damaged.
    let mut inner = Vec::new();
    let mut encoder = BlockEncoder::new(1).expect("an encoder");
    let mut draws = RandomDraws::new(2);
    encoder.push(&SampleRecord::draw(&mut draws).entry());
    encoder.finish_block(&mut inner).expect("a block");
    let mut encoder = BlockEncoder::new(draws.next() as u32).expect("an encoder");
    let mut record = SampleRecord::draw(&mut draws);
    record.line = inner;
    encoder.push(&record.entry());
    let mut bytes = Vec::new();
    encoder.finish_block(&mut bytes).expect("a block");
    let result = read(&bytes, &mut draws);
    assert!(result.records == [record]);
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x40;
        assert!(
            read(&damaged, &mut draws).records.is_empty(),
            "byte {place}"
        );
    }
}

/// Each record is followed by records that differ in time and duration only, up to 40 of them.
fn repeated(draws: &mut RandomDraws) -> Vec<SampleRecord> {
    let mut records = Vec::new();
    for _ in 0..draws.below(60) {
        let record = SampleRecord::draw(draws);
        for _ in 0..draws.below(40) {
            let times = SampleRecord::draw(draws);
            records.push(SampleRecord {
                unix_ms: times.unix_ms,
                duration_us: times.duration_us,
                ..record.clone()
            });
        }
    }
    records
}

#[test]
fn repeated_records_give_the_same_blocks_as_single_ones() {
    for seed in 0..40 {
        let mut draws = RandomDraws::new(seed);
        let mut single = BlockEncoder::new(1).expect("an encoder");
        let mut whole = BlockEncoder::new(1).expect("an encoder");
        let (mut single_bytes, mut whole_bytes) = (Vec::new(), Vec::new());
        let mut records = Vec::new();
        for _ in 0..3 {
            let block = repeated(&mut draws);
            let mut encoded = Vec::new();
            for record in &block {
                single.push(&record.entry());
                batch::append_record(&record.entry(), &mut encoded);
            }
            let mut previous = None;
            for record in batch::records(&encoded) {
                assert!(whole.push_record(record, previous), "seed {seed}");
                previous = Some(record);
            }
            single
                .finish_block(&mut single_bytes)
                .expect("a block of single records");
            whole.finish_block(&mut whole_bytes).expect("a block");
            records.extend(block);
        }
        assert!(single_bytes == whole_bytes, "seed {seed}");
        assert!(
            read(&whole_bytes, &mut draws).records == records,
            "seed {seed}"
        );
    }
}

#[test]
fn missing_blocks_are_counted() {
    let mut draws = RandomDraws::new(3);
    let mut encoder = BlockEncoder::new(7).expect("an encoder");
    let mut blocks = Vec::new();
    for count in [3, 20, 4] {
        let mut bytes = Vec::new();
        for _ in 0..count {
            encoder.push(&SampleRecord::draw(&mut draws).entry());
        }
        encoder.finish_block(&mut bytes).expect("a block");
        blocks.push(bytes);
    }
    let bytes = [&blocks[0][..], &blocks[2]].concat();
    let mut reader = LogReader::new().expect("a reader");
    reader.push(&bytes);
    let events: Vec<_> = std::iter::from_fn(|| reader.next_event()).collect();
    let [
        ReadEvent::Records(_),
        ReadEvent::Damage(damage),
        ReadEvent::Records(_),
    ] = &events[..]
    else {
        panic!("{} events", events.len());
    };
    assert_eq!(damage.cause, DamageCause::Gap { records: 20 });
    assert_eq!(damage.offset, blocks[0].len() as u64);
}

/// Clients with long texts: a dictionary that had all of them would be longer than a reader accepts.
#[test]
fn dictionary_of_long_texts_stays_readable() {
    let mut draws = RandomDraws::new(1);
    let text = |draws: &mut RandomDraws| -> Vec<u8> {
        (0..32 << 10)
            .map(|_| b'a' + draws.below(26) as u8)
            .collect()
    };
    let mut records = Vec::new();
    for client in 0..45_u8 {
        let mut record = SampleRecord::draw(&mut draws);
        record.peer = [10, 0, 1, client].into();
        let short = record.clone();
        record.host = text(&mut draws);
        record.referer = text(&mut draws);
        record.user_agent = text(&mut draws);
        records.extend([record, short]);
    }
    let mut encoder = BlockEncoder::new(1).expect("an encoder");
    let mut bytes = Vec::new();
    encoder.begin_file(&mut bytes).expect("a file");
    for record in &records {
        encoder.push(&record.entry());
    }
    encoder.finish_block(&mut bytes).expect("a block");
    let dictionary_end = bytes.len();
    encoder.push(&records[1].entry());
    encoder.finish_block(&mut bytes).expect("a block");
    let header = bytes[dictionary_end..]
        .first_chunk()
        .and_then(BlockHeader::decode);
    assert_ne!(header.expect("a header").dictionary, 0);
    let result = read(&bytes, &mut draws);
    assert!(result.offsets.is_empty(), "{:?}", result.offsets);
    records.push(records[1].clone());
    assert!(result.records == records);
}
