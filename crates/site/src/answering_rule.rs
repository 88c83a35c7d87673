//! The rules of a site that answer requests themselves, for metrics.

use lowroad_engine::Exchange;

/// The kind of the rule that answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AnsweringRule {
    /// An access rule refused the request.
    Deny = 1,
    /// An access rule sent a fixed response.
    Respond,
    /// An access rule closed the connection.
    Close,
    /// An access rule demanded credentials, or its server refused the request.
    Auth,
    /// A redirect.
    Redirect,
    /// The redirect to the canonical scheme or host.
    Https,
}

impl AnsweringRule {
    /// All kinds, in the order of declaration.
    pub const ALL: [AnsweringRule; 6] = [
        AnsweringRule::Deny,
        AnsweringRule::Respond,
        AnsweringRule::Close,
        AnsweringRule::Auth,
        AnsweringRule::Redirect,
        AnsweringRule::Https,
    ];

    /// The name in metrics, if there is one the key of the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            AnsweringRule::Deny => "deny",
            AnsweringRule::Respond => "respond",
            AnsweringRule::Close => "close",
            AnsweringRule::Auth => "auth",
            AnsweringRule::Redirect => "redirect",
            AnsweringRule::Https => "https",
        }
    }

    /// Notes that a rule of this kind answers the request.
    pub fn note(self, exchange: &mut Exchange) {
        exchange.answering_rule = self as u8;
    }

    /// The position in [`AnsweringRule::ALL`] of the rule that answered the request, if one did.
    pub fn index(exchange: &Exchange) -> Option<usize> {
        usize::from(exchange.answering_rule).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_by_position() {
        for (index, rule) in AnsweringRule::ALL.into_iter().enumerate() {
            assert_eq!(rule as usize, index + 1);
        }
    }
}
