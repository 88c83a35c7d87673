//! Parses the head of a program's output (RFC 3875 §6).
//!
//! Lines may end in LF or CRLF. Fields that a server must not forward are dropped. For an invalid head there is an
//! error message for the operator.
//!
//! If `Location` is a path of this site and the only field, and there is no `Status`, the response is a local redirect
//! (§6.2.2). With a URL, or with other fields for the client, the response is a 302.

pub mod reply;
#[cfg(test)]
mod tests;

use lowroad_config::RouteConfig;
use lowroad_handler::fields::{ResponseFields, is_token};
use lowroad_handler::response::{ACCEL_REDIRECT_FIELD, SENDFILE_FIELD};
use lowroad_http::status::StatusCode;

/// Limits for a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The number of bytes, including line ends.
    pub len_max: usize,
    /// The number of fields.
    pub fields_max: usize,
}

impl HeadLimits {
    /// The limits of a route.
    pub fn new(route: &RouteConfig) -> HeadLimits {
        HeadLimits {
            len_max: route.head_len_max,
            fields_max: route.head_fields_max,
        }
    }
}

/// The form of a program's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// A CGI head: only fields, including at least one that RFC 3875 requires.
    Cgi,
    /// A CGI head from a FastCGI server: Content-Type may be missing, which other web servers accept as well.
    FastCgi,
    /// A complete HTTP head with a status line, from a program with a name that begins with `nph-` (non-parsed header).
    Http,
}

/// A parsed head.
#[derive(Debug, PartialEq, Eq)]
pub struct CgiHead {
    /// The status.
    pub status: StatusCode,
    /// The fields for the client.
    pub fields: ResponseFields,
    /// The length of the body, if the program declares it and sends the body itself (no X-Sendfile or the like).
    pub len: Option<u64>,
    /// The target of a local redirect: path and query. The rest of the head is ignored then.
    pub redirect_target: Option<Vec<u8>>,
}

/// The reason why a head is invalid. Continues a sentence that begins with the program's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadHead(pub String);

/// Parses the head at the start of `output`. Returns the head and the offset of the body; `None` while the head is
/// incomplete. `lines_len` is kept between calls: the number of bytes in complete lines, initially 0.
///
/// # Errors
/// [`BadHead`], once the head is complete or too long.
pub fn read(
    output: &[u8],
    lines_len: &mut usize,
    form: OutputForm,
    limits: HeadLimits,
) -> Result<Option<(CgiHead, usize)>, BadHead> {
    let complete = find_end(output, lines_len);
    let len_max = limits.len_max;
    // The length is also checked while the head is incomplete: a program that never sends an empty line must not fill
    // the memory.
    if *lines_len > len_max || !complete && output.len() > len_max {
        return Err(BadHead(format!(
            "sent a head of more than {len_max} bytes (head_len_max of the route)"
        )));
    }
    if !complete {
        // `lines_len` keeps lines from being scanned again.
        return Ok(None);
    }
    let head = parse(&output[..*lines_len], form, limits.fields_max)?;
    Ok(Some((head, *lines_len)))
}

/// Scans lines up to the first empty one; returns whether it was found.
fn find_end(output: &[u8], lines_len: &mut usize) -> bool {
    while let Some(len) = output[*lines_len..].iter().position(|b| *b == b'\n') {
        let line = &output[*lines_len..*lines_len + len];
        // Kept between calls, so that only new bytes are scanned.
        *lines_len += len + 1;
        if line.is_empty() || line == b"\r" {
            return true;
        }
    }
    false
}

fn parse(head: &[u8], form: OutputForm, fields_max: usize) -> Result<CgiHead, BadHead> {
    let mut lines = head
        .split(|b| *b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .enumerate();
    let mut parts = HeadParts::default();
    if form == OutputForm::Http {
        let (_, line) = lines.next().unwrap_or_default();
        parts.status = Some(parse_status_line(line)?);
    }
    for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
        parts.line(number + 1, line)?;
        // The number is checked while parsing, so that the list of fields stays bounded.
        if parts.fields.len() > fields_max {
            return Err(BadHead(format!(
                "sent more than {fields_max} fields (fields_max of the route)"
            )));
        }
    }
    parts.finish(form)
}

#[derive(Default)]
struct HeadParts {
    status: Option<StatusCode>,
    fields: ResponseFields,
    len: Option<u64>,
    location: bool,
    content_type: bool,
    has_transfer_encoding: bool,
}

impl HeadParts {
    fn line(&mut self, number: usize, line: &[u8]) -> Result<(), BadHead> {
        let (name, value) = field(number, line)?;
        match name.to_ascii_lowercase().as_str() {
            "status" => {
                // Status is specific to CGI and not sent to clients (RFC 3875 §6.3.3).
                self.status = Some(parse_status(value)?);
                return Ok(());
            }
            "content-length" => self.len = Some(self.parse_content_len(value)?),
            "transfer-encoding" => self.has_transfer_encoding = true,
            // CGI has no trailer section.
            "trailer" => return Ok(()),
            "location" => self.location = true,
            "content-type" => self.content_type = true,
            _ => {}
        }
        self.fields.push(name, value);
        Ok(())
    }

