//! Power button, power off, and restart.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};

use lowroad_kernel::acpi::PowerRegisters;

use crate::apic::{IoControllers, LocalApic};
use crate::cpu::{DeviceRegisters, in16, out8, out16};
use crate::{interrupts, loader};

/// Bits of the event registers (power button) and of the control register (sleep enable).
const BUTTON: u16 = 1 << 8;
const SLEEP: u16 = 1 << 13;

/// Set once the button was pressed, for all cores but the first.
static IS_STOPPING: AtomicBool = AtomicBool::new(false);
static EVENT: AtomicU16 = AtomicU16::new(0);
static CONTROL: AtomicU16 = AtomicU16::new(0);
static SLEEP_ADDRESS: AtomicU64 = AtomicU64::new(0);
static OFF_NUMBER: AtomicU8 = AtomicU8::new(0);

/// Takes over control of the button from the firmware.
pub fn open(power: &PowerRegisters, controllers: &IoControllers) {
    EVENT.store(power.event, Ordering::Relaxed);
    CONTROL.store(power.control, Ordering::Relaxed);
    SLEEP_ADDRESS.store(power.sleep_address, Ordering::Relaxed);
    OFF_NUMBER.store(power.sleep_type, Ordering::Relaxed);
    if power.event == 0 || power.control == 0 {
        return;
    }
    // The firmware handles the events until SCI_EN is set.
    if power.smi_command != 0 && power.acpi_enable != 0 && in16(power.control) & 1 == 0 {
        out8(power.smi_command, power.acpi_enable);
        let _ = (0..100_000).any(|_| in16(power.control) & 1 != 0);
    }
    // Clear a pending event, then enable the button's event.
    out16(power.event, BUTTON);
    out16(power.event + 2, BUTTON);
    controllers.open_line(power.line, interrupts::POWER);
}

/// The flag that a core polls; once it is set, the core calls [`is_stop_requested`].
pub fn flag(core: u16) -> &'static AtomicBool {
    match core {
        0 => &interrupts::BUTTON,
        _ => &IS_STOPPING,
    }
}

/// Whether a core should begin to shut down. The first core reads the button and informs the others.
#[cold]
pub fn is_stop_requested(core: u16, local: &LocalApic) -> bool {
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

/// Whether the button was pressed since the last call. Cheap unless the button's interrupt has occurred.
fn was_button_pressed() -> bool {
    if !interrupts::BUTTON.load(Ordering::Relaxed) {
        return false;
    }
    interrupts::BUTTON.store(false, Ordering::Relaxed);
    let event = EVENT.load(Ordering::Relaxed);
    let events = in16(event);
    // Writing ones clears the events.
    out16(event, events);
    events & BUTTON != 0
}

/// Switches the machine off; restarts it if that fails.
pub fn switch_off() -> ! {
    let number = OFF_NUMBER.load(Ordering::Relaxed);
    let control = CONTROL.load(Ordering::Relaxed);
    if control != 0 {
        out16(control, u16::from(number) << 10 | SLEEP);
    }
    let address = SLEEP_ADDRESS.load(Ordering::Relaxed);
    if loader::is_mapped(address, 1) {
        // SAFETY: the register's address comes from the firmware.
        unsafe { DeviceRegisters::new(address) }.write(0, number << 2 | 1 << 5);
    }
    restart()
}

/// Restarts the machine: through the chipset, through the keyboard controller (by which hypervisors without firmware
/// end the guest), or by a triple fault.
pub fn restart() -> ! {
    out8(0xcf9, 6);
    out8(0x64, 0xfe);
    let nothing = [0_u16; 5];
    // SAFETY: does not return, since without an interrupt table the exception becomes a triple fault.
    unsafe { asm!("lidt [{0}]", "ud2", in(reg) &nothing, options(noreturn)) }
}
