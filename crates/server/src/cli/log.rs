//! The arguments of `lowroad log`, which reads binary access logs.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Subcommand, ValueEnum};
use lowroad_binary_log::export::ExportFormat;
use lowroad_binary_log::filter::time::parse_time;
use lowroad_binary_log::filter::{AddressRange, RecordFilter, StatusRange, TextPattern};
use lowroad_binary_log::report::RankingKey;

use super::CommandLine;

/// `lowroad log`.
#[derive(Subcommand)]
pub enum LogCommand {
    /// Print all records
    Cat(PrintArgs),
    /// Print the last records
    Tail {
        /// Go on with new records, through rotation
        #[arg(short, long)]
        follow: bool,
        /// So many of those that are there
        #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
        lines: usize,
        #[command(flatten)]
        print: PrintArgs,
    },
    /// Print the records with lines that match a regular expression; exit status 1 without a match
    Grep {
        /// The expression
        #[arg(value_name = "PATTERN")]
        pattern: String,
        /// Letters match in both cases
        #[arg(short, long)]
        ignore_case: bool,
        /// Print the others
        #[arg(short = 'v', long)]
        invert_match: bool,
        /// Print only the number of records
        #[arg(long)]
        count: bool,
        #[command(flatten)]
        print: PrintArgs,
    },
    /// Print a report: by URL, status, level, client, hour; percentiles of durations
    Stats {
        /// So many values in each ranking
        #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
        count: usize,
        #[command(flatten)]
        source: LogSourceArgs,
    },
    /// Print the values with most requests
    Top {
        /// Of what
        #[arg(long, value_enum, default_value = "url")]
        by: RankingArg,
        /// So many values
        #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
        count: usize,
        #[command(flatten)]
        source: LogSourceArgs,
    },
    /// Write all records in another format, with a line of names where the format has one
    Export {
        /// The format
        #[arg(long, value_enum, default_value = "csv")]
        format: FormatArg,
        /// Into this new file instead of standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace the file if it exists
        #[arg(long, requires = "output")]
        force: bool,
        #[command(flatten)]
        source: LogSourceArgs,
    },
}

/// The log, the format and the filter of printed records.
#[derive(Args)]
pub struct PrintArgs {
    /// The format
    #[arg(long, value_enum, default_value = "combined")]
    pub format: FormatArg,
    #[command(flatten)]
    pub source: LogSourceArgs,
}

/// The log and the filter.
#[derive(Args)]
pub struct LogSourceArgs {
    /// The logs, each with its rotated files [default: that of the configuration]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The configuration that names the log
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "/etc/lowroad/lowroad.toml"
    )]
    pub config: PathBuf,
    /// Only the files that are named, not those that were rotated
    #[arg(long)]
    pub only: bool,
    /// From this time on: 2026-11-29T05:18 in UTC, or 15m, 2h, 7d before now
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<u64>,
    /// Before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<u64>,
    /// Of this site: the requested host; * stands for any text
    #[arg(long, value_name = "HOST")]
    site: Vec<String>,
    /// With this status: 404, 4xx or 200-399
    #[arg(long, value_name = "STATUS")]
    status: Vec<StatusRange>,
    /// Answered by this level: softirq, worker, handler or origin
    #[arg(long, value_name = "LEVEL", hide_possible_values = true, value_parser = LEVELS)]
    level: Vec<String>,
    /// With this outcome: hit, miss, stale, revalidated, pass or made
    #[arg(long, value_name = "OUTCOME", hide_possible_values = true, value_parser = OUTCOMES)]
    outcome: Vec<String>,
    /// Of this client: ADDRESS or ADDRESS/BITS
    #[arg(long, value_name = "PREFIX")]
    client: Vec<AddressRange>,
    /// For this path, or path with query; * stands for any text
    #[arg(long, value_name = "PATH")]
    url: Vec<String>,
    /// That took at least this long: 500us, 20ms, 1s
    #[arg(long, value_name = "DURATION", value_parser = duration_us)]
    min_duration: Option<u64>,
    /// That took at most this long
    #[arg(long, value_name = "DURATION", value_parser = duration_us)]
    max_duration: Option<u64>,
}

