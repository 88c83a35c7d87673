//! `lowroad doctor`: prints one line for each requirement of the softirq level. If requested, also attaches empty
//! programs as a test.

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
/// No tier works, or a check fails: a message for the user.
pub fn doctor(args: &DoctorArgs) -> Result<(), String> {
    if let Some(namespace) = &args.netns {
        namespace::enter_namespace(namespace)?;
    }
    let selected = select_interfaces(&args.interface)?;
    let facts = DoctorFacts {
        machine: doctor::machine(),
        port: match args.port {
            Some(port) => {
                Some(doctor::port(port).map_err(|error| format!("port {port}: {error}"))?)
            }
            None => None,
        },
        interfaces: selected
            .iter()
            .cloned()
            .map(doctor::one_interface)
            .collect(),
    };
    let mut report = doctor::judge(&facts);
    report.lines.push(kernel_tls());
    if args.try_it {
        let trials = selected
            .iter()
            .filter(|details| details.is_ethernet)
            .flat_map(try_tiers);
        report.lines.extend(trials);
    }
    terminal_output::out(table(&report))?;
    match report.works {
        true => Ok(()),
        false => Err("`attach` can't work here: see the lines with `no`".into()),
    }
}

/// Checks kernel TLS, which the configuration's `kernel_tls` uses; `attach` does not need it.
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
        subject: "kernel: TLS".into(),
        reason: why,
        advice: advice.into(),
    }
}

/// Selects interfaces by name; without names selects all but `lo`, as `attach` does.
fn select_interfaces(names: &[String]) -> Result<Vec<InterfaceDetails>, String> {
    let all = interfaces::all().map_err(|error| format!("interfaces: {error}"))?;
    if names.is_empty() {
        return Ok(all
            .into_iter()
            .filter(|details| !details.is_loopback)
            .collect());
    }
    let find = |name: &String| {
        let found = all.iter().find(|details| details.interface.name == *name);
        let known_names: Vec<&str> = all
            .iter()
            .map(|details| details.interface.name.as_str())
            .collect();
        found
            .cloned()
            .ok_or_else(|| format!("--interface {name}: there is {}", known_names.join(", ")))
    };
    names.iter().map(find).collect()
}

fn try_tiers(details: &InterfaceDetails) -> Vec<DoctorFinding> {
    let tiers = [
        (ProgramTier::Xdp, "native XDP"),
        (ProgramTier::Tc, "TC ingress"),
    ];
    // veth accepts XDP programs but gains nothing from them, so they are not tried.
    let usable = |tier| tier == ProgramTier::Tc || details.xdp_obstacle().is_none();
    let usable_tiers = tiers.into_iter().filter(|(tier, _)| usable(*tier));
    usable_tiers
        .map(|(tier, name)| {
            let (verdict, why) = match try_tier(details, tier) {
                Ok(()) => (DoctorVerdict::Ok, "tried: it can be attached".into()),
                Err(error) => (DoctorVerdict::No, format!("tried: {error}")),
            };
            DoctorFinding {
                verdict,
                subject: format!("{}: {name}", details.interface.name),
                reason: why,
                advice: String::new(),
            }
        })
        .collect()
}

/// Attaches programs without ports, which pass all packets, and removes them.
fn try_tier(details: &InterfaceDetails, tier: ProgramTier) -> Result<(), String> {
    let describe = |error: lowroad_softirq::LevelError| error.to_string();
    // The trial has another folder than the levels, so that other commands do not take the trial for a level.
    let levels = folder::port_folder(0).map_err(describe)?;
    let base = levels.parent().and_then(|versions| versions.parent());
    // The lock prevents other processes from unmounting bpffs before the trial's folder exists.
    let mount_lock = folder::lock_mount().map_err(describe)?;
    let folder = base
        .ok_or("no folder for pins")?
        .join(format!("doctor-{}", std::process::id()));
    folder::create(&folder).map_err(describe)?;
    drop(mount_lock);
    let sizes = MapSizes {
        // Small maps, because the trial must not need the memory of a level.
        connections: 16,
        memory: 1 << 20,
    };
    let result = loader::load(tier, sizes, &folder)
        .and_then(|loaded| links::attach(&loaded, &details.interface, &folder));
    // The trial's folder is also removed after a failure, which may leave some pins.
    let removed = folder::remove(&folder);
    folder::unmount_pins();
    result.and(removed).map_err(describe)
}

/// Formats the findings as lines with aligned columns; the column with the longest text comes last.
fn table(report: &DoctorReport) -> String {
    let width = |text: fn(&DoctorFinding) -> &str| {
        let lens = report.lines.iter().map(|line| text(line).chars().count());
        lens.max().unwrap_or(0)
    };
    let what_width = width(|line| &line.subject);
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
            line.subject, line.reason
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let line = |verdict, what: &str, advice: &str| DoctorFinding {
            verdict,
            subject: what.into(),
            reason: "why".into(),
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
