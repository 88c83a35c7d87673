//! Heavy hitters: the most frequent keys of a stream, in bounded memory.
//!
//! The algorithm is Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k Elements
//! in Data Streams", ICDT 2005). The table has a fixed number of entries. A key that is not in a full table replaces
//! the entry with the smallest weight and inherits this weight as its error. With total weight W and m entries:
//!
//! - the weight of a key is overestimated by at most W / m, and never underestimated;
//! - each key with a weight above W / m is in the table.
//!
//! Weights decay exponentially, so that the table reflects the last minutes. Forward decay (Cormode, Shkapenyuk,
//! Srivastava, Xu: "Forward Decay", ICDE 2009) lets new occurrences weigh more instead of reducing old weights, so that
//! an occurrence changes one entry only; the bounds hold for decayed weights.
//!
//! Sampling adds another error: a sample that stands for n occurrences is at least one. Its weight is an estimate
//! with the variance n(n - 1) (Horvitz, Thompson: "A Generalization of Sampling Without Replacement", JASA 1952). The
//! error of a key is bounded by the n - 1 unseen occurrences of each sample, and for many samples by a multiple of the
//! standard deviation.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

/// Weights are rescaled before they grow by more than this factor, as a power of two.
const EXPONENT_MAX: f64 = 64.0;
/// The number of fingerprints that are compared together.
const GROUP_LEN: usize = 16;
/// The shortest time that rates refer to. Without it, a first occurrence would be an infinite rate.
const ELAPSED_MIN_MS: u64 = 1000;
/// The number of standard deviations of the sampling error in the bound of an overestimate. A larger error has a
/// probability of about 1 in 30,000.
const SAMPLING_DEVIATIONS: f64 = 4.0;

/// The bounds of a table.
#[derive(Clone, Copy, Debug)]
pub struct HitterLimits {
    /// Maximum number of keys.
    pub entries: usize,
    /// Maximum length of a key; the rest of a longer one is ignored.
    pub key_len: usize,
    /// The time in which a weight halves.
    pub half_life_ms: u64,
}

/// The table of the most frequent keys. Each occurrence belongs to one of `KINDS` kinds, for which an entry has separate
/// weights.
#[derive(Debug)]
pub struct HeavyHitters<const KINDS: usize> {
    limits: HitterLimits,
    hasher: FixedState,
    /// The time at which an occurrence weighs 1.
    landmark_ms: u64,
    /// The time of the creation.
    start_ms: u64,
    /// The weight of all occurrences.
    total: f64,
    /// The fingerprints, weights and contents of the entries, by index. They are separate, so that a search reads few
    /// cache lines.
    fingerprints: Vec<u32>,
    weights: Vec<f64>,
    contents: Vec<HitterContent<KINDS>>,
}

#[derive(Debug)]
struct HitterContent<const KINDS: usize> {
    key: Vec<u8>,
    /// The inherited weight.
    error: f64,
    /// The weight of occurrences that samples stand for but that were not seen.
    unseen: f64,
    /// The variance of the weight because of sampling.
    variance: f64,
    /// The weights of the occurrences since the key is in the table.
    kinds: [f64; KINDS],
}

/// A frequent key.
#[derive(Clone, Debug, PartialEq)]
pub struct HitterEstimate<const KINDS: usize> {
    /// The key.
    pub key: Vec<u8>,
    /// Occurrences per second; too high by at most `error`.
    pub rate: f64,
    /// The bound of the overestimate; with samples, it holds with a probability of more than 0.9999.
    pub error: f64,
    /// The rate by kind. Their sum is `rate`; the inherited part is divided like the known part.
    pub kinds: [f64; KINDS],
}

/// The frequent keys at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct HitterSnapshot<const KINDS: usize> {
    /// Occurrences of all keys per second.
    pub total_rate: f64,
    /// The frequent keys, in no particular order.
    pub keys: Vec<HitterEstimate<KINDS>>,
}

