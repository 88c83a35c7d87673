//! Internal redirects in responses of programs: X-Accel-Redirect names a path of the site, X-Sendfile a file. A local
//! redirect (RFC 3875 §6.2.2) names a target that is handled as if the client had requested it.

use lowroad_handler::ResponseFields;
use lowroad_handler::response::{
    ACCEL_REDIRECT_FIELD, HandlerResponse, ResponseContent, SENDFILE_FIELD,
};

/// The target of an internal redirect.
#[derive(Debug, PartialEq, Eq)]
pub enum InternalRedirect {
    /// A path and query (X-Accel-Redirect).
    Path(Vec<u8>),
    /// The absolute path of a file (X-Sendfile).
    File(Vec<u8>),
    /// A path and query to be handled as if the client had requested it (local redirect).
    Local(Vec<u8>),
}

/// The internal redirect of a response, if it has one. X-Accel-Redirect takes precedence over X-Sendfile.
pub fn from_response(response: &HandlerResponse) -> Option<InternalRedirect> {
    // A local redirect is a Location with only a path (RFC 3875 §6.2.2).
    if let ResponseContent::LocalRedirect(target) = &response.content {
        return Some(InternalRedirect::Local(target.clone()));
    }
    let field = |name: &str| Some(response.fields.values(name).next()?.to_vec());
    let path = field(ACCEL_REDIRECT_FIELD).map(InternalRedirect::Path);
    path.or_else(|| field(SENDFILE_FIELD).map(InternalRedirect::File))
}

/// Whether a field describes the program's own response or is meant for this server, and therefore is not sent together
/// with the target.
pub fn is_response_specific(name: &str) -> bool {
    const RESPONSE_SPECIFIC: [&str; 9] = [
        ACCEL_REDIRECT_FIELD,
        SENDFILE_FIELD,
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

/// The fields of the redirecting response that are sent together with the target.
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

/// Adds the fields of the redirecting response. They belong to the requested path, so they replace fields of the same
/// name. An error response gets only the cookies.
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

/// The fields of the first response, and the fields of the second one with names that the first one lacks.
pub fn join_fields(first: &ResponseFields, second: &ResponseFields) -> ResponseFields {
    let mut fields = ResponseFields::new();
    if let Some(date) = second.date() {
        fields.set_date(*date);
    }
    for (name, value) in second.iter() {
        // Set-Cookie and Vary accumulate; for other names, the fields of the first response are used.
        if accumulates(name) || first.values(name).next().is_none() {
            fields.push(name, value);
        }
    }
    for (name, value) in first.iter() {
        fields.push(name, value);
    }
    fields
}

/// Whether fields of this name are added to existing ones instead of replacing them.
fn accumulates(name: &str) -> bool {
    name.eq_ignore_ascii_case("Set-Cookie") || name.eq_ignore_ascii_case("Vary")
}
