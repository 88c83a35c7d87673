//! Stored responses of programs: which are stored, how long, and for which clients.

use lowroad_testkit::{TestClient, wait_until};

use crate::host::Host;
use crate::talk;

/// A program that returns how often it has run, with these header fields.
pub fn counting(name: &str, fields: &str) -> String {
    format!(
        "echo x >>DIR/state/{name}\nprintf 'Content-Type: text/plain\\n{fields}\\n'\n\
         wc -l <DIR/state/{name}\n"
    )
}

/// A host with a program `name` that sends these fields.
fn host(fields: &str) -> Host {
    Host::start(&[("n", &counting("n", fields))])
}

fn get(client: &mut TestClient, fields: &str) -> (u16, String) {
    let (got, _) = talk::request_on(client, "GET", "/cgi/n", fields);
    (got.status, got.text().trim().to_string())
}

const MINUTE: &str = "Cache-Control: max-age=60\\nETag: \"one\"\\n";

#[test]
fn program_is_called_once_for_a_storable_response() {
    let host = host(MINUTE);
    let mut client = host.connect();
    let (first, _) = talk::request_on(&mut client, "GET", "/cgi/n", "");
    assert_eq!((first.status, first.field("age")), (200, None));
    let mut ages = Vec::new();
    // Age increases.
    wait_until("an age of two seconds", || {
        let (got, _) = talk::request_on(&mut client, "GET", "/cgi/n", "");
        assert_eq!((got.status, &got.body), (200, &first.body));
        assert_eq!(got.field("etag"), Some("\"one\""));
        assert_eq!(got.field("cache-control"), Some("max-age=60"));
        let age: u64 = got.field("age").expect("an age").parse().expect("a number");
        ages.push(age);
        (age == 2).then_some(())
    });
    assert!(ages.is_sorted() && ages[0] <= 1, "{ages:?}");
    // The stored response answers all clients.
    assert_eq!(get(&mut host.connect(), ""), (200, "1".into()));
    // Another query has another response.
    let (got, _) = talk::request_on(&mut client, "GET", "/cgi/n?x", "");
    assert_eq!(got.text().trim(), "2");
    assert_eq!(get(&mut client, ""), (200, "1".into()));
}

#[test]
fn stored_response_answers_head_and_conditional_requests() {
    let host = host(MINUTE);
    let mut client = host.connect();
    assert_eq!(get(&mut client, ""), (200, "1".into()));
    let (head, _) = talk::request_on(&mut client, "HEAD", "/cgi/n", "");
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some("2"))
    );
    assert!(head.field("age").is_some());
    let known = "If-None-Match: \"one\"\r\n";
    assert_eq!(get(&mut client, known), (304, String::new()));
    assert_eq!(
        get(&mut client, "If-None-Match: \"two\"\r\n"),
        (200, "1".into())
    );
    assert_eq!(host.state("n"), "x\n");
}

#[test]
fn private_or_uncacheable_responses_are_not_stored() {
    for fields in [
        "",
        "Cache-Control: private, max-age=60\\n",
        "Cache-Control: no-store, max-age=60\\n",
        "Cache-Control: no-cache, max-age=60\\n",
        "Cache-Control: max-age=0\\n",
        "Cache-Control: max-age=60\\nSet-Cookie: a=b\\n",
        "Cache-Control: max-age=60\\nVary: *\\n",
    ] {
        let host = host(fields);
        let mut client = host.connect();
        for count in ["1", "2", "3"] {
            assert_eq!(get(&mut client, ""), (200, count.into()), "{fields}");
        }
    }
}

