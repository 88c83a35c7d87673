//! The bench that counts: each server runs in a guest whose instructions are counted, and is asked from outside. A guest
//! serves all points of its server that come one after another.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bench::{Bench, Job, Measured, Peer};
use super::counting::PER_SECOND;
use super::database::{self, Database};
use super::forms;
use super::schema::Experiment;
use super::site::Sites;
use crate::icount::dealt::Dealt;
use crate::icount::drive::by_load;
use crate::icount::guest::{Boot, Guest, Network};
use crate::icount::kernel::{Content, Copied, Kernel, plugin};
use crate::icount::servers::own;
use crate::icount::timed::timed;
use crate::icount::{Slopes, needs, slopes};
use crate::load::{Load, Outcome, Pace, Snapshot};
use crate::peers::{Failure, carried, fronts, programs, table};
use crate::workload::named;

/// Of each guest, unless its files need more.
const MEMORY_MIB: u32 = 512;
const PORT: u16 = 80;
/// Connections that warm a server up for what is due at fixed times.
const WARMING_CONNECTIONS: u32 = 8;
/// Most processes of a server that has one for each connection.
const PROCESSES_MAX: u32 = 64;
/// Where things are in a guest.
const SITE: &str = "/srv";
const DATA: &str = "/specweb99-data";
const PROGRAMS: &str = "/php";
const FRONTS: &str = "/fronts";

/// The bench.
pub struct Counted {
    sites: Sites,
    /// What guests boot, and what counts; got when the first is needed.
    means: Option<(Kernel, PathBuf)>,
    guest: Option<(Key, Rc<RefCell<Ready>>)>,
}

/// What makes a guest fit for a job: the server with its settings, processes, files, whether programs answer, whether pages come
/// out of a database, whether it is timed.
type Key = (
    String,
    BTreeMap<String, String>,
    u32,
    PathBuf,
    bool,
    bool,
    bool,
);

impl Counted {
    /// A bench that makes file sets under `data`.
    #[must_use]
    pub fn new(data: PathBuf) -> Self {
        Self {
            sites: Sites::new(data),
            means: None,
            guest: None,
        }
    }

    fn key(&self, job: &Job) -> Key {
        (
            job.server.peer.clone(),
            job.server.settings.clone(),
            processes(job),
            self.sites.folder(&job.workload, &job.files_settings),
            forms::is_dynamic(job),
            forms::has_pages(job),
            is_timed(job),
        )
    }

    fn boot(&mut self, job: &Job) -> Result<Ready, Failure> {
        let network = Network::new();
        let carried = self.carried(job)?;
        let version = carried.version.clone();
        let configuration = carried.text();
        let content = self.content(job, carried)?;
        let boot = |(kernel, plugin): &(Kernel, PathBuf)| {
            let initrd = kernel.initrd(&network, &content)?;
            let boot = Boot {
                has_steps: is_timed(job),
                ..Boot::usual(kernel.image(), Some(initrd), MEMORY_MIB)
            };
            let mut guest = Guest::boot(&boot, plugin, network.clone())?;
            let address = guest.wait_for(PORT)?;
            Ok(Ready {
                guest,
                address,
                version,
                configuration,
            })
        };
        let means = self.means.as_ref().expect("prepared before");
        boot(means).map_err(Failure::Broken)
    }

    /// The peer's plan for the guest.
    fn carried(&self, job: &Job) -> Result<carried::Carried, Failure> {
        let peer = table::named(&job.server.peer)?;
        let mut settings = job.server.settings.clone();
        let fronts = self.fronts(job)?;
        for known in peer.settings {
            let value = match known.name {
                "binary" if programs::needs_lowroad(peer.name) => {
                    let own = own(None).map_err(Failure::NotInstalled)?;
                    own.display().to_string()
                }
                "processes" => processes(job).to_string(),
                "php_root" => PROGRAMS.to_owned(),
                "specweb99_data" if forms::is_dynamic(job) => DATA.to_owned(),
                "db" if forms::has_pages(job) => database::ADDRESS.to_owned(),
                "fronts" => match &fronts {
                    Some(built) => built.display().to_string(),
                    None => continue,
                },
                _ => continue,
            };
            settings.entry(known.name.to_owned()).or_insert(value);
        }
        let moved = fronts.map(|built| (built, FRONTS.to_owned()));
        carried::carried(&carried::Job {
            peer: &job.server.peer,
            root: Path::new(SITE),
            address: ([0, 0, 0, 0], PORT).into(),
            workers: 1,
            settings: &settings,
            moved: moved.as_slice(),
        })
    }

    /// The dynamic set, if the job's server answers by it.
    fn fronts(&self, job: &Job) -> Result<Option<PathBuf>, Failure> {
        let wanted = forms::is_dynamic(job) && fronts::has_front(&job.server.peer);
        wanted.then(|| self.sites.fronts()).transpose()
    }

    /// The database, if the job's server makes pages out of it.
    fn database(&self, job: &Job) -> Result<Option<Database>, Failure> {
        let is_wanted = forms::has_pages(job) && table::takes(&job.server.peer, "php_root");
        let schema = self.sites.programs().join("schema.sql");
        is_wanted.then(|| Database::of(&schema)).transpose()
    }

