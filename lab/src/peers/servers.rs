//! Creates the plan of each peer: the configuration from its template, and the commands.

use std::path::{Path, PathBuf};

use super::PeerFailure;
use super::caches;
use super::dynamic;
use super::fronts;
use super::job::JobStep;
use super::php;
use super::plan::{PeerPlan, PeerRun};
use super::programs;
use super::system;
use super::table::{CheckedSettings, PeerDescription};
use crate::icount::servers::ATTACHED;

const NGINX: &str = include_str!("../../peers/nginx.conf");
const NGINX_FASTCGI: &str = include_str!("../../peers/nginx-fastcgi.part");
const APACHE: &str = include_str!("../../peers/apache.conf");
const MIME_TYPES: &str = include_str!("../../peers/mime.types");
const LIGHTTPD: &str = include_str!("../../peers/lighttpd.conf");
const CADDY: &str = include_str!("../../peers/caddy.conf");
const H2O: &str = include_str!("../../peers/h2o.conf");
const PAGES: &str = include_str!("../../peers/lowroad-pages.toml");
const MARIADB: &str = include_str!("../../peers/mariadb.cnf");

/// Debian's folder of Apache modules.
pub(super) const APACHE_MODULES: &str = "/usr/lib/apache2/modules";

/// Checks that a peer's programs and files are installed.
///
/// # Errors
/// The text names the missing file and its package.
pub fn check(peer: &PeerDescription, settings: &CheckedSettings) -> Result<(), PeerFailure> {
    if programs::needs_lowroad(peer.name) {
        programs::lowroad(settings.text("binary")).map_err(PeerFailure::NotInstalled)?;
    }
    if !settings.text("specweb99_data").is_empty() && fronts::has_front(peer.name) {
        fronts::check(peer.name, Path::new(settings.text("fronts")))
            .map_err(PeerFailure::NotInstalled)?;
    }
    if let Some(missing) = peer
        .programs
        .iter()
        .find(|name| programs::find(name).is_none())
    {
        return Err(PeerFailure::NotInstalled(format!(
            "{} is not installed ({missing} is missing): `lowroad-lab peers install {}` installs it \
             (Debian: {})",
            peer.name,
            peer.name,
            peer.packages.join(" ")
        )));
    }
    if peer.name == "apache-mod-php" {
        php::module().map_err(PeerFailure::NotInstalled)?;
    }
    Ok(())
}

/// Creates the plan of a peer.
///
/// # Errors
/// With a text for the user.
pub fn plan(peer: &PeerDescription, run: &PeerRun<'_>) -> Result<PeerPlan, String> {
    let mut plan = PeerPlan::default();
    match peer.name {
        "lowroad" => lowroad(&mut plan, run, None)?,
        // With a dynamic set the levels need a configuration file; otherwise a command line suffices.
        name if programs::is_lowroad(name) && has_set(run) => {
            let binary = programs::lowroad(run.settings.text("binary"))?;
            dynamic::lowroad(&mut plan, run, name, &binary.display().to_string())?;
        }
        "lowroad-softirq" => {
            lowroad(&mut plan, run, Some(device(run)))?;
        }
        "howl" => howl(&mut plan, run)?,
        "nginx" => nginx(&mut plan, run, &own_port(run), ""),
        "apache-prefork" => apache(&mut plan, run, "prefork", ""),
        "apache-softirq" => {
            apache(&mut plan, run, "prefork", "");
            attach(&mut plan, run)?;
        }
        "apache-event" => apache(&mut plan, run, "event", ""),
        "lighttpd" => lighttpd(&mut plan, run),
        "h2o" => h2o(&mut plan, run),
        "caddy" => caddy(&mut plan, run),
        "varnish" => caches::varnish(&mut plan, run),
        "haproxy" => caches::haproxy(&mut plan, run),
        "nginx-cache" => caches::nginx(&mut plan, run),
        "squid" => caches::squid(&mut plan, run),
        "trafficserver" => caches::traffic_server(&mut plan, run),
        "lowroad-accelerate" => caches::lowroad(&mut plan, run)?,
        "nginx-php" => {
            php::fpm(&mut plan, run);
            nginx(&mut plan, run, &own_port(run), &php::behind_nginx(run));
        }
        "apache-php" => {
            php::fpm(&mut plan, run);
            apache(&mut plan, run, "event", &php::behind_apache(run));
        }
        "apache-mod-php" => {
            let part = php::in_apache(run)?;
            apache(&mut plan, run, "prefork", &part);
        }
        "lowroad-pages" => pages(&mut plan, run)?,
        "nginx-fastcgi" => {
            let socket = dynamic::start_fastcgi(&mut plan, run);
            let upstream = dynamic::nginx_upstream(run, &socket);
            let parts = NginxParts {
                listen: &own_port(run),
                php: &run.fill(NGINX_FASTCGI, &[]),
                upstream: &upstream,
            };
            nginx_as("nginx.conf", &mut plan, run, &parts);
        }
        "mariadb" => mariadb(&mut plan, run)?,
        name if programs::is_lowroad(name) => {
            return Err("specweb99_data is not set: name the folder of the dynamic set".to_owned());
        }
        unknown => return Err(format!("unknown server {unknown}")),
    }
    Ok(plan)
}

