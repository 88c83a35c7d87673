//! Tests of the communication between cores, with a thread for each.

extern crate std;

use super::*;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

#[test]
fn each_ordered_pair_of_cores_has_its_own_ring() {
    const COUNT: u16 = 5;
    let cores = CoreSet::new(COUNT, &[1; 32]);
    let mut buffer = [0; FRAME_LEN_MAX];
    for from in 0..COUNT {
        for to in 0..COUNT {
            let frame = [from as u8, to as u8, 7];
            assert_eq!(cores.push_frame(from, to, &frame, from > 2), from != to);
        }
    }
    for to in 0..COUNT {
        assert!(cores.has_frames(to));
        for from in 0..COUNT {
            let taken = cores.take(from, to, &mut buffer);
            assert_eq!(taken, (from != to).then_some((3, from > 2)));
            if from != to {
                assert_eq!(buffer[..2], [from as u8, to as u8]);
            }
        }
        assert!(!cores.has_frames(to));
    }
}

#[test]
fn core_count_is_clamped_and_single_core_has_no_others() {
    assert_eq!(CoreSet::new(0, &[1; 32]).count(), 1);
    let one = CoreSet::new(1, &[1; 32]);
    assert_eq!((one.other_cores(0), one.has_frames(0)), (0, false));
    let most = CoreSet::new(u16::MAX, &[1; 32]);
    assert_eq!(most.count(), CoreSet::COUNT_MAX);
    assert_eq!(most.other_cores(0), u64::MAX - 1);
    assert_eq!(most.other_cores(63), u64::MAX >> 1);
    assert!(most.push_frame(63, 0, &[1; 1514], true) && most.push_frame(0, 63, &[1; 1514], true));
}

#[test]
fn sleeping_core_is_woken_by_exactly_one_caller() {
    let cores = CoreSet::new(3, &[1; 32]);
    assert_eq!(cores.take_sleeping(0b111), 0);
    cores.sleep(1);
    cores.sleep(2);
    assert_eq!(cores.take_sleeping(0b011), 0b010);
    assert_eq!(cores.take_sleeping(0b111), 0b100);
    cores.sleep(1);
    cores.wake(1);
    assert_eq!(cores.take_sleeping(0b111), 0);
}

#[test]
fn shutdown_ends_when_all_cores_are_done() {
    let cores = CoreSet::new(3, &[1; 32]);
    assert!(!cores.is_stopping());
    cores.stop();
    assert!(cores.is_stopping());
    for core in [2, 0, 0, 1] {
        assert!(!cores.are_done());
        cores.set_done(core);
        assert!(cores.is_done(core));
    }
    assert!(cores.are_done());
}

#[test]
fn counts_of_all_cores_are_summed() {
    let cores = CoreSet::new(3, &[1; 32]);
    cores.increment(0, CrossCoreCounter::Forwarded);
    cores.increment(2, CrossCoreCounter::Forwarded);
    cores.increment(1, CrossCoreCounter::Dropped);
    let all: Vec<u64> = cores.traffic().map(|(_, count)| count).collect();
    assert_eq!(all, [2, 1, 0]);
}

#[test]
fn bytes_survive_conversion_to_words() {
    for len in [0, 1, 7, 8, 9, 1000] {
        let text: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let both: Vec<u64> = words(&text).chain(words(b"next")).collect();
        let (first, rest) = bytes(&both);
        assert_eq!(first, text);
        assert_eq!(bytes(rest), (b"next".to_vec(), &[][..]));
    }
    // Truncated words give fewer bytes, without a panic.
    assert_eq!(bytes(&[1000, 5]).0.len(), 8);
    assert_eq!(bytes(&[u64::MAX]).0.len(), 0);
}

