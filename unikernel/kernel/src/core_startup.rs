//! Decides on the number of cores, assigns each its work, and prints the total counters at the end. Each core has a
//! server, a pair of queues, and a heap; the shared state is in `lowroad_unikernel::CoreSet`.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use lowroad_kernel::regions::MemoryMap;
use lowroad_net::AddressSource;
use lowroad_unikernel::{CoreSet, MachineSetup};

use crate::apic::LocalApic;
use crate::clock::TickClock;
use crate::devices::DetectedDevice;
use crate::serial::{self, say};
use crate::tables::FirmwareTables;
use crate::virtio::net::NetQueuePair;
use crate::{cores, heap, main_loop, power, processors, random, server};

/// Maximum memory for the server's pools and tables, on all cores together.
const PROGRAM_MAX: usize = 64 << 20;
/// Heap memory of a core in addition to the server's pools.
const HEAP_SPARE: usize = 1 << 20;
/// Minimum heap memory of a core: for queues and stacks, the server's minimum, and the spare.
const CORE_LEN_MIN: usize = 8 << 20;
/// Maximum time that the first core waits for the counters of the others.
const SUM_INTERVAL_US: u64 = 1_000_000;

/// The number of cores to start.
pub struct CorePlan {
    /// The machine's processors.
    processors: usize,
    /// The page in low memory at which further processors start.
    page: Option<u8>,
    /// The number of cores that the machine permits, before the network device limits it.
    pub cores: u16,
    reason: &'static str,
}

impl CorePlan {
    /// A plan for a machine with this memory, parts of which are `occupied`.
    pub fn new(firmware: &FirmwareTables, memory: &MemoryMap, occupied: &MemoryMap) -> CorePlan {
        let mut plan = CorePlan {
            processors: firmware.processors().count().max(1),
            page: processors::find_start_page(memory, occupied),
            cores: 1,
            reason: "",
        };
        plan.cores = plan.processors.try_into().unwrap_or(u16::MAX);
        plan.limit(cores::MAX, "more are not supported");
        plan.limit(heap::free_len() / CORE_LEN_MIN, "memory is short");
        if plan.page.is_none() {
            plan.limit(1, "no memory below 1 MiB is free");
        }
        plan
    }

    fn limit(&mut self, count: usize, reason: &'static str) {
        if count < usize::from(self.cores) {
            self.cores = count.max(1) as u16;
            self.reason = reason;
        }
    }

    /// Starts as many cores as the device has queues for, and reports unused processors.
    pub fn start(
        &mut self,
        firmware: &FirmwareTables,
        device: &mut DetectedDevice,
        local: &LocalApic,
        clock: &mut TickClock,
    ) -> Result<Vec<NetQueuePair>, &'static str> {
        self.limit(
            device.device.pairs_max.into(),
            "the network device has no more queues",
        );
        if let (2.., Some(page)) = (self.cores, self.page) {
            let started = processors::start(firmware.processors(), self.cores, page, local, clock);
            self.limit(started.into(), "the others do not start");
        }
        let nets = device.begin(self.cores)?;
        self.limit(nets.len(), "the network device gives no more queues");
        cores::set_count(self.cores);
        match (self.processors, usize::from(self.cores)) {
            (1, _) => {}
            (all, used) if all == used => say!("lowroad: {used} cores"),
            (all, used) => say!("lowroad: {used} of {all} processors used: {}", self.reason),
        }
        Ok(nets)
    }
}

/// The settings that all cores share.
#[derive(Clone, Copy)]
struct TeamSettings {
    site: &'static [u8],
    mac: [u8; 6],
    mtu: u16,
    address: AddressSource,
    memory_len: usize,
    secret: [u8; 32],
    cores: Option<&'static CoreSet>,
}

/// Runs the server on all cores until the power button is pressed and all connections have ended. `nets` contains a
/// pair of queues for each core.
///
/// # Errors
/// If the server can't be created.
pub fn run_cores(
    device: &DetectedDevice,
    mut nets: Vec<NetQueuePair>,
    site: &'static [u8],
    address: AddressSource,
    mut clock: TickClock,
    local: &LocalApic,
) -> Result<(), String> {
    let count = cores::count();
    let secret = random::secret();
    let cores = (count > 1).then(|| &*Box::leak(Box::new(CoreSet::new(count, &secret))));
    let len = heap::split(count).ok_or("memory is fragmented")?;
    let settings = TeamSettings {
        site,
        mac: device.device.mac,
        mtu: device.device.mtu,
        address,
        memory_len: len
            .saturating_sub(HEAP_SPARE)
            .min(PROGRAM_MAX / usize::from(count)),
        secret,
        cores,
    };
    // Queues are taken from the end, so that each core gets the pair with its number.
    for core in (1..count).rev() {
        let (net, clock) = (nets.pop().ok_or("too few queues")?, clock.clone());
        let run = move |mut local: LocalApic, remote_ticks| {
            let mut clock = clock.for_other_core(remote_ticks, &mut local);
            if let Err(error) = run_core(core, &settings, net, &mut clock, &local) {
                say!("lowroad: core {core}: {error}");
                power::switch_off();
            }
        };
        processors::assign_work(core, local, Box::new(run));
    }
    let net = nets.pop().ok_or("no queues")?;
    run_core(0, &settings, net, &mut clock, local)?;
    report_totals(count, &mut clock);
    Ok(())
}

fn run_core(
    core: u16,
    settings: &TeamSettings,
    mut net: NetQueuePair,
    clock: &mut TickClock,
    local: &LocalApic,
) -> Result<(), String> {
    let machine = MachineSetup {
        mac: settings.mac,
        mtu: settings.mtu,
        address: settings.address,
        memory_len: settings.memory_len,
        secret: settings.secret,
        cores: settings.cores.map(|cores| (cores, core)),
    };
    // The machine stops afterwards, so the server need not be dropped.
    let mut server = ManuallyDrop::new(server::open(settings.site, machine)?);
    main_loop::run(core, &mut server, &mut net, clock, local);
    // Other cores may be waiting for this core to stop.
    local.wake_others();
    add(&net);
    Ok(())
}

static RECEIVED: AtomicU64 = AtomicU64::new(0);
static SENT: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
/// Number of cores that have added their counters.
static ADDED: AtomicU16 = AtomicU16::new(0);

fn add(net: &NetQueuePair) {
    let (receiver, sender) = (&net.receiver, &net.sender);
    for (sum, number) in [
        (&RECEIVED, receiver.frames),
        (&SENT, sender.frames),
        (&DROPPED, sender.dropped),
        (&WRONG, receiver.invalid_values + sender.invalid_values),
    ] {
        sum.fetch_add(number, Ordering::Relaxed);
    }
    ADDED.fetch_add(1, Ordering::Release);
}

fn report_totals(count: u16, clock: &mut TickClock) {
    let end_us = clock.now().mono_us + SUM_INTERVAL_US;
    while ADDED.load(Ordering::Acquire) < count && clock.now().mono_us < end_us {
        core::hint::spin_loop();
    }
    let missing = count - ADDED.load(Ordering::Acquire);
    if missing > 0 {
        say!("lowroad: {missing} of {count} cores have not stopped");
    }
    let [received, sent, dropped, wrong] =
        [&RECEIVED, &SENT, &DROPPED, &WRONG].map(|sum| sum.load(Ordering::Relaxed));
    say!("lowroad: {received} frames received, {sent} sent, {dropped} dropped");
    let unprinted = serial::dropped();
    if wrong > 0 || unprinted > 0 {
        say!(
            "lowroad: {wrong} invalid responses of the device, {unprinted} bytes lost by the console"
        );
    }
}
