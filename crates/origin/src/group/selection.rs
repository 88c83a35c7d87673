//! Load balancing policies: each selects one of several candidates. Pure: randomness is a parameter, and candidates are
//! numbers.

use super::hash::mix;
use super::settings::BalancingPolicy;

/// A member that may be selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberCandidate {
    /// Its slot in the group.
    pub slot: usize,
    /// Its current weight; more than 0.
    pub weight: u64,
    /// Its requests in progress.
    pub load: u32,
    /// The hash of its name, for consistent hashing.
    pub hash: u64,
    /// Its credit in smooth weighted round robin.
    pub credit: i64,
}

/// How a member was selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionReason {
    /// It was the only candidate.
    Only,
    /// By round robin.
    Turn,
    /// It had the least load for its weight.
    LeastLoaded {
        /// Its requests in progress.
        load: u32,
    },
    /// Power of two choices: the less loaded, for its weight, of two random members.
    LessOfTwo {
        /// Its requests in progress.
        load: u32,
    },
    /// By the key's hash.
    Key {
        /// Members with a better score for the key that were skipped because of their load.
        skipped: u32,
    },
}

/// Selects a candidate; returns its index and the way of the selection. `None` if there are none. The key
/// matters for consistent hashing only; without a key, that policy uses two random choices.
pub fn choose(
    policy: BalancingPolicy,
    candidates: &[MemberCandidate],
    key: Option<u64>,
    random: u64,
) -> Option<(usize, SelectionReason)> {
    // A single candidate needs no policy, and no key.
    if candidates.len() < 2 {
        return (!candidates.is_empty()).then_some((0, SelectionReason::Only));
    }
    Some(match (policy, key) {
        (BalancingPolicy::RoundRobin, _) => (next_turn(candidates), SelectionReason::Turn),
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
    // The current turn has not been credited yet.
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

/// Whether one more request loads `a` less than `b`, relative to their weights.
fn is_less_loaded(a: &MemberCandidate, b: &MemberCandidate) -> bool {
    // a/wa < b/wb without division, so exact; u128 cannot overflow.
    // The new request counts, so that weights matter among idle members.
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
    // Distinct members: drawing the same twice would waste the second choice.
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
    // `max` only guards the division: weights are at least 1.
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

/// Weighted rendezvous hashing: each member has a score for the key, and the highest score gets it. So a
/// member that is added or removed moves only its own keys, and no ring must be stored. Loads are bounded: a member
/// above its share is skipped.
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
    // Below 100 % the shares could not hold the total load.
    let percent = u128::from(load_percent_max.max(100));
    let has_room = |member: &MemberCandidate| {
        // The request being placed counts too, so that the first one fits into an empty group.
        let share = (total_load + 1) * u128::from(member.weight) * percent;
        u128::from(member.load) < share.div_ceil(total_weight * 100)
    };
    let mut best: Option<(usize, f64)> = None;
    // Rendezvous hashing: the highest score of all candidates, so that a removed member moves only its own keys.
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
    -(candidate.weight as f64) / uniform.ln()
}
