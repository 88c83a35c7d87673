//! The fields of a response that determine whether and for how long it is stored.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use lowroad_http::equals_lower;
use lowroad_http::fields::FieldNames;

use super::{StoragePolicy, StorageRefusal, TtlScope};
use crate::cache_control::{self, CacheControl};
use crate::freshness::{self, Freshness, TimeFields};
use crate::lifetime::StoragePlan;
use crate::targeted_fields;

/// The fields of a response that determine whether it is stored.
#[derive(Debug, Default)]
pub(super) struct StorableFields<'a> {
    pub(super) control: CacheControl,
    /// `control` was read from CDN-Cache-Control, which overrides Cache-Control and Expires.
    pub(super) is_targeted: bool,
    pub(super) times: TimeFields<'a>,
    pub(super) sets_cookie: bool,
    pub(super) has_validator: bool,
    /// The values of Cache-Control.
    control_lines: Vec<&'a [u8]>,
    pub(super) excluded_fields: FieldNames,
    /// `Pragma: no-cache`. Pragma is a request field, but servers that send it mean `Cache-Control: no-cache`.
    pragma_no_cache: bool,
}

impl<'a> StorableFields<'a> {
    pub(super) fn read(
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        policy: &StoragePolicy,
    ) -> Result<StorableFields<'a>, StorageRefusal> {
        let mut storable = StorableFields::default();
        let mut targeted = Vec::new();
        for (name, value) in fields {
            let value = value.trim_ascii();
            match name.len() {
                4 if equals_lower(name, b"vary") => check_vary(value, policy)?,
                17 if policy.targeted && equals_lower(name, b"cdn-cache-control") => {
                    targeted.push(value)
                }
                _ => storable.add(name, value),
            }
        }
        let control_lines = storable.control_lines.iter();
        storable.excluded_fields = control_lines
            .flat_map(|line| cache_control::field_names(line))
            .map(Box::from)
            .collect();
        if let Some(control) = targeted_fields::read(&targeted) {
            storable.control = control;
            storable.is_targeted = true;
            // RFC 9213 §2.2: Expires is ignored with a targeted field.
            storable.times.expires = freshness::SingletonField::Absent;
        }
        if policy.ttl_scope == TtlScope::Override {
            storable.discard_lifetime();
        }
        Ok(storable)
    }

    fn add(&mut self, name: &[u8], value: &'a [u8]) {
        let times = &mut self.times;
        // The length selects one or two candidate names.
        match name.len() {
            // RFC 9111 §5.1: the first of several values counts.
            3 if equals_lower(name, b"age") => times.age = times.age.or(Some(value)),
            4 if equals_lower(name, b"date") => times.date = times.date.combine(value),
            4 if equals_lower(name, b"etag") => self.has_validator = true,
            6 if equals_lower(name, b"pragma") => {
                let is_no_cache = |member: &[u8]| equals_lower(member.trim_ascii(), b"no-cache");
                self.pragma_no_cache |= value.split(|b| *b == b',').any(is_no_cache);
            }
            7 if equals_lower(name, b"expires") => times.expires = times.expires.combine(value),
            10 if equals_lower(name, b"set-cookie") => self.sets_cookie = true,
            11 if equals_lower(name, b"set-cookie2") => self.sets_cookie = true,
            13 if equals_lower(name, b"cache-control") => {
                self.control.add_line(value);
                self.control_lines.push(value);
            }
            13 if equals_lower(name, b"last-modified") => {
                times.last_modified = times.last_modified.combine(value);
                self.has_validator = true;
            }
            _ => {}
        }
    }

    /// Discards the explicit lifetime and the demands for validation. A response that could be used only after validation
    /// was not permitted for reuse by others, even with `public`.
    fn discard_lifetime(&mut self) {
        let control = &self.control;
        let is_zero = |secs: cache_control::DeltaSeconds| secs.secs() == Some(0);
        let demands_validation = control.no_cache
            || self.pragma_no_cache
            || is_zero(control.max_age)
            || is_zero(control.s_maxage);
        self.is_targeted &= !demands_validation;
        self.times.expires = freshness::SingletonField::Absent;
        self.pragma_no_cache = false;
        self.control = CacheControl {
            public: !demands_validation && (control.public || control.s_maxage.secs().is_some()),
            must_revalidate_directive: false,
            max_age: cache_control::DeltaSeconds::Absent,
            s_maxage: cache_control::DeltaSeconds::Absent,
            no_cache: false,
            no_cache_unqualified: false,
            must_revalidate: false,
            immutable: false,
            ..self.control
        };
    }

    /// Whether every use needs validation.
    pub(super) fn no_cache(&self, policy: &StoragePolicy) -> bool {
        let is_no_cache_set = match policy.excludes_fields {
            true => self.control.no_cache_unqualified,
            false => self.control.no_cache,
        };
        is_no_cache_set || (self.pragma_no_cache && !self.control.present)
    }

    /// Whether the response to a request with Authorization may be stored (§3.5).
    pub(super) fn permits_authorized_request(&self) -> bool {
        let control = &self.control;
        control.public || control.must_revalidate_directive || control.s_maxage.secs().is_some()
    }

    pub(super) fn plan(
        &self,
        status: u16,
        freshness: Freshness,
        policy: &StoragePolicy,
    ) -> StoragePlan {
        let control = &self.control;
        let no_cache = self.no_cache(policy);
        let s_maxage = control.s_maxage != cache_control::DeltaSeconds::Absent;
        // Without a freshness lifetime the response is stored only for validation, and may be personal: neither a
        // client's max-stale nor the operator's defaults for stale reuse may make it reusable by others.
        let is_never_fresh = freshness.lifetime_secs == 0;
        let stale_window_secs =
            |directive: cache_control::DeltaSeconds, default_secs: u64| match directive {
                // RFC 9111 §5.2.2.2, §5.2.2.4: no stale reuse without validation.
                _ if !policy.can_validate || control.must_revalidate || no_cache => 0,
                cache_control::DeltaSeconds::Secs(secs) => secs,
                // The operator's default applies only if the response does not restrict stale reuse itself.
                cache_control::DeltaSeconds::Absent if !s_maxage && !is_never_fresh => default_secs,
                _ => 0,
            };
        StoragePlan {
            freshness,
            no_cache,
            // RFC 9111 §5.2.2.10: s-maxage implies proxy-revalidate.
            must_revalidate: control.must_revalidate || s_maxage || is_never_fresh,
            swr_secs: stale_window_secs(
                control.stale_while_revalidate,
                policy.stale_while_revalidate_secs,
            ),
            sie_secs: stale_window_secs(control.stale_if_error, policy.stale_if_error_secs),
            immutable: control.immutable,
            excluded_fields: match policy.excludes_fields {
                true => self.excluded_fields.clone(),
                false => FieldNames::NONE,
            },
            is_partial: status == 206,
        }
    }
}

/// Fails with the first name in Vary that the policy does not support: `*`, or without `policy.varies` any name except
/// Accept-Encoding.
fn check_vary(value: &[u8], policy: &StoragePolicy) -> Result<(), StorageRefusal> {
    let unsupported_name = value
        .split(|b| *b == b',')
        .map(<[u8]>::trim_ascii)
        .find(|name| match policy.varies {
            true => *name == b"*",
            false => !name.is_empty() && !name.eq_ignore_ascii_case(b"accept-encoding"),
        });
    match unsupported_name {
        Some(name) => Err(StorageRefusal::Vary(
            String::from_utf8_lossy(name).into_owned(),
        )),
        None => Ok(()),
    }
}
