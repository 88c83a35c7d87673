//! Random walks: a client that misbehaves in all ways, against the eBPF program and the rules in Rust at the same time.
//! Both must do the same with every segment.
//!
//! `LOWROAD_FUZZ_CASES` is the number of walks, `LOWROAD_FUZZ_SEED` the seed.

mod common;

use std::hash::{Hash, Hasher};

use common::bench::{Bench, Did, lacks};
use common::frames::{self, ACK, FIN, PSH, RST, Received, SYN, Sent, URG};
use common::model::Model;
use common::programs::Programs;
use common::requests::Draws;
use common::responses::{REQUESTS, RESPONSES, Request};
use common::script::{Subject, replies, without_nops};
use lowroad_softirq::layout::connection_bucket;
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_testkit::net::frame;

const CLIENT_ISN: u32 = 0xffff_ff80;

/// A segment with numbers relative to the initial ones of each side.
#[derive(Clone, Debug)]
struct Step {
    sent: Sent,
    ack: u32,
}

/// One of the two subjects, and its initial sequence numbers.
struct Side<'s> {
    subject: &'s mut dyn Subject,
    isns: Vec<u32>,
}

impl Side<'_> {
    /// The outcome in a form that is equal on both sides, and the replies.
    fn take(&mut self, step: &Step) -> (String, Vec<Received>) {
        let mut sent = step.sent.clone();
        sent.ack = self.isns.last().unwrap_or(&0).wrapping_add(step.ack);
        let frame = sent.frame();
        self.subject.reasons();
        let did = self.subject.frame(&frame);
        let (mut told, mut all) = (String::new(), Vec::new());
        for reply in replies(&did).unwrap_or_default() {
            match frames::receive(reply, &frame) {
                Ok(received) => {
                    let (received, which) = self.plain(received);
                    told += &tell(&received, which);
                    all.push(received);
                }
                Err(fault) => told += &format!("a wrong answer: {fault}"),
            }
        }
        if all.is_empty() {
            told += &match did {
                Did::UpInstead(instead) => without_ack(instead, step.sent.is_v6),
                other => format!("{other:?}"),
            };
        }
        (format!("{told} {:?}", self.subject.reasons()), all)
    }

    /// Converts to relative numbers, and finds the handshake that they belong to.
    fn plain(&mut self, mut received: Received) -> (Received, Option<usize>) {
        if received.flags == SYN | ACK {
            self.isns.push(received.seq);
        }
        // Connections of one walk have different initial numbers: the nearest one is meant.
        let near = |isn: &u32| received.seq.wrapping_sub(*isn).wrapping_add(100_000) < 200_000;
        let which = self.isns.iter().rposition(near);
        received.seq = received
            .seq
            .wrapping_sub(which.map_or(0, |which| self.isns[which]));
        received.ack = received.ack.wrapping_sub(CLIENT_ISN);
        received.options = without_nops(&received.options);
        // The clocks differ.
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

fn tell(received: &Received, which: Option<usize>) -> String {
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

/// Removes our numbers from a correct frame, since they differ.
fn without_ack(mut frame: Vec<u8>, is_v6: bool) -> String {
    let segment = frame::segment(&frame).expect("a segment");
    assert!(frame::checksums_hold(&frame, &segment), "{frame:02x?}");
    let tcp_at = if is_v6 { 54 } else { 34 };
    frame[tcp_at + 8..tcp_at + 12].fill(0);
    frame[tcp_at + 16..tcp_at + 18].fill(0);
    format!("instead {frame:02x?}")
}

/// The client's knowledge of sequence numbers.
#[derive(Default)]
struct Guess {
    /// Candidates for the next numbers of both sides.
    seqs: Vec<u32>,
    acks: Vec<u32>,
    /// Whether it mostly requests responses of several segments.
    wants_long: bool,
    /// Whether its segments have timestamps, regardless of its SYN.
    has_timestamps: bool,
    /// The last request that was answered in several segments.
    flight: Option<Flight>,
}

/// A response of several segments: the numbers at which its parts begin, and its end.
struct Flight {
    edges: Vec<u32>,
    /// The end of the request, and its bytes.
    rcv_nxt: u32,
    request: Vec<u8>,
    /// The last acknowledgement.
    acked: u32,
}

fn step(draws: &mut Draws, guess: &mut Guess, is_v6: bool, port: u16, at: usize) -> Step {
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
    let mut sent = Sent {
        is_v6,
        port,
        window: 64_000,
        ..Sent::default()
    };
    // A walk begins with a SYN; later ones may reopen or disturb the connection.
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
    if guess.wants_long && guess.flight.is_none() && !draws.once_in(4) {
        return long_step(draws, guess, sent);
    }
    sent.flags = if draws.once_in(30) {
        SYN | ACK
    } else {
        FLAGS[draws.below(FLAGS.len())]
    };
    let pick = |draws: &mut Draws, from: &[u32]| match draws.below(8) {
        // Mostly the latest.
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
        // Answerable requests, more often.
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

/// A well-formed request for a response of several segments.
fn long_step(draws: &mut Draws, guess: &mut Guess, mut sent: Sent) -> Step {
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

/// A client's segment during a flight: an acknowledgement, a duplicate, a retransmission after a timeout, or the next
/// request.
fn flight_step(draws: &mut Draws, flight: &mut Flight, mut sent: Sent) -> Step {
    let last = u8::try_from(draws.below(256)).expect("below");
    let next = REQUESTS[draws.below(REQUESTS.len())].bytes.as_bytes();
    let before = match draws.below(12) {
        // An acknowledgement of a part.
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
        // A duplicate.
        5..=7 => 0,
        // The last byte of its request, sometimes with more data.
        8 | 9 => {
            sent.payload = vec![last];
            if draws.once_in(3) {
                sent.payload.extend(next);
            }
            1
        }
        // The whole request.
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
fn learn(step: &Step, came: &[Received], guess: &mut Guess) {
    for received in came {
        let len = u32::try_from(received.payload.len()).expect("short");
        let fin = u32::from(received.flags & (FIN | SYN) != 0);
        guess.acks.push(received.seq.wrapping_add(len + fin));
        guess.seqs.push(received.ack);
    }
    let [first, .., last] = came else {
        return;
    };
    let is_of_known = |flight: &Flight| flight.edges.contains(&first.seq);
    if guess.flight.as_ref().is_some_and(is_of_known) {
        return;
    }
    let mut edges: Vec<u32> = came.iter().map(|part| part.seq).collect();
    let len = u32::try_from(last.payload.len()).expect("short");
    // The end without FIN, then with it.
    edges.push(last.seq.wrapping_add(len));
    edges.push(
        last.seq
            .wrapping_add(len + u32::from(last.flags & FIN != 0)),
    );
    // A flight withholds the acknowledgement of one byte.
    let rcv_nxt = first.ack.wrapping_add(1);
    guess.seqs.push(rcv_nxt);
    guess.flight = Some(Flight {
        acked: first.seq,
        edges,
        rcv_nxt,
        request: step.sent.payload.clone(),
    });
}

/// In the layout of all stacks, the client's clock first.
const TIMESTAMPS: &[u8] = &[1, 1, 8, 10, 0, 0, 1, 2, 0, 0, 3, 4];

/// Changes between segments. The program has only the latest of the settings.
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

/// Both subjects on the same bench, and counters.
struct Walks<'b> {
    tier: ProgramTier,
    bench: &'b Bench,
    programs: Programs<'b>,
    draws: Draws,
    /// Publishes all responses.
    publish_all: Vec<&'static str>,
    steps: u64,
    /// Segments answered with several.
    flights: u64,
}

impl Walks<'_> {
    fn walk(&mut self, walk: u64) {
        self.bench.beat(0);
        // Entries of other walks would make cookies valid.
        self.bench.clear_half_open();
        let is_v6 = self.draws.once_in(3);
        let port = u16::try_from(10_000 + walk % 40_000).expect("below");
        let mut model = Model::new(self.tier);
        // The programs keep their responses between walks.
        assert!(model.act(&self.publish_all, is_v6, port));
        let is_apart = self.programs.hands_over_apart();
        let subjects: [&mut dyn Subject; 2] = [&mut self.programs, &mut model];
        let mut sides = subjects.map(|subject| Side {
            subject,
            isns: Vec::new(),
        });
        let (mut guess, mut history) = (Guess::default(), Vec::new());
        guess.wants_long = self.draws.once_in(2);
        guess.has_timestamps = self.draws.once_in(2);
        let changes = self.draws.once_in(4);
        let more = if guess.wants_long { 20 } else { 0 };
        for at in 0..2 + more + self.draws.below(14) {
            if changes && self.draws.once_in(4) {
                let act = self.draws.of(&ACTS);
                let words: Vec<&str> = act.split(' ').collect();
                for side in &mut sides {
                    assert!(side.subject.act(&words, is_v6, port));
                }
                history.push(format!("do {act}"));
            }
            let mut step = step(&mut self.draws, &mut guess, is_v6, port, at);
            step.sent.bad_sum = self.draws.once_in(15);
            if guess.has_timestamps && step.sent.flags & SYN == 0 && !self.draws.once_in(20) {
                step.sent.options = [TIMESTAMPS, &step.sent.options].concat();
            }
            let [(program, came), (rules, _)] = sides.each_mut().map(|side| side.take(&step));
            history.push(format!("{step:?}\n   -> {program}"));
            // The program behind drops it, which is not tried here.
            let is_for_other = is_apart && program == "Up []" && rules == "Drop [\"drop_early\"]";
            assert!(
                is_for_other || program == rules,
                "walk {walk}, the rules say {rules}, after\n{}",
                history.join("\n")
            );
            learn(&step, &came, &mut guess);
            self.steps += 1;
            self.flights += u64::from(came.len() > 1);
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
            assert!(self.programs.act(&self.publish_all, is_v6, port));
        }
        if let Some((index, _, _)) = self.bench.connection(is_v6, port) {
            self.bench.set_bucket(index, &connection_bucket::default());
        }
    }
}

fn walks_end_alike(test: &str, tier: ProgramTier, seed: u64) {
    if let Some(reason) = lacks() {
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
            draws: Draws::new(number("LOWROAD_FUZZ_SEED", seed)),
            publish_all: std::iter::once("publish").chain(names).collect(),
            steps: 0,
            flights: 0,
        };
        walks.programs.reset();
        assert!(walks.programs.act(&walks.publish_all, false, 0));
        for walk in 0..count {
            walks.walk(walk);
        }
        (walks.steps, walks.flights)
    });
    eprintln!("{count} walks, {steps} segments, {flights} answered with several");
}

#[test]
fn the_tc_program_and_the_rules_walk_alike() {
    walks_end_alike(
        "the_tc_program_and_the_rules_walk_alike",
        ProgramTier::Tc,
        4,
    );
}

#[test]
fn the_xdp_program_and_the_rules_walk_alike() {
    walks_end_alike(
        "the_xdp_program_and_the_rules_walk_alike",
        ProgramTier::Xdp,
        5,
    );
}
