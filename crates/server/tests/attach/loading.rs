//! This kernel's verifier accepts the programs of both tiers, including the tier that the links of these tests can't
//! use.

use lowroad_softirq::programs::folder;
use lowroad_softirq::programs::loader::{ProgramTier, load};
use lowroad_softirq::programs::sizes::MapSizes;
use lowroad_testkit::net::NetNamespace;

use crate::attached::pin_folder;
use crate::skipped;

#[test]
fn programs_of_both_tiers_pass_the_verifier() {
    if skipped("programs_of_both_tiers_pass_the_verifier", &[]) {
        return;
    }
    let namespace = NetNamespace::new("loading").expect("a namespace");
    let folder = pin_folder(&namespace, 1);
    for tier in [ProgramTier::Xdp, ProgramTier::Tc] {
        folder::create(&folder).expect("a folder");
        let loaded = load(tier, MapSizes::default(), &folder);
        folder::remove(&folder).expect("removed");
        loaded.unwrap_or_else(|error| panic!("{tier:?}: {error}"));
    }
}
