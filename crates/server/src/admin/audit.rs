//! The audit: one line in the error log for each change that an operator makes or tries, as JSON.

use lowroad_log::ErrorLogger;
use serde_json::{Value, json};

use super::call::AdminCall;
use super::service::{AdminOutcome, ReplyBody};

/// The longest text of a reply that a line repeats.
const TEXT_LEN_MAX: usize = 512;

/// The state that an operation has changed, for the audit.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditedChange {
    /// The settings before.
    pub before: Value,
    /// The settings after.
    pub after: Value,
}

/// Writes the line of an operation that changes the server.
pub fn write(logger: &ErrorLogger, call: &AdminCall, outcome: &AdminOutcome) {
    logger.audit(format_args!("{}", line(call, outcome)));
}

fn line(call: &AdminCall, outcome: &AdminOutcome) -> Value {
    let mut line = json!({ "by": call.client.name, "request": call.target });
    match outcome {
        Ok(reply) => {
            // A change without settings, such as a purge, is described by the text of its reply.
            line["result"] = "done".into();
            if let Some(change) = &reply.change {
                line["before"] = change.before.clone();
                line["after"] = change.after.clone();
            } else if let ReplyBody::Bytes(body) = &reply.body {
                let text = String::from_utf8_lossy(&body[..body.len().min(TEXT_LEN_MAX)]);
                line["reply"] = text.trim_end().into();
            }
        }
        Err(problem) => {
            // Refused changes are in the audit as well: they show mistakes, and attempts.
            line["result"] = "refused".into();
            line["status"] = problem.status.code().into();
            line["reason"] = (&*problem.detail).into();
        }
    }
    line
}
