//! `lowroad deny`: a thin client of `/v1/deny`.

use lowroad_http::method::Method;
use lowroad_log::civil_date;
use serde_json::{Value, json};

use super::commands::send_json;
use crate::cli::deny::{DenyArgs, DenyCommand};
use crate::terminal_output;

const TARGET: &str = "/v1/deny";

/// `lowroad deny`. Prints the list, after a change as well.
///
/// # Errors
/// The change was refused, or there is not exactly one running server.
pub fn run(args: &DenyArgs) -> Result<(), String> {
    let admin = args.admin.as_deref();
    let list = match &args.command {
        DenyCommand::List => send_json(admin, Method::Get, TARGET, None)?,
        DenyCommand::Add {
            addresses,
            duration,
        } => {
            let entries = addresses.iter().map(|address| match duration {
                Some(duration) => json!({ "address": address, "for": duration }),
                None => json!({ "address": address }),
            });
            let patch = json!({ "add": entries.collect::<Vec<Value>>() });
            change(args, patch)?
        }
        DenyCommand::Remove { addresses } => {
            // All of them or none: the server refuses the request if one is unknown.
            change(args, json!({ "remove": addresses }))?
        }
    };
    // The list after the change, as the server has it.
    let entries = list["entries"].as_array().into_iter().flatten();
    terminal_output::out(entries.map(line).collect::<String>())
}

/// Changes the list. Returns the new one.
fn change(args: &DenyArgs, mut patch: Value) -> Result<Value, String> {
    // Earlier versions of the server don't know the member, so that it is left out if it has no effect.
    if args.persist {
        patch["persist"] = true.into();
    }
    send_json(args.admin.as_deref(), Method::Patch, TARGET, Some(&patch))
}

/// An entry as a line: `192.0.2.7 until 2026-11-30T18:00:00Z`.
fn line(entry: &Value) -> String {
    let address = terminal_output::visible(entry["address"].as_str().unwrap_or_default());
    match entry["until_s"].as_u64() {
        Some(until_s) => format!(
            "{address} until {}Z\n",
            civil_date::rfc3339_seconds(until_s)
        ),
        None => format!("{address}\n"),
    }
}
