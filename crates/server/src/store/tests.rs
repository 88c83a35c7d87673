//! The store with its entries: purges, variants, what fills.

use lowroad_cache::vary::Selecting;
use lowroad_http::encoded::Encoder;
use lowroad_http::status::Status;

use super::filling::Filling;
use super::object::Kind;
use super::validity::{Lifetime, Validity};
use super::*;

const KEY: &[u8] = b"key";

/// An object that answers requests with this language.
fn object(purges: u64, language: &'static str) -> Arc<Object> {
    let request = [(&b"Accept-Language"[..], language.as_bytes())];
    let vary = (!language.is_empty()).then_some(&b"Accept-Language"[..]);
    let selecting = Selecting::of(vary, request.into_iter()).expect("it may be stored");
    let (bytes, head) = Encoder::start(Status::OK).finish_open();
    let filling = Filling::new((bytes.into(), head), None, None, selecting, 1 << 20, 0);
    Arc::new(Object {
        kind: Kind::Filling(Box::new(filling)),
        size: 10,
        validity: Validity::Lifetime(Box::new(Lifetime {
            purges,
            ..Lifetime::until(1000)
        })),
    })
}

fn store_one(store: &SharedStore, purges: u64, key: &[u8]) -> bool {
    store.insert_selected(store.hash(key), key, object(purges, ""))
}

fn found(store: &SharedStore, language: &str) -> Option<Arc<Object>> {
    let entry = store.peek(store.hash(KEY), KEY)?;
    let request = [(&b"accept-language"[..], language.as_bytes())];
    entry.selected(request.into_iter()).cloned()
}

#[test]
fn a_purge_takes_what_it_means_and_what_is_being_made() {
    // As many shards as there can be.
    let store = SharedStore::new(SHARDS_MAX * SHARD_LEN_MIN).expect("memory");
    let before = store.purges(0);
    for number in 0..100u8 {
        assert!(store_one(&store, before, &[number]));
    }
    assert_eq!(store.purge(|key, _| key[0] >= 30), 30);
    let there = |key: &[u8]| store.find(store.hash(key), key).is_some();
    let left: Vec<u8> = (0..100).filter(|number| there(&[*number])).collect();
    assert_eq!(left, (30..100).collect::<Vec<u8>>());
    assert!(!store_one(&store, before, &[1]) && !there(&[1]));
    assert!(store_one(&store, store.purges(0), &[1]) && there(&[1]));
}

#[test]
fn variants_lie_under_one_key() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let hash = store.hash(KEY);
    let (german, english) = (object(0, "de"), object(0, "en"));
    assert!(store.insert_selected(hash, KEY, german.clone()));
    assert!(store.insert_selected(hash, KEY, english.clone()));
    let is = |language, object: &Arc<Object>| {
        found(&store, language).is_some_and(|found| Arc::ptr_eq(&found, object))
    };
    assert!(is("de", &german) && is("en", &english) && found(&store, "fr").is_none());
    // One for the same requests takes its place.
    let newer = object(0, "de");
    assert!(store.insert_selected(hash, KEY, newer.clone()));
    assert!(is("de", &newer) && is("en", &english));
    assert_eq!(store.counters().0[0].objects, 1);
    // One that depends on other things takes all places.
    let plain = object(0, "");
    assert!(store.insert_selected(hash, KEY, plain.clone()));
    assert!(is("de", &plain) && is("fr", &plain));
    assert_eq!(store.purge(|_, _| false), 1);
}

#[test]
fn there_are_never_many_variants() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let hash = store.hash(KEY);
    let names: Vec<&'static str> = (0..40)
        .map(|number| &*Box::leak(format!("l{number}").into_boxed_str()))
        .collect();
    for name in &names {
        assert!(store.insert_selected(hash, KEY, object(0, name)));
    }
    let there = names.iter().filter(|name| found(&store, name).is_some());
    assert_eq!(there.count(), 16);
    assert!(found(&store, "l39").is_some() && found(&store, "l24").is_some());
}

#[test]
fn what_has_filled_takes_its_own_place_only() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let hash = store.hash(KEY);
    let (filling, whole) = (object(0, "de"), object(0, "de"));
    assert!(store.insert_selected(hash, KEY, filling.clone()));
    let newer = object(0, "de");
    assert!(store.insert_selected(hash, KEY, newer.clone()));
    assert!(!store.complete(hash, KEY, &filling, whole.clone()));
    assert!(store.complete(hash, KEY, &newer, whole.clone()));
    assert!(found(&store, "de").is_some_and(|found| Arc::ptr_eq(&found, &whole)));
    let other = object(0, "en");
    assert!(store.insert_selected(hash, KEY, other.clone()));
    store.remove(hash, KEY, &whole);
    assert!(found(&store, "de").is_none() && found(&store, "en").is_some());
    store.remove(hash, KEY, &other);
    assert!(store.peek(hash, KEY).is_none());
    // What was purged meanwhile does not come back.
    assert!(store.insert_selected(hash, KEY, filling.clone()));
    assert_eq!(store.purge(|_, _| false), 1);
    assert!(!store.complete(hash, KEY, &filling, whole));
}

#[test]
fn what_is_forgotten_is_one_key() {
    let store = SharedStore::new(1 << 20).expect("memory");
    let (one, other) = (store.hash(b"one"), store.hash(b"other"));
    let before = (store.purges(one), store.purges(other));
    store.forget(one, b"one");
    assert!(!store.insert_selected(one, b"one", object(before.0, "")));
    assert!(store.insert_selected(other, b"other", object(before.1, "")));
}

#[test]
fn variants_that_take_too_much_drive_out_each_other_only() {
    let entry = Entry::new(object(0, "a"))
        .with_selected(object(0, "b"))
        .with_selected(object(0, "c"));
    assert_eq!(entry.size(), 30);
    let there = |entry: &Entry, language: &str| {
        let request = [(&b"accept-language"[..], language.as_bytes())];
        entry.selected(request.into_iter()).is_some()
    };
    let left = entry.within(20);
    assert!(there(&left, "c") && there(&left, "b") && !there(&left, "a"));
    let left = left.within(1);
    assert!(there(&left, "c") && !there(&left, "b"));
}