impl<const KINDS: usize> HeavyHitters<KINDS> {
    /// Creates an empty table. An unpredictable seed prevents that clients choose keys with equal
    /// fingerprints.
    pub fn new(limits: HitterLimits, seed: u64, now_ms: u64) -> HeavyHitters<KINDS> {
        HeavyHitters {
            limits,
            hasher: FixedState::with_seed(seed),
            landmark_ms: now_ms,
            start_ms: now_ms,
            total: 0.0,
            fingerprints: Vec::with_capacity(limits.entries),
            weights: Vec::with_capacity(limits.entries),
            contents: Vec::with_capacity(limits.entries),
        }
    }

    /// Records `count` occurrences of a key. Allocates memory only until the table is full.
    pub fn record(&mut self, key: &[u8], kind: usize, count: u64, now_ms: u64) {
        let scale = self.scale(now_ms);
        self.add(key, kind, scale * count as f64);
    }

    /// Records one occurrence of a key that stands for `count` occurrences of any keys.
    pub fn record_sample(&mut self, key: &[u8], kind: usize, count: u64, now_ms: u64) {
        let (scale, count) = (self.scale(now_ms), count as f64);
        let content = self.add(key, kind, scale * count);
        // One of the occurrences was seen, so it can't be an overestimate.
        content.unseen += scale * (count - 1.0);
        content.variance += scale * scale * count * (count - 1.0);
    }

    fn add(&mut self, key: &[u8], kind: usize, weight: f64) -> &mut HitterContent<KINDS> {
        let key = &key[..key.len().min(self.limits.key_len)];
        self.total += weight;
        let fingerprint = self.hasher.hash_one(key) as u32;
        let found = self.find(fingerprint, key);
        let index = found.unwrap_or_else(|| self.insert(fingerprint, key));
        self.weights[index] += weight;
        let content = &mut self.contents[index];
        content.kinds[kind] += weight;
        content
    }

    /// Records occurrences of keys that are known to be rare. They only count in the total.
    pub fn record_others(&mut self, count: u64, now_ms: u64) {
        self.total += self.scale(now_ms) * count as f64;
    }

    /// The rates at one moment.
    pub fn snapshot(&self, now_ms: u64) -> HitterSnapshot<KINDS> {
        let half_life_ms = self.limits.half_life_ms as f64;
        let elapsed_ms = now_ms.saturating_sub(self.start_ms).max(ELAPSED_MIN_MS);
        // A constant rate r has the decayed weight r * half_life / ln 2 * (1 - 2^(-elapsed / half_life)).
        let window_s = half_life_ms / 1000.0 / std::f64::consts::LN_2
            * (1.0 - (-(elapsed_ms as f64) / half_life_ms).exp2());
        let factor = (-self.exponent(now_ms)).exp2() / window_s;
        let entries = self.weights.iter().zip(&self.contents);
        let keys = entries.map(|(weight, content)| {
            let known: f64 = content.kinds.iter().sum();
            HitterEstimate {
                key: content.key.clone(),
                rate: weight * factor,
                error: (content.error + content.sampling_error()) * factor,
                kinds: content.kinds.map(|kind| weight * factor * kind / known),
            }
        });
        HitterSnapshot {
            total_rate: self.total * factor,
            keys: keys.collect(),
        }
    }

    /// The weight of an occurrence.
    fn scale(&mut self, now_ms: u64) -> f64 {
        let exponent = self.exponent(now_ms);
        if exponent <= EXPONENT_MAX {
            return exponent.exp2();
        }
        let factor = (-exponent).exp2();
        self.landmark_ms = now_ms;
        self.total *= factor;
        self.weights.iter_mut().for_each(|it| *it *= factor);
        for content in &mut self.contents {
            content.error *= factor;
            content.unseen *= factor;
            content.variance *= factor * factor;
            content.kinds.iter_mut().for_each(|it| *it *= factor);
        }
        // A key that has not occurred for many half-lives: its weight would underflow, and its shares could not be
        // computed.
        for index in (0..self.weights.len()).rev() {
            if self.weights[index] < f64::MIN_POSITIVE / f64::EPSILON {
                self.fingerprints.swap_remove(index);
                self.weights.swap_remove(index);
                self.contents.swap_remove(index);
            }
        }
        1.0
    }

