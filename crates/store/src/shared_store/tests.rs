//! Tests of the shared store: purges, variants, arriving bodies.

use lowroad_cache::pattern::RequestPattern;
use lowroad_cache::vary::SelectingFields;
use lowroad_http::status::StatusCode;
use lowroad_http::stored_head::HeadEncoder;

use super::*;
use crate::streaming_object::{StreamedHead, StreamingObject};
use crate::validity::{ObjectValidity, StoredExpiry};
use crate::{key, object};

/// The key of a handler's response.
const KEY: &[u8] = b"\x01\0\0\0\x01a/";
const ZERO: PurgeEpoch = PurgeEpoch {
    generation: 0,
    deletion_count: 0,
};

/// An object for requests with this Accept-Language.
fn object(purges: PurgeEpoch, language: &'static str) -> ObjectArc {
    keyed(KEY, purges, language)
}

/// The same under another key.
fn keyed(key: &[u8], purges: PurgeEpoch, language: &'static str) -> ObjectArc {
    let request = [(&b"Accept-Language"[..], language.as_bytes())];
    let vary = (!language.is_empty()).then_some(&b"Accept-Language"[..]);
    let selecting =
        SelectingFields::from_vary(vary, request.into_iter()).expect("it may be stored");
    let head = HeadEncoder::start(StatusCode::OK).finish_open();
    let (bytes, map) = (head.text, head.map);
    let head = StreamedHead {
        bytes: bytes.into(),
        map,
        modified_s: None,
        len: None,
        selecting,
    };
    let streaming = StreamingObject::new(head, 1 << 20, 0);
    ObjectArc::new(StoredObject {
        kind: object::ObjectKind::Streaming(Box::new(streaming), key.into()),
        validity: ObjectValidity::Lifetime(
            StoredExpiry::fresh_until(1000).with_purge_epoch(purges),
        ),
    })
}

fn store_one(store: &SharedStore, purges: PurgeEpoch, key: &[u8]) -> bool {
    store.insert_selected(store.hash(key), key, keyed(key, purges, ""))
}

fn found(store: &SharedStore, language: &str) -> Option<ObjectArc> {
    let entry = store.peek(store.hash(KEY), KEY)?;
    let request = [(&b"accept-language"[..], language.as_bytes())];
    entry.selected(request.into_iter()).cloned()
}

/// The key of a handler's response for this host and target.
fn key_of(host: &str, target: &str) -> Vec<u8> {
    let mut key = Vec::new();
    let site = key::SiteScope {
        site_id: 1,
        is_https: false,
    };
    key::write_handler_key(&mut key, site, host.as_bytes(), target.as_bytes(), None);
    key
}

fn purge(store: &SharedStore, what: &str, kind: PurgeMode) {
    let pattern;
    let purge = match what.split_once(':') {
        Some(("tag", name)) => PurgeRequest::Tag(name.as_bytes()),
        Some(("group", name)) => PurgeRequest::Group(b"", name.as_bytes()),
        _ => {
            let with_scheme = || RequestPattern::parse(&format!("http://{what}"));
            pattern = RequestPattern::parse(what)
                .or_else(|_| with_scheme())
                .expect("a pattern");
            PurgeRequest::Urls(&pattern)
        }
    };
    store.purge(&purge, kind);
}

/// An object with these names (tags and groups).
fn named(store: &SharedStore, key: &[u8], names: &str) -> ObjectArc {
    let object = ObjectArc::try_unwrap(keyed(key, store.purge_epoch(0), ""));
    let Ok(object) = object else {
        unreachable!("nobody else has it");
    };
    let lifetime = object.validity.lifetime().expect("it has one").clone();
    ObjectArc::new(StoredObject {
        validity: ObjectValidity::Lifetime(lifetime.with_names(names.as_bytes().to_vec())),
        ..object
    })
}

