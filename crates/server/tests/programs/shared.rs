//! Request coalescing for programs: which requests share a call, which do not, and how shared calls end.

use std::thread;

use lowroad_testkit::{TestClient, wait_until};

use crate::host::Host;
use crate::talk::{self, End};

const CLIENTS: usize = 40;
const MINUTE: &str = "Cache-Control: max-age=60\\n";

/// A program that records each call, waits for a file before its head, and for another file before the rest of its
/// body.
fn gated(fields: &str) -> String {
    format!(
        "echo x >>DIR/state/n\nwhile [ -d DIR/state ] && ! [ -e DIR/state/head ]; do sleep 0.01; done\n\
         printf 'Content-Type: text/plain\\n{fields}\\nbeginning '\n\
         while [ -d DIR/state ] && ! [ -e DIR/state/rest ]; do sleep 0.01; done\nwc -l <DIR/state/n\n"
    )
}

fn host(script: &str) -> Host {
    Host::start(&[("n", script)])
}

/// The line of `lowroad status` about the route.
fn route(host: &Host) -> String {
    let said = host.command_output(&["status"]);
    let line = said.lines().find(|line| line.contains("/cgi/"));
    line.unwrap_or_default().to_string()
}

/// Waits until this many requests have joined another request's call.
fn wait_for_shared(host: &Host, count: usize) {
    let text = format!("{count} by another request's call");
    wait_until("requests that wait for another's", || {
        route(host).contains(&text).then_some(())
    });
}

fn calls(host: &Host) -> usize {
    host.state("n").lines().count()
}