/// The store-buffering race: both sides write, then each reads the memory that the other has written. In each round at
/// least one of them must see the other's write.
///
/// Only optimized code is fast enough to reveal a missing fence: with `--release`, about every tenth run does.
#[test]
fn sleeper_or_waker_sees_the_write_of_the_other() {
    const ROUNDS: u64 = 10_000;
    let cores = CoreSet::new(2, &[1; 32]);
    let (round, done) = (AtomicU64::new(0), AtomicU64::new(0));
    // The thread of the sleeper starts a round, and ends it when both sides have checked.
    let wait = |of: &AtomicU64, value: u64| {
        let mut looks = 0u32;
        while of.load(Ordering::Acquire) < value {
            looks += 1;
            if looks.is_multiple_of(1000) {
                std::thread::yield_now();
            }
        }
    };
    let missed = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=ROUNDS {
                wait(&round, number);
                cores.push_frame(0, 1, &[], true);
                let wakes = cores.take_sleeping(0b10);
                done.store(number << 1 | wakes >> 1, Ordering::Release);
            }
        });
        let mut missed = 0;
        for number in 1..=ROUNDS {
            round.store(number, Ordering::Release);
            // Varies the time of the check relative to the write.
            for _ in 0..number % 64 {
                core::hint::spin_loop();
            }
            cores.sleep(1);
            let has_frames = cores.has_frames(1);
            wait(&done, number << 1);
            let is_woken = done.load(Ordering::Acquire) & 1 != 0;
            missed += u32::from(!has_frames && !is_woken);
            cores.wake(1);
            // The ring must be empty for the next round.
            while cores.take(0, 1, &mut [0; FRAME_LEN_MAX]).is_some() {}
        }
        missed
    });
    assert_eq!(missed, 0);
}

/// The sleep of a core. A wake-up that arrives before the sleep is kept, like the pending interrupt of a processor.
struct SleepChannel {
    wakes: Mutex<Receiver<()>>,
    wake: Sender<()>,
}

impl SleepChannel {
    fn new() -> SleepChannel {
        let (wake, wakes) = channel();
        SleepChannel {
            wakes: Mutex::new(wakes),
            wake,
        }
    }

    fn sleep(&self) {
        let wakes = self.wakes.lock().expect("one reader");
        let woken = wakes.recv_timeout(Duration::from_secs(60));
        assert!(woken.is_ok(), "a wake was lost");
        // Several wake-ups count as one.
        while wakes.try_recv().is_ok() {}
    }
}

/// Frames circulate among cores that sleep while they are idle. One lost wake-up would stop all of them.
#[test]
fn no_core_sleeps_while_frames_are_pending() {
    const ROUNDS: u64 = 5_000;
    for (count, frames_in_flight) in [(2u16, 1u64), (2, 3), (4, 2)] {
        let cores = CoreSet::new(count, &[1; 32]);
        let sleep_channels: Vec<SleepChannel> = (0..count).map(|_| SleepChannel::new()).collect();
        let done_count = AtomicU64::new(0);
        let slept = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for core in 0..count {
                let (cores, sleep_channels, done_count, slept) =
                    (&cores, &sleep_channels, &done_count, &slept);
                scope.spawn(move || {
                    let next = (core + 1) % count;
                    let from = (core + count - 1) % count;
                    let mut buffer = [0; FRAME_LEN_MAX];
                    if core == 0 {
                        for _ in 0..frames_in_flight {
                            assert!(cores.push_frame(0, next, &0u64.to_le_bytes(), true));
                        }
                    }
                    let mut wanted = u64::from(core == 0) << next;
                    loop {
                        while let Some((8, true)) = cores.take(from, core, &mut buffer) {
                            let number = u64::from_le_bytes(*buffer.first_chunk().expect("8"));
                            if number == ROUNDS {
                                done_count.fetch_add(1, Ordering::Relaxed);
                                // The end must wake all cores, wherever they sleep.
                                wanted = cores.other_cores(core);
                                continue;
                            }
                            assert!(cores.push_frame(
                                core,
                                next,
                                &(number + 1).to_le_bytes(),
                                true
                            ));
                            wanted |= 1 << next;
                        }
                        let mut wakes = cores.take_sleeping(core::mem::take(&mut wanted));
                        while wakes != 0 {
                            let woken = wakes.trailing_zeros() as usize;
                            wakes &= wakes - 1;
                            sleep_channels[woken]
                                .wake
                                .send(())
                                .expect("its reader is there");
                        }
                        if done_count.load(Ordering::Relaxed) == frames_in_flight {
                            return;
                        }
                        cores.sleep(core);
                        // Checked again after `sleep`, as in the main loop of a core.
                        let is_over = done_count.load(Ordering::Relaxed) == frames_in_flight;
                        if !cores.has_frames(core) && !is_over {
                            slept.fetch_add(1, Ordering::Relaxed);
                            sleep_channels[usize::from(core)].sleep();
                        }
                        cores.wake(core);
                    }
                });
            }
        });
        assert!(slept.load(Ordering::Relaxed) > 100, "they never slept");
    }
}
