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
    /// cache in front of it distinguishes requests by more.
    pub fn url(captures: usize) -> TemplateScope {
        TemplateScope {
            captures,
            allows: |variable| variable.dependence() == Dependence::CacheKey,
        }
    }

    /// The variables that can be a part of a host.
    pub fn host() -> TemplateScope {
        TemplateScope {
            captures: 0,
            allows: |variable| {
                matches!(
                    variable,
                    Variable::Host | Variable::Authority | Variable::Site
                )
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
        match self.captures {
            0 => {}
            1 => names.push("$1".into()),
            captures => names.push(format!("$1 to ${captures}")),
        }
        names.push("$$ for a dollar sign".into());
        names.join(", ")
    }
}
