//! The server object, which the main loop drives: passes frames to the stack, and the events of the stack's connections
//! to the site.

use alloc::format;
use alloc::string::String;
use alloc::vec;

use lowroad_net::{AddressSource, LinkDevice, ReceivedFrame, StackSettings, TcpStack};

use crate::archive::SiteArchive;
use crate::core_member::{self, CoreMember};
use crate::cores::CoreSet;
use crate::machine_view::MachineView;
use crate::pages::PageEngine;
use crate::trusted_networks::TrustedNetworks;
use crate::web::WebService;

/// The HTTP port.
const PORT: u16 = 80;
/// Maximum number of connections, if memory suffices.
const CONNECTIONS_MAX: usize = 10_000;
/// Maximum memory of a connection in bytes, including its share of small buffers.
const CONNECTION_LEN: usize = 2048;
/// Minimum memory of a server in bytes.
const MEMORY_LEN_MIN: usize = 4 << 20;
/// The idle timeout of connections.
const IDLE_TIMEOUT_MS: u32 = 60_000;
/// Length of the request journal in bytes.
const JOURNAL_LEN: usize = 256 << 10;
/// Maximum duration of the shutdown; connections that are still open after it are dropped.
const DRAIN_US: u64 = 5_000_000;

/// The properties of the machine.
pub struct MachineSetup {
    /// The device's MAC address.
    pub mac: [u8; 6],
    /// The device's MTU.
    pub mtu: u16,
    /// The source of the IP address.
    pub address: AddressSource,
    /// Memory for the pools and tables of this core, in bytes.
    pub memory_len: usize,
    /// Random bytes, new at each start. All cores may get the same.
    pub secret: [u8; 32],
    /// The state shared with the other cores, and the number of this core, from 0. `None` on a machine with one core.
    pub cores: Option<(&'static CoreSet, u16)>,
}

/// The current time.
#[derive(Clone, Copy)]
pub struct CurrentTime {
    /// Monotonic time in microseconds since the start.
    pub mono_us: u64,
    /// Seconds since 1970, UTC.
    pub unix_s: u64,
}

/// The earlier of two times.
#[inline]
pub fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The first of the serial numbers of responses. Clients see these numbers, so they must not reveal the secret, parts
/// of which are used in tables and SYN cookies.
fn serial(secret: &[u8; 32]) -> u64 {
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| {
        let bytes = core::array::from_fn(|n| secret[at * 8 + n]);
        u128::from(u64::from_le_bytes(bytes))
    });
    let (one, other) = (a * (b | 1), c * (d | 1));
    (one ^ one >> 64 ^ other ^ other >> 64) as u64
}

/// Serves a site: its connections and requests. On a machine with several cores, each core has a server for its own
/// connections.
///
/// The loop of a core: pass the frames of its queue to `UnikernelServer::received`; call `UnikernelServer::tick`; send
/// the frames; wake the cores of `UnikernelServer::take_wakes`; sleep if `UnikernelServer::prepare_sleep` returns true;
/// call `UnikernelServer::on_wake`. No wake-up may be lost between `prepare_sleep` and the sleep: on bare metal,
/// interrupts are disabled meanwhile; in a process, a descriptor stays readable.
pub struct UnikernelServer {
    stack: TcpStack,
    web: WebService,
    /// `None` on a machine with one core.
    member: Option<CoreMember>,
    /// The time at which the shutdown began.
    stopping_us: Option<u64>,
    is_address_reported: bool,
    now_us: u64,
}

