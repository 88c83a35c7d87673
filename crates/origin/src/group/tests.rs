use super::*;
use std::collections::HashMap;

type Members = MemberGroup<&'static str>;

fn settings(policy: BalancingPolicy) -> GroupSettings {
    GroupSettings {
        policy,
        ..GroupSettings::default()
    }
}

fn group(settings: GroupSettings, members: &[(&'static str, u32)]) -> (Members, Vec<MemberId>) {
    let mut group = MemberGroup::new(settings);
    let ids = members.iter().map(|(name, weight)| {
        let new = NewMember {
            name: (*name).into(),
            weight: *weight,
            backup: name.starts_with("backup"),
            operator: OperatorSettings::default(),
        };
        group.add(new, *name, 0)
    });
    let ids = ids.collect();
    (group, ids)
}

const THREE: [(&str, u32); 3] = [("a", 1), ("b", 1), ("c", 1)];

/// A request that was tried at these members before.
fn request_after(tried: &[MemberId]) -> PickRequest<'_> {
    PickRequest {
        tried,
        ..PickRequest::default()
    }
}

fn request_with_key(key: u64) -> PickRequest<'static> {
    PickRequest {
        key: Some(key),
        ..PickRequest::default()
    }
}

/// Picks a member for one request and reports this outcome; returns the member's name.
fn send_request(
    group: &mut Members,
    outcome: AttemptOutcome,
    now_ms: u64,
    random: u64,
) -> &'static str {
    let mut picked = group
        .pick(&PickRequest::default(), now_ms, random)
        .expect("a member");
    let name = *group.target(picked.member).expect("it is there");
    group.mark_connected(&mut picked);
    group.report(picked, outcome, now_ms);
    name
}

fn shares(group: &mut Members, count: u64, now_ms: u64) -> HashMap<&'static str, u64> {
    let mut shares = HashMap::new();
    for number in 0..count {
        let name = send_request(group, AttemptOutcome::Answered, now_ms, hash::mix(number));
        *shares.entry(name).or_default() += 1;
    }
    shares
}

fn member_health(group: &Members, id: MemberId, now_ms: u64) -> MemberHealth {
    let status = group.status(now_ms);
    let of = status.iter().find(|status| status.member == id);
    of.expect("it is there").health
}

fn fail(group: &mut Members, id: MemberId, others: &[MemberId], now_ms: u64) {
    let picked = group
        .pick(&request_after(others), now_ms, 0)
        .expect("a member");
    assert_eq!(picked.member, id);
    group.report(picked, AttemptOutcome::ConnectFailed, now_ms);
}

#[test]
fn round_robin_is_weighted_and_evenly_interleaved() {
    let (mut group, _) = group(
        settings(BalancingPolicy::RoundRobin),
        &[("a", 5), ("b", 1), ("c", 1)],
    );
    let turns: String = (0..14)
        .map(|_| send_request(&mut group, AttemptOutcome::Answered, 0, 0))
        .collect();
    // The order in nginx's description of smooth weighted round robin.
    assert_eq!(turns, "aabacaaaabacaa");
}

#[test]
fn least_connections_is_relative_to_the_weight() {
    let (mut group, ids) = group(
        settings(BalancingPolicy::LeastConnections),
        &[("a", 1), ("b", 3)],
    );
    let mut held = Vec::new();
    for random in 0..40 {
        held.push(
            group
                .pick(&PickRequest::default(), 0, random)
                .expect("a member"),
        );
    }
    let of = |id| held.iter().filter(|picked| picked.member == id).count();
    assert_eq!((of(ids[0]), of(ids[1])), (10, 30));
}

#[test]
fn random_of_two_picks_the_less_loaded() {
    let (mut group, ids) = group(settings(BalancingPolicy::RandomOfTwo), &THREE);
    let busy = group
        .pick(&request_after(&ids[1..]), 0, 0)
        .expect("a member");
    // The busy member may be drawn, but loses to an idle one.
    assert_eq!(shares(&mut group, 1000, 0).get("a"), None);
    group.report(busy, AttemptOutcome::Cancelled, 0);
    let shares = shares(&mut group, 3000, 0);
    assert!(
        shares.values().all(|share| (800..1200).contains(share)),
        "{shares:?}"
    );
}

