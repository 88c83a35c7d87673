//! The decisions of `flight`, by numbers: a client that acknowledges immediately, and a link with specified losses.
//! Time and real segments are in `tests/flights.rs`.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::*;

const CUT: u32 = 1460;
const TEN: FlightPlan = FlightPlan {
    len: 10 * CUT - 7,
    segment_len: CUT,
};

fn bare(part: u32) -> AckInfo {
    AckInfo {
        part,
        distance: 0,
        len: 0,
        has_fin: false,
        window: 500,
        has_options: true,
    }
}

/// A retransmission by the client's timer: the last byte of its request.
fn repeat(part: u32) -> AckInfo {
    let (before, len) = (1, 1);
    AckInfo {
        distance: before,
        len,
        ..bare(part)
    }
}

fn again(first: u32, count: u32) -> FlightAction {
    FlightAction::Again { first, count }
}

const NOTHING: FlightAction = FlightAction::Drop(SegmentReason::TcpAck);

/// The cost until the client had everything.
#[derive(Debug, Default, PartialEq, Eq)]
struct Took {
    again: usize,
    timers: usize,
}

/// Delivers parts in this order to a client that acknowledges each; its timer fires when no part arrives.
fn deliver(flight: FlightPlan, first: &[u32], has_options: bool) -> Took {
    let mut known = RecoveryState::default();
    let (mut has, mut took) = (BTreeSet::new(), Took::default());
    let mut comes: VecDeque<u32> = first.iter().copied().collect();
    loop {
        let said = match comes.pop_front() {
            Some(part) => {
                has.insert(part);
                bare(acked(flight, &has))
            }
            None => {
                took.timers += 1;
                repeat(acked(flight, &has))
            }
        };
        if said.part >= flight.len {
            return took;
        }
        let said = AckInfo {
            has_options,
            ..said
        };
        match on_segment(flight, &mut known, &said) {
            FlightAction::Again { first, count } => {
                took.again += usize::try_from(count).expect("few");
                comes.extend(first..first + count);
            }
            FlightAction::Drop(_) => {}
            other => panic!("{other:?} with {has:?}"),
        }
        assert!(took.again + took.timers < 100, "it never ends");
    }
}

fn acked(flight: FlightPlan, has: &BTreeSet<u32>) -> u32 {
    let next = (0..).find(|part| !has.contains(part)).expect("endless");
    (next * flight.segment_len).min(flight.len)
}

fn all_but(flight: FlightPlan, lost: &[u32]) -> Vec<u32> {
    (0..flight.parts())
        .filter(|part| !lost.contains(part))
        .collect()
}

#[test]
fn what_is_not_lost_is_not_sent_again() {
    // Normal acknowledgements must not look like duplicates.
    for parts in 2..=10 {
        let flight = FlightPlan {
            len: parts * CUT,
            segment_len: CUT,
        };
        assert_eq!(
            deliver(flight, &all_but(flight, &[]), true),
            Took::default()
        );
    }
}

#[test]
fn one_that_is_lost_is_sent_again_alone() {
    for parts in 2..=10 {
        let flight = FlightPlan {
            len: parts * CUT - 1,
            segment_len: CUT,
        };
        for lost in 0..parts {
            // After the last part there is no duplicate acknowledgement.
            let timers = usize::from(lost == parts - 1);
            let took = deliver(flight, &all_but(flight, &[lost]), true);
            assert_eq!(took, Took { again: 1, timers }, "{lost} of {parts}");
        }
    }
}

#[test]
fn two_that_are_lost_cost_one_timer_at_most() {
    for one in 0..10 {
        for other in one + 1..10 {
            let took = deliver(TEN, &all_but(TEN, &[one, other]), true);
            assert!(took.timers <= 1, "{one} {other}: {took:?}");
            // In recovery by the timer the next part is sent, too.
            assert!(took.again <= 4, "{one} {other}: {took:?}");
        }
    }
}

#[test]
fn all_but_the_first_and_everything_come_two_at_a_time() {
    let took = deliver(TEN, &[0], true);
    assert_eq!(took.timers, 1);
    let took = deliver(TEN, &[], true);
    assert_eq!(took.timers, 1);
    // An acknowledgement of a single part triggers two parts.
    assert!(took.again <= 20, "{took:?}");
}

