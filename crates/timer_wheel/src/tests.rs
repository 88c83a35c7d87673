use super::*;

const TICK: u64 = 8;

fn wheel(now: u64) -> TimerWheel<TICK> {
    TimerWheel::new(0, now)
}

fn due(wheel: &mut TimerWheel<TICK>, now: u64) -> Vec<u32> {
    let mut due: Vec<u32> = core::iter::from_fn(|| wheel.pop(now)).collect();
    due.sort_unstable();
    due
}

#[test]
fn entries_are_due_on_time_and_never_early() {
    let mut wheel = wheel(1000);
    assert_eq!(wheel.next(), None);
    let at = wheel.schedule(1, 1100).expect("it was in no slot");
    assert!((1100..1100 + TICK).contains(&at));
    assert_eq!(wheel.next(), Some(at));
    assert!(due(&mut wheel, at - 1).is_empty());
    assert_eq!(due(&mut wheel, at), [1]);
    assert_eq!(wheel.next(), None);
}

#[test]
fn entries_are_due_in_the_order_of_their_times() {
    let mut wheel = wheel(0);
    wheel.schedule(0, 100);
    wheel.schedule(1, 40);
    wheel.schedule(2, 101);
    // The entry stays in its earlier slot.
    assert_eq!(wheel.schedule(1, 90_000), None);
    assert_eq!(due(&mut wheel, 39), []);
    assert_eq!(wheel.next(), Some(40));
    assert_eq!(due(&mut wheel, 40), [1]);
    assert_eq!(wheel.schedule(3, NEVER), None);
    wheel.schedule(3, 300_000);
    assert_eq!(wheel.next(), Some(104));
    wheel.remove(2);
    assert_eq!(wheel.next(), Some(104));
    wheel.schedule(2, 60);
    assert_eq!(wheel.next(), Some(64));
    wheel.remove(2);
    assert_eq!(wheel.next(), Some(104));
    assert_eq!(due(&mut wheel, 110), [0]);
    // An entry beyond the last slot is checked early.
    assert_eq!(wheel.next(), Some(40 + (SLOTS - 1) * TICK));
    assert_eq!(due(&mut wheel, 1_000_000), [3], "after a long stop");
    assert_eq!(wheel.next(), None);
}

#[test]
fn earlier_deadline_replaces_a_later_one() {
    let mut wheel = wheel(0);
    wheel.schedule(0, 30_000);
    wheel.schedule(0, 200);
    assert_eq!(due(&mut wheel, 210), [0]);
    // A time in the past.
    wheel.schedule(0, 0);
    let next = wheel.next().expect("the past comes with the next tick");
    assert!(next <= 210 + TICK);
    assert_eq!(due(&mut wheel, next), [0]);
}

#[test]
fn next_slot_is_found_at_all_distances() {
    // Distances around the words of the bitmap and the end of the wheel, from several positions of the cursor.
    for start in [0, TICK * 4_000, TICK * 5_000] {
        for ahead in [1, 63, 64, 65, 1_000, 2_000, 2_046, 2_047] {
            let mut wheel = wheel(0);
            wheel.skip_to(start);
            wheel.schedule(0, start + TICK * ahead);
            wheel.schedule(1, start + TICK);
            assert_eq!(due(&mut wheel, start), []);
            assert!(due(&mut wheel, start + TICK).contains(&1));
            let next = (ahead > 1).then_some(start + TICK * ahead);
            assert_eq!(wheel.next(), next, "{start} {ahead}");
        }
    }
}

#[test]
fn every_entry_is_due_exactly_once() {
    let mut wheel = wheel(0);
    let (mut state, mut seen) = (1_u64, vec![0_u32; 4000]);
    let mut now = 0;
    let look = |wheel: &mut TimerWheel<TICK>, seen: &mut Vec<u32>, now| {
        let due = due(wheel, now);
        due.iter().for_each(|index| seen[*index as usize] += 1);
    };
    for index in 0..4000 {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        wheel.schedule(index, now + (state >> 33) % 20_000);
        now += (state >> 40) % 50;
        look(&mut wheel, &mut seen, now);
    }
    while let Some(next) = wheel.next() {
        now = next;
        look(&mut wheel, &mut seen, now);
    }
    assert!(seen.iter().all(|count| *count == 1));
}
