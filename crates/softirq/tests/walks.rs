//! Random walks: a client that misbehaves in all ways, with the eBPF program and the rules in Rust in parallel. Both
//! must react to every segment in the same way.
//!
//! `LOWROAD_FUZZ_CASES` is the number of walks, `LOWROAD_FUZZ_SEED` the seed.

mod common;

use std::hash::{Hash, Hasher};

use common::bench::{Bench, FrameEffect, missing_bench_requirement};
use common::frames::{self, ACK, FIN, PSH, RST, ReceivedSegment, SYN, SentSegment, URG};
use common::model::Model;
use common::programs::Programs;
use common::requests::RandomSource;
use common::responses::{REQUESTS, RESPONSES, Request};
use common::script::{TraceTarget, replies, without_nops};
use lowroad_softirq::layout::connection_bucket;
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_testkit::net::frame;

const CLIENT_ISN: u32 = 0xffff_ff80;

/// A segment with numbers that are relative to the initial numbers of each side.
#[derive(Clone, Debug)]
struct Step {
    sent: SentSegment,
    ack: u32,
}

/// One of the two implementations, and the initial sequence numbers that it has chosen.
struct Side<'s> {
    subject: &'s mut dyn TraceTarget,
    isns: Vec<u32>,
}

impl Side<'_> {
    /// Processes a segment. Returns the outcome as a text that must be equal for both implementations, and the replies.
    fn take(&mut self, step: &Step) -> (String, Vec<ReceivedSegment>) {
        let mut sent = step.sent.clone();
        sent.ack = self.isns.last().unwrap_or(&0).wrapping_add(step.ack);
        let frame = sent.frame();
        self.subject.take_reasons();
        let did = self.subject.frame(&frame);
        let (mut text, mut all) = (String::new(), Vec::new());
        for reply in replies(&did).unwrap_or_default() {
            match frames::receive(reply, &frame) {
                Ok(received) => {
                    let (received, which) = self.plain(received);
                    text += &describe(&received, which);
                    all.push(received);
                }
                Err(fault) => text += &format!("a wrong answer: {fault}"),
            }
        }
        if all.is_empty() {
            text += &match did {
                FrameEffect::UpInstead(instead) => without_ack(instead, step.sent.is_v6),
                other => format!("{other:?}"),
            };
        }
        (format!("{text} {:?}", self.subject.take_reasons()), all)
    }

    /// Makes the numbers of a reply relative, and finds the handshake to which they belong.
    fn plain(&mut self, mut received: ReceivedSegment) -> (ReceivedSegment, Option<usize>) {
        if received.flags == SYN | ACK {
            self.isns.push(received.seq);
        }
        // The connections of a walk have different initial numbers, and the nearest one is the right one.
        let near = |isn: &u32| received.seq.wrapping_sub(*isn).wrapping_add(100_000) < 200_000;
        let which = self.isns.iter().rposition(near);
        received.seq = received
            .seq
            .wrapping_sub(which.map_or(0, |which| self.isns[which]));
        received.ack = received.ack.wrapping_sub(CLIENT_ISN);
        received.options = without_nops(&received.options);
        // The clocks of both implementations differ.
        if let Some(at) = received
            .payload
            .windows(5)
            .position(|bytes| bytes == b"Age: ")
        {
            received.payload[at + 5..at + 10].fill(b'?');
        }
        (received, which)
    }
}

fn describe(received: &ReceivedSegment, which: Option<usize>) -> String {
    let mut hasher = std::hash::DefaultHasher::new();
    received.payload.hash(&mut hasher);
    format!(
        "[flags {:02x} seq {} ack {} win {} options {:02x?} {} bytes, hash {:x}, of handshake {which:?}]",
        received.flags,
        received.seq,
        received.ack,
        received.window,
        received.options,
        received.payload.len(),
        hasher.finish()
    )
}

/// Clears the acknowledgement number of a frame, which differs between the implementations; its checksums must be
/// correct.
fn without_ack(mut frame: Vec<u8>, is_v6: bool) -> String {
    let segment = frame::segment(&frame).expect("a segment");
    assert!(frame::checksums_hold(&frame, &segment), "{frame:02x?}");
    let tcp_at = if is_v6 { 54 } else { 34 };
    frame[tcp_at + 8..tcp_at + 12].fill(0);
    frame[tcp_at + 16..tcp_at + 18].fill(0);
    format!("instead {frame:02x?}")
}

