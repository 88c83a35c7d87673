//! The parts of a request, other than its URL, on which a response depends, and the fields that describe them to caches
//! in front of the server.

use lowroad_cache::cache_control::make_private;
use lowroad_cache::vary;
use lowroad_config::RequestConditions;
use lowroad_http::fields::ResponseFields;
use lowroad_http::forwarding;
use lowroad_variables::Dependence;

/// The dependence of a response on the request, other than on its URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseDependence {
    /// It depends on a fact that Vary can't name: the client or its share, the time, or the existence of a file.
    pub is_private: bool,
    /// The request fields on which it depends, as the value of Vary.
    vary: String,
}

impl ResponseDependence {
    /// The dependence of a choice by conditions. Conditions on the URL do not count.
    pub fn from_conditions(conditions: &RequestConditions) -> ResponseDependence {
        let mut dependence = ResponseDependence {
            is_private: conditions.depend_on_unnamed_facts(),
            vary: String::new(),
        };
        for condition in &conditions.headers {
            dependence.add_field(&condition.name);
        }
        // All cookies are in one field, so Vary lists the whole field.
        if !conditions.cookies.is_empty() {
            dependence.add_field("Cookie");
        }
        for variable in conditions.variable_dependences() {
            if let Dependence::Field(name) = variable {
                dependence.add_field(name);
            }
        }
        for exception in &conditions.exceptions {
            dependence.add(&ResponseDependence::from_conditions(exception));
        }
        dependence
    }

    /// Adds a request field.
    pub fn add_field(&mut self, name: &str) {
        let lower = name.to_ascii_lowercase();
        // Any client can send the fields in which proxies report a client. Vary takes preferences that mean the same for
        // equal, conditions and variables do not.
        self.is_private |=
            forwarding::is_report(lower.as_bytes()) || vary::is_preference(lower.as_bytes());
        // Vary lists each field once.
        if self
            .fields()
            .any(|listed| listed.eq_ignore_ascii_case(name))
        {
            return;
        }
        if !self.vary.is_empty() {
            self.vary.push_str(", ");
        }
        self.vary.push_str(name);
    }

    fn fields(&self) -> impl Iterator<Item = &str> {
        self.vary().into_iter().flat_map(|vary| vary.split(", "))
    }

    /// Adds another dependence.
    pub fn add(&mut self, other: &ResponseDependence) {
        self.is_private |= other.is_private;
        other.fields().for_each(|name| self.add_field(name));
    }

    /// Whether the response depends on its URL only.
    pub fn is_empty(&self) -> bool {
        !self.is_private && self.vary.is_empty()
    }

    /// The value of Vary; `None` without fields.
    pub fn vary(&self) -> Option<&str> {
        (!self.vary.is_empty()).then_some(&*self.vary)
    }

    /// Appends a line of Vary, if the response depends on request fields.
    pub fn write_vary(&self, out: &mut Vec<u8>) {
        if let Some(vary) = self.vary() {
            out.extend_from_slice(&[b"Vary: ", vary.as_bytes(), b"\r\n"].concat());
        }
    }

    /// Changes the fields of a response so that they describe the dependence to caches.
    pub fn apply(&self, fields: &mut ResponseFields) {
        if let Some(vary) = self.vary() {
            fields.push("Vary", vary.as_bytes());
        }
        if self.is_private {
            make_private(fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_config::{ClientShare, HashBy};

    /// Vary: Cookie would not do, since a client without the cookie counts by its address.
    #[test]
    fn share_of_clients_is_private() {
        let share = RequestConditions {
            share: Some(ClientShare {
                percent: 10,
                by: HashBy::Cookie("id".into()),
            }),
            ..RequestConditions::default()
        };
        let inverted = RequestConditions {
            exceptions: vec![share.clone()],
            ..RequestConditions::default()
        };
        for conditions in [share, inverted] {
            assert!(ResponseDependence::from_conditions(&conditions).is_private);
        }
    }

    #[test]
    fn private_response_has_no_lifetime_for_shared_caches() {
        let mut fields = ResponseFields::new();
        for (name, value) in [
            ("cache-control", "public, max-age=60"),
            ("A", "b"),
            ("Cache-Control", "s-maxage=600, no-transform"),
            ("CDN-Cache-Control", "max-age=600"),
        ] {
            fields.push(name, value.as_bytes());
        }
        make_private(&mut fields);
        let lines: Vec<_> = fields.iter().collect();
        let expected: [(&str, &[u8]); 2] = [
            ("A", b"b"),
            ("Cache-Control", b"private, max-age=60, no-transform"),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn fields_are_listed_once_and_reports_are_private() {
        let mut dependence = ResponseDependence::default();
        dependence.add_field("X-A");
        dependence.add_field("x-a");
        assert_eq!(
            (dependence.vary(), dependence.is_private),
            (Some("X-A"), false)
        );
        dependence.add_field("X-Forwarded-For");
        assert!(dependence.is_private);
    }
}
