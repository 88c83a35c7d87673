//! A `SegmentContext` with one response and a settable clock.

use std::net::IpAddr;

use lowroad_wire::SegmentReason;
use lowroad_wire::frame::FourTuple;
use lowroad_wire::segment_context::{
    AdmissionTime, IgnoredFields, LevelMode, SegmentContext, SocketState, StoredAnswer,
};
use lowroad_wire_model::PARTS_MAX;

/// A request.
pub const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\nUser-Agent: hello\r\n\r\n";
/// The request with `Connection: close`, of the same length.
pub const REQUEST_CLOSE: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

/// The context of the simulation.
pub struct Values {
    /// The current time.
    pub now_ns: u64,
    /// The response to both requests.
    pub response: Vec<u8>,
    /// Whether the publication still exists.
    pub is_there: bool,
    /// The reasons that were counted, in order.
    pub counted: Vec<SegmentReason>,
}

impl Values {
    /// A context with a response of `len` bytes, of which adjacent ones differ.
    pub fn new(len: usize) -> Values {
        let letters = (0..=255u8).cycle().zip(1u8..=251);
        let mut letters = letters.cycle().map(|(one, other)| one ^ other);
        Values {
            now_ns: 1_000_000_000,
            response: letters.by_ref().take(len).collect(),
            is_there: true,
            counted: Vec::new(),
        }
    }
}

impl SegmentContext for Values {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }
    fn mode(&self) -> LevelMode {
        LevelMode::Serve
    }
    fn is_daemon_alive(&self) -> bool {
        true
    }
    fn ignored_fields(&self) -> IgnoredFields {
        IgnoredFields::default()
    }
    fn mtu(&self) -> usize {
        1500
    }
    fn keep_alive_parts_max(&self) -> u32 {
        PARTS_MAX
    }
    fn is_served(&self, _: u16) -> bool {
        true
    }
    fn is_exempt(&self, _: &FourTuple) -> bool {
        false
    }
    fn is_denied(&self, _: IpAddr) -> bool {
        false
    }
    fn is_admitted(&self, _: &FourTuple, _: AdmissionTime) -> bool {
        true
    }
    fn random(&self) -> u32 {
        0
    }
    fn admit(&mut self, _: &FourTuple) {}
    fn rules_version(&self) -> u32 {
        0
    }
    fn is_local(&self, _: &FourTuple) -> bool {
        true
    }
    fn socket(&self, _: &FourTuple) -> SocketState {
        SocketState::Listener
    }
    fn end_time_wait(&mut self, _: &FourTuple) -> bool {
        false
    }
    fn cookie_key(&self, _: u64) -> [u64; 2] {
        [1, 2]
    }
    fn date(&self) -> [u8; 29] {
        [b'd'; 29]
    }
    fn has_responses(&self) -> bool {
        true
    }
    fn response(&self, _: &[u8]) -> Option<StoredAnswer<'_>> {
        self.publication(1)
    }
    fn publication(&self, id: u32) -> Option<StoredAnswer<'_>> {
        self.is_there.then_some(StoredAnswer {
            id,
            bytes: &self.response,
            head_len: 40,
            date_at: None,
            age_at: None,
            generated_ns: 0,
            expires_ns: u64::MAX,
        })
    }
    fn count(&mut self, reason: SegmentReason) {
        self.counted.push(reason);
    }
}
