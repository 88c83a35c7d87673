//! Plans of the peers that answer SPECweb99-like dynamic requests with the dynamic set in C: Lowroad at each of its
//! levels, and nginx with FastCGI. `fronts` builds the set.

use super::job::JobStep;
use super::plan::{PeerPlan, PeerRun};
use super::servers::configured_lowroad;

const CONFIG: &str = include_str!("../../peers/lowroad-dynamic.toml");

/// The path of the dynamic script in the workload.
const SCRIPT: &str = "/specweb99.php";

/// The parameters of Lowroad's configuration.
#[derive(Default)]
struct LevelSettings {
    description: &'static str,
    softirq: &'static str,
    module: String,
    /// The served folder; empty for the folder of the run.
    site: String,
    /// A route that takes precedence over the script's route.
    log: String,
    pattern: &'static str,
    target: String,
}

/// Adds a Lowroad that serves the dynamic set: its configuration, and the step that starts it.
///
/// # Errors
/// The peer is unknown.
pub fn lowroad(
    plan: &mut PeerPlan,
    run: &PeerRun<'_>,
    name: &str,
    binary: &str,
) -> Result<(), String> {
    let level = match name {
        "lowroad-module" => module(run, "off"),
        "lowroad-softirq" if run.address.ip().is_loopback() => module(run, "lo"),
        "lowroad-softirq" => module(run, "auto"),
        "lowroad-wasm" => wasm(plan, run),
        "lowroad-fastcgi" => fastcgi(plan, run),
        "lowroad-cgi" => cgi(run),
        unknown => return Err(format!("{unknown} has no level with the dynamic set")),
    };
    let root = run.root.display().to_string();
    let values = [
        ("what", level.description),
        ("softirq", level.softirq),
        // The lab's user can write the set's log of forms.
        ("user", if run.as_root { "user = \"root\"" } else { "" }),
        ("module", &level.module),
        (
            "site",
            if level.site.is_empty() {
                &root
            } else {
                &level.site
            },
        ),
        ("log", &level.log),
        ("pattern", level.pattern),
        ("target", &level.target),
    ];
    configured_lowroad(plan, run, binary, run.fill(CONFIG, &values));
    Ok(())
}

/// Starts the FastCGI program; returns its socket.
pub fn start_fastcgi(plan: &mut PeerPlan, run: &PeerRun<'_>) -> String {
    let socket = run.path("specweb99.sock");
    let processes = programs(run).to_string();
    plan.start(&[&front(run, "specweb99-fastcgi"), &socket, &processes]);
    plan.steps
        .push(JobStep::Await(run.folder.join("specweb99.sock")));
    socket
}

/// The part of nginx's configuration outside of the server block; it sets the number of idle connections per worker.
pub fn nginx_upstream(run: &PeerRun<'_>, socket: &str) -> String {
    let connections = connections_per_worker(programs(run), run.workers.into());
    format!("upstream specweb99 {{ server unix:{socket}; keepalive {connections}; }}")
}

/// Number of processes of the FastCGI program: at least two for each worker, if there are several workers.
fn programs(run: &PeerRun<'_>) -> u64 {
    let configured = run.settings.number("processes");
    match u64::from(run.workers) {
        0 | 1 => configured,
        workers => configured.max(2 * workers),
    }
}

/// Maximum number of idle connections per worker. A kept connection occupies a process, even if idle. A single worker
/// reuses its own connections, so it may keep all; several workers must leave enough processes for each other.
fn connections_per_worker(processes: u64, workers: u64) -> u64 {
    match workers {
        0 | 1 => processes,
        _ => processes / 2 / workers,
    }
}

fn front(run: &PeerRun<'_>, name: &str) -> String {
    format!("{}/{name}", run.settings.text("fronts"))
}

fn module(run: &PeerRun<'_>, softirq: &'static str) -> LevelSettings {
    LevelSettings {
        description: "a module, as a shared library",
        softirq,
        module: format!(
            "[[module]]\nname = \"specweb99\"\nlibrary = \"{}\"\nsettings = {{ data = \"{}\" }}\n",
            front(run, "specweb99.so"),
            run.settings.text("specweb99_data")
        ),
        pattern: SCRIPT,
        target: "module = \"specweb99\"".to_owned(),
        ..LevelSettings::default()
    }
}

