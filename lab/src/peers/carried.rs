//! Prepares a peer to run on another machine, such as a guest: the files that it needs there, and the shell command
//! that executes its plan. Independent of the kind of machine.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::job::JobStep;
use super::life::ORIGIN_PORT;
use super::plan::{PeerPlan, PeerRun};
use super::table::{CheckedSettings, listed};
use super::{PeerFailure, php, programs, servers};
use crate::icount::kernel::wait_until_printed;
use crate::icount::servers::compiled_vcl;

/// Debian's folder of lighttpd's modules, some of which are loaded by default.
const LIGHTTPD_MODULES: &str = "/usr/lib/lighttpd";
/// Varnish's compiled configuration in the guest.
const VARNISH_OBJECT: &str = "/usr/lib/vcl.so";
/// Files that Squid needs at its start: types, icons, error pages, and a program that it does not use.
const SQUID_FILES: &[&str] = &[
    "/usr/lib/squid/unlinkd",
    "/usr/share/squid/mime.conf",
    "/usr/share/squid/icons",
    "/usr/share/squid/errors/templates",
    "/etc/squid/errorpage.css",
];
/// Traffic Server's folder of error pages.
const TRAFFIC_SERVER_PAGES: &str = "/etc/trafficserver/body_factory";
/// The peer's own folder in the guest.
const FOLDER: &str = "/lab";

/// The files and commands of a peer on the other machine.
#[derive(Debug, Default)]
pub struct GuestPeerFiles {
    /// Generated files: path and text.
    pub files: Vec<(String, String)>,
    /// Programs and shared objects: path on this machine, and path on the other one. Their libraries are not included.
    pub needed: BTreeMap<PathBuf, String>,
    /// Shell code to run as root; it finishes when all programs are started.
    pub command: String,
    /// The peer's version.
    pub version: String,
}

impl GuestPeerFiles {
    /// The files and commands as text for the report, commands first.
    pub fn text(&self) -> String {
        let mut text = self.command.clone();
        for (path, content) in &self.files {
            text.push_str(&format!("\n==> {path} <==\n{}\n", content.trim_end()));
        }
        text
    }
}

/// A peer, and its parameters on the other machine.
#[derive(Debug)]
pub struct GuestPeerJob<'a> {
    /// The peer's name.
    pub peer: &'a str,
    /// The served folder on the other machine.
    pub root: &'a Path,
    /// The peer's address on the other machine.
    pub address: SocketAddr,
    /// The peer's number of processes or threads.
    pub workers: u32,
    /// Deviations from the peer's tuned defaults.
    pub settings: &'a BTreeMap<String, String>,
    /// Folders of this machine with their paths on the other one, if these differ.
    pub moved_paths: &'a [(PathBuf, String)],
}

/// The Debian packages of a peer's programs, to install those that are missing on this machine.
///
/// # Errors
/// There is no such peer.
pub fn packages(peer: &str) -> Result<&'static [&'static str], PeerFailure> {
    listed(peer).map(|peer| peer.packages)
}

