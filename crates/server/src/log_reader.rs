//! `lowroad log`: reads binary access logs. Readable records go to standard output, reports of damaged and missing ones
//! to standard error.

mod follow;
mod printer;
mod source;

use std::collections::VecDeque;
use std::path::PathBuf;

use lowroad_binary_log::export::RecordExporter;
use lowroad_binary_log::filter::RecordFilter;
use lowroad_binary_log::report::{
    RankedCounts, RankingKey, TrafficReport, ranking_text, report_text,
};
use lowroad_config::{AccessLogFormat, LogTarget};
use lowroad_log::AccessEntry;

use self::follow::LogFollower;
use self::printer::{LineMatcher, RecordPrinter};
use self::source::{LogInput, ReadFlow, ReadOutcome, read_files};
use crate::cli::log::{LogCommand, LogSourceArgs, PrintArgs};
use crate::{cli, config_check, terminal_output};

/// The exit status if records are missing, as for a configuration that has only warnings.
const INCOMPLETE_CODE: u8 = config_check::WARNINGS_CODE;

/// The exit status of a search without a match, as of grep(1).
const UNMATCHED_CODE: u8 = 1;
/// The exit status of a search that failed, as of grep(1).
const SEARCH_FAILED_CODE: u8 = 2;

/// Runs a command; returns the exit status if it is not that of a success or of a failure.
///
/// # Errors
/// A message for the user, see [`read`]; a failed search has written it already.
pub fn run(command: &LogCommand) -> Result<Option<u8>, String> {
    let outcome = match (read(command), command) {
        // Scripts distinguish a failure from a search without a match.
        (Err(message), LogCommand::Grep { .. }) => {
            terminal_output::note(message);
            return Ok(Some(SEARCH_FAILED_CODE));
        }
        (outcome, _) => outcome?,
    };
    Ok(match outcome {
        ReadOutcome::Complete => None,
        ReadOutcome::Incomplete => Some(INCOMPLETE_CODE),
        ReadOutcome::Unmatched => Some(UNMATCHED_CODE),
    })
}

/// Reads the records that a command selects, and prints them.
///
/// # Errors
/// A message for the user, when a file can't be opened or is no binary log, or the output can't be written.
fn read(command: &LogCommand) -> Result<ReadOutcome, String> {
    match command {
        LogCommand::Cat(args) => print(args, None),
        LogCommand::Grep {
            pattern,
            ignore_case,
            invert_match,
            count: true,
            print: args,
        } => count(
            args,
            &LineMatcher::new(pattern, *ignore_case, *invert_match)?,
        ),
        LogCommand::Grep {
            pattern,
            ignore_case,
            invert_match,
            count: false,
            print: args,
        } => print(
            args,
            Some(LineMatcher::new(pattern, *ignore_case, *invert_match)?),
        )
        .map_err(|error| explain_short_option(args, error)),
        LogCommand::Tail {
            follow,
            lines,
            print,
        } => tail(print, *lines, *follow),
        LogCommand::Stats { count, source } => {
            let mut report = TrafficReport::default();
            let outcome = each(source, |entry| report.add(entry))?;
            terminal_output::out(report_text(&report, *count))?;
            Ok(outcome)
        }
        LogCommand::Top { by, count, source } => {
            let key = RankingKey::from(*by);
            let mut ranking = RankedCounts::default();
            let outcome = each(source, |entry| {
                key.with_value(entry, |value| ranking.add(value, entry))
            })?;
            terminal_output::out(ranking_text(&ranking, key, *count))?;
            Ok(outcome)
        }
        LogCommand::Export {
            format,
            output,
            force,
            source,
        } => {
            let filter = source.filter();
            // Before the output is created: a wrong path of the log must leave no empty file.
            let logs = logs(source)?;
            let exporter = RecordExporter::new((*format).into());
            let printer = match output {
                Some(path) if logs.iter().flatten().any(|input| input.is_file(path)) => {
                    return Err(format!("{}: this is a file of the log", path.display()));
                }
                Some(path) => RecordPrinter::to_file(path, *force, exporter)?,
                None => RecordPrinter::to_stdout(exporter),
            };
            print_logs(printer, logs, &filter, None)
        }
    }
}

