//! `lowroad log`: reads binary access logs. Readable records go to standard output, reports of damaged and missing ones
//! to standard error.

mod follow;
mod printer;
mod source;

use std::collections::VecDeque;
use std::path::PathBuf;

use lowroad_binary_log::export::RecordExporter;
use lowroad_binary_log::report::{
    RankedCounts, RankingKey, TrafficReport, ranking_text, report_text,
};
use lowroad_config::{AccessLogFormat, LogTarget};
use lowroad_log::AccessEntry;

use self::follow::LogFollower;
use self::printer::{LineMatcher, RecordPrinter};
use self::source::{LogInput, ReadFlow, read_files};
use crate::cli::log::{LogCommand, LogSourceArgs, PrintArgs};
use crate::{cli, terminal_output};

/// Runs a command.
///
/// # Errors
/// A message for the user, when a file can't be opened or is no binary log, or the output can't be written.
pub fn run(command: &LogCommand) -> Result<(), String> {
    match command {
        LogCommand::Cat(args) => print(args, None),
        LogCommand::Grep {
            pattern,
            ignore_case,
            invert_match,
            print: args,
        } => print(
            args,
            Some(LineMatcher::new(pattern, *ignore_case, *invert_match)?),
        ),
        LogCommand::Tail {
            follow,
            lines,
            print,
        } => tail(print, *lines, *follow),
        LogCommand::Stats { count, source } => {
            let mut report = TrafficReport::default();
            each(source, |entry| report.add(entry))?;
            terminal_output::out(report_text(&report, *count))
        }
        LogCommand::Top { by, count, source } => {
            let key = RankingKey::from(*by);
            let mut ranking = RankedCounts::default();
            each(source, |entry| {
                key.with_value(entry, |value| ranking.add(value, entry))
            })?;
            terminal_output::out(ranking_text(&ranking, key, *count))
        }
        LogCommand::Export {
            format,
            output,
            source,
        } => {
            let exporter = RecordExporter::new((*format).into());
            let printer = match output {
                Some(path) => RecordPrinter::to_file(path, exporter)?,
                None => RecordPrinter::to_stdout(exporter),
            };
            print_to(printer, source, None)
        }
    }
}

fn print(args: &PrintArgs, matcher: Option<LineMatcher>) -> Result<(), String> {
    let printer = RecordPrinter::to_stdout(RecordExporter::new(args.format.into()));
    print_to(printer, &args.source, matcher)
}

fn print_to(
    mut printer: RecordPrinter,
    source: &LogSourceArgs,
    matcher: Option<LineMatcher>,
) -> Result<(), String> {
    let filter = source.filter();
    // Before a log is opened: an export without records still has its line of names.
    printer.begin()?;
    for files in logs(source)? {
        let mut print = |entry: &AccessEntry<'_>| printer.print(entry, matcher.as_ref());
        if let ReadFlow::Stop = read_files(files, &filter, &mut print)? {
            break;
        }
    }
    printer.finish()
}

/// Prints the last records and, with `follow`, new ones.
fn tail(args: &PrintArgs, count: usize, follow: bool) -> Result<(), String> {
    let filter = args.source.filter();
    let mut printer = RecordPrinter::to_stdout(RecordExporter::new(args.format.into()));
    printer.begin()?;
    let mut logs = logs(&args.source)?;
    // The last records of several logs would have to be merged by time.
    let (Some(mut files), []) = (logs.pop(), &logs[..]) else {
        return Err("tail reads one log".into());
    };
    let Some(last) = files.pop() else {
        return Err("there is no such log".into());
    };
    // The current file is read first: mostly it has enough records, and no rotated file is opened.
    let (mut follower, mut lines) = LogFollower::read(last, &filter, count, &mut printer)?;
    // Earlier files, if the last one has too few records.
    for file in files.into_iter().rev() {
        let missing = count.saturating_sub(lines.len());
        if missing == 0 {
            break;
        }
        let (mut rotated, mut older) = LogFollower::read(file, &filter, missing, &mut printer)?;
        // Such as a text log that was renamed when the binary log began.
        if let Err(error) = rotated.finish() {
            terminal_output::note(error);
        }
        older.append(&mut lines);
        lines = older;
    }
    print_lines(&mut printer, lines)?;
    match follow {
        true => follower.follow(&filter, &mut printer),
        false => follower.finish(),
    }
}

fn print_lines(printer: &mut RecordPrinter, lines: VecDeque<Vec<u8>>) -> Result<(), String> {
    for line in lines {
        if let ReadFlow::Stop = printer.print_line(&line)? {
            break;
        }
    }
    printer.finish()
}

/// Calls a function with all records that the arguments select.
fn each(source: &LogSourceArgs, mut call: impl FnMut(&AccessEntry<'_>)) -> Result<(), String> {
    let filter = source.filter();
    for files in logs(source)? {
        read_files(files, &filter, &mut |entry| {
            call(entry);
            Ok(ReadFlow::Continue)
        })?;
    }
    Ok(())
}

/// The files of each named log, or of the configured one; the oldest first.
fn logs(source: &LogSourceArgs) -> Result<Vec<Vec<LogInput>>, String> {
    let paths = match source.files.is_empty() {
        true => vec![configured(source)?],
        false => source.files.clone(),
    };
    let files = paths.into_iter().map(|path| match source.only {
        true => Ok(vec![LogInput::from_path(path)]),
        false => match LogInput::files_of_log(&path) {
            // A wrong path must not look like a log without records.
            files if files.is_empty() => Err(format!("{}: there is no such log", path.display())),
            files => Ok(files),
        },
    });
    files.collect()
}

fn configured(source: &LogSourceArgs) -> Result<PathBuf, String> {
    let mut logs = cli::load(&source.config)?.log.access.into_iter();
    let path = logs.find_map(|access| match (access.format, access.path) {
        (AccessLogFormat::Binary, LogTarget::File(path)) => Some(path),
        _ => None,
    });
    path.ok_or_else(|| {
        format!(
            "{} has no binary access log; name a file, or set access and format = \"binary\" in [log]",
            source.config.display()
        )
    })
}
