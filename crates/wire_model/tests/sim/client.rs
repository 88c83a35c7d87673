//! A simulated TCP client with delayed acknowledgements, a retransmission timer with backoff and, optionally, SACK. The
//! time is an argument.

use std::collections::BTreeMap;

use lowroad_wire::SegmentView;
use lowroad_wire::frame::{ACK, FIN, PSH, RST, SYN};
use lowroad_wire::width::index;

/// The client's initial sequence number, shortly before 2^32, so that the numbers wrap.
const ISN: u32 = 0xffff_fff0;
const TIMER_MS: u64 = 200;
const DELAY_MS: u64 = 40;
const TIMER_MAX_MS: u64 = 10_000;

/// A segment to the server.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The sequence number of the first byte.
    pub seq: u32,
    /// The acknowledgement number.
    pub ack: u32,
    /// TCP flags.
    pub flags: u8,
    /// The data.
    pub payload: Vec<u8>,
    /// The options, for SACK.
    pub options: Vec<u8>,
}

/// The behavior of the client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// The client sends SACK.
    pub has_sack: bool,
    /// The client retransmits its whole request, not only the unacknowledged part.
    pub repeats_all: bool,
    /// Maximum length of data in a segment; 0: no limit.
    pub at_a_time: usize,
    /// The client sends FIN directly after its data, before it has the answers.
    pub ends_early: bool,
}

/// The client.
pub struct Client {
    habits: Habits,
    is_open: bool,
    data: Vec<u8>,
    /// Offsets in the data and FIN: first unacknowledged, next to send, and end of the data sent so far.
    una: u32,
    nxt: u32,
    max: u32,
    isn: u32,
    /// The data received in order.
    pub got: Vec<u8>,
    early: BTreeMap<u32, Vec<u8>>,
    fin_at: Option<u32>,
    has_fin: bool,
    unacknowledged: u32,
    ack_at_ms: Option<u64>,
    timer_at_ms: u64,
    timer_ms: u64,
    /// How often the retransmission timer has fired since the last progress.
    pub tried: u32,
    /// Whether the server has reset the connection.
    pub is_reset: bool,
    wanted: usize,
    closes: bool,
}

impl Client {
    /// A client that sends `data` and expects `wanted` bytes and, if `closes`, a FIN.
    pub fn new(data: Vec<u8>, wanted: usize, closes: bool, habits: Habits) -> Client {
        Client {
            habits,
            is_open: false,
            data,
            una: 0,
            nxt: 0,
            max: 0,
            isn: 0,
            got: Vec::new(),
            early: BTreeMap::new(),
            fin_at: None,
            has_fin: false,
            unacknowledged: 0,
            ack_at_ms: None,
            timer_at_ms: 0,
            timer_ms: TIMER_MS,
            tried: 0,
            is_reset: false,
            wanted,
            closes,
        }
    }

    /// Whether all data was received, and all sent data acknowledged.
    pub fn is_done(&self) -> bool {
        self.has_all() && self.una == self.end()
    }

    /// Whether all data was received.
    pub fn has_all(&self) -> bool {
        self.is_open && self.got.len() >= self.wanted && (self.has_fin || !self.closes)
    }

    fn end(&self) -> u32 {
        u32::try_from(self.data.len()).expect("short") + u32::from(self.habits.ends_early)
    }

    /// The time at which a timer of the client is due next.
    pub fn next_ms(&self) -> Option<u64> {
        let has_timer = !self.is_open || self.una < self.max;
        let timer = has_timer.then_some(self.timer_at_ms);
        [timer, self.ack_at_ms].into_iter().flatten().min()
    }

    /// Handles the timers that are due.
    pub fn on_time(&mut self, now_ms: u64, out: &mut Vec<Sent>) {
        if self.ack_at_ms.is_some_and(|at| at <= now_ms) {
            self.acknowledge(out);
        }
        if self.timer_at_ms > now_ms {
            return;
        }
        // RFC 6298 §5.5: the timer backs off.
        self.timer_ms = (self.timer_ms * 2).min(TIMER_MAX_MS);
        self.timer_at_ms = now_ms + self.timer_ms;
        if !self.is_open {
            out.push(self.syn());
        } else if self.una < self.max {
            self.tried += 1;
            // Retransmits one segment, from the start of the data or of its unacknowledged part.
            let piece = u32::try_from(self.habits.at_a_time).expect("short").max(1);
            let begin = if self.habits.repeats_all { piece } else { 1 };
            self.nxt = self.una - self.una % begin;
            self.send(now_ms, out);
            self.nxt = self.max;
        }
    }

    /// Sends the SYN.
    pub fn open(&mut self, now_ms: u64, out: &mut Vec<Sent>) {
        self.timer_at_ms = now_ms + self.timer_ms;
        out.push(self.syn());
    }

    fn syn(&self) -> Sent {
        Sent {
            seq: ISN,
            ack: 0,
            flags: SYN,
            payload: Vec::new(),
            options: vec![2, 4, 5, 0xb4],
        }
    }

