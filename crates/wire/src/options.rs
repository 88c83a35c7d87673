//! The TCP options of a SYN (RFC 9293 §3.2, RFC 7323, RFC 2018), and the options of the SYN-ACK that answers it.

use alloc::vec::Vec;

use crate::ebpf_header;
use crate::width::index;

/// The default MSS, which every host supports (RFC 9293 §3.7.1).
pub const MSS_DEFAULT: u16 = 536;
/// The window scale that this side offers.
pub const WINDOW_SCALE: u8 = 7;
const SCALE_MAX: u8 = 14;
/// Maximum number of options that are parsed; clients send fewer.
const OPTIONS_MAX: usize = 12;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const SCALE: u8 = 3;
const SACK: u8 = 4;
const TIMESTAMPS: u8 = 8;

/// The length of the timestamps option with its padding.
pub const TIMESTAMPS_LEN: usize = index(ebpf_header::TIMESTAMPS_LEN);
/// The timestamps option up to the first timestamp, in the usual layout (RFC 7323 appendix A).
const TIMESTAMPS_BEGIN: [u8; 4] = [NOP, NOP, TIMESTAMPS, 10];

/// The timestamps of a segment (RFC 7323 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpTimestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the last TSval that the sender has received.
    pub echo: u32,
}

impl TcpTimestamps {
    /// Parses the timestamps in a segment's options, if they have the usual layout.
    #[must_use]
    pub fn read(options: &[u8]) -> Option<TcpTimestamps> {
        // All common systems send the layout of RFC 7323 appendix A.
        let rest = options.strip_prefix(&TIMESTAMPS_BEGIN)?;
        let (value, rest) = rest.split_first_chunk()?;
        let (echo, _) = rest.split_first_chunk()?;
        Some(TcpTimestamps {
            value: u32::from_be_bytes(*value),
            echo: u32::from_be_bytes(*echo),
        })
    }

    /// Encodes the option.
    #[must_use]
    pub fn write(self) -> [u8; TIMESTAMPS_LEN] {
        let mut option = [0; TIMESTAMPS_LEN];
        option[..4].copy_from_slice(&TIMESTAMPS_BEGIN);
        option[4..8].copy_from_slice(&self.value.to_be_bytes());
        option[8..].copy_from_slice(&self.echo.to_be_bytes());
        option
    }
}

/// The TCP options of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// The maximum segment size of the client.
    pub mss: u16,
    /// The shift count of the client's window, if window scaling was negotiated.
    pub scale: Option<u8>,
    /// Selective acknowledgements are permitted.
    pub sack: bool,
}

impl TcpOptions {
    /// Parses the options of a SYN; `None` if they are malformed.
    #[must_use]
    pub fn read(options: &[u8]) -> Option<TcpOptions> {
        let (tcp_options, is_well_formed) = TcpOptions::scan(options);
        is_well_formed.then_some(tcp_options)
    }

    /// Parses the options of a SYN up to the first malformed one, as Linux does.
    #[must_use]
    pub fn read_well_formed(options: &[u8]) -> TcpOptions {
        TcpOptions::scan(options).0
    }

    fn scan(options: &[u8]) -> (TcpOptions, bool) {
        let mut tcp_options = TcpOptions {
            mss: MSS_DEFAULT,
            scale: None,
            sack: false,
        };
        let end = for_each_option(options, |kind, value| match (kind, value) {
            (MSS, [high, low]) => tcp_options.mss = u16::from_be_bytes([*high, *low]),
            // RFC 7323 §2.3: a larger shift count is used as 14.
            (SCALE, [scale]) => tcp_options.scale = Some(*scale.min(&SCALE_MAX)),
            (SACK, []) => tcp_options.sack = true,
            _ => {}
        });
        (tcp_options, end.is_some())
    }

    /// Removes the options that do not fit into a SYN-ACK with options no longer than those of the SYN. An option that
    /// the SYN-ACK does not contain is not negotiated.
    #[must_use]
    pub fn limited_to(mut self, options_len: usize) -> TcpOptions {
        if options_len < 8 {
            self.scale = None;
        }
        if options_len < 8 || options_len < 12 && self.scale.is_some() {
            self.sack = false;
        }
        self
    }

    /// The options of the SYN-ACK, no longer than those of the SYN; with `timestamps` if the SYN has them.
    #[must_use]
    pub fn answer(
        &self,
        local_mss: u16,
        options_len: usize,
        timestamps: Option<TcpTimestamps>,
    ) -> Vec<u8> {
        let [high, low] = local_mss.to_be_bytes();
        let sack = if self.sack {
            [NOP, NOP, SACK, 2]
        } else {
            [NOP; 4]
        };
        let scale = match self.scale {
            Some(_) => [NOP, SCALE, 3, WINDOW_SCALE],
            None => [NOP; 4],
        };
        let mut words = Vec::from([[MSS, 4, high, low]]);
        // MSS, timestamps and window scale need 20 bytes.
        if let Some(timestamps) = timestamps.filter(|_| options_len >= 20) {
            let mut option = timestamps.write();
            if self.sack {
                // SACK-permitted replaces the two padding bytes.
                option[..2].copy_from_slice(&[SACK, 2]);
            }
            words.extend(option.as_chunks().0);
            words.push(scale);
            return words.concat();
        }
        match options_len {
            // Not even the MSS fits.
            0..4 => words.clear(),
            4..8 => {}
            8..12 => words.push(if self.scale.is_some() { scale } else { sack }),
            _ => words.extend([sack, scale]),
        }
        words.concat()
    }
}

