//! The dashboard's page. It is built by `npm run build` in `dashboard/`, together with the policy that permits its script
//! and style by their hashes, and loads nothing else but the operations of this service.

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

/// Leads from `/` to the page. The reference is relative, so that it holds behind a proxy's prefix.
pub fn redirect() -> AdminReply {
    AdminReply {
        status: StatusCode::TEMPORARY_REDIRECT,
        fields: &[("Location", "dashboard")],
        ..AdminReply::text("dashboard\n".into())
    }
}
