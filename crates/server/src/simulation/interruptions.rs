//! Invariants when a worker is interrupted between two steps and another one changes the store.

use std::cell::RefCell;
use std::rc::Rc;

use lowroad_engine_sim::for_each_seed;

use super::BETWEEN;
use super::front::{SimClient, TestFront, numbered};

/// A stored response that was selected before a POST and validated after it must not answer requests that arrive after
/// the POST.
fn nobody_gets_what_a_post_has_ended(control: &'static str) {
    for_each_seed(0..40, |seed| {
        let front = TestFront::by(seed, 2, move |asked| match asked.number {
            0 => numbered(
                asked,
                &format!("Cache-Control: {control}\r\nETag: \"a\"\r\n"),
            ),
            1 => numbered(asked, ""),
            // The response to requests after the POST, which a stale one must not replace.
            _ => "HTTP/1.1 503 A\r\nContent-Length: 0\r\n\r\n".into(),
        });
        assert_eq!(front.get("/", "").text(), "0");
        front.pass(2_000);
        let later = Rc::new(RefCell::new(None::<SimClient>));
        let its_later = later.clone();
        front.interrupt_once(move |front| {
            assert_eq!(front.ask("POST", "/", "Content-Length: 0\r\n").status, 200);
            let mut client = front.connect();
            client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
            its_later.replace(Some(client));
        });
        front.get("/", "");
        BETWEEN.set(None);
        let mut later = later.take().expect("it was interrupted");
        assert_eq!(later.response().status, 503);
    });
}

#[test]
fn what_is_validated_stands_in_for_nobody_after_a_post() {
    nobody_gets_what_a_post_has_ended("max-age=1");
}

#[test]
fn what_is_refreshed_stands_in_for_nobody_after_a_post() {
    nobody_gets_what_a_post_has_ended("max-age=1, stale-while-revalidate=600");
}

#[test]
fn what_another_worker_has_stored_meanwhile_is_not_asked_for_again() {
    for_each_seed(0..40, |seed| {
        let front = TestFront::by(seed, 2, |asked| {
            numbered(asked, "Cache-Control: max-age=600\r\n")
        });
        front.interrupt_once(|front| assert_eq!(front.get("/", "").text(), "0"));
        let got = front.get("/", "");
        BETWEEN.set(None);
        assert_eq!((got.text().as_str(), front.origin.count()), ("0", 1));
        assert!(
            got.field("Cache-Status")
                .is_some_and(|how| how.contains("hit"))
        );
    });
}
