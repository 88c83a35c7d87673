//! Creates guests: each runs the server of a job, on Linux or as a bare image. Independent of the load.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::bench::MeasurementJob;
use super::database::{self, SampleDatabase};
use super::forms;
use super::schema::ExperimentConfig;
use super::site::LabSites;
use super::warm::{WarmUpTraffic, is_learning};
use crate::icount::boot::BootSpec;
use crate::icount::guest::{GuestNetwork, QemuGuest};
use crate::icount::image::ImageFolder;
use crate::icount::kernel::{CopiedPath, GuestContent, GuestKernel, plugin};
use crate::icount::needs;
use crate::icount::servers::built_lowroad;
use crate::icount::table::OURS;
use crate::load::RequestPace;
use crate::peers::{PeerFailure, carried, fronts, programs, table};

/// Memory of each guest, unless its files need more.
const MEMORY_MIB: u32 = 512;
const PORT: u16 = 80;
/// The peer that is a bare image.
const IMAGE: &str = "lowroad-bare";
/// Maximum number of connections between a cache level (the fast path or Lowroad as a proxy) and the server behind it.
const LEVEL_CONNECTIONS: u32 = 8;
/// Maximum number of processes of a server with one process per connection.
const PROCESSES_MAX: u32 = 64;
/// Paths in a guest.
const SITE: &str = "/srv";
const DATA: &str = "/specweb99-data";
const PROGRAMS: &str = "/php";
const FRONTS: &str = "/fronts";

/// Creates guests.
pub struct GuestFactory {
    sites: LabSites,
    /// Whether instructions are also counted by address, for a profile.
    has_profile: bool,
    /// Kernel and counting plugin, prepared on first use.
    kernel_and_plugin: Option<(GuestKernel, PathBuf)>,
}

/// The properties of a guest that decide whether it fits a job.
#[derive(Clone, Debug, PartialEq)]
pub struct GuestKey {
    peer: String,
    settings: BTreeMap<String, String>,
    /// The file-set settings of the experiment, if the server adapts to its traffic.
    traffic: Option<BTreeMap<String, String>>,
    workers: u32,
    processes: u32,
    site: PathBuf,
    memory_mib: Option<u32>,
    is_dynamic: bool,
    has_pages: bool,
    mtu: Option<u32>,
}

/// A guest with an answering server.
pub struct ReadyGuest {
    /// The guest.
    pub guest: QemuGuest,
    /// The server's address.
    pub address: SocketAddr,
    /// The server's version.
    pub version: String,
    /// The server's configuration.
    pub configuration: String,
    /// The warm-up traffic that the server has had so far.
    pub warmed: WarmUpTraffic,
    /// Whether a measurement failed: the server's state is then uncertain.
    pub has_failed: bool,
    /// Files of the host and their paths in the guest.
    pub copied: Vec<CopiedPath>,
    /// The folder of the boot image, which must exist until the guest ends.
    _image: Option<ImageFolder>,
}

impl GuestFactory {
    /// Creates a factory for these sites. If `has_profile` is set, instructions are also counted by address.
    pub fn new(sites: LabSites, has_profile: bool) -> GuestFactory {
        GuestFactory {
            sites,
            has_profile,
            kernel_and_plugin: None,
        }
    }

    /// Creates the files for an experiment's guests.
    ///
    /// # Errors
    /// A requirement is missing; the text names it.
    pub fn prepare(
        &mut self,
        experiment: &ExperimentConfig,
        progress: &mut dyn FnMut(f64),
        stop: &AtomicBool,
    ) -> Result<(), String> {
        needs::check()?;
        // The kernel and the plugin take long to fetch and build, so they are kept for all experiments.
        if self.kernel_and_plugin.is_none() {
            self.kernel_and_plugin = Some((GuestKernel::new()?, plugin()?));
        }
        self.sites.prepare(experiment, progress, stop)
    }

    /// The key of the guest that a job needs.
    pub fn key(&self, job: &MeasurementJob) -> GuestKey {
        GuestKey {
            peer: job.server.peer.clone(),
            settings: job.server.settings.clone(),
            // A server that adapts must not carry over the state from another experiment's traffic.
            traffic: is_learning(&job.server.peer).then(|| job.files_settings.clone()),
            workers: job.server.workers,
            processes: match table::has_setting(&job.server.peer, "processes") {
                true => processes(job),
                false => 0,
            },
            site: self.sites.folder(&job.workload, &job.files_settings),
            memory_mib: job.memory_mib,
            is_dynamic: forms::is_dynamic(job),
            has_pages: forms::has_pages(job),
            mtu: job.mtu,
        }
    }

