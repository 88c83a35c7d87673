//! The command `files`: creates the file set of a workload.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::files::{self, FilePlan};

/// Make the files of a workload
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub struct WorkloadArgs {
    /// The workload: see below
    workload: String,
    /// The folder: servers serve its folder site
    dir: PathBuf,
    /// A setting of the workload; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Only read the files and compare them with the manifest
    #[arg(long)]
    check: bool,
}

fn help() -> String {
    let mut text =
        "Workloads and their settings (traffic settings are accepted and have no effect):\n"
            .to_string();
    for (name, description) in super::NAMES {
        text += &format!("  {name}: {description}\n");
        for (key, description) in super::settings(name) {
            text += &format!("      {key}: {description}\n");
        }
    }
    text
}

/// Runs the command.
///
/// # Errors
/// With a text for the user.
pub fn run(args: &WorkloadArgs) -> anyhow::Result<ExitCode> {
    let settings = parse(&args.settings)?;
    let plan = files::plan(&args.workload, &settings).map_err(anyhow::Error::msg)?;
    let mut meter = FileMeter::new(plan.bytes());
    if args.check {
        let files = files::check(&plan, &args.dir, &mut |share| meter.show(share));
        meter.end();
        let files = files.map_err(anyhow::Error::msg)?;
        println!("{files} files are unchanged");
        return Ok(ExitCode::SUCCESS);
    }
    let exit = make(&plan, args, &mut meter);
    meter.end();
    exit
}

fn make(plan: &FilePlan, args: &WorkloadArgs, meter: &mut FileMeter) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal kills the process; even then no incomplete file remains in the site.
        signal_hook::flag::register_conditional_default(signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("can't handle signals")?;
    }
    let outcome = files::make_until(plan, &args.dir, &stop, &mut |share| meter.show(share))
        .map_err(anyhow::Error::msg)?;
    meter.end();
    let (dir, unchanged, written) = (args.dir.display(), outcome.unchanged, outcome.written);
    if outcome.stopped {
        eprintln!("stopped after {written} files; the same command continues from here");
        return Ok(ExitCode::from(130));
    }
    let size = files::human(plan.bytes());
    println!(
        "{dir}: {} files, {size}: {written} written, {unchanged} kept",
        plan.files()
    );
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn parse(settings: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut map = BTreeMap::new();
    for setting in settings {
        let Some((key, value)) = setting.split_once('=') else {
            bail!("--set {setting}: give it as KEY=VALUE, such as --set dirs=10");
        };
        if map.insert(key.to_string(), value.to_string()).is_some() {
            bail!("--set {setting}: {key} is given twice");
        }
    }
    Ok(map)
}

/// Shows progress on standard error: on a terminal one line that is overwritten, otherwise a line from time to time.
struct FileMeter {
    bytes: u64,
    terminal: bool,
    started: Instant,
    /// The share that existed at the start, which must not count for the speed.
    first_share: Option<f64>,
    shown_at: Option<Instant>,
    open: bool,
}

impl FileMeter {
    fn new(bytes: u64) -> FileMeter {
        let terminal = std::io::stderr().is_terminal();
        FileMeter {
            bytes,
            terminal,
            started: Instant::now(),
            first_share: None,
            shown_at: None,
            open: false,
        }
    }

    fn show(&mut self, share: f64) {
        let first_share = *self.first_share.get_or_insert(share);
        let pause = if self.terminal {
            Duration::from_millis(100)
        } else {
            Duration::from_secs(3)
        };
        let last_shown = self.shown_at.unwrap_or(self.started);
        let due = last_shown.elapsed() >= pause || (self.open && share >= 1.0);
        if !due {
            return;
        }
        self.shown_at = Some(Instant::now());
        let done = (share - first_share) * self.bytes as f64;
        let text = line(share, done, self.started.elapsed().as_secs_f64());
        if self.terminal {
            eprint!("\r{text}\x1b[K");
            // A closed standard error is no reason to stop.
            drop(std::io::stderr().flush());
            self.open = true;
        } else {
            eprintln!("{text}");
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.open) {
            eprintln!();
        }
    }
}

fn line(share: f64, bytes: f64, elapsed_s: f64) -> String {
    let speed = bytes / 1e6 / elapsed_s.max(1e-3);
    format!("{:5.1} % {speed:6.0} MB/s", (share * 100.0).min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_value_settings_are_parsed() {
        let texts = |all: &[&str]| all.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        let map = parse(&texts(&["dirs=2", "files=a=b"])).expect("settings");
        assert_eq!((&*map["dirs"], &*map["files"]), ("2", "a=b"));
        assert!(
            parse(&texts(&["dirs"]))
                .expect_err("no value")
                .to_string()
                .contains("KEY=VALUE")
        );
        assert!(
            parse(&texts(&["a=1", "a=2"]))
                .expect_err("twice")
                .to_string()
                .contains("twice")
        );
    }

    #[test]
    fn progress() {
        assert_eq!(line(0.5, 200e6, 2.0), " 50.0 %    100 MB/s");
        assert!(help().contains("dirs: folders"));
    }
}