    /// The number of half-lives since the landmark.
    fn exponent(&self, now_ms: u64) -> f64 {
        now_ms.saturating_sub(self.landmark_ms) as f64 / self.limits.half_life_ms as f64
    }

    fn find(&self, fingerprint: u32, key: &[u8]) -> Option<usize> {
        let groups = self.fingerprints.chunks(GROUP_LEN).enumerate();
        for (group, fingerprints) in groups {
            // Without an early exit, the compiler compares several fingerprints with one instruction.
            let is_here = |found: bool, it: &u32| found | (*it == fingerprint);
            if !fingerprints.iter().fold(false, is_here) {
                continue;
            }
            // Different keys may have the same fingerprint, so the search continues after a wrong one.
            for (at, candidate) in fingerprints.iter().enumerate() {
                let index = group * GROUP_LEN + at;
                if *candidate == fingerprint && self.contents[index].key == key {
                    return Some(index);
                }
            }
        }
        None
    }

    /// Adds a key without weight of its own, in place of the least frequent one if the table is full. Returns its index.
    fn insert(&mut self, fingerprint: u32, key: &[u8]) -> usize {
        if self.contents.len() < self.limits.entries {
            // Long enough for all later keys of this entry.
            let mut owned = Vec::with_capacity(self.limits.key_len);
            owned.extend_from_slice(key);
            self.fingerprints.push(fingerprint);
            self.weights.push(0.0);
            self.contents.push(HitterContent {
                key: owned,
                error: 0.0,
                unseen: 0.0,
                variance: 0.0,
                kinds: [0.0; KINDS],
            });
            return self.contents.len() - 1;
        }
        let (mut index, mut least) = (0, f64::INFINITY);
        for (at, weight) in self.weights.iter().enumerate() {
            if *weight < least {
                (index, least) = (at, *weight);
            }
        }
        self.fingerprints[index] = fingerprint;
        let content = &mut self.contents[index];
        content.key.clear();
        content.key.extend_from_slice(key);
        content.error = least;
        (content.unseen, content.variance) = (0.0, 0.0);
        content.kinds = [0.0; KINDS];
        index
    }
}

