//! The machine below the program of `lowroad-bare`: boots on a bare virtual machine, finds its network device, and
//! runs the program in one loop that sleeps while idle. There is one address space, without processes or preemption.
//! With several processors, each runs such a loop with a pair of the network device's queues.
//!
//! The way: `boot` (assembly) calls `start`; `loader` reads the boot information; `heap` gets the free memory;
//! `interrupts`, `apic`, `clock` and `power` set up the machine; `devices` finds the network; `core_startup` decides
//! the number of cores, has `processors` start them, and gives each its work; `main_loop` is the loop. All faults end
//! in `exceptions`.
#![no_std]
#![no_main]

extern crate alloc;

mod apic;
mod boot;
mod boot_placement;
#[cfg(feature = "echo")]
mod check;
mod clock;
mod core_startup;
mod cores;
mod cpu;
mod crash_record;
mod devices;
#[cfg(feature = "echo")]
mod echo;
mod exceptions;
mod heap;
mod interrupts;
mod kvm;
mod loader;
mod main_loop;
mod mapping;
mod memcpy;
mod pci;
mod power;
mod processors;
mod random;
mod serial;
mod server;
mod tables;
mod virtio;

use lowroad_kernel::command_line::{DEVICES_MAX, KernelOption, VirtioMmioDevice, words};
use lowroad_kernel::regions::{MemoryMap, MemoryRegion};
use lowroad_net::AddressSource;

use crate::apic::{IoControllers, LocalApic};
use crate::clock::TickClock;
use crate::core_startup::CorePlan;
use crate::loader::BootInfo;
use crate::serial::say;

/// The largest heap, regardless of the machine's memory.
const HEAP_MAX: u64 = 256 << 20;

unsafe extern "C" {
    static image_start: u8;
    static image_end: u8;
}

/// The entry point in Rust, called once by `boot`.
extern "C" fn start(by: u32, info: u32) -> ! {
    serial::open();
    exceptions::open();
    interrupts::open();
    let told = loader::told(by, info);
    say!(
        "lowroad: kernel {} by {}, {} MiB",
        env!("CARGO_PKG_VERSION"),
        told.loader,
        told.memory.total_len() >> 20
    );
    crash_record::say_last();
    match open_heap(&told) {
        Ok(site) => serve(&told, site).unwrap_or_else(|error| say!("lowroad: {error}")),
        Err(error) => say!("lowroad: {error}"),
    }
    say!("lowroad: off");
    power::off()
}

fn serve(told: &BootInfo, site: Option<MemoryRegion>) -> Result<(), alloc::string::String> {
    // Page tables are allocated from the heap, which exists by now.
    mapping::protect();
    let mut local = LocalApic::open();
    let firmware = tables::read(told.rsdp);
    let (mut clock, how) = TickClock::open(&mut local, firmware.power.timer);
    let now = clock.now();
    say!(
        "lowroad: clock {} kHz, {how}; {} s since 1970",
        clock.rate().khz(),
        now.unix_s
    );
    let controllers = IoControllers::new(firmware.controllers, &local);
    power::open(&firmware.power, &controllers);
    let wanted = read_command_line(told);
    let mut plan = CorePlan::new(&firmware, &told.memory, &taken(told));
    let mut found = devices::find(wanted.devices(), &controllers, plan.cores > 1)
        .ok_or("no usable network device")?;
    let site = site
        .and_then(boot_placement::bytes)
        .ok_or("no site: build an image with `lowroad image build`, or pass a site with -initrd")?;
    let [a, b, c, d, e, f] = found.device.mac;
    say!(
        "lowroad: {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}, MTU {}, site of {} bytes",
        found.device.mtu,
        site.len()
    );
    let nets = plan.start(&firmware, &mut found, &local, &mut clock)?;
    core_startup::work(&found, nets, site, wanted.address, clock, &local)
}

/// Makes the largest free region the heap. Returns the site's region.
fn open_heap(told: &BootInfo) -> Result<Option<MemoryRegion>, &'static str> {
    let site = boot_placement::site(told.module);
    if site.is_some_and(|site| !told.memory.contains(site)) {
        return Err("the site lies beyond the end of memory: give the machine more");
    }
    let free = told.memory.largest_free(
        &taken(told),
        MemoryRegion {
            start: 1 << 20,
            end: 1 << 32,
        },
    );
    let start = free.start.next_multiple_of(4096);
    let len = free.end.saturating_sub(start).min(HEAP_MAX);
    if len < 4 << 20 {
        return Err("less than 4 MiB of memory are free");
    }
    // SAFETY: usable memory by the loader's map, disjoint from `taken`, and mapped, being below 4 GiB. The boot
    // information was copied.
    unsafe { heap::give(start, len as usize) }
    Ok(site)
}

/// The regions that must not become heap.
fn taken(told: &BootInfo) -> MemoryMap {
    let places = boot_placement::places();
    let mut taken = MemoryMap::default();
    taken.add(MemoryRegion {
        start: &raw const image_start as u64,
        end: &raw const image_end as u64,
    });
    taken.add(MemoryRegion::new(crash_record::PAGE, 4096));
    taken.add(MemoryRegion::new(
        places.symbols_address,
        places.symbols_len,
    ));
    for module in [boot_placement::site(told.module), told.module]
        .into_iter()
        .flatten()
    {
        taken.add(module);
    }
    taken
}

struct BootOptions {
    address: AddressSource,
    devices: [VirtioMmioDevice; DEVICES_MAX],
    devices_len: usize,
}

impl BootOptions {
    fn devices(&self) -> &[VirtioMmioDevice] {
        &self.devices[..self.devices_len]
    }
}

fn read_command_line(told: &BootInfo) -> BootOptions {
    let none = VirtioMmioDevice {
        address: 0,
        line: 0,
    };
    let mut wanted = BootOptions {
        address: AddressSource::Dhcp,
        devices: [none; DEVICES_MAX],
        devices_len: 0,
    };
    for word in words(told.command_line()) {
        match word {
            KernelOption::Address(address) => wanted.address = address,
            KernelOption::Device(device) => {
                if let Some(place) = wanted.devices.get_mut(wanted.devices_len) {
                    *place = device;
                    wanted.devices_len += 1;
                }
            }
            KernelOption::Unknown(word) => {
                say!("lowroad: unknown word on the command line: {word}")
            }
        }
    }
    wanted
}