impl UnikernelServer {
    /// Creates the server. Allocates all memory except that of pages.
    ///
    /// # Errors
    /// If the machine has too little memory, or the settings in the archive are invalid: a text for the operator.
    pub fn new(site: SiteArchive, machine: MachineSetup) -> Result<UnikernelServer, String> {
        let memory_len = machine.memory_len;
        if memory_len < MEMORY_LEN_MIN {
            return Err(format!(
                "only {} KiB of memory are left for connections; {} are needed: give the machine more",
                memory_len >> 10,
                MEMORY_LEN_MIN >> 10
            ));
        }
        // Three eighths of the memory are for small buffers, one eighth for large ones, a quarter for connections, and
        // the rest for pages.
        let share = memory_len / 8;
        let connections_max = CONNECTIONS_MAX.min(2 * share / CONNECTION_LEN);
        let trusted = TrustedNetworks::parse(site.settings("status.from"))?;
        // Each core needs a secret of its own; otherwise database connections of different cores would use the same
        // random numbers.
        let mut secret = machine.secret;
        let (count, core) = machine
            .cores
            .map_or((1, 0), |(cores, core)| (cores.count(), core));
        let [.., low, high] = &mut secret;
        *low ^= core.to_le_bytes()[0];
        *high ^= core.to_le_bytes()[1];
        let member = machine
            .cores
            .map(|(cores, core)| CoreMember::new(cores, core));
        let pages = PageEngine::new(&site, secret, share, count)?;
        let serial = serial(&secret);
        let stack = TcpStack::new(StackSettings {
            mac: machine.mac,
            mtu: machine.mtu,
            address: match machine.address {
                // Only core 0 runs the DHCP client; it publishes the address.
                AddressSource::Dhcp if core > 0 => AddressSource::OtherCore,
                address => address,
            },
            ports: vec![PORT],
            connections_max,
            small_buffers: 3 * share / lowroad_net::SMALL,
            large_buffers: share / lowroad_net::LARGE,
            idle_timeout_ms: IDLE_TIMEOUT_MS,
            secret,
            share: member.as_ref().map(CoreMember::share),
        });
        Ok(UnikernelServer {
            stack,
            web: WebService::new(
                site,
                connections_max,
                JOURNAL_LEN,
                pages,
                trusted,
                serial,
                MachineView(machine.cores),
            ),
            member,
            stopping_us: None,
            is_address_reported: false,
            now_us: 0,
        })
    }

    /// Processes a received frame.
    #[inline]
    pub fn received(
        &mut self,
        now: CurrentTime,
        link: &mut impl LinkDevice,
        received: ReceivedFrame<'_>,
    ) {
        self.now_us = now.mono_us;
        self.web.set_now(now);
        if let Some(member) = &mut self.member {
            let owner = self.stack.owner(received.frame);
            // The frame was passed to the core that owns it.
            if !member.accept_or_forward(owner, now.mono_us, received) {
                return;
            }
        }
        self.stack
            .received(now.mono_us, link, &mut self.web, received);
    }

    /// Does the work that is due. Call it after each burst of frames, and at the returned time (in
    /// `CurrentTime::mono_us`).
    #[inline]
    pub fn tick(&mut self, now: CurrentTime, link: &mut impl LinkDevice) -> Option<u64> {
        self.now_us = now.mono_us;
        self.web.set_now(now);
        if self.member.is_some() {
            self.process_messages(link);
        }
        let stack_us = self.stack.tick(now.mono_us, link, &mut self.web);
        let is_stopping = self.stopping_us.is_some();
        let has_address = self.stack.address().is_some();
        let (stack, web) = (&mut self.stack, &mut self.web);
        let web_us = stack.calls(now.mono_us, link, web, |web, calls| {
            if is_stopping {
                // Called each time, since connections may have become idle since the last call.
                web.begin_draining(calls);
            }
            // Connections to the database can't be opened without an address.
            match has_address {
                true => web.tick(calls),
                false => None,
            }
        });
        let drain_us = self.stopping_us.map(|stopping_us| stopping_us + DRAIN_US);
        let next_us = earlier(earlier(stack_us, web_us), drain_us);
        match self.member {
            Some(_) => earlier(next_us, self.publish_state(now.mono_us)),
            None => next_us,
        }
    }

    /// Processes the frames and messages of the other cores.
    #[cold]
    #[inline(never)]
    fn process_messages(&mut self, link: &mut impl LinkDevice) {
        let Some(member) = &mut self.member else {
            return;
        };
        let (stack, web, now_us) = (&mut self.stack, &mut self.web, self.now_us);
        if let Some(address) = member.poll_address() {
            stack.set_address(now_us, link, web, address);
        }
        // The number of frames from each core is limited, so that a busy core does not keep this one from its own
        // frames.
        for from in 0..member.count() {
            for _ in 0..core_member::BURST_MAX {
                let Some((len, sum_is_good)) = member.take(from) else {
                    break;
                };
                let frame = member.buffer.get(..len).unwrap_or_default();
                stack.received(now_us, link, web, ReceivedFrame { frame, sum_is_good });
            }
        }
        if member.is_stopping() {
            self.stop();
        }
    }

