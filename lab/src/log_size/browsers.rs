//! A synthetic log of browsers: visits of the sample site (`examples/site`) with its pages, their files and referers, a
//! search page with words, and crawlers. User agents are those of Chrome, Firefox, Safari and Edge on five systems with
//! their recent versions; visitors come by Zipf's law from many addresses, a sixth of them by IPv6. Several visits
//! overlap.

use std::net::IpAddr;

use lowroad_log::AccessEntry;

use super::draws::RandomDraws;
use super::generate::TrafficMix;

/// Visits in progress.
const VISITS: u64 = 40;
/// The number of visitors.
const VISITORS: u64 = 200_000;
const HOST: &str = "www.lowroad.example";

/// Pages, and the files that they load.
const PAGES: [(&str, &[&str]); 6] = [
    (
        "/",
        &[
            "/style.css",
            "/art/mark.svg",
            "/art/way.svg",
            "/favicon.ico",
        ],
    ),
    (
        "/levels/",
        &["/style.css", "/art/mark.svg", "/art/levels.svg"],
    ),
    (
        "/gallery/",
        &[
            "/style.css",
            "/art/mark.svg",
            "/gallery/dawn.png",
            "/gallery/morning.jpg",
            "/gallery/noon.webp",
            "/gallery/evening.webp",
            "/gallery/dusk.jpg",
            "/gallery/night.png",
        ],
    ),
    ("/history/", &["/style.css", "/art/mark.svg"]),
    (
        "/answers/",
        &["/style.css", "/art/mark.svg", "/data/systems.json"],
    ),
    ("/try/", &["/style.css", "/try/try.js", "/art/mark.svg"]),
];

const SYSTEMS: [&str; 5] = [
    "Windows NT 10.0; Win64; x64",
    "Macintosh; Intel Mac OS X 10_15_7",
    "X11; Linux x86_64",
    "Linux; Android 10; K",
    "iPhone; CPU iPhone OS 18_6 like Mac OS X",
];
const ENTRANCES: [&str; 5] = [
    "",
    "https://www.google.com/",
    "https://www.bing.com/",
    "https://duckduckgo.com/",
    "https://news.ycombinator.com/",
];
const WORDS: [&str; 12] = [
    "cache", "kernel", "ebpf", "http", "proxy", "tls", "log", "module", "static", "worker",
    "image", "speed",
];
const CRAWLERS: [&str; 4] = [
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; Googlebot/2.1; +http://www.google.com/bot.html) Chrome/141.0.7390.122 Safari/537.36",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    "Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)",
    "Mozilla/5.0 (compatible; SemrushBot/7~bl; +http://www.semrush.com/bot.html)",
];

/// A visit in progress.
struct PageVisit {
    peer: IpAddr,
    user_agent: String,
    protocol: &'static str,
    /// Targets with their referers, the next one last.
    requests: Vec<(String, String)>,
    is_again: bool,
}

/// The mix.
pub struct BrowserMix {
    random: RandomDraws,
    visits: Vec<PageVisit>,
}

impl BrowserMix {
    /// Starts the mix.
    pub fn new() -> BrowserMix {
        BrowserMix {
            random: RandomDraws::new(5),
            visits: Vec::new(),
        }
    }
}

