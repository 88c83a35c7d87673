//! Requests as of SPECweb99 with its standard mix, as the lab's workload of that name makes them: 70 % files, 30 %
//! dynamic, of which 42 % show ads and 16 % are posts; folders by Zipf's law, four classes of nine files. Clients are
//! ten load generators, without Referer and User-Agent.

use std::net::IpAddr;

use lowroad_log::AccessEntry;

use super::draws::RandomDraws;
use super::generate::TrafficMix;

/// Folders for 400 connections: 25 + 0.66 × (5 × 400).
const FOLDERS: u64 = 1345;
const CLASS_WEIGHTS: [f64; 4] = [0.35, 0.50, 0.14, 0.01];
/// The nine files of a class by popularity.
const FILE_WEIGHTS: [f64; 9] = [3.9, 5.9, 8.8, 17.7, 35.3, 11.8, 7.1, 5.0, 4.5];

/// The mix.
pub struct SpecWebMix {
    random: RandomDraws,
}

impl SpecWebMix {
    /// Starts the mix.
    pub fn new() -> SpecWebMix {
        SpecWebMix {
            random: RandomDraws::new(99),
        }
    }
}

impl TrafficMix for SpecWebMix {
    fn next(&mut self, call: &mut dyn FnMut(AccessEntry<'_>)) {
        let random = &mut self.random;
        let client = [10, 0, 0, 1 + random.below(10) as u8];
        let class = random.weighted(&CLASS_WEIGHTS);
        let (folder, file) = (random.zipf(FOLDERS), random.weighted(&FILE_WEIGHTS) as u64);
        let path = format!("/file_set/dir{folder:05}/class{class}_{file}");
        let len = 1024 * 10_u64.pow(class as u32) * (file + 1) / 10;
        let is_dynamic = random.below(10) < 3;
        let user = random.below(FOLDERS * 10);
        let program = "/specweb99-cadget";
        let (line, body_bytes, outcome, level) = match (is_dynamic, random.below(100)) {
            (false, _) => (format!("GET {path} HTTP/1.1"), len, "hit", "worker"),
            (true, 0..42) => {
                let line = format!("GET {program}?{path}?zone={} HTTP/1.1", user % 360);
                (line, len + 400, "made", "module")
            }
            (true, 42..58) => (
                "POST /specweb99-post HTTP/1.1".into(),
                len + 350,
                "made",
                "module",
            ),
            (true, _) => (
                format!("GET /specweb99-get?{path} HTTP/1.1"),
                len + 300,
                "made",
                "module",
            ),
        };
        call(AccessEntry {
            peer: IpAddr::from(client),
            user: b"",
            unix_ms: 0,
            line: line.as_bytes(),
            host: b"sut.example",
            status: 200,
            body_bytes,
            whole: true,
            referer: b"",
            user_agent: b"",
            duration_us: 0,
            outcome,
            level,
            tls: "",
        });
    }
}
