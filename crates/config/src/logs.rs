//! Reads `[log]`.
//!
//! Keys and ranges are here; their meaning and defaults are in [`crate::schema`].

use crate::named::DAY_MS;
use crate::reader::{ConfigSection, ConfigValue};
use crate::{
    AccessLogConfig, AccessLogFormat, BinaryLogConfig, ErrorLogLevel, LogConfig, LogTarget,
};

const MINUTE_MS: u64 = 60_000;
const FILE_LEN_MIN: u64 = 64 << 10;
/// The minimum number of files that must fit into the total length.
const TOTAL_FACTOR_MIN: u64 = 4;
const TIB: u64 = 1 << 40;

/// The keys of a binary access log.
const BINARY_KEYS: [&str; 4] = ["block_age", "rotate_len", "rotate_age", "total_len_max"];

pub(crate) fn log(section: ConfigSection<'_>) -> LogConfig {
    let default = LogConfig::default();
    let path = access(&section);
    let format = section.choice(
        "format",
        &[
            ("combined", AccessLogFormat::Combined),
            ("extended", AccessLogFormat::Extended),
            ("json", AccessLogFormat::Json),
            ("binary", AccessLogFormat::Binary),
        ],
        AccessLogFormat::default(),
    );
    let levels = [
        ("error", ErrorLogLevel::Error),
        ("warn", ErrorLogLevel::Warn),
        ("info", ErrorLogLevel::Info),
        ("debug", ErrorLogLevel::Debug),
    ];
    let binary = binary(&section);
    check_binary(&section, path.as_ref(), format);
    let log = LogConfig {
        access: path.map(|path| AccessLogConfig {
            path,
            format,
            binary,
        }),
        error: error(&section).unwrap_or(default.error),
        level: section.choice("level", &levels, default.level),
    };
    section.finish();
    log
}

fn binary(section: &ConfigSection<'_>) -> BinaryLogConfig {
    let default = BinaryLogConfig::default();
    let block_age_max_ms =
        section.duration_ms("block_age", default.block_age_max_ms, 100..=MINUTE_MS);
    let file_len_max = section.size("rotate_len", default.file_len_max, FILE_LEN_MIN..=TIB);
    let file_age_max_ms = section.duration_ms(
        "rotate_age",
        default.file_age_max_ms,
        MINUTE_MS..=366 * DAY_MS,
    );
    let total_len_max = section.size(
        "total_len_max",
        default.total_len_max,
        TOTAL_FACTOR_MIN * FILE_LEN_MIN..=TIB,
    );
    // A file exceeds its length by a block: with less room, a rotation would delete the preceding file.
    if total_len_max / TOTAL_FACTOR_MIN < file_len_max {
        section.report(
            "total_len_max is less than four times rotate_len",
            "room for rotated files beside the current one",
        );
    }
    BinaryLogConfig {
        block_age_max_ms,
        file_len_max,
        file_age_max_ms,
        total_len_max,
    }
}

/// Reports a binary log that is no file, and its keys with another format.
fn check_binary(section: &ConfigSection<'_>, path: Option<&LogTarget>, format: AccessLogFormat) {
    if format != AccessLogFormat::Binary {
        for key in BINARY_KEYS
            .iter()
            .filter(|key| !section.is_absent_or_empty(key))
        {
            section.report(
                format!("{key} is set, but format is not \"binary\""),
                "format = \"binary\" together with it; logrotate rotates files of lines",
            );
        }
    } else if matches!(path, Some(LogTarget::Stdout | LogTarget::Stderr)) {
        section.report(
            "a binary access log can't go to stdout or stderr",
            "a file, which lowroad log reads",
        );
    }
}

/// The access log's target; None also for `"off"`.
fn access(section: &ConfigSection<'_>) -> Option<LogTarget> {
    let item = section.item("access")?;
    item.text()
        // The word `off` stands for no log, since TOML has no null.
        .filter(|text| *text != "off")
        .and_then(|text| target(&item, text))
}

fn error(section: &ConfigSection<'_>) -> Option<LogTarget> {
    let item = section.item("error")?;
    item.text().and_then(|text| target(&item, text))
}

/// A log's target. Texts that other servers interpret as targets other than files are refused; here they would silently
/// become files.
fn target(item: &ConfigValue<'_>, text: &str) -> Option<LogTarget> {
    match text {
        "stdout" => Some(LogTarget::Stdout),
        "stderr" => Some(LogTarget::Stderr),
        unsupported if is_unsupported_target(unsupported) => {
            item.report(
                format!("{} is not a target for logs", item.to_display()),
                "a file, stdout or stderr; systemd and containers pass the last two on to journal and syslog",
            );
            None
        }
        path => Some(LogTarget::File(item.resolve(path))),
    }
}

/// Whether a target is in another server's notation: `syslog:server=…`, `udp://…`, `journald`,
/// `|/usr/bin/rotatelogs …`. A file with such a name can still be written as an absolute path or with `./`.
fn is_unsupported_target(text: &str) -> bool {
    // A file may be named with `./` or an absolute path, so that such names stay possible.
    let scheme = text.split(['/', '.']).next().unwrap_or_default();
    let is_word = |word: &&str| text.eq_ignore_ascii_case(word);
    scheme.contains(':')
        || text.starts_with('|')
        || ["syslog", "journald", "journal"].iter().any(is_word)
}
