//! What an offered rate does to a server. Its guest is asked at fixed times of the guest's own clock, whose second is 10^9
//! instructions, so latencies are the same on any machine, however busy.

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

/// The longest step: times are exact to this.
const STEP_NS: u64 = 20_000;
/// Before counting begins, of the guest's time.
const WARMUP: Duration = Duration::from_millis(100);
/// What is counted.
const DURATION: Duration = Duration::from_millis(500);
/// Connections that are open at a time, at most.
const CONNECTIONS: u32 = 256;
const TIMEOUT: Duration = Duration::from_secs(5);

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct TimedResult {
    /// Its times are the guest's.
    pub outcome: LoadResult,
    /// Share of the time that the guest's processor worked.
    pub busy_share: f64,
}

/// Makes a run in the guest's time. `begin` is told of that, for who asks beside; the guest runs freely again once nobody has
/// it any more.
///
/// # Errors
/// The guest can't be stopped, or the run can't begin.
pub fn timed(
    guest: &QemuGuest,
    mut load: LoadRun,
    begin: &mut dyn FnMut(&Arc<dyn ExternalClock>),
    stop: &AtomicBool,
) -> Result<TimedResult, String> {
    let before = guest.counted_at_rest();
    let time: Arc<dyn ExternalClock> = Arc::new(guest.in_steps(STEP_NS)?);
    let began_ns = time.now_ns();
    begin(&time);
    load.time = Some(time.clone());
    let run = |halt: &AtomicBool| load::run(&load, &mut |_| {}, halt);
    let outcome = guest.life().watch(stop, run);
    let outcome = outcome.map_err(|error| error.to_string())?;
    if outcome.interrupted && !stop.load(Relaxed) {
        return Err("it ended while it was asked".into());
    }
    let busy = (guest.counted() - before) as f64;
    let passed_ns = (time.now_ns() - began_ns) as f64;
    Ok(TimedResult {
        outcome: LoadResult {
            // How much of this machine it took says nothing.
            cpu_share: 0.0,
            ..outcome
        },
        busy_share: busy / passed_ns.max(1.0),
    })
}

/// Asks each server for each page at each rate, and prints what came of it.
///
/// # Errors
/// Nothing can be measured here.
pub fn run(plan: &StandardPlan, rates: &[f64]) -> Result<bool, String> {
    let (kernel, plugin) = (GuestKernel::new()?, plugin()?);
    println!("{}", head());
    let mut good = false;
    for server in &plan.servers {
        let told = std::sync::mpsc::channel();
        let work = StandardTurn {
            plan,
            server,
            kernel: &kernel,
            plugin: &plugin,
            tell: &told.0,
        };
        let found = of_server(&work, rates);
        progress("");
        match found {
            Ok(()) => good = true,
            Err(why) => println!("{:<NAME$}{why}", server.name),
        }
    }
    println!(
        "\nLinux {}, one processor; a second is 10⁹ instructions; times in µs",
        kernel.release()
    );
    Ok(good)
}

fn of_server(work: &StandardTurn<'_>, rates: &[f64]) -> Result<(), String> {
    let (plan, server) = (work.plan, work.server);
    let program = server.installed(plan.lowroad.as_deref())?;
    progress(&format!("{}: boots", server.name));
    let mut booted = work.boot(&program)?;
    for &column in plan.table.columns() {
        let CountColumn::Page(mode, size) = column else {
            return Err("--rate asks for pages".into());
        };
        let guest = &mut booted.guest;
        let address = guest.wait_for(server.port(column))?;
        let asked = DriveRequest::Page(super::standard::path(size), mode);
        let (warmup, connections) = (plan.traffic.warmup, plan.traffic.connections);
        drive((&guest.life(), address), &asked, warmup, connections)
            .map_err(|why| guest.failure(&why))?;
        for &rate in rates {
            progress(&format!("{}: {rate} a second", server.name));
            let (workload, tls) = asked.traffic(address)?;
            let mut load = LoadRun::plain(address, workload);
            load.target.tls = tls;
            let load = LoadRun {
                pace: match mode {
                    ConnectionMode::KeepAlive | ConnectionMode::Tls => RequestPace::Requests(rate),
                    ConnectionMode::Close
                    | ConnectionMode::TlsFull
                    | ConnectionMode::TlsResumed => RequestPace::Connections(rate),
                },
                connections: CONNECTIONS,
                warmup: WARMUP,
                duration: DURATION,
                timeout: TIMEOUT,
                ..load
            };
            let found = timed(guest, load, &mut |_| {}, &AtomicBool::new(false))?;
            progress("");
            println!("{}", line(server, (mode, size), rate, &found));
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
    (mode, size): (ConnectionMode, u64),
    rate: f64,
    found: &TimedResult,
) -> String {
    let outcome = &found.outcome;
    let times = &outcome.latency_us;
    let page = format!("{} {}", mode.name(), size_text(size));
    let (answered, busy) = (outcome.requests_per_s, found.busy_share * 100.0);
    let times = [times.p50, times.p90, times.p99, times.max, outcome.errors];
    let times: String = times.iter().map(|time| format!("{time:>14}")).collect();
    format!(
        "{:<NAME$}{page:>14}{rate:>14.0}{answered:>14.0}{busy:>12.1} %{times}",
        server.name
    )
}
