//! Random requests: the heads of real clients with all kinds of mutations. The same seed gives the same requests.

/// A small random number generator (xorshift64*), for reproducible tests.
#[derive(Clone, Debug)]
pub struct RandomSource(u64);

impl RandomSource {
    /// A generator with this seed.
    pub fn new(seed: u64) -> RandomSource {
        RandomSource(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A random number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A random number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next_u64() >> 33).expect("31 bits") % end.max(1)
    }

    /// True with a probability of 1/n.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A random element.
    pub fn choose<'t, T: ?Sized>(&mut self, these: &[&'t T]) -> &'t T {
        these[self.below(these.len())]
    }
}

/// Field lines of real clients, without request line and Host.
const CLIENTS: &[&[&str]] = &[
    // curl
    &["User-Agent: curl/8.5.0", "Accept: */*"],
    // wrk; ab with its order of fields
    &[],
    &["User-Agent: ApacheBench/2.3", "Accept: */*"],
    &[
        "Connection: Keep-Alive",
        "User-Agent: ApacheBench/2.3",
        "Accept: */*",
    ],
    // h2load --h1
    &["user-agent: h2load nghttp2/1.58.0"],
    // chromium
    &[
        "Connection: keep-alive",
        "sec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"",
        "sec-ch-ua-mobile: ?0",
        "sec-ch-ua-platform: \"Linux\"",
        "Upgrade-Insecure-Requests: 1",
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36",
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
        "Sec-Fetch-Site: none",
        "Sec-Fetch-Mode: navigate",
        "Sec-Fetch-User: ?1",
        "Sec-Fetch-Dest: document",
        "Accept-Encoding: gzip, deflate, br, zstd",
        "Accept-Language: en-GB,en;q=0.9",
    ],
    // a reload; a request that validates
    &[
        "Connection: keep-alive",
        "Cache-Control: max-age=0",
        "Accept-Encoding: gzip, deflate",
    ],
    &[
        "If-None-Match: \"5f-abc\"",
        "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT",
        "Accept-Encoding: gzip",
    ],
    // Python: requests, urllib, http.client
    &[
        "User-Agent: python-requests/2.31.0",
        "Accept-Encoding: gzip, deflate",
        "Accept: */*",
        "Connection: keep-alive",
    ],
    &[
        "Accept-Encoding: identity",
        "User-Agent: Python-urllib/3.12",
        "Connection: close",
    ],
    // Go; wget; nginx as a proxy; the health check of a load balancer
    &["User-Agent: Go-http-client/1.1", "Accept-Encoding: gzip"],
    &[
        "User-Agent: Wget/1.21.4",
        "Accept: */*",
        "Accept-Encoding: identity",
        "Connection: Keep-Alive",
    ],
    &[
        "X-Real-IP: 10.0.0.1",
        "X-Forwarded-For: 10.0.0.1",
        "Connection: close",
    ],
];

const TARGETS: &[&str] = &[
    "/",
    "/a",
    "/index.html",
    "/a?b=c",
    "/a/b/c.css",
    "/%41",
    "/a//b/../c",
    "/~x;y=(z)",
];
const ODD_TARGETS: &[&str] = &[
    "*",
    "",
    "a",
    "http://h/",
    "/a b",
    "/a#b",
    "/\u{e4}",
    "//",
    "/?",
    "/a\"b",
    "/<>",
    "/a|b",
    "/{}",
    "h:80",
    "/\\",
    "/^`",
];
const HOSTS: &[&str] = &[
    "h",
    "example.com",
    "example.com:80",
    "[::1]",
    "127.0.0.1:8080",
];
const ODD_HOSTS: &[&str] = &[
    "", "h,h", "a b", "h:", "h:x", "[::1", "user@h", "h/", "\"h\"", "H.", "h\\", "-", "%41", "a_b",
    "h:99999", "(",
];
const VERSIONS: &[&str] = &["HTTP/1.1", "HTTP/1.0"];
const ODD_VERSIONS: &[&str] = &[
    "HTTP/1.2",
    "HTTP/2.0",
    "http/1.1",
    "HTTP/1.1 ",
    "HTTP/0.9",
    "HTTP/1.10",
    "HTTP/11",
    "",
];
const METHODS: &[&str] = &["GET", "HEAD"];
const ODD_METHODS: &[&str] = &[
    "POST", "get", "GETX", "OPTIONS", "", "PUT", "HEAD ", " GET", "CONNECT",
];

/// Field names with a meaning, and similar ones.
const NAMES: &[&str] = &[
    "Host",
    "Connection",
    "Accept-Encoding",
    "If-None-Match",
    "If-Modified-Since",
    "TE",
    "Range",
    "Cookie",
    "Expect",
    "Pragma",
    "Upgrade",
    "Trailer",
    "If-Match",
    "If-Range",
    "Authorization",
    "Cache-Control",
    "Content-Length",
    "HTTP2-Settings",
    "Proxy-Connection",
    "Transfer-Encoding",
    "If-Unmodified-Since",
    "Proxy-Authorization",
    "Keep-Alive",
    "Content-Type",
    "Accept",
    "X",
    "Hos",
    "Hostt",
    "Cookie2",
    "If-None-Matc",
    "Via",
    "Accept-Encodin",
    "Transfer-Encodin",
    "Connectio",
    "Content_Length",
    "a",
    "X-0123456789012345678901234567",
    "Rang",
    "Te-",
];

