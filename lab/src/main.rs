//! The `lowroad-lab` program: its commands. What each does is in the module of its name.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lowroad_lab::{experiment, howl, icount, load, peers, report, workload};

/// Load generator, workloads, peers and figures for web servers
#[derive(Parser)]
#[command(name = "lowroad-lab", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Load(Box<load::cli::Args>),
    Files(workload::cli::Args),
    Peers(peers::cli::Args),
    Howl(howl::Args),
    Run(experiment::cli::Args),
    Icount(icount::cli::Args),
    Report(report::cli::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Load(args) => load::cli::run(&args),
        Command::Files(args) => workload::cli::run(&args),
        Command::Peers(args) => peers::cli::run(&args),
        Command::Howl(args) => howl::run(&args),
        Command::Run(args) => experiment::cli::run(&args),
        Command::Icount(args) => icount::cli::run(&args),
        Command::Report(args) => report::cli::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lowroad-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;

    /// The parser of options has a mark for a line break, which no help can have as words.
    #[test]
    fn no_help_is_broken_by_a_placeholder() {
        fn assert_whole(command: &Command) {
            for option in command.get_arguments() {
                for help in [option.get_help(), option.get_long_help()] {
                    let help = help.map(ToString::to_string).unwrap_or_default();
                    assert!(!help.contains("{n}"), "{}: {help}", option.get_id());
                }
            }
            command.get_subcommands().for_each(assert_whole);
        }
        assert_whole(&Cli::command());
    }
}
