//! Histories of one certificate, in virtual time.

use super::*;

const DAY_S: u64 = 86_400;
const NOW_S: u64 = 1_795_473_525;
const NONE: RenewalJitter = RenewalJitter(0);
const HALF: RenewalJitter = RenewalJitter(1 << 31);
const MOST: RenewalJitter = RenewalJitter(u32::MAX);

fn plan() -> RenewalPlan {
    RenewalPlan::new(["https://one.example/", "https://two.example/"])
}

fn of_days(days: u64) -> ValidityPeriod {
    ValidityPeriod {
        not_before_s: NOW_S,
        not_after_s: NOW_S + days * DAY_S,
    }
}

fn trouble(kind: FailureKind) -> AcmeFailure {
    AcmeFailure::new(kind, "no")
}

/// A plan with a certificate of 90 days and a known window.
fn settled() -> RenewalPlan {
    let mut plan = plan();
    plan.set_current("first", of_days(90), NONE);
    plan.window(None, u64::MAX, NONE);
    plan
}

#[test]
fn what_is_to_be_renewed_at_once_waits_for_an_hour() {
    let mut plan = plan();
    plan.record_issued(NOW_S + 80 * DAY_S, "first", of_days(90), NONE);
    let next_s = NOW_S + 80 * DAY_S + 3600;
    assert_eq!(plan.next_step(NOW_S + 80 * DAY_S), PlanStep::At(next_s));
    assert_eq!(plan.next_step(next_s), PlanStep::Order(0));

    plan.record_issued(NOW_S, "second", of_days(90), NONE);
    let past = RenewalWindow {
        start_s: NOW_S - 2,
        end_s: NOW_S - 1,
    };
    plan.window(Some(past), u64::MAX, NONE);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 3600));
}

#[test]
fn without_a_certificate_one_is_ordered_at_once() {
    assert_eq!(plan().next_step(NOW_S), PlanStep::Order(0));
    assert!(plan().needs_order(NOW_S));
}

#[test]
fn two_thirds_of_the_lifetime_are_used() {
    let plan = settled();
    let renewal_s = NOW_S + 60 * DAY_S;
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(renewal_s));
    assert_eq!(plan.next_step(renewal_s - 1), PlanStep::At(renewal_s));
    assert_eq!(plan.next_step(renewal_s), PlanStep::Order(0));
    let early_s = of_days(90).renewal_s(None, MOST);
    assert!(early_s < renewal_s && early_s >= renewal_s - 3 * DAY_S);
}

#[test]
fn short_lived_certificates_are_renewed_after_days() {
    assert_eq!(of_days(6).renewal_s(None, NONE), NOW_S + 4 * DAY_S);
}

#[test]
fn the_window_of_the_authority_goes_first() {
    let mut plan = plan();
    plan.set_current("first", of_days(90), NONE);
    assert_eq!(plan.next_step(NOW_S), PlanStep::Window);
    let window = RenewalWindow {
        start_s: NOW_S + 10 * DAY_S,
        end_s: NOW_S + 12 * DAY_S,
    };
    plan.window(Some(window), NOW_S + 6 * 3600, HALF);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 6 * 3600));
    assert_eq!(plan.next_step(NOW_S + 6 * 3600), PlanStep::Window);
    assert_eq!(plan.next_step(NOW_S + 11 * DAY_S), PlanStep::Order(0));
    assert_eq!(plan.next_order_s(NOW_S), NOW_S + 11 * DAY_S);

    // The same window again does not move the second; another one does.
    plan.window(Some(window), u64::MAX, MOST);
    assert_eq!(plan.next_order_s(NOW_S), NOW_S + 11 * DAY_S);
    let past = RenewalWindow {
        start_s: NOW_S - 2,
        end_s: NOW_S - 1,
    };
    plan.window(Some(past), u64::MAX, MOST);
    assert_eq!(plan.next_step(NOW_S), PlanStep::Order(0));
}

#[test]
fn a_window_without_sense_is_not_believed() {
    let two_thirds_s = NOW_S + 60 * DAY_S;
    let reversed = RenewalWindow {
        start_s: NOW_S + 2,
        end_s: NOW_S + 1,
    };
    assert_eq!(of_days(90).renewal_s(Some(reversed), NONE), two_thirds_s);
    let late = RenewalWindow {
        start_s: NOW_S + 100 * DAY_S,
        end_s: NOW_S + 101 * DAY_S,
    };
    let renewal_s = of_days(90).renewal_s(Some(late), NONE);
    assert!(renewal_s < NOW_S + 90 * DAY_S && renewal_s > two_thirds_s);
}

#[test]
fn authorities_are_tried_in_turn() {
    let mut plan = plan();
    plan.record_failure(NOW_S, 0, &trouble(FailureKind::Unreachable), NONE);
    assert_eq!(plan.next_step(NOW_S), PlanStep::Order(1));
    plan.record_failure(NOW_S, 1, &trouble(FailureKind::RateLimited), NONE);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 60));
    assert_eq!(plan.next_step(NOW_S + 60), PlanStep::Order(0));
    plan.set_current("first", of_days(90), NONE);
    plan.window(None, u64::MAX, NONE);
    assert_eq!(plan.last_error(), None);
    assert_eq!(plan.next_step(NOW_S + 60 * DAY_S), PlanStep::Order(0));
}

