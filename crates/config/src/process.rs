//! Reads `[server]` and `[limits]`.
//!
//! Keys and ranges are defined here; their meaning and defaults are in [`crate::schema`].

use crate::named::{DAY_MS, HOUR_MS, account, count};
use crate::reader::{ConfigSection, size_text};
use crate::value;
use crate::{BuildFeature, LimitsConfig, MissingFeature, ProcessConfig, SoftirqMode};
use std::ops::RangeInclusive;

const CACHE_LEN_MIN: u64 = 64 << 10;
const TIB: u64 = 1 << 40;

/// The upper bound of connection and descriptor limits.
const DESCRIPTORS_MAX: u64 = 1 << 20;

pub(crate) fn server(
    section: ConfigSection<'_>,
    missing_features: &[BuildFeature],
) -> ProcessConfig {
    let default = ProcessConfig::default();
    let cache_len_max = cache(&section, default.cache_len_max);
    let server = ProcessConfig {
        workers: section
            .item("workers")
            .and_then(|item| item.read(value::workers))
            .unwrap_or(default.workers),
        affinity: section.flag("affinity", default.affinity),
        hardening: section.flag("hardening", default.hardening),
        accept: section
            .item("accept")
            .and_then(|item| item.read(value::accept))
            .unwrap_or(default.accept),
        user: account(&section, "user"),
        group: account(&section, "group"),
        cache_len_max,
        // On a small machine the server may reduce the default cache size, but not a configured size.
        is_cache_chosen: !section.is_absent_or_empty("cache"),
        cache_object_len_max: cache_object(&section, cache_len_max),
        cache_variants_max: count(
            &section,
            "cache_variants",
            default.cache_variants_max,
            1..=1024,
        ),
        disk_cache: section.item("disk_cache").and_then(|item| item.path()),
        disk_cache_len_max: section.size(
            "disk_cache_max",
            default.disk_cache_len_max,
            ProcessConfig::DISK_CACHE_LEN_MIN..=1024 * TIB,
        ),
        ticket_keys: section.item("ticket_keys").and_then(|item| item.path()),
        kernel_tls: section.flag("kernel_tls", default.kernel_tls),
        http3: section.flag("http3", default.http3),
        early_data: section.flag("early_data", default.early_data),
        helpers: count(&section, "helpers", default.helpers, 1..=256),
        drain_timeout_ms: section.duration_ms(
            "drain_timeout",
            default.drain_timeout_ms,
            0..=HOUR_MS,
        ),
        upgrade_timeout_ms: section.duration_ms(
            "upgrade_timeout",
            default.upgrade_timeout_ms,
            1_000..=HOUR_MS,
        ),
        admin: section.item("admin").and_then(|item| item.path()),
        softirq: softirq(&section, missing_features).unwrap_or(default.softirq),
        fd_limit: fd_limit(&section),
    };
    // Without `user`, `group` would have no effect.
    if server.group.is_some() && server.user.is_none() {
        section.report("group is set, but user is not", "group together with user");
    }
    // The heads of responses in the disk cache are held in the memory cache.
    if server.disk_cache.is_some() && server.cache_len_max == 0 {
        section.report(
            "disk_cache is set, but cache is 0",
            "disk_cache together with cache, because memory holds the heads of responses",
        );
    }
    section.finish();
    server
}

fn softirq(section: &ConfigSection<'_>, missing_features: &[BuildFeature]) -> Option<SoftirqMode> {
    let item = section.item("softirq")?;
    let softirq = item.read(value::softirq)?;
    if softirq != SoftirqMode::Off && missing_features.contains(&BuildFeature::Softirq) {
        item.report(MissingFeature(BuildFeature::Softirq).to_string(), "");
    }
    Some(softirq)
}

