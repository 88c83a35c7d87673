//! `lowroad origin`: a thin client of `/v1/origins`.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lowroad_http::method::Method;
use lowroad_log::civil_date;
use serde_json::{Value, json};

use super::commands::{draining_processes, send_json};
use super::operations::encoded_segment;
use super::server_search::only_socket;
use super::upgrade_command::process_count;
use crate::cli::origin::{LeaveArgs, OriginArgs, OriginCommand, ServerArgs};
use crate::terminal_output;

/// The interval of checks for the end of requests.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// The outcome of `lowroad origin`.
pub enum OriginOutcome {
    /// The command is done.
    Done,
    /// The servers have left the rotation, but had requests when the time of `--wait` was over.
    StillBusy,
}

/// The server that a command changes, and whether the change survives a restart.
#[derive(Clone, Copy)]
struct ChangeTarget<'a> {
    admin: Option<&'a Path>,
    persist: bool,
}

impl ChangeTarget<'_> {
    /// Adds `persist` to the body of a change. Earlier versions of the server don't know the member, so that it is left out
    /// if it has no effect.
    fn mark(&self, body: &mut Value) {
        if self.persist {
            body["persist"] = true.into();
        }
    }
}

/// `lowroad origin`.
///
/// # Errors
/// There is no such origin or server, the change was refused, or there is not exactly one running server.
pub fn run(args: &OriginArgs) -> Result<OriginOutcome, String> {
    let target = ChangeTarget {
        admin: args.admin.as_deref(),
        persist: args.persist,
    };
    // The wait begins after the last server has left the rotation.
    perform(target, &args.command)?;
    match &args.command {
        OriginCommand::Drain(leave) | OriginCommand::Down(leave) => {
            wait_for_requests(target.admin, leave)
        }
        _ => Ok(OriginOutcome::Done),
    }
}

/// Performs a command, without waiting.
fn perform(target: ChangeTarget<'_>, command: &OriginCommand) -> Result<(), String> {
    let ChangeTarget { admin, persist } = target;
    match command {
        OriginCommand::List => {
            let answer = send_json(admin, Method::Get, "/v1/origins", None)?;
            print(list(&answer, "origins"))
        }
        OriginCommand::Show { origin } => {
            print([&send_json(admin, Method::Get, &origin_path(origin), None)?])
        }
        OriginCommand::Drain(LeaveArgs { servers, .. }) => set_state(target, servers, "drain"),
        OriginCommand::Down(LeaveArgs { servers, .. }) => set_state(target, servers, "down"),
        OriginCommand::Ready(servers) => set_state(target, servers, "ready"),
        OriginCommand::Force(servers) => set_state(target, servers, "force"),
        OriginCommand::Weight {
            origin,
            address,
            weight,
        } => change(target, origin, address, json!({ "weight": weight.0 })),
        OriginCommand::Add {
            origin,
            address,
            weight,
            backup,
        } => {
            let mut server = json!({ "address": address, "weight": weight, "backup": backup });
            target.mark(&mut server);
            let servers = format!("{}/servers", origin_path(origin));
            print([&send_json(admin, Method::Post, &servers, Some(&server))?])
        }
        OriginCommand::Remove { origin, address } => {
            let mut path = server_path(origin, address);
            if persist {
                path += "?persist=true";
            }
            print([&send_json(admin, Method::Delete, &path, None)?])
        }
    }
}

/// The addresses of the servers that a command names.
fn addresses(admin: Option<&Path>, servers: &ServerArgs) -> Result<Vec<String>, String> {
    if let Some(address) = &servers.address {
        return Ok(vec![address.clone()]);
    }
    let origin = send_json(admin, Method::Get, &origin_path(&servers.origin), None)?;
    let addresses = list(&origin, "servers").map(|server| text(server, "address"));
    Ok(addresses.collect())
}

/// Sets the state of one server, or of all servers of an origin.
fn set_state(target: ChangeTarget<'_>, servers: &ServerArgs, state: &str) -> Result<(), String> {
    let addresses = addresses(target.admin, servers)?;
    // A forgotten address would take the whole origin out of service.
    if addresses.len() > 1 && !servers.all {
        return Err(format!(
            "the origin {} has {} servers: name one, or use --all; they are {}",
            servers.origin,
            addresses.len(),
            addresses.join(", ")
        ));
    }
    // One after another: if one is refused, those before it are changed, and have been printed.
    for address in &addresses {
        change(target, &servers.origin, address, json!({ "state": state }))?;
    }
    Ok(())
}

/// Waits until the servers have no requests, if the command has `--wait`.
fn wait_for_requests(admin: Option<&Path>, leave: &LeaveArgs) -> Result<OriginOutcome, String> {
    let Some(timeout) = leave.wait else {
        return Ok(OriginOutcome::Done);
    };
    let origin = &leave.servers.origin;
    let addresses = addresses(admin, &leave.servers)?;
    let started = Instant::now();
    loop {
        let view = send_json(admin, Method::Get, &origin_path(origin), None)?;
        // A server that has left the origin meanwhile, as one of a name, gets no requests either.
        let mut servers =
            list(&view, "servers").filter(|it| addresses.contains(&text(it, "address")));
        let busy = servers.find(|server| requests(server) > 0).map(|server| {
            let count = request_count(requests(server));
            format!("{origin} {} still has {count}", text(server, "address"))
        });
        let rest = match busy {
            Some(busy) => Some(busy),
            None => draining_requests(admin)?,
        };
        let Some(rest) = rest else {
            return Ok(OriginOutcome::Done);
        };
        if started.elapsed() >= timeout {
            terminal_output::note(format_args!("{rest} after {} s", timeout.as_secs_f64()));
            // The change itself has succeeded, so this is no failure.
            return Ok(OriginOutcome::StillBusy);
        }
        thread::sleep(WAIT_INTERVAL);
    }
}

