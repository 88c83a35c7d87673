//! Sends millions of requests and segments through the eBPF programs: each response must agree with the result of the
//! other parsers of this project. `LOWROAD_FUZZ_CASES` is the number of cases, `LOWROAD_FUZZ_SEED` the seed.

mod common;

use common::bench::{Bench, FrameEffect, missing_bench_requirement};
use common::frames::{self, ACK, FIN, PSH, RST, SYN, SentSegment, URG};
use common::oracle::Oracle;
use common::requests::{self, RandomSource};
use common::responses::{RESPONSES, TestPublisher};
use lowroad_softirq::programs::loader::ProgramTier;

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number"))
    })
}

fn answers_agree(test: &str, tier: ProgramTier, is_v6: bool, seed: u64) {
    if let Some(reason) = missing_bench_requirement() {
        return lowroad_testkit::skip(test, &reason);
    }
    let bench = Bench::new(tier);
    let cases = number("LOWROAD_FUZZ_CASES", 50_000);
    let mut draws = RandomSource::new(number("LOWROAD_FUZZ_SEED", seed));
    bench.namespace.enter(|| {
        let mut oracle = Oracle::new(&bench, is_v6);
        let mut request = Vec::new();
        for case in 0..cases {
            if case % 1000 == 0 {
                bench.beat(0);
            }
            requests::write_random_request(&mut draws, &mut request);
            if request.is_empty() {
                continue;
            }
            if let Err(fault) = oracle.try_request(&request) {
                panic!("case {case}: {fault}: {}", request.escape_ascii());
            }
        }
        eprintln!("{cases} cases: {:#?}", oracle.tally);
        assert!(
            oracle.tally.answered > cases / 20,
            "too few are answered to say anything"
        );
    });
}

#[test]
fn xdp_program_and_http_parser_agree_on_requests() {
    answers_agree(
        "xdp_program_and_http_parser_agree_on_requests",
        ProgramTier::Xdp,
        false,
        1,
    );
}

#[test]
fn tc_program_and_http_parser_agree_on_requests() {
    answers_agree(
        "tc_program_and_http_parser_agree_on_requests",
        ProgramTier::Tc,
        true,
        2,
    );
}

/// No reflection: without a connection, a SYN gets a SYN-ACK that is not longer than the SYN, or a challenge ACK if
/// another SYN was answered before. Other segments get no reply.
fn no_segment_is_amplified(test: &str, tier: ProgramTier) {
    if let Some(reason) = missing_bench_requirement() {
        return lowroad_testkit::skip(test, &reason);
    }
    let bench = Bench::new(tier);
    let cases = number("LOWROAD_FUZZ_CASES", 50_000);
    let mut draws = RandomSource::new(number("LOWROAD_FUZZ_SEED", 3));
    let mut replies = 0u64;
    bench.namespace.enter(|| {
        let one = &RESPONSES[0];
        let mut shelf = TestPublisher::new(&bench.level);
        for key in one.keys() {
            shelf.publish(&bench.level, &key, &one.prepare(0), 86_400_000_000_000);
        }
        for case in 0..cases {
            if case % 1000 == 0 {
                bench.beat(0);
            }
            let frame = any_frame(&mut draws);
            let FrameEffect::Reply(reply) = bench.run(&frame) else {
                continue;
            };
            let what = frames::receive(&reply, &frame)
                .unwrap_or_else(|what| panic!("case {case}: {what}: {frame:02x?}"));
            let tcp_at = if frame[12] == 8 { 34 } else { 54 };
            let asked = frame[tcp_at + 13];
            assert_eq!(
                asked & (SYN | ACK | FIN | RST),
                SYN,
                "case {case}: {frame:02x?}"
            );
            replies += u64::from(what.flags == SYN | ACK);
            assert_eq!(what.flags & !SYN, ACK, "case {case}: {frame:02x?}");
            assert!(
                what.payload.is_empty() && reply.len() <= frame.len().max(60),
                "case {case}: {frame:02x?}"
            );
        }
    });
    eprintln!("{cases} cases, {replies} SYN-ACKs");
    assert!(
        replies > cases / 100,
        "too few SYNs are answered to say anything"
    );
}

#[test]
fn xdp_program_does_not_amplify_forged_segments() {
    no_segment_is_amplified(
        "xdp_program_does_not_amplify_forged_segments",
        ProgramTier::Xdp,
    );
}

#[test]
fn tc_program_does_not_amplify_forged_segments() {
    no_segment_is_amplified(
        "tc_program_does_not_amplify_forged_segments",
        ProgramTier::Tc,
    );
}

/// A random segment with random mutations.
fn any_frame(draws: &mut RandomSource) -> Vec<u8> {
    const FLAGS: [u8; 10] = [
        SYN,
        ACK,
        ACK | PSH,
        FIN | ACK,
        RST,
        SYN | ACK,
        FIN,
        URG | ACK,
        0,
        RST | ACK,
    ];
    let word = |draws: &mut RandomSource| u32::try_from(draws.next_u64() >> 32).expect("shifted");
    let mut sent = SentSegment {
        is_v6: draws.once_in(2),
        port: u16::try_from(draws.below(60_000)).expect("below"),
        flags: FLAGS[draws.below(FLAGS.len())],
        seq: word(draws),
        ack: word(draws),
        window: u16::try_from(draws.below(65_536)).expect("below"),
        ..SentSegment::default()
    };
    let options: [&[u8]; 5] = [
        &[2, 4, 5, 0xb4],
        &[
            2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
        ],
        &[3, 3, 9, 1, 2, 4, 5, 0xa0],
        &[],
        &[0, 0, 0, 0],
    ];
    sent.options = options[draws.below(options.len())].to_vec();
    if sent.flags & SYN == 0 && !draws.once_in(3) {
        requests::write_random_request(draws, &mut sent.payload);
    }
    let mut frame = sent.frame();
    for _ in 0..draws.below(4) {
        let end = frame.len().min(90);
        let at = draws.below(end);
        match draws.below(4) {
            0 => frame[at] = u8::try_from(draws.below(256)).expect("below"),
            1 => frame[at] ^= 1 << draws.below(8),
            // Test runs reject shorter frames.
            2 if draws.once_in(4) => frame.truncate(at.max(54)),
            3 if draws.once_in(4) => frame.extend([0; 7]),
            _ => {}
        }
    }
    frame
}
