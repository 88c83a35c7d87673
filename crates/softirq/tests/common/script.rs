//! The language of traces: segments of a client and their expected effects, as text. It does not depend on the
//! implementation: eBPF programs and `lowroad-wire` run the same traces.
//!
//! ```text
//! == a name [v6]
//! do publish A B                    the state of the world
//! do hand-over                      only if the tested program migrates connections itself
//! do old-socket 0-10                the kernel has a socket; the client's initial number is -10
//! do time-wait 0-10 stamped         the kernel closed a connection: next was -10, with timestamps
//! > AP 1 1 win=500 get              sent: flags, seq, ack, and options or payload
//! < AP 1 1+get A ; answer_hit ; OPEN   the answer, the exits counted, the state afterwards
//! = drop ; tcp_ack ; OPEN           or no answer: up (punt), pass, drop
//! ^ AP 1+get 1+A miss ; up_miss ; HANDED   punt, with this segment of the client in its place
//! = late ; drop_early ; HANDED      dropped, at the XDP tier by the program that migrates
//! = held ; up_miss drop_x ; HANDED   the same, if that processes it first: up_miss is of the first
//! = kept ; tcp_kept ; KERNEL        passed, at the XDP tier by that program
//! < A 1 get10 Ten/0-9 ; answer_hit ; OPEN   several answers: these parts of it, all of this ack
//! > A 1+get10 1+Ten/3 sacked        the client has three parts, and some after a gap
//! do unwrap                         skipped if IP options are not removed
//! > AP 1 1 ipoptions=0101 get       an IPv4 header with these options
//! > AP 1 1 extension=60:00010400000000 get   an extension header: kind, and bytes after the first
//! > AP 1 1 fragment cut=8 get        a packet with 8 bytes of TCP
//! do flights                        skipped if answers of several parts are not tested
//! do kept 10                        skipped if connections that stay open get fewer parts
//! ```
//!
//! Numbers are relative to the initial ones of each side: 0 is the SYN. They are sums of numbers and of names, which
//! stand for the lengths of these requests and responses. `seq` of an answer counts ours. `A'` replaces `A`. For parts
//! `seq` is the number of the answer's first byte; the last part has PSH, and FIN if its flags contain it. Parts have
//! 1448 bytes, on IPv6 and after `do cut 1208` 1208.

use lowroad_wire::width;

use super::bench::{DATE, FrameEffect};
use super::frames::{self, ACK, FIN, PSH, RST, ReceivedSegment, SYN, SentSegment, URG};
use super::responses::{REQUESTS, RESPONSES, Response};

/// An implementation under test.
pub trait TraceTarget {
    /// Processes a frame.
    fn frame(&mut self, frame: &[u8]) -> FrameEffect;
    /// The reasons counted since the last call, each name once, in their order.
    fn take_reasons(&mut self) -> Vec<String>;
    /// The state of the connection of this client; `-` if there is none.
    fn state(&mut self, is_v6: bool, port: u16) -> String;
    /// Carries out a `do` line. Returns false if the implementation does not support it: then the trace is skipped.
    fn carry_out(&mut self, words: &[&str], is_v6: bool, port: u16) -> bool;
    /// Whether a second program, which is not tested here, processes migrating segments.
    fn migrates_in_second_program(&self) -> bool {
        false
    }
    /// Restores the initial state before each trace, without published responses.
    fn reset(&mut self);
}

/// The client's initial sequence number.
pub const CLIENT_ISN: u32 = 0xffff_ff00;

/// Runs all traces of a text, with client ports from `first_port` on. Returns descriptions of the failed traces, and
/// the number of traces that were run.
pub fn run(text: &str, first_port: u16, subject: &mut dyn TraceTarget) -> (Vec<String>, usize) {
    let mut faults = Vec::new();
    let mut count = 0;
    let text = text.split_once("\n== ").map_or("", |(_, traces)| traces);
    for (port, trace) in (first_port..).zip(text.split("\n== ")) {
        let (name, lines) = trace.split_once('\n').unwrap_or((trace, ""));
        subject.reset();
        let mut client = Client {
            is_v6: name.ends_with(" v6"),
            port,
            our_isn: 0,
            cut: if name.ends_with(" v6") { 1208 } else { 1448 },
        };
        count += 1;
        match client.play(lines, subject) {
            Ok(true) => {}
            Ok(false) => count -= 1,
            Err(fault) => faults.push(format!("{name}: {fault}")),
        }
    }
    (faults, count)
}

struct Client {
    is_v6: bool,
    port: u16,
    our_isn: u32,
    /// Payload of a segment in a response of several segments.
    cut: u32,
}

