//! Tests of the renewal plan in virtual time.

use super::*;

const DAY_S: u64 = 86_400;
const NOW_S: u64 = 1_795_473_525;
const NO_JITTER: RenewalJitter = RenewalJitter(0);
const HALF_JITTER: RenewalJitter = RenewalJitter(1 << 31);
const MAX_JITTER: RenewalJitter = RenewalJitter(u32::MAX);

fn plan() -> RenewalPlan {
    RenewalPlan::new(["https://one.example/", "https://two.example/"])
}

fn validity_of_days(days: u64) -> ValidityPeriod {
    ValidityPeriod {
        not_before_s: NOW_S,
        not_after_s: NOW_S + days * DAY_S,
    }
}

fn failure(kind: FailureKind) -> AcmeFailure {
    AcmeFailure::new(kind, "no")
}

/// A plan with a certificate valid for 90 days, from an authority without renewal windows.
fn plan_with_certificate() -> RenewalPlan {
    let mut plan = plan();
    plan.set_current("first", validity_of_days(90), NO_JITTER);
    plan.window(None, u64::MAX, NO_JITTER);
    plan
}

#[test]
fn next_order_is_at_least_an_hour_after_issuance() {
    let mut plan = plan();
    plan.record_issued(NOW_S + 80 * DAY_S, "first", validity_of_days(90), NO_JITTER);
    let next_s = NOW_S + 80 * DAY_S + 3600;
    assert_eq!(plan.next_step(NOW_S + 80 * DAY_S), PlanStep::At(next_s));
    assert_eq!(plan.next_step(next_s), PlanStep::Order(0));

    plan.record_issued(NOW_S, "second", validity_of_days(90), NO_JITTER);
    let past = RenewalWindow {
        start_s: NOW_S - 2,
        end_s: NOW_S - 1,
    };
    plan.window(Some(past), u64::MAX, NO_JITTER);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 3600));
}

#[test]
fn requested_order_keeps_the_limits_of_authorities() {
    let mut plan = plan_with_certificate();
    plan.request_order(NOW_S);
    let mut limited = failure(FailureKind::RateLimited);
    limited.retry_after_s = Some(3 * DAY_S);
    plan.record_failure(NOW_S, 0, &limited, NO_JITTER);
    plan.record_failure(NOW_S, 1, &failure(FailureKind::Refused), NO_JITTER);
    let next = plan.next_step(NOW_S);
    assert!(matches!(next, PlanStep::At(at_s) if at_s > NOW_S));
    plan.request_order(NOW_S);
    assert_eq!(plan.next_step(NOW_S), next);
}

#[test]
fn requested_order_is_due_despite_local_delays() {
    let mut plan = plan_with_certificate();
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 60 * DAY_S));
    plan.request_order(NOW_S);
    assert_eq!(plan.next_step(NOW_S), PlanStep::Order(0));
    for authority_index in [0, 1] {
        plan.record_failure(
            NOW_S,
            authority_index,
            &failure(FailureKind::Local),
            NO_JITTER,
        );
    }
    assert!(matches!(plan.next_step(NOW_S), PlanStep::At(_)));
    plan.request_order(NOW_S);
    assert_eq!(plan.next_step(NOW_S), PlanStep::Order(0));
    // The new certificate has its own time of renewal.
    plan.record_issued(NOW_S, "second", validity_of_days(90), NO_JITTER);
    plan.window(None, u64::MAX, NO_JITTER);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 60 * DAY_S));
}

#[test]
fn missing_certificate_is_ordered_immediately() {
    assert_eq!(plan().next_step(NOW_S), PlanStep::Order(0));
    assert!(plan().needs_order(NOW_S));
}

#[test]
fn renewal_without_window_is_at_two_thirds_of_lifetime() {
    let plan = plan_with_certificate();
    let renewal_s = NOW_S + 60 * DAY_S;
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(renewal_s));
    assert_eq!(plan.next_step(renewal_s - 1), PlanStep::At(renewal_s));
    assert_eq!(plan.next_step(renewal_s), PlanStep::Order(0));
    let early_s = validity_of_days(90).renewal_s(None, MAX_JITTER);
    assert!(early_s < renewal_s && early_s >= renewal_s - 3 * DAY_S);
}

#[test]
fn certificate_of_6_days_is_renewed_after_4() {
    assert_eq!(
        validity_of_days(6).renewal_s(None, NO_JITTER),
        NOW_S + 4 * DAY_S
    );
}

