//! Time: the time stamp counter, with a rate that is queried or measured at startup, and the date.

use lowroad_kernel::ticks::{self, TickRate, UtcDate};
use lowroad_unikernel::CurrentTime;

use crate::apic::LocalApic;
use crate::cpu::{self, in8, in32, out8};
use crate::kvm;

/// Duration of a measurement.
const MEASURE_US: u64 = 5000;
/// Frequency of the PIT.
const PIT_HZ: u64 = 1_193_182;
/// Frequency of the ACPI PM timer.
const ACPI_HZ: u64 = 3_579_545;
/// If the counters of two processors differ by more, they are not synchronized.
const SLACK_US: u64 = 1_000_000;
/// Number of reads after which a timer that does not advance is given up.
const READS_MAX: u32 = 50_000_000;

/// The clock. Reading it costs one multiplication.
#[derive(Clone)]
pub struct TickClock {
    rate: TickRate,
    /// The rate of the local APIC's counter.
    counter: TickRate,
    start: u64,
    unix_s: u64,
    next_second_us: u64,
}

impl TickClock {
    /// Opens the clock and starts the local APIC's timer. Also returns a description of the rate's source, for the
    /// console.
    pub fn open(local: &mut LocalApic, acpi_timer: u16) -> (TickClock, &'static str) {
        let start = cpu::ticks();
        local.start_counter();
        let (rate, rate_source) = match reported_khz() {
            Some(khz) => {
                let rate = TickRate::new(khz);
                if !LocalApic::has_deadline() {
                    // The local APIC's counter is measured against the known rate.
                    while rate.us(cpu::ticks() - start) < MEASURE_US {}
                }
                (rate, "told")
            }
            None => measure(acpi_timer),
        };
        let counted = u64::from(local.counted());
        let us = rate.us(cpu::ticks() - start).max(1);
        let counter = TickRate::new(counted * 1000 / us);
        local.open_timer(counter);
        let unix_s = date()
            .and_then(UtcDate::unix_s)
            .or_else(kvm::unix_s)
            .unwrap_or(0);
        (
            TickClock {
                rate,
                counter,
                start,
                unix_s,
                next_second_us: 1_000_000,
            },
            rate_source,
        )
    }

    /// The same clock for another core; called on that core. `remote_ticks` is a recent counter value of the core that
    /// this clock belongs to. Also starts the calling core's timer.
    pub fn for_other_core(mut self, remote_ticks: u64, local: &mut LocalApic) -> TickClock {
        let slack = self.rate.ticks(SLACK_US);
        self.start = ticks::synchronized_start(cpu::ticks(), remote_ticks, self.start, slack);
        local.open_timer(self.counter);
        self
    }

    /// The rate of the time stamp counter.
    pub fn rate(&self) -> TickRate {
        self.rate
    }

    /// The current time.
    pub fn now(&mut self) -> CurrentTime {
        let mono_us = self.rate.us(cpu::ticks().wrapping_sub(self.start));
        if mono_us >= self.next_second_us {
            let seconds = (mono_us - self.next_second_us) / 1_000_000 + 1;
            self.unix_s += seconds;
            self.next_second_us += seconds * 1_000_000;
        }
        CurrentTime {
            mono_us,
            unix_s: self.unix_s,
        }
    }
}

/// The rate that the processor or the hypervisor reports.
fn reported_khz() -> Option<u64> {
    let crystal = cpu::id(0x15, 0);
    if crystal.eax != 0 && crystal.ebx != 0 && crystal.ecx != 0 {
        return Some(
            u64::from(crystal.ecx) * u64::from(crystal.ebx) / u64::from(crystal.eax) / 1000,
        );
    }
    // Hypervisor leaves exist only if the hypervisor bit is set.
    if cpu::id(1, 0).ecx & 1 << 31 == 0 {
        return None;
    }
    Some(u64::from(cpu::id(0x4000_0010, 0).eax))
        .filter(|khz| *khz != 0)
        .or_else(kvm::khz)
}

fn measure(acpi_timer: u16) -> (TickRate, &'static str) {
    if let Some(khz) = by_pit() {
        return (TickRate::new(khz), "measured by the PIT");
    }
    if acpi_timer != 0
        && let Some(khz) = by_acpi(acpi_timer)
    {
        return (TickRate::new(khz), "measured by ACPI's timer");
    }
    // Without any timer, a rate of 1 GHz is assumed, so that the machine runs at least.
    (TickRate::new(1_000_000), "guessed")
}

/// Measures the rate with channel 0 of the PIT; its interrupt is masked.
fn by_pit() -> Option<u64> {
    let count = || {
        out8(0x43, 0);
        u16::from(in8(0x40)) | u16::from(in8(0x40)) << 8
    };
    out8(0x43, 0x30);
    out8(0x40, 0xff);
    out8(0x40, 0xff);
    // The counter is loaded at its next clock edge. All bits of an absent PIT read as ones.
    (0..1000).find(|_| count() != u16::MAX)?;
    // Under a hypervisor, reads take microseconds, and some much longer. The fastest of several reads is used, with the
    // midpoint of its duration.
    let read = || {
        let sample = || {
            let before = cpu::ticks();
            (count(), before, cpu::ticks())
        };
        let quicker =
            |a: (u16, u64, u64), b: (u16, u64, u64)| if b.2 - b.1 < a.2 - a.1 { b } else { a };
        let (count, before, after) = (0..8).map(|_| sample()).fold(sample(), quicker);
        (count, before.midpoint(after))
    };
    let (first, start) = read();
    let target = (PIT_HZ * MEASURE_US / 1_000_000) as u16;
    (0..READS_MAX).find(|_| first.wrapping_sub(count()) >= target)?;
    let (last, end) = read();
    Some((end - start) * PIT_HZ / u64::from(first.wrapping_sub(last)) / 1000)
}

fn by_acpi(port: u16) -> Option<u64> {
    let first = in32(port);
    let start = cpu::ticks();
    let target = ACPI_HZ * MEASURE_US / 1_000_000;
    // The timer has at least 24 bits.
    let counted = |now: u32| u64::from(now.wrapping_sub(first) & 0xff_ffff);
    (0..READS_MAX).find(|_| counted(in32(port)) >= target)?;
    let (last, end) = (in32(port), cpu::ticks());
    Some((end - start) * ACPI_HZ / counted(last) / 1000)
}

/// The date of the real-time clock, which is assumed to be UTC. Read until two reads agree, since an update may be in
/// progress.
fn date() -> Option<UtcDate> {
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

fn registers() -> Option<UtcDate> {
    let register = |n| {
        out8(0x70, n);
        in8(0x71)
    };
    (0..READS_MAX / 100).find(|_| register(10) & 0x80 == 0)?;
    let status_b = register(11);
    let number = |n: u8| {
        let raw = u32::from(register(n));
        if status_b & 4 != 0 {
            raw
        } else {
            (raw >> 4) * 10 + (raw & 15)
        }
    };
    let raw_hour = register(4);
    let mut hour = if status_b & 4 != 0 {
        u32::from(raw_hour & 0x7f)
    } else {
        u32::from(raw_hour >> 4 & 7) * 10 + u32::from(raw_hour & 15)
    };
    if status_b & 2 == 0 {
        hour = hour % 12 + if raw_hour & 0x80 != 0 { 12 } else { 0 };
    }
    Some(UtcDate {
        // The real-time clock has only two digits of the year.
        year: 2000 + number(9),
        month: number(8),
        day: number(7),
        hour,
        minute: number(2),
        second: number(0),
    })
}