impl Client {
    fn play(&mut self, lines: &str, subject: &mut dyn TraceTarget) -> Result<bool, String> {
        let mut sent: Option<(Vec<u8>, FrameEffect)> = None;
        for line in lines.lines() {
            let line = line.split('#').next().unwrap_or("").trim();
            let Some((kind, rest)) = line.split_once(' ') else {
                continue;
            };
            let fault = |what: String| format!("`{line}`: {what}");
            match kind {
                "do" if rest.starts_with("cut ") => self.cut = self.number(&rest[4..]),
                "do" => {
                    let words: Vec<&str> = rest.split_whitespace().collect();
                    if !subject.carry_out(&words, self.is_v6, self.port) {
                        return Ok(false);
                    }
                }
                ">" => {
                    let frame = self.sent(rest).frame();
                    subject.take_reasons();
                    let did = subject.frame(&frame);
                    sent = Some((frame, did));
                }
                _ => {
                    let (frame, did) = sent
                        .take()
                        .ok_or_else(|| fault("nothing was sent".into()))?;
                    let parts: Vec<&str> = rest.split(';').map(str::trim).collect();
                    let [mut what, mut reasons, mut state] = parts[..] else {
                        return Err(fault("three parts are needed".into()));
                    };
                    if matches!(what, "late" | "held" | "kept") {
                        let first = reasons.split(' ').next().unwrap_or_default();
                        (what, reasons, state) = match what {
                            "held" if subject.migrates_in_second_program() => {
                                ("up", first, "HANDED")
                            }
                            _ if subject.migrates_in_second_program() => ("up", "", "HANDED"),
                            "late" | "held" => ("drop", reasons, state),
                            _ => ("pass", reasons, state),
                        };
                    }
                    let (counted, is) = (
                        subject.take_reasons().join(" "),
                        subject.state(self.is_v6, self.port),
                    );
                    let end = format!("; {counted} ; {is}");
                    match kind {
                        "<" => self.compare(what, &frame, &did),
                        "^" if did == FrameEffect::UpInstead(self.sent(what).frame()) => Ok(()),
                        _ if what == word(&did) => Ok(()),
                        _ => Err(format!("it was {}", self.told(&did, &frame))),
                    }
                    .map_err(|what| fault(format!("{what} {end}")))?;
                    if reasons != counted || state != is {
                        return Err(fault(format!("it was {end}")));
                    }
                }
            }
        }
        Ok(true)
    }

    fn sent(&self, text: &str) -> SentSegment {
        let mut words = text.split_whitespace();
        let mut next = || words.next().expect("flags, seq and ack");
        let (flag_letters, seq, ack) = (next(), self.number(next()), self.number(next()));
        let mut sent = SentSegment {
            is_v6: self.is_v6,
            port: self.port,
            flags: flags(flag_letters),
            seq: CLIENT_ISN.wrapping_add(seq),
            ack: self.our_isn.wrapping_add(ack),
            window: 64_000,
            ..SentSegment::default()
        };
        for word in words {
            match word.split_once('=') {
                Some(("win", window)) => sent.window = window.parse().expect("a window"),
                Some(("ipoptions", bytes)) => sent.ip_options = hexadecimal(bytes),
                Some(("extension", header)) => {
                    let (kind, bytes) = header.split_once(':').expect("a kind");
                    let kind = kind.parse().expect("a kind");
                    sent.extensions.push((kind, hexadecimal(bytes)));
                }
                Some(("cut", len)) => sent.tcp_len_max = len.parse().ok(),
                Some(("bytes", len)) => sent.payload = vec![b'x'; len.parse().expect("a length")],
                _ if option(word, &mut sent.options) => {}
                _ => match word {
                    "badsum" => sent.bad_sum = true,
                    "badheader" => sent.bad_header_sum = true,
                    "fragment" => sent.is_fragment = true,
                    "here" => sent.is_from_server_address = true,
                    "elsewhere" => sent.is_for_other_machine = true,
                    "broadcast" => sent.is_broadcast = true,
                    "ipoptions" if self.is_v6 => sent.extensions.push((60, PADDING.to_vec())),
                    "ipoptions" => sent.ip_options = vec![1, 1, 1, 0],
                    _ => sent.payload = payload(word),
                },
            }
        }
        while !sent.options.len().is_multiple_of(4) {
            sent.options.push(1);
        }
        sent
    }

    fn compare(&mut self, text: &str, frame: &[u8], did: &FrameEffect) -> Result<(), String> {
        let replies = replies(did).ok_or_else(|| format!("it was {}", word(did)))?;
        let mut all = Vec::new();
        for reply in replies {
            all.push(frames::receive(reply, frame)?);
        }
        if let [first] = &all[..]
            && first.flags == SYN | ACK
        {
            self.our_isn = first.seq;
        }
        let wanted = self.wanted(text, &mut all)?;
        // The position of NOPs is up to the implementation.
        for is in &mut all {
            is.options = without_nops(&is.options);
        }
        (all == wanted)
            .then_some(())
            .ok_or_else(|| format!("it was {}", self.told(did, frame)))
    }