/// Creates the peer's plan for another machine.
///
/// # Errors
/// An unknown peer or setting, or a missing program; the text names its package.
pub fn prepare(job: &GuestPeerJob<'_>) -> Result<GuestPeerFiles, PeerFailure> {
    let peer = listed(job.peer)?;
    let settings = CheckedSettings::new(peer, job.settings)?;
    servers::check(peer, &settings)?;
    let run = PeerRun {
        root: job.root,
        workers: job.workers,
        address: job.address,
        origin: (Ipv4Addr::LOCALHOST, ORIGIN_PORT).into(),
        folder: Path::new(FOLDER),
        settings: &settings,
        as_root: true,
    };
    let mut plan = servers::plan(peer, &run).map_err(PeerFailure::Broken)?;
    if peer.name == "varnish" {
        // The other machine has no compiler, so the configuration is compiled here.
        let copies = format!("cc_command=exec cp {VARNISH_OBJECT} %o");
        // The plan starts the origin first, so Varnish is the program of its last step.
        if let Some(JobStep::Start(words)) = plan.steps.last_mut() {
            words.extend(["-p".to_owned(), copies]);
        }
    }
    // The paths are replaced only after the plan is complete, since its files and commands contain them.
    for (from, to) in job.moved_paths {
        rename(&mut plan, &from.display().to_string(), to);
    }
    let mut command = String::new();
    // The other machine has no PHP configuration, not even the one that loads PHP's extensions.
    if programs::runs_php(job.peer) {
        plan.file("php.ini", php::ini().map_err(PeerFailure::NotInstalled)?);
        command.push_str(&format!(
            "mkdir {FOLDER}/php; mv {FOLDER}/php.ini {FOLDER}/php\nexport PHP_INI_SCAN_DIR={FOLDER}/php\n"
        ));
    }
    command.push_str(&shell(&plan.steps));
    let lowroad = programs::lowroad(settings.text("binary")).ok();
    let mut needed = needed(&plan);
    needed.extend(extra_files(&plan, peer.name).map_err(PeerFailure::Broken)?);
    Ok(GuestPeerFiles {
        needed,
        files: plan
            .files
            .into_iter()
            .map(|(name, text)| (format!("{FOLDER}/{name}"), text))
            .collect(),
        command,
        version: programs::version(peer, lowroad.as_deref()),
    })
}

/// Files that a peer needs although neither its steps nor its configurations name them.
fn extra_files(plan: &PeerPlan, peer: &str) -> Result<BTreeMap<PathBuf, String>, String> {
    match peer {
        "lighttpd" => {
            let entries = std::fs::read_dir(LIGHTTPD_MODULES);
            let entries = entries.map_err(|error| format!("{LIGHTTPD_MODULES}: {error}"))?;
            let paths = entries.flatten().map(|entry| entry.path());
            Ok(paths
                .map(|path| (path.clone(), path.display().to_string()))
                .collect())
        }
        "varnish" => {
            let text = plan.files.iter().find(|(name, _)| name == "varnish.vcl");
            let (_, text) = text.ok_or("varnish has no configuration")?;
            let program = programs::find("varnishd").ok_or("varnishd is gone")?;
            let object = compiled_vcl(&program, text)?;
            Ok([(object, VARNISH_OBJECT.to_owned())].into())
        }
        "squid" => Ok(unchanged_paths(SQUID_FILES)),
        "trafficserver" => Ok(unchanged_paths(&[TRAFFIC_SERVER_PAGES])),
        _ => Ok(BTreeMap::new()),
    }
}

/// Files with the same path on both machines.
fn unchanged_paths(paths: &[&str]) -> BTreeMap<PathBuf, String> {
    let pair = |path: &&str| (PathBuf::from(path), (*path).to_owned());
    paths.iter().map(pair).collect()
}

/// Replaces a folder's path everywhere in the plan.
fn rename(plan: &mut PeerPlan, from: &str, to: &str) {
    for (_, text) in &mut plan.files {
        *text = text.replace(from, to);
    }
    for step in &mut plan.steps {
        if let JobStep::Start(words) | JobStep::Run(words, _) = step {
            for word in words {
                *word = word.replace(from, to);
            }
        }
    }
}

/// The programs in the steps, and the shared objects that configurations name.
fn needed(plan: &PeerPlan) -> BTreeMap<PathBuf, String> {
    let programs = plan.steps.iter().filter_map(|step| match step {
        JobStep::Start(words) | JobStep::Run(words, _) => words.first(),
        JobStep::Await(_) | JobStep::AwaitPort(_) | JobStep::AwaitOutput(_) => None,
    });
    let texts = plan.files.iter().map(|(_, text)| text.as_str());
    let objects = texts.flat_map(shared_objects).map(PathBuf::from);
    // A program given without a path exists on every machine; files in a moved folder are copied with the folder.
    let paths = programs.map(PathBuf::from).chain(objects);
    let existing = paths.filter(|path| path.is_absolute() && path.exists());
    existing
        .map(|path| (path.clone(), guest_path(&path)))
        .collect()
}

/// The path of a program or shared object on the other machine: the same for system files, and in /usr/local/bin for
/// programs that were built elsewhere, even in a temporary folder.
fn guest_path(path: &Path) -> String {
    match path.file_name() {
        Some(name) if path.is_absolute() && !path.starts_with("/usr") && path.exists() => {
            format!("/usr/local/bin/{}", name.to_string_lossy())
        }
        _ => path.display().to_string(),
    }
}