#[test]
fn renewal_window_of_authority_takes_precedence() {
    let mut plan = plan();
    plan.set_current("first", validity_of_days(90), NO_JITTER);
    assert_eq!(plan.next_step(NOW_S), PlanStep::Window);
    let window = RenewalWindow {
        start_s: NOW_S + 10 * DAY_S,
        end_s: NOW_S + 12 * DAY_S,
    };
    plan.window(Some(window), NOW_S + 6 * 3600, HALF_JITTER);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 6 * 3600));
    assert_eq!(plan.next_step(NOW_S + 6 * 3600), PlanStep::Window);
    assert_eq!(plan.next_step(NOW_S + 11 * DAY_S), PlanStep::Order(0));
    assert_eq!(plan.next_order_s(NOW_S), NOW_S + 11 * DAY_S);

    // The same window again does not move the renewal; another one does.
    plan.window(Some(window), u64::MAX, MAX_JITTER);
    assert_eq!(plan.next_order_s(NOW_S), NOW_S + 11 * DAY_S);
    let past = RenewalWindow {
        start_s: NOW_S - 2,
        end_s: NOW_S - 1,
    };
    plan.window(Some(past), u64::MAX, MAX_JITTER);
    assert_eq!(plan.next_step(NOW_S), PlanStep::Order(0));
}

#[test]
fn reversed_or_late_window_is_corrected() {
    let two_thirds_s = NOW_S + 60 * DAY_S;
    let reversed = RenewalWindow {
        start_s: NOW_S + 2,
        end_s: NOW_S + 1,
    };
    assert_eq!(
        validity_of_days(90).renewal_s(Some(reversed), NO_JITTER),
        two_thirds_s
    );
    let late = RenewalWindow {
        start_s: NOW_S + 100 * DAY_S,
        end_s: NOW_S + 101 * DAY_S,
    };
    let renewal_s = validity_of_days(90).renewal_s(Some(late), NO_JITTER);
    assert!(renewal_s < NOW_S + 90 * DAY_S && renewal_s > two_thirds_s);
}

#[test]
fn next_authority_is_tried_after_failure() {
    let mut plan = plan();
    plan.record_failure(NOW_S, 0, &failure(FailureKind::Unreachable), NO_JITTER);
    assert_eq!(plan.next_step(NOW_S), PlanStep::Order(1));
    plan.record_failure(NOW_S, 1, &failure(FailureKind::RateLimited), NO_JITTER);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 60));
    assert_eq!(plan.next_step(NOW_S + 60), PlanStep::Order(0));
    plan.set_current("first", validity_of_days(90), NO_JITTER);
    plan.window(None, u64::MAX, NO_JITTER);
    assert_eq!(plan.last_error(), None);
    assert_eq!(plan.next_step(NOW_S + 60 * DAY_S), PlanStep::Order(0));
}

#[test]
fn local_failure_delays_all_authorities() {
    let mut plan = plan();
    plan.record_failure(NOW_S, 0, &failure(FailureKind::Local), NO_JITTER);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 60));
    assert_eq!(plan.next_step(NOW_S + 60), PlanStep::Order(0));
    plan.reset_failures();
    assert_eq!(plan.next_step(NOW_S), PlanStep::Order(0));
}

#[test]
fn retry_after_is_obeyed_within_bounds() {
    let mut plan = RenewalPlan::new(["https://one.example/"]);
    let mut limited = failure(FailureKind::RateLimited);
    limited.retry_after_s = Some(3 * DAY_S);
    plan.record_failure(NOW_S, 0, &limited, NO_JITTER);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 3 * DAY_S));
    // Limited to 7 days, and at least one minute.
    limited.retry_after_s = Some(u64::MAX);
    plan.record_failure(NOW_S, 0, &limited, NO_JITTER);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 7 * DAY_S));
    limited.retry_after_s = Some(0);
    plan.record_failure(NOW_S, 0, &limited, NO_JITTER);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 60));
    // An authority under maintenance may send Retry-After, too.
    let mut outage = failure(FailureKind::Unreachable);
    outage.retry_after_s = Some(1800);
    plan.record_failure(NOW_S, 0, &outage, NO_JITTER);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 1800));
}

