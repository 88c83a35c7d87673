//! The programs of both tiers pass this kernel's verifier, also of the tier that the tests' links do not use.

use lowroad_softirq::programs::folder;
use lowroad_softirq::programs::loader::{ProgramTier, load};
use lowroad_softirq::programs::sizes::MapSizes;
use lowroad_testkit::net::NetNamespace;

use crate::attached::place;
use crate::skipped;

#[test]
fn the_verifier_takes_the_programs_of_both_tiers() {
    if skipped("the_verifier_takes_the_programs_of_both_tiers", &[]) {
        return;
    }
    let namespace = NetNamespace::new("loading").expect("a namespace");
    let folder = place(&namespace, 1);
    for tier in [ProgramTier::Xdp, ProgramTier::Tc] {
        folder::create(&folder).expect("a folder");
        let loaded = load(tier, MapSizes::default(), &folder);
        folder::remove(&folder).expect("removed");
        loaded.unwrap_or_else(|error| panic!("{tier:?}: {error}"));
    }
}
