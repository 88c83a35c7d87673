//! The dashboard's page. It is built by `npm run build` in `dashboard/`, together with a Content-Security-Policy that
//! permits only its script and style, by their hashes, and requests to this service.

use bytes::Bytes;
use lowroad_http::status::StatusCode;

use super::service::AdminReply;

const PAGE: &str = include_str!("dashboard.html");
const FIELDS: [(&str, &str); 2] = [
    ("Content-Security-Policy", include_str!("dashboard.csp")),
    ("Referrer-Policy", "no-referrer"),
];

/// The page.
pub fn page() -> AdminReply {
    AdminReply {
        fields: &FIELDS,
        ..AdminReply::new(
            "text/html; charset=utf-8",
            Bytes::from_static(PAGE.as_bytes()),
        )
    }
}

/// Redirects `/` to the page. The reference is relative, so that it works below the prefix of a proxy.
pub fn redirect() -> AdminReply {
    AdminReply {
        status: StatusCode::TEMPORARY_REDIRECT,
        fields: &[("Location", "dashboard")],
        ..AdminReply::text("dashboard\n".into())
    }
}