/// The sequence numbers that the client knows.
#[derive(Default)]
struct Guess {
    /// Candidates for the next sequence number of the client, and of the server.
    seqs: Vec<u32>,
    acks: Vec<u32>,
    /// Whether the client mostly requests responses of several segments.
    prefers_long_responses: bool,
    /// Whether its segments have timestamps, with or without timestamps in its SYN.
    has_timestamps: bool,
    /// The last response of several segments.
    flight: Option<Flight>,
}

/// A response of several segments: the sequence numbers at which the segments begin, and the end.
struct Flight {
    edges: Vec<u32>,
    /// The sequence number after the request, and the bytes of the request.
    rcv_nxt: u32,
    request: Vec<u8>,
    /// The last acknowledgement of the client.
    acked: u32,
}

fn step(draws: &mut RandomSource, guess: &mut Guess, is_v6: bool, port: u16, at: usize) -> Step {
    const FLAGS: [u8; 12] = [
        ACK,
        ACK,
        ACK | PSH,
        ACK | PSH,
        ACK | PSH,
        FIN | ACK,
        FIN | ACK,
        RST,
        RST | ACK,
        FIN | ACK | PSH,
        URG | ACK,
        PSH,
    ];
    let mut sent = SentSegment {
        is_v6,
        port,
        window: 64_000,
        ..SentSegment::default()
    };
    // A walk begins with a SYN; later SYNs may reopen or disturb the connection.
    if at == 0 || draws.once_in(20) {
        let options: [&[u8]; 4] = [
            &[2, 4, 5, 0xb4],
            &[
                2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
            ],
            &[4, 2, 3, 3, 9, 1, 1, 1],
            &[],
        ];
        sent.options = options[draws.below(options.len())].to_vec();
        sent.flags = SYN;
        let begin = if at == 0 {
            0
        } else {
            u32::try_from(draws.below(3) * 1_000_000).expect("below")
        };
        sent.seq = CLIENT_ISN.wrapping_add(begin);
        guess.seqs.push(begin.wrapping_add(1));
        guess.acks.push(1);
        return Step { sent, ack: 0 };
    }
    if let Some(flight) = guess.flight.as_mut().filter(|_| !draws.once_in(8)) {
        let step = flight_step(draws, flight, sent);
        let has_all = flight.edges.last() == Some(&flight.acked);
        if has_all && draws.once_in(2) {
            guess.acks.push(flight.acked);
            guess.flight = None;
        }
        return step;
    }
    if guess.prefers_long_responses && guess.flight.is_none() && !draws.once_in(4) {
        return long_step(draws, guess, sent);
    }
    sent.flags = if draws.once_in(30) {
        SYN | ACK
    } else {
        FLAGS[draws.below(FLAGS.len())]
    };
    let pick = |draws: &mut RandomSource, from: &[u32]| match draws.below(8) {
        // Mostly the latest number.
        0..=4 => *from.last().expect("after the SYN"),
        5..=6 => from[draws.below(from.len())],
        _ => from[draws.below(from.len())]
            .wrapping_add(u32::try_from(draws.below(5)).expect("below"))
            .wrapping_sub(2),
    };
    let (seq, ack) = (pick(draws, &guess.seqs), pick(draws, &guess.acks));
    sent.seq = CLIENT_ISN.wrapping_add(seq);
    if sent.flags & PSH != 0 || draws.once_in(6) {
        sent.payload = REQUESTS[draws.below(REQUESTS.len())]
            .bytes
            .as_bytes()
            .to_vec();
        // Requests with a stored response, in half of all cases.
        if draws.once_in(2) {
            sent.payload = REQUESTS[draws.below(3)].bytes.as_bytes().to_vec();
        }
    }
    if draws.once_in(10) {
        sent.window = [0, 150, 300, 65_535][draws.below(4)];
    }
    let len = u32::try_from(sent.payload.len()).expect("short");
    guess.seqs.push(
        seq.wrapping_add(len)
            .wrapping_add(u32::from(sent.flags & FIN != 0)),
    );
    Step { sent, ack }
}

/// A valid request for a response of several segments.
fn long_step(draws: &mut RandomSource, guess: &mut Guess, mut sent: SentSegment) -> Step {
    let is_long = |one: &&Request| one.name.ends_with(|last: char| last.is_ascii_digit());
    let long: Vec<&Request> = REQUESTS.iter().filter(is_long).collect();
    sent.payload = long[draws.below(long.len())].bytes.as_bytes().to_vec();
    sent.flags = ACK | PSH;
    let last = |of: &[u32]| *of.last().expect("after the SYN");
    sent.seq = CLIENT_ISN.wrapping_add(last(&guess.seqs));
    Step {
        sent,
        ack: last(&guess.acks),
    }
}