pub(crate) fn limits(section: ConfigSection<'_>) -> LimitsConfig {
    let default = LimitsConfig::default();
    let timeout = |key, default| section.duration_ms(key, default, 1..=DAY_MS);
    let connections = 1..=DESCRIPTORS_MAX;
    // `head_len_max` is read first: `target_len_max` depends on it.
    let head_len_max = size(
        &section,
        "head_len_max",
        default.head_len_max,
        512..=1 << 20,
    );
    // The request target is part of the head.
    let target_len_max = LimitsConfig::target_len_default(head_len_max);
    let limits = LimitsConfig {
        header_timeout_ms: timeout("header_timeout", default.header_timeout_ms),
        body_timeout_ms: timeout("body_timeout", default.body_timeout_ms),
        idle_timeout_ms: timeout("idle_timeout", default.idle_timeout_ms),
        send_timeout_ms: timeout("send_timeout", default.send_timeout_ms),
        rate_min: section.size("rate_min", default.rate_min, 0..=1 << 30),
        rate_grace_ms: section.duration_ms("rate_grace", default.rate_grace_ms, 0..=HOUR_MS),
        connections_max: count(
            &section,
            "connections_max",
            default.connections_max,
            connections.clone(),
        ),
        connections_per_address_max: count(
            &section,
            "connections_per_address_max",
            default.connections_per_address_max,
            connections,
        ),
        requests_per_connection_max: section.count(
            "requests_per_connection_max",
            default.requests_per_connection_max,
            0..=u64::from(u32::MAX),
        ),
        streams_per_connection_max: section.count(
            "streams_per_connection_max",
            default.streams_per_connection_max,
            1..=32_767,
        ),
        head_len_max,
        target_len_max: size(
            &section,
            "target_len_max",
            target_len_max,
            64..=head_len_max as u64,
        ),
        fields_max: count(&section, "fields_max", default.fields_max, 8..=4096),
        body_len_max: section.size("body_len_max", default.body_len_max, 0..=TIB),
        calls_max: count(&section, "calls_max", default.calls_max, 1..=65_536),
        calls_waiting_max: count(
            &section,
            "calls_waiting_max",
            default.calls_waiting_max,
            0..=1 << 20,
        ),
        compressors_max: count(
            &section,
            "compressors_max",
            default.compressors_max,
            1..=65_536,
        ),
    };
    section.finish();
    limits
}

/// Reads the length of the cache. 0 turns the cache off; a cache of only a few objects would cost more than it saves.
fn cache(section: &ConfigSection<'_>, default: u64) -> u64 {
    section.size_or_zero("cache", default, CACHE_LEN_MIN..=TIB)
}

fn cache_object(section: &ConfigSection<'_>, cache_len_max: u64) -> u64 {
    let default = ProcessConfig::cache_object_default(cache_len_max);
    let Some(item) = section.item("cache_object") else {
        return default;
    };
    let Some(len) = item.read(value::size) else {
        return default;
    };
    // Without a cache the value is unused.
    if cache_len_max > 0 && len > cache_len_max / 4 {
        let allowed = format!("at most {}", size_text(cache_len_max / 4));
        item.report(
            format!("{} is more than a quarter of the cache", item.to_display()),
            allowed,
        );
        return default;
    }
    len
}

fn fd_limit(section: &ConfigSection<'_>) -> u64 {
    let Some(item) = section.item("fd_limit") else {
        return 0;
    };
    let Some(limit) = item.read(value::count) else {
        return 0;
    };
    // 0 is outside of the range, but means the hard limit.
    if limit != 0 && !(64..=DESCRIPTORS_MAX).contains(&limit) {
        let allowed = format!("0 (as many as the hard limit allows), or 64 to {DESCRIPTORS_MAX}");
        item.report(format!("{} is out of range", item.to_display()), allowed);
        return 0;
    }
    limit
}

/// Reads a size; `range` must fit `usize`.
fn size(
    section: &ConfigSection<'_>,
    key: &'static str,
    default: usize,
    range: RangeInclusive<u64>,
) -> usize {
    usize::try_from(section.size(key, default as u64, range)).unwrap_or(default)
}