fn print(args: &PrintArgs, matcher: Option<LineMatcher>) -> Result<ReadOutcome, String> {
    let filter = args.source.filter();
    let printer = RecordPrinter::to_stdout(RecordExporter::new(args.format.into()));
    print_logs(printer, logs(&args.source)?, &filter, matcher)
}

fn print_logs(
    mut printer: RecordPrinter,
    logs: Vec<Vec<LogInput>>,
    filter: &RecordFilter,
    matcher: Option<LineMatcher>,
) -> Result<ReadOutcome, String> {
    let mut outcome = ReadOutcome::Complete;
    // An export without records still has its line of names.
    printer.begin()?;
    for files in logs {
        let mut print = |entry: &AccessEntry<'_>| printer.print(entry, matcher.as_ref());
        let (flow, of_log) = read_files(files, filter, &mut print)?;
        outcome = outcome.and(of_log);
        if flow == ReadFlow::Stop {
            break;
        }
    }
    printer.finish()?;
    Ok(match matcher {
        Some(_) => outcome.with_match(printer.has_records()),
        None => outcome,
    })
}

/// Prints the number of records that match.
fn count(args: &PrintArgs, matcher: &LineMatcher) -> Result<ReadOutcome, String> {
    let mut exporter = RecordExporter::new(args.format.into());
    let (mut line, mut count) = (Vec::new(), 0u64);
    let outcome = each(&args.source, |entry| {
        line.clear();
        exporter.append(entry, &mut line);
        count += u64::from(matcher.matches_record(&line));
    })?;
    terminal_output::out(format_args!("{count}\n"))?;
    Ok(outcome.with_match(count > 0))
}

/// Adds a hint to the error of a command like `grep -c PATTERN`: other programs count with this option.
fn explain_short_option(args: &PrintArgs, error: String) -> String {
    match args.source.config.exists() {
        true => error,
        false => format!("{error} (-c names the configuration; --count counts)"),
    }
}

/// Prints the last records and, with `follow`, new ones.
fn tail(args: &PrintArgs, count: usize, follow: bool) -> Result<ReadOutcome, String> {
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
    let mut outcome = ReadOutcome::Complete;
    // Earlier files, if the last one has too few records.
    for file in files.into_iter().rev() {
        let missing = count.saturating_sub(lines.len());
        if missing == 0 {
            break;
        }
        let (mut rotated, mut older) = LogFollower::read(file, &filter, missing, &mut printer)?;
        // Such as a text log that was renamed when the binary log began.
        match rotated.finish() {
            Ok(of_file) => outcome = outcome.and(of_file),
            Err(error) => terminal_output::note(error),
        }
        older.append(&mut lines);
        lines = older;
    }
    print_lines(&mut printer, lines)?;
    let of_last = match follow {
        true => follower.follow(&filter, &mut printer),
        false => follower.finish(),
    };
    Ok(outcome.and(of_last?))
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
fn each(
    source: &LogSourceArgs,
    mut call: impl FnMut(&AccessEntry<'_>),
) -> Result<ReadOutcome, String> {
    let filter = source.filter();
    let mut outcome = ReadOutcome::Complete;
    for files in logs(source)? {
        let (_, of_log) = read_files(files, &filter, &mut |entry| {
            call(entry);
            Ok(ReadFlow::Continue)
        })?;
        outcome = outcome.and(of_log);
    }
    Ok(outcome)
}

/// The files of each named log, or of the configured one; the oldest first.
fn logs(source: &LogSourceArgs) -> Result<Vec<Vec<LogInput>>, String> {
    let paths = match source.files.is_empty() {
        true => vec![configured(source)?],
        false => source.files.clone(),
    };
    paths
        .into_iter()
        .map(|path| files_of(path, source.only))
        .collect()
}

fn files_of(path: PathBuf, is_only: bool) -> Result<Vec<LogInput>, String> {
    if path.is_dir() {
        let text = path.display();
        return Err(format!(
            "{text}: this is a folder; name the current file of a log in it, which stands for its \
             rotated files, too"
        ));
    }
    if is_only {
        return Ok(vec![LogInput::open(path)?]);
    }
    match LogInput::files_of_log(&path) {
        // A wrong path must not look like a log without records.
        files if files.is_empty() => Err(format!("{}: there is no such log", path.display())),
        files => Ok(files),
    }
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
