//! Plans of the cache peers, each in front of an nginx that serves the files.

use std::path::PathBuf;

use super::job::JobStep;
use super::plan::{PeerPlan, PeerRun};
use super::programs;
use super::servers::{self, NginxParts, nginx_as, own_port, program};

const VARNISH: &str = include_str!("../../peers/varnish.vcl");
const HAPROXY: &str = include_str!("../../peers/haproxy.cfg");
const SQUID: &str = include_str!("../../peers/squid.conf");
const TRAFFIC_SERVER: &str = include_str!("../../peers/trafficserver.config");
const TRAFFIC_SERVER_FOLDERS: &str = include_str!("../../peers/trafficserver-runroot.yaml");
const TRAFFIC_SERVER_ALLOW: &str = include_str!("../../peers/trafficserver-allow.yaml");
const ACCELERATE: &str = include_str!("../../peers/lowroad-accelerate.toml");
const NGINX_CACHE: &str = include_str!("../../peers/nginx-cache.part");
const NGINX_CACHE_UPSTREAM: &str = include_str!("../../peers/nginx-cache-upstream.part");

/// The user of caches that refuse to run as root.
const USER: &str = "www-data";

/// Size of Traffic Server's cache file in addition to that of its memory: it does not start with only a few MB.
const SPARE_MB: u64 = 256;

/// Varnish.
pub(super) fn varnish(plan: &mut PeerPlan, run: &PeerRun<'_>) {
    origin(plan, run);
    plan.file("varnish.vcl", run.fill(VARNISH, &[]));
    let storage = format!("malloc,{}m", run.settings.text("memory_mb"));
    // -j none: the jail would switch to a user without access to the lab's folder.
    plan.start(&[
        &program("varnishd"),
        "-F",
        "-j",
        "none",
        "-n",
        &run.path("varnish"),
        "-a",
        &run.address.to_string(),
        "-f",
        &run.path("varnish.vcl"),
        "-T",
        "none",
        "-s",
        &storage,
        "-p",
        &format!("thread_pools={}", run.workers),
        "-p",
        "thread_pool_min=200",
        "-p",
        "listen_depth=4096",
        "-p",
        "timeout_idle=65",
    ]);
}

/// HAProxy with its cache.
pub(super) fn haproxy(plan: &mut PeerPlan, run: &PeerRun<'_>) {
    origin(plan, run);
    let object = object_bytes(run);
    plan.file(
        "haproxy.cfg",
        run.fill(HAPROXY, &[("object_bytes", &object)]),
    );
    plan.start(&[&program("haproxy"), "-db", "-f", &run.path("haproxy.cfg")]);
}

/// Squid. Always one process, since several processes would communicate by sockets in /run.
pub(super) fn squid(plan: &mut PeerPlan, run: &PeerRun<'_>) {
    origin_at_port(plan, run);
    // Squid refuses to run as root.
    let user = if run.as_root {
        format!("cache_effective_user {USER}")
    } else {
        String::new()
    };
    let values = [("user", &*user), ("object_bytes", &object_bytes(run))];
    plan.file("squid.conf", run.fill(SQUID, &values));
    // Squid names its shared memory after this service name, in which only letters and digits are allowed.
    let folder = run.folder.file_name().unwrap_or_default();
    let name = folder
        .to_string_lossy()
        .replace(|it: char| !it.is_ascii_alphanumeric(), "x");
    let config = run.path("squid.conf");
    // -N: in the foreground; important messages go to standard error.
    plan.start(&[
        &program("squid"),
        "-N",
        "-d",
        "1",
        "-n",
        &name,
        "-f",
        &config,
    ]);
}

/// Apache Traffic Server, with all its files in the peer's folder.
pub(super) fn traffic_server(plan: &mut PeerPlan, run: &PeerRun<'_>) {
    origin_at_port(plan, run);
    let memory_mb = run.settings.number("memory_mb");
    let memory_bytes = (memory_mb << 20).to_string();
    let values = [
        // Traffic Server refuses to run as root; #-1 is the user of the process.
        ("user", if run.as_root { USER } else { "#-1" }),
        ("memory_bytes", &memory_bytes),
        ("object_bytes", &object_bytes(run)),
    ];
    plan.file("records.config", run.fill(TRAFFIC_SERVER, &values));
    plan.file("runroot.yaml", run.fill(TRAFFIC_SERVER_FOLDERS, &[]));
    plan.file("ip_allow.yaml", TRAFFIC_SERVER_ALLOW.to_owned());
    plan.file("remap.config", format!("map / http://{}/\n", run.origin));
    // The cache file is a cyclic buffer; an object that is overwritten there is removed from memory too.
    let state = run.path("state");
    let file = format!("{state} {}M\n", memory_mb + SPARE_MB);
    plan.file("storage.config", file);
    plan.run(&["mkdir", &state], None);
    // Traffic Server drops root's rights and then writes its cache file as this user.
    if run.as_root {
        plan.run(&["chown", USER, &state], None);
    }
    let folders = format!("--run-root={}", run.path("runroot.yaml"));
    plan.start(&[&program("traffic_server"), &folders]);
}

/// Maximum size of a cached object: half of the cache, which is HAProxy's limit, and at most 64 MiB.
fn object_bytes(run: &PeerRun<'_>) -> String {
    let half = run.settings.number("memory_mb") * (1 << 19);
    half.min(64 << 20).to_string()
}

/// nginx as a cache. Its configuration is separate from that of its origin, which is another nginx.
pub(super) fn nginx(plan: &mut PeerPlan, run: &PeerRun<'_>) {
    origin(plan, run);
    let upstream = run.fill(NGINX_CACHE_UPSTREAM, &[]);
    let parts = NginxParts {
        listen: &own_port(run),
        php: &run.fill(NGINX_CACHE, &[]),
        upstream: &upstream,
    };
    nginx_as("front.conf", plan, run, &parts);
}

/// Lowroad as an accelerator.
pub(super) fn lowroad(plan: &mut PeerPlan, run: &PeerRun<'_>) -> Result<(), String> {
    let binary = programs::lowroad(run.settings.text("binary"))?;
    origin(plan, run);
    let binary = binary.display().to_string();
    servers::configured_lowroad(plan, run, &binary, run.fill(ACCELERATE, &[]));
    Ok(())
}

/// Adds an nginx as the origin of a cache, on a Unix socket, since another process could take a TCP port.
fn origin(plan: &mut PeerPlan, run: &PeerRun<'_>) {
    let socket = run.path("origin.sock");
    servers::nginx(plan, run, &format!("unix:{socket}"), "");
    plan.steps.push(JobStep::Await(PathBuf::from(socket)));
}

/// Adds an nginx as the origin of a cache that supports only TCP.
fn origin_at_port(plan: &mut PeerPlan, run: &PeerRun<'_>) {
    servers::nginx(plan, run, &format!("{} backlog=4096", run.origin), "");
    plan.steps.push(JobStep::AwaitPort(run.origin));
}