/// The words of a configuration that are paths of shared objects.
fn shared_objects(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|it: char| it.is_whitespace() || "\"=;".contains(it));
    words.filter(|word| word.starts_with('/') && word.ends_with(".so"))
}

fn shell(steps: &[JobStep]) -> String {
    let step = |step: &JobStep| match step {
        JobStep::Start(words) => format!("{} &\n", quoted(words)),
        JobStep::Run(words, None) => format!("{}\n", quoted(words)),
        JobStep::Run(words, Some(input)) => format!("{} < '{}'\n", quoted(words), input.display()),
        JobStep::Await(socket) => format!(
            "until [ -S '{}' ]; do usleep 10000; done\n",
            socket.display()
        ),
        // In /proc/net/tcp, a listening socket has state 0A and a hexadecimal port.
        JobStep::AwaitPort(address) => format!(
            "until grep -q ':{:04X} [0-9A-F:]* 0A ' /proc/net/tcp; do usleep 10000; done\n",
            address.port()
        ),
        JobStep::AwaitOutput(text) => format!("{}\n", wait_until_printed(text)),
    };
    steps.iter().map(step).collect()
}

/// Quotes a program's words, which contain no quotes: paths and settings are plain.
fn quoted(words: &[String]) -> String {
    let program = words.iter().take(1).map(|word| guest_path(Path::new(word)));
    let words = program.chain(words.iter().skip(1).cloned());
    let words: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_objects_are_found_in_configuration_text() {
        let text = "LoadModule a_module /usr/lib/mod_a.so\nextension=/usr/lib/b.so\nroot \"/srv\";";
        let found: Vec<&str> = shared_objects(text).collect();
        assert_eq!(found, ["/usr/lib/mod_a.so", "/usr/lib/b.so"]);
    }

    #[test]
    fn job_steps_become_shell_lines_in_order() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        let steps = [
            JobStep::Run(words("mkdir /a"), None),
            JobStep::Start(words("/usr/sbin/php-fpm -F")),
            JobStep::Await("/lab/php.sock".into()),
            JobStep::AwaitPort(([0, 0, 0, 0], 80).into()),
            JobStep::Start(words("/bin/ours attach")),
            JobStep::AwaitOutput("is ready".to_owned()),
        ];
        let expected = "'mkdir' '/a'\n'/usr/sbin/php-fpm' '-F' &\n\
                        until [ -S '/lab/php.sock' ]; do usleep 10000; done\n\
                        until grep -q ':0050 [0-9A-F:]* 0A ' /proc/net/tcp; do usleep 10000; done\n\
                        '/bin/ours' 'attach' &\n\
                        until grep -q 'is ready' /tmp/server.log; do \
                        kill -0 $! || { cat /tmp/server.log > /dev/console; poweroff -f; }; \
                        usleep 10000; done\n";
        assert_eq!(shell(&steps), expected);
    }

    #[test]
    fn guest_job_is_planned_for_peer_unavailable_on_the_host() {
        let binary = std::env::current_exe().expect("a test has a program");
        let given = [
            ("db", "198.18.0.1:3306"),
            ("binary", &binary.display().to_string()),
        ];
        let settings = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let job = GuestPeerJob {
            peer: "lowroad-pages",
            root: Path::new("/srv"),
            address: "0.0.0.0:80".parse().expect("an address"),
            workers: 1,
            settings: &settings.into(),
            moved_paths: &[],
        };
        let carried = prepare(&job).expect("a plan");
        let name = binary.file_name().expect("a name").to_string_lossy();
        let there = format!("/usr/local/bin/{name}");
        assert_eq!(carried.needed[&binary], there);
        let (path, text) = &carried.files[0];
        assert_eq!(path, "/lab/lowroad.toml");
        assert!(text.contains("@198.18.0.1:3306/lowroad_lab"), "{text}");
        let command = format!("'{there}' 'run' '-c' '/lab/lowroad.toml' &\n");
        assert_eq!(carried.command, command);
    }
}