    /// Boots a job's guest and waits for its server.
    ///
    /// # Errors
    /// A requirement is missing, or the guest failed; the text includes its output.
    pub fn boot(&self, job: &MeasurementJob) -> Result<ReadyGuest, PeerFailure> {
        match job.server.peer == IMAGE {
            true => self.boot_image(job),
            false => self.boot_linux(job),
        }
    }

    /// Boots the site as a bare image: files only, without a database and programs.
    fn boot_image(&self, job: &MeasurementJob) -> Result<ReadyGuest, PeerFailure> {
        // The image runs no programs, and its pages would need a database.
        if forms::is_dynamic(job) || forms::has_pages(job) {
            let text = "the image's pages are counted by `lowroad-lab icount --paper 003`";
            return Err(PeerFailure::Absent(format!("{IMAGE}: {text}")));
        }
        if job.memory_mib.is_some() {
            let text = "the image has its files in memory, which is too small for this set";
            return Err(PeerFailure::Absent(format!("{IMAGE}: {text}")));
        }
        let program = built_lowroad().map_err(PeerFailure::NotInstalled)?;
        let site = self
            .sites
            .folder(&job.workload, &job.files_settings)
            .join("site");
        let (_, plugin) = self.kernel_and_plugin.as_ref().expect("prepared before");
        let boot = || {
            let image = ImageFolder::from_folder(&program, &site)?;
            let boot = BootSpec {
                has_steps: true,
                ..image.boot(MEMORY_MIB)
            };
            let mut guest = QemuGuest::boot(&boot, plugin, network(job))?;
            let address = guest.wait_for(PORT)?;
            Ok(ReadyGuest {
                guest,
                address,
                version: programs::version(
                    table::listed(OURS).map_err(|error| error.to_string())?,
                    Some(&program),
                ),
                configuration: "lowroad image build SITE".to_owned(),
                warmed: WarmUpTraffic::default(),
                has_failed: false,
                copied: Vec::new(),
                _image: Some(image),
            })
        };
        boot().map_err(PeerFailure::Broken)
    }

    fn boot_linux(&self, job: &MeasurementJob) -> Result<ReadyGuest, PeerFailure> {
        let network = network(job);
        let carried = self.carried(job)?;
        let version = carried.version.clone();
        let configuration = carried.text();
        let content = self.content(job, carried)?;
        let is_on_disk = job.memory_mib.is_some();
        let disk = is_on_disk.then(|| self.sites.disk(&job.workload, &job.files_settings));
        let disk = disk.transpose().map_err(PeerFailure::Broken)?;
        let boot = |(kernel, plugin): &(GuestKernel, PathBuf)| {
            let system = kernel.system(&network, &content)?;
            let boot = BootSpec {
                has_steps: true,
                has_profile: self.has_profile,
                disk,
                ..BootSpec::with_defaults(
                    kernel.image(),
                    Some(system),
                    job.memory_mib.unwrap_or(MEMORY_MIB),
                )
            };
            let mut guest = QemuGuest::boot(&boot, plugin, network.clone())?;
            let address = guest.wait_for(PORT)?;
            Ok(ReadyGuest {
                guest,
                address,
                version,
                configuration,
                warmed: WarmUpTraffic::default(),
                has_failed: false,
                copied: content.copied.clone(),
                _image: None,
            })
        };
        let means = self.kernel_and_plugin.as_ref().expect("prepared before");
        boot(means).map_err(PeerFailure::Broken)
    }