/// A segment of the client while it receives a response of several segments: an acknowledgement, a duplicate, a
/// retransmission, or the next request.
fn flight_step(draws: &mut RandomSource, flight: &mut Flight, mut sent: SentSegment) -> Step {
    let last = u8::try_from(draws.below(256)).expect("below");
    let next = REQUESTS[draws.below(REQUESTS.len())].bytes.as_bytes();
    let before = match draws.below(12) {
        // An acknowledgement of some segments.
        0..=4 => {
            flight.acked = flight.edges[draws.below(flight.edges.len())];
            if draws.once_in(4) {
                flight.acked = flight
                    .acked
                    .wrapping_sub(3)
                    .wrapping_add(u32::try_from(draws.below(7)).expect("below"));
            }
            0
        }
        // A duplicate acknowledgement.
        5..=7 => 0,
        // A retransmission of the last byte of its request, sometimes with more data.
        8 | 9 => {
            sent.payload = vec![last];
            if draws.once_in(3) {
                sent.payload.extend(next);
            }
            1
        }
        // A retransmission of the whole request.
        10 => {
            sent.payload.clone_from(&flight.request);
            if draws.once_in(4) {
                sent.payload.extend(next);
            }
            u32::try_from(flight.request.len()).expect("short")
        }
        _ => {
            sent.payload = next.to_vec();
            0
        }
    };
    let fin = if draws.once_in(12) { FIN } else { 0 };
    sent.flags = ACK | fin | if sent.payload.is_empty() { 0 } else { PSH };
    if draws.once_in(3) {
        // A SACK block.
        sent.options = vec![1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    }
    if draws.once_in(8) {
        sent.window = [0, 300, 1000, 65_535][draws.below(4)];
    }
    sent.seq = CLIENT_ISN.wrapping_add(flight.rcv_nxt.wrapping_sub(before));
    Step {
        sent,
        ack: flight.acked,
    }
}

/// Updates the client's knowledge from the replies to its segment.
fn learn(step: &Step, replied: &[ReceivedSegment], guess: &mut Guess) {
    for received in replied {
        let len = u32::try_from(received.payload.len()).expect("short");
        let fin = u32::from(received.flags & (FIN | SYN) != 0);
        guess.acks.push(received.seq.wrapping_add(len + fin));
        guess.seqs.push(received.ack);
    }
    let [first, .., last] = replied else {
        return;
    };
    let is_of_known = |flight: &Flight| flight.edges.contains(&first.seq);
    if guess.flight.as_ref().is_some_and(is_of_known) {
        return;
    }
    let mut edges: Vec<u32> = replied.iter().map(|part| part.seq).collect();
    let len = u32::try_from(last.payload.len()).expect("short");
    // The end without FIN, then with it.
    edges.push(last.seq.wrapping_add(len));
    edges.push(
        last.seq
            .wrapping_add(len + u32::from(last.flags & FIN != 0)),
    );
    // With a response of several segments, the acknowledgement of the last byte of the request is withheld.
    let rcv_nxt = first.ack.wrapping_add(1);
    guess.seqs.push(rcv_nxt);
    guess.flight = Some(Flight {
        acked: first.seq,
        edges,
        rcv_nxt,
        request: step.sent.payload.clone(),
    });
}

/// Timestamps in the layout that all stacks use; the client's clock is the first value.
const TIMESTAMPS: &[u8] = &[1, 1, 8, 10, 0, 0, 1, 2, 0, 0, 3, 4];

/// Changes of settings and responses between segments. For the programs, only the last of the settings applies.
const ACTS: [&str; 15] = [
    "mode drain",
    "mode serve",
    "stale",
    "fresh",
    "publish A B",
    "publish A_close",
    "replace A",
    "replace A_close",
    "retire A",
    "restart",
    "forget",
    "deny",
    "learn",
    "ignore-cookies",
    "strict",
];

/// Runs both implementations on the same bench.
struct Walks<'b> {
    tier: ProgramTier,
    bench: &'b Bench,
    programs: Programs<'b>,
    draws: RandomSource,
    /// The act that publishes all responses.
    publish_all: Vec<&'static str>,
    steps: u64,
    /// Number of segments that were answered with several.
    flights: u64,
}