    fn content(&self, job: &Job, carried: carried::Carried) -> Result<Content, Failure> {
        let folder = self.sites.folder(&job.workload, &job.files_settings);
        let copied = |source: PathBuf, path: &str| Copied {
            source,
            path: path.to_owned(),
        };
        let mut all = vec![copied(folder.join("site"), SITE)];
        if forms::is_dynamic(job) {
            all.push(copied(folder.join("specweb99-data"), DATA));
        }
        if table::takes(&job.server.peer, "php_root") {
            all.push(copied(self.sites.programs(), PROGRAMS));
        }
        let database = self.database(job)?;
        all.extend(database.iter().flat_map(Database::copied));
        let database = database.map(|it| it.command()).unwrap_or_default();
        all.extend(self.fronts(job)?.map(|built| copied(built, FRONTS)));
        let needed = carried.needed.iter();
        all.extend(needed.map(|(source, path)| copied(source.clone(), path)));
        let files = carried.files.into_iter();
        Ok(Content {
            copied: all,
            generated: files
                .map(|(path, text)| (path, text.into_bytes()))
                .collect(),
            // Where configurations say that errors go; and programs that are not root write what they have to.
            command: format!(
                "ln -sf /proc/self/fd/2 /dev/stderr\n[ -d {DATA} ] && chmod -R a+rwX {DATA}\n{database}{}",
                carried.command
            ),
        })
    }
}

/// Whether it is about time: then it is the guest's.
fn is_timed(job: &Job) -> bool {
    job.pace != Pace::Closed
}

/// Processes where each serves one connection, as many as there are clients.
fn processes(job: &Job) -> u32 {
    job.connections.clamp(1, PROCESSES_MAX)
}

impl Bench for Counted {
    fn prepare(
        &mut self,
        experiment: &Experiment,
        progress: &mut dyn FnMut(f64),
        stop: &AtomicBool,
    ) -> Result<(), String> {
        needs::check()?;
        if self.means.is_none() {
            self.means = Some((Kernel::new()?, plugin()?));
        }
        self.sites.prepare(experiment, progress, stop)
    }

    fn start(&mut self, job: &Job) -> Result<Box<dyn Peer>, Failure> {
        let key = self.key(job);
        let runs =
            |(of, ready): &(Key, Rc<RefCell<Ready>>)| *of == key && ready.borrow_mut().guest.runs();
        let kept = self.guest.take().filter(runs);
        let (_, ready) = match kept {
            Some(kept) => self.guest.insert(kept),
            None => {
                let ready = Rc::new(RefCell::new(self.boot(job)?));
                self.guest.insert((key, ready))
            }
        };
        let (version, configuration) = {
            let ready = ready.borrow();
            (ready.version.clone(), ready.configuration.clone())
        };
        Ok(Box::new(CountedPeer {
            ready: ready.clone(),
            version,
            configuration,
        }))
    }

    fn check(&self, experiment: &Experiment) -> Result<(), String> {
        let workload = &experiment.workload;
        named(&workload.name, &workload.settings, "127.0.0.1").map(drop)
    }
}

/// A guest whose server answers.
struct Ready {
    guest: Guest,
    address: SocketAddr,
    version: String,
    configuration: String,
}

struct CountedPeer {
    ready: Rc<RefCell<Ready>>,
    version: String,
    configuration: String,
}

impl Peer for CountedPeer {
    fn version(&self) -> &str {
        &self.version
    }

    fn configuration(&self) -> &str {
        &self.configuration
    }

    fn measure(
        &mut self,
        job: &Job,
        _progress: &mut dyn FnMut(&Snapshot),
        stop: &AtomicBool,
    ) -> Result<Measured, String> {
        let measured = match is_timed(job) {
            false => self.count(job, stop),
            true => self.time(job, stop),
        };
        if stop.load(Ordering::Relaxed) {
            let mut cut = Measured::default();
            cut.outcome.interrupted = true;
            return Ok(cut);
        }
        measured
    }
}

impl CountedPeer {
    fn count(&self, job: &Job, stop: &AtomicBool) -> Result<Measured, String> {
        let ready = &mut *self.ready.borrow_mut();
        let address = ready.address;
        let workload = named(&job.workload, &job.settings, &address.to_string())?;
        let workload = Dealt::of(workload);
        let mut run = |requests: u64| {
            if stop.load(Ordering::Relaxed) {
                return Err("stopped".to_owned());
            }
            let traffic = workload.from_start();
            by_load(
                address,
                &job.workload,
                traffic,
                None,
                requests,
                job.connections,
            )
        };
        warm_up(job, address, &mut run).map_err(|why| ready.guest.failure(&why))?;
        let requests =
            enough(job, &ready.guest, &mut run).map_err(|why| ready.guest.failure(&why))?;
        let slopes = slopes(&mut ready.guest, requests, &mut run)?;
        let measured = measured(&slopes)?;
        if forms::has_forms(job) {
            forms::check(address, job, &measured.outcome)?;
        }
        Ok(measured)
    }

