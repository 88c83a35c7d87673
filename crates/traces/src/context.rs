//! The field `traceparent` (W3C Trace Context, level 1, §3.2): identifies a trace, the span of the sender, and whether
//! the sender samples the trace.

use std::fmt;

/// The name of the field.
pub const TRACEPARENT: &str = "traceparent";

/// The length of a field value of version 00.
pub const TRACEPARENT_LEN: usize = 55;
/// The flag of a sampled trace.
const SAMPLED: u8 = 1;

/// Identifies a trace. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// Identifies a span of a trace. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// The identifier with these bytes; `None` if all are zero.
    pub fn new(bytes: [u8; 16]) -> Option<TraceId> {
        (bytes != [0; 16]).then_some(TraceId(bytes))
    }

    /// The identifier with this number, or with 1 instead of 0.
    pub fn from_random(random: u128) -> TraceId {
        TraceId(random.max(1).to_be_bytes())
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The last 8 bytes as a number. Samplers use these, since other systems may fill only these at random.
    pub fn low_bits(&self) -> u64 {
        u128::from_be_bytes(self.0) as u64 // the lower half
    }
}

impl SpanId {
    /// The identifier with these bytes; `None` if all are zero.
    pub fn new(bytes: [u8; 8]) -> Option<SpanId> {
        (bytes != [0; 8]).then_some(SpanId(bytes))
    }

    /// The identifier with this number, or with 1 instead of 0.
    pub fn from_random(random: u64) -> SpanId {
        SpanId(random.max(1).to_be_bytes())
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// The content of a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span of the sender.
    pub span_id: SpanId,
    /// Whether the sender samples the trace.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Parses a field value. `None` for a value that the specification calls invalid. Of later versions, the parts of
    /// version 00 are used.
    pub fn parse(value: &[u8]) -> Option<TraceContext> {
        let (known, rest) = value.split_at_checked(TRACEPARENT_LEN)?;
        let has_dashes = [2, 35, 52].iter().all(|index| known[*index] == b'-');
        let [version] = hex(&known[..2])?;
        // A later version may append parts, each after a dash.
        let is_complete = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        if !has_dashes || !is_complete {
            return None;
        }
        let [flags] = hex(&known[53..])?;
        Some(TraceContext {
            trace_id: TraceId::new(hex(&known[3..35])?)?,
            span_id: SpanId::new(hex(&known[36..52])?)?,
            is_sampled: flags & SAMPLED != 0,
        })
    }

    /// The field value, of version 00.
    pub fn to_value(self) -> [u8; TRACEPARENT_LEN] {
        let mut out = *b"00-................................-................-0.";
        write_hex(self.trace_id.bytes(), &mut out[3..35]);
        write_hex(self.span_id.bytes(), &mut out[36..52]);
        out[54] = match self.is_sampled {
            true => b'1',
            false => b'0',
        };
        out
    }
}

/// The bytes of a number in lower-case hexadecimal digits; the specification forbids upper case.
fn hex<const LEN: usize>(digits: &[u8]) -> Option<[u8; LEN]> {
    let mut out = [0; LEN];
    if digits.len() != 2 * LEN {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

fn write_hex(bytes: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of §3.2.3.
    const EXAMPLE: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn example_of_the_specification_is_parsed_and_written() {
        let context = TraceContext::parse(EXAMPLE).expect("valid");
        assert!(context.is_sampled);
        assert_eq!(
            format!("{:?} {:?}", context.trace_id, context.span_id),
            "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331"
        );
        assert_eq!(context.to_value(), EXAMPLE);
        let unsampled = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        let context = TraceContext::parse(unsampled).expect("valid");
        assert!(!context.is_sampled);
        assert_eq!(&context.to_value(), unsampled);
    }

    #[test]
    fn unknown_flags_are_ignored_and_cleared() {
        let value = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff";
        let context = TraceContext::parse(value).expect("valid");
        assert_eq!(context.to_value(), EXAMPLE);
    }

    #[test]
    fn later_version_is_read_by_its_first_parts() {
        for rest in ["", "-", "-extra", "-what-ever.it-is"] {
            let value = format!("cc-{}{rest}", str::from_utf8(&EXAMPLE[3..]).expect("ASCII"));
            let context = TraceContext::parse(value.as_bytes()).expect("valid");
            assert_eq!(context.to_value(), EXAMPLE);
        }
        // No dash before the additional part.
        let value = format!("cc-{}.x", str::from_utf8(&EXAMPLE[3..]).expect("ASCII"));
        assert_eq!(TraceContext::parse(value.as_bytes()), None);
    }

    #[test]
    fn invalid_values_are_refused() {
        for value in [
            "",
            "00",
            // Version ff, digits that are not hexadecimal, upper case.
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            ".0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333x-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0A",
            // Identifiers of zeros.
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            // Too short, too long, other separators.
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-will-be-like",
            "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        ] {
            assert_eq!(TraceContext::parse(value.as_bytes()), None, "{value}");
        }
    }
}
