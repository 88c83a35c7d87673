//! The main loop: processes received frames and expired timers, then sleeps. It works in bursts: the device is notified
//! once for all sent frames, and once for all freed buffers. Each core runs such a loop; the servers pass frames
//! between cores, and the loop wakes the receiving core.

use core::sync::atomic::Ordering;

use lowroad_unikernel::CurrentTime;

use crate::apic::LocalApic;
use crate::clock::TickClock;
use crate::serial::say;
use crate::server::UnikernelServer;
use crate::virtio::net::NetQueuePair;
use crate::{cores, interrupts, power};

/// Maximum number of frames in a burst, so that timers are not delayed for long.
const BURST_MAX: usize = 64;
/// Maximum duration of a sleep: the range of the timers of some machines.
const SLEEP_MAX_US: u64 = 30_000_000;

/// Runs until the power button was pressed and the server has finished. Never inlined, so that stack traces show it.
#[inline(never)]
pub fn run(
    core: u16,
    server: &mut UnikernelServer,
    net: &mut NetQueuePair,
    clock: &mut TickClock,
    local: &LocalApic,
) {
    let mut wake_timer = WakeTimer { at_us: u64::MAX };
    let mut is_stopping = false;
    let (is_multicore, stop_flag) = (cores::count() > 1, power::flag(core));
    loop {
        let now = clock.now();
        for _ in 0..BURST_MAX {
            let Some(received) = net.receiver.next() else {
                break;
            };
            server.received(now, &mut net.sender, received);
        }
        let next_us = server.tick(now, &mut net.sender);
        net.receiver.refill();
        net.sender.flush();
        if is_multicore {
            wake(server.take_wakes(), local);
        }
        while let Some(line) = server.take_message() {
            say!("lowroad: {line}");
        }
        if stop_flag.load(Ordering::Relaxed)
            && !is_stopping
            && power::is_stop_requested(core, local)
        {
            if core == 0 {
                say!("lowroad: power button: stopping");
            }
            is_stopping = true;
            server.stop();
            continue;
        }
        if is_stopping && server.is_stopped(now) {
            break;
        }
        // Frames that arrived before the device was asked for an interrupt cause no interrupt.
        if net.receiver.wake() {
            continue;
        }
        if wake_timer.set(now, next_us, clock, local) {
            // Interrupts are off from here until the sleep itself, so that a wake-up by another core can't be lost in
            // between.
            if server.prepare_sleep() {
                interrupts::wait();
            }
            server.on_wake();
            if let Some(acknowledgement) = net.acknowledgement {
                acknowledgement.write(0, 3_u32);
            }
            net.receiver.on_wake();
        }
    }
}

/// Wakes the cores with set bits.
#[inline(never)]
fn wake(mut cores: u64, local: &LocalApic) {
    while cores != 0 {
        local.wake(cores.trailing_zeros() as u16);
        cores &= cores - 1;
    }
}

/// The wake-up timer. Setting it costs an exit to the hypervisor, and most deadlines are postponed before they are due.
/// So an earlier setting is kept if the next deadline is later, at the cost of a superfluous wake-up.
struct WakeTimer {
    /// The time for which the timer is set; `u64::MAX` if it is not set.
    at_us: u64,
}

impl WakeTimer {
    /// Ensures a wake-up at `next_us`. Returns false if that time has come.
    fn set(
        &mut self,
        now: CurrentTime,
        next_us: Option<u64>,
        clock: &TickClock,
        local: &LocalApic,
    ) -> bool {
        // The timer's own clock may run a little fast. Judged by the time alone, a timer that has expired would look
        // pending forever.
        if interrupts::take_timer() || self.at_us <= now.mono_us {
            self.at_us = u64::MAX;
        }
        let Some(next_us) = next_us else { return true };
        if next_us <= now.mono_us {
            return false;
        }
        if next_us < self.at_us {
            let in_us = (next_us - now.mono_us).min(SLEEP_MAX_US);
            self.at_us = now.mono_us + in_us;
            local.wake_in(in_us, clock.rate());
        }
        true
    }
}