/// The processes that the server has replaced, if some have not ended. Their requests are not known here, so each of them may
/// have one.
fn draining_requests(admin: Option<&Path>) -> Result<Option<String>, String> {
    let draining = draining_processes(&only_socket(admin)?)?;
    let text = || format!("{} may still have requests", process_count(draining));
    Ok((draining > 0).then(text))
}

/// The requests in progress at a server. Those of the only server of an origin are not counted, but its connections are.
fn requests(server: &Value) -> u64 {
    let requests = server["requests"].as_u64();
    requests.unwrap_or_else(|| server["connections"].as_u64().unwrap_or(0))
}

/// Changes a server, and prints its new state.
fn change(
    target: ChangeTarget<'_>,
    origin: &str,
    address: &str,
    mut patch: Value,
) -> Result<(), String> {
    target.mark(&mut patch);
    let path = server_path(origin, address);
    let server = send_json(target.admin, Method::Patch, &path, Some(&patch))?;
    terminal_output::out(server_line(origin, &server))
}

fn request_count(count: u64) -> String {
    match count {
        1 => "1 request".to_owned(),
        _ => format!("{count} requests"),
    }
}

fn origin_path(origin: &str) -> String {
    format!("/v1/origins/{}", encoded_segment(origin))
}

fn server_path(origin: &str, address: &str) -> String {
    format!(
        "{}/servers/{}",
        origin_path(origin),
        encoded_segment(address)
    )
}

/// Prints a line for each server.
fn print<'v>(origins: impl IntoIterator<Item = &'v Value>) -> Result<(), String> {
    let mut lines = String::new();
    for origin in origins {
        let name = text(origin, "name");
        lines.extend(list(origin, "servers").map(|server| server_line(&name, server)));
    }
    terminal_output::out(lines)
}

/// One server as a line: `app 10.0.0.1:3000: state drain, health up, weight 1, 2 requests, 1 connections`.
fn server_line(origin: &str, server: &Value) -> String {
    let mut line = format!(
        "{origin} {}: state {}, health {}",
        text(server, "address"),
        text(server, "state"),
        text(server, "health")
    );
    if server["backup"] == true {
        line += ", backup";
    }
    if server["added"] == true {
        line += ", added";
    }
    line += &format!(", weight {}", server["weight"]);
    if server["weight"] != server["configured_weight"] {
        line += &format!(" (configured: {})", server["configured_weight"]);
    }
    if let Some(requests) = server["requests"].as_u64() {
        line += &format!(", {}", request_count(requests));
    }
    match server["connections"].as_u64() {
        Some(1) => line += ", 1 connection",
        _ => line += &format!(", {} connections", server["connections"]),
    }
    if let Some(failure) = server["latest_failure"].as_str() {
        line += &format!("; latest failure: {failure}");
        if let Some(unix_s) = server["latest_failure_s"].as_u64() {
            line += &format!(" ({}Z)", civil_date::rfc3339_seconds(unix_s));
        }
    }
    // Addresses and failures are foreign texts: a line break in them must not imitate another server.
    terminal_output::visible(&line.replace(['\n', '\t'], " ")) + "\n"
}

fn list<'v>(value: &'v Value, member: &str) -> impl Iterator<Item = &'v Value> {
    value[member].as_array().into_iter().flatten()
}

fn text(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_one_line() {
        let mut server = json!({
            "address": "10.0.0.1:80", "health": "up", "state": "drain", "weight": 3,
            "configured_weight": 1, "backup": false, "added": false, "requests": 2, "connections": 1,
            "idle_connections": 4, "latest_failure": null,
        });
        assert_eq!(
            server_line("app", &server),
            "app 10.0.0.1:80: state drain, health up, weight 3 (configured: 1), 2 requests, 1 connection\n"
        );
        server["address"] = "unix:/a\u{9b}2J\nb".into();
        let line = server_line("app\u{202e}", &server);
        assert!(
            line.starts_with("app\\u202e unix:/a\\u009b2J b: state drain"),
            "{line}"
        );
        server["address"] = "10.0.0.1:80".into();
        server["state"] = "force".into();
        server["health"] = "down".into();
        server["requests"] = Value::Null;
        server["weight"] = 1.into();
        server["added"] = true.into();
        server["latest_failure"] = "refused".into();
        server["latest_failure_s"] = 86_400.into();
        assert_eq!(
            server_line("app", &server),
            "app 10.0.0.1:80: state force, health down, added, weight 1, 1 connection; latest failure: refused (1970-01-02T00:00:00Z)\n"
        );
        assert_eq!(
            server_path("http://a:1", "unix:/x"),
            "/v1/origins/http:%2F%2Fa:1/servers/unix:%2Fx"
        );
    }
}
