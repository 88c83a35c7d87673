//! Expansion of templates to URLs and request targets.

use crate::encoding::percent_encode;
use crate::template::{Template, TemplateInput, TemplatePart};
use crate::value_map::MapReference;
use crate::variable::Variable;

/// The component of a URL in which a part of a template stands (RFC 3986 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UrlComponent {
    Authority,
    Path,
    QueryOrFragment,
}

impl Template {
    /// Appends the result as a URL (`https://…`) or a path with an optional query. `is_path_byte` selects the bytes of
    /// captures, which are percent-encoded already, are kept in a path. The request's query is added, unless the
    /// template has a query or `$request_uri`. A question mark at the end is an empty query, which is not written. A path
    /// never begins with two slashes, which would name a host (RFC 3986 §4.2).
    ///
    /// Returns whether a URL was appended: not if the template needs a host, and the request has none.
    #[must_use]
    pub fn write_url(
        &self,
        input: TemplateInput<'_>,
        is_path_byte: fn(u8) -> bool,
        out: &mut Vec<u8>,
    ) -> bool {
        let added_query = input.facts.query().filter(|_| !self.has_query());
        if let Some(map) = self.whole_map() {
            return write_mapped_url(&map.0.value(input), added_query, out);
        }
        let start = out.len();
        if self.names_host() && input.facts.authority().is_empty() {
            return false;
        }
        let mut writer = UrlWriter {
            input,
            is_path_byte,
            component: match self.text_start().starts_with('/') {
                true => UrlComponent::Path,
                false => UrlComponent::Authority,
            },
            added_query,
            has_free_segment: false,
            out,
        };
        for part in self.parts() {
            match part {
                TemplatePart::Text(text) => writer.text(text),
                TemplatePart::Variable(variable) => writer.variable(variable),
            }
        }
        writer.end();
        if self.ends_in_empty_query() {
            writer.out.pop_if(|byte| *byte == b'?');
        }
        if writer.has_free_segment {
            disarm_dot_segments(start, out);
        }
        if out.get(start) == Some(&b'/') {
            let slashes = out[start..].iter().take_while(|&&byte| byte == b'/');
            let slashes = slashes.count();
            out.drain(start + 1..start + slashes);
        }
        true
    }

    /// The map that provides the whole URL or path, perhaps without the request's query: `$map_NAME` or `$map_NAME?`.
    pub fn whole_map(&self) -> Option<&MapReference> {
        match self.parts() {
            [TemplatePart::Variable(Variable::Map(map))] => Some(map),
            [
                TemplatePart::Variable(Variable::Map(map)),
                TemplatePart::Text(end),
            ] if end == "?" => Some(map),
            _ => None,
        }
    }

    /// Whether the template determines the query, perhaps to be none.
    fn has_query(&self) -> bool {
        for part in self.parts() {
            match part {
                // A question mark after `#` is a part of the fragment (RFC 3986 §3.5).
                TemplatePart::Text(text) => match text.find(['?', '#']) {
                    None => {}
                    Some(at) => return text.as_bytes()[at] == b'?',
                },
                TemplatePart::Variable(variable) if *variable == Variable::RequestUri => {
                    return true;
                }
                TemplatePart::Variable(_) => {}
            }
        }
        false
    }

    /// Whether the last character is the question mark of a query.
    fn ends_in_empty_query(&self) -> bool {
        let parts = self.parts();
        let texts = parts.iter().map(|part| match part {
            TemplatePart::Text(text) => text.as_str(),
            TemplatePart::Variable(_) => "",
        });
        let marks: usize = texts.map(|text| text.matches(['?', '#']).count()).sum();
        let is_last = matches!(parts.last(), Some(TemplatePart::Text(text)) if text.ends_with('?'));
        // A question mark after another one, or in a fragment, is a character of the text.
        is_last && marks == 1
    }

    /// Whether the template contains the requested host.
    fn names_host(&self) -> bool {
        let is_host = |it: &Variable| matches!(it, Variable::Host | Variable::Authority);
        self.variables().any(is_host)
    }

    /// The text before the first variable; `/` if the first variable is a path.
    fn text_start(&self) -> &str {
        match self.parts().first() {
            Some(TemplatePart::Text(text)) => text,
            Some(TemplatePart::Variable(Variable::Path | Variable::RequestUri)) => "/",
            _ => "",
        }
    }
}

struct UrlWriter<'w> {
    input: TemplateInput<'w>,
    is_path_byte: fn(u8) -> bool,
    component: UrlComponent,
    /// The request's query, until it is written.
    added_query: Option<&'w [u8]>,
    /// Whether the path has a value that the client chooses freely.
    has_free_segment: bool,
    out: &'w mut Vec<u8>,
}

