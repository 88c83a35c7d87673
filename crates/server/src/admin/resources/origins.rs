//! `/v1/origins`: the servers of origins, their states and weights.

use lowroad_handler::origin_control::{
    AddedServer, OriginControl, OriginRefusal, OriginView, ServerChange, ServerMode, ServerView,
};
use lowroad_http::status::StatusCode;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{changed, reply, tag};
use crate::admin::call::AdminCall;
use crate::admin::persistence::ChangePersistence;
use crate::admin::problem::AdminProblem;
use crate::admin::service::{AdminOutcome, AdminReply};
use crate::running_server::RunningServer;

/// The weights of servers, as in the configuration.
const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=1000;

/// The body of `PATCH /v1/origins/{origin}/servers/{address}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerPatch {
    state: Option<WantedState>,
    /// `null`: the configured weight.
    #[serde(default, deserialize_with = "present")]
    weight: Option<Option<u32>>,
    #[serde(default)]
    persist: bool,
}

/// The body of `POST /v1/origins/{origin}/servers`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewServer {
    address: String,
    #[serde(default = "one")]
    weight: u32,
    #[serde(default)]
    backup: bool,
    #[serde(default)]
    state: WantedState,
    #[serde(default)]
    persist: bool,
}

/// The state that an operator requests for a server. Read from a string: an enum would also accept an object with one member.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(try_from = "String")]
struct WantedState(ServerMode);

impl TryFrom<String> for WantedState {
    type Error = String;

    fn try_from(name: String) -> Result<WantedState, String> {
        let names = ServerMode::NAMES.map(|(_, name)| name).join(", ");
        ServerMode::from_name(&name)
            .map(WantedState)
            .ok_or_else(|| format!("state {name:?}: the states are {names}"))
    }
}

fn one() -> u32 {
    1
}

/// Distinguishes a member that is null from a missing one.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

/// `GET /v1/origins`
///
/// # Errors
/// The build has no reverse proxy.
pub fn list(running: &RunningServer) -> AdminOutcome {
    let views = control(running)?.views();
    let origins: Vec<Value> = views.iter().map(origin_state).collect();
    let settings: Vec<Value> = views.iter().map(origin_settings).collect();
    Ok(reply(&json!({ "origins": origins }), &settings.into()))
}

/// `GET /v1/origins/{origin}`
///
/// # Errors
/// There is no such origin.
pub fn show(running: &RunningServer, call: &AdminCall) -> AdminOutcome {
    let view = origin(control(running)?, call.request.segment(0))?;
    Ok(reply(&origin_state(&view), &origin_settings(&view)))
}

/// `GET /v1/origins/{origin}/servers/{address}`
///
/// # Errors
/// There is no such server.
pub fn show_server(running: &RunningServer, call: &AdminCall) -> AdminOutcome {
    let view = server(control(running)?, call)?;
    Ok(reply(&server_state(&view), &server_settings(&view)))
}

/// `PATCH /v1/origins/{origin}/servers/{address}`
///
/// # Errors
/// There is no such server, the body is malformed, or the condition does not hold.
pub fn change_server(running: &RunningServer, call: &AdminCall) -> AdminOutcome {
    let patch: ServerPatch = call.json()?;
    // Checked before the server is looked up, so that a malformed body has the same answer for every server.
    if let Some(Some(weight)) = patch.weight {
        check_weight(weight)?;
    }
    let change = ServerChange {
        mode: patch.state.map(|WantedState(mode)| mode),
        weight: patch.weight,
    };
    // Probably a mistake: an empty change would otherwise succeed and be in the audit.
    if change == ServerChange::default() {
        return Err(AdminProblem::bad_request(
            "the body changes nothing: set state, weight or both",
        ));
    }
    let control = control(running)?;
    // The caller holds the server's lock from the comparison of the tag to the change, so no other change is in between.
    let before = server_settings(&server(control, call)?);
    call.check_match(&tag(&before))?;
    let persistence = ChangePersistence::begin(running, patch.persist)?;
    let (origin, address) = (call.request.segment(0), call.request.segment(1));
    control
        .change_server(origin, address, change)
        .map_err(refused)?;
    let saved = persistence.finish(|saved| saved.set_server(control, origin, address));
    // Read again, since the weight may be that of the configuration.
    let view = server(control, call)?;
    saved.reply(changed(
        before,
        server_settings(&view),
        &server_state(&view),
    ))
}

/// `POST /v1/origins/{origin}/servers`
///
/// # Errors
/// The origin can't have another server, the body is malformed, or the condition, of the origin, does not hold.
pub fn add_server(running: &RunningServer, call: &AdminCall) -> AdminOutcome {
    let new: NewServer = call.json()?;
    check_weight(new.weight)?;
    let control = control(running)?;
    let name = call.request.segment(0);
    // The condition is about the whole origin: the server does not exist yet.
    let before = origin_settings(&origin(control, name)?);
    call.check_match(&tag(&before))?;
    let persistence = ChangePersistence::begin(running, new.persist)?;
    let added = AddedServer {
        address: new.address,
        weight: new.weight,
        is_backup: new.backup,
        mode: new.state.0,
    };
    let address = control.add_server(name, &added).map_err(refused)?;
    let saved = persistence.finish(|saved| saved.set_server(control, name, &address));
    let view = origin(control, name)?;
    saved.reply(AdminReply {
        status: StatusCode::CREATED,
        ..changed(before, origin_settings(&view), &origin_state(&view))
    })
}

