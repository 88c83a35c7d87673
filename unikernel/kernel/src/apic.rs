//! Interrupt controllers: the local APIC with its timer, and the I/O APICs.
//!
//! Read first: Intel SDM volume 3, 11 (APIC); 82093AA (I/O APIC).

use lowroad_kernel::acpi::IoController;
use lowroad_kernel::ticks::TickRate;

use crate::cpu::{self, DeviceRegisters, out8, read_msr, write_msr};
use crate::{cores, interrupts, mapping};

const BASE_MSR: u32 = 0x1b;
const DEADLINE_MSR: u32 = 0x6e0;
const X2: u64 = 1 << 10;

/// Offsets of the memory-mapped registers.
const ID: u32 = 0x20;
const TASK_PRIORITY: u32 = 0x80;
const SPURIOUS: u32 = 0xf0;
const TIMER: u32 = 0x320;
const LINT0: u32 = 0x350;
const INITIAL: u32 = 0x380;
const CURRENT: u32 = 0x390;
const COMMAND: u32 = 0x300;
/// The register for the destination of a command; an x2APIC has one register for command and destination.
const COMMAND_TO: u32 = 0x310;
const DIVIDE: u32 = 0x3e0;

const MASKED: u32 = 1 << 16;
const BY_DEADLINE: u32 = 1 << 18;
const BY_16: u32 = 3;
/// Bits of inter-processor interrupt commands.
const ASSERT: u32 = 1 << 14;
const IS_PENDING: u32 = 1 << 12;
const RESET: u32 = 5 << 8;
const START: u32 = 6 << 8;

/// A processor's local APIC.
pub struct LocalApic {
    memory: Option<DeviceRegisters>,
    timer: ApicTimer,
}

/// The source of a core's timer interrupts.
enum ApicTimer {
    /// TSC deadline: the interrupt comes when the time stamp counter reaches the value in a register.
    Deadline,
    /// The APIC's own counter; the value is its rate.
    Counter(TickRate),
}

impl LocalApic {
    /// Enables the first core's local APIC, and disables the PICs. The timer stays off.
    pub fn open() -> LocalApic {
        // Mask all lines of both PICs.
        out8(0x21, 0xff);
        out8(0xa1, 0xff);
        let local = LocalApic::enter();
        interrupts::open_wake_ups(local.memory.is_none());
        cores::set_id(0, local.id());
        local
    }

    /// Enables the local APIC of another core. The timer stays off.
    pub fn enter() -> LocalApic {
        // The global enable bit is set first, since a direct change from disabled to x2APIC mode causes a fault.
        let base = read_msr(BASE_MSR) | 1 << 11;
        let is_x2 = cpu::id(1, 0).ecx & 1 << 21 != 0;
        write_msr(BASE_MSR, base);
        if is_x2 {
            write_msr(BASE_MSR, base | X2);
        }
        // SAFETY: the controller's registers, which are still at their default address after a reset, below 4 GiB and
        // therefore mapped.
        let memory = (!is_x2).then(|| unsafe { DeviceRegisters::new(0xfee0_0000) });
        let local = LocalApic {
            memory,
            timer: ApicTimer::Deadline,
        };
        local.write(TASK_PRIORITY, 0);
        local.write(LINT0, MASKED);
        local.write(TIMER, MASKED);
        local.write(DIVIDE, BY_16);
        local.write(SPURIOUS, u32::from(interrupts::SPURIOUS) | 1 << 8);
        local
    }

    /// Whether the timer supports TSC deadlines.
    pub fn has_deadline() -> bool {
        cpu::id(1, 0).ecx & 1 << 24 != 0
    }

    /// Starts the counter for a calibration.
    pub fn start_counter(&self) {
        self.write(TIMER, MASKED);
        self.write(INITIAL, u32::MAX);
    }

    /// The number of ticks since the counter was started.
    pub fn counted(&self) -> u32 {
        u32::MAX - self.read(CURRENT)
    }

    /// Starts the timer: with TSC deadlines if possible, otherwise with the counter, which has the given rate.
    pub fn open_timer(&mut self, counter: TickRate) {
        let vector = u32::from(interrupts::TIMER);
        if LocalApic::has_deadline() {
            self.timer = ApicTimer::Deadline;
            self.write(TIMER, vector | BY_DEADLINE);
            // The mode must be set before the first write of the deadline MSR (Intel SDM volume 3, 11.5.4.1).
            cpu::store_load_fence();
        } else {
            self.timer = ApicTimer::Counter(counter);
            self.write(INITIAL, 0);
            self.write(TIMER, vector);
        }
    }

