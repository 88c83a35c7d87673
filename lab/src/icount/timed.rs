//! Latencies of a server at an offered rate. Requests are due at fixed times of the guest's virtual clock. A second of
//! this clock is 10^9 instructions, so latencies are the same on any machine under any load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::drive::{ConnectionMode, DriveRequest, drive};
use super::guest::QemuGuest;
use super::kernel::{GuestKernel, plugin};
use super::servers::CountedServer;
use super::standard::{StandardPlan, StandardTurn, progress};
use super::table::{CountColumn, size_text};
use crate::load::{self, ExternalClock, LoadResult, LoadRun, RequestPace};

/// Maximum step of the virtual clock, which is the resolution of all times.
const STEP_NS: u64 = 20_000;
/// Warm-up in the guest's time.
const WARMUP: Duration = Duration::from_millis(100);
/// Measured interval in the guest's time.
const DURATION: Duration = Duration::from_millis(500);
/// Maximum number of simultaneous connections.
const CONNECTIONS: u32 = 256;
const TIMEOUT: Duration = Duration::from_secs(5);

/// The result of a run in the guest's time.
#[derive(Clone, Debug, Default)]
pub struct TimedResult {
    /// The load generator's figures; times are the guest's.
    pub outcome: LoadResult,
    /// Share of the time in which the guest's processor was busy.
    pub busy_share: f64,
}

/// Executes a run in the guest's time. `begin` receives the clock, for concurrent requests. The guest runs freely again
/// after all references to the clock have been dropped.
///
/// # Errors
/// The guest can't be stopped, or the run can't start.
pub fn timed(
    guest: &QemuGuest,
    mut load: LoadRun,
    begin: &mut dyn FnMut(&Arc<dyn ExternalClock>),
    stop: &AtomicBool,
) -> Result<TimedResult, String> {
    let counted_before = guest.instructions_when_idle();
    let time: Arc<dyn ExternalClock> = Arc::new(guest.step_by(STEP_NS)?);
    let began_ns = time.now_ns();
    begin(&time);
    load.time = Some(time.clone());
    let run = |halt: &AtomicBool| load::run(&load, &mut |_| {}, halt);
    let outcome = guest.life().watch(stop, run);
    let outcome = outcome.map_err(|error| error.to_string())?;
    // If the run was interrupted but not stopped by the user, the guest has ended.
    if outcome.interrupted && !stop.load(Relaxed) {
        return Err("it ended during the measurement".into());
    }
    let busy = (guest.instructions() - counted_before) as f64;
    let passed_ns = (time.now_ns() - began_ns) as f64;
    Ok(TimedResult {
        outcome: LoadResult {
            // CPU use of the host is meaningless for an emulated guest.
            cpu_share: 0.0,
            ..outcome
        },
        busy_share: busy / passed_ns.max(1.0),
    })
}

/// Requests each page from each server at each rate, and prints the latencies.
///
/// # Errors
/// No server can be measured on this machine.
pub fn run(plan: &StandardPlan, rates: &[f64]) -> Result<bool, String> {
    let (kernel, plugin) = (GuestKernel::new()?, plugin()?);
    println!("{}", head());
    let mut has_result = false;
    for server in &plan.servers {
        // Progress events are discarded: this table prints its own progress.
        let channel = std::sync::mpsc::channel();
        let turn = StandardTurn {
            plan,
            server,
            kernel: &kernel,
            plugin: &plugin,
            sender: &channel.0,
        };
        let result = run_server(&turn, rates);
        progress("");
        match result {
            Ok(()) => has_result = true,
            Err(error) => println!("{:<NAME$}{error}", server.name),
        }
    }
    println!(
        "\nLinux {}, one processor; a second is 10⁹ instructions; times in µs",
        kernel.release()
    );
    Ok(has_result)
}

fn run_server(turn: &StandardTurn<'_>, rates: &[f64]) -> Result<(), String> {
    let (plan, server) = (turn.plan, turn.server);
    let program = server.installed(plan.lowroad.as_deref())?;
    progress(&format!("{}: boots", server.name));
    let mut booted = turn.boot(&program)?;
    for &column in plan.table.columns() {
        let CountColumn::Page(mode, size) = column else {
            return Err("--rate supports only pages".into());
        };
        let guest = &mut booted.guest;
        let address = guest.wait_for(server.port(column))?;
        let request = DriveRequest::Page(super::standard::path(size), mode);
        // The warm-up does not step the guest, since the times of the warm-up are not measured.
        let (warmup, connections) = (plan.traffic.warmup, plan.traffic.connections);
        drive(&guest.life(), address, &request, warmup, connections)
            .map_err(|error| guest.failure(&error))?;
        for &rate in rates {
            progress(&format!("{}: {rate} a second", server.name));
            let (workload, tls) = request.traffic(address)?;
            let mut load = LoadRun::plain(address, workload);
            load.target.tls = tls;
            let load = LoadRun {
                pace: match mode.is_closing() {
                    false => RequestPace::Requests(rate),
                    // Without persistent connections, each request needs a connection, so connections are due instead
                    // of requests.
                    true => RequestPace::Connections(rate),
                },
                pipeline: mode.streams(),
                connections: CONNECTIONS,
                warmup: WARMUP,
                duration: DURATION,
                timeout: TIMEOUT,
                ..load
            };
            let timed_result = timed(guest, load, &mut |_| {}, &AtomicBool::new(false))?;
            progress("");
            println!("{}", line(server, mode, size, rate, &timed_result));
        }
    }
    Ok(())
}

const NAME: usize = 16;

fn head() -> String {
    let names = [
        "page", "offered", "answered", "busy", "p50", "p90", "p99", "max", "errors",
    ];
    let names: String = names.iter().map(|name| format!("{name:>14}")).collect();
    format!("{:<NAME$}{names}", "server")
}

fn line(
    server: &CountedServer,
    mode: ConnectionMode,
    size: u64,
    rate: f64,
    timed_result: &TimedResult,
) -> String {
    let outcome = &timed_result.outcome;
    let times = &outcome.latency_us;
    let page = format!("{} {}", mode.name(), size_text(size));
    let (answered, busy) = (outcome.requests_per_s, timed_result.busy_share * 100.0);
    let times = [times.p50, times.p90, times.p99, times.max, outcome.errors];
    let times: String = times.iter().map(|time| format!("{time:>14}")).collect();
    format!(
        "{:<NAME$}{page:>14}{rate:>14.0}{answered:>14.0}{busy:>12.1} %{times}",
        server.name
    )
}