    /// The peer's plan for the guest.
    fn carried(&self, job: &MeasurementJob) -> Result<carried::GuestPeerFiles, PeerFailure> {
        let peer = table::named(&job.server.peer)?;
        let mut settings = job.server.settings.clone();
        let fronts = self.fronts(job)?;
        for peer_setting in peer.settings {
            let value = match peer_setting.name {
                "binary" if programs::needs_lowroad(peer.name) => {
                    let lowroad = built_lowroad().map_err(PeerFailure::NotInstalled)?;
                    lowroad.display().to_string()
                }
                "processes" => processes(job).to_string(),
                "php_root" => PROGRAMS.to_owned(),
                "specweb99_data" if forms::is_dynamic(job) => DATA.to_owned(),
                "db" if forms::has_pages(job) => database::ADDRESS.to_owned(),
                "fronts" => match &fronts {
                    Some(front_folder) => front_folder.display().to_string(),
                    None => continue,
                },
                _ => continue,
            };
            // The experiment file's own settings take precedence.
            settings
                .entry(peer_setting.name.to_owned())
                .or_insert(value);
        }
        let front_paths = fronts.map(|front_folder| (front_folder, FRONTS.to_owned()));
        carried::prepare(&carried::GuestPeerJob {
            peer: &job.server.peer,
            root: Path::new(SITE),
            address: ([0, 0, 0, 0], PORT).into(),
            workers: job.server.workers,
            settings: &settings,
            moved_paths: front_paths.as_slice(),
        })
    }

    /// The folder of the dynamic set, if the job's server uses it.
    fn fronts(&self, job: &MeasurementJob) -> Result<Option<PathBuf>, PeerFailure> {
        let needs_front = forms::is_dynamic(job) && fronts::has_front(&job.server.peer);
        needs_front.then(|| self.sites.fronts()).transpose()
    }

    /// The database, if the job's server generates pages from it.
    fn database(&self, job: &MeasurementJob) -> Result<Option<SampleDatabase>, PeerFailure> {
        let needs_database =
            forms::has_pages(job) && table::has_setting(&job.server.peer, "php_root");
        let schema = self.sites.programs().join("schema.sql");
        needs_database
            .then(|| SampleDatabase::from_schema(&schema))
            .transpose()
    }

    fn content(
        &self,
        job: &MeasurementJob,
        carried: carried::GuestPeerFiles,
    ) -> Result<GuestContent, PeerFailure> {
        let folder = self.sites.folder(&job.workload, &job.files_settings);
        let copied = |source: PathBuf, path: &str| CopiedPath {
            source,
            path: path.to_owned(),
        };
        let is_on_disk = job.memory_mib.is_some();
        let mut paths = Vec::new();
        if !is_on_disk {
            paths.push(copied(folder.join("site"), SITE));
        }
        if forms::is_dynamic(job) {
            paths.push(copied(folder.join("specweb99-data"), DATA));
        }
        if table::has_setting(&job.server.peer, "php_root") {
            paths.push(copied(self.sites.programs(), PROGRAMS));
        }
        let database = self.database(job)?;
        paths.extend(database.iter().flat_map(SampleDatabase::copied));
        let database = database.map(|sample| sample.command()).unwrap_or_default();
        paths.extend(
            self.fronts(job)?
                .map(|front_folder| copied(front_folder, FRONTS)),
        );
        let needed = carried.needed.iter();
        paths.extend(needed.map(|(source, path)| copied(source.clone(), path)));
        let files = carried.files.into_iter();
        Ok(GuestContent {
            copied: paths,
            generated: files
                .map(|(path, text)| (path, text.into_bytes()))
                .collect(),
            disk: is_on_disk.then_some(SITE),
            // Configurations write errors to /dev/stderr; programs that are not root must be able to write their data.
            command: format!(
                "ln -sf /proc/self/fd/2 /dev/stderr\n[ -d {DATA} ] && chmod -R a+rwX {DATA}\n{database}{}",
                carried.command
            ),
        })
    }
}

fn network(job: &MeasurementJob) -> GuestNetwork {
    GuestNetwork {
        mtu: job.mtu,
        ..GuestNetwork::new()
    }
}

/// Whether the job measures times, which are then the guest's virtual times.
pub fn is_timed(job: &MeasurementJob) -> bool {
    job.pace != RequestPace::Closed
}

/// The number of processes of a server in which each process serves one connection: one for each client, and more for
/// the connections of a level in front of the server and of idle workers.
fn processes(job: &MeasurementJob) -> u32 {
    let clients = job.connections.clamp(1, PROCESSES_MAX);
    let helper_processes = match programs::needs_lowroad(&job.server.peer) {
        true => LEVEL_CONNECTIONS,
        false if job.server.workers > 1 => clients,
        false => 0,
    };
    clients + helper_processes
}
