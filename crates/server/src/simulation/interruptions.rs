//! Invariants of the store if a worker is interrupted between two steps while another worker changes the store.

use std::cell::RefCell;
use std::rc::Rc;

use lowroad_engine_sim::for_each_seed;

use super::BETWEEN;
use super::front::{SimClient, TestAccelerator, numbered_response};

/// A stored response that was selected before a POST, and validated after the POST, must not answer later requests.
fn assert_invalidated_response_is_not_served(control: &'static str) {
    for_each_seed(0..40, |seed| {
        let front = TestAccelerator::with_seed(seed, 2, move |asked| match asked.number {
            0 => numbered_response(
                asked,
                &format!("Cache-Control: {control}\r\nETag: \"a\"\r\n"),
            ),
            1 => numbered_response(asked, ""),
            // A 503 answers the GET after the POST; a stale response must not be substituted for it.
            _ => "HTTP/1.1 503 A\r\nContent-Length: 0\r\n\r\n".into(),
        });
        assert_eq!(front.get("/", "").text(), "0");
        front.advance_ms(2_000);
        let later = Rc::new(RefCell::new(None::<SimClient>));
        let its_later = later.clone();
        front.interrupt_once(move |front| {
            assert_eq!(
                front.request("POST", "/", "Content-Length: 0\r\n").status,
                200
            );
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
fn validated_response_is_not_served_after_post() {
    assert_invalidated_response_is_not_served("max-age=1");
}

#[test]
fn refreshed_response_is_not_served_after_post() {
    assert_invalidated_response_is_not_served("max-age=1, stale-while-revalidate=600");
}

#[test]
fn response_stored_by_another_worker_is_a_hit() {
    for_each_seed(0..40, |seed| {
        let front = TestAccelerator::with_seed(seed, 2, |asked| {
            numbered_response(asked, "Cache-Control: max-age=600\r\n")
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