#[test]
fn purge_applies_to_matching_objects_and_fetches_in_flight() {
    // The maximum number of shards.
    let store = SharedStore::new(SHARDS_MAX * SHARD_LEN_MIN).expect("memory");
    let before = store.purge_epoch(0);
    let keys: Vec<Vec<u8>> = (10..100)
        .map(|number| key_of("a", &format!("/{number}")))
        .collect();
    for key in &keys {
        assert!(store_one(&store, before, key));
    }
    purge(&store, "a/2*", PurgeMode::Hard);
    let is_stored = |key: &[u8]| store.find_valid(store.hash(key), key).is_some();
    // `peek_valid` finds the same objects as `find_valid`.
    let peeked = |key: &[u8]| store.peek_valid(store.hash(key), key).is_some();
    let remaining: Vec<&Vec<u8>> = keys.iter().filter(|key| peeked(key)).collect();
    assert_eq!(
        remaining,
        keys.iter().filter(|key| is_stored(key)).collect::<Vec<_>>()
    );
    assert_eq!(remaining.len(), 80);
    assert_eq!(
        store.counters().0.iter().map(|c| c.objects).sum::<u64>(),
        80
    );
    let purged_key = &keys[10];
    assert!(!store_one(&store, before, purged_key) && !is_stored(purged_key));
    assert!(store_one(&store, before, &keys[0]) && is_stored(&keys[0]));
    assert!(store_one(&store, store.purge_epoch(0), purged_key) && is_stored(purged_key));
}

/// Each form of a path has its own entry, since origins may distinguish them; a purge covers all forms.
#[test]
fn purge_applies_to_all_forms_of_a_path() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let forms = ["/x/p/q", "/x//p/q", "//x/p///q", "/x/p%2Fq", "/x/%2Fp/q"];
    let other = "/x/pq";
    let keys = forms.map(|target| key_of("a", target));
    for what in ["a/x/p/*", "a/x//p/*", "a/x/p/q", "a//x/p%2fq", "a//x*"] {
        for key in keys.iter().chain([&key_of("a", other)]) {
            assert!(store_one(&store, store.purge_epoch(0), key), "{what}");
        }
        let is_there = |key: &[u8]| store.find_valid(store.hash(key), key).is_some();
        assert!(keys.iter().all(|key| is_there(key)), "{what}");
        purge(&store, what, PurgeMode::Hard);
        assert!(!keys.iter().any(|key| is_there(key)), "{what}");
        assert_eq!(is_there(&key_of("a", other)), what != "a//x*", "{what}");
    }
}

#[test]
fn purge_by_url_host_tag_and_group() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let (host, target, names) = ("A:8080", "/x%79?z", "news, Front Page\ng,1");
    let key = key_of(host, target);
    for (what, is_meant) in [
        ("all", true),
        ("a:8080/xy?z", true),
        ("a/xy?z", true),
        ("a:81/xy?z", false),
        ("a/xy*", true),
        ("a:81/xy*", false),
        ("a:8080/xy", false),
        ("a:8080/xy*", true),
        ("b:8080/xy?z", false),
        ("host:a", true),
        ("host:b", false),
        ("tag:NEWS", true),
        ("tag:front page", true),
        ("tag:front", false),
        ("tag:g", false),
        ("group:g,1", true),
        ("group:G,1", false),
        ("group:news", false),
    ] {
        assert!(store.insert_selected(store.hash(&key), &key, named(&store, &key, names)));
        purge(&store, what, PurgeMode::Hard);
        let found = store.find_valid(store.hash(&key), &key);
        assert_eq!(found.is_none(), is_meant, "{what}");
    }
    // Groups belong to one host, and a Host without a port may stand for any port.
    for (authority, is_meant) in [(&b"b"[..], false), (b"a:81", false), (b"a:8080", true)] {
        assert!(store.insert_selected(store.hash(&key), &key, named(&store, &key, names)));
        store.purge(&PurgeRequest::Group(authority, b"g,1"), PurgeMode::Hard);
        assert_eq!(store.find_valid(store.hash(&key), &key).is_none(), is_meant);
    }
    for host in ["a", ""] {
        let key = key_of(host, "/");
        assert!(store_one(&store, store.purge_epoch(0), &key));
        purge(&store, "a:8080/", PurgeMode::Hard);
        assert!(
            store.find_valid(store.hash(&key), &key).is_none(),
            "{host:?}"
        );
    }
}

