//! `lowroad-wire` as an implementation under test, with plain values as its environment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use lowroad_softirq::layout::{self, REASONS};
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_testkit::net::SERVER;
use lowroad_wire::frame::FourTuple;
use lowroad_wire::segment_context::{
    AdmissionTime, IgnoredFields, LevelMode, SegmentContext, SocketState, StoredAnswer, TimeWait,
};
use lowroad_wire::{SegmentReason, SegmentView};
use lowroad_wire_model::connection::{BoundedTable, ConnectionState, ModelTable};
use lowroad_wire_model::{ModelResponder, SegmentVerdict};

use super::bench::{DATE, FrameEffect};
use super::frames::PORT;
use super::responses::{AGE_S, Prepared, Response};
use super::script::{self, TraceTarget};

const NOW_NS: u64 = 1_000_000_000;

struct Published {
    what: Prepared,
    expires_ns: u64,
}

/// The environment of the model.
struct Values {
    kept_parts_max: u32,
    mode: LevelMode,
    is_kept: bool,
    ignore: IgnoredFields,
    exempt: Option<u16>,
    is_denied: bool,
    /// The admitted clients; `None` if admission is not required.
    admitted: Option<BTreeSet<(IpAddr, IpAddr, u16)>>,
    /// Number of changes of the filter rules.
    rules: u32,
    learns: bool,
    socket: SocketState,
    listens: bool,
    keeps_time_wait: bool,
    /// Whether level bypass is on.
    rests: bool,
    /// The ids of publications by key.
    index: BTreeMap<Vec<u8>, u32>,
    publications: BTreeMap<u32, Published>,
    next_id: u32,
    counted: BTreeSet<SegmentReason>,
}

impl Values {
    fn new(kept_parts_max: u32) -> Values {
        Values {
            kept_parts_max,
            mode: LevelMode::Serve,
            is_kept: true,
            ignore: IgnoredFields::default(),
            exempt: None,
            is_denied: false,
            admitted: None,
            rules: 0,
            learns: false,
            socket: SocketState::Listener,
            listens: true,
            keeps_time_wait: false,
            rests: false,
            index: BTreeMap::new(),
            publications: BTreeMap::new(),
            next_id: 1,
            counted: BTreeSet::new(),
        }
    }

    fn publish(&mut self, name: &str, edition: u8) {
        let one = Response::named(name);
        let what = one.prepare(edition);
        let expires_ns = u64::MAX;
        self.publications
            .insert(self.next_id, Published { what, expires_ns });
        for key in one.keys() {
            self.index.insert(key, self.next_id);
        }
        self.next_id += 1;
    }

    /// Sets this setting and clears the others, since the programs have all of them in one word.
    fn set(&mut self, setting: &str) {
        self.is_denied = setting == "deny";
        self.admitted = (setting == "admit").then(BTreeSet::new);
        self.rules += u32::from(setting == "admit");
        self.learns = setting == "learn";
        self.ignore.cookies = setting == "ignore-cookies";
    }

    fn retire(&mut self, name: &str) {
        for key in Response::named(name).keys() {
            self.index.remove(&key);
        }
    }

    fn expire(&mut self, name: &str) {
        let id = self.index[&Response::named(name).keys()[0]];
        let found = self.publications.get_mut(&id);
        found.expect("it is published").expires_ns = NOW_NS;
    }
}

/// The key of an admission.
fn entrance(tuple: &FourTuple) -> (IpAddr, IpAddr, u16) {
    (tuple.client, tuple.local, tuple.local_port)
}