#[test]
fn vary_stores_a_variant_for_each_language() {
    let host = host("Cache-Control: max-age=60\\nVary: Accept-Language\\n");
    let mut client = host.connect();
    let (german, english) = ("Accept-Language: de\r\n", "Accept-Language: en\r\n");
    assert_eq!(get(&mut client, german), (200, "1".into()));
    assert_eq!(get(&mut client, english), (200, "2".into()));
    assert_eq!(get(&mut client, ""), (200, "3".into()));
    // Each language now has a variant, independent of other fields.
    let german = "accept-language:  de\r\nCookie: a=b\r\n";
    assert_eq!(get(&mut client, german), (200, "1".into()));
    assert_eq!(get(&mut client, english), (200, "2".into()));
    assert_eq!(get(&mut client, ""), (200, "3".into()));
    // A purge of the URL removes all its variants.
    let said = host.command_output(&["purge", "http://test/cgi/n"]);
    assert_eq!(said, "removed 3 stored responses\n");
    assert_eq!(get(&mut client, english), (200, "4".into()));
}

#[test]
fn credentials_and_posts_bypass_the_cache() {
    let host = host(MINUTE);
    let mut client = host.connect();
    // Responses to requests with credentials are not stored,
    assert_eq!(
        get(&mut client, "Authorization: Basic x\r\n"),
        (200, "1".into())
    );
    let (got, _) = talk::post(&mut client, "/cgi/n", "text");
    assert_eq!(got.text().trim(), "2");
    assert_eq!(get(&mut client, ""), (200, "3".into()));
    assert_eq!(get(&mut client, ""), (200, "3".into()));
    // and stored ones do not answer such requests.
    assert_eq!(
        get(&mut client, "Authorization: Basic x\r\n"),
        (200, "4".into())
    );
    let (got, _) = talk::post(&mut client, "/cgi/n", "text");
    assert_eq!(got.text().trim(), "5");
    // A POST invalidates the stored response.
    assert_eq!(get(&mut client, ""), (200, "6".into()));
    assert_eq!(get(&mut client, ""), (200, "6".into()));
}

#[test]
fn stale_response_is_fetched_again() {
    let host = host("Cache-Control: max-age=1\\n");
    let mut client = host.connect();
    assert_eq!(get(&mut client, ""), (200, "1".into()));
    wait_until("another response", || {
        let (status, count) = get(&mut client, "");
        assert_eq!(status, 200);
        (count == "2").then_some(())
    });
}

#[test]
fn stored_response_survives_reload_of_an_unchanged_route() {
    let route = "[[site.route]]\npattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\n";
    let host = Host::with_routes(route, &[("n", &counting("n", MINUTE))]);
    let mut client = host.connect();
    let reload = |client: &mut TestClient, path: &str, route: &str| {
        let redirect = format!("[[site.redirect]]\nfrom = \"{path}\"\nto = \"/\"\n");
        host.reload(&format!("{route}{redirect}"));
        wait_until("the redirect", || {
            (client.get(path, "").status == 301).then_some(())
        });
    };
    assert_eq!(get(&mut client, ""), (200, "1".into()));
    reload(&mut client, "/first", route);
    // The POST's invalidation still applies after the reload.
    assert_eq!(
        talk::post(&mut client, "/cgi/n", "text").0.text().trim(),
        "2"
    );
    assert_eq!(get(&mut client, ""), (200, "3".into()));
    reload(&mut client, "/second", route);
    assert_eq!(get(&mut client, ""), (200, "3".into()));
    // A change of the route's limits keeps its stored responses.
    reload(&mut client, "/third", &format!("{route}timeout = \"9s\"\n"));
    assert_eq!(get(&mut client, ""), (200, "3".into()));
}

#[test]
fn stored_responses_are_keyed_by_host() {
    let host = host(MINUTE);
    let mut client = host.connect();
    for (name, count) in [("a", "1"), ("b", "2"), ("a", "1"), ("b", "2")] {
        client.send(format!("GET /cgi/n HTTP/1.1\r\nHost: {name}\r\n\r\n"));
        let (got, _) = talk::answer(&mut client, "GET");
        assert_eq!(got.text().trim(), count, "{name}");
    }
}

#[test]
fn cache_tag_field_is_not_sent_to_clients() {
    let host = host("Cache-Control: max-age=60\\nCache-Tag: news\\n");
    let mut client = host.connect();
    for _ in 0..2 {
        let (got, _) = talk::request_on(&mut client, "GET", "/cgi/n", "");
        assert_eq!((got.text().trim(), got.field("cache-tag")), ("1", None));
    }
}