/// The site is a folder of links that includes the set's data; the FastCGI program writes the log of forms.
fn wasm(plan: &mut PeerPlan, run: &PeerRun<'_>) -> LevelSettings {
    let socket = start_fastcgi(plan, run);
    let site = run.path("site");
    let file_set = run.root.join("file_set").display().to_string();
    plan.run(&["mkdir", &site], None);
    let links = [file_set.as_str(), run.settings.text("specweb99_data")];
    for target in links {
        plan.run(&["ln", "-s", target, &site], None);
    }
    LevelSettings {
        description: "a module, as WebAssembly",
        softirq: "off",
        module: format!(
            "[[module]]\nname = \"specweb99\"\nwasm = \"{}\"\n\
             settings = {{ data = \"/specweb99-data\", log = \"http://{address}/log\" }}\n\
             fetch = [\"{address}\"]\n",
            front(run, "specweb99.wasm"),
            address = run.address
        ),
        log: format!(
            "[[site.route]]\npattern = \"/log\"\nconcurrency = 65536\n{}",
            fastcgi_target(run, &socket)
        ),
        site,
        pattern: SCRIPT,
        target: "module = \"specweb99\"".to_owned(),
    }
}

fn fastcgi(plan: &mut PeerPlan, run: &PeerRun<'_>) -> LevelSettings {
    let socket = start_fastcgi(plan, run);
    LevelSettings {
        description: "a FastCGI program",
        softirq: "off",
        pattern: SCRIPT,
        target: fastcgi_target(run, &socket),
        ..LevelSettings::default()
    }
}

fn fastcgi_target(run: &PeerRun<'_>, socket: &str) -> String {
    format!(
        "fastcgi = \"unix:{socket}\"\nscript = \"{SCRIPT}\"\nconnections = {}\n\
         env = {{ SPECWEB99_DATA = \"{}\" }}\n",
        programs(run).min(4096),
        run.settings.text("specweb99_data")
    )
}

fn cgi(run: &PeerRun<'_>) -> LevelSettings {
    LevelSettings {
        description: "a CGI program",
        softirq: "off",
        // The folder of programs becomes the site's root.
        pattern: "/*.php",
        target: format!(
            "cgi = \"{}\"\nenv = {{ SPECWEB99_DATA = \"{}\" }}",
            front(run, "cgi"),
            run.settings.text("specweb99_data")
        ),
        ..LevelSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::table::{CheckedSettings, named};
    use std::path::Path;

    #[test]
    fn idle_fastcgi_connections_use_at_most_half_of_the_programs() {
        assert_eq!(connections_per_worker(50, 1), 50);
        for (programs, workers) in [(100, 2), (100, 8), (100, 16), (32, 16)] {
            let kept = connections_per_worker(programs, workers);
            assert!(kept > 0 && kept * workers <= programs / 2);
        }
    }

    #[test]
    fn generated_configurations_are_valid() {
        for name in [
            "lowroad-module",
            "lowroad-softirq",
            "lowroad-wasm",
            "lowroad-fastcgi",
            "lowroad-cgi",
        ] {
            let given = [
                ("fronts", "/built"),
                ("specweb99_data", "/set/specweb99-data"),
            ];
            let given = given.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let peer = named(name).expect("a peer");
            let settings = CheckedSettings::new(peer, &given.into()).expect("its settings");
            let run = PeerRun {
                root: Path::new("/set/site"),
                workers: 2,
                address: ([127, 0, 0, 1], 8080).into(),
                origin: ([127, 0, 0, 1], 8081).into(),
                folder: Path::new("/peer"),
                settings: &settings,
                as_root: false,
            };
            let mut plan = PeerPlan::default();
            lowroad(&mut plan, &run, name, "lowroad").expect("a plan");
            let (_, text) = &plan.files[0];
            let config = lowroad_config::parse(text, Path::new("lowroad.toml"));
            let config =
                config.unwrap_or_else(|problems| panic!("{name}: {}\n{text}", problems[0]));
            let routes = &config.sites[0].routes;
            assert_eq!(routes.len(), 1 + usize::from(name == "lowroad-wasm"));
            assert!(
                routes
                    .iter()
                    .any(|route| route.pattern.matches(SCRIPT.as_bytes())),
                "{name}"
            );
        }
    }
}
