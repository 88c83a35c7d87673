//! Off and on again: the power button, switching off, restarting.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};

use lowroad_kernel::acpi::Power;

use crate::apic::{Controllers, Local};
use crate::cpu::{Registers, in16, out8, out16};
use crate::{interrupts, loader};

/// Bits of the event's registers: global lock, power button.
const BUTTON: u16 = 1 << 8;
const SLEEP: u16 = 1 << 13;

/// Set once the button was pressed: how cores other than the first are told.
static IS_STOPPING: AtomicBool = AtomicBool::new(false);
static EVENT: AtomicU16 = AtomicU16::new(0);
static CONTROL: AtomicU16 = AtomicU16::new(0);
static SLEEP_ADDRESS: AtomicU64 = AtomicU64::new(0);
static OFF_NUMBER: AtomicU8 = AtomicU8::new(0);

/// Takes the button over from the firmware.
pub fn open(power: &Power, controllers: &Controllers) {
    EVENT.store(power.event, Ordering::Relaxed);
    CONTROL.store(power.control, Ordering::Relaxed);
    SLEEP_ADDRESS.store(power.sleep_address, Ordering::Relaxed);
    OFF_NUMBER.store(power.off, Ordering::Relaxed);
    if power.event == 0 || power.control == 0 {
        return;
    }
    if power.smi_command != 0 && power.acpi_enable != 0 && in16(power.control) & 1 == 0 {
        out8(power.smi_command, power.acpi_enable);
        let _ = (0..100_000).any(|_| in16(power.control) & 1 != 0);
    }
    out16(power.event, BUTTON);
    out16(power.event + 2, BUTTON);
    controllers.open_line(power.line, interrupts::POWER);
}

/// What a core looks at to know that [`is_stop_asked`] has something to say: by its number.
pub fn flag(core: u16) -> &'static AtomicBool {
    match core {
        0 => &interrupts::BUTTON,
        _ => &IS_STOPPING,
    }
}

/// Whether a core should begin its end. The first one asks the button, and tells the others.
#[cold]
pub fn is_stop_asked(core: u16, local: &Local) -> bool {
    if core != 0 {
        return IS_STOPPING.load(Ordering::Relaxed);
    }
    let was_pressed = was_button_pressed();
    if was_pressed {
        IS_STOPPING.store(true, Ordering::Relaxed);
        local.wake_others();
    }
    was_pressed
}

/// Whether the button was pressed since it was asked. Cheap unless its interrupt has come.
fn was_button_pressed() -> bool {
    if !interrupts::BUTTON.load(Ordering::Relaxed) {
        return false;
    }
    interrupts::BUTTON.store(false, Ordering::Relaxed);
    let event = EVENT.load(Ordering::Relaxed);
    let events = in16(event);
    out16(event, events);
    events & BUTTON != 0
}

/// Switches the machine off; if it can't be, restarts it.
pub fn off() -> ! {
    let number = OFF_NUMBER.load(Ordering::Relaxed);
    let control = CONTROL.load(Ordering::Relaxed);
    if control != 0 {
        out16(control, u16::from(number) << 10 | SLEEP);
    }
    let address = SLEEP_ADDRESS.load(Ordering::Relaxed);
    if loader::is_mapped(address, 1) {
        // SAFETY: the firmware has said that the register is there.
        unsafe { Registers::new(address) }.write(0, number << 2 | 1 << 5);
    }
    restart()
}

/// Starts the machine anew: by the chipset, by the keyboard controller (which hypervisors without firmware take for the
/// end), by a fault that can't be handled.
pub fn restart() -> ! {
    out8(0xcf9, 6);
    out8(0x64, 0xfe);
    let nothing = [0_u16; 5];
    // SAFETY: ends the program: without a table of interrupts the processor gives up.
    unsafe { asm!("lidt [{0}]", "ud2", in(reg) &nothing, options(noreturn)) }
}
