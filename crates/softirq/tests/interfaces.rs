//! The list of interfaces while veth pairs are created and deleted, in a separate network namespace.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use lowroad_softirq::machine::interfaces;
use lowroad_testkit::net::NetNamespace;

#[test]
fn interface_list_succeeds_while_interfaces_change() {
    if let Some(reason) = lowroad_testkit::net::missing_requirement() {
        lowroad_testkit::skip("interface_list_succeeds_while_interfaces_change", &reason);
        return;
    }
    let namespace = NetNamespace::new("cables").expect("a namespace");
    // One command makes many changes, so that the list is read between them.
    let cable = "link add a0 type veth peer name b0\nlink del a0\n".repeat(200);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let folder = lowroad_testkit::TempFolder::new();
            let batch = folder.file("batch", cable);
            let batch = batch.to_str().expect("a plain path");
            let done = namespace.run("ip", &["-batch", batch]);
            is_over.store(true, Relaxed);
            done.expect("cables");
        });
        let (mut lists, mut cables) = (0, 0);
        namespace.enter(|| {
            while !is_over.load(Relaxed) {
                let all = interfaces::all().expect("a list");
                let lo = all.iter().find(|one| one.interface.name == "lo");
                assert_eq!(lo.map(|one| one.interface.index), Some(1));
                lists += 1;
                cables += all.len() - 1;
            }
        });
        assert!(lists > 0 && cables > 0, "{lists} lists, {cables} cables");
    });
}
