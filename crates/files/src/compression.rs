//! Compresses whole bodies in memory, once for each stored object, on a helper thread: the levels favour size over
//! speed. For responses that are generated for each request, see `streaming`.

pub mod streaming;

use std::io::{self, Write};

use lowroad_http::content_coding::ContentCoding;

/// brotli's quality, 0 to 11: higher ones take several times as long to save a few per cent more.
const BROTLI_QUALITY: i32 = 6;
/// zstd's level, 1 to 22.
const ZSTD_LEVEL: i32 = 12;
/// brotli's window as a power of two; decoders must support 24 (RFC 7932 §9.1).
const BROTLI_WINDOW: i32 = 22;

/// The compressed body, or `None` if this saves less than 5 %.
///
/// # Errors
/// The encoder's error. Since input and output are in memory, this can only be a lack of memory.
pub fn compress(body: &[u8], encoding: ContentCoding) -> io::Result<Option<Vec<u8>>> {
    let compressed = match encoding {
        ContentCoding::Identity => return Ok(None),
        ContentCoding::Gzip => gzip(body)?,
        ContentCoding::Brotli => brotli(body)?,
        ContentCoding::Zstd => zstd::bulk::compress(body, ZSTD_LEVEL)?,
    };
    // A small saving is not worth the memory of another variant.
    Ok((compressed.len() + body.len() / 20 < body.len()).then_some(compressed))
}

fn gzip(body: &[u8]) -> io::Result<Vec<u8>> {
    let level = flate2::Compression::new(7);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
    encoder.write_all(body)?;
    encoder.finish()
}

fn brotli(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let params = brotli::enc::BrotliEncoderParams {
        quality: BROTLI_QUALITY,
        lgwin: BROTLI_WINDOW,
        size_hint: body.len(),
        ..Default::default()
    };
    brotli::BrotliCompress(&mut &body[..], &mut out, &params)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn text() -> Vec<u8> {
        (0..2000)
            .flat_map(|n| format!("line {n} of a text that repeats itself\n").into_bytes())
            .collect()
    }

    #[test]
    fn compressed_bodies_round_trip() {
        let body = text();
        let of = |encoding| compress(&body, encoding).expect("memory").expect("smaller");
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(&of(ContentCoding::Gzip)[..])
            .read_to_end(&mut back)
            .expect("gzip");
        assert_eq!(back, body);
        back.clear();
        brotli::BrotliDecompress(&mut &of(ContentCoding::Brotli)[..], &mut back).expect("brotli");
        assert_eq!(back, body);
        assert_eq!(
            zstd::bulk::decompress(&of(ContentCoding::Zstd), body.len()).expect("zstd"),
            body
        );
    }

    #[test]
    fn incompressible_body_is_not_compressed() {
        let mut state = 1u64;
        let noise: Vec<u8> = (0..4096)
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (state >> 56) as u8
            })
            .collect();
        for encoding in [
            ContentCoding::Gzip,
            ContentCoding::Brotli,
            ContentCoding::Zstd,
        ] {
            assert!(compress(&noise, encoding).expect("memory").is_none());
        }
    }
}
