//! The output of `lowroad status --json`.

use std::collections::BTreeMap;

use lowroad_softirq::layout::REASONS;
use lowroad_softirq::learner::DenialKind;
use serde_json::{Value, json};

use super::answer_shares::{self, AnswerShares};
use super::level_view::LevelView;
use super::worker::instances::WorkerInstance;

/// An intercepting server.
#[must_use]
pub fn worker_value(worker: &WorkerInstance) -> Value {
    json!({"port": worker.port, "process": worker.pid})
}

/// A level as JSON, including counters that are 0.
#[must_use]
pub fn level_value(view: &LevelView) -> Value {
    let names = REASONS.iter().map(|(name, _)| *name);
    // The map is sorted, so that the output's order is stable.
    let counters: BTreeMap<_, _> = names.zip(&view.counters).collect();
    let names = DenialKind::ALL.iter().map(|kind| kind.name());
    let denials: BTreeMap<_, _> = names.zip(view.denials).collect();
    let interfaces = view.interfaces.iter();
    let runs = view.runs.iter().map(|run| {
        json!({"link": run.link, "program": run.program_id, "time_ns": run.time_ns,
               "count": run.count})
    });
    json!({
        "ports": view.ports,
        "interfaces": interfaces
            .map(|(name, tier)| json!({"name": name, "tier": tier}))
            .collect::<Vec<_>>(),
        "mode": view.mode,
        "settings": view.settings,
        "trouble": view.trouble,
        "rest": view.bypass.map(|rest| {
            json!({"asleep": rest.is_asleep, "left_s": rest.remaining_s, "answers": rest.answers,
                   "requests": rest.requests})
        }),
        "fetches_paused_s": view.pause_s,
        "daemon": {
            "pid": view.pid,
            "heartbeat_age_ms": view.heartbeat_age_ms,
            "alive": view.is_daemon_alive(),
        },
        "published": {"now": view.published.0, "places": view.published.1},
        "connections": {
            "open": view.connections.open,
            "handed": view.connections.migrating,
            "kernel": view.connections.kernel,
            "kept": view.connections.parked,
            "places": view.connections.slots,
        },
        "counters": counters,
        "shares": AnswerShares::from_view(view).to_json(),
        "went_up": answer_shares::top_punt_reasons(|name| view.count(name)).iter().map(|one| {
            json!({"reason": one.name, "count": one.count, "advice": one.advice})
        }).collect::<Vec<_>>(),
        "not_stored": denials,
        "age_s": view.age_s,
        "runs": runs.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::softirq::level_view::tests::example_view;

    #[test]
    fn json_contains_zero_counters() {
        let json = level_value(&example_view());
        assert_eq!(json["counters"]["up_miss"], 90);
        assert_eq!(json["counters"]["drop_sum"], 0);
        assert_eq!(json["connections"]["places"], 65_536);
    }
}