    /// Publishes the address, the state of the shutdown, and the counters. Returns the time of the next publication.
    #[inline(never)]
    fn publish_state(&mut self, now_us: u64) -> Option<u64> {
        let member = self.member.as_mut()?;
        member.publish_address(self.stack.address());
        let is_drain_over = |stopping_us: u64| now_us >= stopping_us + DRAIN_US;
        // This core is done when all connections have ended, or when the time for that has passed.
        if let Some(stopping_us) = self.stopping_us
            && (self.stack.open_count() == 0 || is_drain_over(stopping_us))
        {
            member.set_done();
        }
        let net_counters = self.stack.counters();
        let frames = net_counters.frames_received + net_counters.frames_sent;
        let due_us = member.publish_due_us();
        // The rate of publications is limited, since each of them writes memory that other cores read.
        if now_us < due_us {
            return member.has_new_frames(frames).then_some(due_us);
        }
        self.publish_counters(now_us, frames);
        None
    }

    /// Publishes this core's counters and log.
    #[cold]
    #[inline(never)]
    fn publish_counters(&mut self, now_us: u64, frames: u64) {
        if let Some(member) = &mut self.member {
            let numbers = self.web.counted(self.stack.counters().each());
            member.publish(now_us, frames, numbers, &self.web.journal);
        }
    }

    /// Returns the sleeping cores that have new work, as bits. Call it after `UnikernelServer::tick`, and wake all of
    /// them. An unnecessary wake-up is harmless.
    #[inline]
    pub fn take_wakes(&mut self) -> u64 {
        self.member.as_mut().map_or(0, CoreMember::take_wakes)
    }

    /// Announces that this core is going to sleep until its device, its timer or another core wakes it. Returns false
    /// if work has arrived: then the core must not sleep.
    #[inline]
    #[must_use]
    pub fn prepare_sleep(&self) -> bool {
        let is_stopping = self.stopping_us.is_some();
        let member = self.member.as_ref();
        member.is_none_or(|member| member.prepare_sleep(is_stopping))
    }

    /// Announces that this core is awake. Call it after each `UnikernelServer::prepare_sleep`, for either result.
    #[inline]
    pub fn on_wake(&self) {
        if let Some(member) = &self.member {
            member.on_wake();
        }
    }

    /// Begins the graceful shutdown of all cores: no new connections are accepted, and pending responses are completed.
    /// May be called on any core.
    pub fn stop(&mut self) {
        // New connections are rejected from now on; open connections still get their pending responses.
        self.stack.refuse_new();
        // A repeated call must not extend the deadline.
        self.stopping_us.get_or_insert(self.now_us);
        if let Some(member) = &mut self.member {
            member.stop();
        }
    }

    /// Whether the shutdown is complete or its deadline has passed. All cores return the same (after the next wake-up),
    /// so each core may leave its loop then.
    pub fn is_stopped(&self, now: CurrentTime) -> bool {
        let Some(stopping_us) = self.stopping_us else {
            return false;
        };
        let is_done = match &self.member {
            None => self.stack.open_count() == 0,
            Some(member) => member.are_done(),
        };
        is_done || now.mono_us >= stopping_us + DRAIN_US
    }

    /// The number of open connections, including those to the database.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.stack.open_count()
    }

    /// Numbers of free small and large buffers.
    #[must_use]
    pub fn free_buffers(&self) -> (usize, usize) {
        self.stack.free_buffers()
    }

    /// A message for the console, if there is one. Only core 0 reports the address.
    pub fn take_message(&mut self) -> Option<String> {
        if let Some(problem) = self.web.take_problem() {
            return Some(problem);
        }
        let is_leader = self.member.as_ref().is_none_or(CoreMember::is_leader);
        // All cores have the same address, so only one reports it.
        let should_report = is_leader && !self.is_address_reported;
        let (address, prefix_len, _) = self.stack.address().filter(|_| should_report)?;
        self.is_address_reported = true;
        Some(format!(
            "address {address}/{prefix_len}; look at http://{address}/"
        ))
    }
}
