//! Time: the processor's clock, whose rate is asked for or measured at the start, and the date.

use lowroad_bare::Now;
use lowroad_kernel::ticks::{self, Date, Rate};

use crate::apic::Local;
use crate::cpu::{self, in8, in32, out8};
use crate::kvm;

/// How long is measured.
const MEASURE_US: u64 = 5000;
/// The timer of old counts so often a second.
const PIT_HZ: u64 = 1_193_182;
/// ACPI's timer counts so often a second.
const ACPI_HZ: u64 = 3_579_545;
/// Counters of two processors that differ by more do not run together.
const SLACK_US: u64 = 1_000_000;
/// A clock that stands still is given up after so many looks.
const LOOKS_MAX: u32 = 50_000_000;

/// Cheap to ask: a multiplication.
#[derive(Clone)]
pub struct Clock {
    rate: Rate,
    /// Of the counter in the processors' interrupt controllers.
    counter: Rate,
    start: u64,
    unix_s: u64,
    next_second_us: u64,
}

impl Clock {
    /// Sets the clock, and the processor's timer too.
    pub fn open(local: &mut Local, acpi_timer: u16) -> (Clock, &'static str) {
        let start = cpu::ticks();
        local.start_counter();
        let (rate, how) = match told_khz() {
            Some(khz) => {
                let rate = Rate::new(khz);
                if !Local::has_deadline() {
                    while rate.us(cpu::ticks() - start) < MEASURE_US {}
                }
                (rate, "told")
            }
            None => measure(acpi_timer),
        };
        let counted = u64::from(local.counted());
        let us = rate.us(cpu::ticks() - start).max(1);
        let counter = Rate::new(counted * 1000 / us);
        local.open_timer(counter);
        let unix_s = date()
            .and_then(Date::unix_s)
            .or_else(kvm::unix_s)
            .unwrap_or(0);
        (
            Clock {
                rate,
                counter,
                start,
                unix_s,
                next_second_us: 1_000_000,
            },
            how,
        )
    }

    /// The same time on another core, which calls this: `theirs` was read there a moment ago, from the counter of the
    /// core that gives its clock. Sets this core's timer too.
    pub fn beside(mut self, theirs: u64, local: &mut Local) -> Clock {
        let slack = self.rate.ticks(SLACK_US);
        self.start = ticks::start_beside(cpu::ticks(), theirs, self.start, slack);
        local.open_timer(self.counter);
        self
    }

    /// Of the processor's clock.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// What is the time?
    pub fn now(&mut self) -> Now {
        let mono_us = self.rate.us(cpu::ticks().wrapping_sub(self.start));
        if mono_us >= self.next_second_us {
            let seconds = (mono_us - self.next_second_us) / 1_000_000 + 1;
            self.unix_s += seconds;
            self.next_second_us += seconds * 1_000_000;
        }
        Now {
            mono_us,
            unix_s: self.unix_s,
        }
    }
}

/// The rate as the processor or the hypervisor tells it.
fn told_khz() -> Option<u64> {
    let crystal = cpu::id(0x15, 0);
    if crystal.eax != 0 && crystal.ebx != 0 && crystal.ecx != 0 {
        return Some(
            u64::from(crystal.ecx) * u64::from(crystal.ebx) / u64::from(crystal.eax) / 1000,
        );
    }
    // Only a hypervisor that is there has leaves of its own.
    if cpu::id(1, 0).ecx & 1 << 31 == 0 {
        return None;
    }
    Some(u64::from(cpu::id(0x4000_0010, 0).eax))
        .filter(|khz| *khz != 0)
        .or_else(kvm::khz)
}

fn measure(acpi_timer: u16) -> (Rate, &'static str) {
    if let Some(khz) = by_pit() {
        return (Rate::new(khz), "measured by the PIT");
    }
    if acpi_timer != 0
        && let Some(khz) = by_acpi(acpi_timer)
    {
        return (Rate::new(khz), "measured by ACPI's timer");
    }
    (Rate::new(1_000_000), "guessed")
}

/// By the first counter of the timer of old; nobody needs its interrupt.
fn by_pit() -> Option<u64> {
    let count = || {
        out8(0x43, 0);
        u16::from(in8(0x40)) | u16::from(in8(0x40)) << 8
    };
    out8(0x43, 0x30);
    out8(0x40, 0xff);
    out8(0x40, 0xff);
    // It begins to count with its next edge; nothing that answers reads as ones.
    (0..1000).find(|_| count() != u16::MAX)?;
    // Reading takes microseconds under a hypervisor, now and then many: of some readings the quickest counts, and what
    // it gave belongs to its middle.
    let read = || {
        let one = || {
            let before = cpu::ticks();
            (count(), before, cpu::ticks())
        };
        let best =
            |a: (u16, u64, u64), b: (u16, u64, u64)| if b.2 - b.1 < a.2 - a.1 { b } else { a };
        let (count, before, after) = (0..8).map(|_| one()).fold(one(), best);
        (count, before.midpoint(after))
    };
    let (first, start) = read();
    let wanted = (PIT_HZ * MEASURE_US / 1_000_000) as u16;
    (0..LOOKS_MAX).find(|_| first.wrapping_sub(count()) >= wanted)?;
    let (last, end) = read();
    Some((end - start) * PIT_HZ / u64::from(first.wrapping_sub(last)) / 1000)
}

fn by_acpi(port: u16) -> Option<u64> {
    let first = in32(port);
    let start = cpu::ticks();
    let wanted = ACPI_HZ * MEASURE_US / 1_000_000;
    // It has 24 bits at least.
    let counted = |now: u32| u64::from(now.wrapping_sub(first) & 0xff_ffff);
    (0..LOOKS_MAX).find(|_| counted(in32(port)) >= wanted)?;
    let (last, end) = (in32(port), cpu::ticks());
    Some((end - start) * ACPI_HZ / counted(last) / 1000)
}

/// The date of the battery's clock, taken to be in UTC; read until it is the same twice.
fn date() -> Option<Date> {
    let mut last = registers()?;
    for _ in 0..10 {
        let next = registers()?;
        if next == last {
            return Some(next);
        }
        last = next;
    }
    None
}

fn registers() -> Option<Date> {
    let register = |n| {
        out8(0x70, n);
        in8(0x71)
    };
    (0..LOOKS_MAX / 100).find(|_| register(10) & 0x80 == 0)?;
    let form = register(11);
    let number = |n: u8| {
        let raw = u32::from(register(n));
        if form & 4 != 0 {
            raw
        } else {
            (raw >> 4) * 10 + (raw & 15)
        }
    };
    let raw_hour = register(4);
    let mut hour = if form & 4 != 0 {
        u32::from(raw_hour & 0x7f)
    } else {
        u32::from(raw_hour >> 4 & 7) * 10 + u32::from(raw_hour & 15)
    };
    if form & 2 == 0 {
        hour = hour % 12 + if raw_hour & 0x80 != 0 { 12 } else { 0 };
    }
    Some(Date {
        year: 2000 + number(9),
        month: number(8),
        day: number(7),
        hour,
        minute: number(2),
        second: number(0),
    })
}
