//! Requests and responses of increasing length: twice the length must cost at most about twice the instructions.

use lowroad_testkit::instructions::{self, CountedPiece};

use super::protocols::INPUTS;
use super::{CountedExchange, SINGLE_BYTE_SEED, configurations};

/// Lengths of a request target and a head, below their limits.
const TARGET_LEN: usize = 8 << 10;
const HEAD_LEN: usize = 15 << 10;
/// Maximum length of the head of an origin's response.
const RESPONSE_LEN: usize = 30 << 10;

/// Maximum ratio of two increments: from half length to full length, and from a quarter to half length. Linear cost has
/// a ratio of 2, somewhat more where names are sorted or memory grows; quadratic cost has a ratio of 4.
const GROWTH_MAX: f64 = 2.5;

/// Builds an exchange with a variable part of this length.
type ExchangeForm = fn(usize) -> CountedExchange;

/// Repeats a unit up to about this length. Each `N` in the unit is replaced by the copy's number.
pub(super) fn repeated(unit: &str, len: usize) -> String {
    let mut text = String::new();
    for number in 0.. {
        text.push_str(&unit.replace('N', &(number % 1000).to_string()));
        if text.len() >= len {
            break;
        }
    }
    text
}

fn path(unit: &str, len: usize) -> CountedExchange {
    CountedExchange::get(&format!("/{}", repeated(unit, len - unit.len() - 2)), "")
}

fn field(name: &str, unit: &str, len: usize) -> CountedExchange {
    CountedExchange::get("/", &format!("{name}: {}\r\n", repeated(unit, len)))
}

fn answered(name: &str, unit: &str, len: usize) -> CountedExchange {
    CountedExchange::with_response_fields(&format!("{name}: {}\r\n", repeated(unit, len)))
}

fn body(fields: &str, body: String) -> CountedExchange {
    let head = format!("POST / HTTP/1.1\r\nHost: test\r\n{fields}\r\n");
    CountedExchange {
        request: [head.into_bytes(), body.into_bytes()].concat(),
        is_warmed_up: false,
        ..CountedExchange::get("/", "")
    }
}

/// Path patterns of all forms.
const PATTERNS: [&str; 9] = [
    "/**/.git/**",
    "/**/*.bak",
    "/**/a/**/b/**/c",
    "/**a*",
    "/a/*/a/*/z",
    "*.php",
    "*a*b*c",
    "/**/aa/*",
    "report-*",
];

/// Rules of every kind that applies to paths.
fn rules() -> String {
    let mut site = String::from("trusted_proxies = \"0.0.0.0/0\"\n");
    for pattern in PATTERNS {
        site.push_str(&format!(
            "[[site.rule]]\npattern = \"{pattern}\"\nallow = true\n\
             [[site.rule]]\npattern = \"{pattern}\"\nmethods = \"PUT\"\ndeny = 403\n\
             [[site.header]]\npattern = \"{pattern}\"\nset = {{ X-A = \"b\" }}\n\
             [[site.route]]\npattern = \"{pattern}\"\nmethods = \"PUT\"\norigin = \"http://192.0.2.9:80\"\n\
             [[site.redirect]]\nfrom = \"{pattern}x\"\nto = \"/elsewhere\"\n\
             [[site.rewrite]]\nfrom = \"{pattern}x\"\nto = \"/elsewhere\"\n"
        ));
    }
    site.push_str("[[site.redirect]]\nregex = \"^/(.*)/b(.*)$\"\nto = \"/$1\"\n");
    site.push_str("[[site.rewrite]]\nregex = \"(a|b)*c$\"\nto = \"/$1\"\n");
    site
}