#[test]
fn soft_purged_objects_are_stale() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let key = key_of("a", "/");
    let before = store.purge_epoch(0);
    assert!(store_one(&store, before, &key));
    let holds = |at_ms| {
        let found = store.find_valid(store.hash(&key), &key).expect("it stays");
        found.base.validity.is_valid(at_ms)
    };
    assert!(holds(999) && !holds(1000));
    purge(&store, "host:a", PurgeMode::Soft { at_ms: 500 });
    // A worker's time may be from before the purge.
    assert!(!holds(499) && !holds(500));
    // A response that was in flight is stale, too.
    assert!(store_one(&store, before, &key) && !holds(500));
    assert!(store_one(&store, store.purge_epoch(0), &key) && holds(500));
    let counted = store.purge_counters();
    assert_eq!((counted.purges, counted.deleted, counted.stale), (1, 0, 2));
}

#[test]
fn variants_share_one_key() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let hash = store.hash(KEY);
    let (german, english) = (object(ZERO, "de"), object(ZERO, "en"));
    assert!(store.insert_selected(hash, KEY, german.clone()));
    assert!(store.insert_selected(hash, KEY, english.clone()));
    let is = |language, object: &ObjectArc| {
        found(&store, language).is_some_and(|found| ObjectArc::ptr_eq(&found, object))
    };
    assert!(is("de", &german) && is("en", &english) && found(&store, "fr").is_none());
    // A response for the same requests replaces it.
    let newer = object(ZERO, "de");
    assert!(store.insert_selected(hash, KEY, newer.clone()));
    assert!(is("de", &newer) && is("en", &english));
    assert_eq!(store.counters().0[0].objects, 1);
    // A response with other selecting fields replaces all.
    let plain = object(ZERO, "");
    assert!(store.insert_selected(hash, KEY, plain.clone()));
    assert!(is("de", &plain) && is("fr", &plain));
    purge(&store, "all", PurgeMode::Hard);
    assert!(store.find_valid(hash, KEY).is_none());
}

/// Distinct values of Accept-Language.
fn languages(count: usize) -> Vec<&'static str> {
    let name = |number| &*Box::leak(format!("l{number}").into_boxed_str());
    (0..count).map(name).collect()
}

#[test]
fn alternating_variants_are_all_found() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let hash = store.hash(KEY);
    let names = languages(VARIANTS_MAX);
    for name in &names {
        assert!(store.insert_selected(hash, KEY, object(ZERO, name)));
    }
    for _ in 0..3 {
        assert!(names.iter().all(|name| found(&store, name).is_some()));
    }
    assert_eq!(store.variants_evicted(), 0);
}

#[test]
fn unused_variants_are_evicted_first() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let store = store.with_variants_max(16);
    let hash = store.hash(KEY);
    let names = languages(100);
    let (hot, cold) = names.split_at(8);
    for name in hot {
        assert!(store.insert_selected(hash, KEY, object(ZERO, name)));
    }
    for name in cold {
        assert!(hot.iter().all(|hot| found(&store, hot).is_some()), "{name}");
        assert!(store.insert_selected(hash, KEY, object(ZERO, name)));
    }
    assert_eq!(store.variants_evicted(), 100 - 16);
    let stored_names = names.iter().filter(|name| found(&store, name).is_some());
    assert_eq!(stored_names.count(), 16);
    assert!(found(&store, "l99").is_some() && found(&store, "l50").is_none());
}

#[test]
fn complete_replaces_only_its_own_streaming_object() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let hash = store.hash(KEY);
    let (streaming, whole) = (object(ZERO, "de"), object(ZERO, "de"));
    assert!(store.insert_selected(hash, KEY, streaming.clone()));
    let newer = object(ZERO, "de");
    assert!(store.insert_selected(hash, KEY, newer.clone()));
    assert!(!store.complete(hash, KEY, &streaming, whole.clone()));
    assert!(store.complete(hash, KEY, &newer, whole.clone()));
    assert!(found(&store, "de").is_some_and(|found| ObjectArc::ptr_eq(&found, &whole)));
    let other = object(ZERO, "en");
    assert!(store.insert_selected(hash, KEY, other.clone()));
    store.remove(hash, KEY, &whole);
    assert!(found(&store, "de").is_none() && found(&store, "en").is_some());
    store.remove(hash, KEY, &other);
    assert!(store.peek(hash, KEY).is_none());
    // A response that was purged during its fetch is not stored.
    assert!(store.insert_selected(hash, KEY, streaming.clone()));
    purge(&store, "all", PurgeMode::Hard);
    assert!(!store.complete(hash, KEY, &streaming, whole));
}

