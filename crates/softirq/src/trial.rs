//! Trial: runs a level's programs on a request (`BPF_PROG_TEST_RUN`) in a private network namespace, with the level's
//! responses but otherwise private maps. Nothing is counted, stored, learned or sent.
//!
//! The private control structure is a copy of the level's, except that the level is awake and the client admitted.

mod frames;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use lowroad_wire::key::RequestKey;
use rustix::thread::UnshareFlags;

use crate::error::LevelError;
use crate::layout::REASONS;
use crate::level::SoftirqLevel;
use crate::level::events::{EventRing, LevelEvent};
use crate::level::publisher::{self, PublishedResponse};
use crate::programs::fan_out;
use crate::programs::loader::{ProgramTier, TrialPrograms, load_for_trial};
use crate::programs::maps::FreshMaps;

use self::frames::{ACK, PAYLOAD_MAX_V4, PAYLOAD_MAX_V6, PSH, SYN, TrialSegment};

/// The maps that are shared with the level, since the programs only read them.
const SHARED: [&str; 3] = ["response_index", "responses", "response_store"];
/// The index of `lo` in every network namespace; test runs deliver frames from it.
const LOOPBACK: i32 = 1;
/// Size of the private connection table.
const CONNECTIONS: u32 = 64;

/// MSS 1460, window scale, SACK permitted: typical options of a client's SYN.
const SYN_OPTIONS: [u8; 12] = [2, 4, 5, 180, 1, 3, 3, 7, 1, 1, 4, 2];
const FIRST_SEQ: u32 = 1_000_000;
const FIRST_PORT: u16 = 20_000;
/// Client addresses from the ranges reserved for documentation (RFC 5737, RFC 3849).
const CLIENT: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(198, 51, 100, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
);

/// The programs of one tier for a trial.
pub struct ProgramTrial {
    programs: TrialPrograms,
    /// The level with the trial's maps: the private and the shared ones.
    level: SoftirqLevel,
    port_next: AtomicU16,
}

/// The result of a trial.
#[derive(Clone, Debug, Default)]
pub struct TrialOutcome {
    /// Names of all counters incremented during the handshake and the request.
    pub exits: Vec<&'static str>,
    /// The response, if the request was answered.
    pub response: Option<PublishedResponse>,
    /// The key to learn, if the request was parsed and there is no fresh response.
    pub key: Option<RequestKey>,
    /// The field line because of which the request is punted.
    pub field: Option<String>,
}

impl TrialOutcome {
    /// The reason for which the request is punted, passed or dropped: a name from [`REASONS`]. `None` if it is
    /// answered.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        let exit_with = |prefix: &str| self.exits.iter().find(|exit| exit.starts_with(prefix));
        if exit_with("answer_").is_some() {
            return None;
        }
        let ends = ["up_", "pass_", "drop_"];
        let reason = ends.iter().find_map(|prefix| exit_with(prefix)).copied();
        // Each frame increments a counter at its exit.
        reason.or(self.exits.first().copied())
    }
}

impl ProgramTrial {
    /// Loads the programs of a tier for a trial of this level.
    ///
    /// # Errors
    /// If the process lacks permission, or the kernel rejects the programs.
    pub fn new(level: &SoftirqLevel, tier: ProgramTier) -> Result<ProgramTrial, LevelError> {
        let maps = FreshMaps::default();
        for name in SHARED {
            maps.share(name, level.pinned(name)?);
        }
        let mut room = level.map_capacity();
        room.connection_buckets = CONNECTIONS;
        let programs = load_for_trial(tier, room, &maps)?;
        // As in the level: without fan-out maps, TC sends long responses.
        if let Some(parts) = &programs.parts
            && fan_out::has_maps(level.folder())
        {
            fan_out::enter_maps(&maps.map_handle("fan_out")?, parts.fd(), LOOPBACK)?;
        }
        let trial_level = SoftirqLevel::with_maps(level.folder(), |name| maps.map_handle(name))?;
        trial_level.copy_control(level);
        Ok(ProgramTrial {
            programs,
            level: trial_level,
            port_next: AtomicU16::new(FIRST_PORT),
        })
    }

    /// Tries a request, given by its head, at an address of this machine.
    ///
    /// # Errors
    /// If programs can't be run.
    pub fn run_request(&self, head: &[u8], local: SocketAddr) -> Result<TrialOutcome, LevelError> {
        let address = match local.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        self.level.set_addresses(&[address.octets()])?;
        let run_all = || {
            let _listener = enter_private_namespace(local)?;
            let mut outcome = self.run_request_twice(head, local)?;
            outcome.field = self.field(head, local, &outcome)?;
            Ok(outcome)
        };
        // The programs run in a separate thread, which changes its network namespace and then ends.
        let done = thread::scope(|scope| scope.spawn(run_all).join());
        done.unwrap_or_else(|_| Err(LevelError::Usage("the trial ended early".to_owned())))
    }

