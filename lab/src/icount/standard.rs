//! Runs the standard table: a guest for each server, several in parallel if requested. Lines are printed when they are
//! complete. Defines only the order of the work.

use std::collections::{BTreeSet, VecDeque};
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::boot::BootSpec;
use super::drive::{DriveRequest, drive};
use super::guest::{GuestNetwork, QemuGuest};
use super::image::ImageFolder;
use super::kernel::{GuestKernel, plugin};
use super::mix::WorkloadMix;
use super::origin::GuestOrigin;
use super::profile::SymbolProfile;
use super::servers::CountedServer;
use super::table::{CountColumn, CountRow, CountTable};
use super::{CountTraffic, measure};
use crate::peers::install::install_with_apt;

/// Memory of each guest in MiB, unless its files need more.
const MEMORY_MIB: u32 = 512;

/// The settings of the table.
#[derive(Debug)]
pub struct StandardPlan {
    /// The servers, in order.
    pub servers: Vec<CountedServer>,
    /// The table; its columns define the requests.
    pub table: CountTable,
    /// The workload, if the table has a column for one.
    pub mix: Option<WorkloadMix>,
    /// The body length, if pages are requested by POST.
    pub post_len: Option<usize>,
    /// The number of requests behind each figure.
    pub traffic: CountTraffic,
    /// The `lowroad` binary, if not in the default location.
    pub lowroad: Option<PathBuf>,
    /// Number of simultaneous guests.
    pub jobs: usize,
    /// Whether guests can run in steps.
    pub has_steps: bool,
    /// The folder for profiles, if requested.
    pub profile: Option<PathBuf>,
}

/// Progress messages of the workers.
pub(super) enum StandardProgress {
    Step(String),
    Profile(String),
    Done(Vec<CountRow>),
}

/// Installs packages, if the set is not empty.
///
/// # Errors
/// With a text for the user.
pub fn install_packages(packages: &BTreeSet<&str>) -> anyhow::Result<()> {
    match packages.is_empty() {
        true => Ok(()),
        false => install_with_apt(packages),
    }
}

/// Installs the missing packages of these servers.
///
/// # Errors
/// apt-get failed; the text is its output.
pub fn install(servers: &[CountedServer]) -> anyhow::Result<()> {
    let missing = servers
        .iter()
        .filter(|server| server.installed(None).is_err());
    let packages: BTreeSet<&str> = missing.filter_map(|server| server.package).collect();
    install_packages(&packages)
}

/// Measures and prints the table. `keep` receives all rows so far after each server.
///
/// # Errors
/// No server can be measured on this machine.
pub fn run(
    plan: &StandardPlan,
    keep: &mut dyn FnMut(&[CountRow]),
) -> Result<Vec<CountRow>, String> {
    progress("the guest's kernel (downloaded once)");
    let (kernel, plugin) = (GuestKernel::new()?, plugin()?);
    progress("");
    println!("{}", plan.table.head());
    let queue = Mutex::new(plan.servers.iter().collect::<VecDeque<_>>());
    let (sender, receiver) = channel();
    let mut rows = Vec::new();
    thread::scope(|scope| {
        for _ in 0..plan.jobs {
            let (sender, queue, kernel, plugin) = (sender.clone(), &queue, &kernel, &plugin);
            scope.spawn(move || {
                // A closure reads the queue, so that the lock is released before the server is measured.
                let next = || {
                    queue
                        .lock()
                        .expect("no thread panics with this lock")
                        .pop_front()
                };
                while let Some(server) = next() {
                    let turn = StandardTurn {
                        plan,
                        server,
                        kernel,
                        plugin,
                        sender: &sender,
                    };
                    let _ = sender.send(StandardProgress::Done(turn.rows()));
                }
            });
        }
        // The loop below ends when all workers have dropped their senders.
        drop(sender);
        for event in receiver {
            match event {
                StandardProgress::Step(text) => progress(&text),
                StandardProgress::Profile(text) => {
                    progress("");
                    println!("{text}");
                }
                StandardProgress::Done(server_rows) => {
                    progress("");
                    println!("{}", plan.table.line(&server_rows));
                    rows.extend(server_rows);
                    keep(&rows);
                }
            }
        }
    });
    if let Some(ratios) = plan.table.ratios(&rows) {
        println!("\n{ratios}");
    }
    println!(
        "\nLinux {}, one processor, {} requests in progress",
        kernel.release(),
        plan.traffic.connections
    );
    Ok(rows)
}

