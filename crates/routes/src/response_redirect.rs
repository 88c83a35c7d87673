//! Internal redirects in a program's response: X-Accel-Redirect names a path of the site, X-Sendfile a file, and a
//! local redirect (RFC 3875 §6.2.2) a target as if the client had requested it.

use lowroad_handler::ResponseFields;
use lowroad_handler::response::{FILE_INSTEAD, HandlerResponse, PATH_INSTEAD, ResponseContent};

/// The target of an internal redirect.
#[derive(Debug, PartialEq, Eq)]
pub enum InternalRedirect {
    /// A target: path and query.
    Path(Vec<u8>),
    /// A file, by its absolute path.
    File(Vec<u8>),
    /// A target, as if the client had requested it.
    Local(Vec<u8>),
}

/// The internal redirect of a response, if it has one; a path precedes a file.
pub fn from_response(response: &HandlerResponse) -> Option<InternalRedirect> {
    // A Location with a path only (RFC 3875 §6.2.2).
    if let ResponseContent::Local(target) = &response.content {
        return Some(InternalRedirect::Local(target.clone()));
    }
    let field = |name: &str| Some(response.fields.values(name).next()?.to_vec());
    let path = field(PATH_INSTEAD).map(InternalRedirect::Path);
    path.or_else(|| field(FILE_INSTEAD).map(InternalRedirect::File))
}

/// Whether a field describes the program's own response or addresses this server, so that it is not sent with the
/// target.
pub fn is_response_specific(name: &str) -> bool {
    const RESPONSE_SPECIFIC: [&str; 9] = [
        PATH_INSTEAD,
        FILE_INSTEAD,
        "Accept-Ranges",
        "Content-Encoding",
        "Content-Length",
        "Content-Range",
        "ETag",
        "Last-Modified",
        "Location",
    ];
    RESPONSE_SPECIFIC
        .iter()
        .any(|specific| name.eq_ignore_ascii_case(specific))
}

/// The fields of a redirecting response that are sent with the target.
pub fn carried_fields(fields: &ResponseFields) -> ResponseFields {
    let mut carried = ResponseFields::new();
    for (name, value) in fields
        .iter()
        .filter(|(name, _)| !is_response_specific(name))
    {
        carried.push(name, value);
    }
    carried
}

/// Adds the fields of the redirecting response. They concern the requested path, so they replace fields of the same
/// name; an error response gets the cookies only.
pub fn add_fields(first: &ResponseFields, response: &mut HandlerResponse) {
    let is_error = response.status.code() >= 400;
    let fields = match is_error {
        false => join_fields(first, &response.fields),
        true => {
            let mut fields = response.fields.clone();
            for (name, value) in first.iter().filter(|(name, _)| accumulates(name)) {
                fields.push(name, value);
            }
            fields
        }
    };
    response.fields = fields;
}

/// The fields of the first redirect, and those of the second with other names.
pub fn join_fields(first: &ResponseFields, second: &ResponseFields) -> ResponseFields {
    let mut fields = ResponseFields::new();
    if let Some(date) = second.date() {
        fields.set_date(*date);
    }
    for (name, value) in second.iter() {
        // Cookies and Vary accumulate; of other fields, the first response's count.
        if accumulates(name) || first.values(name).next().is_none() {
            fields.push(name, value);
        }
    }
    for (name, value) in first.iter() {
        fields.push(name, value);
    }
    fields
}

/// Whether fields of this name are added instead of replaced.
fn accumulates(name: &str) -> bool {
    name.eq_ignore_ascii_case("Set-Cookie") || name.eq_ignore_ascii_case("Vary")
}