    /// Runs the request twice, since the programs report a miss only at the second request. To be called in a network
    /// namespace with a listener.
    fn run_request_twice(
        &self,
        head: &[u8],
        local: SocketAddr,
    ) -> Result<TrialOutcome, LevelError> {
        let missed_key = Mutex::new(None);
        let events = EventRing::new(&self.level, |event| {
            if let (LevelEvent::RepeatedMiss { key, .. }, Ok(mut missed_key)) =
                (event, missed_key.lock())
            {
                *missed_key = RequestKey::read(key);
            }
        })?;
        // The hits are counted before and after: the response with an additional hit is the one that was sent.
        let published = publisher::published(&self.level);
        let exits = self.exits_of(head, local)?;
        let published_after = publisher::published(&self.level);
        self.exits_of(head, local)?;
        events.take()?;
        drop(events);
        let hits_before = |response: &PublishedResponse| {
            let earlier = published.iter().find(|other| other.key == response.key);
            earlier.map_or(0, |earlier| earlier.hits)
        };
        Ok(TrialOutcome {
            exits,
            response: published_after
                .into_iter()
                .find(|response| response.hits > hits_before(response)),
            key: missed_key.into_inner().ok().flatten(),
            field: None,
        })
    }

    /// Finds the field line because of which the request is punted. The programs parse line by line, so it is the last
    /// line of the shortest head with the same outcome.
    fn field(
        &self,
        head: &[u8],
        local: SocketAddr,
        outcome: &TrialOutcome,
    ) -> Result<Option<String>, LevelError> {
        let Some(reason) = outcome.reason().filter(|reason| reason.starts_with("up_")) else {
            return Ok(None);
        };
        let text = std::str::from_utf8(head).unwrap_or_default();
        let Some((text, _)) = text.split_once("\r\n\r\n") else {
            return Ok(None);
        };
        let lines: Vec<&str> = text.split("\r\n").collect();
        for count in 1..=lines.len() {
            let part = format!("{}\r\n\r\n", lines[..count].join("\r\n"));
            let exits = self.exits_of(part.as_bytes(), local)?;
            if exits.contains(&reason) {
                // The request line is not a field line.
                return Ok((count > 1).then(|| lines[count - 1].to_owned()));
            }
        }
        Ok(None)
    }

    /// Opens a connection and sends the request. Returns the names of the counters that increased.
    fn exits_of(&self, head: &[u8], local: SocketAddr) -> Result<Vec<&'static str>, LevelError> {
        let before = self.level.counters()?;
        // Each connection has another client port, since the table still has the earlier connections.
        let port = self.port_next.fetch_add(1, Ordering::Relaxed).max(1024);
        let (client, payload_max): (IpAddr, usize) = match local.is_ipv4() {
            true => (CLIENT.0.into(), PAYLOAD_MAX_V4),
            false => (CLIENT.1.into(), PAYLOAD_MAX_V6),
        };
        let syn = TrialSegment {
            from: SocketAddr::new(client, port),
            to: local,
            flags: SYN,
            seq: FIRST_SEQ,
            ack: 0,
            options: &SYN_OPTIONS,
            payload: &[],
        };
        let reply = self.run(&syn.frame())?;
        if let Some(seq) = frames::sequence_of(&reply) {
            let request = TrialSegment {
                flags: PSH | ACK,
                seq: FIRST_SEQ.wrapping_add(1),
                ack: seq.wrapping_add(1),
                options: &[],
                // A client would send the rest in another segment.
                payload: &head[..head.len().min(payload_max)],
                ..syn
            };
            self.run(&request.frame())?;
        }
        let after = self.level.counters()?;
        let counted = REASONS.iter().zip(before.iter().zip(&after));
        Ok(counted
            .filter(|(_, (before, after))| after > before)
            .map(|((name, _), _)| *name)
            .collect())
    }

    /// Runs the answering program; if it passes the frame on, also runs the program behind it.
    fn run(&self, frame: &[u8]) -> Result<Vec<u8>, LevelError> {
        let (_, out) = self.programs.answering.run_on_frame(frame)?;
        match &self.programs.after_xdp {
            // XDP's mark precedes the frame.
            Some(after_xdp) if is_passed_to_tc(&out) => Ok(after_xdp.run_on_frame(frame)?.1),
            _ => Ok(out),
        }
    }
}

/// Whether the mark in front of the frame requests the program at TC.
fn is_passed_to_tc(out: &[u8]) -> bool {
    out.starts_with(&crate::layout::META_AGAIN.to_ne_bytes())
}

/// Moves the thread into a new network namespace, and opens a listener on the port there.
fn enter_private_namespace(local: SocketAddr) -> Result<TcpListener, LevelError> {
    let failed = || LevelError::system("a network namespace for a trial");
    // SAFETY: unshares only the network namespace, not the file descriptors, of a thread that is about to end.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
        .map_err(|error| failed()(error.into()))?;
    let any: IpAddr = match local.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    TcpListener::bind((any, local.port())).map_err(LevelError::system("a listener for a trial"))
}