#[test]
fn what_is_wrong_here_is_no_authoritys_fault() {
    let mut plan = plan();
    plan.record_failure(NOW_S, 0, &trouble(FailureKind::Local), NONE);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 60));
    assert_eq!(plan.next_step(NOW_S + 60), PlanStep::Order(0));
    plan.reset_failures();
    assert_eq!(plan.next_step(NOW_S), PlanStep::Order(0));
}

#[test]
fn retry_after_is_kept_to() {
    let mut plan = RenewalPlan::new(["https://one.example/"]);
    let mut limited = trouble(FailureKind::RateLimited);
    limited.retry_after_s = Some(3 * DAY_S);
    plan.record_failure(NOW_S, 0, &limited, NONE);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 3 * DAY_S));
    // Bounded from above and below.
    limited.retry_after_s = Some(u64::MAX);
    plan.record_failure(NOW_S, 0, &limited, NONE);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 7 * DAY_S));
    limited.retry_after_s = Some(0);
    plan.record_failure(NOW_S, 0, &limited, NONE);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 60));
    // An authority in maintenance may send Retry-After, too.
    let mut down = trouble(FailureKind::Unreachable);
    down.retry_after_s = Some(1800);
    plan.record_failure(NOW_S, 0, &down, NONE);
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 1800));
}

/// All authorities are down for ten days, from the second of the renewal on.
#[test]
fn days_without_an_authority_are_outlived() {
    let mut plan = settled();
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
            PlanStep::Order(place) => {
                orders += 1;
                plan.record_failure(now_s, place, &trouble(FailureKind::Unreachable), HALF);
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
fn waits_grow_to_a_limit() {
    let waits = |kind, lifetime_s| {
        let delay_s = |failures| trouble(kind).delay_s(failures, lifetime_s, NONE);
        [1, 2, 3, 99].map(delay_s)
    };
    assert_eq!(waits(FailureKind::Unreachable, None), [60, 120, 240, 3600]);
    assert_eq!(waits(FailureKind::Refused, None), [900, 1800, 3600, DAY_S]);
    assert_eq!(
        waits(FailureKind::WrongAnswer, None),
        [300, 600, 1200, 21_600]
    );
    // Six days: 7.2 hours at most.
    assert_eq!(waits(FailureKind::Refused, Some(6 * DAY_S))[3], 25_920);
    assert_eq!(trouble(FailureKind::Local).delay_s(1, None, MOST), 74);
}

#[test]
fn a_plan_outlives_its_process() {
    let mut plan = settled();
    plan.record_failure(NOW_S, 0, &trouble(FailureKind::Refused), NONE);
    plan.record_failure(NOW_S, 1, &trouble(FailureKind::RateLimited), NONE);
    let text = serde_json::to_string(&plan).expect("text");
    let again: RenewalPlan = serde_json::from_str(&text).expect("a plan");
    assert_eq!(again, plan);

    // The same certificate changes nothing.
    let mut same = again.clone();
    same.set_current("first", of_days(90), MOST);
    assert_eq!(same, plan);

    // Another authority is preferred now; the state of the other one is kept.
    let mut other = again.with_authorities(["https://three.example/", "https://two.example/"]);
    other.clear_current();
    assert_eq!(other.next_step(NOW_S), PlanStep::Order(0));
    other.record_failure(NOW_S, 0, &trouble(FailureKind::Refused), NONE);
    assert_eq!(other.next_step(NOW_S), PlanStep::At(NOW_S + 900));
}

#[test]
fn a_certificate_that_is_lost_is_ordered_at_once() {
    let mut plan = plan();
    plan.record_issued(NOW_S, "first", of_days(90), NONE);
    plan.current_lost();
    assert_eq!(plan.next_step(NOW_S), PlanStep::Order(0));
    // Waits imposed by an authority remain.
    plan.record_failure(NOW_S, 0, &trouble(FailureKind::RateLimited), NONE);
    plan.record_failure(NOW_S, 1, &trouble(FailureKind::RateLimited), NONE);
    plan.current_lost();
    assert_eq!(plan.next_step(NOW_S), PlanStep::At(NOW_S + 3600));
}

#[test]
fn the_stages_of_a_lifetime_follow_each_other() {
    for days in [90, 6] {
        let validity = of_days(days);
        let last_tenth_s = NOW_S + days * DAY_S / 10 * 9 + 1;
        assert_eq!(validity.stage(last_tenth_s - 1), LifetimeStage::Valid);
        assert_eq!(validity.next_stage_s(NOW_S), last_tenth_s);
        assert_eq!(validity.stage(last_tenth_s), LifetimeStage::Expiring);
        let over_s = NOW_S + days * DAY_S + 1;
        assert_eq!(validity.next_stage_s(last_tenth_s), over_s);
        assert_eq!(validity.stage(over_s - 1), LifetimeStage::Expiring);
        assert_eq!(validity.stage(over_s), LifetimeStage::Expired);
        assert_eq!(validity.next_stage_s(over_s), u64::MAX);
        // A renewal that fails for the first time is no emergency.
        let renewal_s = validity.renewal_s(None, NONE);
        assert_eq!(validity.stage(renewal_s), LifetimeStage::Valid);
    }
}
