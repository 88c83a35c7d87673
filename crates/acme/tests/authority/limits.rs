//! Certificates on demand, and rate limits for orders.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lowroad_acme::{DemandRefusal, OnDemandSettings, Severity};
use lowroad_testkit::wait_until;

use crate::kit::pebble::{Options, Pebble};
use crate::kit::web::{self, Answer};
use crate::kit::{Folder, Running};

const DAY_S: u64 = 86_400;

#[test]
fn on_demand_certificate_requires_approval() {
    let Some(mut pebble) = Pebble::start("on_demand", Options::default()) else {
        return;
    };
    let folder = Folder::new();
    let service_requests = Arc::new(AtomicUsize::new(0));
    let is_permitted = Arc::new(AtomicBool::new(true));
    let (count, permitted_in_service) = (service_requests.clone(), is_permitted.clone());
    let service_address = web::serve(web::listen(), move |method, target| {
        assert_eq!(method, "GET");
        count.fetch_add(1, Ordering::Relaxed);
        match target {
            "/ask?domain=a.example" if permitted_in_service.load(Ordering::Relaxed) => {
                Answer::new(200, "")
            }
            _ => Answer::new(403, ""),
        }
    });
    let mut settings = pebble.settings(&folder, &[]);
    settings.on_demand = Some(OnDemandSettings {
        per_minute_max: 2,
        ..OnDemandSettings::new(format!("http://{service_address}/ask"))
    });
    let clock = settings.clock.clone();
    let listener = pebble.http.take().expect("a port");
    let running = Running::start(settings.clone());
    web::serve_tokens(listener, running.manager.tokens());

    // Ten concurrent requests for the same name.
    let manager = &running.manager;
    let ten = async {
        let one = || manager.on_demand("A.example");
        tokio::join!(
            one(),
            one(),
            one(),
            one(),
            one(),
            one(),
            one(),
            one(),
            one(),
            one()
        )
    };
    let answers = running.runtime.block_on(ten);
    assert_eq!((answers.0, answers.9), (Ok(()), Ok(())));
    assert_eq!(service_requests.load(Ordering::Relaxed), 1);
    assert!(running.store.current().covers("a.example"));
    let again = running.runtime.block_on(manager.on_demand("a.example"));
    assert_eq!(
        (again, service_requests.load(Ordering::Relaxed)),
        (Ok(()), 1)
    );

    // The service refuses the next name; the refusal is remembered, so a second request does not reach the service.
    for _ in 0..2 {
        let other = running.runtime.block_on(manager.on_demand("b.example"));
        assert_eq!(other, Err(DemandRefusal::Unwanted));
    }
    assert_eq!(service_requests.load(Ordering::Relaxed), 2);
    let third = || running.runtime.block_on(manager.on_demand("c.example"));
    assert_eq!(third(), Err(DemandRefusal::TooMany));
    assert_eq!(running.count("acme.demand_limited"), 1);
    clock.advance(60);
    assert_eq!(third(), Err(DemandRefusal::Unwanted));
    let name = running.runtime.block_on(manager.on_demand("10.0.0.1"));
    assert!(matches!(name, Err(DemandRefusal::Name(_))));

    // After a restart the certificate is loaded. The service refuses its renewal, but it stays in use while it is
    // valid.
    drop(running);
    pebble.down();
    is_permitted.store(false, Ordering::Relaxed);
    let again = Running::start(settings.clone());
    assert!(again.store.current().covers("a.example"));
    clock.advance(62 * DAY_S);
    again.wait_for("a.example: not renewed: the name is no longer permitted");
    assert!(again.store.current().covers("a.example"));
    clock.advance(30 * DAY_S);
    wait_until("its end", || {
        (!again.store.current().covers("a.example")).then_some(())
    });
    assert!(again.manager.state().is_empty());
    let state = settings.folder.join("names/a.example/state.json");
    wait_until("it is forgotten", || (!state.exists()).then_some(()));
}

#[test]
fn on_demand_is_disabled_by_default() {
    let folder = Folder::new();
    let mut settings = lowroad_acme::AcmeSettings::new(folder.path());
    settings.terms_agreed = true;
    settings.authorities.push(lowroad_acme::AuthoritySettings {
        directory: "https://127.0.0.1:1/dir".into(),
        ..lowroad_acme::AuthoritySettings::default()
    });
    let running = Running::start(settings);
    let denied = running
        .runtime
        .block_on(running.manager.on_demand("a.example"));
    assert_eq!(denied, Err(DemandRefusal::Off));
}

#[test]
fn orders_per_hour_are_limited() {
    let Some(mut pebble) = Pebble::start("orders_per_hour_are_limited", Options::default()) else {
        return;
    };
    let folder = Folder::new();
    let mut settings = pebble.settings(&folder, &[&["a.example"], &["b.example"]]);
    settings.orders_per_hour_max = 1;
    let clock = settings.clock.clone();
    let listener = pebble.http.take().expect("a port");
    let running = Running::start(settings);
    web::serve_tokens(listener, running.manager.tokens());
    running.wait_for("a.example: got a certificate");
    let severity = running.severity("1 were made within an hour (orders_per_hour)");
    assert_eq!(severity, Severity::Warning);
    assert_eq!(running.lines().len(), 2);
    clock.advance(3600);
    running.wait_for("b.example: got a certificate");
}
