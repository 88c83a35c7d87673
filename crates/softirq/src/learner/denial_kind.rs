//! Groups denials by the cause that an operator could change; the groups are few enough to have a counter each.

use super::FetchDenial;
use crate::response::FetchError;
use crate::response::encoder::PrepareError;
use lowroad_cache::storage_policy::StorageRefusal;

/// The obstacle to publishing a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialKind {
    /// The response has no freshness lifetime, or none left.
    Lifetime,
    /// The response has `private`, `no-store` or a similar directive.
    CacheControl,
    /// The response sets a cookie.
    SetCookie,
    /// The response varies by more than Accept-Encoding.
    Vary,
    /// The response is too long.
    Size,
    /// The response is sent to few clients only, or its path is excluded.
    Few,
    /// Another cause: the status, an error in the response, or a failure of the server.
    Other,
}

impl DenialKind {
    /// All kinds, in the order of the counters.
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
            FetchDenial::Fetch(FetchError::DiffersBySource { .. }) | FetchDenial::Excluded(_) => {
                DenialKind::Few
            }
            FetchDenial::Unfit(_)
            | FetchDenial::ServerError(_)
            | FetchDenial::UnexpectedNotModified
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
        | StorageRefusal::RequestNoStore
        | StorageRefusal::Authorization
        | StorageRefusal::NoValidator
        | StorageRefusal::NotShared
        | StorageRefusal::Rule => DenialKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_index_of_each_kind_is_its_discriminant() {
        for (index, kind) in DenialKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index, "{}", kind.name());
        }
        let counters = lowroad_wire::width::index(crate::layout::DENIAL_KINDS);
        assert!(DenialKind::ALL.len() <= counters);
    }

    #[test]
    fn denials_are_grouped_by_kind() {
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
