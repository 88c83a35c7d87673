use std::collections::BTreeSet;
use std::net::IpAddr;

use lowroad_config::value::origin_url;
use lowroad_engine::IoDriver;
use lowroad_engine_sim::{FaultRates, SharedWorld as World};
use lowroad_origin::group::PickRequest;

use super::*;

/// The number of addresses.
const ADDRESSES: u64 = 6;
/// The source of the addresses to which a name resolves.
const NAME: ClaimSource = ClaimSource::Name(99);
const MODES: [ServerMode; 4] = [
    ServerMode::Ready,
    ServerMode::Force,
    ServerMode::Drain,
    ServerMode::Down,
];

fn text(number: u64) -> String {
    format!("192.0.2.{number}:80")
}

/// A registry with an origin, and the expected state of its servers.
struct Model {
    world: World,
    registry: OriginRegistry,
    in_force: (OriginConfig, Arc<OriginServers>),
    /// The servers of earlier configurations that a request still uses.
    previous: Vec<Arc<OriginServers>>,
    reloads: u32,
    configured: BTreeMap<String, u32>,
    resolved: BTreeSet<String>,
    added: BTreeMap<String, u32>,
    changes: BTreeMap<String, (ServerMode, Option<u32>)>,
}

impl Model {
    fn new(seed: u64) -> Model {
        let faults = FaultRates {
            piece_len_max: 1,
            delay_ms_max: 1,
            window_len: 1,
            clock_jumps: 0,
            accept_failures: 0,
            file_failures: 0,
            late_sends: 0,
        };
        let world = World::new(seed, faults);
        let worker = world.driver().worker_handle().clone();
        let registry = OriginRegistry::new(&[worker]).expect("random bytes");
        let (config, configured) = config(&world, 1);
        let servers = registry.get(&config, &notice()).expect("servers");
        registry.set_in_force([&config].into_iter());
        Model {
            registry,
            in_force: (config, servers),
            previous: Vec::new(),
            reloads: 1,
            configured,
            resolved: BTreeSet::new(),
            added: BTreeMap::new(),
            changes: BTreeMap::new(),
            world,
        }
    }

    fn is_configured(&self, address: &str) -> bool {
        self.configured.contains_key(address) || self.resolved.contains(address)
    }

    fn is_member(&self, address: &str) -> bool {
        self.is_configured(address) || self.added.contains_key(address)
    }

    fn step(&mut self) {
        let address = text(self.world.random_below(ADDRESSES));
        let weight = 1 + self.world.random_below(4) as u32;
        let mode = MODES[self.world.random_below(4) as usize];
        match self.world.random_below(6) {
            0 | 1 => self.add(&address, weight, mode),
            2 => self.remove(&address),
            3 => {
                let weights = [None, Some(None), Some(Some(weight))];
                let weight = weights[self.world.random_below(3) as usize];
                self.change(
                    &address,
                    ServerChange {
                        mode: Some(mode),
                        weight,
                    },
                );
            }
            4 => self.resolve(),
            _ => self.reload(),
        }
    }

    fn add(&mut self, address: &str, weight: u32, mode: ServerMode) {
        let server = AddedServer {
            // Another spelling of the same address.
            address: address
                .replace("192.0.2.", "[::ffff:192.0.2.")
                .replace(":80", "]:80"),
            weight,
            is_backup: false,
            mode,
        };
        let result = self.registry.add_server("app", &server);
        if self.is_member(address) {
            return assert_eq!(result, Err(OriginRefusal::Exists));
        }
        assert_eq!(result, Ok(address.to_owned()));
        self.added.insert(address.to_owned(), weight);
        self.changes.insert(address.to_owned(), (mode, None));
    }

    fn remove(&mut self, address: &str) {
        let result = self.registry.remove_server("app", address);
        if self.is_configured(address) {
            assert_eq!(result, Err(OriginRefusal::IsConfigured));
        } else if self.added.remove(address).is_some() {
            assert_eq!(result, Ok(()));
            self.changes.remove(address);
        } else {
            assert!(matches!(result, Err(OriginRefusal::UnknownServer(_))));
        }
    }

