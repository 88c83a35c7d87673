//! The commands that query or control running servers through their admin sockets: `status`, `explain`, `purge`,
//! `reload`, `maintenance` and `stop`.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_config::EffectiveConfig;
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_response_cache::purge::PurgeReport;
use serde_json::Value;

use super::http_client::{self, AdminResponse};
use super::operations::encoded;
use super::server_search::{
    FoundSockets, connect_failure, find_sockets, listener_process, no_server, only_socket,
    remove_if_dead,
};
use crate::cli::ExplainArgs;
use crate::cli::servers::{ControlArgs, MaintenanceArgs, MaintenanceSwitch, PurgeArgs};
use crate::status::DRAINING_PROCESSES;
use crate::terminal_output;

/// Timeout of a read.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time from the end of the response to `stop` to the end of the process.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const END_INTERVAL: Duration = Duration::from_millis(50);

/// Selects the server processes to query when no socket is named.
pub type ServerFilter<'a> = &'a dyn Fn(u32) -> bool;

/// Selects all servers.
pub const EVERY_SERVER: ServerFilter<'static> = &|_| true;

/// Why no server has purged anything.
pub enum PurgeFailure {
    /// No server was reached.
    NoServer(String),
    /// The servers have refused the request.
    Refused(String),
}

impl PurgeFailure {
    /// The reasons.
    pub fn into_text(self) -> String {
        match self {
            PurgeFailure::NoServer(text) | PurgeFailure::Refused(text) => text,
        }
    }
}

/// Purges stored responses in all selected servers, or only in those that listen on the given port. Returns each
/// server's result.
///
/// # Errors
/// No server has purged anything: the reasons.
pub fn request_purge(
    purge: &PurgeArgs,
    is_selected: ServerFilter<'_>,
) -> Result<Vec<PurgeReport>, PurgeFailure> {
    let mut target = format!("/v1/purge?target={}", encoded(&purge.what));
    if let Some(port) = purge.port {
        target.push_str(&format!("&port={port}"));
    }
    if purge.soft {
        target.push_str("&soft=1");
    }
    let admin = purge.admin.as_deref();
    let answers = ServerAnswers::query(admin, is_selected, Method::Post, &target)
        .map_err(PurgeFailure::NoServer)?;
    // A server that was not purged may still send the response that the user wants removed.
    answers.note_failures();
    let (mut purged, mut refusals) = (Vec::<PurgeReport>::new(), Vec::new());
    for (path, response) in answers.responses {
        let report = response.into_text().and_then(|text| {
            let unknown = |()| format!("{}: another version of Lowroad", path.display());
            text.parse().map_err(unknown)
        });
        match report {
            Ok(report) => purged.push(report),
            Err(refusal) => refusals.push(refusal),
        }
    }
    if purged.is_empty() {
        return Err(PurgeFailure::Refused(refusals.join("\n")));
    }
    if purged.iter().any(|purged| !purged.is_durable) {
        terminal_output::note(
            "a server could not record the purge: after a restart its disk cache may contain the responses again",
        );
    }
    Ok(purged)
}

/// `lowroad explain`: prints the explanation of the running server.
///
/// # Errors
/// When no running server serves the URL.
pub fn print_explanation(
    explain: &ExplainArgs,
    is_selected: ServerFilter<'_>,
) -> Result<(), String> {
    explanation(explain, is_selected).and_then(terminal_output::out)
}

/// Returns the running server's response to `lowroad explain`.
///
/// # Errors
/// When no running server serves the URL.
pub fn explanation(explain: &ExplainArgs, is_selected: ServerFilter<'_>) -> Result<String, String> {
    if let Some(bad) = explain.headers.iter().find(|field| !field.contains(':')) {
        return Err(format!("-H {bad}: not a field (allowed: NAME: VALUE)"));
    }
    // The server needs an absolute URL; people leave out the scheme.
    let url = if explain.url.contains("://") {
        explain.url.clone()
    } else {
        format!("http://{}", explain.url)
    };
    let (url, method) = (encoded(&url), encoded(&explain.method));
    let mut target = format!("/v1/explain?url={url}&method={method}");
    for header in &explain.headers {
        target.push_str(&format!("&header={}", encoded(header)));
    }
    let admin = explain.admin.as_deref();
    let answers = ServerAnswers::query(admin, is_selected, Method::Get, &target)?;
    let mut refusals = Vec::new();
    for (_, response) in answers.responses {
        // Another server may listen at the URL.
        let is_elsewhere = response.status == StatusCode::NOT_FOUND;
        match response.into_text() {
            Ok(text) => return Ok(text),
            Err(refusal) => refusals.push((!is_elsewhere, refusal)),
        }
    }
    // The reason of a server that listens there, if there is one.
    refusals.sort_by_key(|(listens_there, _)| *listens_there);
    let refusal = refusals.pop().map(|(_, refusal)| refusal);
    Err(refusal.unwrap_or_else(|| no_server(&answers.failures)))
}

