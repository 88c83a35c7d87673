//! The oracle: the responses that RFC 9111 allows to a cache, derived only from versions and times. Does not depend on
//! a cache's implementation.

use lowroad_testkit::ClientResponse;

use super::world::{Kind, Resource, Version, World, language, part};

/// A request as its client knows it.
pub struct Request {
    pub of: Resource,
    pub id: String,
    pub method: &'static str,
    pub language: Option<&'static str>,
    pub is_authorized: bool,
    pub if_none_match: Option<String>,
    pub range: Option<String>,
    pub if_range: Option<String>,
    /// Time of the start.
    pub began: u64,
    /// The newest version that any client had received before the start; older versions are invalid.
    pub oldest: u64,
    /// Whether no other request is in progress, so that this one can't have joined an earlier fetch.
    pub is_alone: bool,
}

/// The version that a response contains.
pub fn version_of(request: &Request, response: &ClientResponse) -> Option<Version> {
    let number = response.field("x-version")?.parse().ok()?;
    Some(Version::of(request.of, number))
}

/// Checks whether a response to a request is allowed.
///
/// # Errors
/// The violated rule.
pub fn judge(world: &World, request: &Request, response: &ClientResponse) -> Result<(), String> {
    let id = response.field("x-id").unwrap_or("");
    if !id.is_empty() && id != request.id {
        return Err(format!("it is for request {id}"));
    }
    if response.status == 503 {
        return is(
            id == request.id,
            "a failure of the origin for somebody else",
        );
    }
    if matches!(response.status, 416 | 502 | 504) {
        return judge_refusal(request, response);
    }
    let version = version_of(request, response).ok_or("it is of no version")?;
    let newest = world.newest(request.of);
    is(
        version.number >= request.oldest,
        "it is older than what was acknowledged",
    )?;
    is(version.number <= newest, "there is no such version")?;
    let language = language(&version, request.language);
    is(
        response.field("x-language") == Some(language),
        "it is another variant",
    )?;
    is(
        !version.is_personal(request.is_authorized) || id == request.id,
        "it is a response for nobody else",
    )?;
    judge_age(&version, response)?;
    judge_use(world, request, &version, language)?;
    match response.status {
        304 => judge_not_modified(request, &version, response, language),
        206 => judge_part(request, &version, response, &version.body(language, id)),
        status => {
            is(
                status == version.status,
                "it has the status of another version",
            )?;
            judge_body(request, response, &version.body(language, id))
        }
    }
}

fn is(right: bool, otherwise: &str) -> Result<(), String> {
    right.then_some(()).ok_or_else(|| otherwise.to_string())
}

/// A 416 requires a range beyond the end. No other refusal is allowed, since the origin answers.
fn judge_refusal(request: &Request, response: &ClientResponse) -> Result<(), String> {
    is(
        response.status == 416 && request.range.is_some(),
        "a refusal without a reason",
    )
}

/// A response has at most one Age field, with at least the origin's value plus the time since.
fn judge_age(version: &Version, response: &ClientResponse) -> Result<(), String> {
    let lines = response
        .head
        .lines()
        .filter(|line| line.to_ascii_lowercase().starts_with("age:"));
    is(lines.count() <= 1, "it has two ages")?;
    let Some(age) = response.field("age") else {
        return Ok(());
    };
    let age: u64 = age.parse().map_err(|_| "its age is no number")?;
    let least = match version.kind {
        Kind::Stale | Kind::StaleMustRevalidate | Kind::StaleWhileRevalidate => 60,
        _ => 0,
    };
    // A history takes less than a minute.
    is((least..least + 60).contains(&age), "it has a wrong age")
}

/// Checks whether the response was validated or may be used without validation.
fn judge_use(
    world: &World,
    request: &Request,
    version: &Version,
    language: &'static str,
) -> Result<(), String> {
    let confirmed = world.confirmed(request.of, version.number, language);
    is(confirmed > 0, "the origin never said that")?;
    // A fresh response needs no validation; with stale-while-revalidate, a stale one may be used during its validation.
    let needs_word = match version.kind {
        Kind::Stale | Kind::Silent | Kind::StaleMustRevalidate | Kind::NoCache => true,
        Kind::Fresh | Kind::ForAll | Kind::StaleWhileRevalidate | Kind::NoStore | Kind::Private => {
            false
        }
    };
    if !needs_word || !request.is_alone || confirmed > request.began {
        return Ok(());
    }
    let may_stand_in = matches!(version.kind, Kind::Stale | Kind::Silent);
    is(
        may_stand_in && world.failed(request.of) > request.began,
        "it is stale, and the origin was not asked",
    )
}

fn judge_not_modified(
    request: &Request,
    version: &Version,
    response: &ClientResponse,
    language: &str,
) -> Result<(), String> {
    let tags = request
        .if_none_match
        .as_deref()
        .ok_or("nobody asked whether it was modified")?;
    let tag = response
        .field("etag")
        .ok_or("it does not say which one was not modified")?;
    is(tag == version.tag(language), "its tag is another version's")?;
    is(tags.contains(tag), "its client does not have that one")?;
    is(
        version.status == 200,
        "only what is 200 can be not modified",
    )
}

fn judge_part(
    request: &Request,
    version: &Version,
    response: &ClientResponse,
    whole: &[u8],
) -> Result<(), String> {
    is(request.method == "GET", "a part without a GET")?;
    is(version.status == 200, "a part of what is not 200")?;
    let range = request.range.as_deref().ok_or("nobody asked for a part")?;
    if let Some(tag) = &request.if_range {
        is(
            response.field("etag") == Some(tag),
            "a part of another one than the client has",
        )?;
    }
    let (from, to) = part(range, whole.len()).ok_or("a part that there is not")?;
    let said = format!("bytes {from}-{to}/{}", whole.len());
    is(
        response.field("content-range") == Some(&said),
        "its Content-Range is wrong",
    )?;
    is(response.body == whole[from..=to], "its bytes are others")
}

fn judge_body(request: &Request, response: &ClientResponse, whole: &[u8]) -> Result<(), String> {
    let len = whole.len().to_string();
    is(
        response
            .field("content-length")
            .is_none_or(|said| said == len),
        "its length is another version's",
    )?;
    match request.method {
        "HEAD" => is(response.body.is_empty(), "HEAD has no body"),
        _ => is(response.body == whole, "its body is another version's"),
    }
}