    fn change(&mut self, address: &str, change: ServerChange) {
        let result = self.registry.change_server("app", address, change);
        assert_eq!(result.is_ok(), self.is_member(address));
        if result.is_ok() {
            let state = self.changes.entry(address.to_owned()).or_default();
            state.0 = change.mode.unwrap_or(state.0);
            state.1 = change.weight.unwrap_or(state.1);
        }
    }

    /// The name of the origin resolves to other addresses.
    fn resolve(&mut self) {
        let (config, servers) = &self.in_force;
        let members = &servers.group().expect("a group").members;
        let transport = self.registry.build_transport(config, &config.servers[0]);
        let transport = transport.expect("no TLS");
        for number in 0..ADDRESSES {
            let address = text(number);
            let at = address_of(address.parse().expect("an address"), None);
            if self.world.random_below(3) > 0 {
                let change = members.claims.release(NAME, &at);
                members.follow(change, 0);
                self.resolved.remove(&address);
                continue;
            }
            let url = origin_url(&format!("http://{address}")).expect("a URL");
            members.set(NAME, &OriginServer::new(url), &transport, at);
            self.resolved.insert(address);
        }
    }

    fn reload(&mut self) {
        self.reloads += 1;
        let (config, configured) = config(&self.world, self.reloads);
        let servers = self.registry.get(&config, &notice()).expect("servers");
        // A prepared configuration that is refused changes nothing.
        if self.world.random_below(4) == 0 {
            return;
        }
        self.registry.set_in_force([&config].into_iter());
        let (_, previous) = std::mem::replace(&mut self.in_force, (config, servers));
        match self.world.random_below(2) {
            0 => self.previous.push(previous),
            _ => self.previous.clear(),
        }
        self.added
            .retain(|address, _| !configured.contains_key(address));
        self.configured = configured;
        self.resolved.clear();
    }

    fn check(&self) {
        let mut expected = BTreeMap::new();
        for address in (0..ADDRESSES).map(text).filter(|it| self.is_member(it)) {
            let (mode, live) = self.changes.get(&address).copied().unwrap_or_default();
            let is_resolved = self.resolved.contains(&address).then_some(1);
            let configured = self.configured.get(&address).copied().or(is_resolved);
            let is_added = configured.is_none();
            let weight = configured.unwrap_or_else(|| self.added[&address]);
            expected.insert(address, (mode, live.unwrap_or(weight), weight, is_added));
        }
        let views = self.registry.views();
        assert_eq!(views.len(), 1);
        let shown = views[0].servers.iter().map(|it| {
            let shown = (it.mode, it.weight, it.configured_weight, it.is_added);
            (it.address.clone(), shown)
        });
        assert_eq!(shown.collect::<BTreeMap<_, _>>(), expected);
        let (_, servers) = &self.in_force;
        assert_eq!(addresses(servers).len(), expected.len());
        for servers in &self.previous {
            let members = addresses(servers);
            let distinct: BTreeSet<&String> = members.iter().collect();
            assert_eq!(members.len(), distinct.len());
        }
    }

    /// Requests are distributed by weight.
    fn check_shares(&self) {
        const ROUNDS: u32 = 20;
        let (_, servers) = &self.in_force;
        let upstream = &servers.group().expect("a group").upstream;
        let views = self.registry.views();
        let in_rotation =
            |it: &&ServerView| matches!(it.mode, ServerMode::Ready | ServerMode::Force);
        let total: u32 = views[0]
            .servers
            .iter()
            .filter(in_rotation)
            .map(|it| it.weight)
            .sum();
        let mut counts = BTreeMap::<String, u32>::new();
        for _ in 0..total * ROUNDS {
            // After every slow start.
            let attempt = upstream.attempt(&PickRequest::default(), 1 << 40, 0);
            let attempt = attempt.expect("a server");
            *counts
                .entry(attempt.target.pool().address().to_string())
                .or_default() += 1;
        }
        for server in views[0].servers.iter().filter(in_rotation) {
            let count = counts.get(&server.address).copied().unwrap_or(0);
            // Credits from before the last change shift a few turns.
            let difference = count.abs_diff(server.weight * ROUNDS);
            assert!(
                difference <= 8,
                "{}: {count} of {}",
                server.address,
                server.weight * ROUNDS
            );
        }
    }
}