    /// The replies that the text expects. If the text has no window, that of the first actual reply is used.
    fn wanted(
        &self,
        text: &str,
        came: &mut [ReceivedSegment],
    ) -> Result<Vec<ReceivedSegment>, String> {
        let mut words = text.split_whitespace();
        let mut next = || words.next().expect("flags, seq and ack");
        let (flag_letters, seq, ack) = (next(), self.number(next()), self.number(next()));
        let mut wanted = ReceivedSegment {
            flags: flags(flag_letters),
            seq: self.our_isn.wrapping_add(seq),
            ack: CLIENT_ISN.wrapping_add(ack),
            window: came.first().map_or(0, |is| is.window),
            ..ReceivedSegment::default()
        };
        let mut parts = None;
        for word in words {
            match word.split_once('=') {
                Some(("win", window)) => wanted.window = window.parse().expect("a window"),
                _ if option(word, &mut wanted.options) => {}
                _ => {
                    let (name, which) = word.split_once('/').unzip();
                    let first = came.first_mut().ok_or("nothing came")?;
                    wanted.payload = Self::answer(name.unwrap_or(word), &mut first.payload)?;
                    parts = which;
                }
            }
        }
        Ok(match parts {
            Some(which) => self.parts(&wanted, which),
            None => vec![wanted],
        })
    }

    /// The segments of a response with these indexes, as `3` or `0-9`.
    fn parts(&self, whole: &ReceivedSegment, which: &str) -> Vec<ReceivedSegment> {
        let (first, last) = which.split_once('-').unwrap_or((which, which));
        let index = |text: &str| text.parse::<usize>().expect("a part");
        let cut = width::index(self.cut);
        let count = whole.payload.len().div_ceil(cut);
        let part = |(at, bytes): (usize, &[u8])| ReceivedSegment {
            flags: match at + 1 == count {
                true => whole.flags | PSH,
                false => whole.flags & !FIN,
            },
            seq: whole
                .seq
                .wrapping_add(u32::try_from(at * cut).expect("short")),
            payload: bytes.to_vec(),
            ..whole.clone()
        };
        let all = whole.payload.chunks(cut).enumerate().map(part);
        all.skip(index(first))
            .take(1 + index(last) - index(first))
            .collect()
    }

    /// Like the function [`number`], but with segments: `Ten/3` is the start of the fourth segment.
    fn number(&self, text: &str) -> u32 {
        sum_of(text, self.cut)
    }

    /// The bytes of a named response with the current date and age.
    fn answer(name: &str, came: &mut [u8]) -> Result<Vec<u8>, String> {
        let (name, is_head) = match name.strip_suffix(".head") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let first = name.trim_end_matches('\'');
        let edition = u8::from(first != name);
        let mut wanted = Response::named(first).prepare(edition);
        wanted.bytes[wanted.date_at..wanted.date_at + 29].copy_from_slice(DATE);
        let place = wanted.age_at..wanted.age_at + 5;
        wanted.bytes[place.clone()].copy_from_slice(b"00070");
        if is_head {
            wanted.bytes.truncate(wanted.head_len);
        }
        if let Some(age) = came.get_mut(place) {
            let seconds: u64 = std::str::from_utf8(age)
                .ok()
                .and_then(|age| age.parse().ok())
                .unwrap_or(0);
            // The programs' clock is up to a tick behind.
            if (69..100).contains(&seconds) {
                age.copy_from_slice(b"00070");
            }
        }
        Ok(wanted.bytes)
    }

    fn told(&self, did: &FrameEffect, frame: &[u8]) -> String {
        let Some(replies) = replies(did) else {
            return word(did).to_owned();
        };
        let told: Vec<String> = replies
            .iter()
            .map(|reply| self.told_one(reply, frame))
            .collect();
        told.join("\n      ")
    }

    fn told_one(&self, reply: &[u8], frame: &[u8]) -> String {
        match frames::receive(reply, frame) {
            Err(what) => what,
            Ok(is) => format!(
                "< {} {} {} win={} options {:02x?}, {} bytes {:.200?}",
                letters(is.flags),
                is.seq.wrapping_sub(self.our_isn),
                is.ack.wrapping_sub(CLIENT_ISN),
                is.window,
                is.options,
                is.payload.len(),
                String::from_utf8_lossy(&is.payload)
            ),
        }
    }
}

