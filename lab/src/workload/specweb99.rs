//! SPECweb99-like traffic with the mixes of paper `000`: static files, dynamic pages with and without ads that depend
//! on a cookie, and POSTed forms. 70 % of the requests are on persistent connections of 5 to 15 requests, the others on
//! HTTP/1.0 connections of one request.
//!
//! Choices that the rules leave open: each client is one user (its number modulo `connections`), its first ad is
//! random, and later requests name the ad that the server returned last. Line speed and conformance belong to the load
//! generator. lab/README.md describes the rest. Uses no sockets.

mod ads;
mod deck;
mod mix;
mod post_log;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::draw::WeightedChoice;
use super::files::FilePlan;
use super::settings::WorkloadSettings;
use super::{
    ClientSession, ConnectionOpening, ExpectedResponse, ReceivedResponse, ResponseInterest,
    TrafficWorkload, WorkloadVersion, specset, wire,
};
use crate::random::SplitMix;
use ads::{ADS, AdTables};
use deck::{ClassFile, FilePopularity, RequestDeck};
use mix::{ConnectionMix, OperationMix, SpecWebOperation};
/// Default number of simultaneous connections for which a file set is made.
pub const DEFAULT_CONNECTIONS: u32 = 200;

pub use post_log::{PostLog, fetch_target, reset_target};

/// The settings, each with a description.
pub const SETTINGS: &[(&str, &str)] = &[
    (
        "connections",
        "simultaneous connections that the set is made for (200); users are as many",
    ),
    (
        "dirs",
        "folders of 36 files, 4.88 MiB each (follows from connections)",
    ),
    ("dynamic", "per cent of dynamic requests (30)"),
    (
        "mix",
        "paper (default; no CGI) or official, of the dynamic requests",
    ),
    (
        "script",
        "path of the program for dynamic requests (/specweb99.php)",
    ),
    (
        "cgi",
        "path of the CGI program of the official mix (that of script)",
    ),
    (
        "file_set",
        "path of the folder that has dir00000 (/file_set)",
    ),
    (
        "protocol",
        "1.1 (default) or 1.0, for the persistent connections",
    ),
    (
        "conditional",
        "per cent of static requests with If-Modified-Since (0)",
    ),
    (
        "files",
        "folder that lowroad-lab files made: checks contents too",
    ),
];

/// The data folder of the dynamic program, in the folder of a file set. The user of the program needs write permission.
pub const DATA_DIR: &str = "specweb99-data";

struct SpecWebOptions {
    connections: u32,
    dirs: u32,
}

fn options(settings: &WorkloadSettings<'_>) -> Result<SpecWebOptions, String> {
    let connections = settings.number("connections", DEFAULT_CONNECTIONS, 1..=100_000)?;
    let dirs = settings.number("dirs", dir_count(connections), 1..=specset::DIRS_MAX)?;
    Ok(SpecWebOptions { connections, dirs })
}

/// Number of folders for this many simultaneous connections at 400 kbit/s and 122,000 bits per response.
fn dir_count(connections: u32) -> u32 {
    (25.0 + 400_000.0 / 122_000.0 * f64::from(connections) / 5.0) as u32
}

/// The file set: the site and the data of the dynamic program.
pub(crate) fn plan(raw_settings: &BTreeMap<String, String>) -> Result<FilePlan, String> {
    let options = options(&WorkloadSettings::new("specweb99", raw_settings, SETTINGS)?)?;
    let keeping = AdTables::fixed(options.connections);
    let data = vec![
        (
            "specweb99-data/User.Personality",
            ads::personalities(options.connections),
        ),
        ("specweb99-data/Custom.Ads", keeping.custom_ads()),
        ("specweb99-data/post.log", post_log::EMPTY.to_vec()),
    ];
    Ok(FilePlan {
        files: specset::plan(options.dirs),
        data,
    })
}

/// The workload.
#[derive(Clone)]
pub struct SpecWeb99(Arc<SpecWebState>);

struct SpecWebState {
    mix: OperationMix,
    popularity: FilePopularity,
    users: u64,
    persistent: WorkloadVersion,
    conditional: f64,
    checksums: Option<Vec<u32>>,
    pieces: RequestPieces,
}

/// Constant parts of requests.
struct RequestPieces {
    host: String,
    file_set: String,
    script: String,
    cgi: String,
}

