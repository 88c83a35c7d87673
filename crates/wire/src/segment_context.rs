//! The environment of the fast path's rules: time, secrets, responses, and the kernel's sockets. It is a trait, so that
//! a test, a kernel or a unikernel image can implement it.

use core::net::IpAddr;

use crate::frame::FourTuple;
use crate::segment_reason::SegmentReason;

/// The mode of the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelMode {
    /// All frames pass to the kernel.
    Off,
    /// Requests are answered.
    Serve,
    /// New connections pass to the kernel; existing ones migrate at their next request.
    Drain,
}

/// The kernel's socket for a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketState {
    /// There is none.
    None,
    /// A listening socket.
    Listener,
    /// A connection in its handshake.
    Handshake,
    /// An established connection.
    Connection,
    /// A connection in TIME_WAIT.
    TimeWait(TimeWait),
}

/// The state of a connection in TIME_WAIT, which the kernel has closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWait {
    /// The next sequence number of the client.
    pub rcv_nxt: u32,
    /// The latest TSval of the client, if it used timestamps.
    pub ts_recent: Option<u32>,
}

/// How recently the server must have admitted a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionTime {
    /// The server has admitted the client within the last minute.
    LastMinute,
    /// The server has admitted the client since the last change of the access rules.
    SinceRulesChanged,
}

/// Request fields that do not prevent an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IgnoredFields {
    /// `Cookie`.
    pub cookies: bool,
    /// `Cache-Control` and `Pragma`.
    pub cache_control: bool,
}

/// A published response.
#[derive(Clone, Copy, Debug)]
pub struct StoredAnswer<'s> {
    /// The number of the publication; equal numbers mean equal bytes.
    pub id: u32,
    /// Head and body.
    pub bytes: &'s [u8],
    /// The offset of the body.
    pub head_len: usize,
    /// The offset of the 29 bytes of Date's value.
    pub date_at: Option<usize>,
    /// The offset of the 5 digits of Age's value.
    pub age_at: Option<usize>,
    /// The time at which Age was 0. Wraps around for times before the clock's start.
    pub generated_ns: u64,
    /// From this time on, the response is not sent any more.
    pub expires_ns: u64,
}

/// The queries and effects that the rules of the fast path need.
pub trait SegmentContext {
    /// A monotonic clock. It may lag by some milliseconds.
    fn now_ns(&self) -> u64;
    /// The mode of the fast path.
    fn mode(&self) -> LevelMode;
    /// Whether the daemon that maintains the responses is alive.
    fn is_daemon_alive(&self) -> bool;
    /// The request fields that may be ignored.
    fn ignored_fields(&self) -> IgnoredFields;
    /// The MTU of the path to the clients, in bytes.
    fn mtu(&self) -> usize;
    /// The maximum number of segments of an answer on a connection that stays open; if the connection closes, the
    /// maximum is `PARTS_MAX`.
    fn keep_alive_parts_max(&self) -> u32;
    /// Whether the fast path answers on this port.
    fn is_served(&self, port: u16) -> bool;
    /// Whether a connection is exempt, as the daemon fetches responses with it (probe source).
    fn is_exempt(&self, tuple: &FourTuple) -> bool;
    /// Whether this client is denied.
    fn is_denied(&self, client: IpAddr) -> bool;
    /// Whether the server has admitted this client at the same local address and port and on the same interface, as
    /// recently as `admission_time` requires. The client's port does not matter.
    fn is_admitted(&self, tuple: &FourTuple, admission_time: AdmissionTime) -> bool;
    /// Records that the server has admitted this client.
    fn admit(&mut self, tuple: &FourTuple);
    /// The version of the access rules, a number that changes with them.
    fn rules_version(&self) -> u32;
    /// Whether the segment's destination is this host.
    fn is_local(&self, tuple: &FourTuple) -> bool;
    /// The kernel's socket for a segment.
    fn socket(&self, tuple: &FourTuple) -> SocketState;
    /// Ends a connection in TIME_WAIT, so that the segment reaches the listener. False if there is none, or if it can't
    /// be ended.
    fn end_time_wait(&mut self, tuple: &FourTuple) -> bool;
    /// The secret for the cookies of a minute. It may change every 64 minutes.
    fn cookie_key(&self, minute: u64) -> [u64; 2];
    /// A number that clients can't guess.
    fn random(&self) -> u32;
    /// The current value of Date.
    fn date(&self) -> [u8; 29];
    /// Whether new connections should be accepted: responses are published or being learned, and answering them here is
    /// worthwhile.
    fn has_responses(&self) -> bool;
    /// The response published under a key, fresh or not.
    fn response(&self, key: &[u8]) -> Option<StoredAnswer<'_>>;
    /// The publication with this number, as long as its bytes exist: fresh or not, and for some seconds after it was
    /// withdrawn.
    fn publication(&self, id: u32) -> Option<StoredAnswer<'_>>;
    /// Increments the counter of a reason.
    fn count(&mut self, reason: SegmentReason);
}
