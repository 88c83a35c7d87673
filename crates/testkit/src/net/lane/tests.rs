//! Tests with numbered frames in virtual time.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// Frame `n`, in bytes that are not IP or ARP.
fn numbered(n: u64) -> Vec<u8> {
    [&[0xff; 14][..], &n.to_be_bytes()].concat()
}

fn number(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[14..].try_into().unwrap())
}

fn passed(lane: &mut LinkLane, now: Duration) -> Vec<u64> {
    std::iter::from_fn(|| lane.ready(now))
        .map(|frame| number(&frame))
        .collect()
}

fn run(mangling: ManglingRule, seed: u64, frames: u64) -> (Vec<u64>, LaneCounts) {
    let mut lane = LinkLane::new(mangling, seed, 1500);
    (0..frames).for_each(|n| lane.receive(Duration::ZERO, numbered(n)));
    let order = passed(&mut lane, HOLD_MAX * 2);
    assert_eq!(lane.next_due(), None);
    (order, lane.counts())
}

#[test]
fn default_rule_forwards_all_frames_in_order_without_delay() {
    let (order, counts) = run(ManglingRule::default(), 1, 100);
    assert_eq!(order, (0..100).collect::<Vec<_>>());
    assert_eq!(
        counts,
        LaneCounts {
            frames: 100,
            ..LaneCounts::default()
        }
    );
}

#[test]
fn equal_seeds_mangle_alike_and_other_seeds_differ() {
    let mangling = ManglingRule {
        loss_percent: 5.0,
        duplication_percent: 5.0,
        reorder_percent: 5.0,
        ..ManglingRule::default()
    };
    assert_eq!(run(mangling, 3, 1000), run(mangling, 3, 1000));
    assert_ne!(run(mangling, 3, 1000).0, run(mangling, 4, 1000).0);
}

#[test]
fn copies_of_each_frame_match_its_fate_and_the_counters() {
    let mangling = ManglingRule {
        loss_percent: 10.0,
        duplication_percent: 10.0,
        reorder_percent: 10.0,
        ..ManglingRule::default()
    };
    let (order, counts) = run(mangling, 9, 2000);
    let expected = counts.frames - counts.lost + counts.duplicated;
    assert_eq!(order.len() as u64, expected);
    assert!(counts.lost > 100 && counts.duplicated > 100 && counts.reordered > 100);
    for n in 0..2000 {
        let copies = order.iter().filter(|passed| **passed == n).count();
        assert_eq!(
            copies,
            usize::from(fate(&mangling, 9, n).copies),
            "frame {n}"
        );
    }
}

#[test]
fn held_frame_is_overtaken_by_the_chosen_number_of_frames() {
    let mangling = ManglingRule {
        reorder_percent: 20.0,
        ..ManglingRule::default()
    };
    let (order, _) = run(mangling, 5, 500);
    let behind = |n: u64| fate(&mangling, 5, n).behind_frames;
    let index_of = |n: u64| order.iter().position(|passed| *passed == n).unwrap();
    // Only held frames followed by frames that are not held: then exactly `behind` frames overtake.
    let held = (0..490).filter(|n| behind(*n) > 0 && (1..4).all(|k| behind(n + k) == 0));
    for n in held.clone() {
        let last = n + behind(n);
        assert!(
            index_of(last) < index_of(n) && index_of(n) < index_of(last + 1),
            "frame {n}"
        );
    }
    assert!(held.count() > 10);
}

#[test]
fn held_frame_without_successors_is_released_after_hold_max() {
    let mangling = ManglingRule {
        reorder_percent: 100.0,
        ..ManglingRule::default()
    };
    let mut lane = LinkLane::new(mangling, 1, 1500);
    lane.receive(5 * MS, numbered(0));
    assert_eq!(lane.next_due(), Some(5 * MS + HOLD_MAX));
    assert_eq!(passed(&mut lane, 4 * MS + HOLD_MAX), []);
    assert_eq!(passed(&mut lane, 5 * MS + HOLD_MAX), [0]);
}

#[test]
fn delay_and_jitter_do_not_reorder_frames() {
    let mangling = ManglingRule {
        delay_ms: 10,
        jitter_ms: 20,
        ..ManglingRule::default()
    };
    let mut lane = LinkLane::new(mangling, 2, 1500);
    (0..100).for_each(|n| lane.receive(Duration::ZERO, numbered(n)));
    assert_eq!(passed(&mut lane, 9 * MS), []);
    let mut order = passed(&mut lane, 11 * MS);
    assert!(order.len() < 100);
    order.extend(passed(&mut lane, 30 * MS));
    assert_eq!(order, (0..100).collect::<Vec<_>>());
}

#[test]
fn arp_is_neither_mangled_nor_counted() {
    let mangling = ManglingRule {
        loss_percent: 100.0,
        ..ManglingRule::default()
    };
    let mut lane = LinkLane::new(mangling, 2, 1500);
    let mut arp = vec![2; 42];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    lane.receive(MS, arp.clone());
    assert_eq!(lane.ready(MS), Some(arp));
    assert_eq!(lane.counts(), LaneCounts::default());
}

#[test]
fn frame_above_the_mtu_is_counted_as_oversize() {
    let mut lane = LinkLane::new(ManglingRule::default(), 2, 1500);
    lane.receive(MS, vec![0xff; 1514]);
    assert_eq!(lane.counts().oversize, 0);
    lane.receive(MS, vec![0xff; 1515]);
    assert_eq!(lane.counts().oversize, 1);
}