/// Overwrites the progress line on a terminal; does nothing without a terminal.
pub(super) fn progress(text: &str) {
    if stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    }
}

/// A guest, and the programs outside of it that it needs.
pub(super) struct BootedGuest {
    pub guest: QemuGuest,
    /// The origin server. Declared after the guest, so that it is dropped later.
    _origin: Option<GuestOrigin>,
}

/// The measurement of one server.
pub(super) struct StandardTurn<'a> {
    pub plan: &'a StandardPlan,
    pub server: &'a CountedServer,
    pub kernel: &'a GuestKernel,
    pub plugin: &'a Path,
    pub sender: &'a Sender<StandardProgress>,
}

impl StandardTurn<'_> {
    fn rows(&self) -> Vec<CountRow> {
        let program = match self.server.installed(self.plan.lowroad.as_deref()) {
            Ok(program) => program,
            Err(error) => return self.all_failed("", &error),
        };
        let version = self.server.version(&program);
        let mut rows: Vec<CountRow> = Vec::new();
        let mut guest = None;
        for &column in self.plan.table.columns() {
            let mut figure = self.figure(&mut guest, &program, column);
            // QEMU crashes occasionally: retry once in a new guest. If the server itself crashes the guest, it does so
            // again.
            if figure.is_err()
                && guest
                    .as_mut()
                    .is_some_and(|booted: &mut BootedGuest| !booted.guest.runs())
            {
                guest = None;
                figure = self.figure(&mut guest, &program, column);
            }
            let failed = figure.is_err();
            rows.push(self.row(&version, column, figure));
            if failed && rows.len() == 1 && self.server.unsupported_reason(column).is_none() {
                // If the first request fails, the others would fail too, and each timeout takes long.
                let error = rows[0].failure.clone().unwrap_or_default();
                return self.all_failed(&version, &error);
            }
        }
        rows
    }

    /// Boots a guest with the server.
    pub fn boot(&self, program: &Path) -> Result<BootedGuest, String> {
        let network = GuestNetwork::new();
        let guest = match self.server.is_image {
            true => self.boot_image(program)?,
            false => self.boot_linux(program, &network)?,
        };
        // The host's address exists only after QEMU has created the tap device.
        let origin = self
            .server
            .is_proxy
            .then(|| GuestOrigin::start(network.host));
        Ok(BootedGuest {
            guest,
            _origin: origin.transpose()?,
        })
    }

    fn boot_linux(&self, program: &Path, network: &GuestNetwork) -> Result<QemuGuest, String> {
        let mut content = self.server.content(
            program,
            self.plan.lowroad.as_deref(),
            network,
            self.plan.table.has_tls(),
        )?;
        let pages = self.pages().into_iter();
        let pages = pages.map(|(path, page)| (format!("srv{path}"), page));
        content.generated.extend(pages);
        content
            .copied
            .extend(self.plan.mix.as_ref().map(WorkloadMix::site).transpose()?);
        let system = self.kernel.system(network, &content)?;
        let boot = BootSpec {
            has_profile: self.plan.profile.is_some(),
            has_steps: self.plan.has_steps,
            ..BootSpec::with_defaults(self.kernel.image(), Some(system), MEMORY_MIB)
        };
        QemuGuest::boot(&boot, self.plugin, network.clone())
    }

    fn boot_image(&self, program: &Path) -> Result<QemuGuest, String> {
        let image = match &self.plan.mix {
            Some(mix) => ImageFolder::from_folder(program, &mix.site()?.source)?,
            None => ImageFolder::from_files(program, &self.pages(), None)?,
        };
        let boot = BootSpec {
            has_steps: self.plan.has_steps,
            ..image.boot(MEMORY_MIB)
        };
        QemuGuest::boot(&boot, self.plugin, GuestNetwork::new())
    }

    /// The files of the columns: path and content.
    fn pages(&self) -> Vec<(String, Vec<u8>)> {
        let columns = self.plan.table.columns().iter();
        let page = |column: &CountColumn| match column {
            CountColumn::Page(_, size) => Some((path(*size), vec![b'x'; *size as usize])),
            CountColumn::Mix(_) => None,
        };
        columns.filter_map(page).collect()
    }

    /// Measures one figure, in the running guest or a new one.
    fn figure(
        &self,
        guest: &mut Option<BootedGuest>,
        program: &Path,
        column: CountColumn,
    ) -> Result<u64, String> {
        if let Some(reason) = self.server.unsupported_reason(column) {
            return Err(reason);
        }
        let BootedGuest { guest, .. } = match guest {
            Some(booted) => booted,
            None => {
                self.step("boots");
                guest.insert(self.boot(program)?)
            }
        };
        self.step(&column.title());
        let address = guest.wait_for(self.server.port(column))?;
        let request = match (column, &self.plan.mix) {
            (CountColumn::Page(mode, size), _) => match self.plan.post_len {
                None => DriveRequest::Page(path(size), mode),
                Some(len) => DriveRequest::Post(path(size), mode, len),
            },
            (CountColumn::Mix(_), Some(mix)) => mix.drive_request(&address.to_string())?,
            (CountColumn::Mix(name), None) => return Err(format!("no workload {name}")),
        };
        let figure = measure(guest, address, &request, self.plan.traffic)?;
        let life = guest.life();
        self.profile(guest, program, column, &mut |requests| {
            let connections = self.plan.traffic.connections;
            drive(&life, address, &request, requests, connections).map(|()| requests)
        })?;
        Ok(figure.round() as u64)
    }

    /// Writes a figure's profile, if requested.
    fn profile(
        &self,
        guest: &mut QemuGuest,
        program: &Path,
        column: CountColumn,
        run: &mut dyn FnMut(u64) -> Result<u64, String>,
    ) -> Result<(), String> {
        let Some(folder) = &self.plan.profile else {
            return Ok(());
        };
        if self.server.is_image {
            return Err("--profile: an image has no symbols".into());
        }
        // Only the paths of the copied files are used, so any network will do.
        let content = self.server.content(
            program,
            self.plan.lowroad.as_deref(),
            &GuestNetwork::new(),
            false,
        )?;
        let profile =
            SymbolProfile::record(guest, &content.copied, self.plan.traffic.requests, run)?;
        let column_name = column.title().replace(' ', "-");
        let name = format!("{}-{column_name}", self.server.name);
        profile.write(folder, &name)?;
        let head = format!(
            "{}, {} (drawn in {}/{name}.svg)",
            self.server.name,
            column.title(),
            folder.display()
        );
        let _ = self.sender.send(StandardProgress::Profile(format!(
            "\n{head}\n\n{}\n",
            profile.text()
        )));
        Ok(())
    }

    fn row(&self, version: &str, column: CountColumn, figure: Result<u64, String>) -> CountRow {
        CountRow {
            server: self.server.name.to_owned(),
            version: version.to_owned(),
            size: column.size(),
            mode: column.mode().to_owned(),
            instructions: figure.as_ref().ok().copied(),
            requests: self.plan.traffic.requests,
            failure: figure.err(),
        }
    }

    fn all_failed(&self, version: &str, error: &str) -> Vec<CountRow> {
        let columns = self.plan.table.columns().iter();
        let failed = |&column| self.row(version, column, Err(error.to_owned()));
        columns.map(failed).collect()
    }

    fn step(&self, text: &str) {
        let _ = self.sender.send(StandardProgress::Step(format!(
            "{}: {text}",
            self.server.name
        )));
    }
}

/// The path of the file of this size on the guest's site.
pub(super) fn path(size: u64) -> String {
    format!("/{size}.html")
}
