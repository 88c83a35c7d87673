//! The command `log-size`: compares the size of the server's binary access log with that of text logs of the same
//! requests, and their compressed forms. Paper `004` claims that a binary log has less than half of the size of a text
//! log. Sizes are counted, not timed, and equal in every run.

mod browsers;
mod draws;
pub mod generate;
mod specweb99;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use generate::{TrafficMix, WrittenLogs, write_logs};

/// The name of the file among the results.
pub const FILE: &str = "log-size.json";

/// Compare the sizes of binary and text access logs
#[derive(Debug, clap::Args)]
pub struct LogSizeArgs {
    /// Requests of each mix
    #[arg(short = 'n', long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    requests: u64,
    /// Requests a second: the more requests in a block, the smaller the binary log
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// The folder of results
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Write the logs into this folder, too
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// The sizes of one mix's logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSizes {
    /// The name of the mix.
    pub mix: String,
    /// The number of requests.
    pub requests: u64,
    /// The forms of the log, with their sizes in bytes.
    pub forms: Vec<LogForm>,
}

/// The size of a log in one form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogForm {
    /// The form's name.
    pub name: String,
    /// Bytes.
    pub len: u64,
}

/// The form with which the others are compared.
pub const TEXT: &str = "combined";
/// The form that the server writes.
pub const BINARY: &str = "binary";

impl LogSizes {
    /// The size of a form relative to the combined log's.
    #[must_use]
    pub fn share(&self, form: &str) -> Option<f64> {
        Some(self.len(form)? as f64 / self.len(TEXT)? as f64)
    }

    fn len(&self, form: &str) -> Option<u64> {
        let form = self.forms.iter().find(|it| it.name == form)?;
        Some(form.len)
    }
}

/// Runs the command.
///
/// # Errors
/// With a text for the user.
pub fn run(args: &LogSizeArgs) -> anyhow::Result<ExitCode> {
    let mut all = Vec::new();
    for name in ["specweb99", "browsers"] {
        let logs = write_logs(&mut *mix(name), args.requests, args.rate.into())?;
        if let Some(folder) = &args.keep {
            keep(&logs, name, folder)?;
        }
        let sizes = sizes(name, args.requests, &logs)?;
        print!("{}", text(&sizes));
        all.push(sizes);
    }
    std::fs::create_dir_all(&args.results).with_context(|| args.results.display().to_string())?;
    let path = args.results.join(FILE);
    std::fs::write(&path, serde_json::to_string_pretty(&all)? + "\n")
        .with_context(|| path.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// The sizes that an earlier run has written; empty without a run.
///
/// # Errors
/// The file can't be read or parsed, as a text for the user.
pub fn read(results: &Path) -> Result<Vec<LogSizes>, String> {
    let path = results.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn mix(name: &str) -> Box<dyn TrafficMix> {
    match name {
        "specweb99" => Box::new(specweb99::SpecWebMix::new()),
        _ => Box::new(browsers::BrowserMix::new()),
    }
}

fn keep(logs: &WrittenLogs, name: &str, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(format!("{name}.log")), &logs.combined)?;
    std::fs::write(folder.join(format!("{name}.lrlog")), &logs.binary)?;
    Ok(())
}

fn sizes(name: &str, requests: u64, logs: &WrittenLogs) -> anyhow::Result<LogSizes> {
    let forms = [
        (TEXT, logs.combined.len()),
        ("combined, gzip -9", gzip_len(&logs.combined)?),
        ("combined, zstd -3", zstd_len(&logs.combined, 3)?),
        ("combined, zstd -19", zstd_len(&logs.combined, 19)?),
        ("extended", logs.extended.len()),
        ("extended, gzip -9", gzip_len(&logs.extended)?),
        (BINARY, logs.binary.len()),
    ];
    let forms = forms.map(|(name, len)| LogForm {
        name: name.into(),
        len: len as u64,
    });
    Ok(LogSizes {
        mix: name.into(),
        requests,
        forms: forms.into(),
    })
}

fn text(sizes: &LogSizes) -> String {
    let mut out = format!("{}, {} requests\n", sizes.mix, sizes.requests);
    for LogForm { name, len } in &sizes.forms {
        let each = *len as f64 / sizes.requests as f64;
        let share = sizes.share(name).unwrap_or_default();
        out.push_str(&format!(
            "{name:>20} {len:>12} bytes {each:>7.2} a request {share:>7.4}\n"
        ));
    }
    out
}

fn zstd_len(text: &[u8], level: i32) -> io::Result<usize> {
    Ok(zstd::bulk::compress(text, level)?.len())
}

/// The length after `gzip -9`, with which logrotate compresses.
fn gzip_len(text: &[u8]) -> anyhow::Result<usize> {
    let mut gzip = Command::new("gzip")
        .arg("-9")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("gzip")?;
    let (input, output) = (gzip.stdin.take(), gzip.stdout.take());
    let (mut input, mut output) = input.zip(output).context("gzip has no pipes")?;
    let mut compressed = Vec::new();
    std::thread::scope(|scope| {
        // A second thread writes, since gzip stops reading while its output is not read.
        let writer = scope.spawn(move || input.write_all(text));
        output.read_to_end(&mut compressed)?;
        writer
            .join()
            .map_err(|_| io::Error::other("a thread panicked"))?
    })
    .context("gzip")?;
    anyhow::ensure!(gzip.wait()?.success(), "gzip failed");
    Ok(compressed.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_log_is_smaller_than_half_of_the_text_log() {
        for name in ["specweb99", "browsers"] {
            let logs = write_logs(&mut *mix(name), 5000, 1000.0).expect("logs");
            let sizes = sizes(name, 5000, &logs).expect("sizes");
            let share = sizes.share(BINARY).expect("both forms");
            assert!(share < 0.25, "{name}: {share}");
        }
    }

    #[test]
    fn generated_logs_are_equal_in_every_run() {
        let written = || write_logs(&mut *mix("browsers"), 1000, 1000.0).expect("logs");
        let (first, second) = (written(), written());
        assert_eq!(first.combined, second.combined);
        assert_eq!(first.binary, second.binary);
    }
}
