//! The daemon's rules for storing responses, from its command line. `explain` uses this module for a running daemon, so
//! that it applies the same rules.

use std::path::Path;

use clap::Parser;
use lowroad_softirq::learner::LearnSettings;
use lowroad_softirq::programs::links;

use super::placement;
use crate::cli::softirq::AttachArgs;
use crate::cli::{CliCommand, CommandLine};
use crate::softirq::managed_level;
use crate::softirq::policy::AttachPolicy;

/// The rules of a daemon with these arguments, before they are adapted to the attached programs.
///
/// # Errors
/// A message for the user.
pub fn learn_settings(args: &AttachArgs) -> Result<LearnSettings, String> {
    Ok(learn_settings_for(&AttachPolicy::from_args(args)?, args))
}

/// The rules for a policy that was already parsed.
pub fn learn_settings_for(policy: &AttachPolicy, args: &AttachArgs) -> LearnSettings {
    let sizes = placement::sizes(args);
    // A sixteenth is kept in reserve, because map entries that were just released are not available immediately.
    let with_reserve = |all: u32| all - all / 16;
    let bounds = LearnSettings {
        published_max: lowroad_softirq::width::index(with_reserve(sizes.response_slots())),
        published_bytes_max: with_reserve(sizes.store_len()).into(),
        ..LearnSettings::default()
    };
    if args.own {
        return managed_level::learning(bounds);
    }
    policy.learning(bounds)
}

/// Limits the rules to the capabilities of the attached programs: the number of a response's segments.
#[must_use]
pub fn limit_to_programs(learning: LearnSettings, folder: &Path) -> LearnSettings {
    LearnSettings {
        keep_alive_parts_max: links::keep_alive_parts_max(folder)
            .min(learning.keep_alive_parts_max),
        ..learning
    }
}

/// The arguments of the daemon with this process number.
#[must_use]
pub fn daemon_arguments(pid: u32) -> Option<AttachArgs> {
    // Arguments are separated by NUL bytes (proc_pid_cmdline(5)).
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(|word| String::from_utf8_lossy(word)).collect();
    match CommandLine::try_parse_from(words.iter().map(|word| &**word)) {
        Ok(CommandLine {
            command: CliCommand::Attach(attach),
        }) => Some(attach),
        _ => None,
    }
}
