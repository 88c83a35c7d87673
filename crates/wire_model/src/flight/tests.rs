//! Tests of the decisions of `flight`, with a client that acknowledges immediately and a link with given losses. Tests
//! with time and real segments are in `tests/flights.rs`.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::*;

const SEGMENT_LEN: u32 = 1460;
const TEN_PARTS: FlightPlan = FlightPlan {
    len: 10 * SEGMENT_LEN - 7,
    segment_len: SEGMENT_LEN,
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

/// A retransmission by the client's timer, with the last byte of its request.
fn repeat(part: u32) -> AckInfo {
    let (before, len) = (1, 1);
    AckInfo {
        distance: before,
        len,
        ..bare(part)
    }
}

fn retransmit(first: u32, count: u32) -> FlightAction {
    FlightAction::Retransmit { first, count }
}

const NO_ACTION: FlightAction = FlightAction::Drop(SegmentReason::TcpAck);

/// The cost until the client has the whole answer.
#[derive(Debug, Default, PartialEq, Eq)]
struct RecoveryCost {
    retransmits: usize,
    timers: usize,
}

/// Delivers parts in this order to a client that acknowledges each part. Its timer fires when no part arrives.
fn deliver(flight: FlightPlan, first: &[u32], has_options: bool) -> RecoveryCost {
    let mut recovery_state = RecoveryState::default();
    let (mut has, mut recovery_cost) = (BTreeSet::new(), RecoveryCost::default());
    let mut in_transit: VecDeque<u32> = first.iter().copied().collect();
    loop {
        let ack_info = match in_transit.pop_front() {
            Some(part) => {
                has.insert(part);
                bare(acked(flight, &has))
            }
            None => {
                recovery_cost.timers += 1;
                repeat(acked(flight, &has))
            }
        };
        if ack_info.part >= flight.len {
            return recovery_cost;
        }
        let ack_info = AckInfo {
            has_options,
            ..ack_info
        };
        match on_segment(flight, &mut recovery_state, &ack_info) {
            FlightAction::Retransmit { first, count } => {
                recovery_cost.retransmits += usize::try_from(count).expect("few");
                in_transit.extend(first..first + count);
            }
            FlightAction::Drop(_) => {}
            other => panic!("{other:?} with {has:?}"),
        }
        assert!(
            recovery_cost.retransmits + recovery_cost.timers < 100,
            "it never ends"
        );
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
fn no_retransmission_without_loss() {
    // Normal acknowledgements must not look like duplicates.
    for parts in 2..=10 {
        let flight = FlightPlan {
            len: parts * SEGMENT_LEN,
            segment_len: SEGMENT_LEN,
        };
        assert_eq!(
            deliver(flight, &all_but(flight, &[]), true),
            RecoveryCost::default()
        );
    }
}

#[test]
fn single_lost_part_is_retransmitted_alone() {
    for parts in 2..=10 {
        let flight = FlightPlan {
            len: parts * SEGMENT_LEN - 1,
            segment_len: SEGMENT_LEN,
        };
        for lost in 0..parts {
            // The loss of the last part causes no duplicate acknowledgements.
            let timers = usize::from(lost == parts - 1);
            let recovery_cost = deliver(flight, &all_but(flight, &[lost]), true);
            assert_eq!(
                recovery_cost,
                RecoveryCost {
                    retransmits: 1,
                    timers
                },
                "{lost} of {parts}"
            );
        }
    }
}

#[test]
fn two_lost_parts_need_at_most_one_client_timeout() {
    for one in 0..10 {
        for other in one + 1..10 {
            let recovery_cost = deliver(TEN_PARTS, &all_but(TEN_PARTS, &[one, other]), true);
            assert!(
                recovery_cost.timers <= 1,
                "{one} {other}: {recovery_cost:?}"
            );
            // In recovery by the timer, the part after the lost one is sent, too.
            assert!(
                recovery_cost.retransmits <= 4,
                "{one} {other}: {recovery_cost:?}"
            );
        }
    }
}

#[test]
fn loss_of_nearly_all_parts_is_recovered_two_parts_at_a_time() {
    let recovery_cost = deliver(TEN_PARTS, &[0], true);
    assert_eq!(recovery_cost.timers, 1);
    let recovery_cost = deliver(TEN_PARTS, &[], true);
    assert_eq!(recovery_cost.timers, 1);
    // An acknowledgement of one part triggers two parts.
    assert!(recovery_cost.retransmits <= 20, "{recovery_cost:?}");
}

#[test]
fn swapped_parts_are_not_retransmitted() {
    for at in 0..8 {
        let mut order = all_but(TEN_PARTS, &[]);
        order.swap(at, at + 1);
        // Near the end, fewer duplicates count as a loss (RFC 5827).
        let retransmits = usize::from(at == 8);
        assert_eq!(
            deliver(TEN_PARTS, &order, true),
            RecoveryCost {
                retransmits,
                timers: 0
            }
        );
    }
}

#[test]
fn duplicated_part_is_not_retransmitted() {
    // Near the end, one duplicate counts as a loss (RFC 5827).
    for part in 0..7 {
        let mut order = all_but(TEN_PARTS, &[]);
        order.insert(part, u32::try_from(part).expect("few"));
        assert_eq!(
            deliver(TEN_PARTS, &order, true),
            RecoveryCost::default(),
            "{part}"
        );
    }
}

#[test]
fn client_without_sack_recovers_from_two_losses() {
    // Without SACK there is less information, so recovery takes longer.
    for one in 0..10 {
        for other in one..10 {
            let recovery_cost = deliver(TEN_PARTS, &all_but(TEN_PARTS, &[one, other]), false);
            assert!(
                recovery_cost.timers <= 2,
                "{one} {other}: {recovery_cost:?}"
            );
        }
    }
}

#[test]
fn window_update_is_not_a_duplicate_ack() {
    // RFC 5681 §2: a duplicate acknowledgement has the same window.
    let mut recovery_state = RecoveryState::default();
    assert_eq!(
        on_segment(TEN_PARTS, &mut recovery_state, &bare(SEGMENT_LEN)),
        NO_ACTION
    );
    for window in 0..100 {
        let ack_info = AckInfo {
            window,
            has_options: false,
            ..bare(SEGMENT_LEN)
        };
        assert_eq!(
            on_segment(TEN_PARTS, &mut recovery_state, &ack_info),
            NO_ACTION
        );
    }
    // Three duplicates are one loss, and further ones no other.
    let ack_info = AckInfo {
        window: 99,
        has_options: false,
        ..bare(SEGMENT_LEN)
    };
    let due: Vec<FlightAction> = (0..5)
        .map(|_| on_segment(TEN_PARTS, &mut recovery_state, &ack_info))
        .collect();
    assert_eq!(
        due,
        [NO_ACTION, NO_ACTION, retransmit(1, 1), NO_ACTION, NO_ACTION]
    );
}

#[test]
fn ack_division_does_not_multiply_retransmissions() {
    // ACK division: a client that acknowledges each byte must not multiply the traffic.
    for first in [repeat(0), bare(0)] {
        let mut recovery_state = RecoveryState::default();
        for _ in 0..3 {
            on_segment(TEN_PARTS, &mut recovery_state, &first);
        }
        let mut count = 0;
        for part in 1..TEN_PARTS.len {
            match on_segment(TEN_PARTS, &mut recovery_state, &bare(part)) {
                FlightAction::Retransmit { count: more, .. } => count += more,
                due => assert_eq!(due, NO_ACTION),
            }
        }
        assert!(count <= 2 * 9, "{count}");
    }
}

#[test]
fn old_ack_triggers_no_retransmission() {
    // Reordered acknowledgements do not indicate a loss.
    let mut recovery_state = RecoveryState::default();
    on_segment(TEN_PARTS, &mut recovery_state, &bare(5 * SEGMENT_LEN));
    for part in [0, SEGMENT_LEN, 5 * SEGMENT_LEN - 1].repeat(10) {
        assert_eq!(
            on_segment(TEN_PARTS, &mut recovery_state, &bare(part)),
            NO_ACTION
        );
    }
}

#[test]
fn connection_is_reset_after_seven_timeouts_without_progress() {
    // A forged retransmission costs one segment and triggers two, so their number is limited.
    let mut recovery_state = RecoveryState::default();
    for _ in 0..7 {
        assert_eq!(
            on_segment(TEN_PARTS, &mut recovery_state, &repeat(0)),
            retransmit(0, 2)
        );
    }
    assert_eq!(
        on_segment(TEN_PARTS, &mut recovery_state, &repeat(0)),
        FlightAction::Reset
    );
    // Progress within a part does not count.
    assert_eq!(
        on_segment(TEN_PARTS, &mut recovery_state, &repeat(SEGMENT_LEN - 1)),
        FlightAction::Reset
    );
    assert_eq!(
        on_segment(TEN_PARTS, &mut recovery_state, &repeat(SEGMENT_LEN)),
        retransmit(1, 2)
    );
    for _ in 0..6 {
        assert_eq!(
            on_segment(TEN_PARTS, &mut recovery_state, &repeat(SEGMENT_LEN)),
            retransmit(1, 2)
        );
    }
    assert_eq!(
        on_segment(TEN_PARTS, &mut recovery_state, &repeat(SEGMENT_LEN)),
        FlightAction::Reset
    );
}

#[test]
fn alternating_acks_are_not_progress() {
    // Alternating acknowledgements must not count as progress again and again.
    let mut recovery_state = RecoveryState::default();
    let mut actions = Vec::new();
    for _ in 0..20 {
        for ack_info in [repeat(0), bare(SEGMENT_LEN)] {
            actions.push(on_segment(TEN_PARTS, &mut recovery_state, &ack_info));
        }
    }
    // The first part counts as progress once.
    let timers = actions
        .iter()
        .filter(|due| **due == retransmit(0, 2))
        .count();
    let others = actions
        .iter()
        .filter(|due| **due == retransmit(1, 2))
        .count();
    assert_eq!((timers, others), (8, 1));
    assert!(actions.contains(&FlightAction::Reset));
}

#[test]
fn fast_retransmit_counts_toward_the_retransmission_limit() {
    let mut recovery_state = RecoveryState::default();
    let ack_info = bare(0);
    let due = [(); 3].map(|()| on_segment(TEN_PARTS, &mut recovery_state, &ack_info));
    assert_eq!(due[2], retransmit(0, 1));
    for _ in 0..6 {
        assert_eq!(
            on_segment(TEN_PARTS, &mut recovery_state, &repeat(0)),
            retransmit(0, 2)
        );
    }
    assert_eq!(
        on_segment(TEN_PARTS, &mut recovery_state, &repeat(0)),
        FlightAction::Reset
    );
}

#[test]
fn early_retransmit_needs_fewer_duplicates_near_the_end() {
    // RFC 5827: with few parts outstanding, there can't be three duplicates.
    for (has, wanted) in [(0, 3), (5, 3), (6, 3), (7, 2), (8, 1), (9, 1)] {
        let mut recovery_state = RecoveryState::default();
        on_segment(TEN_PARTS, &mut recovery_state, &bare(has * SEGMENT_LEN));
        // If no part is acknowledged, the first acknowledgement is already a duplicate.
        let counted = (1..).find(|_| {
            on_segment(TEN_PARTS, &mut recovery_state, &bare(has * SEGMENT_LEN))
                == retransmit(has, 1)
        });
        let counted = counted.expect("endless") + u32::from(has == 0);
        assert_eq!(counted, wanted, "{has}");
    }
}

#[test]
fn client_that_lacks_only_fin_gets_the_last_part() {
    // FIN is sent only with the last part.
    let flight = FlightPlan {
        len: 2 * SEGMENT_LEN,
        segment_len: SEGMENT_LEN,
    };
    let mut recovery_state = RecoveryState::default();
    assert_eq!(
        on_segment(flight, &mut recovery_state, &repeat(2 * SEGMENT_LEN)),
        retransmit(1, 1)
    );
    let mut recovery_state = RecoveryState::default();
    on_segment(flight, &mut recovery_state, &bare(2 * SEGMENT_LEN));
    assert_eq!(
        on_segment(flight, &mut recovery_state, &bare(2 * SEGMENT_LEN)),
        retransmit(1, 1)
    );
}

#[test]
fn data_beyond_the_request_is_buffered_and_is_no_retransmission() {
    let next = AckInfo {
        distance: 0,
        len: 30,
        ..bare(SEGMENT_LEN)
    };
    // Distance, length and FIN of a segment; the offset of its data to buffer, and the action.
    let timer = retransmit(1, 2);
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
        (0, 0, false, None, NO_ACTION),
        (-60, 0, false, None, NO_ACTION),
    ];
    for (before, len, has_fin, skip, due) in cases {
        let ack_info = AckInfo {
            distance: before,
            len,
            has_fin,
            ..next
        };
        assert_eq!(ack_info.excess_offset(), skip, "{ack_info:?}");
        let mut recovery_state = RecoveryState::default();
        assert_eq!(
            on_segment(TEN_PARTS, &mut recovery_state, &ack_info),
            due,
            "{ack_info:?}"
        );
    }
}

#[test]
fn only_segments_near_the_request_belong_to_the_flight() {
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
        let ack_info = AckInfo {
            distance: before,
            ..bare(0)
        };
        assert_eq!(ack_info.is_near(64_240), is_near, "{before}");
    }
}