impl SegmentContext for Values {
    fn now_ns(&self) -> u64 {
        NOW_NS
    }
    fn mode(&self) -> LevelMode {
        self.mode
    }
    fn is_daemon_alive(&self) -> bool {
        self.is_kept
    }
    fn ignored_fields(&self) -> IgnoredFields {
        self.ignore
    }
    fn mtu(&self) -> usize {
        1500
    }
    fn keep_alive_parts_max(&self) -> u32 {
        self.kept_parts_max
    }
    fn is_served(&self, port: u16) -> bool {
        port == PORT
    }
    fn is_exempt(&self, tuple: &FourTuple) -> bool {
        tuple.client == tuple.local && self.exempt == Some(tuple.client_port)
    }
    fn is_denied(&self, _: IpAddr) -> bool {
        self.is_denied
    }
    fn is_admitted(&self, tuple: &FourTuple, _: AdmissionTime) -> bool {
        let admitted = self.admitted.as_ref();
        admitted.is_none_or(|admitted| admitted.contains(&entrance(tuple)))
    }
    fn admit(&mut self, tuple: &FourTuple) {
        let admitted = self.admitted.get_or_insert_default();
        admitted.insert(entrance(tuple));
    }
    fn random(&self) -> u32 {
        0
    }
    fn rules_version(&self) -> u32 {
        self.rules
    }
    fn is_local(&self, tuple: &FourTuple) -> bool {
        [IpAddr::V4(SERVER.0), IpAddr::V6(SERVER.1)].contains(&tuple.local)
    }
    fn socket(&self, _: &FourTuple) -> SocketState {
        self.socket
    }
    fn end_time_wait(&mut self, _: &FourTuple) -> bool {
        let ends = self.listens && !self.keeps_time_wait;
        if ends {
            self.socket = SocketState::Listener;
        }
        ends
    }
    fn cookie_key(&self, _: u64) -> [u64; 2] {
        [1, 2]
    }
    fn date(&self) -> [u8; 29] {
        *DATE
    }
    fn has_responses(&self) -> bool {
        !self.rests && (self.learns || !self.index.is_empty())
    }
    fn response(&self, key: &[u8]) -> Option<StoredAnswer<'_>> {
        self.publication(*self.index.get(key)?)
    }
    fn publication(&self, id: u32) -> Option<StoredAnswer<'_>> {
        self.publications.get(&id).map(|one| StoredAnswer {
            id,
            bytes: &one.what.bytes,
            head_len: one.what.head_len,
            date_at: Some(one.what.date_at),
            age_at: Some(one.what.age_at),
            // This may be before the start of the clock.
            generated_ns: NOW_NS.wrapping_sub(AGE_S * 1_000_000_000),
            expires_ns: one.expires_ns,
        })
    }
    fn count(&mut self, reason: SegmentReason) {
        self.counted.insert(reason);
    }
}

/// A socket in TIME_WAIT that expects this sequence number next.
fn time_wait(mark: &str, ts_recent: Option<u32>) -> SocketState {
    let rcv_nxt = script::CLIENT_ISN.wrapping_add(script::number(mark));
    SocketState::TimeWait(TimeWait { rcv_nxt, ts_recent })
}

/// The responder of the model and its environment.
pub struct Model {
    responder: ModelResponder<BoundedTable>,
    world: Values,
    last: Option<FourTuple>,
}

impl Model {
    /// A model with the rules of a tier.
    pub fn new(tier: ProgramTier) -> Model {
        Model::with(match tier {
            ProgramTier::Tc => layout::KEPT_PARTS_MAX_TC,
            ProgramTier::Xdp => layout::PARTS_MAX,
        })
    }

    /// A model with this maximum number of segments on persistent connections.
    fn with(kept_parts_max: u32) -> Model {
        Model {
            responder: ModelResponder::new(BoundedTable::new(100)),
            world: Values::new(kept_parts_max),
            last: None,
        }
    }
}

impl TraceTarget for Model {
    fn frame(&mut self, frame: &[u8]) -> FrameEffect {
        if let Ok(segment) = SegmentView::parse(frame) {
            self.last = Some(segment.tuple);
        }
        match self.responder.frame(&mut self.world, frame) {
            SegmentVerdict::Reply(reply) => FrameEffect::Reply(reply),
            SegmentVerdict::Flight(frames) => FrameEffect::Flight(frames),
            SegmentVerdict::Migrate(_) => FrameEffect::Up,
            SegmentVerdict::MigrateWith(_, frame) => FrameEffect::UpInstead(frame),
            SegmentVerdict::Pass(_) => FrameEffect::Pass,
            SegmentVerdict::Drop(_) => FrameEffect::Drop,
        }
    }

