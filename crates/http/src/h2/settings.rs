//! Settings: the local ones, with every limit of a connection, and the peer's. Read RFC 9113 §6.5, RFC 8441 §3 and RFC
//! 9218 §2.1.

use lowroad_limits::{CellRate, RequestRate};

use super::error::{ConnectionError, ErrorCode};
use super::frame::PAYLOAD_LEN_MAX;
use crate::field_section::RequestRules;
use crate::limits::RequestLimits;

/// Identifiers.
#[expect(missing_docs, reason = "each is the setting of that name")]
pub mod id {
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    pub const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// The initial size of windows and of the HPACK table (RFC 9113 §6.5.2).
pub(super) const WINDOW_LEN: u32 = 65_535;
pub(super) const TABLE_LEN: usize = 4096;
pub(super) const WINDOW_LEN_MAX: u32 = 0x7fff_ffff;

/// The settings of a connection, the same for all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H2Settings {
    /// The limits of a request; limits that concern only the syntax of HTTP/1 have no effect.
    pub limits: RequestLimits,
    /// Bytes of a field section, counted as in RFC 9113 §6.5.2: 32 for each field in addition to its name and value.
    /// Default 64 KiB.
    pub section_len_max: usize,
    /// CONTINUATION frames of one field block. Default 8.
    pub continuations_max: u32,
    /// Active streams of a connection. Default 128, at most 32,767.
    pub streams_max: u16,
    /// Bytes of a request's body that a client may send before they are consumed; a connection may have twice as many
    /// over all its streams. Starts at 64 KiB and grows with the bandwidth-delay product, up to this. Cost: as many
    /// bytes may be buffered in memory. Default 1 MiB.
    pub window_len_max: u32,
    /// Whether extended CONNECT (RFC 8441) is supported. Default false, since a caller that enables it must handle it.
    pub accepts_connect_protocol: bool,
    /// Rate limit of streams that end early, by the client's RST_STREAM or after its stream errors. Default: a burst of
    /// 1,000 and 33 a second.
    pub resets: CellRate,
    /// Rate limit of legal but useless frames: PING, SETTINGS, PRIORITY, empty DATA, small WINDOW_UPDATE, unknown
    /// types. Default: a burst of 10,000 and 330 a second.
    pub glitches: CellRate,
}

impl Default for H2Settings {
    fn default() -> H2Settings {
        H2Settings {
            limits: RequestLimits::default(),
            section_len_max: 64 << 10,
            continuations_max: 8,
            streams_max: 128,
            window_len_max: 1 << 20,
            accepts_connect_protocol: false,
            resets: CellRate::new(RequestRate {
                requests: 33,
                period_ms: 1000,
                burst: 1000,
            }),
            glitches: CellRate::new(RequestRate {
                requests: 330,
                period_ms: 1000,
                burst: 10_000,
            }),
        }
    }
}

impl H2Settings {
    /// The settings that decide about a request.
    #[inline]
    pub(super) fn rules(&self) -> RequestRules<'_> {
        RequestRules {
            limits: &self.limits,
            section_len_max: self.section_len_max,
            accepts_connect_protocol: self.accepts_connect_protocol,
        }
    }
}

/// The most entries of one SETTINGS frame; there is no legitimate use for more.
const ENTRIES_MAX: usize = 32;

/// The settings of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerSettings {
    pub(super) table_len: u32,
    pub(super) window_len: u32,
    pub(super) frame_len_max: u32,
    pub(super) streams_max: u32,
    pub(super) connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> PeerSettings {
        PeerSettings {
            table_len: TABLE_LEN as u32,
            window_len: WINDOW_LEN,
            frame_len_max: PAYLOAD_LEN_MAX as u32,
            streams_max: u32::MAX,
            connect_protocol: false,
        }
    }
}

impl PeerSettings {
    /// Processes the payload of a SETTINGS frame, from a server or a client.
    pub(super) fn take(&mut self, payload: &[u8], is_server: bool) -> Result<(), ConnectionError> {
        let (entries, _) = payload.as_chunks::<6>();
        if entries.len() > ENTRIES_MAX {
            return Err(ConnectionError::calm("too many settings"));
        }
        for [i0, i1, v0, v1, v2, v3] in entries {
            let value = u32::from_be_bytes([*v0, *v1, *v2, *v3]);
            self.entry(u16::from_be_bytes([*i0, *i1]), value, is_server)?;
        }
        Ok(())
    }