/// The TSval in the options of a SYN.
#[must_use]
pub fn timestamp(options: &[u8]) -> Option<u32> {
    let mut tsval = None;
    for_each_option(options, |kind, value| {
        if let (TIMESTAMPS, [a, b, c, d, _, _, _, _]) = (kind, value) {
            tsval = Some(u32::from_be_bytes([*a, *b, *c, *d]));
        }
    })?;
    tsval
}

/// Calls `visit` with each option and its value; `None` if the options are malformed.
fn for_each_option(mut options: &[u8], mut visit: impl FnMut(u8, &[u8])) -> Option<()> {
    for _ in 0..OPTIONS_MAX {
        match options {
            [] | [END, ..] => break,
            [NOP, rest @ ..] => options = rest,
            [_] => return None,
            // A length below 2 fails in `get(2..)`, so each iteration makes progress.
            [kind, len, ..] => {
                let (option, rest) = options.split_at_checked(usize::from(*len))?;
                visit(*kind, option.get(2..)?);
                options = rest;
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syn_options_are_parsed() {
        let plain = TcpOptions {
            mss: 536,
            scale: None,
            sack: false,
        };
        let all = TcpOptions {
            mss: 1460,
            scale: Some(7),
            sack: true,
        };
        let cases: [(&[u8], Option<TcpOptions>); 9] = [
            (&[], Some(plain)),
            // The end of options: the rest is ignored.
            (&[0, 2, 4, 9, 9], Some(plain)),
            (
                &[
                    2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 7,
                ],
                Some(all),
            ),
            (
                &[3, 3, 15],
                Some(TcpOptions {
                    scale: Some(14),
                    ..plain
                }),
            ),
            (
                &[77, 3, 0, 4, 2],
                Some(TcpOptions {
                    sack: true,
                    ..plain
                }),
            ),
            (&[2], None),
            // A length of 0 must not cause an endless loop.
            (&[2, 0], None),
            (&[2, 1], None),
            (&[2, 4, 5], None),
        ];
        for (bytes, wanted) in cases {
            assert_eq!(TcpOptions::read(bytes), wanted, "{bytes:?}");
        }
    }

    #[test]
    fn malformed_option_ends_the_list_of_options() {
        // Linux, too, ignores the rest of the options instead of the SYN.
        let cases: [(&[u8], u16, bool); 7] = [
            (&[2, 4, 5, 0xb4, 4, 1], 1460, false),
            (&[2, 4, 5, 0xb4, 4, 0, 4, 2], 1460, false),
            (&[2, 4, 5, 0xb4, 4, 2, 8, 10], 1460, true),
            (&[4, 2, 2, 4, 5], 536, true),
            (&[4, 2, 2], 536, true),
            // Well-formed, but with a length that the kind does not have.
            (&[2, 3, 5, 4, 2], 536, true),
            (&[4, 3, 0, 2, 4, 5, 0xb4], 1460, false),
        ];
        for (bytes, mss, sack) in cases {
            let parsed = TcpOptions::read_well_formed(bytes);
            assert_eq!((parsed.mss, parsed.sack), (mss, sack), "{bytes:?}");
        }
    }

    #[test]
    fn timestamps_round_trip() {
        let timestamps = TcpTimestamps {
            value: 0x0102_0304,
            echo: 5,
        };
        let mut option = timestamps.write().to_vec();
        assert_eq!(TcpTimestamps::read(&option), Some(timestamps));
        assert_eq!(timestamp(&option), Some(timestamps.value));
        option.extend([NOP, NOP, 5, 10]);
        assert_eq!(TcpTimestamps::read(&option), Some(timestamps));
        for len in 0..TIMESTAMPS_LEN {
            assert_eq!(TcpTimestamps::read(&option[..len]), None);
        }
    }

    #[test]
    fn syn_ack_contains_exactly_the_negotiated_options() {
        // An option that the SYN-ACK does not contain is not negotiated, so both results have to agree.
        for len in (0..=40).step_by(4) {
            for (scale, sack) in [
                (None, false),
                (None, true),
                (Some(3), false),
                (Some(3), true),
            ] {
                let negotiated_options = TcpOptions {
                    mss: 536,
                    scale,
                    sack,
                }
                .limited_to(len);
                let syn_ack = negotiated_options.answer(1460, len, None);
                assert!(syn_ack.len() <= len && syn_ack.len().is_multiple_of(4));
                let read = TcpOptions::read(&syn_ack).expect("well-formed");
                assert_eq!(
                    (read.scale.is_some(), read.sack),
                    (negotiated_options.scale.is_some(), negotiated_options.sack)
                );
                assert_eq!(read.mss, if len == 0 { 536 } else { 1460 });
                let timestamps = TcpTimestamps { value: 7, echo: 9 };
                let syn_ack = negotiated_options.answer(1460, len, Some(timestamps));
                assert!(syn_ack.len() <= len && syn_ack.len().is_multiple_of(4));
                assert_eq!(timestamp(&syn_ack), (len >= 20).then_some(7));
                let read = TcpOptions::read(&syn_ack).expect("well-formed");
                assert_eq!(
                    (read.scale.is_some(), read.sack),
                    (negotiated_options.scale.is_some(), negotiated_options.sack)
                );
            }
        }
    }
}