#[test]
fn delete_affects_only_fetches_of_the_same_key() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let (one, other) = (store.hash(b"one"), store.hash(b"other"));
    let before = (store.purge_epoch(one), store.purge_epoch(other));
    store.delete(one, b"one");
    assert!(!store.insert_selected(one, b"one", keyed(b"one", before.0, "")));
    assert!(store.insert_selected(other, b"other", keyed(b"other", before.1, "")));
}

#[test]
fn response_fetched_during_deletion_is_not_stored() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let (own, hash) = (b"own", store.hash(b"own"));
    let since = store.purge_epoch(hash);
    store.delete(hash, own);
    assert!(!store.insert_selected(hash, own, keyed(own, since, "")));
    let since = store.purge_epoch(hash);
    assert!(store.insert_selected(hash, own, keyed(own, since, "")));
    assert_eq!(store.outdated(), 1);
}

#[test]
fn variants_beyond_the_entry_limit_evict_only_each_other() {
    let entry = VariantSet::new(object(ZERO, "a"))
        .with_selected(object(ZERO, "b"))
        .with_selected(object(ZERO, "c"));
    let one = entry.base.size();
    assert_eq!(entry.size(), 3 * one);
    let is_stored = |entry: &VariantSet, language: &str| {
        let request = [(&b"accept-language"[..], language.as_bytes())];
        entry.selected(request.into_iter()).is_some()
    };
    let (remaining, evicted) = entry.evict_to_limits(16, 2 * one);
    assert_eq!((remaining.size(), evicted), (2 * one, 1));
    assert!(
        is_stored(&remaining, "c") && is_stored(&remaining, "b") && !is_stored(&remaining, "a")
    );
    let (remaining, evicted) = remaining.evict_to_limits(16, 1);
    assert_eq!(evicted, 1);
    assert!(is_stored(&remaining, "c") && !is_stored(&remaining, "b"));
}

#[test]
fn prefix_purges_affect_only_matching_urls() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let (kept, purged_key) = (
        key_of("a.example", "/kept"),
        key_of("a.example", "/p7000/x"),
    );
    for key in [&kept, &purged_key] {
        assert!(store_one(&store, store.purge_epoch(0), key));
    }
    for number in 0..10_000 {
        purge(
            &store,
            &format!("http://a.example/p{number}/*"),
            PurgeMode::Hard,
        );
    }
    let counters = store.purge_counters();
    assert_eq!((counters.purges, counters.dropped), (10_000, 0));
    let is_stored = |key: &[u8]| store.find_valid(store.hash(key), key).is_some();
    assert!(is_stored(&kept) && !is_stored(&purged_key));
}

#[test]
fn prefix_purges_of_any_length_apply() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let (long, other) = (
        format!("/{}", "x".repeat(400)),
        format!("/{}", "y".repeat(400)),
    );
    for len in 2..400 {
        let (own, other) = (key_of("a.example", &long), key_of("a.example", &other));
        for key in [&own, &other] {
            assert!(store_one(&store, store.purge_epoch(0), key));
        }
        purge(
            &store,
            &format!("http://a.example{}*", &long[..len]),
            PurgeMode::Hard,
        );
        let is_stored = |key: &[u8]| store.find_valid(store.hash(key), key).is_some();
        assert!(is_stored(&other) && !is_stored(&own), "{len}");
    }
    assert_eq!(store.purge_counters().dropped, 0);
}

#[test]
fn dropped_purges_are_counted() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let long = "x".repeat(PREFIX_PURGES);
    for len in 1..PREFIX_PURGES {
        purge(
            &store,
            &format!("http://a.example/{}*", &long[..len]),
            PurgeMode::Hard,
        );
    }
    assert!(store.purge_counters().dropped > 0);
}

/// More prefixes of different lengths than are remembered.
const PREFIX_PURGES: usize = 4300;
