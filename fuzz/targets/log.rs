//! Fuzz target: the reader of binary logs. The first byte selects the meaning of the rest: bytes of a file, the columns
//! of a block, those of a dictionary and a block, or a description of columns and a block. Except for whole files,
//! headers with correct checksums are added, since the fuzzer would not find them by chance.
//!
//! Checks, besides the absence of panics: the reader ends; a block has as many records as its header states, and each
//! can be read; memory is bounded (by the limit of the fuzzer).

#![no_main]

use libfuzzer_sys::fuzz_target;
use lowroad_binary_log::frame::{BlockHeader, BlockKind};
use lowroad_binary_log::schema::BlockSchema;
use lowroad_binary_log::{LogReader, ReadEvent};

fuzz_target!(|input: &[u8]| {
    let Some(([mode, record_count], rest)) = input.split_first_chunk() else {
        return;
    };
    let schema = &BlockSchema::encode_current()[..];
    let block = RawBlock {
        kind: BlockKind::Records,
        raw: rest,
        record_count: (*record_count).into(),
        dictionary: 0,
        schema,
    };
    let (first, second) = rest.split_at(rest.len() / 2);
    let mut file = Vec::new();
    match mode % 4 {
        0 => file.extend_from_slice(rest),
        1 => block.put(&mut file),
        2 => {
            let dictionary = RawBlock {
                kind: BlockKind::Dictionary,
                raw: first,
                ..block
            };
            dictionary.put(&mut file);
            let records = RawBlock {
                raw: second,
                dictionary: crc32fast::hash(first),
                ..block
            };
            records.put(&mut file);
        }
        _ => {
            let described = RawBlock {
                kind: BlockKind::Schema,
                raw: first,
                schema: first,
                ..block
            };
            described.put(&mut file);
            let records = RawBlock {
                raw: second,
                schema: first,
                ..block
            };
            records.put(&mut file);
        }
    }
    read(&file);
});

/// A block before it is compressed.
#[derive(Clone, Copy)]
struct RawBlock<'a> {
    kind: BlockKind,
    raw: &'a [u8],
    record_count: u32,
    /// The checksum of its dictionary.
    dictionary: u32,
    /// The description of its columns.
    schema: &'a [u8],
}

impl RawBlock<'_> {
    /// Appends the block, with right checksums.
    fn put(&self, out: &mut Vec<u8>) {
        let payload = zstd::bulk::compress(self.raw, 1).expect("it is compressed");
        let header = BlockHeader {
            kind: self.kind,
            mask: 0,
            payload_len: payload.len(),
            raw_len: self.raw.len(),
            record_count: self.record_count,
            session: 1,
            first_record: 0,
            first_ms: 0,
            span_ms: 0,
            schema: crc32fast::hash(self.schema),
            dictionary: self.dictionary,
            payload_sum: crc32fast::hash(&payload),
        };
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(&payload);
    }
}

fn read(file: &[u8]) {
    let mut reader = LogReader::new().expect("a reader");
    for chunk in file.chunks(100) {
        reader.push(chunk);
        while let Some(event) = reader.next_event() {
            check(&event);
        }
    }
    while let Some(event) = reader.finish() {
        check(&event);
    }
}

fn check(event: &ReadEvent) {
    match event {
        ReadEvent::Records(block) => {
            let mut line = Vec::new();
            for record in 0..block.len() {
                std::hint::black_box(block.entry(record, &mut line));
            }
        }
        ReadEvent::Damage(damage) => assert!(!damage.to_string().is_empty()),
    }
}
