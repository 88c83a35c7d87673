//! The variables that are allowed at a place of the configuration.

use crate::variable::{Dependence, Variable};

/// The variables that are allowed at a place.
#[derive(Clone, Copy, Debug)]
pub struct TemplateScope {
    /// The number of captures.
    pub captures: usize,
    allows: fn(&Variable) -> bool,
}

impl TemplateScope {
    /// All variables, and this many captures: for field values.
    pub fn fields(captures: usize) -> TemplateScope {
        TemplateScope {
            captures,
            allows: |_| true,
        }
    }

    /// The variables with values that the cache key contains, for redirects and rewrites: neither this server nor a
    /// cache in front of it distinguishes requests by more. A map may also depend on its file.
    pub fn url(captures: usize) -> TemplateScope {
        TemplateScope {
            captures,
            allows: |variable| {
                let mut parts = variable.dependences();
                parts.all(|it| matches!(it, Dependence::CacheKey | Dependence::File))
            },
        }
    }

    /// The variables that can be a part of a host.
    pub fn host() -> TemplateScope {
        TemplateScope {
            captures: 0,
            allows: |variable| {
                matches!(
                    variable,
                    Variable::Host | Variable::Authority | Variable::Site | Variable::Map(_)
                )
            },
        }
    }

    /// The variables of the text that a map looks up.
    pub fn map_source() -> TemplateScope {
        TemplateScope {
            captures: 0,
            allows: |variable| !matches!(variable, Variable::Map(_) | Variable::Site),
        }
    }

    /// The variables of conditions, which are evaluated before a request has an identifier.
    pub fn condition() -> TemplateScope {
        TemplateScope {
            captures: 0,
            allows: |variable| match variable {
                Variable::Map(map) => map.0.from.variables().all(is_condition_variable),
                variable => is_condition_variable(variable),
            },
        }
    }

    /// Whether a variable is allowed.
    pub(crate) fn contains(&self, variable: &Variable) -> bool {
        match variable {
            Variable::Capture(number) => *number <= self.captures,
            variable => (self.allows)(variable),
        }
    }

    /// The allowed variables, for messages.
    pub fn list(&self) -> String {
        let allowed = Variable::examples().filter(|variable| self.contains(variable));
        let mut names: Vec<String> = allowed.map(|variable| variable.to_string()).collect();
        names.push("$map_NAME".into());
        match self.captures {
            0 => {}
            1 => names.push("$1".into()),
            captures => names.push(format!("$1 to ${captures}")),
        }
        names.push("$$ for a dollar sign".into());
        names.join(", ")
    }
}

fn is_condition_variable(variable: &Variable) -> bool {
    !matches!(
        variable,
        Variable::RequestId
            | Variable::ClientPort
            | Variable::TlsVersion
            | Variable::TlsCipher
            | Variable::TlsServerName
            | Variable::CertificateSubject
            | Variable::CertificateIssuer
            | Variable::CertificateSerial
            | Variable::CertificateFingerprint
    )
}
