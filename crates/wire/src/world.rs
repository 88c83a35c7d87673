//! What the rules need to be told: time, secrets, responses, and what the server above has. All of it
//! is behind one trait, so that a test, a kernel or an image without one can say it.

use core::net::IpAddr;

use crate::frame::Tuple;
use crate::reason::Reason;

/// Whether this level answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Frames pass.
    Off,
    /// It does.
    Serve,
    /// New connections go to the server above, live ones with their next request.
    Drain,
}

/// What the server above has for a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// Nothing.
    None,
    /// Somebody listens.
    Listener,
    /// A connection whose handshake is not complete.
    Handshake,
    /// A connection.
    Connection,
    /// What is left of one.
    TimeWait(TimeWait),
}

/// What is left of a connection whose end the server above has begun, so that late segments of it
/// harm nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWait {
    /// The client's next number.
    pub rcv_nxt: u32,
    /// The client's latest TSval, if it had timestamps.
    pub ts_recent: Option<u32>,
}

/// Since when a client must have been let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// Within the last minute.
    OfLate,
    /// Since the rules have changed by which it is.
    Ever,
}

/// What may be overlooked in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignore {
    /// `Cookie`.
    pub cookies: bool,
    /// `Cache-Control` and `Pragma`.
    pub cache_control: bool,
}

/// A published response.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'s> {
    /// Which publication it is: the same number is the same bytes.
    pub id: u32,
    /// Head and body.
    pub bytes: &'s [u8],
    /// Where the body begins.
    pub head_len: usize,
    /// Where the 29 bytes of Date's value begin.
    pub date_at: Option<usize>,
    /// Where the 5 digits of Age's value begin.
    pub age_at: Option<usize>,
    /// When its Age was 0. Before the clock's start it wraps round.
    pub born_ns: u64,
    /// From then on it is not answered.
    pub expires_ns: u64,
}

/// What the rules ask for.
pub trait World {
    /// A clock that only goes forward. It may stand still for some milliseconds.
    fn now_ns(&self) -> u64;
    /// Whether this level answers.
    fn mode(&self) -> Mode;
    /// Whether who keeps the responses has been heard of of late.
    fn is_kept(&self) -> bool;
    /// What may be overlooked in requests.
    fn ignore(&self) -> Ignore;
    /// Bytes of a packet on the way to the clients.
    fn mtu(&self) -> usize;
    /// Segments of the longest answer on a connection that stays open; elsewhere it is [`crate::PARTS_MAX`].
    fn kept_parts_max(&self) -> u32;
    /// Whether this port is answered.
    fn is_served(&self, port: u16) -> bool;
    /// Whether a connection is left alone: one of who fetches the responses.
    fn is_exempt(&self, tuple: &Tuple) -> bool;
    /// Whether this client is left alone.
    fn is_denied(&self, client: IpAddr) -> bool;
    /// Whether this client may be answered, as far as the server above has let it in at the same address and
    /// port, and by the same interface: of late, for a new connection, or ever. Its own port does not matter.
    fn is_admitted(&self, tuple: &Tuple, when: Admitted) -> bool;
    /// The server above has let this client in.
    fn admit(&mut self, tuple: &Tuple);
    /// A number that changes with the rules by which it does.
    fn rules(&self) -> u32;
    /// Whether the segment's destination is this machine.
    fn is_here(&self, tuple: &Tuple) -> bool;
    /// What the server above has for a segment.
    fn socket(&self, tuple: &Tuple) -> Socket;
    /// Ends a connection in TIME_WAIT, so that the listener behind it is the one for the segment. False:
    /// there is none, or it must stay.
    fn end_time_wait(&mut self, tuple: &Tuple) -> bool;
    /// The secret for the cookies of a minute; may change every 64.
    fn cookie_key(&self, minute: u64) -> [u64; 2];
    /// A number that no client can guess.
    fn random(&self) -> u32;
    /// The value of Date.
    fn date(&self) -> [u8; 29];
    /// Whether anything is published, or is learned from what is asked for, and answering it is worth it.
    fn has_responses(&self) -> bool;
    /// What is published under a key, fresh or not.
    fn response(&self, key: &[u8]) -> Option<Stored<'_>>;
    /// A publication by its number, for as long as its bytes are there: fresh or not, and for some
    /// seconds after it was retired.
    fn publication(&self, id: u32) -> Option<Stored<'_>>;
    /// Counts an exit.
    fn count(&mut self, reason: Reason);
}
