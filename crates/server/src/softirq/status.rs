//! `lowroad status`: prints the counters of the running servers and of the levels.

use std::fmt::Write;
use std::thread;
use std::time::Duration;

use lowroad_softirq::programs::runs::{self, BpfStatsGuard, RunStats};
use serde_json::Value;

use super::advice;
use super::answer_shares::{self, AnswerShares};
use super::json;
use super::level_view::{GROUPS, LevelView};
use super::levels::{self, group_digits};
use super::namespace;
use super::worker::{self, instances::WorkerInstance};
use crate::admin;
use crate::cli::servers::StatusArgs;
use crate::terminal_output;

const COUNT_TIME: Duration = Duration::from_secs(1);
/// Server and level count the same period if they began within this time.
const SAME_TIME_S: u64 = 10;

/// Prints the counters of the server, of the levels, or of both.
///
/// # Errors
/// When there is no server or level to show: a message for the user.
pub fn status(args: &StatusArgs) -> Result<(), String> {
    // With these options only levels are shown, so no server is queried.
    let levels_only = args.softirq || args.stats || args.netns.is_some();
    if args.admin.is_some() && !levels_only {
        return match args.json {
            true => print_json(admin::status_values(args.admin.as_deref())?, &[], &[]),
            false => admin::print_status(args.admin.as_deref()),
        };
    }
    if let Some(namespace) = &args.netns {
        namespace::enter_namespace(namespace)?;
    }
    if levels_only {
        return print_levels(args, Vec::new());
    }
    if args.json {
        return print_all_json(args);
    }
    let server = admin::print_status(None);
    // Users without permission to open maps still get the server's counters.
    let (found, broken) = levels::all().unwrap_or_default();
    let is_empty = found.is_empty() && worker::instances::all().is_empty();
    match (server, is_empty) {
        (Err(_), false) => print_levels(args, Vec::new()),
        (Ok(()), false) => {
            terminal_output::out("\n")?;
            print_levels(args, Vec::new())
        }
        (Err(error), true) => match broken.first() {
            Some(broken) => Err(broken.clone()),
            None => Err(format!("{error}; and nothing is attached here")),
        },
        (Ok(()), true) => Ok(()),
    }
}

/// Prints the servers and the levels as JSON.
fn print_all_json(args: &StatusArgs) -> Result<(), String> {
    let servers = admin::status_values(None);
    let (found, _) = levels::all().unwrap_or_default();
    let is_empty = found.is_empty() && worker::instances::all().is_empty();
    match (servers, is_empty) {
        (Err(error), true) => Err(format!("{error}; and nothing is attached here")),
        (Ok(servers), true) => print_json(servers, &[], &[]),
        (servers, false) => print_levels(args, servers.unwrap_or_default()),
    }
}

fn print_json(
    servers: Vec<Value>,
    views: &[LevelView],
    workers: &[WorkerInstance],
) -> Result<(), String> {
    let levels: Vec<_> = views.iter().map(json::level_value).collect();
    let workers: Vec<_> = workers.iter().map(json::worker_value).collect();
    let value = serde_json::json!({"servers": servers, "levels": levels, "workers": workers});
    terminal_output::json(&value)
}

/// The levels for the dashboard, as `--json` has them; `None` if this user may not read them.
pub fn level_values() -> Option<Vec<serde_json::Value>> {
    let (levels, broken) = levels::all().ok()?;
    let views = levels.iter().map(LevelView::new);
    let views: Vec<LevelView> = views.collect::<Result<_, _>>().ok()?;
    let is_unseen = views.is_empty() && !broken.is_empty();
    (!is_unseen).then(|| views.iter().map(json::level_value).collect())
}

/// Prints the levels; as JSON with `servers`.
fn print_levels(args: &StatusArgs, servers: Vec<Value>) -> Result<(), String> {
    let workers = worker::instances::all();
    let levels = match workers.is_empty() {
        true => levels::at_least_one(None)?,
        false => levels::all()?.0,
    };
    let stats_guard = match args.stats {
        true => Some(BpfStatsGuard::start().map_err(|error| format!("--stats: {error}"))?),
        false => None,
    };
    // The kernel never resets its run counters, so the difference between two readings is shown.
    let previous: Vec<Vec<RunStats>> = levels
        .iter()
        .map(|one| runs::read_runs(one.folder()))
        .collect();
    if stats_guard.is_some() {
        // The kernel counts runs only while the guard exists.
        thread::sleep(COUNT_TIME);
    }
    let mut views = Vec::new();
    for (level, previous) in levels.iter().zip(previous) {
        let mut view = LevelView::with_server(level)?;
        if stats_guard.is_some() {
            since(&mut view.runs, &previous);
        }
        views.push(view);
    }
    if args.json {
        return print_json(servers, &views, &workers);
    }
    let is_counted = args.stats || runs::is_counting_enabled();
    let levels = views.iter().map(|view| text(view, is_counted));
    let texts: Vec<String> = workers.iter().map(worker_text).chain(levels).collect();
    terminal_output::out(texts.join("\n"))
}