impl<const KINDS: usize> HitterContent<KINDS> {
    /// The bound of the overestimate because of sampling.
    fn sampling_error(&self) -> f64 {
        // For few samples, all unseen occurrences are fewer than the deviations.
        let deviation = SAMPLING_DEVIATIONS * self.variance.sqrt();
        deviation.min(self.unseen)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const LIMITS: HitterLimits = HitterLimits {
        entries: 16,
        key_len: 32,
        half_life_ms: 60_000,
    };

    fn sorted(table: &HeavyHitters<2>, now_ms: u64) -> Vec<HitterEstimate<2>> {
        let mut keys = table.snapshot(now_ms).keys;
        keys.sort_by(|a, b| b.rate.total_cmp(&a.rate));
        keys
    }

    #[test]
    fn rates_of_few_keys_are_exact() {
        let mut table = HeavyHitters::<2>::new(LIMITS, 1, 0);
        for ms in (0..600_000).step_by(100) {
            table.record(b"a", 0, 1, ms);
            table.record(b"a", 1, 2, ms);
            table.record(b"b", 1, 1, ms);
        }
        let keys = sorted(&table, 600_000);
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.01;
        assert_eq!((&*keys[0].key, keys[0].error), (&b"a"[..], 0.0));
        assert!(near(keys[0].rate, 30.0), "{keys:?}");
        assert!(near(keys[0].kinds[0], 10.0) && near(keys[0].kinds[1], 20.0));
        assert!(near(keys[1].rate, 10.0), "{keys:?}");
        assert!(near(table.snapshot(600_000).total_rate, 40.0));
    }

    #[test]
    fn rate_is_right_before_a_half_life_has_passed() {
        let mut table = HeavyHitters::<2>::new(LIMITS, 1, 5_000);
        for ms in 5_000..15_000 {
            table.record(b"a", 0, 1, ms);
        }
        let rate = table.snapshot(15_000).keys[0].rate;
        assert!((rate / 1000.0 - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn rates_decay_and_weights_are_rescaled() {
        let mut table = HeavyHitters::<2>::new(LIMITS, 1, 0);
        table.record(b"old", 0, 1000, 0);
        // Far more than the 64 half-lives after which weights are rescaled.
        for minute in 0..2000 {
            table.record(b"new", 0, 60, minute * 60_000);
        }
        let keys = sorted(&table, 2000 * 60_000);
        assert_eq!(keys[0].key, b"new");
        assert!((0.5..2.0).contains(&keys[0].rate), "{keys:?}");
        assert!(keys.iter().all(|it| it.rate.is_finite() && it.rate >= 0.0));
        assert!(keys.get(1).is_none_or(|it| it.rate < 1e-6), "{keys:?}");
        // An idle table still has finite rates.
        assert!(sorted(&table, u64::MAX).iter().all(|it| it.rate == 0.0));
    }

    #[test]
    fn estimates_keep_the_bounds_of_space_saving() {
        let mut table = HeavyHitters::<2>::new(LIMITS, 7, 0);
        let (mut exact, mut seed) = (HashMap::new(), 1u64);
        let count = 100_000;
        for _ in 0..count {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // A skewed distribution over 1000 keys.
            let unit = (seed >> 33) as f64 / f64::from(1u32 << 31);
            let key = format!("/{}", (1000.0 * unit.powi(4)) as u32);
            table.record(key.as_bytes(), 0, 1, 0);
            *exact.entry(key.into_bytes()).or_insert(0u64) += 1;
        }
        let snapshot = table.snapshot(1000);
        assert_eq!(snapshot.keys.len(), LIMITS.entries);
        let to_count = f64::from(count) / snapshot.total_rate;
        let bound = f64::from(count) / LIMITS.entries as f64;
        for key in &snapshot.keys {
            let truth = exact[&key.key] as f64;
            let (estimate, error) = (key.rate * to_count, key.error * to_count);
            assert!(estimate >= truth - 1e-3, "{key:?} {truth}");
            assert!(estimate - error <= truth + 1e-3, "{key:?} {truth}");
            assert!(error <= bound + 1e-3, "{key:?} {bound}");
        }
        for (key, count) in exact {
            let is_listed = snapshot.keys.iter().any(|it| it.key == key);
            assert!(is_listed || count as f64 <= bound, "{count}");
        }
    }

    #[test]
    fn keys_are_cut_and_memory_is_bounded() {
        let mut table = HeavyHitters::<2>::new(LIMITS, 1, 0);
        for number in 0..1000 {
            table.record(format!("{number:0100}").as_bytes(), 0, 1, 0);
        }
        // All keys have the same first 32 bytes.
        assert_eq!(table.contents.len(), 1);
        for number in 0..1000 {
            table.record(format!("{number}").as_bytes(), 0, 1, 0);
        }
        assert_eq!(table.contents.len(), LIMITS.entries);
        let kept = |content: &HitterContent<2>| content.key.capacity() == LIMITS.key_len;
        assert!(table.contents.iter().all(kept));
    }

    #[test]
    fn other_occurrences_count_only_in_the_total() {
        let mut table = HeavyHitters::<2>::new(LIMITS, 1, 0);
        table.record(b"a", 0, 1, 0);
        table.record_others(3, 0);
        let snapshot = table.snapshot(1000);
        assert_eq!(snapshot.keys.len(), 1);
        assert!((snapshot.keys[0].rate / snapshot.total_rate - 0.25).abs() < 1e-9);
    }
}
