//! Compresses streaming bodies, with fast levels and limited memory for each encoder.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use lowroad_http::content_coding::ContentCoding;
use zstd::zstd_safe::CParameter;

/// gzip's level, 0 to 9: higher ones reduce the size only by a few per cent.
const GZIP_LEVEL: u32 = 4;
/// zstd's level, 1 to 22.
const ZSTD_LEVEL: i32 = 3;
/// brotli's quality, 0 to 11: higher ones take several times as long.
const BROTLI_QUALITY: u32 = 3;
/// The window of zstd and brotli as a power of two; it determines most of their memory.
const WINDOW_LOG: u32 = 17;
/// zstd's table size as a power of two. It reduces the memory of an encoder from 1.2 to 0.7 MiB, and increases the
/// output by 0.5 %.
const ZSTD_TABLE_LOG: u32 = 15;
/// The length of brotli's input buffer.
const BROTLI_BUFFER_LEN: usize = 4096;

/// A streaming encoder.
pub enum BodyEncoder {
    /// RFC 1952; takes about 0.4 MiB of memory.
    Gzip(GzEncoder<Vec<u8>>),
    /// RFC 8878; takes about 0.7 MiB of memory.
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    /// RFC 7932; takes about 1.2 MiB of memory.
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
}

impl BodyEncoder {
    /// Creates an encoder for a coding other than identity.
    ///
    /// # Errors
    /// There is no memory for it, or the coding is identity.
    pub fn new(encoding: ContentCoding) -> io::Result<BodyEncoder> {
        let out = Vec::new();
        Ok(match encoding {
            ContentCoding::Identity => return Err(io::ErrorKind::InvalidInput.into()),
            ContentCoding::Gzip => {
                BodyEncoder::Gzip(GzEncoder::new(out, flate2::Compression::new(GZIP_LEVEL)))
            }
            ContentCoding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
                for parameter in [
                    // With the default parameters of this level, an encoder would take 1.2 MiB.
                    CParameter::WindowLog(WINDOW_LOG),
                    CParameter::HashLog(ZSTD_TABLE_LOG),
                    CParameter::ChainLog(ZSTD_TABLE_LOG),
                ] {
                    encoder.set_parameter(parameter)?;
                }
                BodyEncoder::Zstd(encoder)
            }
            ContentCoding::Brotli => {
                let encoder = brotli::CompressorWriter::new(
                    out,
                    BROTLI_BUFFER_LEN,
                    BROTLI_QUALITY,
                    WINDOW_LOG,
                );
                BodyEncoder::Brotli(Box::new(encoder))
            }
        })
    }

    /// Compresses bytes.
    ///
    /// # Errors
    /// The encoder's error.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer().write_all(bytes)
    }

    /// Flushes all input to the output, so that a client can decode it.
    ///
    /// # Errors
    /// The encoder's error.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }

    /// The length of the output that was not taken yet.
    pub fn output_len(&self) -> usize {
        match self {
            BodyEncoder::Gzip(encoder) => encoder.get_ref().len(),
            BodyEncoder::Zstd(encoder) => encoder.get_ref().len(),
            BodyEncoder::Brotli(encoder) => encoder.get_ref().len(),
        }
    }

    /// Takes the output.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            BodyEncoder::Gzip(encoder) => encoder.get_mut(),
            BodyEncoder::Zstd(encoder) => encoder.get_mut(),
            BodyEncoder::Brotli(encoder) => encoder.get_mut(),
        })
    }

    /// Ends the input; returns the rest of the output.
    ///
    /// # Errors
    /// The encoder's error.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            BodyEncoder::Gzip(encoder) => encoder.finish(),
            BodyEncoder::Zstd(encoder) => encoder.finish(),
            BodyEncoder::Brotli(encoder) => Ok(encoder.into_inner()),
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            BodyEncoder::Gzip(encoder) => encoder,
            BodyEncoder::Zstd(encoder) => encoder,
            BodyEncoder::Brotli(encoder) => encoder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn decoded(encoding: ContentCoding, bytes: &[u8]) -> Vec<u8> {
        let mut back = Vec::new();
        // Decoding an unfinished stream ends with an error, after all available output.
        let _ = match encoding {
            ContentCoding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut back),
            ContentCoding::Zstd => zstd::stream::read::Decoder::new(bytes)
                .expect("a decoder")
                .read_to_end(&mut back),
            _ => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut back),
        };
        back
    }

    #[test]
    fn flushed_output_is_decodable_before_the_end() {
        let parts: Vec<Vec<u8>> = (0..40)
            .map(|n| format!("part {n} of a text, ").repeat(n * 7).into_bytes())
            .collect();
        for encoding in [
            ContentCoding::Gzip,
            ContentCoding::Zstd,
            ContentCoding::Brotli,
        ] {
            let mut encoder = BodyEncoder::new(encoding).expect("memory");
            let (mut sent, mut plain) = (Vec::new(), Vec::new());
            for part in &parts {
                encoder.write(part).expect("memory");
                encoder.flush().expect("memory");
                plain.extend_from_slice(part);
                assert!(part.is_empty() || encoder.output_len() > 0);
                sent.append(&mut encoder.take());
                assert_eq!(decoded(encoding, &sent), plain, "{encoding:?}");
            }
            sent.append(&mut encoder.finish().expect("memory"));
            assert_eq!(decoded(encoding, &sent), plain, "{encoding:?}");
        }
        assert!(BodyEncoder::new(ContentCoding::Identity).is_err());
    }
}