/// Sends this many equal requests.
fn ask_many(host: &Host, count: usize) -> Vec<TestClient> {
    let ask = |_| {
        let mut client = host.connect();
        client.send("GET /cgi/n HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    };
    (0..count).map(ask).collect()
}

fn body(client: &mut TestClient) -> String {
    let (got, end) = talk::answer(client, "GET");
    assert_eq!(got.status, 200);
    assert!(matches!(end, End::Length | End::Chunk), "it was cut");
    got.text().trim().to_string()
}

#[test]
fn concurrent_requests_share_one_call() {
    let host = host(&gated(MINUTE));
    let mut clients = ask_many(&host, CLIENTS);
    wait_for_shared(&host, CLIENTS - 1);
    host.file("state/head", "");
    // All readers have the beginning of the body while its end is still missing.
    for client in &mut clients {
        assert!(talk::head(client).starts_with("HTTP/1.1 200"));
    }
    // A request that arrives now joins the call, too.
    let mut late = ask_many(&host, 1);
    assert!(talk::head(&mut late[0]).contains("\r\nAge: "));
    host.file("state/rest", "");
    for client in clients.iter_mut().chain(&mut late) {
        while !client.received.ends_with(b"0\r\n\r\n") {
            assert!(client.receive_once(), "the body was cut");
        }
        let text = String::from_utf8_lossy(&client.received);
        assert!(text.contains("beginning") && text.contains("1\n"), "{text}");
    }
    assert_eq!(calls(&host), 1);
    assert_eq!(body(&mut ask_many(&host, 1)[0]), "beginning 1");
}

#[test]
fn uncacheable_response_releases_followers_immediately() {
    let host = host(&gated(""));
    let mut clients = ask_many(&host, 8);
    wait_for_shared(&host, 7);
    wait_until("a call", || (calls(&host) == 1).then_some(()));
    host.file("state/head", "");
    // The calls run concurrently: none waits for another to end.
    wait_until("all calls", || (calls(&host) == 8).then_some(()));
    // Later requests do not wait either.
    let mut late = ask_many(&host, 2);
    wait_until("two more calls", || (calls(&host) == 10).then_some(()));
    host.file("state/rest", "");
    for client in clients.iter_mut().chain(&mut late) {
        assert!(body(client).starts_with("beginning"));
    }
    assert!(
        route(&host).contains("7 by another request's call"),
        "{}",
        route(&host)
    );
}

/// For both kinds of followers: those that wait for the head, and those that join after it.
#[test]
fn stalled_body_releases_its_followers() {
    let script = format!(
        "echo x >>DIR/state/n\nwhile [ -d DIR/state ] && ! [ -e DIR/state/head ]; do sleep 0.01; done\n\
         printf 'Content-Type: text/plain\\n{MINUTE}\\n'\n[ $(wc -l <DIR/state/n) -gt 1 ] && echo quick && exit\n\
         while [ -d DIR/state ] && ! [ -e DIR/state/rest ]; do sleep 0.01; done\necho slow\n"
    );
    let host = host(&script);
    let mut clients = ask_many(&host, 1);
    // This request starts the call. The others may be accepted in any order.
    wait_until("the first call", || (calls(&host) == 1).then_some(()));
    clients.extend(ask_many(&host, 2));
    wait_for_shared(&host, 2);
    host.file("state/head", "");
    assert!(talk::head(&mut clients[0]).starts_with("HTTP/1.1 200"));
    clients.extend(ask_many(&host, 2));
    for client in &mut clients[1..] {
        assert_eq!(body(client), "quick");
    }
    host.file("state/rest", "");
    let (rest, end) = talk::chunks(&mut clients[0]);
    assert_eq!((rest.as_slice(), end), (&b"slow\n"[..], End::Chunk));
}

#[test]
fn shared_call_continues_while_one_client_remains() {
    let host = host(&format!("echo $$ >DIR/state/pid\n{}", gated(MINUTE)));
    let mut clients = ask_many(&host, 3);
    wait_for_shared(&host, 2);
    // The leader's client disconnects.
    drop(clients.remove(0));
    drop(clients.remove(0));
    host.file("state/head", "");
    host.file("state/rest", "");
    assert_eq!(body(&mut clients[0]), "beginning 1");
    assert_eq!(calls(&host), 1);
}

#[test]
fn shared_call_without_clients_is_cancelled() {
    let host = host(&format!("echo $$ >DIR/state/pid\n{}", gated(MINUTE)));
    let clients = ask_many(&host, 3);
    wait_for_shared(&host, 2);
    let pid = crate::streams::pid(&host, "pid");
    // A reset is noticed immediately; after a close, the client might still read.
    clients.into_iter().for_each(TestClient::reset);
    crate::streams::wait_for_end(&pid);
}

#[test]
fn request_after_purge_does_not_join_an_earlier_call() {
    let host = host(&gated(MINUTE));
    let mut early = ask_many(&host, 2);
    wait_for_shared(&host, 1);
    // The call in progress may return content from before the purge.
    host.command_output(&["purge", "all"]);
    let mut late = ask_many(&host, 1);
    wait_until("another call", || (calls(&host) == 2).then_some(()));
    host.file("state/head", "");
    host.file("state/rest", "");
    for client in early.iter_mut().chain(&mut late) {
        assert_eq!(body(client), "beginning 2");
    }
}

#[test]
fn requests_that_can_not_be_coalesced_do_not_wait() {
    let host = host(&gated(MINUTE));
    let _waiting = ask_many(&host, 1);
    wait_until("a call", || (calls(&host) == 1).then_some(()));
    for (count, fields) in [
        // Requests with credentials, ranges or conditions do not join a call.
        "Authorization: Basic x\r\n",
        "Range: bytes=0-1\r\n",
        "If-None-Match: \"a\"\r\n",
    ]
    .iter()
    .enumerate()
    {
        let mut client = host.connect();
        client.send(format!("GET /cgi/n HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        wait_until("another call", || (calls(&host) == count + 2).then_some(()));
    }
}

#[test]
fn failed_call_is_not_shared_with_followers() {
    let script = "echo x >>DIR/state/n\n\
                  while [ -d DIR/state ] && ! [ -e DIR/state/head ]; do sleep 0.01; done\n\
                  [ -n \"$HTTP_X_FAIL\" ] && exit\n\
                  printf 'Content-Type: text/plain\\nCache-Control: max-age=60\\n\\ngood'\n";
    let host = host(script);
    let mut bad = host.connect();
    // The leader of the call. The leader's own field makes the call fail.
    bad.send("GET /cgi/n HTTP/1.1\r\nHost: a\r\nX-Fail: 1\r\n\r\n");
    wait_until("a call", || (calls(&host) == 1).then_some(()));
    let mut good = ask_many(&host, 3);
    wait_for_shared(&host, 3);
    host.file("state/head", "");
    assert_eq!(talk::answer(&mut bad, "GET").0.status, 502);
    for client in &mut good {
        assert_eq!(body(client), "good");
    }
    // The call made after the failure was stored.
    let before = calls(&host);
    assert_eq!(body(&mut ask_many(&host, 1)[0]), "good");
    assert_eq!(calls(&host), before);
}

#[test]
fn fields_hidden_from_the_program_make_no_variant() {
    let script = "echo x >>DIR/state/n\nprintf 'Content-Type: text/plain\\nVary: X-Lang\\n'\n\
                  printf 'Cache-Control: max-age=60\\n\\n%s' \"$HTTP_X_LANG\"\n";
    let host = host(script);
    let ask = |fields: &str| {
        let (got, _) = talk::request_on(&mut host.connect(), "GET", "/cgi/n", fields);
        got.text()
    };
    // Connection removes the field before the program gets it and before the variant is selected.
    assert_eq!(ask("X-Lang: de\r\nConnection: X-Lang\r\n"), "");
    assert_eq!(ask("X-Lang: de\r\n"), "de");
    assert_eq!(ask("X-Lang:\r\nX-Lang: fr\r\n"), ", fr");
    assert_eq!(ask("X-Lang: fr\r\n"), "fr");
}

/// Responds in a language after a file of that name appears, and records the call.
const LANGUAGES: &str = "echo x >>DIR/state/n\nlang=$HTTP_X_LANG\n\
    while [ -d DIR/state ] && ! [ -e DIR/state/$lang ]; do sleep 0.01; done\n\
    printf 'Content-Type: text/plain\\nVary: X-Lang\\nCache-Control: max-age=60\\n\\n%s' $lang\n";

fn ask_in(host: &Host, lang: &str) -> TestClient {
    let mut client = host.connect();
    client.send(format!(
        "GET /cgi/n HTTP/1.1\r\nHost: a\r\nX-Lang: {lang}\r\n\r\n"
    ));
    client
}

#[test]
fn variants_do_not_wait_for_each_other() {
    let host = host(LANGUAGES);
    host.file("state/de", "");
    assert_eq!(body(&mut ask_in(&host, "de")), "de");
    let mut slow = [ask_in(&host, "en"), ask_in(&host, "en")];
    wait_for_shared(&host, 1);
    host.file("state/fr", "");
    assert_eq!(body(&mut ask_in(&host, "fr")), "fr");
    assert!(route(&host).contains("1 by another request's call"));
    host.file("state/en", "");
    for client in &mut slow {
        assert_eq!(body(client), "en");
    }
    assert_eq!(calls(&host), 3);
}

#[test]
fn followers_coalesce_by_variant_once_vary_is_known() {
    let host = host(LANGUAGES);
    let mut first = ask_in(&host, "de");
    wait_until("a call", || (calls(&host) == 1).then_some(()));
    let mut others: Vec<TestClient> = (0..4).map(|_| ask_in(&host, "fr")).collect();
    wait_for_shared(&host, 4);
    host.file("state/de", "");
    assert_eq!(body(&mut first), "de");
    wait_for_shared(&host, 7);
    host.file("state/fr", "");
    for client in &mut others {
        assert_eq!(body(client), "fr");
    }
    assert_eq!(calls(&host), 2);
}

#[test]
fn body_too_long_to_store_is_streamed_to_all_at_their_own_speed() {
    let script = format!(
        "echo x >>DIR/state/n\nwhile [ -d DIR/state ] && ! [ -e DIR/state/head ]; do sleep 0.01; done\n\
         printf 'Content-Type: text/plain\\n{MINUTE}\\n'\nhead -c 8000000 /dev/zero\n"
    );
    let host = host(&script);
    let mut clients = ask_many(&host, 4);
    wait_for_shared(&host, 3);
    host.file("state/head", "");
    // The last client starts to read only when all others have the whole body.
    let mut slow = clients.pop().expect("there are four");
    let readers = clients
        .into_iter()
        .map(|mut client| thread::spawn(move || talk::answer(&mut client, "GET").0.body.len()));
    let readers: Vec<_> = readers.collect();
    for reader in readers {
        assert_eq!(reader.join().expect("it reads"), 8_000_000);
    }
    assert_eq!(talk::answer(&mut slow, "GET").0.body.len(), 8_000_000);
    assert_eq!(calls(&host), 1);
    // The body is not stored.
    let (got, _) = talk::request_on(&mut host.connect(), "GET", "/cgi/n", "");
    assert_eq!((got.body.len(), calls(&host)), (8_000_000, 2));
}