impl Walks<'_> {
    fn walk(&mut self, walk: u64) {
        self.bench.beat(0);
        // Entries of earlier walks would make cookies valid.
        self.bench.clear_half_open();
        let is_v6 = self.draws.once_in(3);
        let port = u16::try_from(10_000 + walk % 40_000).expect("below");
        let mut model = Model::new(self.tier);
        // The programs keep their responses between walks; the model is new.
        assert!(model.carry_out(&self.publish_all, is_v6, port));
        let is_apart = self.programs.migrates_in_second_program();
        let subjects: [&mut dyn TraceTarget; 2] = [&mut self.programs, &mut model];
        let mut sides = subjects.map(|subject| Side {
            subject,
            isns: Vec::new(),
        });
        let (mut guess, mut history) = (Guess::default(), Vec::new());
        guess.prefers_long_responses = self.draws.once_in(2);
        guess.has_timestamps = self.draws.once_in(2);
        let changes = self.draws.once_in(4);
        let more = if guess.prefers_long_responses { 20 } else { 0 };
        for at in 0..2 + more + self.draws.below(14) {
            if changes && self.draws.once_in(4) {
                let act = self.draws.choose(&ACTS);
                let words: Vec<&str> = act.split(' ').collect();
                for side in &mut sides {
                    assert!(side.subject.carry_out(&words, is_v6, port));
                }
                history.push(format!("do {act}"));
            }
            let mut step = step(&mut self.draws, &mut guess, is_v6, port, at);
            step.sent.bad_sum = self.draws.once_in(15);
            if guess.has_timestamps && step.sent.flags & SYN == 0 && !self.draws.once_in(20) {
                step.sent.options = [TIMESTAMPS, &step.sent.options].concat();
            }
            let [(program, replied), (rules, _)] = sides.each_mut().map(|side| side.take(&step));
            history.push(format!("{step:?}\n   -> {program}"));
            // At the XDP tier, the TC program drops the segment, but it is not run here.
            let is_for_other = is_apart && program == "Up []" && rules == "Drop [\"drop_early\"]";
            assert!(
                is_for_other || program == rules,
                "walk {walk}, the rules say {rules}, after\n{}",
                history.join("\n")
            );
            learn(&step, &replied, &mut guess);
            self.steps += 1;
            self.flights += u64::from(replied.len() > 1);
        }
        let [program, rules] = sides.each_mut().map(|side| side.subject.state(is_v6, port));
        assert_eq!(
            program,
            rules,
            "walk {walk}, states after\n{}",
            history.join("\n")
        );
        if changes {
            // Settings and responses may have changed.
            self.programs.reset();
            assert!(self.programs.carry_out(&self.publish_all, is_v6, port));
        }
        if let Some((index, _, _)) = self.bench.connection(is_v6, port) {
            self.bench.set_bucket(index, &connection_bucket::default());
        }
    }
}

fn walks_agree(test: &str, tier: ProgramTier, seed: u64) {
    if let Some(reason) = missing_bench_requirement() {
        return lowroad_testkit::skip(test, &reason);
    }
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |said| said.parse().expect("a number"))
    };
    let count = number("LOWROAD_FUZZ_CASES", 300);
    let bench = Bench::new(tier);
    let (steps, flights) = bench.namespace.enter(|| {
        let names = RESPONSES.iter().map(|one| one.name);
        let mut walks = Walks {
            tier,
            programs: Programs::new(&bench, tier),
            bench: &bench,
            draws: RandomSource::new(number("LOWROAD_FUZZ_SEED", seed)),
            publish_all: std::iter::once("publish").chain(names).collect(),
            steps: 0,
            flights: 0,
        };
        walks.programs.reset();
        assert!(walks.programs.carry_out(&walks.publish_all, false, 0));
        for walk in 0..count {
            walks.walk(walk);
        }
        (walks.steps, walks.flights)
    });
    eprintln!("{count} walks, {steps} segments, {flights} answered with several");
}

#[test]
fn tc_program_and_rust_model_agree_on_random_walks() {
    walks_agree(
        "tc_program_and_rust_model_agree_on_random_walks",
        ProgramTier::Tc,
        4,
    );
}

#[test]
fn xdp_program_and_rust_model_agree_on_random_walks() {
    walks_agree(
        "xdp_program_and_rust_model_agree_on_random_walks",
        ProgramTier::Xdp,
        5,
    );
}
