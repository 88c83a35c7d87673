//! The main loop: what has come, what is due, and then to sleep until something comes or is due. Whatever is done, is done
//! in bursts: the device is told once of all that was sent, and once of all buffers that are free again. Each core runs such
//! a loop; what one has for another, the program passes on, and here the other is woken for it.

use core::sync::atomic::Ordering;

use lowroad_bare::Now;

use crate::apic::Local;
use crate::clock::Clock;
use crate::serial::say;
use crate::server::Server;
use crate::virtio::net::Net;
use crate::{cores, interrupts, power};

/// Frames of a burst at most, so that timers are never late for long.
const BURST_MAX: usize = 64;
/// Nothing sleeps longer: the timer of some machines counts no further.
const SLEEP_MAX_US: u64 = 30_000_000;

/// Runs until the power button has been pressed and the server has come to its end. Never inlined, so that traces show it.
#[inline(never)]
pub fn run(core: u16, server: &mut Server, net: &mut Net, clock: &mut Clock, local: &Local) {
    let mut alarm = Alarm { at_us: u64::MAX };
    let mut is_stopping = false;
    let (has_others, stop_flag) = (cores::count() > 1, power::flag(core));
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
        if has_others {
            wake(server.take_wakes(), local);
        }
        while let Some(line) = server.said() {
            say!("lowroad: {line}");
        }
        if stop_flag.load(Ordering::Relaxed) && !is_stopping && power::is_stop_asked(core, local) {
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
        if net.receiver.wake() {
            continue;
        }
        if alarm.set(now, next_us, clock, local) {
            // From here to the sleep itself interrupts are off, so that another core's wake is not lost in between.
            if server.may_sleep() {
                interrupts::wait();
            }
            server.woke();
            if let Some(acknowledgement) = net.acknowledgement {
                acknowledgement.write(0, 3_u32);
            }
            net.receiver.woke();
        }
    }
}

/// Wakes the cores whose bits are set.
#[inline(never)]
fn wake(mut cores: u64, local: &Local) {
    while cores != 0 {
        local.wake(cores.trailing_zeros() as u16);
        cores &= cores - 1;
    }
}

/// The processor's timer. Setting it costs an exit to the hypervisor, and most things that were due are put off before
/// they come, so a time that was set is left alone when the next one is later: then we wake once for nothing.
struct Alarm {
    /// When it will go off; `u64::MAX` when it was not set.
    at_us: u64,
}

impl Alarm {
    /// Sees to it that we wake at `next_us`. False: that is now.
    fn set(&mut self, now: Now, next_us: Option<u64>, clock: &Clock, local: &Local) -> bool {
        // By its own clock it may run out a little early: who goes by the time alone would wait for it forever.
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
