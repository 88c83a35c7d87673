//! The resources that operators read and change, one file each, and the tags of their states.

pub mod certificates;
pub mod deny;
pub mod log;
pub mod origins;
pub mod sites;

use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use serde_json::Value;

use super::audit::AuditedChange;
use super::service::AdminReply;

/// The entity tag of settings. It covers the settings, not the counters beside them: a change that is based on a reading
/// must not fail because a request has ended meanwhile.
pub fn tag(settings: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    // The members of objects are sorted, so equal settings have the same text.
    settings.to_string().hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

/// The reply with a resource's state, and the tag of its settings.
pub fn reply(state: &Value, settings: &Value) -> AdminReply {
    AdminReply {
        tag: Some(tag(settings)),
        ..AdminReply::new("application/json", Bytes::from(state.to_string()))
    }
}

/// The reply to a change: the new state, the tag of its settings, and the change for the audit.
pub fn changed(before: Value, after: Value, state: &Value) -> AdminReply {
    let reply = reply(state, &after);
    AdminReply {
        change: Some(AuditedChange { before, after }),
        ..reply
    }
}