/// Whether the peer serves the dynamic set.
fn has_set(run: &PeerRun<'_>) -> bool {
    !run.settings.text("specweb99_data").is_empty()
}

/// The path of a program, or its name if it is not installed.
pub(super) fn program(name: &str) -> String {
    let path = programs::find(name).unwrap_or_else(|| PathBuf::from(name));
    path.display().to_string()
}

fn lowroad(plan: &mut PeerPlan, run: &PeerRun<'_>, softirq: Option<&str>) -> Result<(), String> {
    let binary = programs::lowroad(run.settings.text("binary"))?
        .display()
        .to_string();
    let (root, listen) = (run.root.display().to_string(), run.address.to_string());
    let workers = run.workers.to_string();
    let mut words = vec![
        binary.as_str(),
        "serve",
        &root,
        "--listen",
        &listen,
        "--workers",
        &workers,
    ];
    words.extend(
        softirq
            .into_iter()
            .flat_map(|interface| ["--softirq", interface]),
    );
    plan.start(&words);
    Ok(())
}

/// The network device to which the fast path attaches.
fn device<'a>(run: &PeerRun<'_>) -> &'a str {
    match run.address.ip() {
        ip if ip.is_loopback() => "lo",
        _ => "auto",
    }
}

/// Adds the fast path (softirq level) in front of another server. The fast path gets a fixed freshness lifetime: the
/// files may be so new that their dates give no heuristic freshness.
fn attach(plan: &mut PeerPlan, run: &PeerRun<'_>) -> Result<(), String> {
    let binary = programs::lowroad(run.settings.text("binary"))?;
    let port = run.address.port().to_string();
    let binary = binary.display().to_string();
    let mut words = vec![&*binary, "attach", &port, "--ttl", "600"];
    // The default is the device of the default route, and a guest has no default route.
    match run.address.ip() {
        ip if ip.is_loopback() => words.extend(["--interface", "lo"]),
        _ => words.extend(["--interface", "eth0"]),
    }
    // The fast path attaches to the port of a running server, so the server must listen first.
    plan.steps.push(JobStep::AwaitPort(run.address));
    plan.start(&words);
    // `lowroad attach` first loads programs into the kernel, which takes seconds on an emulated machine.
    plan.steps.push(JobStep::AwaitOutput(ATTACHED.to_owned()));
    Ok(())
}

/// Lowroad with database pages: it executes every file that ends in `.lrp`.
fn pages(plan: &mut PeerPlan, run: &PeerRun<'_>) -> Result<(), String> {
    let binary = programs::lowroad(run.settings.text("binary"))?;
    let account = "mysql://lowroad_lab:lowroad_lab";
    let url = match run.settings.text("db") {
        socket if socket.starts_with('/') => {
            format!("{account}@localhost/lowroad_lab?socket={socket}")
        }
        address => format!("{account}@{address}/lowroad_lab"),
    };
    let binary = binary.display().to_string();
    configured_lowroad(plan, run, &binary, run.fill(PAGES, &[("database", &url)]));
    Ok(())
}

/// Adds a Lowroad with this configuration.
pub(super) fn configured_lowroad(
    plan: &mut PeerPlan,
    run: &PeerRun<'_>,
    binary: &str,
    config: String,
) {
    plan.file("lowroad.toml", config);
    plan.start(&[binary, "run", "-c", &run.path("lowroad.toml")]);
}

fn howl(plan: &mut PeerPlan, run: &PeerRun<'_>) -> Result<(), String> {
    let lab = programs::lab()?.display().to_string();
    let (root, listen) = (run.root.display().to_string(), run.address.to_string());
    let workers = run.workers.to_string();
    let mut words = vec![
        lab.as_str(),
        "howl",
        &root,
        "--listen",
        &listen,
        "--workers",
        &workers,
    ];
    if run.settings.is_on("keep_alive") {
        words.push("--keep-alive");
    }
    plan.start(&words);
    Ok(())
}

/// nginx's listen parameters for the peer's own address.
pub(super) fn own_port(run: &PeerRun<'_>) -> String {
    // reuseport gives each worker its own accept queue, so that the kernel distributes connections evenly.
    format!("{} backlog=4096 reuseport", run.address)
}

/// Adds an nginx with these listen parameters and a part for PHP.
pub(super) fn nginx(plan: &mut PeerPlan, run: &PeerRun<'_>, listen: &str, php: &str) {
    let parts = NginxParts {
        listen,
        php,
        upstream: "",
    };
    nginx_as("nginx.conf", plan, run, &parts);
}

/// The parts of nginx's configuration that differ between peers.
pub(super) struct NginxParts<'a> {
    /// Parameters of `listen`.
    pub listen: &'a str,
    /// Locations for programs.
    pub php: &'a str,
    /// The part outside of the server block.
    pub upstream: &'a str,
}

