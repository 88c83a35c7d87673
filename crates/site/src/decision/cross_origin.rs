//! Answers preflights of cross-origin requests (CORS, WHATWG Fetch §3.3).

use lowroad_http::method::Method;
use lowroad_http::request::Request;
use lowroad_http::status::StatusCode;
use lowroad_site_rules::{CorsPreflight, preflight_fields};

use super::context::{RequestContext, RequestDecision, generated_response};
use super::effects::{Effects, TraceEvent};
use crate::responder::RequestResponder;

/// The origin of a request; `None` without one, or with several.
pub fn request_origin<'b>(request: &Request<'b>) -> Option<&'b [u8]> {
    single_field(request, b"origin")
}

/// Answers a preflight for a path with a CORS rule. It precedes access rules: browsers send it without credentials.
pub fn answer_preflight(
    effects: &impl Effects,
    context: &RequestContext<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> Option<RequestDecision> {
    let request = responder.request;
    if request.method != Method::Options {
        return None;
    }
    // Without it, this is an ordinary OPTIONS of a script.
    single_field(request, b"access-control-request-method")?;
    let preflight = CorsPreflight {
        origin: request_origin(request)?,
        headers: single_field(request, b"access-control-request-headers").unwrap_or_default(),
    };
    let rule = context.cors_rule()?;
    let fields = preflight_fields(rule, preflight);
    effects.trace(TraceEvent::Preflight(fields.is_some()));
    let status = match fields {
        Some(fields) => responder.preflight(context.site_path(), &fields),
        None => responder.refuse_by_rule(
            context.site_path(),
            StatusCode::FORBIDDEN,
            &[("Vary", b"Origin")],
        ),
    };
    Some(generated_response(status))
}

/// The value of a field with one line.
fn single_field<'b>(request: &Request<'b>, name: &[u8]) -> Option<&'b [u8]> {
    let fields = request.fields();
    let mut lines = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    let (_, value) = lines.next()?;
    // Of two origins, the checked one might not be the one that a program reads.
    lines.next().is_none().then_some(value)
}