    /// Processes a segment of the server.
    pub fn on_segment(&mut self, now_ms: u64, segment: &SegmentView<'_>, out: &mut Vec<Sent>) {
        if segment.flags & SYN != 0 {
            if !self.is_open {
                self.is_open = true;
                self.isn = segment.seq;
                self.timer_ms = TIMER_MS;
                self.acknowledge(out);
                self.send(now_ms, out);
            }
            return;
        }
        if !self.is_open {
            return;
        }
        if segment.flags & RST != 0 {
            // RFC 5961 §3.2: a reset is accepted only with the exact sequence number.
            self.is_reset |= segment.seq == self.ack();
            return;
        }
        self.on_acknowledged(now_ms, segment.ack.wrapping_sub(ISN.wrapping_add(1)), out);
        self.on_data(now_ms, segment, out);
    }

    fn on_acknowledged(&mut self, now_ms: u64, to: u32, out: &mut Vec<Sent>) {
        if self.una < to && to <= self.max {
            self.una = to;
            self.nxt = self.nxt.max(to);
            self.tried = 0;
            self.timer_ms = TIMER_MS;
            self.timer_at_ms = now_ms + self.timer_ms;
            self.send(now_ms, out);
        }
    }

    fn on_data(&mut self, now_ms: u64, segment: &SegmentView<'_>, out: &mut Vec<Sent>) {
        let fin = segment.flags & FIN != 0;
        if segment.payload.is_empty() && !fin {
            return;
        }
        let at = segment.seq.wrapping_sub(self.isn.wrapping_add(1));
        if fin {
            self.fin_at = Some(at + u32::try_from(segment.payload.len()).expect("short"));
        }
        let before = self.received();
        self.early.insert(at, segment.payload.to_vec());
        self.take_in_order();
        let is_next = self.received() > before;
        self.unacknowledged += u32::from(is_next);
        // RFC 5681 §4.2: out-of-order segments and every second segment are acknowledged immediately.
        if !is_next || !self.early.is_empty() || self.unacknowledged >= 2 || fin {
            self.acknowledge(out);
        } else {
            self.ack_at_ms.get_or_insert(now_ms + DELAY_MS);
        }
    }

    fn take_in_order(&mut self) {
        while let Some((at, bytes)) = self.early.pop_first() {
            let has = u32::try_from(self.got.len()).expect("short");
            if at > has {
                self.early.insert(at, bytes);
                break;
            }
            let known = index(has - at);
            self.got.extend(bytes.get(known..).unwrap_or_default());
        }
        let has = u32::try_from(self.got.len()).expect("short");
        self.has_fin |= self.fin_at == Some(has);
    }

    fn received(&self) -> u32 {
        u32::try_from(self.got.len()).expect("short") + u32::from(self.has_fin)
    }

    fn ack(&self) -> u32 {
        self.isn.wrapping_add(1).wrapping_add(self.received())
    }

    fn acknowledge(&mut self, out: &mut Vec<Sent>) {
        let sent = self.segment(self.max, ACK, Vec::new());
        self.is_told();
        out.push(sent);
    }

    fn is_told(&mut self) {
        self.ack_at_ms = None;
        self.unacknowledged = 0;
    }

    fn segment(&self, from: u32, flags: u8, payload: Vec<u8>) -> Sent {
        let mut options = Vec::new();
        if let Some((at, bytes)) = self
            .early
            .first_key_value()
            .filter(|_| self.habits.has_sack)
        {
            let begin = self.isn.wrapping_add(1).wrapping_add(*at);
            let end = begin.wrapping_add(u32::try_from(bytes.len()).expect("short"));
            options.extend([1, 1, 5, 10]);
            options.extend(begin.to_be_bytes());
            options.extend(end.to_be_bytes());
        }
        Sent {
            seq: ISN.wrapping_add(1).wrapping_add(from),
            ack: self.ack(),
            flags,
            payload,
            options,
        }
    }

    /// Sends the next data, in as many segments as needed.
    fn send(&mut self, now_ms: u64, out: &mut Vec<Sent>) {
        let is_repeat = self.nxt < self.max;
        while self.nxt < self.end() {
            let data_len = u32::try_from(self.data.len()).expect("short");
            let rest = &self.data[index(self.nxt.min(data_len))..];
            let most = match self.habits.at_a_time {
                0 => rest.len(),
                most => most - index(self.nxt) % most,
            };
            let payload = rest[..most.min(rest.len())].to_vec();
            let len = u32::try_from(payload.len()).expect("short");
            // The first FIN is sent alone; in a retransmission it is in the segment with the data.
            let with_fin = len == 0 || is_repeat && self.una > 0;
            let fin = self.habits.ends_early && self.nxt + len == data_len && with_fin;
            let psh = if len > 0 { PSH } else { 0 };
            let flags = ACK | psh | if fin { FIN } else { 0 };
            out.push(self.segment(self.nxt, flags, payload));
            self.is_told();
            self.nxt += len + u32::from(fin);
            self.max = self.max.max(self.nxt);
            if is_repeat {
                break;
            }
        }
        if !is_repeat && self.una < self.max {
            self.timer_at_ms = now_ms + self.timer_ms;
        }
    }
}
