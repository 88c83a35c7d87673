//! Reads `[log]` and `[[log.access]]`.
//!
//! Keys and ranges are here; their meaning and defaults are in [`crate::schema`].

mod conditions;
mod format;
mod messages;

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
/// The maximum number of access logs: a request may be written to each of them.
const LOGS_MAX: usize = 32;

/// The keys of a binary access log.
const BINARY_KEYS: [&str; 4] = ["block_age", "rotate_len", "rotate_age", "total_len_max"];

pub(crate) fn log(section: ConfigSection<'_>) -> LogConfig {
    let default = LogConfig::default();
    let item = section.item("access");
    let access = match item.as_ref().filter(|item| item.is_array()) {
        Some(list) => {
            let items = list.items().unwrap_or_default();
            let logs: Vec<_> = items.iter().filter_map(ConfigValue::section).collect();
            // These keys belong to one log.
            for key in ["format", "fields", "escape"]
                .into_iter()
                .chain(BINARY_KEYS)
            {
                section.only_with(key, "access = \"FILE\"; of several logs in [[log.access]]");
            }
            if logs.len() > LOGS_MAX {
                section.report(format!("more than {LOGS_MAX} access logs"), "");
            }
            logs.into_iter().filter_map(access_log).collect()
        }
        None => {
            let (path, is_set) = single_target(item.as_ref());
            let log = keys_of_log(&section, path, is_set);
            log.into_iter().collect()
        }
    };
    let levels = [
        ("error", ErrorLogLevel::Error),
        ("warn", ErrorLogLevel::Warn),
        ("info", ErrorLogLevel::Info),
        ("debug", ErrorLogLevel::Debug),
    ];
    let log = LogConfig {
        access,
        error: error(&section).unwrap_or(default.error),
        level: section.choice("level", &levels, default.level),
    };
    check_files(&section, &log);
    section.finish();
    log
}

/// The message for a syntax error at an offset. TOML permits either `access` in `[log]` or tables `[[log.access]]`; of
/// both, its parser only reports a duplicate key.
pub(crate) fn explain_syntax_error(text: &str, offset: usize, message: &str) -> String {
    let line_start = text[..offset].rfind('\n').map_or(0, |end| end + 1);
    let line = text[line_start..].lines().next().unwrap_or_default();
    let line: String = line.split_whitespace().collect();
    let is_access = line.starts_with("[[log.access]]")
        || line.starts_with("access=") && text.contains("[[log.access]]");
    match message == "duplicate key" && is_access {
        true => "access in [log] defines the only access log, so there can't be [[log.access]] as well; for several \
                 logs, move access (as to), format, fields, escape and the keys of binary logs from [log] to another \
                 [[log.access]]"
            .to_owned(),
        false => message.to_owned(),
    }
}

/// Reads `[[log.access]]`.
fn access_log(section: ConfigSection<'_>) -> Option<AccessLogConfig> {
    let path = section.required("to").and_then(|item| {
        let text = item.text()?;
        access_target(&item, text)
    });
    let conditions = conditions::conditions(&section);
    let (facility, tag) = messages::fields(&section, path.as_ref());
    let log = keys_of_log(&section, path, true);
    section.finish();
    log.map(|log| AccessLogConfig {
        conditions,
        facility: facility.unwrap_or(log.facility),
        tag: tag.unwrap_or(log.tag),
        ..log
    })
}

/// Reads the keys that `[log]` and `[[log.access]]` have. `has_target` is false if the log is off.
fn keys_of_log(
    section: &ConfigSection<'_>,
    path: Option<LogTarget>,
    has_target: bool,
) -> Option<AccessLogConfig> {
    let format = format::format(section);
    let binary = binary(section);
    check_binary(section, path.as_ref(), &format, has_target);
    Some(AccessLogConfig {
        binary,
        ..AccessLogConfig::new(path?, format)
    })
}

/// Reports two logs that write the same file: their lines would be mixed.
fn check_files(section: &ConfigSection<'_>, log: &LogConfig) {
    let paths = log.access.iter().map(|access| &access.path);
    let mut earlier = vec![(&log.error, "the error log")];
    for target in paths {
        let same = earlier.iter().find(|(other, _)| *other == target);
        if let (LogTarget::File(path), Some((_, other))) = (target, same) {
            section.report(
                format!(
                    "{} is the file of an access log and of {other}",
                    path.display()
                ),
                "a file for each log",
            );
        }
        earlier.push((target, "another access log"));
    }
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
fn check_binary(
    section: &ConfigSection<'_>,
    path: Option<&LogTarget>,
    format: &AccessLogFormat,
    has_target: bool,
) {
    if *format != AccessLogFormat::Binary {
        for key in BINARY_KEYS
            .iter()
            .filter(|key| !section.is_absent_or_empty(key))
        {
            section.report(
                format!("{key} is set, but format is not \"binary\""),
                "format = \"binary\" together with it; logrotate rotates files of lines",
            );
        }
    } else if !has_target {
        section.report(
            "format is \"binary\", but access is not set",
            "access = \"FILE\" together with it",
        );
    } else if path.is_some_and(|path| !matches!(path, LogTarget::File(_))) {
        section.report(
            "a binary access log can't go to stdout, stderr, syslog or the journal",
            "a file, which lowroad log reads",
        );
    }
}

/// The target of the access log of `[log]`, and whether there is such a log: not with `"off"`.
fn single_target(item: Option<&ConfigValue<'_>>) -> (Option<LogTarget>, bool) {
    let Some(item) = item else {
        return (None, false);
    };
    // The word `off` stands for no log, since TOML has no null.
    let text = item.text().filter(|text| *text != "off");
    (
        text.and_then(|text| access_target(item, text)),
        text.is_some(),
    )
}

fn error(section: &ConfigSection<'_>) -> Option<LogTarget> {
    let item = section.item("error")?;
    item.text().and_then(|text| target(&item, text))
}

/// The target of an access log.
fn access_target(item: &ConfigValue<'_>, text: &str) -> Option<LogTarget> {
    match messages::target(text) {
        Some(messages) => Some(LogTarget::Messages(messages)),
        None => target(item, text),
    }
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
                "a file, stdout or stderr; for access logs also journald, syslog, syslog:unix:/PATH, syslog:udp:HOST:PORT, syslog:tcp:HOST:PORT",
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
