//! Denials grouped by the cause that an operator could change, few enough for counters.

use super::Denial;
use crate::response::FetchError;
use crate::response::prepare::PrepareError;
use lowroad_cache::storable::NotStorable;

/// The obstacle to publishing a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has no freshness lifetime, or none left.
    Lifetime,
    /// `private`, `no-store` and similar directives.
    CacheControl,
    /// It sets a cookie.
    SetCookie,
    /// It varies by more than Accept-Encoding.
    Vary,
    /// It is too long.
    Size,
    /// It is sent to few clients only, or its path is excluded.
    Few,
    /// Its status, an error in it, or a failure of the server.
    Other,
}

impl Kind {
    /// In the order of the counters.
    pub const ALL: [Kind; 7] = [
        Kind::Lifetime,
        Kind::CacheControl,
        Kind::SetCookie,
        Kind::Vary,
        Kind::Size,
        Kind::Few,
        Kind::Other,
    ];

    /// A name for machine-readable output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lifetime => "lifetime",
            Kind::CacheControl => "cache-control",
            Kind::SetCookie => "set-cookie",
            Kind::Vary => "vary",
            Kind::Size => "size",
            Kind::Few => "few",
            Kind::Other => "other",
        }
    }
}

impl Denial {
    /// The group of a denial.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Denial::NotStorable(reason) => of_response(reason),
            Denial::Unfit(PrepareError::TooLong { .. })
            | Denial::Fetch(FetchError::TooLong { .. }) => Kind::Size,
            Denial::Fetch(FetchError::ForFew { .. }) | Denial::Excluded(_) => Kind::Few,
            Denial::Unfit(_)
            | Denial::ServerError(_)
            | Denial::NotAskedAfter
            | Denial::Fetch(_)
            | Denial::Busy
            | Denial::NoRoom => Kind::Other,
        }
    }
}

fn of_response(reason: &NotStorable) -> Kind {
    match reason {
        NotStorable::NoLifetime
        | NotStorable::Stale
        | NotStorable::JustChanged
        | NotStorable::StatusNeedsLifetime(_) => Kind::Lifetime,
        NotStorable::NoStore
        | NotStorable::Private
        | NotStorable::NoCache
        | NotStorable::MustRevalidate
        | NotStorable::Malformed => Kind::CacheControl,
        NotStorable::SetCookie => Kind::SetCookie,
        NotStorable::Vary(_) => Kind::Vary,
        NotStorable::Status(_)
        | NotStorable::NotUnderstood(_)
        | NotStorable::Method
        | NotStorable::Asked
        | NotStorable::Authorization
        | NotStorable::NoValidator
        | NotStorable::NotShared => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_by_their_place() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place, "{}", kind.name());
        }
        let places = lowroad_wire::width::index(crate::layout::DENIAL_KINDS);
        assert!(Kind::ALL.len() <= places);
    }

    #[test]
    fn denials_have_kinds() {
        let too_long = Denial::Fetch(FetchError::TooLong { len_max: 1 });
        assert_eq!(too_long.kind(), Kind::Size);
        assert_eq!(
            Denial::NotStorable(NotStorable::NoLifetime).kind(),
            Kind::Lifetime
        );
        assert_eq!(Denial::ServerError(503).kind(), Kind::Other);
        assert_eq!(Denial::Excluded("/x".into()).kind(), Kind::Few);
    }
}
