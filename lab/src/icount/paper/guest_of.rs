//! Boots the guest of a compared server: all get the same memory and processors, the site, and a database.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::super::boot::BootSpec;
use super::super::guest::{GuestNetwork, QemuGuest};
use super::super::image::ImageFolder;
use super::super::kernel::{CopiedPath, GuestContent, GuestKernel};
use super::super::servers::lowroad_path;
use super::super::table::OURS;
use super::database;
use super::load::PaperLoad;
use super::page::{self, PROGRAMS, STATIC_PATH};
use super::subject::{ComparedServer, GuestSystem};
use crate::experiment::fetch;
use crate::peers::{RunningPeer, carried, programs, table};

/// Memory of each guest.
const MEMORY_MIB: u32 = 512;
/// Number of processes of servers with one process per connection; it exceeds the number of simultaneous connections.
const PROCESSES: &str = "16";
/// The site's folder in every guest.
const SITE: &str = "/srv";
const PORT: u16 = 80;

/// The components of guests.
#[derive(Debug)]
pub struct GuestMaterials<'a> {
    /// The kernel of Linux guests.
    pub kernel: &'a GuestKernel,
    /// The counting plugin.
    pub plugin: &'a Path,
    /// The `lowroad` binary, if not in the default location.
    pub lowroad: Option<&'a Path>,
    /// Whether row pages are requested, which need a database.
    pub has_pages: bool,
}

/// A guest with a server that answers, and the programs outside of the guest that it needs.
pub struct PreparedGuest {
    /// The guest.
    pub guest: QemuGuest,
    /// The server's address.
    pub address: SocketAddr,
    /// The server's version.
    pub version: String,
    /// The database. Declared after `guest`, so that it is dropped later.
    _database: Option<RunningPeer>,
}

impl PreparedGuest {
    /// Boots a server's guest and waits for it.
    ///
    /// # Errors
    /// The guest or the database failed; the text is its output.
    pub fn boot(
        subject: &ComparedServer,
        materials: &GuestMaterials<'_>,
    ) -> Result<PreparedGuest, String> {
        let network = GuestNetwork::new();
        let has_database = materials.has_pages && subject.needs_database();
        let (boot, version, _image) = match subject.machine {
            GuestSystem::Linux { peer, settings } => {
                let (boot, version) = linux(peer, settings, &network, materials)?;
                (boot, version, None)
            }
            GuestSystem::Image => {
                let program = lowroad_path(materials.lowroad)?;
                let url = has_database.then(|| database::url(&network));
                let image =
                    ImageFolder::from_files(&program, &image_site(has_database), url.as_deref())?;
                (image.boot(MEMORY_MIB), read_version(&program), Some(image))
            }
        };
        let mut guest = QemuGuest::boot(&boot, materials.plugin, network.clone())?;
        // The database is started after QEMU, which creates the network device with the database's address.
        let database = has_database
            .then(|| database::start(&network))
            .transpose()?;
        let address = guest.wait_for(PORT)?;
        first_answer(address).map_err(|error| guest.failure(&error))?;
        Ok(PreparedGuest {
            guest,
            address,
            version,
            _database: database,
        })
    }

    /// Requests each page of a load once, and compares the complete response with the expected one.
    ///
    /// # Errors
    /// A response is wrong; the text includes the guest's output.
    pub fn check(&mut self, subject: &ComparedServer, load: &PaperLoad) -> Result<(), String> {
        for (path, expected) in load.expected(subject)? {
            let body = get_once_ready(self.address, &path);
            let checked = body.and_then(|body| page::check(&path, &body, &expected));
            checked.map_err(|error| self.guest.failure(&error))?;
        }
        Ok(())
    }
}