/// The levels in records.
const LEVELS: [&str; 4] = ["softirq", "worker", "handler", "origin"];
/// The outcomes in records.
const OUTCOMES: [&str; 6] = ["hit", "miss", "stale", "revalidated", "pass", "made"];

impl LogSourceArgs {
    /// The conditions of records. Ends the program like any wrong command line if no record can meet them.
    pub fn filter(&self) -> RecordFilter {
        let refusal = match (
            self.since.zip(self.until),
            self.min_duration.zip(self.max_duration),
        ) {
            (Some((since, until)), _) if since >= until => {
                "--since must be earlier than --until: no record is between them"
            }
            (_, Some((least, most))) if least > most => {
                "--min-duration must be at most --max-duration: no record is between them"
            }
            _ => return self.checked_filter(),
        };
        CommandLine::command()
            .error(ErrorKind::ValueValidation, refusal)
            .exit()
    }

    fn checked_filter(&self) -> RecordFilter {
        let patterns = |texts: &[String], ignores_case| {
            let patterns = texts
                .iter()
                .map(|text| TextPattern::new(text, ignores_case));
            patterns.collect()
        };
        RecordFilter {
            since_ms: self.since,
            until_ms: self.until,
            hosts: patterns(&self.site, true),
            targets: patterns(&self.url, false),
            statuses: self.status.clone(),
            levels: self.level.clone(),
            outcomes: self.outcome.clone(),
            peers: self.client.clone(),
            duration_min_us: self.min_duration,
            duration_max_us: self.max_duration,
        }
    }
}

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// As Apache and nginx write it
    Combined,
    /// Combined, then outcome, seconds and host
    Extended,
    /// An object a line
    Json,
    /// Comma-separated values
    Csv,
    /// The W3C's Extended Log File Format
    W3c,
}

impl From<FormatArg> for ExportFormat {
    fn from(format: FormatArg) -> ExportFormat {
        match format {
            FormatArg::Combined => ExportFormat::Combined,
            FormatArg::Extended => ExportFormat::Extended,
            FormatArg::Json => ExportFormat::Json,
            FormatArg::Csv => ExportFormat::Csv,
            FormatArg::W3c => ExportFormat::W3c,
        }
    }
}

/// A property of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RankingArg {
    /// The path
    Url,
    /// The status
    Status,
    /// The level that answered
    Level,
    /// The outcome
    Outcome,
    /// The client's address
    Client,
    /// The requested host
    Host,
    /// The method
    Method,
    /// The Referer
    Referer,
    /// The User-Agent
    UserAgent,
}

impl From<RankingArg> for RankingKey {
    fn from(key: RankingArg) -> RankingKey {
        match key {
            RankingArg::Url => RankingKey::Url,
            RankingArg::Status => RankingKey::Status,
            RankingArg::Level => RankingKey::Level,
            RankingArg::Outcome => RankingKey::Outcome,
            RankingArg::Client => RankingKey::Client,
            RankingArg::Host => RankingKey::Host,
            RankingArg::Method => RankingKey::Method,
            RankingArg::Referer => RankingKey::Referer,
            RankingArg::UserAgent => RankingKey::UserAgent,
        }
    }
}

fn time(text: &str) -> Result<u64, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |now| now.as_millis() as u64);
    let time = parse_time(text, now_ms);
    time.ok_or_else(|| {
        "2026-11-29, 2026-11-29T05:18 or 2026-11-29T05:18:46 in UTC, or 90s, 15m, 2h, 7d before now"
            .into()
    })
}

fn duration_us(text: &str) -> Result<u64, String> {
    let start = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(start);
    let unit_us = match unit {
        "us" => Some(1),
        "ms" => Some(1000),
        "s" => Some(1_000_000),
        _ => None,
    };
    let parsed = digits.parse::<u64>().ok().zip(unit_us);
    // Checked, since the product of a long number and its unit may exceed 64 bits.
    let duration = parsed.and_then(|(count, unit_us)| count.checked_mul(unit_us));
    duration.ok_or_else(|| "a number with us, ms or s".into())
}
