//! RFC 9211: the Cache-Status field.

use lowroad_testkit::ClientResponse;

use super::ScriptedCache;

const FRESH: &str = "200 OK|Cache-Control: max-age=60";
const STALE: &str = "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60";

/// The identifier and parameters of Lowroad's list member, which is the last one.
fn cache_status(response: &ClientResponse) -> Vec<String> {
    let lines = response
        .head
        .lines()
        .filter_map(|line| line.strip_prefix("Cache-Status: "));
    let list = lines.collect::<Vec<_>>().join(", ");
    let last = list.rsplit(", ").next().unwrap_or_default();
    last.split("; ").map(str::to_string).collect()
}

fn has_parameter(response: &ClientResponse, parameter: &str) -> bool {
    cache_status(response)
        .iter()
        .any(|known| known == parameter)
}

#[test]
fn miss_then_hit() {
    let told = ScriptedCache::new();
    let path = told.path();
    let miss = told.get(&path, FRESH, "");
    assert!(
        has_parameter(&miss, "fwd=uri-miss") && has_parameter(&miss, "stored"),
        "{:?}",
        cache_status(&miss)
    );
    let hit = told.get(&path, FRESH, "");
    assert!(has_parameter(&hit, "hit"), "{:?}", cache_status(&hit));
    let ttl = cache_status(&hit)
        .iter()
        .find_map(|known| known.strip_prefix("ttl=")?.parse::<i64>().ok());
    assert!(ttl.is_some_and(|ttl| (30..=60).contains(&ttl)), "{ttl:?}");
    assert!(!has_parameter(&hit, "stored"));
}

#[test]
fn response_that_is_not_stored_has_fwd_reason() {
    let told = ScriptedCache::new();
    let miss = told.get(&told.path(), "200 OK|Cache-Control: no-store", "");
    assert!(
        !has_parameter(&miss, "stored")
            && !has_parameter(&miss, "hit")
            && cache_status(&miss)
                .iter()
                .any(|known| known.starts_with("fwd="))
    );
    let post = told.front.request("POST", &told.path(), "");
    assert!(
        has_parameter(&post, "fwd=method"),
        "{:?}",
        cache_status(&post)
    );
}

#[test]
fn stale_response_has_fwd_stale() {
    let told = ScriptedCache::new();
    let path = told.path();
    told.get(&path, STALE, "");
    let held = told.get(&path, "304 A", "");
    assert!(
        has_parameter(&held, "fwd=stale") && has_parameter(&held, "fwd-status=304"),
        "{:?}",
        cache_status(&held)
    );
    let path = told.path();
    told.get(&path, STALE, "");
    let failed = told.get(&path, "503 A", "");
    assert!(
        has_parameter(&failed, "fwd=stale") && !has_parameter(&failed, "stored"),
        "{:?}",
        cache_status(&failed)
    );
}

#[test]
fn new_response_has_fwd_reason() {
    let told = ScriptedCache::new();
    let path = told.path();
    told.get(&path, STALE, "");
    let anew = told.get(&path, FRESH, "");
    assert!(
        has_parameter(&anew, "fwd=stale"),
        "{:?}",
        cache_status(&anew)
    );
    let path = told.path();
    let varying = "200 OK|Vary: X-Own|Cache-Control: max-age=60";
    for (value, way) in [("1", "fwd=uri-miss"), ("2", "fwd=vary-miss"), ("1", "hit")] {
        let got = told.get(&path, varying, &format!("X-Own: {value}\r\n"));
        assert!(has_parameter(&got, way), "{:?}", cache_status(&got));
    }
}

#[test]
fn member_of_origin_precedes() {
    let told = ScriptedCache::new();
    let path = told.path();
    for _ in 0..2 {
        let got = told.get(
            &path,
            "200 OK|Cache-Control: max-age=60|Cache-Status: inner; hit",
            "",
        );
        let lines: Vec<_> = got
            .head
            .lines()
            .filter_map(|line| line.strip_prefix("Cache-Status: "))
            .collect();
        let list = lines.join(", ");
        assert!(list.starts_with("inner; hit, lowroad; "), "{list}");
        assert_eq!(list.matches("lowroad").count(), 1, "{list}");
    }
}

#[test]
fn status_field_false_omits_cache_status() {
    let told = ScriptedCache::with("status_field = false");
    let path = told.path();
    for _ in 0..2 {
        assert_eq!(told.get(&path, FRESH, "").field("cache-status"), None);
    }
}