/// `lowroad status`: prints the counters of the running servers.
///
/// # Errors
/// When no running server answers.
pub fn print_status(admin: Option<&Path>) -> Result<(), String> {
    let answers = ServerAnswers::query(admin, EVERY_SERVER, Method::Get, "/v1/status")?;
    answers.note_failures();
    let texts: Result<Vec<String>, String> = answers
        .responses
        .into_iter()
        .map(|(_, response)| response.into_text())
        .collect();
    terminal_output::out(texts?.concat())
}

/// The servers for `lowroad status --json`: the metrics of each, with the path of its admin socket.
///
/// # Errors
/// When no running server answers.
pub fn status_values(admin: Option<&Path>) -> Result<Vec<Value>, String> {
    let answers = ServerAnswers::query(admin, EVERY_SERVER, Method::Get, "/v1/snapshot")?;
    answers.note_failures();
    let values = answers.responses.into_iter().map(|(path, response)| {
        let text = response.into_text()?;
        let value: Result<Value, _> = serde_json::from_str(&text);
        let mut value = value.map_err(|error| format!("{}: {error}", path.display()))?;
        value["admin"] = path.display().to_string().into();
        Ok(value)
    });
    values.collect()
}

/// The number of processes that the server at this socket has replaced and that have not ended.
///
/// # Errors
/// The server does not answer, or is another version.
pub(super) fn draining_processes(path: &Path) -> Result<u64, String> {
    let response = http_client::call(path, Method::Get, "/v1/status", Some(TIMEOUT))
        .map_err(|error| connect_failure(path, &error))?;
    let text = response.into_text()?;
    let mut lines = text.lines().filter_map(|line| line.trim().split_once(' '));
    // Versions without this line can't tell, so their drains must not seem to be over.
    let count = lines.find(|(name, _)| *name == DRAINING_PROCESSES);
    let count = count.and_then(|(_, value)| value.trim().parse().ok());
    count.ok_or_else(|| format!("{}: another version of Lowroad", path.display()))
}

/// The values in force of the only running server, without secrets.
///
/// # Errors
/// When there is not exactly one server, or it was started without a configuration file.
pub fn running_config(admin: Option<&Path>) -> Result<RunningConfig, String> {
    let path = only_socket(admin)?;
    let response = http_client::call(&path, Method::Get, "/v1/config", Some(TIMEOUT))
        .map_err(|error| connect_failure(&path, &error))?;
    let text = response.into_text()?;
    let value: Option<Value> = serde_json::from_str(&text).ok();
    let config = value.as_ref().and_then(|value| {
        Some(RunningConfig {
            file: value.get("file")?.as_str()?.into(),
            effective: EffectiveConfig::from_json(value)?,
        })
    });
    config.ok_or_else(|| format!("{}: another version of Lowroad", path.display()))
}

/// The configuration of a running server.
pub struct RunningConfig {
    /// The main file, which a reload reads.
    pub file: PathBuf,
    /// The values in force.
    pub effective: EffectiveConfig,
}

/// `lowroad reload`: waits until the configuration is in force.
///
/// # Errors
/// When the new configuration is invalid and the previous one stays in force, or if there is not exactly one server.
pub fn reload(args: &ControlArgs) -> Result<(), String> {
    let text = send_command(args, "/v1/reload")?.into_text()?;
    terminal_output::out(text)
}

