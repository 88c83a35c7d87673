//! Checks a few thousand random turns.

use super::*;

fn check() -> WireCheck {
    let pages = [TestPage::new("/a", b"abc"), TestPage::new("/b", b"")];
    WireCheck::new(1, "127.0.0.1:1".parse().unwrap(), &pages)
}

fn plans(seed: u64) -> Vec<TurnPlan> {
    let shared = CheckContext::default();
    shared.store_etag("/a", "\"tag\"");
    let mut draws = RandomDraws::new(seed, 0);
    let last = |n: usize| n.is_multiple_of(5);
    (0..3000)
        .map(|n| draw(&check(), &shared, &mut draws, last(n)))
        .collect()
}

#[test]
fn all_kinds_and_endings_occur_and_depend_only_on_the_seed() {
    let plans = plans(4);
    let kinds: std::collections::BTreeSet<_> = plans.iter().map(|p| p.kind.name()).collect();
    assert_eq!(kinds.len(), 10);
    let ended = |ending| plans.iter().any(|plan| plan.ending == ending);
    assert!(ended(TurnEnding::Close) && ended(TurnEnding::Close10) && ended(TurnEnding::HalfClose));
    assert!(
        ended(TurnEnding::KeepAlive)
            && ended(TurnEnding::KeepAlive10)
            && ended(TurnEnding::ClientCloses)
    );
    let sent = |plans: Vec<TurnPlan>| plans.into_iter().map(|p| p.pieces).collect::<Vec<_>>();
    assert_eq!(sent(plans), sent(self::plans(4)));
}

#[test]
fn each_request_of_a_turn_has_an_expected_response() {
    for plan in plans(5) {
        let sent = plan.pieces.concat();
        let heads = sent
            .windows(12)
            .filter(|w| w.starts_with(b"\r\nHost: test"))
            .count();
        assert_eq!(heads, plan.expectations.len(), "{plan}");
        assert!(plan.pieces.iter().all(|piece| !piece.is_empty()) || plan.kind == TurnKind::Upload);
    }
}

#[test]
fn chunk_body_encodes_the_body() {
    let pieces = chunk_body(b"hello", &mut RandomDraws::new(1, 1));
    let text = String::from_utf8(pieces.concat()).unwrap();
    assert!(text.ends_with("0\r\n\r\n"));
    assert_eq!(chunk_body(b"", &mut RandomDraws::new(1, 1)), [b"0\r\n\r\n"]);
}
