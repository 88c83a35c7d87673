//! `lowroad doctor`: prints one line for each requirement, and tries to attach programs if requested.

use lowroad_softirq::doctor::{self, DoctorFacts, DoctorFinding, DoctorReport, DoctorVerdict};
use lowroad_softirq::machine::interfaces::{self, InterfaceDetails};
use lowroad_softirq::programs::folder;
use lowroad_softirq::programs::links;
use lowroad_softirq::programs::loader::{self, ProgramTier};
use lowroad_softirq::programs::sizes::MapSizes;

use super::namespace;
use crate::cli::softirq::DoctorArgs;
use crate::terminal_output;

/// Checks this machine.
///
/// # Errors
/// When no tier works, or a check fails: a message for the user.
pub fn doctor(args: &DoctorArgs) -> Result<(), String> {
    if let Some(namespace) = &args.netns {
        namespace::enter_namespace(namespace)?;
    }
    let chosen = select_interfaces(&args.interface)?;
    let facts = DoctorFacts {
        machine: doctor::machine(),
        port: match args.port {
            Some(port) => {
                Some(doctor::port(port).map_err(|error| format!("port {port}: {error}"))?)
            }
            None => None,
        },
        interfaces: chosen.iter().cloned().map(doctor::one_interface).collect(),
    };
    let mut report = doctor::judge(&facts);
    report.lines.push(kernel_tls());
    if args.try_it {
        let tried = chosen
            .iter()
            .filter(|one| one.is_ethernet)
            .flat_map(try_both);
        report.lines.extend(tried);
    }
    terminal_output::out(table(&report))?;
    match report.works {
        true => Ok(()),
        false => Err("`attach` can't work here: see the lines with `no`".into()),
    }
}

/// Checks kernel TLS, for `kernel_tls` of the configuration; `attach` does not need it.
fn kernel_tls() -> DoctorFinding {
    let (verdict, why, advice) = match lowroad_engine::kernel_tls::probe() {
        Ok(()) => (
            DoctorVerdict::Ok,
            "it can encrypt long files, see kernel_tls".into(),
            "",
        ),
        Err(error) => (
            DoctorVerdict::Warn,
            format!("it can't encrypt: {error}"),
            "modprobe tls",
        ),
    };
    DoctorFinding {
        verdict,
        what: "kernel: TLS".into(),
        why,
        advice: advice.into(),
    }
}

/// Selects interfaces by name; without names all but `lo`, as `attach` does.
fn select_interfaces(names: &[String]) -> Result<Vec<InterfaceDetails>, String> {
    let all = interfaces::all().map_err(|error| format!("interfaces: {error}"))?;
    if names.is_empty() {
        return Ok(all.into_iter().filter(|one| !one.is_loopback).collect());
    }
    let find = |name: &String| {
        let found = all.iter().find(|one| one.interface.name == *name);
        let known: Vec<&str> = all.iter().map(|one| one.interface.name.as_str()).collect();
        found
            .cloned()
            .ok_or_else(|| format!("--interface {name}: there is {}", known.join(", ")))
    };
    names.iter().map(find).collect()
}

fn try_both(details: &InterfaceDetails) -> Vec<DoctorFinding> {
    let tiers = [
        (ProgramTier::Xdp, "native XDP"),
        (ProgramTier::Tc, "TC ingress"),
    ];
    // veth accepts XDP programs, but gains nothing from them.
    let usable = |tier| tier == ProgramTier::Tc || details.why_not_xdp().is_none();
    let tried = tiers.into_iter().filter(|(tier, _)| usable(*tier));
    tried
        .map(|(tier, name)| {
            let (verdict, why) = match try_one(details, tier) {
                Ok(()) => (DoctorVerdict::Ok, "tried: it can be attached".into()),
                Err(error) => (DoctorVerdict::No, format!("tried: {error}")),
            };
            DoctorFinding {
                verdict,
                what: format!("{}: {name}", details.interface.name),
                why,
                advice: String::new(),
            }
        })
        .collect()
}

/// Attaches programs without ports, which pass all packets, and removes them.
fn try_one(details: &InterfaceDetails, tier: ProgramTier) -> Result<(), String> {
    let said = |error: lowroad_softirq::LevelError| error.to_string();
    // Beside the levels' folders, so that other commands do not take it for a level.
    let levels = folder::port_folder(0).map_err(said)?;
    let base = levels.parent().and_then(|versions| versions.parent());
    // Keeps other processes from unmounting bpffs until the folder exists.
    let mounting = folder::lock_mount().map_err(said)?;
    let folder = base
        .ok_or("no folder for pins")?
        .join(format!("doctor-{}", std::process::id()));
    folder::make(&folder).map_err(said)?;
    drop(mounting);
    let few = MapSizes {
        // Small maps: the trial must not need the memory of a level.
        connections: 16,
        memory: 1 << 20,
    };
    let tried = loader::load(tier, few, &folder)
        .and_then(|loaded| links::attach(&loaded, &details.interface, &folder));
    // Removed also after a failure, which may leave some pins.
    let removed = folder::remove(&folder);
    folder::unmount_pins();
    tried.and(removed).map_err(said)
}

/// Formats one line each, with columns; the longest text comes last.
fn table(report: &DoctorReport) -> String {
    let width = |of: fn(&DoctorFinding) -> &str| {
        let lens = report.lines.iter().map(|line| of(line).chars().count());
        lens.max().unwrap_or(0)
    };
    let what_width = width(|line| &line.what);
    let mut out = String::new();
    for line in &report.lines {
        let verdict = match line.verdict {
            DoctorVerdict::Ok => "ok",
            DoctorVerdict::Warn => "warn",
            DoctorVerdict::No => "no",
        };
        let advice = match line.advice.is_empty() {
            true => String::new(),
            false => format!("; do: {}", line.advice),
        };
        out.push_str(&format!(
            "{verdict:<4}  {:<what_width$}  {}{advice}\n",
            line.what, line.why
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_below_each_other() {
        let line = |verdict, what: &str, advice: &str| DoctorFinding {
            verdict,
            what: what.into(),
            why: "why".into(),
            advice: advice.into(),
        };
        let report = DoctorReport {
            lines: vec![
                line(DoctorVerdict::Ok, "kernel", ""),
                line(DoctorVerdict::Warn, "eth0: native XDP", "something"),
            ],
            works: true,
        };
        assert_eq!(
            table(&report),
            "ok    kernel            why\nwarn  eth0: native XDP  why; do: something\n"
        );
    }
}