    /// Sets the timer to `us` microseconds from now, or a little less if that is very long. Replaces the previous
    /// setting.
    pub fn wake_in(&self, us: u64, clock: TickRate) {
        match self.timer {
            ApicTimer::Deadline => write_msr(
                DEADLINE_MSR,
                cpu::ticks().saturating_add(clock.ticks(us.max(1))),
            ),
            ApicTimer::Counter(rate) => {
                // A count of 0 would stop the timer.
                self.write(INITIAL, rate.ticks(us).clamp(1, u32::MAX.into()) as u32)
            }
        }
    }

    /// Sends INIT to another processor, which then waits for `LocalApic::start`.
    pub fn reset(&self, to: u8) {
        self.send(to, RESET);
    }

    /// Sends SIPI: a processor that has received INIT starts at a page below 1 MiB.
    pub fn start(&self, to: u8, page: u8) {
        self.send(to, START | u32::from(page));
    }

    /// Sends an interrupt or a command to another processor, to which earlier stores are then visible.
    fn send(&self, to: u8, command: u32) {
        cpu::store_fence();
        match self.memory {
            Some(memory) => {
                memory.write(COMMAND_TO as usize, u32::from(to) << 24);
                memory.write(COMMAND as usize, ASSERT | command);
                // Sending takes microseconds; the next command must wait for that.
                let _ =
                    (0..100_000).any(|_| memory.read::<u32>(COMMAND as usize) & IS_PENDING == 0);
            }
            None => write_msr(
                0x800 + COMMAND / 16,
                u64::from(to) << 32 | u64::from(ASSERT | command),
            ),
        }
    }

    /// Wakes a sleeping core, or prevents it from falling asleep; earlier stores are visible to that core.
    pub fn wake(&self, core: u16) {
        self.send(cores::id(core), u32::from(interrupts::WAKE));
    }

    /// Wakes all other cores.
    pub fn wake_others(&self) {
        let current = cores::current();
        (0..cores::count())
            .filter(|core| *core != current)
            .for_each(|core| self.wake(core));
    }

    /// The APIC id. Processors with ids above 8 bits are not started, since message-signalled interrupts can't address
    /// them.
    pub fn id(&self) -> u8 {
        let id = self.read(ID);
        (if self.memory.is_some() { id >> 24 } else { id }) as u8
    }

    fn read(&self, register: u32) -> u32 {
        match self.memory {
            Some(memory) => memory.read(register as usize),
            None => read_msr(0x800 + register / 16) as u32,
        }
    }

    fn write(&self, register: u32, value: u32) {
        match self.memory {
            Some(memory) => memory.write(register as usize, value),
            None => write_msr(0x800 + register / 16, value.into()),
        }
    }
}

/// The address to which a device writes message-signalled interrupts for the processor with this id.
pub fn message_address(id: u8) -> u32 {
    0xfee0_0000 | u32::from(id) << 12
}

/// The I/O APICs.
pub struct IoControllers {
    all: [Option<IoController>; 4],
    destination: u32,
}

impl IoControllers {
    /// Maps the controllers. All lines stay masked, as after a reset.
    pub fn new(all: [Option<IoController>; 4], local: &LocalApic) -> IoControllers {
        for controller in all.iter().flatten() {
            mapping::map(controller.address, 4096);
        }
        IoControllers {
            all,
            destination: u32::from(local.id()) << 24,
        }
    }

    /// Routes an interrupt line to a vector, edge triggered, so that the device needs no acknowledgement before the
    /// interrupt handler returns.
    pub fn open_line(&self, line: u32, vector: u8) {
        for controller in self.all.iter().flatten() {
            // SAFETY: the address comes from the firmware; mapped by `new`.
            let registers = unsafe { DeviceRegisters::new(controller.address) };
            registers.write(0, 1_u32);
            let count = (registers.read::<u32>(16) >> 16 & 0xff) + 1;
            let Some(pin) = line.checked_sub(controller.line).filter(|pin| *pin < count) else {
                continue;
            };
            // The destination is written first, since the write of the lower half unmasks the line.
            registers.write(0, 0x11 + pin * 2);
            registers.write(16, self.destination);
            registers.write(0, 0x10 + pin * 2);
            registers.write(16, u32::from(vector));
        }
    }
}