/// Subtracts earlier run counts.
fn since(runs: &mut [RunStats], previous: &[RunStats]) {
    for run in runs {
        // A program that replaced another one between the readings counts from 0.
        let old = previous
            .iter()
            .find(|old| old.link == run.link && old.program_id == run.program_id);
        if let Some(old) = old {
            run.time_ns = run.time_ns.saturating_sub(old.time_ns);
            run.count = run.count.saturating_sub(old.count);
        }
    }
}

/// An intercepting server as text.
fn worker_text(worker: &WorkerInstance) -> String {
    let mut out = String::from("interception\n");
    line(&mut out, "port", &worker.port.to_string());
    line(&mut out, "workers", &format!("process {}", worker.pid));
    out
}

/// A level as text. `is_counted`: whether the kernel counted the programs' runs.
fn text(view: &LevelView, is_counted: bool) -> String {
    let mut out = String::from("softirq level\n");
    let ports: Vec<String> = view.ports.iter().map(ToString::to_string).collect();
    line(&mut out, "ports", &ports.join(", "));
    for (name, tier) in &view.interfaces {
        line(&mut out, "interface", &format!("{name}, {tier}"));
    }
    if view.interfaces.is_empty() {
        line(&mut out, "interface", "none");
    }
    line(&mut out, "mode", view.mode);
    if let Some(trouble) = view.trouble {
        let text = format!("all connections are left to the kernel: {trouble}");
        line(&mut out, "trouble", &text);
    }
    if let Some(bypass) = view.bypass {
        line(&mut out, "rests", &bypass.text());
    }
    if let Some(pause_s) = view.pause_s {
        line(&mut out, "fetches", &advice::for_pause(pause_s));
    }
    if !view.settings.is_empty() {
        line(&mut out, "settings", &view.settings.join(", "));
    }
    line(&mut out, "daemon", &daemon(view));
    let (published_count, published_max) = view.published;
    let published_max = u64::try_from(published_max).unwrap_or(0);
    line(
        &mut out,
        "published",
        &format!(
            "{} of {}",
            group_digits(published_count.into()),
            group_digits(published_max)
        ),
    );
    let connections = &view.connections;
    line(
        &mut out,
        "open",
        &format!(
            "{} connections; {} being migrated, {} known as the kernel's; {} of all these with a \
             parked socket; {} slots",
            connections.open,
            connections.migrating,
            connections.kernel,
            connections.parked,
            connections.slots
        ),
    );
    for run in &view.runs {
        line(&mut out, "runs", &runs_text(run, is_counted));
    }
    let shares = AnswerShares::from_view(view);
    line(&mut out, "requests", &shares.requests_text());
    line(&mut out, "bytes", &shares.bytes_text());
    if let Some(text) = times(view) {
        line(&mut out, "counted", &text);
    }
    let punts = answer_shares::top_punt_reasons(|name| view.count(name));
    if !punts.is_empty() {
        let _ = writeln!(
            out,
            "  most frequent reasons not to answer here, and what would change it"
        );
    }
    for punt in punts {
        let _ = writeln!(
            out,
            "  {:>15}  {:<18} {}",
            group_digits(punt.count),
            punt.name,
            punt.advice
        );
    }
    let denials = answer_shares::top_denials(view.denials);
    if !denials.is_empty() {
        let _ = writeln!(out, "  fetched but not stored, and why");
    }
    for (count, kind) in denials {
        let remedy = advice::for_denial(kind);
        let _ = writeln!(
            out,
            "  {:>15}  {:<18} {remedy}",
            group_digits(count),
            kind.name()
        );
    }
    for (prefix, title) in GROUPS {
        let group = view.group(prefix);
        if group.is_empty() {
            continue;
        }
        let sum: u64 = group.iter().map(|(_, _, count)| count).sum();
        let _ = writeln!(out, "  {title}: {}", group_digits(sum));
        for (name, text, count) in group {
            let _ = writeln!(out, "  {:>15}  {name:<18} {text}", group_digits(count));
        }
    }
    out
}

/// How long the level and the server have counted, with a warning if the periods differ.
fn times(view: &LevelView) -> Option<String> {
    let (level_s, server) = (view.age_s?, view.server?);
    let text = format!(
        "here for {} s, by the server for {} s (at all its ports, with the fetches of the level)",
        group_digits(level_s),
        group_digits(server.age_s)
    );
    // A difference of up to 5 % hardly distorts the shares.
    let is_comparable = level_s.abs_diff(server.age_s) <= SAME_TIME_S.max(level_s / 20);
    Some(match is_comparable {
        true => text,
        false => format!("{text}: the shares cover different times, those of `lowroad top` do not"),
    })
}