#[test]
fn consistent_hash_moves_only_keys_of_removed_members() {
    let policy = BalancingPolicy::ConsistentHash {
        load_percent_max: 125,
    };
    let (mut group, ids) = group(settings(policy), &[("a", 1), ("b", 2), ("c", 1)]);
    let who = |group: &Members| -> Vec<_> {
        let who = |key: u64| {
            let key = hash_of(&key.to_be_bytes());
            group
                .preview(&request_with_key(key), 0, 0)
                .expect("a member")
                .0
        };
        (0..4000).map(who).collect()
    };
    let before = who(&group);
    // Half of all weights.
    let of_b = before.iter().filter(|id| **id == ids[1]).count();
    assert!((1850..2150).contains(&of_b), "{of_b} of 4000");
    assert_eq!(group.remove(ids[2]), Some("c"));
    // Only keys of the removed member move.
    for (before, after) in before.iter().zip(who(&group)) {
        assert!(*before == after || *before == ids[2]);
    }
}

#[test]
fn consistent_hash_bounds_the_load_of_a_popular_key() {
    let policy = BalancingPolicy::ConsistentHash {
        load_percent_max: 125,
    };
    let (mut group, ids) = group(settings(policy), &[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(group.pick(&request_with_key(7), 0, 0).expect("a member"));
    }
    let loads: Vec<_> = ids
        .iter()
        .map(|id| held.iter().filter(|picked| picked.member == *id).count())
        .collect();
    // 125 % of the even share of 25, rounded up.
    assert!(loads.iter().all(|load| *load <= 32), "{loads:?}");
    assert!(
        held.iter()
            .any(|picked| picked.reason.selected_by == SelectionReason::Key { skipped: 1 })
    );
}

#[test]
fn ejection_time_doubles_until_a_trial_succeeds() {
    let (mut group, ids) = group(settings(BalancingPolicy::RoundRobin), &THREE);
    let (a, others) = (ids[0], [ids[1], ids[2]]);
    // `failures_min` and `absences_max` are 5, `open_ms` is 5,000.
    (0..4).for_each(|_| fail(&mut group, a, &others, 1000));
    let last = group
        .pick(&request_after(&others), 1000, 0)
        .expect("a member");
    let ejected = |for_ms| CircuitEvent::Ejected {
        for_ms,
        is_for_one_client: false,
    };
    let event = group.report(last, AttemptOutcome::TimedOut, 1000);
    assert_eq!(event, Some(ejected(5000)));
    assert_eq!(
        member_health(&group, a, 1000),
        MemberHealth::Ejected { until_ms: 6000 }
    );
    assert!(!shares(&mut group, 30, 1000).contains_key("a"));
    // One trial at a time.
    assert_eq!(member_health(&group, a, 6000), MemberHealth::Trial);
    let trial = group
        .pick(&request_after(&others), 6000, 0)
        .expect("a member");
    assert_eq!(trial.member, a);
    assert_eq!(
        member_health(&group, a, 6000),
        MemberHealth::TrialInProgress
    );
    assert!(!shares(&mut group, 30, 6000).contains_key("a"));
    let event = group.report(trial, AttemptOutcome::TimedOut, 6500);
    assert_eq!(event, Some(ejected(10_000)));
    // A failed trial doubles the ejection to 10 s.
    assert_eq!(
        member_health(&group, a, 6500),
        MemberHealth::Ejected { until_ms: 16_500 }
    );
    // A cancelled trial shows nothing about the member.
    let trial = group
        .pick(&request_after(&others), 16_500, 0)
        .expect("a member");
    assert_eq!(group.report(trial, AttemptOutcome::Cancelled, 16_500), None);
    assert_eq!(member_health(&group, a, 16_500), MemberHealth::Trial);
    let trial = group
        .pick(&request_after(&others), 16_500, 0)
        .expect("a member");
    let event = group.report(trial, AttemptOutcome::Answered, 16_500);
    let recovered = CircuitEvent::Recovered {
        was_for_one_client: false,
    };
    assert_eq!(event, Some(recovered));
    assert_eq!(
        member_health(&group, a, 16_500),
        MemberHealth::SlowStart { percent: 10 }
    );
    // Slow start: from 10 % to the full weight in 10 s.
    assert_eq!(
        member_health(&group, a, 21_500),
        MemberHealth::SlowStart { percent: 50 }
    );
    assert_eq!(member_health(&group, a, 26_500), MemberHealth::Up);
    assert_eq!(group.status(0)[0].counts.ejected, 2);
}

#[test]
fn outcomes_of_requests_from_before_the_ejection_are_ignored() {
    let (mut group, ids) = group(settings(BalancingPolicy::RoundRobin), &THREE);
    let (a, others) = (ids[0], [ids[1], ids[2]]);
    let pick = |group: &mut Members, now_ms| {
        let picked = group.pick(&request_after(&others), now_ms, 0);
        picked.expect("a member")
    };
    // In progress since before the ejection.
    let before: Vec<_> = (0..20).map(|_| pick(&mut group, 1000)).collect();
    (0..5).for_each(|_| fail(&mut group, a, &others, 1000));
    let trial = pick(&mut group, 6000);
    group.report(trial, AttemptOutcome::Answered, 6000);
    // Late results from the earlier state must not eject the recovered member.
    for picked in before {
        group.report(picked, AttemptOutcome::Lost, 6000);
    }
    assert_eq!(member_health(&group, a, 60_000), MemberHealth::Up);
    assert_eq!(group.status(0)[0].counts.lost, 20);
}

#[test]
fn only_successive_checks_change_the_health() {
    let (mut group, ids) = group(settings(BalancingPolicy::RoundRobin), &THREE);
    // A success in between resets the count; `fall` is 3.
    for passed in [false, false, true, false, false, true] {
        assert!(!group.record_check(ids[0], passed, 0));
    }
    for passed in [false, false] {
        assert!(!group.record_check(ids[0], passed, 0));
    }
    assert!(group.record_check(ids[0], false, 0));
    // `rise` is 2.
    for passed in [true, false, true] {
        assert!(!group.record_check(ids[0], passed, 0));
    }
    assert_eq!(member_health(&group, ids[0], 0), MemberHealth::Down);
    assert!(group.record_check(ids[0], true, 0));
}

#[test]
fn slow_start_increases_the_weight_of_a_recovered_member() {
    let (mut group, ids) = group(settings(BalancingPolicy::RoundRobin), &[("a", 1), ("b", 1)]);
    for _ in 0..3 {
        group.record_check(ids[0], false, 0);
    }
    assert_eq!(shares(&mut group, 10, 0).get("a"), None);
    assert!(!group.record_check(ids[0], true, 0));
    assert!(group.record_check(ids[0], true, 0));
    let share = |group: &mut Members, now_ms| shares(group, 330, now_ms)["a"];
    // 10 %, 50 % and 100 % of the weight, relative to a full member.
    assert!((28..=32).contains(&share(&mut group, 0)));
    assert!((105..=115).contains(&share(&mut group, 5_000)));
    assert!((163..=167).contains(&share(&mut group, 10_000)));
}

#[test]
fn few_or_spread_out_failures_do_not_eject() {
    let (mut group, ids) = group(settings(BalancingPolicy::RoundRobin), &THREE);
    let (a, others) = (ids[0], [ids[1], ids[2]]);
    for round in 0..50 {
        // More than `failures_min` in total, but never within one window.
        fail(&mut group, a, &others, round * 5_000);
    }
    // Many failures, but a small share.
    for number in 0..200 {
        let now_ms = 1_000_000;
        let picked = group
            .pick(&request_after(&others), now_ms, 0)
            .expect("a member");
        let outcome = match number % 3 {
            2 => AttemptOutcome::Lost,
            _ => AttemptOutcome::Answered,
        };
        group.report(picked, outcome, now_ms);
    }
    assert_eq!(group.status(1_000_000)[0].counts.ejected, 0);
}

#[test]
fn unreachable_member_is_ejected_despite_earlier_responses() {
    let of = settings(BalancingPolicy::RoundRobin);
    for (outcome, is_out) in [
        (AttemptOutcome::ConnectFailed, true),
        (AttemptOutcome::Lost, true),
        (AttemptOutcome::ServerError, false),
        (AttemptOutcome::TimedOut, false),
    ] {
        let (mut group, ids) = group(of, &THREE);
        let (a, others) = (ids[0], [ids[1], ids[2]]);
        let mut report = |outcome| {
            let picked = group
                .pick(&request_after(&others), 1000, 0)
                .expect("a member");
            group.report(picked, outcome, 1000);
            member_health(&group, a, 1000)
        };
        // Good responses do not protect a member that has become unreachable.
        (0..1000).for_each(|_| _ = report(AttemptOutcome::Answered));
        // One less than `absences_max`.
        (0..4).for_each(|_| _ = report(outcome));
        // A response shows that the member is reachable.
        assert_eq!(report(AttemptOutcome::Answered), MemberHealth::Up);
        (0..4).for_each(|_| _ = report(outcome));
        let out = MemberHealth::Ejected { until_ms: 6000 };
        assert_eq!(report(outcome) == out, is_out, "{outcome:?}");
    }
}

/// Failures of a single client, of any kind, never eject a member while other clients succeed. Failures of many clients
/// do, and so do failed connection attempts.
#[test]
fn failures_of_one_client_among_others_do_not_eject() {
    const FAILURES: [AttemptOutcome; 4] = [
        AttemptOutcome::Lost,
        AttemptOutcome::TimedOut,
        AttemptOutcome::Malformed,
        AttemptOutcome::ServerError,
    ];
    for seed in 0..200_u64 {
        let mut drawn = hash::mix(seed);
        let mut dice = |below: u64| {
            drawn = hash::mix(drawn);
            drawn % below
        };
        let (mut group, ids) = group(
            settings(BalancingPolicy::RoundRobin),
            &[("a", 1), ("backup", 1)],
        );
        let mut send_request = |client: u8, outcome, now_ms| {
            let request = PickRequest {
                client: Some([192, 0, 2, client].into()),
                ..request_after(&ids[1..])
            };
            let picked = group.pick(&request, now_ms, 0).expect("a member");
            group.report(picked, outcome, now_ms);
            member_health(&group, ids[0], now_ms)
        };
        let (bad, failure) = (dice(100) as u8, FAILURES[dice(4) as usize]);
        let mut now_ms = dice(10_000);
        // First each client sends a request; then they continue at random, the failing one most often.
        (100..110).for_each(|client| _ = send_request(client, AttemptOutcome::Answered, now_ms));
        for _ in 0..500 {
            now_ms += dice(100);
            let member_health = match dice(4) {
                0 => send_request(100 + dice(10) as u8, AttemptOutcome::Answered, now_ms),
                _ => send_request(bad, failure, now_ms),
            };
            assert_eq!(member_health, MemberHealth::Up, "seed {seed}, {failure:?}");
        }
        let is_out = |member_health| matches!(member_health, MemberHealth::Ejected { .. });
        now_ms += 20_000;
        let mut all = (0..400).map(|_| send_request(100 + dice(10) as u8, failure, now_ms));
        assert!(all.any(is_out), "seed {seed}, {failure:?}");
        let mut alone =
            (0..5).map(|_| send_request(bad, AttemptOutcome::ConnectFailed, now_ms + 60_000));
        assert!(alone.any(is_out), "seed {seed}");
    }
}

/// A single client with only failing requests ejects a member for itself. Requests of other clients, in any order,
/// still get the member; the first success closes the circuit, and if the first one fails, the member is ejected for
/// all.
#[test]
fn single_failing_client_ejects_only_for_itself() {
    const FAILURES: [AttemptOutcome; 4] = [
        AttemptOutcome::Lost,
        AttemptOutcome::TimedOut,
        AttemptOutcome::Malformed,
        AttemptOutcome::ServerError,
    ];
    for seed in 0..200_u64 {
        let failure = FAILURES[seed as usize % 4];
        let mut now_ms = hash::mix(seed) % 10_000;
        let (mut group, ids) = group(
            settings(BalancingPolicy::RoundRobin),
            &[("a", 1), ("backup", 1)],
        );
        let of = |client: u8| PickRequest {
            client: Some([192, 0, 2, client].into()),
            ..PickRequest::default()
        };
        let eject = |group: &mut Members, now_ms| {
            let is_out = |group: &mut Members| {
                let picked = group.pick(&of(1), now_ms, 0).expect("a member");
                if picked.member == ids[0] {
                    group.report(picked, failure, now_ms);
                    return false;
                }
                group.report(picked, AttemptOutcome::Answered, now_ms);
                true
            };
            assert!((0..10).any(|_| is_out(group)), "seed {seed}, {failure:?}");
        };
        for round in 0..3 {
            eject(&mut group, now_ms);
            // Concurrent requests of other clients, perhaps after the end of the ejection.
            now_ms += hash::mix(seed ^ round) % 8_000;
            let others = (2..6).map(|client| group.pick(&of(client), now_ms, 0));
            let others: Vec<_> = others.map(|picked| picked.expect("a member")).collect();
            for picked in others {
                assert_eq!(picked.member, ids[0], "seed {seed}, {failure:?}");
                group.report(picked, AttemptOutcome::Answered, now_ms);
            }
            assert_eq!(member_health(&group, ids[0], now_ms), MemberHealth::Up);
        }
        now_ms += 60_000;
        eject(&mut group, now_ms);
        let picked = group.pick(&of(2), now_ms, 0).expect("a member");
        assert_eq!(picked.member, ids[0], "seed {seed}, {failure:?}");
        group.report(picked, failure, now_ms);
        for client in 2..6 {
            let (member, _) = group.preview(&of(client), now_ms, 0).expect("a member");
            assert_eq!(member, ids[1], "seed {seed}, {failure:?}");
        }
    }
}

/// Failures of a single client take no capacity from other clients, and do not lengthen the ejections.
#[test]
fn ejection_by_a_single_client_is_not_lengthened() {
    let (mut group, ids) = group(
        settings(BalancingPolicy::RoundRobin),
        &[("a", 1), ("backup", 1)],
    );
    let mut now_ms = 0;
    for _ in 0..20 {
        loop {
            let request = PickRequest {
                client: Some([192, 0, 2, 1].into()),
                ..request_after(&ids[1..])
            };
            let picked = group.pick(&request, now_ms, 0).expect("a member");
            group.report(picked, AttemptOutcome::ServerError, now_ms);
            if let MemberHealth::Ejected { until_ms } = member_health(&group, ids[0], now_ms) {
                // The ejection time does not double for a single client.
                assert_eq!(until_ms - now_ms, 5_000);
                now_ms = until_ms;
                break;
            }
        }
    }
}

#[test]
fn last_healthy_member_is_not_ejected_and_panic_uses_all() {
    let (mut group, ids) = group(settings(BalancingPolicy::RoundRobin), &THREE);
    // Far more failures than needed to eject all three.
    for now_ms in 0..100 {
        send_request(&mut group, AttemptOutcome::ConnectFailed, now_ms, 0);
    }
    let up = |group: &Members| {
        let status = group.status(100);
        let up = |status: &&MemberStatus| status.health == MemberHealth::Up;
        status.iter().filter(up).count()
    };
    assert_eq!(up(&group), 1);
    for id in &ids {
        (0..3).for_each(|_| _ = group.record_check(*id, false, 100));
    }
    // Unlike failed requests, active checks may mark the last member as down.
    assert_eq!(up(&group), 0);
    let (_, why) = group
        .preview(&PickRequest::default(), 100, 0)
        .expect("a member");
    assert_eq!((why.tier, why.candidates), (CandidateTier::Panic, 3));
    // With panic routing off, unhealthy members get no requests.
    let (mut strict, ids) = self::group(
        GroupSettings {
            panic_percent: 0,
            ..settings(BalancingPolicy::RoundRobin)
        },
        &THREE,
    );
    for id in &ids {
        (0..3).for_each(|_| _ = strict.record_check(*id, false, 0));
    }
    assert_eq!(
        strict.preview(&PickRequest::default(), 0, 0),
        Err(NoMember::AllDown)
    );
}

#[test]
fn backups_replace_unhealthy_or_tried_members_but_not_busy_ones() {
    let mut of = settings(BalancingPolicy::RoundRobin);
    of.circuit.requests_max = 2;
    let (mut group, ids) = group(of, &[("a", 1), ("backup", 1)]);
    let pick =
        |group: &mut Members, exclude: &[MemberId]| group.pick(&request_after(exclude), 0, 0);
    let first = pick(&mut group, &[]).expect("a member");
    let second = pick(&mut group, &[]).expect("a member");
    assert_eq!((first.member, second.member), (ids[0], ids[0]));
    // A busy member is not replaced by a backup.
    assert_eq!(pick(&mut group, &[]).unwrap_err(), NoMember::AllFull);
    // A tried member is.
    let instead = pick(&mut group, &ids[..1]).expect("a member");
    assert_eq!(
        (instead.member, instead.reason.tier),
        (ids[1], CandidateTier::Backup)
    );
    assert_eq!(pick(&mut group, &ids).unwrap_err(), NoMember::AllTried);
    // An unhealthy member is.
    (0..3).for_each(|_| _ = group.record_check(ids[0], false, 0));
    let (member, why) = group
        .preview(&PickRequest::default(), 0, 0)
        .expect("a member");
    assert_eq!((member, why.tier), (ids[1], CandidateTier::Backup));
    for picked in [first, second, instead] {
        group.report(picked, AttemptOutcome::Answered, 0);
    }
}

#[test]
fn pending_requests_have_their_own_limit() {
    let mut of = settings(BalancingPolicy::RoundRobin);
    of.circuit.pending_max = 1;
    let (mut group, _) = group(of, &[("a", 1)]);
    let mut first = group.pick(&PickRequest::default(), 0, 0).expect("a member");
    // One request waits for its connection, so the member is full.
    assert_eq!(
        group.pick(&PickRequest::default(), 0, 0).unwrap_err(),
        NoMember::AllFull
    );
    // No longer pending: the next one may wait.
    group.mark_connected(&mut first);
    let second = group.pick(&PickRequest::default(), 0, 0).expect("a member");
    let status = &group.status(0)[0];
    assert_eq!((status.requests, status.pending), (2, 1));
    group.report(first, AttemptOutcome::Answered, 0);
    group.report(second, AttemptOutcome::ConnectFailed, 0);
    let status = &group.status(0)[0];
    assert_eq!((status.requests, status.pending), (0, 0));
}

#[test]
fn drained_or_removed_member_gets_no_requests_and_late_reports_are_ignored() {
    let (mut group, ids) = group(settings(BalancingPolicy::RoundRobin), &THREE);
    assert!(group.set_mode(ids[0], MemberMode::Drain, 0));
    assert!(!shares(&mut group, 30, 0).contains_key("a"));
    assert!(group.set_mode(ids[0], MemberMode::Ready, 0));
    assert!(shares(&mut group, 60, 0).contains_key("a"));
    let held = group
        .pick(&request_after(&ids[1..]), 0, 0)
        .expect("a member");
    assert_eq!(group.remove(ids[0]), Some("a"));
    assert_eq!(group.remove(ids[0]), None);
    let new = NewMember {
        name: "new".into(),
        weight: 1,
        backup: false,
        operator: OperatorSettings::default(),
    };
    let id = group.add(new, "new", 0);
    // The slot is reused with a new generation.
    assert_eq!(id.slot, ids[0].slot);
    // Reported by the old identifier, so the new member must not see it.
    group.report(held, AttemptOutcome::Lost, 0);
    let status = group.status(0);
    let new = status.iter().find(|status| status.member == id);
    let new = new.expect("it is there");
    assert_eq!((new.requests, new.counts), (0, MemberCounters::default()));
    for id in [id, ids[1], ids[2]] {
        group.set_mode(id, MemberMode::Drain, 0);
    }
    assert_eq!(
        group.preview(&PickRequest::default(), 0, 0),
        Err(NoMember::AllOutOfService)
    );
}

/// Random histories: no excluded member is picked, limits are satisfied, and the counts of requests in progress are
/// correct.
#[test]
fn random_histories_satisfy_the_invariants() {
    let policies = [
        BalancingPolicy::RoundRobin,
        BalancingPolicy::LeastConnections,
        BalancingPolicy::RandomOfTwo,
        BalancingPolicy::ConsistentHash {
            load_percent_max: 125,
        },
    ];
    for seed in 0..400_u64 {
        let mut drawn = seed;
        let mut dice = |below: u64| {
            drawn = drawn.wrapping_add(1);
            hash::mix(hash::mix(seed) ^ drawn) % below
        };
        let mut of = settings(policies[seed as usize % 4]);
        of.panic_percent = [0, 10, 60][dice(3) as usize];
        of.circuit.requests_max = 1 + dice(20) as u32;
        of.slow_start_ms = dice(2) * 3_000;
        let names = [("a", 1), ("b", 3), ("c", 1), ("backup", 2)];
        let (mut group, mut ids) = group(of, &names[..1 + dice(4) as usize]);
        let (mut now_ms, mut held) = (0, Vec::new());
        for _ in 0..300 {
            now_ms += dice(400);
            let any = dice(ids.len() as u64) as usize;
            match dice(12) {
                0..5 => {
                    let exclude: Vec<_> = (0..dice(2)).map(|_| ids[any]).collect();
                    let request = PickRequest {
                        key: Some(dice(5)),
                        client: (dice(4) > 0).then(|| [192, 0, 2, dice(3) as u8].into()),
                        tried: &exclude,
                        session: (dice(3) == 0).then(|| ids[dice(ids.len() as u64) as usize]),
                    };
                    let random = dice(u64::MAX);
                    // `preview` must predict `pick` exactly.
                    let seen = group.preview(&request, now_ms, random);
                    match group.pick(&request, now_ms, random) {
                        Ok(picked) => {
                            assert_eq!(seen, Ok((picked.member, picked.reason)), "seed {seed}");
                            assert!(!exclude.contains(&picked.member), "seed {seed}");
                            held.push(picked);
                        }
                        Err(why) => assert_eq!(seen, Err(why), "seed {seed}"),
                    }
                }
                5..9 if !held.is_empty() => {
                    let picked = held.swap_remove(dice(held.len() as u64) as usize);
                    let outcomes = [
                        AttemptOutcome::Answered,
                        AttemptOutcome::Lost,
                        AttemptOutcome::Cancelled,
                    ];
                    group.report(picked, outcomes[dice(3) as usize], now_ms);
                }
                9 => _ = group.record_check(ids[any], dice(2) == 0, now_ms),
                10 => {
                    let modes = [
                        MemberMode::Ready,
                        MemberMode::Force,
                        MemberMode::Drain,
                        MemberMode::Down,
                    ];
                    group.set_mode(ids[any], modes[dice(4) as usize], now_ms);
                }
                _ if dice(4) == 0 => {
                    group.remove(ids[any]);
                    let new = NewMember {
                        name: "again".into(),
                        weight: 1,
                        backup: false,
                        operator: OperatorSettings::default(),
                    };
                    ids[any] = group.add(new, "again", now_ms);
                }
                _ => {}
            }
            for status in group.status(now_ms) {
                assert!(status.requests <= of.circuit.requests_max, "seed {seed}");
                let here = held.iter().filter(|picked| picked.member == status.member);
                assert_eq!(status.requests as usize, here.count(), "seed {seed}");
                assert!(status.pending <= status.requests, "seed {seed}");
            }
        }
    }
}

#[test]
fn requests_of_sessions_do_not_change_the_shares_of_others() {
    let of = settings(BalancingPolicy::RoundRobin);
    let (mut group, ids) = group(of, &[("a", 1), ("b", 1), ("c", 2)]);
    let of_session = PickRequest {
        session: Some(ids[0]),
        ..PickRequest::default()
    };
    for _ in 0..1000 {
        let picked = group.pick(&of_session, 0, 0).expect("a member");
        group.report(picked, AttemptOutcome::Answered, 0);
    }
    let shares = shares(&mut group, 8, 0);
    assert_eq!((shares["a"], shares["b"], shares["c"]), (2, 2, 4));
}

#[test]
fn member_of_the_session_is_picked_while_it_is_a_candidate() {
    let of = settings(BalancingPolicy::RoundRobin);
    let (mut group, ids) = group(of, &[("a", 1), ("b", 1), ("backup", 1)]);
    let request = |member: MemberId| PickRequest {
        session: Some(member),
        ..PickRequest::default()
    };
    for _ in 0..3 {
        let (member, reason) = group.preview(&request(ids[1]), 0, 0).expect("a member");
        assert_eq!(
            (member, reason.selected_by),
            (ids[1], SelectionReason::Session)
        );
        let picked = group.pick(&request(ids[1]), 0, 0).expect("a member");
        group.report(picked, AttemptOutcome::Answered, 0);
    }
    // A backup has no sessions while primary members are healthy.
    let (member, _) = group.preview(&request(ids[2]), 0, 0).expect("a member");
    assert_eq!(member, ids[0]);
    // While it is drained it keeps its sessions, unless they have tried it; out of service it has none.
    assert!(group.set_mode(ids[1], MemberMode::Drain, 0));
    assert!(!shares(&mut group, 10, 0).contains_key("b"));
    let (member, reason) = group.preview(&request(ids[1]), 0, 0).expect("a member");
    assert_eq!(
        (member, reason.selected_by),
        (ids[1], SelectionReason::Session)
    );
    let again = PickRequest {
        tried: &ids[1..2],
        ..request(ids[1])
    };
    let (member, _) = group.preview(&again, 0, 0).expect("a member");
    assert_eq!(member, ids[0]);
    assert!(group.set_mode(ids[1], MemberMode::Down, 0));
    let (member, _) = group.preview(&request(ids[1]), 0, 0).expect("a member");
    assert_eq!(member, ids[0]);
    assert_eq!(group.find(|target| *target == "b"), Some(ids[1]));
    group.remove(ids[1]);
    assert_eq!(group.find(|target| *target == "b"), None);
}

#[test]
fn drained_backup_has_sessions_only_while_backups_are_used() {
    // Also without panic routing, where a group without a healthy member has no tier for all members.
    for panic_percent in [0, 10] {
        let of = GroupSettings {
            panic_percent,
            ..settings(BalancingPolicy::RoundRobin)
        };
        let (mut group, ids) = group(of, &[("a", 1), ("backup", 1)]);
        assert!(group.set_mode(ids[1], MemberMode::Drain, 0));
        let of_session = PickRequest {
            session: Some(ids[1]),
            ..PickRequest::default()
        };
        let (member, reason) = group.preview(&of_session, 0, 0).expect("a member");
        assert_eq!((member, reason.tier), (ids[0], CandidateTier::Primary));
        group.mark_down(ids[0]);
        let (member, reason) = group.preview(&of_session, 0, 0).expect("a member");
        assert_eq!((member, reason.tier), (ids[1], CandidateTier::Backup));
        assert_eq!(reason.selected_by, SelectionReason::Session);
        // Requests without a session do not get it.
        let other = group.preview(&PickRequest::default(), 0, 0);
        assert!(other.is_ok_and(|(member, _)| member == ids[0]) == (panic_percent > 0));
    }
}

#[test]
fn new_member_has_the_settings_of_the_operator_at_once() {
    let (mut group, ids) = group(settings(BalancingPolicy::RoundRobin), &[("a", 1)]);
    let mut add = |name: &'static str, mode, weight| {
        let new = NewMember {
            name: name.into(),
            weight: 1,
            backup: false,
            operator: OperatorSettings { mode, weight },
        };
        group.add(new, name, 0)
    };
    add("down", MemberMode::Down, None);
    add("drained", MemberMode::Drain, None);
    let heavy = add("heavy", MemberMode::Ready, Some(3));
    let mut counts = [0; 2];
    for _ in 0..8 {
        let picked = group.pick(&PickRequest::default(), 0, 0).expect("a member");
        let index = [ids[0], heavy].iter().position(|id| *id == picked.member);
        counts[index.expect("a member in rotation")] += 1;
        group.report(picked, AttemptOutcome::Answered, 0);
    }
    assert_eq!(counts, [2, 6]);
}

