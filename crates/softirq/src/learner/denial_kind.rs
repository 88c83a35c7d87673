//! Denials grouped by the cause that an operator could change, few enough for counters.

use super::FetchDenial;
use crate::response::FetchError;
use crate::response::encoder::PrepareError;
use lowroad_cache::storage_policy::StorageRefusal;

/// The obstacle to publishing a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialKind {
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

impl DenialKind {
    /// In the order of the counters.
    pub const ALL: [DenialKind; 7] = [
        DenialKind::Lifetime,
        DenialKind::CacheControl,
        DenialKind::SetCookie,
        DenialKind::Vary,
        DenialKind::Size,
        DenialKind::Few,
        DenialKind::Other,
    ];

    /// A name for machine-readable output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DenialKind::Lifetime => "lifetime",
            DenialKind::CacheControl => "cache-control",
            DenialKind::SetCookie => "set-cookie",
            DenialKind::Vary => "vary",
            DenialKind::Size => "size",
            DenialKind::Few => "few",
            DenialKind::Other => "other",
        }
    }
}

impl FetchDenial {
    /// The group of a denial.
    #[must_use]
    pub fn kind(&self) -> DenialKind {
        match self {
            FetchDenial::NotStorable(reason) => from_response(reason),
            FetchDenial::Unfit(PrepareError::TooLong { .. })
            | FetchDenial::Fetch(FetchError::TooLong { .. }) => DenialKind::Size,
            FetchDenial::Fetch(FetchError::ForFew { .. }) | FetchDenial::Excluded(_) => {
                DenialKind::Few
            }
            FetchDenial::Unfit(_)
            | FetchDenial::ServerError(_)
            | FetchDenial::NotAskedAfter
            | FetchDenial::Fetch(_)
            | FetchDenial::Busy
            | FetchDenial::NoRoom => DenialKind::Other,
        }
    }
}

fn from_response(reason: &StorageRefusal) -> DenialKind {
    match reason {
        StorageRefusal::NoLifetime
        | StorageRefusal::Stale
        | StorageRefusal::JustChanged
        | StorageRefusal::StatusNeedsLifetime(_) => DenialKind::Lifetime,
        StorageRefusal::NoStore
        | StorageRefusal::Private
        | StorageRefusal::NoCache
        | StorageRefusal::MustRevalidate
        | StorageRefusal::Malformed => DenialKind::CacheControl,
        StorageRefusal::SetCookie => DenialKind::SetCookie,
        StorageRefusal::Vary(_) => DenialKind::Vary,
        StorageRefusal::Status(_)
        | StorageRefusal::NotUnderstood(_)
        | StorageRefusal::Method
        | StorageRefusal::Asked
        | StorageRefusal::Authorization
        | StorageRefusal::NoValidator
        | StorageRefusal::NotShared => DenialKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_by_their_place() {
        for (place, kind) in DenialKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place, "{}", kind.name());
        }
        let places = lowroad_wire::width::index(crate::layout::DENIAL_KINDS);
        assert!(DenialKind::ALL.len() <= places);
    }

    #[test]
    fn denials_have_kinds() {
        let too_long = FetchDenial::Fetch(FetchError::TooLong { len_max: 1 });
        assert_eq!(too_long.kind(), DenialKind::Size);
        assert_eq!(
            FetchDenial::NotStorable(StorageRefusal::NoLifetime).kind(),
            DenialKind::Lifetime
        );
        assert_eq!(FetchDenial::ServerError(503).kind(), DenialKind::Other);
        assert_eq!(FetchDenial::Excluded("/x".into()).kind(), DenialKind::Few);
    }
}
