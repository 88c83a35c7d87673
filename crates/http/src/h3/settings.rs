//! Settings: the local ones, with every limit of a connection, and the checks of the client's. Read RFC 9114 §7.2.4, RFC
//! 9204 §5, RFC 9220 §5.

use alloc::vec::Vec;

use lowroad_limits::{CellRate, RequestRate};

use super::error::{H3Error, H3ErrorCode};
use super::{frames, varint};
use crate::field_section::RequestRules;
use crate::limits::RequestLimits;

/// Identifiers.
#[expect(missing_docs, reason = "each is the setting of that name")]
pub mod setting {
    pub const QPACK_MAX_TABLE_CAPACITY: u64 = 1;
    pub const MAX_FIELD_SECTION_SIZE: u64 = 6;
    pub const QPACK_BLOCKED_STREAMS: u64 = 7;
    pub const ENABLE_CONNECT_PROTOCOL: u64 = 8;
}

/// The settings of a connection, the same for all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H3Settings {
    /// The limits of a request; limits that concern only the syntax of HTTP/1 have no effect.
    pub limits: RequestLimits,
    /// Bytes of a field section, counted as in RFC 9114 §4.2.2: 32 for each field in addition to its name and value.
    /// Also the bytes of an encoded section; a connection keeps at most four times as many of incomplete ones. Default
    /// 64 KiB.
    pub section_len_max: usize,
    /// Requests of a connection in progress. Default 128, at most 32,767.
    pub streams_max: u16,
    /// Whether extended CONNECT (RFC 9220) is supported. Default false, since a caller that enables it must handle it.
    pub accepts_connect_protocol: bool,
    /// Bytes of the dynamic table of QPACK. Cost: as many for each connection that uses it. 0: none. Default
    /// 4 KiB.
    pub table_len_max: usize,
    /// Streams with a field section that waits for the dynamic table. Default 16.
    pub blocked_streams_max: u16,
    /// Rate limit of streams that end early, by the client's aborts or after its stream errors. Default: a burst of
    /// 1,000 and 33 a second.
    pub resets: CellRate,
    /// Rate limit of legal but useless frames: empty DATA, PRIORITY_UPDATE, unknown types; also of unknown streams, and
    /// of insertions into the dynamic table without requests. Default: a burst of 10,000 and 330 a second.
    pub glitches: CellRate,
}

impl Default for H3Settings {
    fn default() -> H3Settings {
        let rate = |requests, burst| {
            CellRate::new(RequestRate {
                requests,
                period_ms: 1000,
                burst,
            })
        };
        H3Settings {
            limits: RequestLimits::default(),
            section_len_max: 64 << 10,
            streams_max: 128,
            accepts_connect_protocol: false,
            table_len_max: 4096,
            blocked_streams_max: 16,
            resets: rate(33, 1000),
            glitches: rate(330, 10_000),
        }
    }
}

impl H3Settings {
    /// The settings that decide about a request.
    #[inline]
    pub(super) fn rules(&self) -> RequestRules<'_> {
        RequestRules {
            limits: &self.limits,
            section_len_max: self.section_len_max,
            accepts_connect_protocol: self.accepts_connect_protocol,
        }
    }

    /// Appends the SETTINGS frame.
    pub(super) fn put_frame(&self, out: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(16);
        let mut put = |id, value| {
            varint::put(id, &mut payload);
            varint::put(value, &mut payload);
        };
        put(setting::MAX_FIELD_SECTION_SIZE, self.section_len_max as u64);
        // Values that equal the initial ones are not sent.
        if self.table_len_max > 0 {
            put(setting::QPACK_MAX_TABLE_CAPACITY, self.table_len_max as u64);
            let blocked_streams_max = u64::from(self.blocked_streams_max);
            put(setting::QPACK_BLOCKED_STREAMS, blocked_streams_max);
        }
        if self.accepts_connect_protocol {
            put(setting::ENABLE_CONNECT_PROTOCOL, 1);
        }
        frames::put_frame(frames::kind::SETTINGS, &payload, out);
    }
}

/// The most entries of a SETTINGS frame; there is no legitimate use for more.
const ENTRIES_MAX: usize = 32;

/// Checks the payload of the client's SETTINGS frame. Its values do not matter to this server: its encoder uses no
/// dynamic table, and clients do not accept extended CONNECT.
///
/// # Errors
/// A connection error.
pub(super) fn check_client_settings(payload: &[u8]) -> Result<(), H3Error> {
    let (mut ids, mut rest) = (Vec::new(), payload);
    while !rest.is_empty() {
        let entry = frames::H3FrameHead::decode(rest);
        let (entry, len) = entry.ok_or(H3Error::layout("a setting is incomplete"))?;
        rest = rest.get(len..).unwrap_or_default();
        // An entry has the layout of a frame header.
        let (id, value) = (entry.kind, entry.len);
        // Unknown settings are ignored (RFC 9114 §7.2.4).
        match id {
            // Settings of HTTP/2 (RFC 9114 §7.2.4.1, §11.2.2).
            0 | 2..=5 => return Err(error("a setting of HTTP/2")),
            // RFC 9220 §3, as RFC 8441 §3.
            setting::ENABLE_CONNECT_PROTOCOL if value > 1 => {
                return Err(error("a setting with an invalid value"));
            }
            // RFC 9114 §7.2.4.
            _ if ids.contains(&id) => return Err(error("a setting is repeated")),
            _ if ids.len() == ENTRIES_MAX => return Err(H3Error::load("too many settings")),
            _ => ids.push(id),
        }
    }
    Ok(())
}

const fn error(reason: &'static str) -> H3Error {
    H3Error::connection(H3ErrorCode::SETTINGS_ERROR, reason)
}
