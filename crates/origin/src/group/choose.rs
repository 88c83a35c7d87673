//! Which of several members is taken, by each policy. Pure: the members are numbers, and randomness is
//! one of them. It knows nothing of who may be asked and why.

use super::hash::mix;
use super::settings::Policy;

/// A member that may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number among all.
    pub slot: usize,
    /// What it weighs; more than 0.
    pub weight: u64,
    /// Requests that it has.
    pub load: u32,
    /// What consistent hashing knows it by.
    pub hash: u64,
    /// Its place in the turns.
    pub turn: i64,
}

/// By what a member was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// There was no other.
    Only,
    /// It was its turn.
    Turn,
    /// It had the fewest requests for its weight.
    LeastLoaded {
        /// So many.
        load: u32,
    },
    /// It was drawn, and had fewer requests for its weight than the other that was.
    LessOfTwo {
        /// So many.
        load: u32,
    },
    /// The key leads to it.
    Key {
        /// So many to whom the key leads sooner had more than their share.
        passed_over: u32,
    },
}

/// Takes one, and says by what; gives the number among the candidates. `None` if there are none. A
/// key is only looked at by consistent hashing; without one, that draws two.
pub fn choose(
    policy: Policy,
    candidates: &[Candidate],
    key: Option<u64>,
    random: u64,
) -> Option<(usize, By)> {
    if candidates.len() < 2 {
        return (!candidates.is_empty()).then_some((0, By::Only));
    }
    Some(match (policy, key) {
        (Policy::RoundRobin, _) => (next_turn(candidates), By::Turn),
        (Policy::LeastConnections, _) => least_loaded(candidates, random),
        (Policy::ConsistentHash { load_percent_max }, Some(key)) => {
            by_key(candidates, key, load_percent_max)
        }
        (Policy::RandomOfTwo | Policy::ConsistentHash { .. }, _) => less_of_two(candidates, random),
    })
}

/// Smooth weighted round robin: who is furthest behind its share.
fn next_turn(candidates: &[Candidate]) -> usize {
    let behind = |candidate: &Candidate| candidate.turn.saturating_add_unsigned(candidate.weight);
    let mut best = 0;
    for (at, candidate) in candidates.iter().enumerate() {
        if behind(candidate) > behind(&candidates[best]) {
            best = at;
        }
    }
    best
}

/// Whether a request more costs `a` less than `b`.
fn is_less(a: &Candidate, b: &Candidate) -> bool {
    let with_one = |candidate: &Candidate| u128::from(candidate.load) + 1;
    with_one(a) * u128::from(b.weight) < with_one(b) * u128::from(a.weight)
}

fn least_loaded(candidates: &[Candidate], random: u64) -> (usize, By) {
    // From anywhere: of equals it is not always the first.
    let start = (random % candidates.len() as u64) as usize;
    let mut best = start;
    for at in (start + 1..candidates.len()).chain(0..start) {
        if is_less(&candidates[at], &candidates[best]) {
            best = at;
        }
    }
    let load = candidates[best].load;
    (best, By::LeastLoaded { load })
}

fn less_of_two(candidates: &[Candidate], random: u64) -> (usize, By) {
    let first = draw(candidates, None, random);
    let second = draw(candidates, Some(first), mix(random));
    let taken = match is_less(&candidates[second], &candidates[first]) {
        true => second,
        false => first,
    };
    let load = candidates[taken].load;
    (taken, By::LessOfTwo { load })
}

/// One by weight, but not this.
fn draw(candidates: &[Candidate], not: Option<usize>, random: u64) -> usize {
    let others = || {
        let all = candidates.iter().enumerate();
        all.filter(move |(at, _)| Some(*at) != not)
    };
    let total: u64 = others().map(|(_, candidate)| candidate.weight).sum();
    let mut left = random % total.max(1);
    for (at, candidate) in others() {
        if left < candidate.weight {
            return at;
        }
        left -= candidate.weight;
    }
    0
}

/// Weighted rendezvous hashing: each member has a score for the key, and the highest has it. So who
/// comes or goes moves only its own keys, and nothing has to be kept.
fn by_key(candidates: &[Candidate], key: u64, load_percent_max: u32) -> (usize, By) {
    let total_weight: u128 = candidates.iter().map(|one| u128::from(one.weight)).sum();
    let total_load: u128 = candidates.iter().map(|one| u128::from(one.load)).sum();
    let percent = u128::from(load_percent_max.max(100));
    let has_room = |one: &Candidate| {
        let share = (total_load + 1) * u128::from(one.weight) * percent;
        u128::from(one.load) < share.div_ceil(total_weight * 100)
    };
    let mut best: Option<(usize, f64)> = None;
    for (at, candidate) in candidates.iter().enumerate() {
        let score = score(candidate, key);
        if has_room(candidate) && best.is_none_or(|(_, highest)| score > highest) {
            best = Some((at, score));
        }
    }
    // Their shares add up to more than the load, so one has room.
    let (taken, highest) = best.unwrap_or((0, 0.0));
    let sooner = candidates.iter().filter(|one| score(one, key) > highest);
    let passed_over = sooner.count() as u32;
    (taken, By::Key { passed_over })
}

fn score(candidate: &Candidate, key: u64) -> f64 {
    // Between 0 and 1, neither of both.
    let drawn = ((mix(key ^ candidate.hash) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -(candidate.weight as f64) / drawn.ln()
}