const VALUES: &[&str] = &[
    "close",
    "keep-alive",
    "Keep-Alive",
    "close, keep-alive",
    "upgrade",
    "CLOSE",
    "gzip",
    "br;q=1.0, gzip",
    "0",
    "5",
    "chunked",
    "identity",
    "h",
    "example.com",
    "bytes=0-1",
    "100-continue",
    "no-cache",
    "max-age=0",
    "\"e\"",
    "*",
    "W/\"x\", \"y\"",
    "",
    " ",
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "trailers",
    "websocket",
    "a=b; c=d",
    "x\ty",
    "\u{e4}",
];

const LINE_ENDS: &[&str] = &[
    "\n", "\r", "\r\r\n", " \r\n", "\t\r\n", "", "\r\n ", "\r\n\t", "\0\r\n", "\r\n\r\n",
];
const COLONS: &[&str] = &[
    ":", ":  ", " : ", ":\t", " :", "::", "", ": \t", "=", ":\r\n ",
];
const BYTES: &[u8] = b"\0\t\r\n :,;\"/?#%-_@[]aZ0\x7f\x80\xff\x1f\x20~";

/// Writes a random request to `to`.
pub fn write_random_request(draws: &mut RandomSource, to: &mut Vec<u8>) {
    to.clear();
    // Most requests are nearly valid, since a badly broken one would be rejected by the first check.
    let mutation_level = draws.below(4);
    let is_mutated = |draws: &mut RandomSource| mutation_level > 0 && draws.once_in(12);
    let pick =
        |draws: &mut RandomSource, usual: &[&'static str], odd: &[&'static str]| match is_mutated(
            draws,
        ) {
            true => draws.choose(odd),
            false => usual[(draws.below(usual.len() * 4)).min(usual.len() * 4 - 1) / 4],
        };
    let line = [
        pick(draws, METHODS, ODD_METHODS),
        pick(draws, TARGETS, ODD_TARGETS),
        pick(draws, VERSIONS, ODD_VERSIONS),
    ];
    put_parts(
        to,
        &[
            line[0],
            " ",
            line[1],
            " ",
            line[2],
            if is_mutated(draws) {
                draws.choose(LINE_ENDS)
            } else {
                "\r\n"
            },
        ],
    );
    let client = CLIENTS[draws.below(CLIENTS.len())];
    // The position of the Host field.
    let host_at = if draws.once_in(8) {
        draws.below(client.len() + 1)
    } else {
        0
    };
    for at in 0..=client.len() {
        if at == host_at && !is_mutated(draws) {
            let host = pick(draws, HOSTS, ODD_HOSTS);
            put_field(draws, to, "Host", host, mutation_level);
        }
        let Some((name, value)) = client.get(at).and_then(|line| line.split_once(": ")) else {
            continue;
        };
        if !draws.once_in(10) {
            put_field(draws, to, name, value, mutation_level);
        }
        if is_mutated(draws) {
            let (name, value) = (draws.choose(NAMES), draws.choose(VALUES));
            put_field(draws, to, name, value, mutation_level);
        }
    }
    for _ in 0..if mutation_level > 1 {
        draws.below(3)
    } else {
        0
    } {
        let (name, value) = (draws.choose(NAMES), draws.choose(VALUES));
        put_field(draws, to, name, value, mutation_level);
    }
    if draws.once_in(50) {
        // Near the limits of key length and parser steps.
        let name = draws.choose(&["Accept-Encoding", "X-Long", "If-None-Match"]);
        let value = "v".repeat(draws.below(480));
        put_field(draws, to, name, &value, 0);
    }
    to.extend_from_slice(b"\r\n");
    if mutation_level == 3 {
        mutate_bytes(draws, to);
    }
    to.truncate(1460);
}

fn put_parts(to: &mut Vec<u8>, parts: &[&str]) {
    parts
        .iter()
        .for_each(|part| to.extend_from_slice(part.as_bytes()));
}

fn put_field(
    draws: &mut RandomSource,
    to: &mut Vec<u8>,
    name: &str,
    value: &str,
    mutation_level: usize,
) {
    let at = to.len();
    put_parts(to, &[name]);
    if draws.once_in(12) {
        for byte in &mut to[at..] {
            if draws.once_in(2) && byte.is_ascii_alphabetic() {
                *byte ^= 0x20;
            }
        }
    }
    let colon = if mutation_level > 0 && draws.once_in(40) {
        draws.choose(COLONS)
    } else {
        ": "
    };
    let end = if mutation_level > 0 && draws.once_in(40) {
        draws.choose(LINE_ENDS)
    } else {
        "\r\n"
    };
    put_parts(to, &[colon, value, end]);
}

fn mutate_bytes(draws: &mut RandomSource, to: &mut Vec<u8>) {
    for _ in 0..draws.below(4) {
        let at = draws.below(to.len());
        if to.is_empty() {
            return;
        }
        match draws.below(6) {
            0 => to[at] = BYTES[draws.below(BYTES.len())],
            1 => to[at] ^= 1 << draws.below(8),
            2 => to.insert(at, BYTES[draws.below(BYTES.len())]),
            3 => drop(to.remove(at)),
            4 if draws.once_in(4) => to.truncate(at.max(1)),
            5 if draws.once_in(4) => to.extend_from_within(at..),
            _ => {}
        }
    }
}
