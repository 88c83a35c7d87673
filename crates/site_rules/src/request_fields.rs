//! The changes to the fields of one response that depend on its request.

use lowroad_config::HeaderRule;
use lowroad_http::forwarding;
use lowroad_variables::Dependence;

/// The changes to the fields of the response to one request.
#[derive(Debug, Default)]
pub struct RequestFields<'a> {
    /// The names and values of lines to add.
    pub lines: Vec<(&'a str, Vec<u8>)>,
    /// The names of fields that the response must not have, other than those in `lines`.
    pub omitted: Vec<&'a str>,
    /// Whether the changes depend on a fact that Vary can't name, such as the client.
    pub is_private: bool,
    /// The request fields on which the changes depend, each once in any case.
    vary: Vec<String>,
}

impl<'a> RequestFields<'a> {
    /// Removes a field of the response, and lines with its name.
    pub fn remove(&mut self, name: &'a str) {
        // A later rule also replaces the lines of earlier ones.
        self.lines.retain(|(it, _)| !it.eq_ignore_ascii_case(name));
        self.omitted.push(name);
    }

    /// Adds the parts of a request on which a value depends.
    pub fn vary_by<'v>(&mut self, dependences: impl Iterator<Item = Dependence<'v>>) {
        for dependence in dependences {
            match dependence {
                Dependence::Field(name) => self.vary_by_field(name),
                Dependence::Client => self.is_private = true,
                // An identifier belongs to one request anyway, and a file to none.
                Dependence::Request | Dependence::File | Dependence::CacheKey => {}
            }
        }
    }

    /// Adds a request field to Vary.
    pub fn vary_by_field(&mut self, name: &str) {
        // Any client can send the fields in which proxies report a client.
        self.is_private |= forwarding::is_report(name.to_ascii_lowercase().as_bytes());
        // Vary lists each field once.
        if !self.vary.iter().any(|it| it.eq_ignore_ascii_case(name)) {
            self.vary.push(name.to_owned());
        }
    }

    /// Adds the parts of a request on which a rule's conditions depend.
    pub(crate) fn vary_by_conditions(&mut self, rule: &HeaderRule) {
        self.is_private |= rule.conditions.depend_on_unnamed_facts();
        for name in rule.conditions.fields() {
            self.vary_by_field(name);
        }
    }

    /// The lines as in a head, each with its CRLF, with one line of Vary for each request field.
    pub fn encoded_lines(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |name: &str, value: &[u8]| {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        };
        let lines = self.lines.iter();
        lines.for_each(|(name, value)| put(name, value));
        let vary = self.vary.iter();
        vary.for_each(|name| put("Vary", name.as_bytes()));
        out
    }
}