#[test]
fn two_that_change_places_are_not_lost() {
    for at in 0..8 {
        let mut order = all_but(TEN, &[]);
        order.swap(at, at + 1);
        // Nearer to the end fewer acknowledgements count as a loss (RFC 5827).
        let again = usize::from(at == 8);
        assert_eq!(deliver(TEN, &order, true), Took { again, timers: 0 });
    }
}

#[test]
fn what_comes_twice_is_not_lost() {
    // Nearer to the end one acknowledgement counts as a loss (RFC 5827).
    for part in 0..7 {
        let mut order = all_but(TEN, &[]);
        order.insert(part, u32::try_from(part).expect("few"));
        assert_eq!(deliver(TEN, &order, true), Took::default(), "{part}");
    }
}

#[test]
fn a_client_without_sack_gets_everything_too() {
    // Without SACK there is less information, so recovery takes longer.
    for one in 0..10 {
        for other in one..10 {
            let took = deliver(TEN, &all_but(TEN, &[one, other]), false);
            assert!(took.timers <= 2, "{one} {other}: {took:?}");
        }
    }
}

#[test]
fn a_window_that_opens_says_nothing_of_losses() {
    // RFC 5681 §2: a duplicate acknowledgement has the same window.
    let mut known = RecoveryState::default();
    assert_eq!(on_segment(TEN, &mut known, &bare(CUT)), NOTHING);
    for window in 0..100 {
        let said = AckInfo {
            window,
            has_options: false,
            ..bare(CUT)
        };
        assert_eq!(on_segment(TEN, &mut known, &said), NOTHING);
    }
    // Three equal acknowledgements are one loss; further ones are none.
    let said = AckInfo {
        window: 99,
        has_options: false,
        ..bare(CUT)
    };
    let due: Vec<FlightAction> = (0..5).map(|_| on_segment(TEN, &mut known, &said)).collect();
    assert_eq!(due, [NOTHING, NOTHING, again(1, 1), NOTHING, NOTHING]);
}

#[test]
fn many_small_acknowledgements_bring_no_more_than_a_few_large_ones() {
    // ACK division: a client that acknowledges each byte must not multiply the traffic.
    for first in [repeat(0), bare(0)] {
        let mut known = RecoveryState::default();
        for _ in 0..3 {
            on_segment(TEN, &mut known, &first);
        }
        let mut count = 0;
        for part in 1..TEN.len {
            match on_segment(TEN, &mut known, &bare(part)) {
                FlightAction::Again { count: more, .. } => count += more,
                due => assert_eq!(due, NOTHING),
            }
        }
        assert!(count <= 2 * 9, "{count}");
    }
}

#[test]
fn an_old_acknowledgement_brings_nothing() {
    // Reordered acknowledgements are no sign of a loss.
    let mut known = RecoveryState::default();
    on_segment(TEN, &mut known, &bare(5 * CUT));
    for part in [0, CUT, 5 * CUT - 1].repeat(10) {
        assert_eq!(on_segment(TEN, &mut known, &bare(part)), NOTHING);
    }
}

#[test]
fn a_timer_is_believed_seven_times() {
    // A forged retransmission costs one segment and triggers two, so the number is bounded.
    let mut known = RecoveryState::default();
    for _ in 0..7 {
        assert_eq!(on_segment(TEN, &mut known, &repeat(0)), again(0, 2));
    }
    assert_eq!(
        on_segment(TEN, &mut known, &repeat(0)),
        FlightAction::Enough
    );
    // A part of a part is not progress.
    assert_eq!(
        on_segment(TEN, &mut known, &repeat(CUT - 1)),
        FlightAction::Enough
    );
    assert_eq!(on_segment(TEN, &mut known, &repeat(CUT)), again(1, 2));
    for _ in 0..6 {
        assert_eq!(on_segment(TEN, &mut known, &repeat(CUT)), again(1, 2));
    }
    assert_eq!(
        on_segment(TEN, &mut known, &repeat(CUT)),
        FlightAction::Enough
    );
}

#[test]
fn who_goes_back_and_forth_gets_no_more() {
    // Alternating acknowledgements must not count as progress.
    let mut known = RecoveryState::default();
    let mut came = Vec::new();
    for _ in 0..20 {
        for said in [repeat(0), bare(CUT)] {
            came.push(on_segment(TEN, &mut known, &said));
        }
    }
    // The first part counts as progress once.
    let timers = came.iter().filter(|due| **due == again(0, 2)).count();
    let others = came.iter().filter(|due| **due == again(1, 2)).count();
    assert_eq!((timers, others), (8, 1));
    assert!(came.contains(&FlightAction::Enough));
}