#[test]
fn operator_overrides_checks_and_weights() {
    let (mut group, ids) = group(settings(BalancingPolicy::RoundRobin), &[("a", 1), ("b", 1)]);
    group.mark_down(ids[0]);
    assert!(!shares(&mut group, 10, 0).contains_key("a"));
    // A forced member that fails its checks gets requests; its health is observed further.
    assert!(group.set_mode(ids[0], MemberMode::Force, 0));
    assert!(shares(&mut group, 10, 0).contains_key("a"));
    for _ in 0..20 {
        let picked = group.pick(&request_after(&ids[1..]), 0, 0);
        let event = group.report(picked.expect("a"), AttemptOutcome::ConnectFailed, 0);
        assert_eq!(event, None);
    }
    assert_eq!(group.status(0)[0].counts.ejected, 0);
    assert!(group.set_mode(ids[0], MemberMode::Ready, 0));
    assert_eq!(group.status(0)[0].health, MemberHealth::Down);
    assert!(group.set_mode(ids[1], MemberMode::Down, 0));
    // The health of a member out of rotation is observed, too.
    let status = |group: &MemberGroup<&str>| {
        let status = &group.status(0)[1];
        (status.mode, status.health)
    };
    assert_eq!(status(&group), (MemberMode::Down, MemberHealth::Up));
    group.mark_down(ids[1]);
    assert_eq!(status(&group), (MemberMode::Down, MemberHealth::Down));
    // The configured weight may change meanwhile, as by an SRV record.
    assert!(group.set_live_weight(ids[0], Some(7)) && group.set_weight(ids[0], 3));
    let weights = |group: &MemberGroup<&str>| {
        let status = &group.status(0)[0];
        (status.weight, status.configured_weight)
    };
    assert_eq!(weights(&group), (7, 3));
    assert!(group.set_live_weight(ids[0], None));
    assert_eq!(weights(&group), (3, 3));
}