    fn entry(&mut self, id: u16, value: u32, is_server: bool) -> Result<(), ConnectionError> {
        match id {
            id::HEADER_TABLE_SIZE => self.table_len = value,
            // RFC 9113 §6.5.2: a server must not enable push.
            id::ENABLE_PUSH if value > u32::from(!is_server) => return Err(BAD_VALUE),
            id::MAX_CONCURRENT_STREAMS => self.streams_max = value,
            id::INITIAL_WINDOW_SIZE if value > WINDOW_LEN_MAX => {
                let reason = "an initial window that is too large";
                return Err(ConnectionError::new(ErrorCode::FLOW_CONTROL_ERROR, reason));
            }
            id::INITIAL_WINDOW_SIZE => self.window_len = value,
            // RFC 9113 §6.5.2: 2^14 to 2^24-1.
            id::MAX_FRAME_SIZE if !(16_384..1 << 24).contains(&value) => return Err(BAD_VALUE),
            id::MAX_FRAME_SIZE => self.frame_len_max = value,
            // RFC 8441 §3: it must not be disabled after it was enabled.
            id::ENABLE_CONNECT_PROTOCOL if value > 1 || value == 0 && self.connect_protocol => {
                return Err(BAD_VALUE);
            }
            id::ENABLE_CONNECT_PROTOCOL => self.connect_protocol = value == 1,
            id::NO_RFC7540_PRIORITIES if value > 1 => return Err(BAD_VALUE),
            _ => {}
        }
        Ok(())
    }
}

const BAD_VALUE: ConnectionError = ConnectionError::protocol("a setting with an invalid value");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h2::frame::{HEAD_LEN, put_settings};
    use alloc::vec::Vec;

    fn parsed_settings(
        settings: &[(u16, u32)],
        is_server: bool,
    ) -> Result<PeerSettings, ErrorCode> {
        let (mut out, mut peer) = (Vec::new(), PeerSettings::default());
        put_settings(settings, &mut out);
        match peer.take(&out[HEAD_LEN..], is_server) {
            Ok(()) => Ok(peer),
            Err(fault) => Err(fault.code),
        }
    }

    #[test]
    fn setting_values_out_of_range_are_errors() {
        let (protocol, flow) = (
            Err(ErrorCode::PROTOCOL_ERROR),
            Err(ErrorCode::FLOW_CONTROL_ERROR),
        );
        for (id, value, is_server, wanted) in [
            (id::ENABLE_PUSH, 2, false, protocol),
            (id::ENABLE_PUSH, 1, true, protocol),
            (id::ENABLE_PUSH, 1, false, Ok(())),
            (id::INITIAL_WINDOW_SIZE, 1 << 31, false, flow),
            (id::INITIAL_WINDOW_SIZE, WINDOW_LEN_MAX, false, Ok(())),
            (id::MAX_FRAME_SIZE, 16_383, false, protocol),
            (id::MAX_FRAME_SIZE, 1 << 24, false, protocol),
            (id::MAX_FRAME_SIZE, (1 << 24) - 1, false, Ok(())),
            (id::ENABLE_CONNECT_PROTOCOL, 2, false, protocol),
            (id::NO_RFC7540_PRIORITIES, 2, false, protocol),
            // Unknown settings are ignored (RFC 9113 §6.5.2); this one is of the GREASE kind.
            (0x0a0a, u32::MAX, false, Ok(())),
        ] {
            assert_eq!(
                parsed_settings(&[(id, value)], is_server).map(drop),
                wanted,
                "{id} {value}"
            );
        }
    }

    #[test]
    fn last_value_of_a_setting_wins_and_entries_are_limited() {
        // RFC 9113 §6.5.3: processed in order.
        let peer = parsed_settings(&[(4, 1), (3, 7), (4, 2)], false);
        assert_eq!(peer.map(|it| (it.window_len, it.streams_max)), Ok((2, 7)));
        let many = [(4, 1); 33];
        assert_eq!(
            parsed_settings(&many, false).map(drop),
            Err(ErrorCode::ENHANCE_YOUR_CALM)
        );
        let both = [
            (id::ENABLE_CONNECT_PROTOCOL, 1),
            (id::ENABLE_CONNECT_PROTOCOL, 0),
        ];
        assert_eq!(
            parsed_settings(&both, false).map(drop),
            Err(ErrorCode::PROTOCOL_ERROR)
        );
    }
}
