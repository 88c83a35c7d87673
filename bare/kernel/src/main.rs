//! The machine below the program of `lowroad-bare`: boots on a bare virtual machine, finds its network device, and runs
//! the program in one loop that sleeps whenever nothing is to do. There is one address space, one processor, no
//! processes and nothing that preempts.
//!
//! The way: `boot` (assembly) calls [`start`]; `loader` reads what the loader has told; `heap` gets what memory is left;
//! `interrupts`, `apic`, `clock` and `power` set up the machine; `devices` finds the network; `run` is the loop.
//! `exceptions` is where all faults end.
#![no_std]
#![no_main]

extern crate alloc;

mod apic;
mod boot;
#[cfg(feature = "echo")]
mod check;
mod clock;
mod cpu;
mod crashes;
mod devices;
#[cfg(feature = "echo")]
mod echo;
mod exceptions;
mod heap;
mod interrupts;
mod kvm;
mod loader;
mod mapping;
mod memcpy;
mod pci;
mod place;
mod power;
mod random;
mod run;
mod serial;
mod server;
mod tables;
mod virtio;

use lowroad_bare::Machine;
use lowroad_kernel::command_line::{DEVICES_MAX, Device, Word, words};
use lowroad_kernel::regions::{Region, Regions};
use lowroad_net::Address;

use crate::apic::{Controllers, Local};
use crate::clock::Clock;
use crate::loader::Told;
use crate::serial::say;

/// The heap takes no more, however much there is.
const HEAP_MAX: u64 = 256 << 20;
/// The program gets no more for its pools and tables.
const PROGRAM_MAX: usize = 64 << 20;
/// What is left to the heap beside the program's pools.
const HEAP_SPARE: usize = 1 << 20;

unsafe extern "C" {
    static image_start: u8;
    static image_end: u8;
}

/// Called by `boot`, once.
extern "C" fn start(by: u32, info: u32) -> ! {
    serial::open();
    interrupts::open();
    let told = loader::told(by, info);
    say!(
        "lowroad: kernel {} by {}, {} MiB",
        env!("CARGO_PKG_VERSION"),
        told.loader,
        told.memory.total_len() >> 20
    );
    crashes::say_last();
    match open_heap(&told) {
        Ok(site) => serve(&told, site).unwrap_or_else(|error| say!("lowroad: {error}")),
        Err(error) => say!("lowroad: {error}"),
    }
    say!("lowroad: off");
    power::off()
}

fn serve(told: &Told, site: Option<Region>) -> Result<(), alloc::string::String> {
    mapping::protect();
    let mut local = Local::open();
    let firmware = tables::read(told.rsdp);
    let (mut clock, how) = Clock::open(&mut local, firmware.power.timer);
    let now = clock.now();
    say!(
        "lowroad: clock {} kHz, {how}; {} s since 1970",
        clock.rate().khz(),
        now.unix_s
    );
    let controllers = Controllers::new(firmware.controllers, &local);
    power::open(&firmware.power, &controllers);
    let wanted = read_command_line(told);
    let mut net = devices::net(wanted.devices(), &local, &controllers)
        .ok_or("no network device that can be used")?;
    let site = site
        .and_then(place::bytes)
        .ok_or("no site: `lowroad image build` puts one in, or give it with -initrd")?;
    let [a, b, c, d, e, f] = net.mac;
    say!(
        "lowroad: {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}, MTU {}, site of {} bytes",
        net.mtu,
        site.len()
    );
    let machine = Machine {
        mac: net.mac,
        mtu: net.mtu,
        address: wanted.address,
        memory_len: heap::free_len().saturating_sub(HEAP_SPARE).min(PROGRAM_MAX),
        secret: random::secret(),
        cores: None,
    };
    let mut server = server::open(site, machine)?;
    run::run(&mut server, &mut net, &mut clock, &local);
    let (received, sent) = (&net.receiver, &net.sender);
    say!(
        "lowroad: {} frames received, {} sent, {} dropped",
        received.frames,
        sent.frames,
        sent.dropped
    );
    let (wrong, unsaid) = (received.wrong + sent.wrong, serial::dropped());
    if wrong > 0 || unsaid > 0 {
        say!(
            "lowroad: {wrong} wrong answers of the device, {unsaid} bytes that the console has not taken"
        );
    }
    Ok(())
}

/// Gives the heap the largest piece of memory that is free. Gives the site's place.
fn open_heap(told: &Told) -> Result<Option<Region>, &'static str> {
    let mut taken = Regions::default();
    let image = Region {
        start: &raw const image_start as u64,
        end: &raw const image_end as u64,
    };
    let places = place::places();
    let site = place::site(told.module);
    if site.is_some_and(|site| !told.memory.contains(site)) {
        return Err("the site lies where no memory is: the machine needs more");
    }
    taken.add(image);
    taken.add(Region::new(crashes::PAGE, 4096));
    taken.add(Region::new(places.symbols_address, places.symbols_len));
    for module in [site, told.module].into_iter().flatten() {
        taken.add(module);
    }
    let free = told.memory.largest_free(
        &taken,
        Region {
            start: 1 << 20,
            end: 1 << 32,
        },
    );
    let start = free.start.next_multiple_of(4096);
    let len = free.end.saturating_sub(start).min(HEAP_MAX);
    if len < 4 << 20 {
        return Err("less than 4 MiB of memory are free");
    }
    // SAFETY: memory, by the loader's map; outside of what is taken; mapped, being below 4 GiB. What the loader has
    // told was copied.
    unsafe { heap::give(start, len as usize) }
    Ok(site)
}

struct Wanted {
    address: Address,
    devices: [Device; DEVICES_MAX],
    devices_len: usize,
}

impl Wanted {
    fn devices(&self) -> &[Device] {
        &self.devices[..self.devices_len]
    }
}

fn read_command_line(told: &Told) -> Wanted {
    let none = Device {
        address: 0,
        line: 0,
    };
    let mut wanted = Wanted {
        address: Address::Dhcp,
        devices: [none; DEVICES_MAX],
        devices_len: 0,
    };
    for word in words(told.command_line()) {
        match word {
            Word::Address(address) => wanted.address = address,
            Word::Device(device) => {
                if let Some(place) = wanted.devices.get_mut(wanted.devices_len) {
                    *place = device;
                    wanted.devices_len += 1;
                }
            }
            Word::Unknown(word) => say!("lowroad: unknown on the command line: {word}"),
        }
    }
    wanted
}