/// `DELETE /v1/origins/{origin}/servers/{address}`
///
/// # Errors
/// The server is configured, there is no such server, or the condition, of the server, does not hold.
pub fn remove_server(running: &RunningServer, call: &AdminCall) -> AdminOutcome {
    let control = control(running)?;
    let (name, address) = (call.request.segment(0), call.request.segment(1));
    let view = origin(control, name)?;
    // The audit shows the whole origin, as for an added server.
    let before = origin_settings(&view);
    call.check_match(&tag(&server_settings(&server_of(view, address)?)))?;
    let persistence = ChangePersistence::begin(running, is_persistent(call)?)?;
    control.remove_server(name, address).map_err(refused)?;
    let saved = persistence.finish(|saved| saved.set_server(control, name, address));
    let view = origin(control, name)?;
    saved.reply(changed(
        before,
        origin_settings(&view),
        &origin_state(&view),
    ))
}

/// The parameter `persist` of a request without a body.
fn is_persistent(call: &AdminCall) -> Result<bool, AdminProblem> {
    match call.request.parameter("persist") {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(AdminProblem::bad_request(format!(
            "persist={other}: the values are true and false"
        ))),
    }
}

fn control(running: &RunningServer) -> Result<&dyn OriginControl, AdminProblem> {
    running
        .handler_runtime
        .origin_control()
        .ok_or_else(|| AdminProblem::not_found("this build has no reverse proxy"))
}

fn origin(control: &dyn OriginControl, name: &str) -> Result<OriginView, AdminProblem> {
    let mut views = control.views();
    // A few origins at most, so a search is cheap enough for an operator.
    match views.iter().position(|view| view.name == name) {
        Some(index) => Ok(views.swap_remove(index)),
        None => {
            let names = views.into_iter().map(|view| view.name).collect();
            Err(refused(OriginRefusal::UnknownOrigin(names)))
        }
    }
}

fn server(control: &dyn OriginControl, call: &AdminCall) -> Result<ServerView, AdminProblem> {
    let (name, address) = (call.request.segment(0), call.request.segment(1));
    server_of(origin(control, name)?, address)
}

fn server_of(origin: OriginView, address: &str) -> Result<ServerView, AdminProblem> {
    let mut servers = origin.servers;
    // The names in the refusal are those that the client could have meant.
    match servers.iter().position(|server| server.address == address) {
        Some(index) => Ok(servers.swap_remove(index)),
        None => {
            let addresses = servers.into_iter().map(|server| server.address).collect();
            Err(refused(OriginRefusal::UnknownServer(addresses)))
        }
    }
}

fn check_weight(weight: u32) -> Result<(), AdminProblem> {
    match WEIGHTS.contains(&weight) {
        true => Ok(()),
        false => Err(AdminProblem::bad_request(format!(
            "weight {weight}: allowed are {} to {}; the state down takes a server out of service",
            WEIGHTS.start(),
            WEIGHTS.end()
        ))),
    }
}

fn refused(refusal: OriginRefusal) -> AdminProblem {
    // A missing origin or server is a wrong path; the others contradict the present state.
    let status = match &refusal {
        OriginRefusal::UnknownOrigin(_) | OriginRefusal::UnknownServer(_) => StatusCode::NOT_FOUND,
        OriginRefusal::InvalidAddress(_) => StatusCode::BAD_REQUEST,
        OriginRefusal::NoGroup
        | OriginRefusal::Exists
        | OriginRefusal::IsConfigured
        | OriginRefusal::FastCgi
        | OriginRefusal::TooMany(_) => StatusCode::CONFLICT,
    };
    AdminProblem::new(status, refusal.to_string())
}

fn origin_state(view: &OriginView) -> Value {
    let servers: Vec<Value> = view.servers.iter().map(server_state).collect();
    json!({ "name": view.name, "servers": servers })
}

fn origin_settings(view: &OriginView) -> Value {
    let servers: Vec<Value> = view.servers.iter().map(server_settings).collect();
    json!({ "name": view.name, "servers": servers })
}

/// The settings of a server that operators can change, and its address.
fn server_settings(view: &ServerView) -> Value {
    json!({
        "address": view.address,
        "state": view.mode.as_str(),
        "weight": view.weight,
        "backup": view.is_backup,
        "added": view.is_added,
    })
}

fn server_state(view: &ServerView) -> Value {
    // The settings, then the counters and states, which are not part of the tag.
    let mut state = server_settings(view);
    state["health"] = (&*view.health).into();
    state["is_available"] = view.is_available.into();
    state["configured_weight"] = view.configured_weight.into();
    state["requests"] = view.requests.into();
    state["connections"] = view.connections.into();
    state["idle_connections"] = view.idle_connections.into();
    let failure = view.latest_failure.as_ref();
    state["latest_failure"] = failure.map(|it| it.reason.as_str()).into();
    state["latest_failure_s"] = failure.map(|it| it.unix_s).into();
    state
}
