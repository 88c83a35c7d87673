//! A server under attack: it does not panic or lose buffers, and still serves a well-behaved client.
//! `examples/storm.rs` runs the same attacks for longer.

mod storm;

#[test]
fn client_is_served_during_attack() {
    let totals = storm::storms(1, 8, 60_000);
    assert!(totals["answers to the visitor"] > 2000, "{totals:?}");
    assert!(totals["pages made"] > 50, "{totals:?}");
}