/// Waits for the first response. A server that already listens may still be loading programs into the kernel, which
/// takes seconds in an emulated machine.
fn first_answer(address: SocketAddr) -> Result<(), String> {
    const TRIES: u32 = 5; // of ten seconds
    let mut last = Ok(());
    for _ in 0..TRIES {
        last = fetch::get(address, STATIC_PATH).map(drop);
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Gets a page. An image that started before its database answers 503 until it is connected.
fn get_once_ready(address: SocketAddr, path: &str) -> Result<Vec<u8>, String> {
    const PATIENCE: Duration = Duration::from_secs(30);
    const STEP: Duration = Duration::from_millis(100);
    let end = Instant::now() + PATIENCE;
    loop {
        match fetch::get(address, path) {
            Err(error) if error.contains(" 503 ") && Instant::now() < end => sleep(STEP),
            answer => return answer,
        }
    }
}

fn read_version(lowroad: &Path) -> String {
    let peer = table::listed(OURS).expect("our own is a peer");
    programs::version(peer, Some(lowroad))
}

/// The served files: paths that begin with a slash, and contents.
fn site() -> Vec<(String, Vec<u8>)> {
    let programs = PROGRAMS.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
    let page = (STATIC_PATH.to_owned(), page::static_page());
    programs.into_iter().chain([page]).collect()
}

/// The files of the image. Pages are left out if there is no database, since the image rejects them; PHP programs too,
/// since the image would serve them as plain files.
fn image_site(has_database: bool) -> Vec<(String, Vec<u8>)> {
    let is_included = |path: &str| match path.rsplit_once('.') {
        Some((_, "php")) => false,
        Some((_, "lrp")) => has_database,
        _ => true,
    };
    let files = site().into_iter();
    files.filter(|(path, _)| is_included(path)).collect()
}

fn linux(
    peer: &str,
    settings: &[(&str, &str)],
    network: &GuestNetwork,
    materials: &GuestMaterials<'_>,
) -> Result<(BootSpec, String), String> {
    let settings = build_content(peer, settings, network, materials.lowroad)?;
    let job = carried::GuestPeerJob {
        peer,
        root: Path::new(SITE),
        address: ([0, 0, 0, 0], PORT).into(),
        workers: 1,
        settings: &settings,
        moved_paths: &[],
    };
    let carried = carried::prepare(&job).map_err(|error| error.to_string())?;
    let version = carried.version.clone();
    let system = materials.kernel.system(network, &content(carried))?;
    let boot = BootSpec::with_defaults(materials.kernel.image(), Some(system), MEMORY_MIB);
    Ok((boot, version))
}

/// The settings of a server, including those that depend on the guest or on this run.
fn build_content(
    peer: &str,
    settings: &[(&str, &str)],
    network: &GuestNetwork,
    lowroad: Option<&Path>,
) -> Result<BTreeMap<String, String>, String> {
    let peer = table::listed(peer).map_err(|error| error.to_string())?;
    let mut merged: BTreeMap<String, String> = BTreeMap::new();
    for peer_setting in peer.settings {
        let value = match peer_setting.name {
            "binary" => lowroad_path(lowroad)?.display().to_string(),
            "db" => database::address(network).to_string(),
            "processes" | "php_children" => PROCESSES.to_owned(),
            _ => continue,
        };
        merged.insert(peer_setting.name.to_owned(), value);
    }
    let overrides = settings.iter();
    // The subject's own settings take precedence.
    merged.extend(overrides.map(|&(name, value)| (name.to_owned(), value.to_owned())));
    if !programs::is_lowroad(peer.name) {
        merged.remove("binary");
    }
    Ok(merged)
}

fn content(carried: carried::GuestPeerFiles) -> GuestContent {
    let generated = carried.files.into_iter();
    let generated = generated.map(|(path, text)| (path, text.into_bytes()));
    let files = site().into_iter();
    let files = files.map(|(path, bytes)| (format!("{SITE}{path}"), bytes));
    let copied = |(source, path): (PathBuf, String)| CopiedPath { source, path };
    GuestContent {
        copied: carried.needed.into_iter().map(copied).collect(),
        generated: generated.chain(files).collect(),
        // The configurations write errors to /dev/stderr.
        command: format!("ln -sf /proc/self/fd/2 /dev/stderr\n{}", carried.command),
        ..GuestContent::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_site_has_database_page_only_with_a_database() {
        let paths = |has_database| -> Vec<String> {
            image_site(has_database)
                .into_iter()
                .map(|(path, _)| path)
                .collect()
        };
        assert_eq!(paths(true), ["/bare.lrp", "/page.html"]);
        assert_eq!(paths(false), ["/page.html"]);
        assert_eq!(site().len(), 3);
    }

    #[test]
    fn all_guests_get_the_database_address() {
        let network = GuestNetwork::new();
        let me = std::env::current_exe().expect("a test has a program");
        let expected = format!("{}:3306", network.host);
        for peer in ["nginx-php", "apache-mod-php", "lowroad-pages"] {
            let settings = build_content(peer, &[], &network, Some(&me)).expect("settings");
            assert_eq!(settings["db"], expected);
        }
    }
}