#[test]
fn acknowledgements_count_with_the_timer() {
    let mut known = RecoveryState::default();
    let said = bare(0);
    let due = [(); 3].map(|()| on_segment(TEN, &mut known, &said));
    assert_eq!(due[2], again(0, 1));
    for _ in 0..6 {
        assert_eq!(on_segment(TEN, &mut known, &repeat(0)), again(0, 2));
    }
    assert_eq!(
        on_segment(TEN, &mut known, &repeat(0)),
        FlightAction::Enough
    );
}

#[test]
fn fewer_acknowledgements_count_as_a_loss_where_few_parts_are_under_way() {
    // RFC 5827: with few parts outstanding, there are never three duplicates.
    for (has, wanted) in [(0, 3), (5, 3), (6, 3), (7, 2), (8, 1), (9, 1)] {
        let mut known = RecoveryState::default();
        on_segment(TEN, &mut known, &bare(has * CUT));
        // Without any acknowledged part, the first acknowledgement is already a duplicate.
        let counted =
            (1..).find(|_| on_segment(TEN, &mut known, &bare(has * CUT)) == again(has, 1));
        let counted = counted.expect("endless") + u32::from(has == 0);
        assert_eq!(counted, wanted, "{has}");
    }
}

#[test]
fn who_lacks_only_the_fin_gets_the_last_part() {
    // FIN is sent with the last part only.
    let flight = FlightPlan {
        len: 2 * CUT,
        segment_len: CUT,
    };
    let mut known = RecoveryState::default();
    assert_eq!(
        on_segment(flight, &mut known, &repeat(2 * CUT)),
        again(1, 1)
    );
    let mut known = RecoveryState::default();
    on_segment(flight, &mut known, &bare(2 * CUT));
    assert_eq!(on_segment(flight, &mut known, &bare(2 * CUT)), again(1, 1));
}

#[test]
fn what_is_beyond_the_request_is_held_and_is_no_repetition() {
    let next = AckInfo {
        distance: 0,
        len: 30,
        ..bare(CUT)
    };
    // Start, data, FIN; the offset of buffered data, and the action.
    let timer = again(1, 2);
    let cases = vec![
        // The next request.
        (
            0,
            30,
            false,
            Some(0),
            FlightAction::Drop(SegmentReason::DropPipelined),
        ),
        (
            -30,
            30,
            false,
            Some(0),
            FlightAction::Drop(SegmentReason::DropPipelined),
        ),
        (1, 31, false, Some(1), timer),
        (30, 60, true, Some(30), timer),
        // The whole request again.
        (30, 30, false, None, timer),
        (30, 30, true, Some(30), timer),
        (
            30,
            29,
            true,
            None,
            FlightAction::Acknowledge(SegmentReason::TcpOld),
        ),
        // A part of the request without its last byte.
        (
            30,
            10,
            false,
            None,
            FlightAction::Acknowledge(SegmentReason::TcpOld),
        ),
        (
            0,
            0,
            true,
            Some(0),
            FlightAction::Drop(SegmentReason::TcpFin),
        ),
        (
            -30,
            0,
            true,
            Some(0),
            FlightAction::Drop(SegmentReason::TcpFin),
        ),
        (1, 0, true, None, FlightAction::Drop(SegmentReason::TcpFin)),
        (0, 0, false, None, NOTHING),
        (-60, 0, false, None, NOTHING),
    ];
    for (before, len, has_fin, skip, due) in cases {
        let said = AckInfo {
            distance: before,
            len,
            has_fin,
            ..next
        };
        assert_eq!(said.excess_offset(), skip, "{said:?}");
        let mut known = RecoveryState::default();
        assert_eq!(on_segment(TEN, &mut known, &said), due, "{said:?}");
    }
}

#[test]
fn only_what_is_near_is_of_the_flight() {
    for (before, is_near) in [
        // The limits of `BEHIND_MAX` and of the window.
        (1500, true),
        (1501, false),
        (0, true),
        (-64_240, true),
        (-64_241, false),
        (i32::MIN, false),
        (i32::MAX, false),
    ] {
        let said = AckInfo {
            distance: before,
            ..bare(0)
        };
        assert_eq!(said.is_near(64_240), is_near, "{before}");
    }
}