/// Sends a request to the only running server, with a JSON body if there is one, and returns the JSON of its response.
///
/// # Errors
/// The server refuses the request, or there is not exactly one server.
pub fn send_json(
    admin: Option<&Path>,
    method: Method,
    target: &str,
    body: Option<&Value>,
) -> Result<Value, String> {
    let path = only_socket(admin)?;
    // A change is never sent to several servers by accident.
    let body = body.map(Value::to_string);
    let response = http_client::call_with(&path, method, target, body.as_deref(), Some(TIMEOUT))
        .map_err(|error| connect_failure(&path, &error))?;
    let text = response.into_text()?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// `lowroad maintenance`.
///
/// # Errors
/// When there is no such site, or not exactly one server.
pub fn maintenance(args: &MaintenanceArgs) -> Result<(), String> {
    let mode = match args.mode {
        MaintenanceSwitch::On => "on",
        MaintenanceSwitch::Off => "off",
    };
    let mut target = format!("/v1/maintenance?mode={mode}");
    if let Some(site) = &args.site {
        target += &format!("&site={}", encoded(site));
    }
    // Like a reload, the switch is never sent to several servers by accident.
    let server = ControlArgs {
        admin: args.admin.clone(),
    };
    terminal_output::out(send_command(&server, &target)?.into_text()?)
}

/// `lowroad stop`: waits until the server process has ended.
///
/// # Errors
/// When there is not exactly one server.
pub fn stop(args: &ControlArgs) -> Result<(), String> {
    let path = only_socket(args.admin.as_deref())?;
    let response = send_command_to(&path, "/v1/stop")?;
    // The server's end cuts its response off.
    let process = response.into_text()?;
    remove_left_socket(&path);
    terminal_output::out(format_args!("process {} has ended\n", process.trim()))
}

/// Removes the socket's file, if the server can't: it has given up root, and the folder is root's.
fn remove_left_socket(path: &Path) {
    let end = Instant::now() + END_TIMEOUT;
    // The response ends shortly before the process.
    while path.exists() && Instant::now() < end {
        remove_if_dead(path);
        thread::sleep(END_INTERVAL);
    }
}

/// Sends a command to the only running server, and waits for its response without a timeout.
fn send_command(args: &ControlArgs, target: &str) -> Result<AdminResponse, String> {
    // Commands that change a server are never sent to several by accident.
    send_command_to(&only_socket(args.admin.as_deref())?, target)
}

/// Sends a command to the server at this socket, and waits for its response without a timeout.
pub(super) fn send_command_to(path: &Path, target: &str) -> Result<AdminResponse, String> {
    // No timeout: applications of a new configuration, or a drain, may take long.
    http_client::call(path, Method::Post, target, None)
        .map_err(|error| connect_failure(path, &error))
}

/// Returns each running server's response to `lowroad status`.
pub fn statuses() -> Vec<String> {
    let answers = ServerAnswers::query(None, EVERY_SERVER, Method::Get, "/v1/status");
    let responses = answers.map(|answers| answers.responses).unwrap_or_default();
    let texts = responses
        .into_iter()
        .map(|(_, response)| response.into_text());
    texts.filter_map(Result::ok).collect()
}

/// The responses of the selected servers.
struct ServerAnswers {
    /// The complete responses, with the sockets.
    responses: Vec<(PathBuf, AdminResponse)>,
    /// Why other servers could not be asked.
    failures: Vec<String>,
}

impl ServerAnswers {
    /// Sends a request to the named socket, otherwise to all selected servers.
    ///
    /// # Errors
    /// No server has answered: the reasons.
    fn query(
        admin: Option<&Path>,
        is_selected: ServerFilter<'_>,
        method: Method,
        target: &str,
    ) -> Result<ServerAnswers, String> {
        let mut found = match admin {
            Some(path) => FoundSockets {
                sockets: vec![path.to_path_buf()],
                failures: Vec::new(),
            },
            None => find_sockets(),
        };
        if admin.is_none() {
            found
                .sockets
                .retain(|path| listener_process(path).is_none_or(is_selected));
        }
        let mut answers = ServerAnswers {
            responses: Vec::new(),
            failures: found.failures,
        };
        // A server that is shutting down, or belongs to another user, must not keep the others from answering.
        for path in found.sockets {
            match http_client::call(&path, method, target, Some(TIMEOUT)) {
                Ok(response) if response.is_complete => answers.responses.push((path, response)),
                Ok(_) => answers.fail(&path, &ErrorKind::UnexpectedEof.into()),
                // Left behind by a killed server: without --admin this is no server.
                Err(error)
                    if admin.is_none()
                        && matches!(
                            error.kind(),
                            ErrorKind::ConnectionRefused | ErrorKind::NotFound
                        ) => {}
                Err(error) => answers.fail(&path, &error),
            }
        }
        match answers.responses.is_empty() {
            true => Err(no_server(&answers.failures)),
            false => Ok(answers),
        }
    }

    fn fail(&mut self, path: &Path, error: &io::Error) {
        self.failures.push(connect_failure(path, error));
    }

    /// Prints why other servers could not be asked.
    fn note_failures(&self) {
        self.failures.iter().for_each(terminal_output::note);
    }
}