    /// Measures in the guest's own time.
    fn time(&self, job: &Job, stop: &AtomicBool) -> Result<Measured, String> {
        let ready = &mut *self.ready.borrow_mut();
        let address = ready.address;
        let load = Load {
            threads: 1,
            ..job.load(address)?
        };
        let traffic = Dealt::of(load.workload.clone()).from_start();
        let mut run = |requests: u64| {
            let (traffic, connections) = (traffic.clone(), WARMING_CONNECTIONS);
            by_load(address, &job.workload, traffic, None, requests, connections)
        };
        warm_up(job, address, &mut run).map_err(|why| ready.guest.failure(&why))?;
        let found = timed(&ready.guest, load, stop)?;
        let mut measured = Measured {
            outcome: found.outcome,
            ..Measured::default()
        };
        let share = ("server_cpu_share".to_owned(), found.busy_share);
        measured.extras.extend([share]);
        Ok(measured)
    }
}

/// Requests that make a figure, so many at least that even a short run has all connections. Where all are for the same
/// file, they are as many as take some work: what comes together differs from one run to the next. Of a mix all servers are
/// asked for the same part.
fn enough(
    job: &Job,
    guest: &Guest,
    run: &mut dyn FnMut(u64) -> Result<Outcome, String>,
) -> Result<u64, String> {
    const OF_A_MIX: u64 = 2400;
    let least = job.requests.max(u64::from(job.connections) * 12);
    if !job.settings.contains_key("size") {
        return Ok(least.max(OF_A_MIX));
    }
    const WORK: f64 = 3e8; // two seconds, some
    const MOST: f64 = 6000.0;
    let tried = u64::from(job.connections).max(20);
    let before = guest.counted_at_rest();
    run(tried)?;
    let each = (guest.counted_at_rest() - before) as f64 / tried as f64;
    let by_work = (WORK / each.max(1.0)).min(MOST) as u64;
    Ok(by_work.max(least))
}

/// Who listens may be busy yet with what comes after, as with loading programs into the kernel, which takes an emulated
/// one seconds.
fn warm_up(
    job: &Job,
    address: SocketAddr,
    run: &mut dyn FnMut(u64) -> Result<Outcome, String>,
) -> Result<(), String> {
    const TRIES: u32 = 3;
    let mut tried = Ok(());
    for _ in 0..TRIES {
        tried = match forms::has_forms(job) {
            true => forms::begin(address, job),
            false => Ok(()),
        };
        tried = tried.and_then(|()| run(job.warmup_requests.max(1)).map(drop));
        if programs::needs_lowroad(&job.server.peer) {
            // What the level learns at the second request of a file, it has learned then.
            tried = tried.and_then(|()| run(job.warmup_requests.max(1)).map(drop));
        }
        if tried.is_ok() {
            break;
        }
    }
    tried
}

/// The figures, as if 10^9 instructions were a second.
fn measured(slopes: &Slopes<Outcome>) -> Result<Measured, String> {
    let instructions = slopes.middle()?;
    let (short, long) = (&slopes.short, &slopes.long);
    let requests = (long.requests - short.requests) as f64;
    let per_request = |of: fn(&Outcome) -> u64| (of(long) - of(short)) as f64 / requests;
    let rate = PER_SECOND / instructions;
    let mut outcome = long.clone();
    outcome.duration_s = long.requests as f64 / rate;
    outcome.requests_per_s = rate;
    outcome.connections_per_s = rate * per_request(|outcome| outcome.connections);
    outcome.bytes_per_s = rate * per_request(|outcome| outcome.bytes);
    // How long anything took on this machine says nothing of the server.
    let Outcome {
        latency_us,
        service_us,
        response_us,
        transfer_us,
        connect_us,
        connection_us,
        established_us,
        reply_rate,
        ..
    } = Outcome::default();
    Ok(Measured {
        capacity_per_s: Some(rate),
        instructions: Some(instructions),
        slopes: slopes.instructions.clone(),
        outcome: Outcome {
            latency_us,
            service_us,
            response_us,
            transfer_us,
            connect_us,
            connection_us,
            established_us,
            reply_rate,
            cpu_share: 0.0,
            ..outcome
        },
        ..Measured::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_so_many_instructions() {
        let outcome = |requests, bytes| Outcome {
            requests,
            bytes,
            connections: requests / 2,
            ..Outcome::default()
        };
        let slopes = Slopes {
            instructions: vec![50_000.0, 900_000.0, 49_000.0],
            short: outcome(100, 1_000_000),
            long: outcome(300, 1_200_000),
        };
        let measured = measured(&slopes).expect("a figure");
        assert_eq!(measured.instructions, Some(50_000.0));
        assert_eq!(measured.outcome.requests_per_s, 20_000.0);
        assert_eq!(measured.outcome.connections_per_s, 10_000.0);
        assert_eq!(measured.outcome.bytes_per_s, 20_000_000.0);
        assert_eq!(measured.outcome.latency_us.count, 0);
    }
}
