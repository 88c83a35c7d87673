//! Random walks: a client that does what no client does, against the eBPF program and the rules in
//! Rust at the same time. Both must do the same with every segment.
//!
//! The TC program is taken because it hands over by itself; its rules are those of the XDP program.
//! `LOWROAD_FUZZ_CASES` says how many walks, `LOWROAD_FUZZ_SEED` which.

mod common;

use common::bench::{Bench, Did, lacks};
use common::frames::{self, ACK, FIN, PSH, RST, Received, SYN, Sent, URG};
use common::model::Model;
use common::programs::Programs;
use common::requests::Draws;
use common::responses::{REQUESTS, RESPONSES};
use common::script::{Subject, without_nops};
use lowroad_softirq::layout::connection_bucket;
use lowroad_softirq::load::Tier;

const CLIENT_ISN: u32 = 0xffff_ff80;

/// A segment with numbers that count from the first of each side.
#[derive(Clone, Debug)]
struct Step {
    sent: Sent,
    ack: u32,
}

/// One of the two, and what our first numbers were there.
struct Side<'s> {
    subject: &'s mut dyn Subject,
    isns: Vec<u32>,
}

impl Side<'_> {
    /// What came of it, told so that both sides can be compared.
    fn take(&mut self, step: &Step) -> String {
        let mut sent = step.sent.clone();
        sent.ack = self.isns.last().unwrap_or(&0).wrapping_add(step.ack);
        let frame = sent.frame();
        self.subject.reasons();
        let did = self.subject.frame(&frame);
        let told = match did {
            Did::Reply(reply) => match frames::receive(&reply, &frame) {
                Ok(received) => self.told(received),
                Err(fault) => format!("a wrong answer: {fault}"),
            },
            other => format!("{other:?}"),
        };
        format!("{told} {:?}", self.subject.reasons())
    }

    fn told(&mut self, mut received: Received) -> String {
        if received.flags == SYN | ACK {
            self.isns.push(received.seq);
        }
        // Of which handshake it is.
        let near = |isn: &u32| received.seq.wrapping_sub(*isn).wrapping_add(10_000) < 20_000;
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
        format!("{received:?} of handshake {which:?}")
    }
}

/// Where the client believes to be: what a client could know of the numbers.
#[derive(Default)]
struct Guess {
    /// Candidates for the next number of the client and of ours.
    seqs: Vec<u32>,
    acks: Vec<u32>,
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
        // Those that are answered, more often.
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

/// What the client learns from an answer.
fn learn(told: &str, guess: &mut Guess) {
    let number = |name: &str| {
        let (_, rest) = told.split_once(name)?;
        rest.split([',', ' ']).next()?.parse::<u32>().ok()
    };
    let payload = told
        .split_once("payload: [")
        .and_then(|(_, rest)| rest.split_once(']'));
    let len = payload.map_or(0, |(bytes, _)| {
        bytes.split(", ").filter(|byte| !byte.is_empty()).count()
    });
    if let (Some(flags), Some(seq), Some(ack)) =
        (number("flags: "), number("seq: "), number("ack: "))
    {
        let fin = flags & u32::from(FIN | SYN) != 0;
        let next = seq
            .wrapping_add(u32::try_from(len).expect("short"))
            .wrapping_add(u32::from(fin));
        guess.acks.push(next);
        guess.seqs.push(ack);
    }
}

#[test]
fn walks_end_alike() {
    const TEST: &str = "walks_end_alike";
    if let Some(reason) = lacks() {
        return lowroad_testkit::skip(TEST, &reason);
    }
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |said| said.parse().expect("a number"))
    };
    let walks = number("LOWROAD_FUZZ_CASES", 300);
    let mut draws = Draws::new(number("LOWROAD_FUZZ_SEED", 4));
    let bench = Bench::new(Tier::Tc, false);
    let mut steps = 0u64;
    bench.namespace.enter(|| {
        let mut programs = Programs::new(&bench, Tier::Tc, false);
        programs.reset();
        let published = RESPONSES.iter().map(|one| one.name);
        let names: Vec<&str> = std::iter::once("publish").chain(published).collect();
        assert!(programs.act(&names, false, 0));
        for walk in 0..walks {
            bench.beat(0);
            let (is_v6, port) = (
                draws.once_in(3),
                u16::try_from(10_000 + walk % 40_000).expect("below"),
            );
            let mut model = Model::new();
            assert!(model.act(&names, is_v6, port));
            let mut sides = [
                Side {
                    subject: &mut programs,
                    isns: Vec::new(),
                },
                Side {
                    subject: &mut model,
                    isns: Vec::new(),
                },
            ];
            let (mut guess, mut history) = (Guess::default(), Vec::new());
            for at in 0..2 + draws.below(14) {
                let step = step(&mut draws, &mut guess, is_v6, port, at);
                let [program, rules] = sides.each_mut().map(|side| side.take(&step));
                history.push(format!("{step:?}\n   -> {program}"));
                assert_eq!(
                    program,
                    rules,
                    "walk {walk}, the program and the rules after\n{}",
                    history.join("\n")
                );
                learn(&program, &mut guess);
                steps += 1;
            }
            let [program, rules] = sides.each_mut().map(|side| side.subject.state(is_v6, port));
            assert_eq!(
                program,
                rules,
                "walk {walk}, states after\n{}",
                history.join("\n")
            );
            if let Some((index, _, _)) = bench.connection(is_v6, port) {
                bench.set_bucket(index, &connection_bucket::default());
            }
        }
    });
    eprintln!("{walks} walks, {steps} segments");
}
