//! Fuzz target: field blocks. The input is a table's size and blocks of one connection, each with a byte for its length.
//!
//! Checked beside "no panic": the same fields as `loona-hpack` reads, or both refuse; and what we write of the fields is read
//! as it was meant, by both.

#![no_main]

use libfuzzer_sys::fuzz_target;
use loona_hpack::Decoder;
use loona_hpack::decoder::DecoderError;
use lowroad_http::fields::Name;
use lowroad_http::h2::hpack::probe::Probe;
use lowroad_http::h2::hpack::{Fault, put_field, put_field_short};

fuzz_target!(|input: &[u8]| {
    let Some((size, mut rest)) = input.split_first() else {
        return;
    };
    let size = usize::from(*size) * 16;
    let (mut ours, mut theirs) = (Probe::new(size), Decoder::new());
    theirs.set_max_allowed_table_size(size.max(1));
    theirs.set_max_table_size(size);
    while let Some((len, after)) = rest.split_first() {
        let (block, after) = after.split_at(usize::from(*len).min(after.len()));
        rest = after;
        match (ours.decode(block), theirs.decode(block)) {
            (Ok(ours), Ok(theirs)) => {
                assert_eq!(ours, theirs);
                again(&ours);
            }
            // It lets a size stand anywhere but at the end of a block; the RFC, at its start.
            (Err(Fault::SizeUpdate), _) | (Ok(_), Err(DecoderError::SizeUpdateAtEnd)) => return,
            (Err(_), Err(_)) => return,
            (ours, theirs) => panic!("{ours:?} {theirs:?}"),
        }
    }
});

/// Writes fields and reads them.
fn again(fields: &[(Vec<u8>, Vec<u8>)]) {
    let mut wanted = Vec::new();
    let (mut plain, mut short) = (Vec::new(), Vec::new());
    for (name, value) in fields {
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        put_field(Name::Other(name), value, &mut plain);
        put_field_short(Name::Other(name), value, &mut short);
        wanted.push((name.to_ascii_lowercase().into_bytes(), value.clone()));
    }
    for block in [plain, short] {
        assert_eq!(Probe::new(0).decode(&block), Ok(wanted.clone()));
        assert_eq!(Decoder::new().decode(&block).ok(), Some(wanted.clone()));
    }
}