    /// Equal repeated values are accepted as one, in one line or several (RFC 9110 §8.6).
    fn parse_content_len(&self, value: &[u8]) -> Result<u64, BadHead> {
        let mut len = self.len;
        for member in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
            // `parse` would also accept a plus sign.
            let digits = !member.is_empty() && member.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(member).unwrap_or_default();
            len = match text.parse() {
                Ok(found) if digits && len.is_none_or(|previous| previous == found) => Some(found),
                _ => {
                    return Err(bad_head(
                        "sent a Content-Length that is not a number",
                        value,
                    ));
                }
            };
        }
        len.ok_or_else(|| bad_head("sent a Content-Length that is not a number", value))
    }

    fn finish(self, form: OutputForm) -> Result<CgiHead, BadHead> {
        // The server frames the body itself, so an encoded body would reach the client as content.
        if form == OutputForm::Http && self.has_transfer_encoding {
            return Err(BadHead(
                "sent Transfer-Encoding, which only the server may set: send the bytes unencoded"
                    .into(),
            ));
        }
        let has_field = |name| self.fields.values(name).next().is_some();
        let is_internal_redirect = has_field(ACCEL_REDIRECT_FIELD) || has_field(SENDFILE_FIELD);
        let has_required_field =
            self.content_type || self.location || self.status.is_some() || is_internal_redirect;
        if form == OutputForm::Cgi && !has_required_field {
            return Err(BadHead(
                "sent a head without Content-Type, Location or Status".into(),
            ));
        }
        // A program with its own status line sends a complete response, so Location is for the client.
        let redirect_target = self.local_redirect().filter(|_| form != OutputForm::Http);
        let default_status = if self.location {
            StatusCode::FOUND
        } else {
            StatusCode::OK
        };
        // In an internal redirect, Content-Length describes a body that is not sent.
        let len = self.len.filter(|_| !is_internal_redirect);
        Ok(CgiHead {
            status: self.status.unwrap_or(default_status),
            fields: self.fields,
            len,
            redirect_target,
        })
    }

    /// The target of a local redirect; `None` if the head has fields for the client (such as a cookie), which would be
    /// lost.
    fn local_redirect(&self) -> Option<Vec<u8>> {
        // With a status, the redirect is for the client (RFC 3875 §6.2.2, §6.2.4).
        if self.status.is_some() {
            return None;
        }
        let is_for_client = |(name, _): (&str, &[u8])| {
            let redirect_fields = ["location", "content-type", "content-length"];
            !redirect_fields
                .iter()
                .any(|field_name| name.eq_ignore_ascii_case(field_name))
        };
        if self.fields.iter().any(is_for_client) {
            return None;
        }
        let mut locations = self.fields.values("Location");
        let target = locations.next().filter(|_| locations.next().is_none())?;
        // `//host` refers to another host, and fragments are only for clients.
        let is_local = target.starts_with(b"/")
            && !target.starts_with(b"//")
            && target.iter().all(|b| b.is_ascii_graphic() && *b != b'#');
        is_local.then(|| target.to_vec())
    }
}

fn field(number: usize, line: &[u8]) -> Result<(&str, &[u8]), BadHead> {
    let bad_line = |problem: &str| {
        bad_head(
            &format!("sent a head in which line {number} {problem}"),
            line,
        )
    };
    let colon = line.iter().position(|b| *b == b':');
    let colon = colon.ok_or_else(|| bad_line("has no colon"))?;
    // Whitespace before the colon is unambiguous here and accepted, as in responses of origins (RFC 9112 §5.1).
    let name = line[..colon].trim_ascii_end();
    let value = line[colon + 1..].trim_ascii();
    if !is_token(name) {
        return Err(bad_line("has a name that is not a token"));
    }
    // Control characters could inject fields or lines (response splitting).
    if !value
        .iter()
        .all(|b| matches!(b, b'\t' | 0x20..=0x7e | 0x80..))
    {
        return Err(bad_line("has a value with control characters"));
    }
    let name = std::str::from_utf8(name).expect("tokens are ASCII");
    Ok((name, value))
}

/// Parses `Status: 404 Not Found`.
fn parse_status(value: &[u8]) -> Result<StatusCode, BadHead> {
    let (code, rest) = value.split_at(value.len().min(3));
    let is_delimited = rest.is_empty() || rest.starts_with(b" ");
    let code = std::str::from_utf8(code).unwrap_or_default();
    // 1xx responses are not final.
    let code = code.parse().ok().filter(|code| (200..1000).contains(code));
    code.filter(|_| is_delimited)
        .and_then(StatusCode::new)
        .ok_or_else(|| bad_head("sent a status that is not 200 to 999", value))
}

/// Parses `HTTP/1.1 404 Not Found`.
fn parse_status_line(line: &[u8]) -> Result<StatusCode, BadHead> {
    let rest = line.strip_prefix(b"HTTP/1.").and_then(|rest| match rest {
        // A higher minor version is treated as 1.1 (RFC 9110 §2.5).
        [b'0'..=b'9', b' ', rest @ ..] => Some(rest),
        _ => None,
    });
    let rest =
        rest.ok_or_else(|| bad_head("sent no status line, which its name (nph-) requires", line))?;
    parse_status(rest)
}

/// An error message with the beginning of the invalid text.
fn bad_head(problem: &str, text: &[u8]) -> BadHead {
    // The excerpt is escaped and truncated for the log.
    let excerpt = text.get(..80).unwrap_or(text).escape_ascii();
    BadHead(format!("{problem}: {excerpt}"))
}