/// All authorities are unreachable for ten days, from the planned renewal on.
#[test]
fn renewal_succeeds_after_outage_of_10_days() {
    let mut plan = plan_with_certificate();
    let down_s = NOW_S + 60 * DAY_S;
    let up_s = down_s + 10 * DAY_S;
    let (mut now_s, mut orders) = (NOW_S, 0);
    let ordered_s = loop {
        match plan.next_step(now_s) {
            PlanStep::At(at_s) => {
                assert!(at_s > now_s);
                now_s = at_s;
            }
            PlanStep::Order(_) if now_s >= up_s => break now_s,
            PlanStep::Order(authority_index) => {
                orders += 1;
                plan.record_failure(
                    now_s,
                    authority_index,
                    &failure(FailureKind::Unreachable),
                    HALF_JITTER,
                );
            }
            PlanStep::Window => panic!("it was said that nobody need ask"),
        }
    };
    assert!(ordered_s <= up_s + 2 * 3600, "{} s late", ordered_s - up_s);
    // Two authorities, each about once an hour.
    assert!((400..600).contains(&orders), "{orders} orders");
    assert!(plan.last_error().is_some());
}

#[test]
fn backoff_doubles_up_to_limit() {
    let waits = |kind, lifetime_s| {
        let delay_s = |failures| failure(kind).delay_s(failures, lifetime_s, NO_JITTER);
        [1, 2, 3, 99].map(delay_s)
    };
    assert_eq!(waits(FailureKind::Unreachable, None), [60, 120, 240, 3600]);
    assert_eq!(waits(FailureKind::Refused, None), [900, 1800, 3600, DAY_S]);
    assert_eq!(
        waits(FailureKind::WrongAnswer, None),
        [300, 600, 1200, 21_600]
    );
    // A lifetime of six days: the limit is 7.2 hours.
    assert_eq!(waits(FailureKind::Refused, Some(6 * DAY_S))[3], 25_920);
    assert_eq!(failure(FailureKind::Local).delay_s(1, None, MAX_JITTER), 74);
}

#[test]
fn plan_survives_serialization() {
    let mut plan = plan_with_certificate();
    plan.record_failure(NOW_S, 0, &failure(FailureKind::Refused), NO_JITTER);
    plan.record_failure(NOW_S, 1, &failure(FailureKind::RateLimited), NO_JITTER);
    let text = serde_json::to_string(&plan).expect("text");
    let again: RenewalPlan = serde_json::from_str(&text).expect("a plan");
    assert_eq!(again, plan);

    // Setting the same certificate changes nothing.
    let mut same = again.clone();
    same.set_current("first", validity_of_days(90), MAX_JITTER);
    assert_eq!(same, plan);

    // Another authority is now preferred; the state of the one that remains is kept.
    let mut other = again.with_authorities(["https://three.example/", "https://two.example/"]);
    other.clear_current();
    assert_eq!(other.next_step(NOW_S), PlanStep::Order(0));
    other.record_failure(NOW_S, 0, &failure(FailureKind::Refused), NO_JITTER);
    assert_eq!(other.next_step(NOW_S), PlanStep::At(NOW_S + 900));
}

#[test]
fn lost_certificate_is_ordered_immediately() {
    let mut plan = plan();
    plan.record_issued(NOW_S, "first", validity_of_days(90), NO_JITTER);
    plan.current_lost();
    assert_eq!(plan.next_step(NOW_S), PlanStep::Order(0));
    // Delays imposed by authorities remain.
    plan.record_failure(NOW_S, 0, &failure(FailureKind::RateLimited), NO_JITTER);
    plan.record_failure(NOW_S, 1, &failure(FailureKind::RateLimited), NO_JITTER);
    plan.current_lost();
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 3600));
}

#[test]
fn lifetime_stages_follow_each_other() {
    for days in [90, 6] {
        let validity = validity_of_days(days);
        let last_tenth_s = NOW_S + days * DAY_S / 10 * 9 + 1;
        assert_eq!(validity.stage(last_tenth_s - 1), LifetimeStage::Valid);
        assert_eq!(validity.next_stage_s(NOW_S), last_tenth_s);
        assert_eq!(validity.stage(last_tenth_s), LifetimeStage::Expiring);
        let over_s = NOW_S + days * DAY_S + 1;
        assert_eq!(validity.next_stage_s(last_tenth_s), over_s);
        assert_eq!(validity.stage(over_s - 1), LifetimeStage::Expiring);
        assert_eq!(validity.stage(over_s), LifetimeStage::Expired);
        assert_eq!(validity.next_stage_s(over_s), u64::MAX);
        // The first failure of a renewal is not urgent.
        let renewal_s = validity.renewal_s(None, NO_JITTER);
        assert_eq!(validity.stage(renewal_s), LifetimeStage::Valid);
    }
}