/// The frames that were sent as replies.
pub fn replies(did: &FrameEffect) -> Option<&[Vec<u8>]> {
    match did {
        FrameEffect::Reply(reply) => Some(std::slice::from_ref(reply)),
        FrameEffect::Flight(replies) => Some(replies),
        _ => None,
    }
}

fn word(did: &FrameEffect) -> &'static str {
    match did {
        FrameEffect::Reply(_) => "reply",
        FrameEffect::Flight(_) => "several replies",
        FrameEffect::Up => "up",
        FrameEffect::UpInstead(_) => "up, but another",
        FrameEffect::PassedToTc => "again",
        FrameEffect::Pass => "pass",
        FrameEffect::Drop => "drop",
    }
}

const LETTERS: [(char, u8); 6] = [
    ('S', SYN),
    ('F', FIN),
    ('R', RST),
    ('P', PSH),
    ('A', ACK),
    ('U', URG),
];

/// A destination options header with padding only, after its first byte (RFC 8200 §4.6).
const PADDING: [u8; 7] = [0, 1, 4, 0, 0, 0, 0];

fn hexadecimal(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn flags(letters: &str) -> u8 {
    let bit = |letter| {
        LETTERS
            .iter()
            .find(|(name, _)| *name == letter)
            .map_or(0, |(_, bit)| *bit)
    };
    letters.chars().map(bit).fold(0, |all, bit| all | bit)
}

fn letters(flags: u8) -> String {
    LETTERS
        .iter()
        .filter(|(_, bit)| flags & bit != 0)
        .map(|(letter, _)| letter)
        .collect()
}

/// The timestamp clock of kernel connections, without an offset.
pub fn clock_ms() -> u32 {
    let now_ms = lowroad_softirq::now_ns() / 1_000_000;
    u32::try_from(now_ms & 0xffff_ffff).expect("masked")
}

/// Evaluates a sum of numbers and lengths such as `1+get+A-1`.
pub fn number(text: &str) -> u32 {
    sum_of(text, 0)
}

fn sum_of(text: &str, cut: u32) -> u32 {
    let length = |name: &str| match name.split_once('/') {
        Some((_, part)) => cut * part.parse::<u32>().expect("a part"),
        None => length(name),
    };
    let mut sum = 0u32;
    for term in text.split('+') {
        let mut parts = term.split('-');
        sum = sum.wrapping_add(length(parts.next().unwrap_or("0")));
        for less in parts {
            sum = sum.wrapping_sub(length(less));
        }
    }
    sum
}

fn length(name: &str) -> u32 {
    let len = match name.parse::<u32>() {
        Ok(number) => return number,
        Err(_) if name.ends_with(".head") => {
            Response::named(&name[..name.len() - 5]).prepare(0).head_len
        }
        Err(_) if RESPONSES.iter().any(|one| one.name == name) => {
            Response::named(name).prepare(0).bytes.len()
        }
        Err(_) => payload(name).len(),
    };
    u32::try_from(len).expect("short")
}

fn payload(name: &str) -> Vec<u8> {
    let found = REQUESTS.iter().find(|one| one.name == name);
    found
        .unwrap_or_else(|| panic!("no request {name}"))
        .bytes
        .as_bytes()
        .to_vec()
}

/// Appends a TCP option to `to`: `mss=1460`, `sack`, `sacked`, `scale=7`, `nop`, `time`, or `time=5-3` (of the clock).
/// Returns false if the word is no option.
fn option(word: &str, to: &mut Vec<u8>) -> bool {
    match word.split_once('=') {
        Some(("mss", mss)) => {
            to.extend([2, 4]);
            to.extend(mss.parse::<u16>().expect("an MSS").to_be_bytes());
        }
        Some(("scale", scale)) => to.extend([3, 3, scale.parse::<u8>().expect("a scale")]),
        Some(("time", since_ms)) => {
            to.extend([8, 10]);
            to.extend(clock_ms().wrapping_add(number(since_ms)).to_be_bytes());
            to.extend([0; 4]);
        }
        None if word == "sack" => to.extend([4, 2]),
        None if word == "nop" => to.push(1),
        None if word == "sacked" => to.extend([5, 10, 0, 0, 0, 1, 0, 0, 0, 2]),
        None if word == "time" => to.extend([8, 10, 0, 0, 0, 1, 0, 0, 0, 0]),
        _ => return false,
    }
    true
}

/// Options without NOPs and padding.
pub fn without_nops(options: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut rest = options;
    while let Some(kind) = rest.first() {
        let len = match kind {
            0 | 1 => 1,
            _ => usize::from(*rest.get(1).unwrap_or(&1)).clamp(1, rest.len()),
        };
        if *kind > 1 {
            kept.extend(&rest[..len]);
        }
        rest = &rest[len..];
    }
    kept
}
