//! The `lowroad-lab` program: its commands. Each command is implemented in the module of its name.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lowroad_lab::{experiment, howl, icount, load, log_size, peers, report, workload};

/// Load generator, workloads, peers and figures for web servers
#[derive(Parser)]
#[command(name = "lowroad-lab", version, max_term_width = 100)]
struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    Load(Box<load::cli::LoadArgs>),
    Files(workload::cli::WorkloadArgs),
    Peers(peers::cli::PeersArgs),
    Howl(howl::HowlArgs),
    Run(experiment::cli::ExperimentArgs),
    Icount(icount::cli::IcountArgs),
    Report(report::cli::ReportArgs),
    LogSize(log_size::LogSizeArgs),
}

fn main() -> ExitCode {
    let result = match LabArgs::parse().command {
        LabCommand::Load(args) => load::cli::run(&args),
        LabCommand::Files(args) => workload::cli::run(&args),
        LabCommand::Peers(args) => peers::cli::run(&args),
        LabCommand::Howl(args) => howl::run(&args),
        LabCommand::Run(args) => experiment::cli::run(&args),
        LabCommand::Icount(args) => icount::cli::run(&args),
        LabCommand::Report(args) => report::cli::run(&args),
        LabCommand::LogSize(args) => log_size::run(&args),
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

    /// A `{n}` in a help text would be printed as a line break by clap, so no help text may contain one.
    #[test]
    fn help_texts_contain_no_line_break_placeholder() {
        fn assert_no_placeholder(command: &Command) {
            for option in command.get_arguments() {
                for help in [option.get_help(), option.get_long_help()] {
                    let help = help.map(ToString::to_string).unwrap_or_default();
                    assert!(!help.contains("{n}"), "{}: {help}", option.get_id());
                }
            }
            command.get_subcommands().for_each(assert_no_placeholder);
        }
        assert_no_placeholder(&LabArgs::command());
    }
}
