//! A server under attack: no panic, no lost buffer, and a well-behaved client is served. `examples/storm.rs` runs the
//! same without end.

mod storm;

#[test]
fn a_visitor_is_served_in_a_storm() {
    let totals = storm::storms(1, 8, 60_000);
    assert!(totals["answers to the visitor"] > 2000, "{totals:?}");
    assert!(totals["pages made"] > 50, "{totals:?}");
}
