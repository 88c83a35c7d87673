//! The kernel below the server of `lowroad_unikernel`: boots on a virtual machine without an operating system, finds
//! the network device, and runs the server in a loop that sleeps while idle. There is one address space, without
//! processes or preemption. With several processors, each one runs such a loop with its own pair of network queues.
//!
//! Order of startup: `boot` (assembly) calls `start`; `loader` reads the boot information; `heap` gets the free memory;
//! `interrupts`, `apic`, `clock` and `power` set up the machine; `devices` finds the network device; `core_startup`
//! decides on the number of cores, lets `processors` start them, and assigns each its work; `main_loop` is the loop.
//! All faults end in `exceptions`.
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

/// Maximum size of the heap, regardless of the machine's memory.
const HEAP_MAX: u64 = 256 << 20;

unsafe extern "C" {
    static image_start: u8;
    static image_end: u8;
}

/// The entry point in Rust, called once by `boot`.
extern "C" fn start(protocol: u32, info: u32) -> ! {
    serial::open();
    exceptions::open();
    interrupts::open();
    let boot_info = loader::read_boot_info(protocol, info);
    say!(
        "lowroad: kernel {} by {}, {} MiB",
        env!("CARGO_PKG_VERSION"),
        boot_info.loader,
        boot_info.memory.total_len() >> 20
    );
    crash_record::print_last();
    match open_heap(&boot_info) {
        Ok(site) => serve(&boot_info, site).unwrap_or_else(|error| say!("lowroad: {error}")),
        Err(error) => say!("lowroad: {error}"),
    }
    say!("lowroad: off");
    power::switch_off()
}

fn serve(boot_info: &BootInfo, site: Option<MemoryRegion>) -> Result<(), alloc::string::String> {
    // Page tables are allocated from the heap, which exists from here on.
    mapping::protect();
    let mut local = LocalApic::open();
    let firmware = tables::read(boot_info.rsdp);
    let (mut clock, rate_source) = TickClock::open(&mut local, firmware.power.timer);
    let now = clock.now();
    say!(
        "lowroad: clock {} kHz, {rate_source}; {} s since 1970",
        clock.rate().khz(),
        now.unix_s
    );
    let controllers = IoControllers::new(firmware.controllers, &local);
    power::open(&firmware.power, &controllers);
    let boot_options = read_command_line(boot_info);
    let mut plan = CorePlan::new(&firmware, &boot_info.memory, &occupied_regions(boot_info));
    let mut device = devices::find(boot_options.devices(), &controllers, plan.cores > 1)
        .ok_or("no usable network device")?;
    let site = site
        .and_then(boot_placement::bytes)
        .ok_or("no site: build an image with `lowroad image build`, or pass a site with -initrd")?;
    let [a, b, c, d, e, f] = device.device.mac;
    say!(
        "lowroad: {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}, MTU {}, site of {} bytes",
        device.device.mtu,
        site.len()
    );
    let nets = plan.start(&firmware, &mut device, &local, &mut clock)?;
    core_startup::run_cores(&device, nets, site, boot_options.address, clock, &local)
}

/// Makes the largest free region the heap. Returns the site's region.
fn open_heap(boot_info: &BootInfo) -> Result<Option<MemoryRegion>, &'static str> {
    let site = boot_placement::site(boot_info.module);
    if site.is_some_and(|site| !boot_info.memory.contains(site)) {
        return Err("the site lies beyond the end of memory: give the machine more");
    }
    let free = boot_info.memory.largest_free(
        &occupied_regions(boot_info),
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
    // SAFETY: usable memory according to the boot loader's map, disjoint from `occupied_regions`, and mapped, since it
    // is below 4 GiB. The boot information was copied before.
    unsafe { heap::set_memory(start, len as usize) }
    Ok(site)
}

/// The regions that must not become a part of the heap.
fn occupied_regions(boot_info: &BootInfo) -> MemoryMap {
    let note = boot_placement::site_note();
    let mut occupied = MemoryMap::default();
    occupied.add(MemoryRegion {
        start: &raw const image_start as u64,
        end: &raw const image_end as u64,
    });
    occupied.add(MemoryRegion::new(crash_record::PAGE, 4096));
    occupied.add(MemoryRegion::new(note.symbols_address, note.symbols_len));
    for module in [boot_placement::site(boot_info.module), boot_info.module]
        .into_iter()
        .flatten()
    {
        occupied.add(module);
    }
    occupied
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

fn read_command_line(boot_info: &BootInfo) -> BootOptions {
    let none = VirtioMmioDevice {
        address: 0,
        line: 0,
    };
    let mut boot_options = BootOptions {
        address: AddressSource::Dhcp,
        devices: [none; DEVICES_MAX],
        devices_len: 0,
    };
    for word in words(boot_info.command_line()) {
        match word {
            KernelOption::Address(address) => boot_options.address = address,
            KernelOption::Device(device) => {
                if let Some(slot) = boot_options.devices.get_mut(boot_options.devices_len) {
                    *slot = device;
                    boot_options.devices_len += 1;
                }
            }
            KernelOption::Unknown(word) => {
                say!("lowroad: unknown word on the command line: {word}")
            }
        }
    }
    boot_options
}