/// Adds an nginx with its configuration in a file of this name.
pub(super) fn nginx_as(file: &str, plan: &mut PeerPlan, run: &PeerRun<'_>, parts: &NginxParts<'_>) {
    // The lab's user can read all files of the lab.
    let user = if run.as_root { "user root;" } else { "" };
    let sendfile = match run.settings.text("sendfile") {
        "off" => "off",
        _ => "on",
    };
    let values = [
        ("user", user),
        ("listen", parts.listen),
        ("php", parts.php),
        ("upstream", parts.upstream),
        ("sendfile", sendfile),
        ("conf", file),
    ];
    plan.file(file, run.fill(NGINX, &values));
    let config = run.path(file);
    plan.start(&[
        &program("nginx"),
        "-e",
        "stderr",
        "-p",
        &run.path(""),
        "-c",
        &config,
    ]);
}

fn apache(plan: &mut PeerPlan, run: &PeerRun<'_>, mpm: &str, php: &str) {
    // Apache refuses to run as root.
    let user = if run.as_root {
        "User www-data\nGroup www-data"
    } else {
        ""
    };
    let processes = match mpm {
        "prefork" => prefork(run),
        _ => event(run),
    };
    let values = [
        ("mpm", mpm),
        ("user", user),
        ("processes", &processes),
        ("modules", APACHE_MODULES),
        ("php", php),
    ];
    plan.file("mime.types", MIME_TYPES.to_owned());
    plan.file("apache.conf", run.fill(APACHE, &values));
    plan.start(&[
        &program("apache2"),
        "-DFOREGROUND",
        "-f",
        &run.path("apache.conf"),
    ]);
}

fn prefork(run: &PeerRun<'_>) -> String {
    let processes_max = run.settings.number("processes").max(u64::from(run.workers));
    // The number of processes is constant: none are started or ended during a measurement.
    format!(
        "ServerLimit {processes_max}\nMaxRequestWorkers {processes_max}\nStartServers {processes_max}\n\
         MinSpareServers 1\nMaxSpareServers {processes_max}"
    )
}

fn event(run: &PeerRun<'_>) -> String {
    let (workers, threads) = (u64::from(run.workers), run.settings.number("threads"));
    let requests_max = workers * threads;
    format!(
        "ServerLimit {workers}\nStartServers {workers}\nThreadLimit {threads}\n\
         ThreadsPerChild {threads}\nMaxRequestWorkers {requests_max}\nMinSpareThreads 1\n\
         MaxSpareThreads {requests_max}\nAsyncRequestWorkerFactor 64"
    )
}

fn lighttpd(plan: &mut PeerPlan, run: &PeerRun<'_>) {
    let backend = if run.settings.is_on("sendfile") {
        "sendfile"
    } else {
        "writev"
    };
    // With one worker the main process serves requests; with several it only supervises them.
    let workers = if run.workers > 1 { run.workers } else { 0 }.to_string();
    let descriptors = system::descriptors();
    let values = [
        ("backend", backend),
        ("workers", &workers),
        ("descriptors", &descriptors.to_string()),
        // A connection may need a second descriptor, for its file.
        ("connections", &(descriptors / 2).to_string()),
    ];
    plan.file("lighttpd.conf", run.fill(LIGHTTPD, &values));
    plan.start(&[&program("lighttpd"), "-D", "-f", &run.path("lighttpd.conf")]);
}

fn h2o(plan: &mut PeerPlan, run: &PeerRun<'_>) {
    let user = if run.as_root { "user: root" } else { "" };
    plan.file("h2o.conf", run.fill(H2O, &[("user", user)]));
    plan.start(&[&program("h2o"), "-m", "worker", "-c", &run.path("h2o.conf")]);
}

fn caddy(plan: &mut PeerPlan, run: &PeerRun<'_>) {
    plan.file("Caddyfile", run.fill(CADDY, &[]));
    let config = run.path("Caddyfile");
    plan.start(&[
        &program("caddy"),
        "run",
        "--config",
        &config,
        "--adapter",
        "caddyfile",
    ]);
}

fn mariadb(plan: &mut PeerPlan, run: &PeerRun<'_>) -> Result<(), String> {
    let user = if run.as_root { "user = root" } else { "" };
    plan.file("mariadb.cnf", run.fill(MARIADB, &[("user", user)]));
    let config = format!("--defaults-file={}", run.path("mariadb.cnf"));
    let socket = run.folder.join("mariadb.sock");
    plan.run(
        &[
            &program("mariadb-install-db"),
            &config,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ],
        None,
    );
    // A fast shutdown suffices, since no data has to be preserved. (The option is not in the file, where it would break
    // mariadb-install-db.)
    plan.start(&[&program("mariadbd"), &config, "--innodb-fast-shutdown=2"]);
    plan.steps.push(JobStep::Await(socket.clone()));
    let schema = run.settings.text("schema");
    if !schema.is_empty() {
        let file = std::fs::canonicalize(schema)
            .map_err(|error| format!("cannot read the schema {schema}: {error}"))?;
        let socket = format!("--socket={}", socket.display());
        plan.run(
            &[&program("mariadb"), "--no-defaults", "-u", "root", &socket],
            Some(file),
        );
    }
    plan.socket = Some(socket);
    plan.silent = true;
    Ok(())
}