impl UrlWriter<'_> {
    fn text(&mut self, text: &str) {
        let mut rest = text;
        if self.component == UrlComponent::Authority {
            // The slashes after the scheme do not begin a path.
            let scheme_len = rest.find("://").map_or(0, |at| at + 3);
            self.out.extend_from_slice(&rest.as_bytes()[..scheme_len]);
            rest = &rest[scheme_len..];
            if rest.contains(['/', '?', '#']) {
                self.component = UrlComponent::Path;
            }
        }
        // The query stands before the fragment (RFC 3986 §3).
        if let Some(hash) = rest.find('#') {
            let before = &rest[..hash];
            let before = before.strip_suffix('?').unwrap_or(before);
            self.out.extend_from_slice(before.as_bytes());
            self.end();
            rest = &rest[hash..];
        }
        if rest.contains(['?', '#']) {
            self.component = UrlComponent::QueryOrFragment;
        }
        self.out.extend_from_slice(rest.as_bytes());
    }

    fn variable(&mut self, variable: &Variable) {
        let (input, component) = (self.input, self.component);
        match (component, variable) {
            // These two begin with a slash and end the authority.
            (UrlComponent::Authority | UrlComponent::Path, Variable::RequestUri) => {
                self.component = UrlComponent::Path;
                percent_encode(&input.value(variable), is_target_byte, self.out);
            }
            (UrlComponent::Authority | UrlComponent::Path, Variable::Path) => {
                self.component = UrlComponent::Path;
                percent_encode(&input.value(variable), is_decoded_path_byte, self.out);
            }
            // An unencoded `/` or `@` in a value would lead to another host.
            (UrlComponent::Authority, _) => {
                percent_encode(&input.value(variable), is_host_byte, self.out);
            }
            (UrlComponent::Path, Variable::Capture(number)) => {
                percent_encode(input.capture(*number), self.is_path_byte, self.out);
            }
            (_, Variable::Query) => self.query(),
            // The values of maps are texts of the operator, which may have several segments.
            (UrlComponent::Path, Variable::Map(_)) => {
                percent_encode(&input.value(variable), is_path_text_byte, self.out);
            }
            // An unencoded `&` or `=` would begin another parameter.
            (UrlComponent::QueryOrFragment, Variable::Capture(number)) => {
                percent_encode(input.capture(*number), is_query_byte, self.out);
            }
            (component, variable) => {
                self.has_free_segment |= component == UrlComponent::Path;
                percent_encode(&input.value(variable), is_unreserved, self.out);
            }
        }
    }

    /// Writes the query as the client sent it; without a query, removes the separator before it.
    fn query(&mut self) {
        match self.input.facts.query() {
            Some(query) if !query.is_empty() => percent_encode(query, is_graphic, self.out),
            _ => drop(self.out.pop_if(|byte| matches!(byte, b'?' | b'&'))),
        }
    }

    /// Adds the request's query at the end of the path.
    fn end(&mut self) {
        if let Some(query) = self.added_query.take() {
            self.out.push(b'?');
            percent_encode(query, is_graphic, self.out);
        }
    }
}

/// Encodes the dots of segments `.` and `..` in the path of a URL that begins at `start`, twice: clients and servers
/// remove such segments, and those that are encoded once, so that a value could lead out of its folder (RFC 3986
/// §5.2.4). No file or route has the resulting name.
fn disarm_dot_segments(start: usize, out: &mut Vec<u8>) {
    let url = &out[start..];
    let authority = url.windows(3).position(|it| it == b"://").map(|at| at + 3);
    // A template with an authority begins with the scheme; elsewhere `://` may be in a query.
    let authority = authority.filter(|_| url.first() != Some(&b'/'));
    let path_start = start + authority.unwrap_or(0);
    let is_end = |byte: &u8| matches!(byte, b'?' | b'#');
    let path_len = out[path_start..].iter().position(is_end);
    let end = path_start + path_len.unwrap_or(out.len() - path_start);
    let is_dots = |segment: &[u8]| matches!(segment, b"." | b"..");
    let path = out[path_start..end].to_vec();
    let mut segments = path.split(|byte| *byte == b'/');
    if !segments.clone().any(is_dots) {
        return;
    }
    let rest = out.split_off(end);
    out.truncate(path_start);
    let first = segments.next().unwrap_or_default();
    out.extend_from_slice(first);
    for segment in segments {
        out.push(b'/');
        match is_dots(segment) {
            true => segment.iter().for_each(|_| out.extend_from_slice(b"%252E")),
            false => out.extend_from_slice(segment),
        }
    }
    out.extend_from_slice(&rest);
}

/// Whether a byte of a request target is kept. Browsers treat a backslash as a slash.
fn is_target_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'\\'
}

fn is_graphic(byte: u8) -> bool {
    byte.is_ascii_graphic()
}

/// Whether a host or a port may contain a byte (RFC 3986 §3.2.2).
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~[]:".contains(&byte)
}

/// Appends the value of a map that is a whole URL, or a path, with a query unless the value has one. Returns whether the
/// value is a URL.
fn write_mapped_url(value: &str, added_query: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    let is_path = value.starts_with('/') && !value.starts_with("//") && !value.starts_with("/\\");
    let is_absolute = ["http://", "https://"].iter().any(|scheme| {
        let host = value.strip_prefix(scheme);
        host.is_some_and(|host| {
            host.starts_with(|it: char| it.is_ascii_alphanumeric() || it == '[')
        })
    });
    if !is_path && !is_absolute {
        return false;
    }
    // The query of the request stands before the fragment (RFC 3986 §3).
    let (before, fragment) = value.split_at(value.find('#').unwrap_or(value.len()));
    percent_encode(before.as_bytes(), is_graphic, out);
    if let (Some(query), false) = (added_query, before.contains('?')) {
        out.push(b'?');
        percent_encode(query, is_graphic, out);
    }
    percent_encode(fragment.as_bytes(), is_graphic, out);
    true
}

/// Whether a byte of a percent-encoded path is kept.
fn is_path_text_byte(byte: u8) -> bool {
    is_decoded_path_byte(byte) || byte == b'%'
}

/// Whether a byte of a decoded path has the same meaning unencoded (RFC 3986 §3.3).
fn is_decoded_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=:@".contains(&byte)
}

/// Whether a byte has the same meaning in a path and in a query; parameter separators and `+` (a space) do not.
fn is_query_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/%".contains(&byte)
}

/// Unreserved characters (RFC 3986 §2.3), which have no special meaning anywhere.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}