    fn take_reasons(&mut self) -> Vec<String> {
        let counted: Vec<&str> = self
            .world
            .counted
            .iter()
            .map(|reason| reason.name())
            .collect();
        self.world.counted.clear();
        // The programs count these reasons in the function that assigns connections to listeners, which does not run in
        // tests.
        let is_handing = |name: &str| matches!(name, "tcp_handed" | "tcp_not_handed");
        let is_told = |name: &&&str| counted.contains(name) && !is_handing(name);
        REASONS
            .iter()
            .map(|(name, _)| name)
            .filter(is_told)
            .map(|name| (*name).to_owned())
            .collect()
    }

    fn state(&mut self, _: bool, _: u16) -> String {
        let found = self
            .last
            .and_then(|tuple| self.responder.table().get(&tuple).copied());
        match found.map(|connection| connection.state) {
            None | Some(ConnectionState::Ended) => "-",
            Some(ConnectionState::Open) => "OPEN",
            Some(ConnectionState::Closing) => "CLOSING",
            Some(ConnectionState::Done) => "DONE",
            Some(ConnectionState::Migrating) => "HANDED",
            Some(ConnectionState::Kernel) => "KERNEL",
            Some(ConnectionState::AwaitingAdmission) => "ASKED",
        }
        .to_owned()
    }

    fn carry_out(&mut self, words: &[&str], _: bool, port: u16) -> bool {
        let world = &mut self.world;
        match words {
            ["flights"] => {}
            ["kept", parts] => return parts.parse() == Ok(world.kept_parts_max),
            ["publish", names @ ..] => names.iter().for_each(|name| world.publish(name, 0)),
            ["retire", name] => world.retire(name),
            ["replace", name] => world.publish(name, 1),
            ["expire", name] => world.expire(name),
            ["purge"] => world.index.clear(),
            ["restart"] => {
                world.index.clear();
                world.publications.clear();
            }
            ["forget"] => self.responder.table().displace_half_open(NOW_NS),
            ["mode", "drain"] => world.mode = LevelMode::Drain,
            ["mode", "serve"] => world.mode = LevelMode::Serve,
            ["mode", "off"] => world.mode = LevelMode::Off,
            ["rest"] => world.rests = true,
            // User space clears the table, too.
            ["sleep"] => {
                world.mode = LevelMode::Off;
                *self.responder.table() = BoundedTable::new(100);
            }
            ["wake"] => (world.mode, world.rests) = (LevelMode::Serve, false),
            ["stale"] => world.is_kept = false,
            ["fresh"] => world.is_kept = true,
            ["deny" | "learn" | "ignore-cookies" | "strict" | "admit"] => world.set(words[0]),
            ["exempt"] => world.exempt = Some(port),
            ["nobody-listens"] => {
                world.listens = false;
                if world.socket == SocketState::Listener {
                    world.socket = SocketState::None;
                }
            }
            // The model does not know the sequence numbers of connected sockets.
            ["old-socket", _] => return false,
            ["socket" | "fin-wait"] => world.socket = SocketState::Connection,
            ["time-wait", mark] => world.socket = time_wait(mark, None),
            ["time-wait", mark, "stamped"] => {
                world.socket = time_wait(mark, Some(script::clock_ms()));
            }
            ["keep-time-wait"] => world.keeps_time_wait = true,
            ["hand-over"] => {}
            // The model parses only segments without IP options and extension headers.
            ["unwrap"] => return false,
            ["ended"] => assert_eq!(world.socket, SocketState::Listener),
            ["no-socket"] => world.socket = SocketState::Listener,
            ["rules"] => world.set("admit"),
            _ => panic!("no such act: {words:?}"),
        }
        true
    }

    fn reset(&mut self) {
        *self = Model::with(self.world.kept_parts_max);
    }
}
