//! A server under attack: nothing panics, nothing is lost, and a visitor gets what it asks for. The same without
//! end is `examples/storm.rs`.

mod storm;

#[test]
fn a_visitor_is_served_in_a_storm() {
    let totals = storm::storms(1, 8, 60_000);
    assert!(totals["answers to the visitor"] > 2000, "{totals:?}");
    assert!(totals["pages made"] > 50, "{totals:?}");
}
