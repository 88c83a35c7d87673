//! What a level's programs do with a request, by trying: the very programs, on the very responses, but with
//! all other maps of their own and in a network namespace of their own, so that nothing is counted,
//! remembered, learnt or sent (`BPF_PROG_TEST_RUN`). It knows no rule of theirs.
//!
//! What the programs have of their own is a copy of what steers the level, as if it were awake, and the client
//! somebody whom it lets in.

mod frames;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use lowroad_wire::key::Key;
use rustix::thread::UnshareFlags;

use crate::error::Error;
use crate::layout::REASONS;
use crate::level::Level;
use crate::level::events::{Event, Events};
use crate::level::publish::{self, Published};
use crate::programs::fan_out;
use crate::programs::load::{ForTrial, Tier, load_for_trial};
use crate::programs::maps::Fresh;

use self::frames::{ACK, PAYLOAD_MAX_V4, PAYLOAD_MAX_V6, PSH, SYN, Sent};

/// What the programs only read.
const SHARED: [&str; 3] = ["response_index", "responses", "store"];
/// `lo`, from which frames come where programs are tried, in every network namespace.
const LOOPBACK: i32 = 1;
/// Places for connections are its own, and it has a handful.
const CONNECTIONS: u32 = 64;

/// MSS 1460, window scale, SACK: as clients send it.
const SYN_OPTIONS: [u8; 12] = [2, 4, 5, 180, 1, 3, 3, 7, 1, 1, 4, 2];
const FIRST_SEQ: u32 = 1_000_000;
const FIRST_PORT: u16 = 20_000;
/// A client that is nobody's (RFC 5737, RFC 3849).
const CLIENT: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(198, 51, 100, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
);

/// The programs of one tier, to be tried.
pub struct Trial {
    programs: ForTrial,
    /// What they have of their own, beside what they share.
    level: Level,
    port_next: AtomicU16,
}

/// What became of a request.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// Names of all exits that it took with its handshake.
    pub exits: Vec<&'static str>,
    /// The response that it was answered with.
    pub response: Option<Published>,
    /// If it was read, and there is no fresh response: under which key that would be learnt.
    pub key: Option<Key>,
    /// The field by which it goes up, as it was written.
    pub field: Option<String>,
}

impl Tried {
    /// By what it goes up, passes or is dropped: one of [`REASONS`]. `None`: it is answered.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        let named = |begin: &str| self.exits.iter().find(|exit| exit.starts_with(begin));
        if named("answer_").is_some() {
            return None;
        }
        let ends = ["up_", "pass_", "drop_"];
        let reason = ends.iter().find_map(|begin| named(begin)).copied();
        // Each frame is counted at its exit.
        reason.or(self.exits.first().copied())
    }
}

impl Trial {
    /// Loads the programs of a tier for a trial of this level.
    ///
    /// # Errors
    /// When the process may not, or the kernel does not take them.
    pub fn of(level: &Level, tier: Tier) -> Result<Trial, Error> {
        let maps = Fresh::default();
        for name in SHARED {
            maps.share(name, level.pinned(name)?);
        }
        let mut room = level.room();
        room.connection_buckets = CONNECTIONS;
        let programs = load_for_trial(tier, room, &maps)?;
        if let Some(parts) = &programs.parts
            && fan_out::is_filled(level.folder())
        {
            fan_out::fill_with(&maps.one("fan_out")?, parts.fd(), LOOPBACK)?;
        }
        let own = Level::of(level.folder(), |name| maps.one(name))?;
        own.steer_as(level);
        Ok(Trial {
            programs,
            level: own,
            port_next: AtomicU16::new(FIRST_PORT),
        })
    }

    /// What becomes of this head of a request at an address of this machine.
    ///
    /// # Errors
    /// When programs can't be run.
    pub fn ask(&self, head: &[u8], local: SocketAddr) -> Result<Tried, Error> {
        let address = match local.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        self.level.set_addresses(&[address.octets()])?;
        let all = || {
            let _listener = enter_nowhere(local)?;
            let mut tried = self.once(head, local)?;
            tried.field = self.field(head, local, &tried)?;
            Ok(tried)
        };
        // Only that thread is elsewhere.
        let done = thread::scope(|scope| scope.spawn(all).join());
        done.unwrap_or_else(|_| Err(Error::Usage("the trial ended early".to_owned())))
    }

    /// The same, twice, since the second request for the same is told to who learns. On a thread that is
    /// in a namespace with a listener.
    fn once(&self, head: &[u8], local: SocketAddr) -> Result<Tried, Error> {
        let asked = Mutex::new(None);
        let events = Events::new(&self.level, |event| {
            if let (Event::Asked { key, .. }, Ok(mut asked)) = (event, asked.lock()) {
                *asked = Key::read(key);
            }
        })?;
        let published = publish::published(&self.level);
        let exits = self.exits_of(head, local)?;
        let answered = publish::published(&self.level);
        self.exits_of(head, local)?;
        events.take()?;
        drop(events);
        let before = |one: &Published| {
            let same = published.iter().find(|other| other.key == one.key);
            same.map_or(0, |same| same.hits)
        };
        Ok(Tried {
            exits,
            response: answered.into_iter().find(|one| one.hits > before(one)),
            key: asked.into_inner().ok().flatten(),
            field: None,
        })
    }

    /// The programs read line by line: the first up to which the request ends the same way.
    fn field(
        &self,
        head: &[u8],
        local: SocketAddr,
        tried: &Tried,
    ) -> Result<Option<String>, Error> {
        let Some(reason) = tried.reason().filter(|reason| reason.starts_with("up_")) else {
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
                // That of the request line is no field's.
                return Ok((count > 1).then(|| lines[count - 1].to_owned()));
            }
        }
        Ok(None)
    }

    /// Opens a connection and asks; which exits were counted.
    fn exits_of(&self, head: &[u8], local: SocketAddr) -> Result<Vec<&'static str>, Error> {
        let before = self.level.counters()?;
        let port = self.port_next.fetch_add(1, Ordering::Relaxed).max(1024);
        let (client, payload_max): (IpAddr, usize) = match local.is_ipv4() {
            true => (CLIENT.0.into(), PAYLOAD_MAX_V4),
            false => (CLIENT.1.into(), PAYLOAD_MAX_V6),
        };
        let syn = Sent {
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
            let request = Sent {
                flags: PSH | ACK,
                seq: FIRST_SEQ.wrapping_add(1),
                ack: seq.wrapping_add(1),
                options: &[],
                // A client sends the rest in another segment.
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

    /// Runs the program that answers, and, where it leaves a frame to that, the one behind it.
    fn run(&self, frame: &[u8]) -> Result<Vec<u8>, Error> {
        let (_, out) = self.programs.answering.try_on(frame)?;
        match &self.programs.behind {
            // A mark stands before the frame.
            Some(behind) if is_left_to_next(&out) => Ok(behind.try_on(frame)?.1),
            _ => Ok(out),
        }
    }
}

/// By the mark before the frame.
fn is_left_to_next(out: &[u8]) -> bool {
    out.starts_with(&crate::layout::META_AGAIN.to_ne_bytes())
}

/// The thread goes to a network namespace that nobody else is in, with somebody who listens at this port.
fn enter_nowhere(local: SocketAddr) -> Result<TcpListener, Error> {
    let failed = || Error::system("a network namespace for a trial");
    // SAFETY: no file descriptors are unshared, only the network of a thread about to end.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
        .map_err(|error| failed()(error.into()))?;
    let any: IpAddr = match local.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    TcpListener::bind((any, local.port())).map_err(Error::system("a listener for a trial"))
}
