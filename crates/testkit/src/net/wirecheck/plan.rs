//! Plans a turn: the bytes to send, in pieces, and the expected responses.

use std::fmt;

use super::{CheckContext, TestPage, WireCheck};
use crate::net::draws::RandomDraws;
use crate::net::servers::receipt;
use crate::net::site;

/// Field lines that do not change the response, so that requests for the same page differ in their bytes.
const FIELDS: [&str; 5] = [
    "",
    "Accept-Encoding: identity\r\n",
    "Accept-Encoding: gzip, deflate, br, zstd\r\n",
    "User-Agent: wirecheck\r\nAccept: */*\r\n",
    "Accept: text/html,*/*;q=0.8\r\nAccept-Language: en\r\nAccept-Encoding: gzip\r\n",
];

/// Longer pages are not requested with a half-close.
const HALF_CLOSED_LEN_MAX: usize = 10_000;

/// Maximum length and maximum number of the pages on hot connections.
const HOT_LEN_MAX: usize = 1000;
const HOT_PAGES_MAX: usize = 3;

/// The kind of request of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnKind {
    /// A plain GET.
    Get,
    /// A HEAD.
    Head,
    /// A GET with If-None-Match: 304, or 200 if no entity tag is known yet.
    Conditional,
    /// A GET with a query that was not requested before; the response is the same.
    Fresh,
    /// A GET of a missing page: 404.
    Missing,
    /// A GET in two segments.
    Split,
    /// Two requests in one segment.
    Pair,
    /// A GET of the first two bytes: 206.
    Range,
    /// A POST with Content-Length.
    Upload,
    /// A POST with a chunked body.
    ChunkedUpload,
}

impl TurnKind {
    /// The name for the report.
    pub fn name(self) -> &'static str {
        match self {
            TurnKind::Get => "get",
            TurnKind::Head => "head",
            TurnKind::Conditional => "conditional",
            TurnKind::Fresh => "fresh",
            TurnKind::Missing => "missing",
            TurnKind::Split => "split",
            TurnKind::Pair => "pair",
            TurnKind::Range => "range",
            TurnKind::Upload => "upload",
            TurnKind::ChunkedUpload => "chunked upload",
        }
    }
}

/// How the connection continues or ends after the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnding {
    /// The connection persists (HTTP/1.1).
    KeepAlive,
    /// The connection persists, by `Connection: keep-alive` of HTTP/1.0.
    KeepAlive10,
    /// The request has `Connection: close`, and the server closes.
    Close,
    /// The request is HTTP/1.0, and the server closes.
    Close10,
    /// The client closes after the response.
    ClientCloses,
    /// The client sends a FIN with the request or immediately after it.
    HalfClose,
}

/// The expected response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerExpectation {
    /// The path for which the response's entity tag is stored.
    pub path: Option<String>,
    /// The status code.
    pub status: u16,
    /// The length and CRC-32 of the content; `None` if the content is not checked.
    pub content: Option<(usize, u32)>,
    /// Whether the response has no content, despite its Content-Length: HEAD and 304.
    pub head_only: bool,
}

/// The plan of a turn.
#[derive(Clone, Debug)]
pub struct TurnPlan {
    /// The kind of request.
    pub kind: TurnKind,
    /// How the connection continues afterwards.
    pub ending: TurnEnding,
    /// The bytes to send, in pieces.
    pub pieces: Vec<Vec<u8>>,
    /// The expected responses, in this order.
    pub expectations: Vec<AnswerExpectation>,
}

impl fmt::Display for TurnPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.pieces.concat();
        let end = bytes.iter().position(|byte| *byte == b'\r');
        let line = String::from_utf8_lossy(&bytes[..end.unwrap_or(0)]);
        write!(f, "{:?} then {:?}: {line}", self.kind, self.ending)
    }
}

/// Plans the next turn of a connection.
pub fn draw(
    check: &WireCheck,
    shared: &CheckContext,
    draws: &mut RandomDraws,
    is_last: bool,
) -> TurnPlan {
    let page = page(check, draws);
    let etag = shared.etag(&page.path);
    let kind = kind(check, page, draws);
    let ending = ending(kind, page, is_last, draws);
    let (mut pieces, mut expectations) = match kind {
        TurnKind::Get => (get(page, "", ending, draws), vec![full_response(page)]),
        TurnKind::Head => head(page, ending, draws),
        TurnKind::Conditional => conditional(page, etag, ending, draws),
        TurnKind::Fresh => fresh(page, ending, draws),
        TurnKind::Missing => missing(ending, draws),
        TurnKind::Split => (
            split_in_two(get(page, "", ending, draws), draws),
            vec![full_response(page)],
        ),
        TurnKind::Pair => (
            get(page, "", TurnEnding::KeepAlive, draws),
            vec![full_response(page)],
        ),
        TurnKind::Range => range(page, ending, draws),
        TurnKind::Upload | TurnKind::ChunkedUpload => upload(check, kind, ending, draws),
    };
    if kind == TurnKind::Pair {
        let second = self::page(check, draws);
        // Both requests are in one piece, so that the pipelined second one arrives with the first.
        pieces = vec![[pieces, get(second, "", ending, draws)].concat().concat()];
        expectations.push(full_response(second));
    }
    TurnPlan {
        kind,
        ending,
        pieces,
        expectations,
    }
}

