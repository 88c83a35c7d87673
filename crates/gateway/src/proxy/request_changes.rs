//! The configured changes to the fields of requests to an origin (`[site.route.request]`), and those that follow from
//! the prefixes of a route. They apply to the complete fields, so they can also replace those that the proxy generates.

use lowroad_config::{PathPattern, RouteConfig};
use lowroad_handler::HandlerRequest;
use lowroad_http::fields::FieldLines;
use lowroad_http::host;
use lowroad_variables::{Template, TemplateInput};

use super::path_map::{OriginReference, PathMap};

/// The changes to the requests of a route.
pub struct RequestChanges {
    pub path_map: Option<PathMap>,
    host: Option<Template>,
    /// The names of fields that are removed or replaced.
    removed: Vec<String>,
    added: Vec<(String, Template)>,
    /// The pattern with the captures.
    pattern: PathPattern,
}

impl RequestChanges {
    /// The changes of a route; `None` if requests are not changed.
    pub fn new(route: &RouteConfig) -> Option<Box<RequestChanges>> {
        let (path_map, rule) = (PathMap::new(&route.prefixes), &route.request);
        if path_map.is_none() && rule.is_empty() {
            return None;
        }
        let set = rule.set.iter();
        Some(Box::new(RequestChanges {
            path_map,
            host: rule.host.clone(),
            removed: rule
                .remove
                .iter()
                .chain(set.clone().map(|(name, _)| name))
                .cloned()
                .collect(),
            added: set.chain(&rule.append).cloned().collect(),
            pattern: route.pattern.clone(),
        }))
    }

    /// Whether the value of a field is a secret, which must not be shown.
    pub fn is_secret(&self, name: &[u8]) -> bool {
        let mut added = self.added.iter();
        added.any(|(it, value)| value.is_secret() && it.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The value of Host; `None` if it is not changed, or if the result is not a valid host.
    pub fn host(&self, request: &HandlerRequest) -> Option<Vec<u8>> {
        let input = TemplateInput {
            facts: request,
            captures: &[],
        };
        let value = self.host.as_ref()?.field_value(input);
        host::is_valid(&value).then_some(value)
    }

    /// The target of the request.
    pub fn target(&self, request: &HandlerRequest) -> Option<Vec<u8>> {
        let path_map = self.path_map.as_ref()?;
        Some(path_map.origin_target(request.target()))
    }

    /// Applies the changes to field lines.
    pub fn apply(&self, request: &HandlerRequest, lines: &mut Vec<u8>) {
        let original = std::mem::take(lines);
        let client_prefix = self.path_map.as_ref().map(PathMap::client_prefix);
        let client_prefix = client_prefix.filter(|prefix| !prefix.is_empty());
        // A proxy in front may have removed a prefix, too.
        let mut outer_prefix: &[u8] = b"";
        for (name, value) in FieldLines::new(&original) {
            let has_name = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            if self.removed.iter().any(|removed| has_name(removed)) {
                continue;
            }
            if client_prefix.is_some() && has_name("X-Forwarded-Prefix") {
                outer_prefix = value;
                continue;
            }
            let path_map = self.path_map.as_ref().filter(|_| has_name("Destination"));
            match path_map.and_then(|it| it.origin_reference(value, request.host())) {
                None => write_line(lines, name, value),
                Some(OriginReference::Translated(value)) => write_line(lines, name, &value),
                Some(OriginReference::Refused) => {}
            }
        }
        let is_replaced = |name: &str| self.removed.iter().any(|it| it.eq_ignore_ascii_case(name));
        if let Some(prefix) = client_prefix.filter(|_| !is_replaced("X-Forwarded-Prefix")) {
            write_line(
                lines,
                b"X-Forwarded-Prefix",
                &[outer_prefix, prefix].concat(),
            );
        }
        self.write_added(request, lines);
    }

    fn write_added(&self, request: &HandlerRequest, lines: &mut Vec<u8>) {
        let capture = self.pattern.capture(request.path()).unwrap_or_default();
        let input = TemplateInput {
            facts: request,
            captures: &[capture],
        };
        for (name, template) in &self.added {
            let value = template.field_value(input);
            if !value.is_empty() {
                write_line(lines, name.as_bytes(), &value);
            }
        }
    }
}

fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