impl SpecWeb99 {
    /// Creates the workload from settings; see [`SETTINGS`].
    ///
    /// # Errors
    /// An unknown setting or value, or missing or changed files.
    pub fn new(raw_settings: &BTreeMap<String, String>, host: &str) -> Result<SpecWeb99, String> {
        wire::check_host(host)?;
        let settings = WorkloadSettings::new("specweb99", raw_settings, SETTINGS)?;
        let SpecWebOptions { connections, dirs } = options(&settings)?;
        let official = settings.choice("mix", &[("paper", false), ("official", true)])?;
        let protocols = [
            ("1.1", WorkloadVersion::Http11),
            ("1.0", WorkloadVersion::Http10KeepAlive),
        ];
        let script = settings.path("script", "/specweb99.php")?;
        let checksums = match settings.value("files") {
            Some(folder) => Some(specset::checksums(Path::new(folder), dirs)?),
            None => None,
        };
        Ok(SpecWeb99(Arc::new(SpecWebState {
            mix: OperationMix::new(settings.percent("dynamic", 30.0)?, official),
            popularity: FilePopularity::new(dirs),
            users: u64::from(connections),
            persistent: settings.choice("protocol", &protocols)?,
            conditional: settings.percent("conditional", 0.0)?,
            checksums,
            pieces: RequestPieces {
                host: host.to_string(),
                file_set: settings
                    .path("file_set", "/file_set")?
                    .trim_end_matches('/')
                    .to_string(),
                cgi: settings.path("cgi", &script)?,
                script,
            },
        })))
    }
}

impl TrafficWorkload for SpecWeb99 {
    fn classes(&self) -> &[String] {
        self.0.mix.classes()
    }

    fn session(&self, number: u64, seed: u64) -> Box<dyn ClientSession> {
        let mut random = SplitMix::stream(seed, number);
        // The rules leave the first ad open, so it is random.
        let last_ad = random.below(ADS as u64) as u32;
        Box::new(SpecWebClient {
            inner: self.0.clone(),
            deck: RequestDeck::default(),
            user: 10_000 + number % self.0.users,
            number,
            last_ad,
            version: WorkloadVersion::Http10,
            random,
        })
    }
}

struct SpecWebClient {
    inner: Arc<SpecWebState>,
    random: SplitMix,
    deck: RequestDeck,
    user: u64,
    number: u64,
    last_ad: u32,
    version: WorkloadVersion,
}

impl ClientSession for SpecWebClient {
    fn open(&mut self) -> ConnectionOpening {
        let (persistent, requests) = ConnectionMix::draw(&mut self.random);
        self.version = if persistent {
            self.inner.persistent
        } else {
            WorkloadVersion::Http10
        };
        ConnectionOpening {
            version: self.version,
            requests,
        }
    }

    fn request(&mut self, last: bool, out: &mut Vec<u8>) -> ExpectedResponse {
        let inner = self.inner.clone();
        let operation = inner.mix.draw(&mut self.random);
        // A file is drawn for each operation, since dynamic requests name a file, too.
        let file = self.deck.draw(&inner.popularity, &mut self.random);
        let class = inner.mix.class(operation, file.class);
        let expected = ExpectedResponse {
            class,
            head_only: false,
            status: Some(200),
            len: None,
            crc32: None,
        };
        match operation {
            SpecWebOperation::Static => self.request_file(file, last, expected, out),
            SpecWebOperation::Get | SpecWebOperation::Cgi | SpecWebOperation::Ad => {
                self.request_program(operation, file, last, out);
                expected
            }
            SpecWebOperation::Post => {
                self.post(file, last, out);
                expected
            }
        }
    }

    fn handle_response(&mut self, answer: &ReceivedResponse<'_>) {
        if let Some(ad) = answer.set_cookie.and_then(assigned_ad) {
            self.last_ad = ad;
        }
    }

    fn interest(&self) -> ResponseInterest {
        ResponseInterest {
            cookies: self.inner.mix.has_ads(),
            text: false,
        }
    }
}

/// The ad in the server's cookie. For an unknown user it is -1, and the client then keeps its previous ad.
fn assigned_ad(field: &str) -> Option<u32> {
    let rest = field.strip_prefix("found_cookie=Ad_id=")?;
    let digits = rest.split(['&', ';']).next()?;
    digits.trim().parse().ok().filter(|&ad| ad < ADS as u32)
}

