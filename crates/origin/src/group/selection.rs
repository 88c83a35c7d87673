//! Load balancing policies: each selects one of several candidates. Pure functions: the random number is a parameter.

use super::hash::mix;
use super::settings::BalancingPolicy;

/// A member that may be selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberCandidate {
    /// The slot in the group.
    pub slot: usize,
    /// The current weight; more than 0.
    pub weight: u64,
    /// The number of requests in progress.
    pub load: u32,
    /// The hash of the name, for consistent hashing.
    pub hash: u64,
    /// The credit in smooth weighted round robin.
    pub credit: i64,
}

/// How a member was selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionReason {
    /// The only candidate.
    Only,
    /// By round robin.
    RoundRobin,
    /// By the least load relative to its weight.
    LeastLoaded {
        /// The requests in progress.
        load: u32,
    },
    /// Power of two choices: the less loaded, relative to its weight, of two random members.
    LessOfTwo {
        /// The requests in progress.
        load: u32,
    },
    /// As the member of the request's session.
    Session,
    /// By the hash of the key.
    Key {
        /// The number of members with a higher score for the key that were skipped because of their load.
        skipped: u32,
    },
}

/// Selects a candidate; returns its index and how it was selected. `None` if there are no candidates. The key is used
/// by consistent hashing only; without a key, that policy uses the power of two choices.
pub fn choose(
    policy: BalancingPolicy,
    candidates: &[MemberCandidate],
    key: Option<u64>,
    random: u64,
) -> Option<(usize, SelectionReason)> {
    // For a single candidate, the policy does not matter.
    if candidates.len() < 2 {
        return (!candidates.is_empty()).then_some((0, SelectionReason::Only));
    }
    Some(match (policy, key) {
        (BalancingPolicy::RoundRobin, _) => (next_turn(candidates), SelectionReason::RoundRobin),
        (BalancingPolicy::LeastConnections, _) => least_loaded(candidates, random),
        (BalancingPolicy::ConsistentHash { load_percent_max }, Some(key)) => {
            by_key(candidates, key, load_percent_max)
        }
        (BalancingPolicy::RandomOfTwo | BalancingPolicy::ConsistentHash { .. }, _) => {
            less_of_two(candidates, random)
        }
    })
}

/// Smooth weighted round robin (nginx): the candidate with the highest credit.
fn next_turn(candidates: &[MemberCandidate]) -> usize {
    // The candidates' credits do not include this turn yet.
    let next_credit =
        |candidate: &MemberCandidate| candidate.credit.saturating_add_unsigned(candidate.weight);
    let mut best = 0;
    for (index, candidate) in candidates.iter().enumerate() {
        if next_credit(candidate) > next_credit(&candidates[best]) {
            best = index;
        }
    }
    best
}

/// Whether `a` with one more request is less loaded than `b` with one more, relative to their weights.
fn is_less_loaded(a: &MemberCandidate, b: &MemberCandidate) -> bool {
    // a/wa < b/wb without division, so that it is exact; u128 cannot overflow. The new request is included, so that
    // weights matter among idle members.
    let load_plus_one = |candidate: &MemberCandidate| u128::from(candidate.load) + 1;
    load_plus_one(a) * u128::from(b.weight) < load_plus_one(b) * u128::from(a.weight)
}

fn least_loaded(candidates: &[MemberCandidate], random: u64) -> (usize, SelectionReason) {
    // The scan starts at a random candidate, so that ties do not always go to the first.
    let start = (random % candidates.len() as u64) as usize;
    let mut best = start;
    for index in (start + 1..candidates.len()).chain(0..start) {
        if is_less_loaded(&candidates[index], &candidates[best]) {
            best = index;
        }
    }
    let load = candidates[best].load;
    (best, SelectionReason::LeastLoaded { load })
}

fn less_of_two(candidates: &[MemberCandidate], random: u64) -> (usize, SelectionReason) {
    // Two distinct members, since drawing the same one twice would waste the second choice.
    let first = draw(candidates, None, random);
    let second = draw(candidates, Some(first), mix(random));
    let chosen = match is_less_loaded(&candidates[second], &candidates[first]) {
        true => second,
        false => first,
    };
    let load = candidates[chosen].load;
    (chosen, SelectionReason::LessOfTwo { load })
}

/// Draws a random candidate by weight, except `excluded`.
fn draw(candidates: &[MemberCandidate], excluded: Option<usize>, random: u64) -> usize {
    let eligible = || {
        let all = candidates.iter().enumerate();
        all.filter(move |(index, _)| Some(*index) != excluded)
    };
    let total: u64 = eligible().map(|(_, candidate)| candidate.weight).sum();
    // `max` only guards against division by 0: weights are at least 1.
    let mut remaining = random % total.max(1);
    for (index, candidate) in eligible() {
        if remaining < candidate.weight {
            return index;
        }
        remaining -= candidate.weight;
    }
    // Unreachable: `remaining` is below the sum of the weights.
    0
}

/// Consistent hashing with bounded loads, by weighted rendezvous hashing: each member has a score for the key, and the
/// member with the highest score is selected. So adding or removing a member moves only its own keys, and no ring must
/// be stored. A member with a load above its share is skipped.
fn by_key(
    candidates: &[MemberCandidate],
    key: u64,
    load_percent_max: u32,
) -> (usize, SelectionReason) {
    let total_weight: u128 = candidates
        .iter()
        .map(|member| u128::from(member.weight))
        .sum();
    let total_load: u128 = candidates
        .iter()
        .map(|member| u128::from(member.load))
        .sum();
    // Below 100 %, the shares would not suffice for the total load.
    let percent = u128::from(load_percent_max.max(100));
    let has_room = |member: &MemberCandidate| {
        // The new request is included, so that the first one has room in an empty group.
        let share = (total_load + 1) * u128::from(member.weight) * percent;
        u128::from(member.load) < share.div_ceil(total_weight * 100)
    };
    let mut best: Option<(usize, f64)> = None;
    // The best candidate with room.
    for (index, candidate) in candidates.iter().enumerate() {
        let score = score(candidate, key);
        if has_room(candidate) && best.is_none_or(|(_, highest)| score > highest) {
            best = Some((index, score));
        }
    }
    // The shares add up to more than the total load, so at least one candidate has room.
    let (chosen, highest) = best.unwrap_or((0, 0.0));
    let better = candidates
        .iter()
        .filter(|member| score(member, key) > highest);
    let skipped = better.count() as u32;
    (chosen, SelectionReason::Key { skipped })
}

fn score(candidate: &MemberCandidate, key: u64) -> f64 {
    // Strictly between 0 and 1, so that the logarithm is finite and not 0.
    let uniform = ((mix(key ^ candidate.hash) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    // With this formula, a member has the highest score in proportion to its weight.
    -(candidate.weight as f64) / uniform.ln()
}
