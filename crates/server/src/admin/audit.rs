//! The audit: one line in the error log for each change that an operator makes or tries, as JSON.

use lowroad_engine::Exchange;
use lowroad_limits::{ClientRates, RequestRate, TokenBucket};
use lowroad_log::ErrorLogger;
use serde_json::{Value, json};

use super::call::AdminCall;
use super::problem::AdminProblem;
use super::service::{AdminOutcome, ReplyBody};

/// The longest text of a reply that a line repeats.
const TEXT_LEN_MAX: usize = 512;

/// The lines about refused requests of one address: as many as it may send wrong tokens.
const REFUSALS_OF_ADDRESS: RequestRate = RequestRate {
    requests: 10,
    period_ms: 60_000,
    burst: 10,
};
/// The lines about refused requests of all addresses.
const REFUSALS: RequestRate = RequestRate {
    requests: 100,
    period_ms: 60_000,
    burst: 100,
};

/// Writes the lines of changes that are refused before their operation is performed: for a token, a method, a length. Any
/// client can cause them, so their rate is limited; the metrics count all of them.
pub struct RefusalAudit {
    logger: ErrorLogger,
    of_address: ClientRates,
    total: TokenBucket,
}

impl RefusalAudit {
    /// Writes to this log.
    pub fn new(logger: ErrorLogger) -> RefusalAudit {
        RefusalAudit {
            logger,
            of_address: ClientRates::new(REFUSALS_OF_ADDRESS),
            total: TokenBucket::new(REFUSALS),
        }
    }

    /// Writes the line of a refused request. `by` is the client; `target` has method, path and query.
    pub fn write(&self, exchange: &Exchange, by: &str, target: &str, problem: &AdminProblem) {
        let now_ms = exchange.now_ms;
        // The limit of the address first: a flood from one does not use up the lines of the others.
        if self.of_address.take(exchange.peer, now_ms).is_err() || self.total.take(now_ms).is_err()
        {
            return;
        }
        let target = target.chars().take(TEXT_LEN_MAX).collect::<String>();
        let mut line = json!({ "by": by, "request": target });
        add_problem(&mut line, problem);
        write_line(&self.logger, &line);
    }
}

/// The state that an operation has changed, for the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedChange {
    /// The settings before.
    pub before: Value,
    /// The settings after.
    pub after: Value,
}

/// Writes the line of an operation that changes the server.
pub fn write(logger: &ErrorLogger, call: &AdminCall, outcome: &AdminOutcome) {
    write_line(logger, &line(call, outcome));
}

fn write_line(logger: &ErrorLogger, line: &Value) {
    logger.audit(format_args!("{line}"));
}

fn add_problem(line: &mut Value, problem: &AdminProblem) {
    line["result"] = "refused".into();
    line["status"] = problem.status.code().into();
    line["reason"] = (&*problem.detail).into();
    if let Some(change) = &problem.unsaved {
        line["result"] = "not saved".into();
        add_change(line, change);
    }
}

fn add_change(line: &mut Value, change: &AuditedChange) {
    line["before"] = change.before.clone();
    line["after"] = change.after.clone();
}

fn line(call: &AdminCall, outcome: &AdminOutcome) -> Value {
    let mut line = json!({ "by": call.client.name, "request": call.target });
    match outcome {
        Ok(reply) => {
            // A change without settings, such as a purge, is described by the text of its reply.
            line["result"] = "done".into();
            if let Some(change) = &reply.change {
                add_change(&mut line, change);
            } else if let ReplyBody::Bytes(body) = &reply.body {
                let text = String::from_utf8_lossy(&body[..body.len().min(TEXT_LEN_MAX)]);
                line["reply"] = text.trim_end().into();
            }
        }
        // Refused changes are in the audit as well: they show mistakes, and attempts.
        Err(problem) => add_problem(&mut line, problem),
    }
    line
}