fn notice() -> lowroad_handler::operator_notice::OperatorNotice {
    Arc::new(|_, _| {})
}

/// A configuration with at least two servers, in several spellings, and the weights of its addresses.
fn config(world: &World, number: u32) -> (OriginConfig, BTreeMap<String, u32>) {
    let mut weights = BTreeMap::new();
    let mut servers = Vec::new();
    for _ in 0..2 + world.random_below(3) {
        let address = world.random_below(ADDRESSES);
        let url = match world.random_below(2) {
            0 => format!("http://192.0.2.{address}"),
            _ => format!("http://[::ffff:192.0.2.{address}]:80/"),
        };
        let weight = 1 + world.random_below(4) as u32;
        weights.entry(text(address)).or_insert(weight);
        servers.push(OriginServer {
            weight,
            ..OriginServer::new(origin_url(&url).expect("a URL"))
        });
    }
    let config = OriginConfig {
        servers,
        // Each configuration has other settings, and so separate servers.
        connections_max: 100 + number as usize,
        ..OriginConfig::named("app".to_owned())
    };
    (config, weights)
}

#[test]
fn address_is_one_member_after_any_changes() {
    for seed in 0..40 {
        let mut model = Model::new(seed);
        model.check();
        for step in 0..60 {
            model.step();
            let context = format!("seed {seed}, step {step}");
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model.check()));
            assert!(checked.is_ok(), "{context}");
        }
        model.check_shares();
    }
}

#[test]
fn unusable_addresses_are_not_added() {
    let model = Model::new(0);
    let before = addresses(&model.in_force.1);
    let long = format!("unix:/{}", "a".repeat(107));
    for address in [
        "192.0.2.9:0",
        "224.0.0.1:80",
        "[ff02::1]:80",
        "255.255.255.255:80",
        "unix:/",
        "unix:x",
        "unix:/a\0b",
        "unix:/a\u{9b}b",
        &long,
        "app.example:80",
        "",
    ] {
        let server = AddedServer {
            address: address.to_owned(),
            weight: 1,
            is_backup: false,
            mode: ServerMode::Ready,
        };
        let result = model.registry.add_server("app", &server);
        assert!(
            matches!(result, Err(OriginRefusal::InvalidAddress(_))),
            "{address:?}"
        );
    }
    assert_eq!(addresses(&model.in_force.1), before);
    let from: Option<IpAddr> = None;
    let socket = OriginUrl::Unix("//run/./a.sock".into());
    let OriginLocation::Address(address) = OriginLocation::new(&socket, from) else {
        panic!("no address");
    };
    assert_eq!(address.to_string(), "unix:/run/a.sock");
}

#[test]
fn unspecified_address_is_the_loopback_address() {
    let model = Model::new(0);
    for (address, listed) in [("0.0.0.0:7", "127.0.0.1:7"), ("[::]:7", "[::1]:7")] {
        let server = AddedServer {
            address: address.to_owned(),
            weight: 1,
            is_backup: false,
            mode: ServerMode::Ready,
        };
        assert_eq!(
            model.registry.add_server("app", &server),
            Ok(listed.to_owned())
        );
        let again = model.registry.add_server("app", &server);
        assert_eq!(again, Err(OriginRefusal::Exists));
        assert!(addresses(&model.in_force.1).contains(&listed.to_owned()));
    }
}
