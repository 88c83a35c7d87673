//! `/v1/deny`: the client addresses that are refused.

use std::collections::BTreeSet;

use lowroad_config::value;
use lowroad_http::status::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{reply, tag};
use crate::admin::audit::AuditedChange;
use crate::admin::call::AdminCall;
use crate::admin::persistence::ChangePersistence;
use crate::admin::problem::AdminProblem;
use crate::admin::service::AdminReply;
use crate::deny_list::{DenyEntry, DenyList, DenySwitch, ENTRIES_MAX, unix_s};
use crate::running_server::RunningServer;

/// The entries that a line of the audit names.
const AUDITED_MAX: usize = 100;

/// The body of `PUT /v1/deny`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedList {
    entries: Vec<WantedEntry>,
    #[serde(default)]
    persist: bool,
}

/// The body of `PATCH /v1/deny`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListPatch {
    #[serde(default)]
    add: Vec<WantedEntry>,
    #[serde(default)]
    remove: Vec<String>,
    #[serde(default)]
    persist: bool,
}

/// An entry in a body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedEntry {
    address: String,
    /// How long it is in force, as in the configuration: `10m`.
    #[serde(rename = "for")]
    duration: Option<String>,
}

/// `GET /v1/deny`
pub fn show(running: &mut RunningServer) -> AdminReply {
    running.deny.remove_ended(unix_s());
    let settings = settings(&running.deny);
    reply(&settings, &settings)
}

/// `PUT /v1/deny`
///
/// # Errors
/// The body is malformed, the list is too long, or the condition does not hold.
pub fn replace(
    running: &mut RunningServer,
    call: &AdminCall,
) -> Result<(AdminReply, DenySwitch), AdminProblem> {
    let wanted: WantedList = call.json()?;
    let entries = entries(&wanted.entries)?;
    let persistence = ChangePersistence::begin(running, wanted.persist)?;
    let mut list = DenyList::default();
    list.add(entries);
    let saved = list.clone();
    let reply = change(running, call, |present| {
        *present = list;
        Ok(())
    })?;
    persistence.finish(|changes| changes.edit_deny(|list| *list = saved))?;
    Ok(reply)
}

/// `PATCH /v1/deny`
///
/// # Errors
/// The body is malformed, an entry to remove is not there, the list would be too long, or the condition does not hold.
pub fn patch(
    running: &mut RunningServer,
    call: &AdminCall,
) -> Result<(AdminReply, DenySwitch), AdminProblem> {
    let patch: ListPatch = call.json()?;
    if patch.add.is_empty() && patch.remove.is_empty() {
        return Err(AdminProblem::bad_request(
            "the body changes nothing: set add, remove or both",
        ));
    }
    // All addresses are parsed before the first change.
    let added = entries(&patch.add)?;
    let removed = patch.remove.iter().map(|address| entry(address, None));
    let removed = removed.collect::<Result<Vec<DenyEntry>, AdminProblem>>()?;
    let persistence = ChangePersistence::begin(running, patch.persist)?;
    let reply = change(running, call, |list| {
        for entry in &removed {
            // A typing mistake would leave the address denied.
            if !list.remove(&entry.prefix) {
                return Err(AdminProblem::not_found(format!(
                    "{} is not in the list; nothing was changed",
                    entry.prefix
                )));
            }
        }
        list.add(added.iter().copied());
        Ok(())
    })?;
    persistence.finish(|changes| {
        changes.edit_deny(|list| {
            list.remove_ended(unix_s());
            // The file may lack entries that end with a restart.
            for entry in &removed {
                list.remove(&entry.prefix);
            }
            list.add(added);
        });
    })?;
    Ok(reply)
}

/// Changes a copy of the list, and puts it in force. The caller holds the server's lock.
fn change(
    running: &mut RunningServer,
    call: &AdminCall,
    edit: impl FnOnce(&mut DenyList) -> Result<(), AdminProblem>,
) -> Result<(AdminReply, DenySwitch), AdminProblem> {
    running.deny.remove_ended(unix_s());
    let before = settings(&running.deny);
    call.check_match(&tag(&before))?;
    // A copy, so that a refusal leaves the list as it is.
    let mut list = running.deny.clone();
    edit(&mut list)?;
    if list.entries().len() > ENTRIES_MAX {
        return Err(AdminProblem::new(
            StatusCode::CONFLICT,
            format!("the list would have more than {ENTRIES_MAX} entries; nothing was changed"),
        ));
    }
    let switch = list.post(&running.workers);
    running.deny = list;
    let after = settings(&running.deny);
    let reply = reply(&after, &after);
    // The whole list may be longer than a line of the log.
    let change = AuditedChange {
        before: entries_without(&before, &after),
        after: entries_without(&after, &before),
    };
    let reply = AdminReply {
        change: Some(change),
        ..reply
    };
    Ok((reply, switch))
}

fn entries(wanted: &[WantedEntry]) -> Result<Vec<DenyEntry>, AdminProblem> {
    let parsed = wanted
        .iter()
        .map(|wanted| entry(&wanted.address, wanted.duration.as_deref()));
    parsed.collect()
}

fn entry(address: &str, duration: Option<&str>) -> Result<DenyEntry, AdminProblem> {
    let until_s = match duration {
        None => None,
        Some(text) => {
            let ms = value::duration_ms(text).map_err(|error| {
                AdminProblem::bad_request(format!("for {text:?}: allowed is {error}"))
            })?;
            // Rounded up: the entry is in force at least this long.
            Some(unix_s().saturating_add(ms.div_ceil(1000)))
        }
    };
    DenyEntry::new(address, until_s).map_err(AdminProblem::bad_request)
}

/// The entries of `list` that are not in `other`. Both are sorted.
fn entries_without(list: &Value, other: &Value) -> Value {
    let texts = |list: &Value| -> BTreeSet<String> {
        let entries = list["entries"].as_array().into_iter().flatten();
        entries.map(Value::to_string).collect()
    };
    let (list, other) = (texts(list), texts(other));
    let entries = list.difference(&other);
    let entries = entries.filter_map(|text| serde_json::from_str(text).ok());
    json!({ "entries": entries.take(AUDITED_MAX).collect::<Vec<Value>>() })
}

fn settings(list: &DenyList) -> Value {
    let entries = list.entries().iter().map(|entry| {
        json!({
            "address": entry.prefix.to_string(),
            "until_s": entry.until_s,
        })
    });
    json!({ "entries": entries.collect::<Vec<Value>>() })
}
