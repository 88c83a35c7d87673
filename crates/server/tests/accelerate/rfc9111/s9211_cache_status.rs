//! RFC 9211: the Cache-Status field.

use lowroad_testkit::ClientResponse;

use super::Told;

const FRESH: &str = "200 OK|Cache-Control: max-age=60";
const STALE: &str = "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60";

/// Name and parameters of Lowroad's member, which is the last.
fn said(response: &ClientResponse) -> Vec<String> {
    let lines = response
        .head
        .lines()
        .filter_map(|line| line.strip_prefix("Cache-Status: "));
    let list = lines.collect::<Vec<_>>().join(", ");
    let last = list.rsplit(", ").next().unwrap_or_default();
    last.split("; ").map(str::to_string).collect()
}

fn has(response: &ClientResponse, parameter: &str) -> bool {
    said(response).iter().any(|known| known == parameter)
}

#[test]
fn a_miss_and_a_hit() {
    let told = Told::new();
    let path = told.path();
    let miss = told.get(&path, FRESH, "");
    assert!(
        has(&miss, "fwd=uri-miss") && has(&miss, "stored"),
        "{:?}",
        said(&miss)
    );
    let hit = told.get(&path, FRESH, "");
    assert!(has(&hit, "hit"), "{:?}", said(&hit));
    let ttl = said(&hit)
        .iter()
        .find_map(|known| known.strip_prefix("ttl=")?.parse::<i64>().ok());
    assert!(ttl.is_some_and(|ttl| (30..=60).contains(&ttl)), "{ttl:?}");
    assert!(!has(&hit, "stored"));
}

#[test]
fn what_is_not_stored_says_why_it_was_forwarded() {
    let told = Told::new();
    let miss = told.get(&told.path(), "200 OK|Cache-Control: no-store", "");
    assert!(
        !has(&miss, "stored")
            && !has(&miss, "hit")
            && said(&miss).iter().any(|known| known.starts_with("fwd="))
    );
    let post = told.front.ask("POST", &told.path(), "");
    assert!(has(&post, "fwd=method"), "{:?}", said(&post));
}

#[test]
fn what_is_stale_says_so() {
    let told = Told::new();
    let path = told.path();
    told.get(&path, STALE, "");
    let held = told.get(&path, "304 A", "");
    assert!(
        has(&held, "fwd=stale") && has(&held, "fwd-status=304"),
        "{:?}",
        said(&held)
    );
    let path = told.path();
    told.get(&path, STALE, "");
    let failed = told.get(&path, "503 A", "");
    assert!(
        has(&failed, "fwd=stale") && !has(&failed, "stored"),
        "{:?}",
        said(&failed)
    );
}

#[test]
fn what_is_made_anew_says_why() {
    let told = Told::new();
    let path = told.path();
    told.get(&path, STALE, "");
    let anew = told.get(&path, FRESH, "");
    assert!(has(&anew, "fwd=stale"), "{:?}", said(&anew));
    let path = told.path();
    let varying = "200 OK|Vary: X-Own|Cache-Control: max-age=60";
    for (value, way) in [("1", "fwd=uri-miss"), ("2", "fwd=vary-miss"), ("1", "hit")] {
        let got = told.get(&path, varying, &format!("X-Own: {value}\r\n"));
        assert!(has(&got, way), "{:?}", said(&got));
    }
}

#[test]
fn the_origin_s_own_stands_before() {
    let told = Told::new();
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
fn it_can_be_left_out() {
    let told = Told::with("status_field = false");
    let path = told.path();
    for _ in 0..2 {
        assert_eq!(told.get(&path, FRESH, "").field("cache-status"), None);
    }
}
