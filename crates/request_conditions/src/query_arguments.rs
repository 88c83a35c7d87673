//! The arguments in the query of a request.

use std::borrow::Cow;

use lowroad_http::request::{Request, RequestTarget};

/// The arguments of a request's query in order, as decoded names and values. Bytes that are invalid UTF-8 are replaced.
pub fn query_arguments<'b>(
    request: &Request<'b>,
) -> impl Iterator<Item = (Cow<'b, str>, Cow<'b, str>)> + use<'b> {
    let query = match request.target {
        RequestTarget::Origin { query, .. } => query.unwrap_or_default(),
        _ => &[],
    };
    form_urlencoded::parse(query)
}