/// Plans the next turn of a connection, with a cacheable request.
pub fn draw_hot(
    check: &WireCheck,
    shared: &CheckContext,
    draws: &mut RandomDraws,
    is_last: bool,
) -> TurnPlan {
    let short = check.pages.iter().filter(|page| page.len <= HOT_LEN_MAX);
    let short: Vec<&TestPage> = short.take(HOT_PAGES_MAX).collect();
    let page = match short.is_empty() {
        true => &check.pages[0],
        false => short[draws.below(short.len())],
    };
    let kind = match draws.below(10) {
        0 => TurnKind::Head,
        1 => TurnKind::Conditional,
        _ => TurnKind::Get,
    };
    let ending = ending(kind, page, is_last, draws);
    let (pieces, expectations) = match kind {
        TurnKind::Head => head(page, ending, draws),
        TurnKind::Conditional => conditional(page, shared.etag(&page.path), ending, draws),
        _ => (get(page, "", ending, draws), vec![full_response(page)]),
    };
    TurnPlan {
        kind,
        ending,
        pieces,
        expectations,
    }
}

/// Chooses a page: in half of all cases the first one, so that it is requested often.
fn page<'c>(check: &'c WireCheck, draws: &mut RandomDraws) -> &'c TestPage {
    match draws.below(2) {
        0 => &check.pages[0],
        _ => &check.pages[draws.below(check.pages.len())],
    }
}

fn kind(check: &WireCheck, page: &TestPage, draws: &mut RandomDraws) -> TurnKind {
    let kind = match draws.below(100) {
        0..46 => TurnKind::Get,
        46..56 => TurnKind::Head,
        56..66 => TurnKind::Conditional,
        66..74 => TurnKind::Fresh,
        74..78 => TurnKind::Missing,
        78..84 => TurnKind::Split,
        84..90 => TurnKind::Pair,
        90..94 => TurnKind::Range,
        94..97 => TurnKind::Upload,
        _ => TurnKind::ChunkedUpload,
    };
    // Kinds that the page or the server does not support become plain requests.
    match kind {
        TurnKind::Range if page.len < 2 => TurnKind::Get,
        TurnKind::Upload | TurnKind::ChunkedUpload if check.upload.is_none() => TurnKind::Get,
        kind => kind,
    }
}

fn ending(kind: TurnKind, page: &TestPage, is_last: bool, draws: &mut RandomDraws) -> TurnEnding {
    if !is_last {
        // HTTP/1.0 has no chunked transfer coding.
        let is_http10 = draws.percent(5.0) && kind != TurnKind::ChunkedUpload;
        return if is_http10 {
            TurnEnding::KeepAlive10
        } else {
            TurnEnding::KeepAlive
        };
    }
    // A proxy may abort the request of a half-closed connection, as the client may have disconnected.
    let is_upload = matches!(kind, TurnKind::Upload | TurnKind::ChunkedUpload);
    // nginx may close a half-closed connection if it can't send the complete response immediately; the length of a
    // pair's second page is not known here.
    let is_long = page.len > HALF_CLOSED_LEN_MAX || kind == TurnKind::Pair;
    match draws.below(6) {
        0..2 => TurnEnding::Close,
        2 if !is_upload => TurnEnding::Close10,
        3 if !is_upload && !is_long => TurnEnding::HalfClose,
        _ => TurnEnding::ClientCloses,
    }
}

fn request(
    method: &str,
    target: &str,
    fields: &str,
    ending: TurnEnding,
    draws: &mut RandomDraws,
) -> Vec<u8> {
    let extra_fields = FIELDS[draws.below(FIELDS.len())];
    let (minor, connection) = match ending {
        TurnEnding::KeepAlive | TurnEnding::ClientCloses | TurnEnding::HalfClose => (1, ""),
        TurnEnding::KeepAlive10 => (0, "Connection: keep-alive\r\n"),
        TurnEnding::Close => (1, "Connection: close\r\n"),
        TurnEnding::Close10 => (0, ""),
    };
    let head = format!(
        "{method} {target} HTTP/1.{minor}\r\nHost: test\r\n{extra_fields}{fields}{connection}\r\n"
    );
    head.into_bytes()
}