impl TrafficMix for BrowserMix {
    fn next(&mut self, call: &mut dyn FnMut(AccessEntry<'_>)) {
        while self.visits.len() < VISITS as usize {
            self.visits.push(new_visit(&mut self.random));
        }
        let number = self.random.below(VISITS) as usize;
        let visit = &mut self.visits[number];
        let (target, referer) = visit.requests.pop().expect("a visit has requests");
        let is_file = target.contains('.');
        let is_known = visit.is_again && is_file;
        let status = match (is_known, self.random.below(200)) {
            (_, 0) => 404,
            (true, _) => 304,
            (false, _) => 200,
        };
        let body_bytes = match status {
            304 => 0,
            404 => 1352,
            // A page is generated for each request, a file has a fixed length.
            _ if target.contains('?') => 2000 + self.random.below(9000),
            _ => {
                500 + target
                    .bytes()
                    .fold(7_u64, |sum, byte| sum * 31 % 16_381 + u64::from(byte))
            }
        };
        let line = format!("GET {target} {}", visit.protocol);
        call(AccessEntry {
            peer: visit.peer,
            user: b"",
            unix_ms: 0,
            line: line.as_bytes(),
            host: HOST.as_bytes(),
            status,
            body_bytes,
            whole: true,
            referer: referer.as_bytes(),
            user_agent: visit.user_agent.as_bytes(),
            duration_us: 0,
            outcome: if target.contains('?') { "made" } else { "hit" },
            level: if target.contains('?') {
                "module"
            } else {
                "worker"
            },
            tls: "TLSv1.3",
        });
        if visit.requests.is_empty() {
            self.visits.swap_remove(number);
        }
    }
}

fn new_visit(random: &mut RandomDraws) -> PageVisit {
    let visitor = random.zipf(VISITORS);
    // A visitor keeps address and browser.
    let mut own = RandomDraws::new(visitor);
    let peer = match own.below(6) {
        0 => {
            let prefix = 0x2A02_u128 << 112 | u128::from(own.bits() >> 32) << 64;
            IpAddr::from((prefix | u128::from(own.bits())).to_be_bytes())
        }
        _ => IpAddr::from((own.bits() as u32 | 1 << 24).to_be_bytes()),
    };
    let mut requests = Vec::new();
    if own.below(12) == 0 {
        let crawler = CRAWLERS[own.below(4) as usize];
        for _ in 0..1 + random.below(4) {
            requests.push((PAGES[random.below(6) as usize].0.into(), String::new()));
        }
        return PageVisit {
            peer,
            user_agent: crawler.into(),
            protocol: "HTTP/1.1",
            requests,
            is_again: false,
        };
    }
    let mut before = ENTRANCES[random.weighted(&[4.0, 5.0, 1.0, 1.0, 1.0])].to_owned();
    for _ in 0..1 + random.below(5) {
        let page = match random.below(8) {
            0 => {
                let word = |random: &mut RandomDraws| WORDS[random.zipf(12) as usize];
                let query = format!(
                    "/search?q={}+{}&page={}",
                    word(random),
                    word(random),
                    random.zipf(5)
                );
                requests.push((query.clone(), before));
                query
            }
            _ => {
                let (page, files) = PAGES[random.zipf(6) as usize];
                requests.push((page.into(), before));
                let url = format!("https://{HOST}{page}");
                requests.extend(files.iter().map(|file| (file.to_string(), url.clone())));
                page.into()
            }
        };
        before = format!("https://{HOST}{page}");
    }
    requests.reverse();
    PageVisit {
        peer,
        user_agent: user_agent(&mut own),
        protocol: "HTTP/2",
        requests,
        is_again: random.below(3) == 0,
    }
}

fn user_agent(own: &mut RandomDraws) -> String {
    let system = SYSTEMS[own.weighted(&[5.0, 2.0, 1.0, 5.0, 3.0])];
    let version = 142 - own.zipf(20);
    if system.starts_with("iPhone") {
        return format!(
            "Mozilla/5.0 ({system}) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/{}.{} Mobile/15E148 Safari/604.1",
            26 - own.zipf(3),
            own.zipf(6)
        );
    }
    let chrome = format!(
        "Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{version}.0.0.0"
    );
    match own.weighted(&[7.0, 1.0, 2.0]) {
        0 => format!("{chrome} Safari/537.36"),
        1 => format!("{chrome} Safari/537.36 Edg/{version}.0.0.0"),
        _ => format!(
            "Mozilla/5.0 ({system}; rv:{}.0) Gecko/20100101 Firefox/{0}.0",
            version + 3
        ),
    }
}
