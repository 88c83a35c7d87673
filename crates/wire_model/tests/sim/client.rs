//! A plain client: TCP with delayed acknowledgements, a timer that backs off, and perhaps what says SACK. It knows
//! no link; time is what it is told.

use std::collections::BTreeMap;

use lowroad_wire::Segment;
use lowroad_wire::frame::{ACK, FIN, PSH, RST, SYN};
use lowroad_wire::width::index;

/// The client's first number: it wraps round soon.
const ISN: u32 = 0xffff_fff0;
const TIMER_MS: u64 = 200;
const DELAY_MS: u64 = 40;
const TIMER_MAX_MS: u64 = 10_000;

/// A segment to the server.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its first byte's number.
    pub seq: u32,
    /// What it acknowledges.
    pub ack: u32,
    /// TCP flags.
    pub flags: u8,
    /// Data.
    pub payload: Vec<u8>,
    /// SACK.
    pub options: Vec<u8>,
}

/// How it behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// It says SACK where something is missing.
    pub has_sack: bool,
    /// It repeats its whole request, not only what is not acknowledged of it.
    pub repeats_all: bool,
    /// So many bytes of its data go into a segment: 0 is all.
    pub at_a_time: usize,
    /// It sends its FIN behind its data, before it has the answers.
    pub ends_early: bool,
}

/// The client.
pub struct Client {
    habits: Habits,
    is_open: bool,
    data: Vec<u8>,
    /// Of the data, acknowledged and sent; a FIN counts.
    una: u32,
    nxt: u32,
    max: u32,
    isn: u32,
    /// What came, in order, and what came too early.
    pub got: Vec<u8>,
    early: BTreeMap<u32, Vec<u8>>,
    fin_at: Option<u32>,
    has_fin: bool,
    unacknowledged: u32,
    ack_at_ms: Option<u64>,
    timer_at_ms: u64,
    timer_ms: u64,
    /// How often its timer has fired since the last progress.
    pub tried: u32,
    /// The server has ended it.
    pub is_reset: bool,
    wanted: usize,
    closes: bool,
}

impl Client {
    /// One that sends this and waits for so many bytes; the server is to close if it `closes`.
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

    /// Everything came, and everything of its own is acknowledged.
    pub fn is_done(&self) -> bool {
        self.has_all() && self.una == self.end()
    }

    /// Everything came.
    pub fn has_all(&self) -> bool {
        self.is_open && self.got.len() >= self.wanted && (self.has_fin || !self.closes)
    }

    fn end(&self) -> u32 {
        u32::try_from(self.data.len()).expect("short") + u32::from(self.habits.ends_early)
    }

    /// When it has something to do by itself.
    pub fn next_ms(&self) -> Option<u64> {
        let has_timer = !self.is_open || self.una < self.max;
        let timer = has_timer.then_some(self.timer_at_ms);
        [timer, self.ack_at_ms].into_iter().flatten().min()
    }

    /// Its time has come.
    pub fn on_time(&mut self, now_ms: u64, out: &mut Vec<Sent>) {
        if self.ack_at_ms.is_some_and(|at| at <= now_ms) {
            self.acknowledge(out);
        }
        if self.timer_at_ms > now_ms {
            return;
        }
        self.timer_ms = (self.timer_ms * 2).min(TIMER_MAX_MS);
        self.timer_at_ms = now_ms + self.timer_ms;
        if !self.is_open {
            out.push(self.syn());
        } else if self.una < self.max {
            self.tried += 1;
            // From there on, as far as one segment goes.
            let piece = u32::try_from(self.habits.at_a_time).expect("short").max(1);
            let begin = if self.habits.repeats_all { piece } else { 1 };
            self.nxt = self.una - self.una % begin;
            self.send(now_ms, out);
            self.nxt = self.max;
        }
    }

    /// It begins.
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

    /// A segment of the server.
    pub fn on_segment(&mut self, now_ms: u64, segment: &Segment<'_>, out: &mut Vec<Sent>) {
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

    fn on_data(&mut self, now_ms: u64, segment: &Segment<'_>, out: &mut Vec<Sent>) {
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

    /// What is next, in as many segments as it takes.
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
            // Its FIN goes alone, but together with what is sent again.
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