fn get(page: &TestPage, fields: &str, ending: TurnEnding, draws: &mut RandomDraws) -> Vec<Vec<u8>> {
    vec![request("GET", &page.path, fields, ending, draws)]
}

type PlannedTurn = (Vec<Vec<u8>>, Vec<AnswerExpectation>);

fn head(page: &TestPage, ending: TurnEnding, draws: &mut RandomDraws) -> PlannedTurn {
    let bytes = request("HEAD", &page.path, "", ending, draws);
    let expected = AnswerExpectation {
        head_only: true,
        ..full_response(page)
    };
    (vec![bytes], vec![expected])
}

/// A conditional GET, with the known entity tag or, if there is none yet, a wrong one.
fn conditional(
    page: &TestPage,
    etag: Option<String>,
    ending: TurnEnding,
    draws: &mut RandomDraws,
) -> PlannedTurn {
    let not_modified = AnswerExpectation {
        status: 304,
        content: None,
        head_only: true,
        ..full_response(page)
    };
    let (etag, expected) = match etag {
        Some(etag) => (etag, not_modified),
        // No page has this entity tag, so the full response is expected.
        None => ("\"another\"".to_owned(), full_response(page)),
    };
    let field = format!("If-None-Match: {etag}\r\n");
    (get(page, &field, ending, draws), vec![expected])
}

fn fresh(page: &TestPage, ending: TurnEnding, draws: &mut RandomDraws) -> PlannedTurn {
    let target = format!("{}?fresh={:x}", page.path, draws.number());
    let expected = AnswerExpectation {
        path: None,
        ..full_response(page)
    };
    (
        vec![request("GET", &target, "", ending, draws)],
        vec![expected],
    )
}

fn missing(ending: TurnEnding, draws: &mut RandomDraws) -> PlannedTurn {
    // There are only sixteen targets, so that some are requested repeatedly.
    let target = format!("/missing-{:x}", draws.number() % 16);
    let expected = AnswerExpectation {
        path: None,
        status: 404,
        content: None,
        head_only: false,
    };
    (
        vec![request("GET", &target, "", ending, draws)],
        vec![expected],
    )
}

fn range(page: &TestPage, ending: TurnEnding, draws: &mut RandomDraws) -> PlannedTurn {
    // Only the length is checked, as the CRC-32 of the partial content is not known.
    let expected = AnswerExpectation {
        path: None,
        status: 206,
        content: None,
        head_only: false,
    };
    (
        get(page, "Range: bytes=0-1\r\n", ending, draws),
        vec![expected],
    )
}

fn upload(
    check: &WireCheck,
    kind: TurnKind,
    ending: TurnEnding,
    draws: &mut RandomDraws,
) -> PlannedTurn {
    let target = check.upload.as_deref().unwrap_or("/");
    let len = draws.below(check.upload_len_max + 1);
    let body = site::content(draws.number(), 0, len);
    let receipt = receipt(&body);
    let (field, body_pieces) = if kind == TurnKind::ChunkedUpload {
        let field = "Transfer-Encoding: chunked\r\n".to_owned();
        (field, chunk_body(&body, draws))
    } else {
        (format!("Content-Length: {len}\r\n"), vec![body])
    };
    let mut pieces = vec![request("POST", target, &field, ending, draws)];
    pieces.extend(body_pieces);
    let expected = AnswerExpectation {
        path: None,
        status: 200,
        content: Some((receipt.len(), crc32fast::hash(receipt.as_bytes()))),
        head_only: false,
    };
    (pieces, vec![expected])
}

fn chunk_body(body: &[u8], draws: &mut RandomDraws) -> Vec<Vec<u8>> {
    let chunk = |data: &[u8]| [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat();
    let len = 1 + draws.below(20_000);
    let mut pieces: Vec<_> = body.chunks(len).map(chunk).collect();
    pieces.push(b"0\r\n\r\n".to_vec());
    pieces
}

fn split_in_two(pieces: Vec<Vec<u8>>, draws: &mut RandomDraws) -> Vec<Vec<u8>> {
    let bytes = pieces.concat();
    let (first, second) = bytes.split_at(1 + draws.below(bytes.len() - 1));
    vec![first.to_vec(), second.to_vec()]
}

fn full_response(page: &TestPage) -> AnswerExpectation {
    AnswerExpectation {
        path: Some(page.path.clone()),
        status: 200,
        content: Some((page.len, page.crc32)),
        head_only: false,
    }
}

#[cfg(test)]
mod tests;
