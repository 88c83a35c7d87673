//! Random records.

use std::net::IpAddr;

use lowroad_log::AccessEntry;

/// SplitMix64.
pub struct RandomDraws(u64);

impl RandomDraws {
    /// Creates a generator with a seed.
    pub fn new(seed: u64) -> RandomDraws {
        RandomDraws(seed)
    }

    /// 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ bits >> 31
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A text: one of `few`, or random bytes.
    fn text(&mut self, few: u64) -> Vec<u8> {
        match self.below(20) {
            0 => Vec::new(),
            1 => (0..self.below(80)).map(|_| self.next() as u8).collect(),
            _ => format!("text {}", self.below(few)).into_bytes(),
        }
    }

    /// A number of any length.
    fn number(&mut self) -> u64 {
        self.next() >> self.below(64)
    }
}

/// A record with its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleRecord {
    pub peer: IpAddr,
    pub user: Vec<u8>,
    pub unix_ms: u64,
    pub line: Vec<u8>,
    pub host: Vec<u8>,
    pub status: u16,
    pub body_bytes: u64,
    pub whole: bool,
    pub referer: Vec<u8>,
    pub user_agent: Vec<u8>,
    pub duration_us: u64,
    pub outcome: String,
    pub level: String,
    pub tls: String,
}

impl SampleRecord {
    /// Draws a record.
    pub fn draw(draws: &mut RandomDraws) -> SampleRecord {
        let peer = match draws.below(3) {
            0 => IpAddr::from(
                u128::from(draws.below(9))
                    .wrapping_add(1 << 125)
                    .to_be_bytes(),
            ),
            _ => IpAddr::from([10, 0, 0, draws.below(20) as u8]),
        };
        let word = |draws: &mut RandomDraws| {
            ["", "hit", "miss", "TLSv1.3"][draws.below(4) as usize].to_owned()
        };
        SampleRecord {
            peer,
            user: draws.text(2),
            unix_ms: match draws.below(30) {
                0 => draws.number(),
                _ => 1_795_207_512_000 + draws.below(5000),
            },
            line: match draws.below(5) {
                0 => draws.text(5),
                _ => format!("GET /{} HTTP/1.1", draws.below(60)).into_bytes(),
            },
            host: draws.text(3),
            status: 100 + draws.below(500) as u16,
            body_bytes: draws.number() >> 1,
            whole: draws.below(9) > 0,
            referer: draws.text(20),
            user_agent: draws.text(9),
            duration_us: draws.number(),
            outcome: word(draws),
            level: word(draws),
            tls: word(draws),
        }
    }

    /// The record, borrowed.
    pub fn entry(&self) -> AccessEntry<'_> {
        AccessEntry {
            peer: self.peer,
            user: &self.user,
            unix_ms: self.unix_ms,
            line: &self.line,
            host: &self.host,
            status: self.status,
            body_bytes: self.body_bytes,
            whole: self.whole,
            referer: &self.referer,
            user_agent: &self.user_agent,
            duration_us: self.duration_us,
            outcome: &self.outcome,
            level: &self.level,
            tls: &self.tls,
        }
    }

    /// A copy of an entry.
    pub fn from_entry(entry: &AccessEntry<'_>) -> SampleRecord {
        SampleRecord {
            peer: entry.peer,
            user: entry.user.to_vec(),
            unix_ms: entry.unix_ms,
            line: entry.line.to_vec(),
            host: entry.host.to_vec(),
            status: entry.status,
            body_bytes: entry.body_bytes,
            whole: entry.whole,
            referer: entry.referer.to_vec(),
            user_agent: entry.user_agent.to_vec(),
            duration_us: entry.duration_us,
            outcome: entry.outcome.into(),
            level: entry.level.into(),
            tls: entry.tls.into(),
        }
    }
}
