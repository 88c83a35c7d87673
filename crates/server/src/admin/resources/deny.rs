//! `/v1/deny`: the client addresses that are refused.

use std::collections::BTreeSet;

use lowroad_config::value;
use lowroad_http::status::StatusCode;
use lowroad_store::clock::{unix_ms, unix_s};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{reply, tag};
use crate::admin::audit::AuditedChange;
use crate::admin::call::AdminCall;
use crate::admin::persistence::ChangePersistence;
use crate::admin::problem::AdminProblem;
use crate::admin::service::{AdminOutcome, AdminReply};
use crate::deny_list::{DenyEntry, DenyList, DenySwitch};
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

/// An entry in a body. The reply to GET has `until_s`, so that a client can edit the list that it has read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedEntry {
    address: String,
    /// How long it is in force, as in the configuration: `10m`.
    #[serde(rename = "for")]
    duration: Option<String>,
    /// The end in seconds since 1970.
    until_s: Option<u64>,
}

/// `GET /v1/deny`
pub fn show(running: &mut RunningServer) -> AdminReply {
    running.deny.remove_ended(unix_s());
    let settings = settings(&running.deny);
    reply(&settings, &settings)
}

/// A change of the list: the reply, unless it could not be saved, and the wait for the workers.
pub type DenyChange = Result<(AdminOutcome, DenySwitch), AdminProblem>;

/// `PUT /v1/deny`
///
/// # Errors
/// The body is malformed, the list is too long, or the condition does not hold.
pub fn replace(running: &mut RunningServer, call: &AdminCall) -> DenyChange {
    let wanted: WantedList = call.json()?;
    let now_s = unix_s();
    let mut list = DenyList::default();
    list.add(entries(&wanted.entries)?);
    // The client may have read an entry that has ended since.
    list.remove_ended(now_s);
    let mut persistence = ChangePersistence::begin(running, wanted.persist)?;
    persistence.edit(|changes| changes.edit_deny(|saved| *saved = list.clone()))?;
    let (reply, switch) = change(running, call, |present| {
        *present = list;
        Ok(())
    })?;
    Ok((persistence.finish(|_| {}).reply(reply), switch))
}

/// `PATCH /v1/deny`
///
/// # Errors
/// The body is malformed, an entry to remove is not there, the list would be too long, or the condition does not hold.
pub fn patch(running: &mut RunningServer, call: &AdminCall) -> DenyChange {
    let patch: ListPatch = call.json()?;
    if patch.add.is_empty() && patch.remove.is_empty() {
        return Err(AdminProblem::bad_request(
            "the body changes nothing: set add, remove or both",
        ));
    }
    // All addresses are parsed before the first change.
    let added = entries(&patch.add)?;
    // Such an entry would only end an earlier one of the same addresses.
    if let Some(ended) = added.iter().find(|entry| !entry.is_in_force(unix_s())) {
        return Err(AdminProblem::bad_request(format!(
            "{}: the end is in the past",
            ended.prefix
        )));
    }
    let removed = patch.remove.iter();
    let removed = removed.map(|address| DenyEntry::new(address, None));
    let removed = removed.collect::<Result<Vec<DenyEntry>, String>>();
    let removed = removed.map_err(AdminProblem::bad_request)?;
    let mut persistence = ChangePersistence::begin(running, patch.persist)?;
    persistence.edit(|changes| {
        changes.edit_deny(|list| {
            list.remove_ended(unix_s());
            // The file may lack entries that end with a restart.
            for entry in &removed {
                list.remove(&entry.prefix);
            }
            list.add(added.iter().copied());
        })
    })?;
    let (reply, switch) = change(running, call, |list| {
        for entry in &removed {
            // A typing mistake would leave the address denied.
            if !list.remove(&entry.prefix) {
                return Err(AdminProblem::not_found(format!(
                    "{} is not in the list; nothing was changed",
                    entry.prefix
                )));
            }
        }
        list.add(added);
        Ok(())
    })?;
    Ok((persistence.finish(|_| {}).reply(reply), switch))
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
    list.check_len().map_err(|fault| {
        AdminProblem::new(
            StatusCode::CONFLICT,
            format!("{fault}; nothing was changed"),
        )
    })?;
    running.deny = list;
    let switch = running.switch_deny_list();
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
    wanted.iter().map(entry).collect()
}

fn entry(wanted: &WantedEntry) -> Result<DenyEntry, AdminProblem> {
    let until_s = match (&wanted.duration, wanted.until_s) {
        (None, until_s) => until_s,
        (Some(duration), None) => Some(end_after(duration).map_err(AdminProblem::bad_request)?),
        (Some(_), Some(_)) => {
            let detail = format!("{}: set for or until_s, not both", wanted.address);
            return Err(AdminProblem::bad_request(detail));
        }
    };
    DenyEntry::new(&wanted.address, until_s).map_err(AdminProblem::bad_request)
}

/// The end of an entry that begins now.
fn end_after(duration: &str) -> Result<u64, String> {
    let ms = value::duration_ms(duration)
        .map_err(|error| format!("for {duration:?}: allowed is {error}"))?;
    // Such an entry would only end an earlier one of the same addresses.
    if ms == 0 {
        return Err("for 0: the time must be longer; an entry without for has no end".to_owned());
    }
    // Rounded up after the sum: the entry is in force at least this long.
    Ok(unix_ms().saturating_add(ms).div_ceil(1000))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_is_in_force_for_its_whole_time() {
        let before_ms = unix_ms();
        for (text, ms) in [("1ms", 1), ("1s", 1_000), ("90m", 5_400_000)] {
            let end_s = end_after(text).expect("a time");
            // Entries end when the second begins.
            assert!(end_s * 1000 >= before_ms + ms, "{text}");
            assert!(end_s * 1000 < unix_ms() + ms + 1000, "{text}");
        }
        for bad in ["0", "0s", "soon", ""] {
            assert!(end_after(bad).is_err(), "{bad}");
        }
    }
}