impl SpecWebClient {
    fn request_file(
        &mut self,
        file: ClassFile,
        last: bool,
        expected: ExpectedResponse,
        out: &mut Vec<u8>,
    ) -> ExpectedResponse {
        let inner = &*self.inner;
        out.extend_from_slice(b"GET ");
        inner.pieces.append_path(file, out);
        self.append_end_of_line_and_host(last, out);
        let conditional = inner.conditional > 0.0 && self.random.unit() < inner.conditional;
        if conditional {
            out.extend_from_slice(wire::FILES_CONDITION.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if conditional {
            return ExpectedResponse {
                status: Some(304),
                // A 304 has no body.
                len: Some(0),
                ..expected
            };
        }
        let (class, number) = (usize::from(file.class), usize::from(file.number));
        let index = specset::index(file.dir, class, number);
        ExpectedResponse {
            len: Some(specset::file_len(class, number)),
            crc32: inner.checksums.as_ref().map(|checksums| checksums[index]),
            ..expected
        }
    }

    fn request_program(
        &self,
        operation: SpecWebOperation,
        file: ClassFile,
        last: bool,
        out: &mut Vec<u8>,
    ) {
        let pieces = &self.inner.pieces;
        let program = if operation == SpecWebOperation::Cgi {
            &pieces.cgi
        } else {
            &pieces.script
        };
        out.extend_from_slice(b"GET ");
        pieces.append_query(program, out);
        pieces.append_path(file, out);
        self.append_end_of_line_and_host(last, out);
        if operation == SpecWebOperation::Ad {
            self.append_cookie(out);
        }
        out.extend_from_slice(b"\r\n");
    }

    fn post(&self, file: ClassFile, last: bool, out: &mut Vec<u8>) {
        let pieces = &self.inner.pieces;
        out.extend_from_slice(b"POST ");
        out.extend_from_slice(pieces.script.as_bytes());
        self.append_end_of_line_and_host(last, out);
        self.append_cookie(out);
        out.extend_from_slice(b"Content-Type: application/x-www-form-urlencoded\r\n");
        // All bodies have numbers of fixed width, except for the client's number, so the length is easy to compute.
        let body = |out: &mut Vec<u8>| {
            out.extend_from_slice(b"urlroot=");
            out.extend_from_slice(pieces.file_set.as_bytes());
            out.extend_from_slice(b"/&dir=");
            wire::decimal(out, u64::from(file.dir), 5);
            out.extend_from_slice(b"&class=");
            wire::decimal(out, u64::from(file.class), 1);
            out.extend_from_slice(b"&num=");
            wire::decimal(out, u64::from(file.number), 1);
            out.extend_from_slice(b"&client=");
            wire::decimal(out, self.number, 1);
        };
        let len_before = out.len();
        body(out);
        let len = out.len() - len_before;
        // The body is written twice, the first time only to measure it, since Content-Length precedes it.
        out.truncate(len_before);
        out.extend_from_slice(b"Content-Length: ");
        wire::decimal(out, len as u64, 1);
        out.extend_from_slice(b"\r\n\r\n");
        body(out);
    }

    fn append_end_of_line_and_host(&self, last: bool, out: &mut Vec<u8>) {
        let pieces = [
            wire::version(self.version),
            "Host: ",
            &self.inner.pieces.host,
            "\r\n",
            wire::connection(self.version, last),
        ];
        pieces
            .iter()
            .for_each(|piece| out.extend_from_slice(piece.as_bytes()));
    }

    fn append_cookie(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Cookie: my_cookie=user_id=");
        wire::decimal(out, self.user, 1);
        out.extend_from_slice(b"&last_ad=");
        wire::decimal(out, u64::from(self.last_ad), 1);
        out.extend_from_slice(b"\r\n");
    }
}

impl RequestPieces {
    fn append_path(&self, file: ClassFile, out: &mut Vec<u8>) {
        out.extend_from_slice(self.file_set.as_bytes());
        out.extend_from_slice(b"/dir");
        wire::decimal(out, u64::from(file.dir), 5);
        out.extend_from_slice(b"/class");
        out.extend_from_slice(&[b'0' + file.class, b'_', b'0' + file.number]);
    }

    /// Appends the program's path, and a question mark if the path has none.
    fn append_query(&self, program: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(program.as_bytes());
        if !program.contains('?') {
            out.push(b'?');
        }
    }
}

#[cfg(test)]
mod tests;
