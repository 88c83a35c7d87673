//! The source of a response, and its words in the log.

use lowroad_response_cache::storage::HitKind;

/// The source of a response, as shown in the log and the cache counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// A stored response or file in memory.
    Hit,
    /// A file that had to be loaded or checked first.
    Miss,
    /// A response generated for this request: a redirect by rule, or a refusal.
    Generated,
    /// A program (handler other than an origin); the response was not stored.
    Program,
    /// A stale stored response: staleness was allowed, or the origin failed.
    Stale,
    /// A stored response, after a request to the origin by this request or by an equal, concurrent one.
    Stored(HitKind),
    /// A stored response, after a call of a program by this request or by an equal, concurrent one.
    ProgramStored(HitKind),
    /// An origin; the response was not stored.
    Passed,
}

impl RequestOutcome {
    /// The outcome for a response that was stored by a call, or that was found in the store while waiting for a call.
    pub fn from_hit(hit_kind: HitKind, is_origin: bool) -> RequestOutcome {
        match is_origin {
            true => RequestOutcome::Stored(hit_kind),
            false => RequestOutcome::ProgramStored(hit_kind),
        }
    }

    /// The word that is logged.
    pub fn as_str(self) -> &'static str {
        self.words().outcome
    }

    /// The words for this outcome.
    pub(crate) fn words(self) -> &'static OutcomeWords {
        match self {
            RequestOutcome::Hit | RequestOutcome::Stored(HitKind::Hit) => &HIT,
            RequestOutcome::Miss => &MISS,
            RequestOutcome::Stored(HitKind::Fetched | HitKind::Coalesced) => &FETCHED,
            RequestOutcome::Generated => &GENERATED,
            RequestOutcome::Program | RequestOutcome::ProgramStored(_) => &HANDLER,
            RequestOutcome::Stale | RequestOutcome::Stored(HitKind::StaleIfError) => &STALE,
            RequestOutcome::Stored(HitKind::Validated) => &VALIDATED,
            RequestOutcome::Passed => &PASSED,
        }
    }
}

/// The words that are logged for an outcome.
pub(crate) struct OutcomeWords {
    /// How the response was produced.
    pub(crate) outcome: &'static str,
    /// The level that produced the response.
    pub(crate) level: &'static str,
    /// Both words, so that one copy of constant length adds them to a record.
    pub(crate) joined: [u8; JOINED_LEN],
}

/// The maximum length of the words of an outcome.
const JOINED_LEN: usize = 24;

/// The words, padded.
const fn joined(words: &str) -> [u8; JOINED_LEN] {
    let (mut joined, mut at) = ([0; JOINED_LEN], 0);
    while at < words.len() {
        joined[at] = words.as_bytes()[at];
        at += 1;
    }
    joined
}

/// Creates an [`OutcomeWords`] from two literals.
macro_rules! outcome_words {
    ($outcome:literal, $level:literal) => {
        OutcomeWords {
            outcome: $outcome,
            level: $level,
            joined: joined(concat!($outcome, $level)),
        }
    };
}

static HIT: OutcomeWords = outcome_words!("hit", "worker");
static MISS: OutcomeWords = outcome_words!("miss", "worker");
static FETCHED: OutcomeWords = outcome_words!("miss", "origin");
static GENERATED: OutcomeWords = outcome_words!("made", "worker");
static HANDLER: OutcomeWords = outcome_words!("made", "handler");
static STALE: OutcomeWords = outcome_words!("stale", "worker");
static VALIDATED: OutcomeWords = outcome_words!("revalidated", "origin");
static PASSED: OutcomeWords = outcome_words!("pass", "origin");
