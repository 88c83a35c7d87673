//! The differences of two responses to the same request.
//!
//! Not compared are fields that differ between any two servers, and the bodies of redirects and of nginx' built-in error
//! pages.

use std::collections::BTreeSet;

use super::exchange::ServerResponse;

/// Fields that are not compared: they describe the server, the connection or the moment. Bodies are compared, so
/// Content-Length is not; Expires repeats Cache-Control.
const IGNORED: [&str; 17] = [
    "accept-ranges",
    "age",
    "alt-svc",
    "cache-status",
    "connection",
    "content-length",
    "date",
    "etag",
    "expires",
    "keep-alive",
    "last-modified",
    "server",
    "transfer-encoding",
    "vary",
    "via",
    "x-powered-by",
    "x-request-id",
];

/// The fields that are not compared.
pub struct FieldFilter {
    ignored: BTreeSet<String>,
}

impl FieldFilter {
    /// The usual fields, and further ones.
    pub fn new(further: &[String]) -> FieldFilter {
        let usual = IGNORED.iter().map(ToString::to_string);
        FieldFilter {
            ignored: usual
                .chain(further.iter().map(|name| name.to_ascii_lowercase()))
                .collect(),
        }
    }
}

/// A line for each difference. `own` is the requested scheme and host, which nginx repeats in Location.
pub fn differences(
    expected: &ServerResponse,
    actual: &ServerResponse,
    own: &str,
    filter: &FieldFilter,
) -> Vec<String> {
    let mut lines = Vec::new();
    if expected.status != actual.status {
        lines.push(format!("status: {} | {}", expected.status, actual.status));
    }
    // Built-in pages differ in media type as they differ in text.
    let is_own_page = expected.status >= 300 && is_own_page(&expected.body);
    let names: BTreeSet<&str> = [expected, actual]
        .iter()
        .flat_map(|response| response.fields.iter().map(|(name, _)| &**name))
        .filter(|name| !filter.ignored.contains(*name))
        .filter(|name| !(is_own_page && (name.starts_with("content-") || *name == "cache-control")))
        .collect();
    for name in names {
        let (one, other) = (field(expected, name, own), field(actual, name, own));
        if one != other {
            let show = |value: Option<String>| value.unwrap_or_else(|| "(none)".to_string());
            lines.push(format!("{name}: {} | {}", show(one), show(other)));
        }
    }
    let is_compared =
        !(300..400).contains(&expected.status) && !is_own_page && expected.status == actual.status;
    if is_compared && expected.body != actual.body {
        let offset = expected
            .body
            .iter()
            .zip(&actual.body)
            .take_while(|(one, other)| one == other)
            .count();
        let (one, other) = (expected.body.len(), actual.body.len());
        lines.push(format!(
            "body: {one} bytes | {other} bytes, different from byte {offset}"
        ));
    }
    lines
}

/// Whether a body is a built-in page of nginx.
fn is_own_page(body: &[u8]) -> bool {
    let marker = b"<hr><center>nginx";
    body.is_empty() || body.windows(marker.len()).any(|window| window == marker)
}

/// The value of a field in a form that doesn't depend on the order of elements, case and the form of a URL.
fn field(response: &ServerResponse, name: &str, own: &str) -> Option<String> {
    let values = response.fields.iter().filter(|(other, _)| other == name);
    let values: Vec<&str> = values.map(|(_, value)| &**value).collect();
    if values.is_empty() {
        return None;
    }
    let joined = values.join(", ");
    Some(match name {
        "location" => own_path(&joined, own).to_string(),
        "cache-control" => {
            let mut elements: Vec<&str> = joined.split(',').map(str::trim).collect();
            elements.sort_unstable();
            elements.join(", ")
        }
        // RFC 9239 renames application/javascript; text in UTF-8 needs no parameter.
        "content-type" => joined
            .to_ascii_lowercase()
            .replace("; ", ";")
            .replace(";charset=utf-8", "")
            .replace("application/javascript", "text/javascript"),
        // RFC 7617 §2.1 permits the parameter, which nginx doesn't send.
        "www-authenticate" => joined.replace(", charset=\"UTF-8\"", ""),
        _ => joined,
    })
}

/// The path of a Location at the requested host, to which nginx adds the port of its listener.
fn own_path<'v>(location: &'v str, own: &str) -> &'v str {
    let Some(rest) = location.strip_prefix(own) else {
        return location;
    };
    let path = match rest.strip_prefix(':') {
        Some(port) => port.trim_start_matches(|it: char| it.is_ascii_digit()),
        None => rest,
    };
    if path.starts_with('/') {
        path
    } else {
        location
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, fields: &[(&str, &str)], body: &str) -> ServerResponse {
        ServerResponse {
            status,
            fields: fields
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
            body: body.into(),
        }
    }

    fn compare(one: &ServerResponse, other: &ServerResponse) -> Vec<String> {
        differences(
            one,
            other,
            "http://h:1",
            &FieldFilter::new(&["X-Own".to_string()]),
        )
    }

    #[test]
    fn equal_meanings_are_no_differences() {
        let one = response(
            200,
            &[
                ("cache-control", "max-age=9"),
                ("cache-control", "public"),
                ("date", "a"),
                ("x-own", "1"),
                ("content-type", "text/css; charset=UTF-8"),
            ],
            "a",
        );
        let other = response(
            200,
            &[
                ("cache-control", "public, max-age=9"),
                ("date", "b"),
                ("content-type", "text/css;charset=utf-8"),
            ],
            "a",
        );
        assert_eq!(compare(&one, &other), [""; 0]);
        let one = response(301, &[("location", "http://h:1:80/a/")], "x");
        assert_eq!(
            compare(&one, &response(301, &[("location", "/a/")], "y")),
            [""; 0]
        );
        let one = response(301, &[("location", "http://h:1/a/")], "x");
        let other = response(301, &[("location", "/a/")], "y");
        assert_eq!(compare(&one, &other), [""; 0]);
        let one = response(
            404,
            &[("content-type", "text/html")],
            "<hr><center>nginx</center>",
        );
        assert_eq!(compare(&one, &response(404, &[], "our page")), [""; 0]);
    }

    #[test]
    fn status_fields_and_body_are_compared() {
        let one = response(200, &[("x-a", "1")], "abc");
        assert_eq!(
            compare(&one, &response(404, &[("x-a", "1")], "")),
            ["status: 200 | 404"]
        );
        assert_eq!(
            compare(&one, &response(200, &[], "abd")),
            [
                "x-a: 1 | (none)",
                "body: 3 bytes | 3 bytes, different from byte 2"
            ]
        );
        let page = response(404, &[], "a page");
        assert_eq!(
            compare(&page, &response(404, &[], "another")).len(),
            1,
            "custom error pages"
        );
    }
}
