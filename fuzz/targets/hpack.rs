//! Fuzz target: HPACK field blocks. The input is a table size and the blocks of one connection, each with a byte for
//! its length.
//!
//! Checks beside "no panic": our decoder and `loona-hpack` read the same fields or both refuse; and our encoder's
//! output is read back by both with the same meaning.

#![no_main]

use libfuzzer_sys::fuzz_target;
use loona_hpack::Decoder;
use loona_hpack::decoder::DecoderError;
use lowroad_http::fields::FieldName;
use lowroad_http::h2::hpack::probe::DecoderProbe;
use lowroad_http::h2::hpack::{HpackError, put_field, put_field_short};

fuzz_target!(|input: &[u8]| {
    let Some((size, mut rest)) = input.split_first() else {
        return;
    };
    let size = usize::from(*size) * 16;
    let (mut ours, mut theirs) = (DecoderProbe::new(size), Decoder::new());
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
            // `loona-hpack` permits a size update anywhere but at a block's end; RFC 7541, section 4.2, only at its
            // start.
            (Err(HpackError::SizeUpdate), _) | (Ok(_), Err(DecoderError::SizeUpdateAtEnd)) => {
                return;
            }
            (Err(_), Err(_)) => return,
            (ours, theirs) => panic!("{ours:?} {theirs:?}"),
        }
    }
});

/// Encodes fields and decodes them.
fn again(fields: &[(Vec<u8>, Vec<u8>)]) {
    let mut wanted = Vec::new();
    let (mut plain, mut short) = (Vec::new(), Vec::new());
    for (name, value) in fields {
        // The encoder takes names as text.
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        put_field(FieldName::Other(name), value, &mut plain);
        put_field_short(FieldName::Other(name), value, &mut short);
        wanted.push((name.to_ascii_lowercase().into_bytes(), value.clone()));
    }
    // The plain and the shortest encoding.
    for block in [plain, short] {
        assert_eq!(DecoderProbe::new(0).decode(&block), Ok(wanted.clone()));
        assert_eq!(Decoder::new().decode(&block).ok(), Some(wanted.clone()));
    }
}