fn daemon(view: &LevelView) -> String {
    let heartbeat = match view.heartbeat_age_ms {
        Some(age_ms) => format!("heartbeat {} s ago", age_ms / 1000),
        None => "no heartbeat".into(),
    };
    match (view.pid, view.is_daemon_alive()) {
        (Some(pid), true) => format!("process {pid}, {heartbeat}"),
        (Some(pid), false) => {
            format!("process {pid} hangs: {heartbeat}, so all requests are passed to the server")
        }
        (None, true) => {
            format!("gone, {heartbeat}; after 30 s all requests are passed to the server")
        }
        (None, false) => {
            format!("gone, {heartbeat}: all requests are passed to the server; attach or detach")
        }
    }
}

fn runs_text(run: &RunStats, is_counted: bool) -> String {
    // No division by 0 for a program that did not run.
    match run.time_ns.checked_div(run.count) {
        Some(each_ns) => format!(
            "{}: {each_ns} ns each, {} runs",
            run.link,
            group_digits(run.count)
        ),
        None if is_counted => format!("{}: did not run", run.link),
        None => format!("{}: not counted (--stats counts for a second)", run.link),
    }
}

fn line(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(out, "  {name:<22} {value}"); // into memory: does not fail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::softirq::level_view::BypassPeriod;
    use crate::softirq::level_view::tests::example_view;
    use crate::softirq::upper_server::ServerCounts;

    #[test]
    fn level_text_has_counters_by_group() {
        let text = text(&example_view(), false);
        for part in [
            "ports                  80\n",
            "eth0, TC ingress",
            "process 7, heartbeat 0 s ago",
            "passed to the server: 100\n",
            "up_cookie          a Cookie",
            "900 answered here (at most 90.0 %), at least 100 passed to the server",
            "90  up_miss            ",
            "7  size               longer than the 14,480 bytes",
            "5 connections; 1 being migrated, 2 known as the kernel's; 3 of all these with a parked socket; 65536 slots",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(!text.contains("drop"), "{text}");
    }

    #[test]
    fn shares_include_counts_of_the_server_above() {
        let mut view = example_view();
        view.server = Some(ServerCounts {
            process: 9,
            age_s: 62,
            requests: 2700,
            bytes: 810_000,
        });
        let same = text(&view, false);
        for part in [
            "900 answered here (25.0 %), 2,700 by the server (process 9)",
            "90,000 sent here (10.0 %), 810,000 by the server",
            "here for 60 s, by the server for 62 s",
        ] {
            assert!(same.contains(part), "{part:?} in\n{same}");
        }
        assert!(!same.contains("different times"), "{same}");
        view.age_s = Some(3600);
        assert!(text(&view, false).contains("different times"));
    }

    #[test]
    fn obstacle_is_shown_with_remedy() {
        let mut view = example_view();
        assert!(!text(&view, false).contains("trouble"));
        view.trouble = lowroad_softirq::migration::describe(3);
        assert!(text(&view, false).contains("sysctl -w net.ipv4.tcp_syncookies=1"));
    }

    #[test]
    fn bypass_and_fetch_pause_are_shown() {
        let mut view = example_view();
        let awake = text(&view, false);
        assert!(
            !awake.contains("  rests") && !awake.contains("  fetches"),
            "{awake}"
        );
        view.bypass = Some(BypassPeriod {
            is_asleep: false,
            remaining_s: 25,
            answers: 0,
            requests: 2000,
        });
        view.pause_s = Some(8);
        let text = text(&view, false);
        assert!(
            text.contains("rests                  all connections are left to the kernel for 25 s")
        );
        assert!(
            text.contains("fetches                pause for 8 s more"),
            "{text}"
        );
    }

    #[test]
    fn dead_daemon_is_shown() {
        let mut view = example_view();
        view.pid = None;
        assert!(text(&view, false).contains("gone, heartbeat 0 s ago; after 30 s"));
        view.heartbeat_age_ms = Some(31_000);
        assert!(
            text(&view, false)
                .contains("gone, heartbeat 31 s ago: all requests are passed to the server")
        );
        view.pid = Some(7);
        assert!(text(&view, false).contains("process 7 hangs"));
    }

    #[test]
    fn runs_are_differences_between_readings() {
        let run = |link: &str, time_ns, count| RunStats {
            link: link.into(),
            program_id: 1,
            time_ns,
            count,
        };
        let mut now = vec![run("tc-a", 500, 5), run("tc-b", 300, 3)];
        since(&mut now, &[run("tc-a", 100, 1)]);
        assert_eq!(now, [run("tc-a", 400, 4), run("tc-b", 300, 3)]);
        assert!(runs_text(&now[0], true).contains("tc-a: 100 ns each, 4"));
        assert!(runs_text(&run("tc-a", 0, 0), false).contains("not counted"));
    }
}