#[rustfmt::skip]
const FORMS: &[(&str, usize, ExchangeForm)] = &[
    ("path of segments", TARGET_LEN, |len| path("a/", len).with_site(&rules())),
    ("path of one segment", TARGET_LEN, |len| path("a", len).with_site(&rules())),
    ("path of slashes", TARGET_LEN, |len| path("/", len).with_site(&rules())),
    ("path of escapes", TARGET_LEN, |len| path("%61/", len).with_site(&rules())),
    ("path of hidden folders", TARGET_LEN, |len| path(".git/", len).with_site(&rules())),
    ("path of names", TARGET_LEN, |len| path("x.php/", len).with_site(&rules())),
    ("path of endings", TARGET_LEN, |len| path(".bak", len).with_site(&rules())),
    ("path of many literals", TARGET_LEN, |len| path("aa/b/report-", len).with_site(&rules())),
    ("query", TARGET_LEN, |len| CountedExchange::get(&format!("/?{}", repeated("aN=b%20&", len - 12)), "")),
    ("fields", HEAD_LEN, |len| CountedExchange::get("/", &repeated("x-name-N: abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789\r\n", len))),
    ("Accept", HEAD_LEN, |len| field("Accept", "text/x-N;q=0.5, ", len)),
    ("Accept-Encoding", HEAD_LEN, |len| field("Accept-Encoding", "xN;q=0.5, ", len)),
    ("Accept-Language that varies", HEAD_LEN, |len| CountedExchange { response: super::stored_response("Vary: Accept-Language\r\n"), ..field("Accept-Language", "en-N;q=0.5, ", len) }),
    ("Authorization", HEAD_LEN, |len| field("Authorization", "Basic YTpi", len)),
    ("Cache-Control", HEAD_LEN, |len| field("Cache-Control", "max-age=N,", len)),
    ("Cache-Control in quotes", HEAD_LEN, |len| field("Cache-Control", "a=\"\\\",N\",", len)),
    ("Connection", HEAD_LEN, |len| CountedExchange { is_warmed_up: false, ..field("Connection", "x-N, ", len) }),
    ("Cookie", HEAD_LEN, |len| field("Cookie", "nameN=value; ", len)),
    ("Forwarded", HEAD_LEN, |len| field("Forwarded", "for=10.0.0.1;by=\"_N\", ", len).with_site("trusted_proxies = \"10.0.0.0/8\"\nclient_field = \"Forwarded\"\n")),
    ("X-Forwarded-For", HEAD_LEN, |len| field("X-Forwarded-For", "10.0.0.1, ", len).with_site("trusted_proxies = \"0.0.0.0/0\"\n")),
    ("Host", HEAD_LEN, |len| CountedExchange { request: format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", repeated("a.", len)).into_bytes(), ..CountedExchange::get("/", "") }),
    ("If-Match", HEAD_LEN, |len| field("If-Match", "\"N\", ", len)),
    ("If-None-Match", HEAD_LEN, |len| field("If-None-Match", "W/\"N\", ", len)),
    ("If-Modified-Since", HEAD_LEN, |len| field("If-Modified-Since", "Sun, ", len)),
    ("Pragma", HEAD_LEN, |len| field("Pragma", "x, ", len)),
    ("Range", HEAD_LEN, |len| field("Range: bytes=0-0,x", ",9N-", len)),
    ("Range that can't be satisfied", HEAD_LEN, |len| CountedExchange::get("/", &format!("Range: bytes={}9-\r\n", repeated("9N-,", len)))),
    ("TE", HEAD_LEN, |len| CountedExchange { is_warmed_up: false, ..field("TE", "x;q=0.N, ", len) }),
    ("Upgrade", HEAD_LEN, |len| field("Connection: upgrade\r\nUpgrade", "x/N, ", len)),
    ("User-Agent", HEAD_LEN, |len| field("User-Agent", "(x; N) ", len)),
    ("Via", HEAD_LEN, |len| CountedExchange { is_warmed_up: false, ..field("Via", "1.1 xN, ", len) }),
    ("head by bytes", HEAD_LEN / 4, |len| CountedExchange { seed: SINGLE_BYTE_SEED, ..CountedExchange::get("/", &repeated("x-name-N: abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789\r\n", len)) }),
    ("trailers", 4000, |len| body("Transfer-Encoding: chunked\r\n", "0\r\n".to_string() + &repeated("x-N: a\r\n", len) + "\r\n")),
    ("trailers by bytes", 4000, |len| CountedExchange { seed: SINGLE_BYTE_SEED, ..body("Transfer-Encoding: chunked\r\n", "0\r\n".to_string() + &repeated("x-N: a\r\n", len) + "\r\n") }),
    ("codings", HEAD_LEN, |len| body(&format!("Transfer-Encoding: {}\r\n", repeated("x, ", len)), String::new())),
    ("response's Cache-Control", RESPONSE_LEN, |len| answered("Cache-Control", "max-age=60, ", len)),
    ("response's Cache-Control with names", RESPONSE_LEN, |len| answered("Cache-Control", "private=\"x-N, y-N\", ", len)),
    ("response's CDN-Cache-Control", RESPONSE_LEN, |len| answered("CDN-Cache-Control", "max-age=60, x-N=1, ", len)),
    ("response's Cache-Groups", RESPONSE_LEN, |len| answered("Cache-Groups", "\"group-N\", ", len)),
    ("response's Cache-Tag", RESPONSE_LEN, |len| answered("Cache-Tag", "tag-N,", len)),
    ("response's Surrogate-Key", RESPONSE_LEN, |len| answered("Surrogate-Key", "key-N ", len)),
    ("response's Connection", RESPONSE_LEN, |len| answered("Connection", "x-N, ", len)),
    ("response's No-Vary-Search", RESPONSE_LEN, |len| answered("No-Vary-Search", "params=(\"aN\"), ", len)),
    ("response's Vary", RESPONSE_LEN, |len| answered("Vary", "Accept-Encoding, ", len)),
    ("response's ETag", RESPONSE_LEN, |len| CountedExchange::with_response_fields(&format!("ETag: \"{}\"\r\n", repeated("N", len)))),
    ("response's Set-Cookie", RESPONSE_LEN, |len| answered("Set-Cookie", "a=bN; ", len)),
    ("response's fields", RESPONSE_LEN, |len| CountedExchange::with_response_fields(&repeated("x-name-N: abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789\r\n", len))),
    ("response's head by bytes", 8 << 10, |len| CountedExchange { seed: SINGLE_BYTE_SEED, ..CountedExchange::with_response_fields(&repeated("x-name-N: abcdefghijklmnopqrstuvwxyz0123456789\r\n", len)) }),
    ("response's chunks", 64 << 10, |len| CountedExchange { response: format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", repeated("1\r\na\r\n", len)), ..CountedExchange::with_response_fields("") }),
];

#[test]
fn twice_the_length_is_at_most_twice_the_instructions() {
    type Prepare = Box<dyn Fn(usize) -> Box<dyn FnMut()>>;
    let exchanges = FORMS.iter().map(|(name, len, form)| {
        let prepare: Prepare = Box::new(move |len| form(len).prepare());
        (*name, *len, prepare)
    });
    let inputs = INPUTS
        .iter()
        .chain(configurations::INPUTS)
        .map(|(name, len, input)| {
            let prepare: Prepare = Box::new(input);
            (*name, *len, prepare)
        });
    let all = exchanges
        .chain(inputs)
        .map(|(name, len, prepare)| (name, [len / 4, len / 2, len], prepare));
    let all: Vec<_> = all.collect();
    let pieces = all.iter().map(|(name, sizes, prepare)| CountedPiece {
        name,
        prepare,
        sizes,
    });
    let pieces: Vec<_> = pieces.collect();
    let test = "simulation::costs::sizes::twice_the_length_is_at_most_twice_the_instructions";
    let Some(counts) = instructions::count(test, &pieces) else {
        return;
    };
    let mut failures = Vec::new();
    for (piece, counts) in pieces.iter().zip(counts) {
        // Only increments are compared, so that a constant part of the cost is not counted.
        let steps = [
            counts[1].saturating_sub(counts[0]),
            counts[2].saturating_sub(counts[1]),
        ];
        let growth = steps[1] as f64 / steps[0].max(1) as f64;
        println!("{:40} {counts:?} grows by {growth:.2}", piece.name);
        if growth > GROWTH_MAX {
            failures.push(piece.name);
        }
    }
    assert!(failures.is_empty(), "more than in proportion: {failures:?}");
}
