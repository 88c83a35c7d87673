//! The page in real browsers.

use lowroad_testkit::TestClient;
use serde_json::Value;

use crate::browser::{Browser, in_each_browser};
use crate::subject::{Dashboard, Subject};

const READY: &str =
    "document.querySelector('#state[data-state=live]') && !document.body.matches('.waiting')";

/// Opens a dashboard, up to its first snapshot.
fn open(browser: &mut dyn Browser, dashboard: &Dashboard) {
    browser.open(&dashboard.link);
    browser.wait_for(READY);
}

/// The visible text of the page, in which values that are not numbers (`NaN`) would appear.
fn whole_text(browser: &mut dyn Browser) -> String {
    let text = browser.evaluate("document.body.innerText");
    text.as_str().expect("a text").to_owned()
}

fn assert_is_sound(browser: &mut dyn Browser) {
    let name = browser.name();
    let text = whole_text(browser);
    for bad in ["NaN", "undefined", "Infinity", "[object", "null"] {
        assert!(!text.contains(bad), "{name}: {bad} in {text}");
    }
    assert_eq!(browser.problems(), [""; 0], "{name}");
}

#[test]
fn a_server_without_traffic_is_shown() {
    in_each_browser("a server without traffic is shown", |browser| {
        let subject = Subject::start();
        let dashboard = subject.dashboard(&[]);
        open(browser, &dashboard);
        // Two snapshots later there are rates.
        browser.wait_for("document.getElementById('incoming').innerText === '0'");
        assert_eq!(browser.text("now-median"), "–");
        assert!(whole_text(browser).contains("No requests yet."));
        assert_is_sound(browser);
    });
}

#[test]
fn rates_and_counters_are_those_of_the_server() {
    in_each_browser("rates and counters are those of the server", |browser| {
        let subject = Subject::start();
        let dashboard = subject.dashboard(&[]);
        open(browser, &dashboard);
        for _ in 0..3 {
            let mut client = subject.server.connect();
            client.send("not HTTP\r\n\r\n");
            assert_eq!(client.response().status, 400);
        }
        let mut client = TestClient::connect(subject.server.address());
        for _ in 0..200 {
            assert_eq!(client.get("/", "").status, 200);
        }
        browser.wait_for("Number(document.body.dataset.total) > 0");
        browser.wait_for("document.querySelector('.level-worker:not(.idle) .level-rate')");
        browser.wait_for("document.getElementById('troubles').innerText.includes('malformed')");
        let shown = browser.text("troubles");
        let metrics = browser.evaluate("fetch('metrics').then(it => it.text())");
        let metrics = metrics.as_str().expect("a text");
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("lowroad_requests_malformed_total "));
        let count = line.expect("the counter");
        assert_eq!(count, "3");
        assert!(shown.contains(&format!("{count} malformed")), "{shown}");
        assert_is_sound(browser);
    });
}

#[test]
fn an_origin_that_is_down_is_shown_with_the_reason() {
    let test = "an origin that is down is shown with the reason";
    in_each_browser(test, |browser| {
        let subject = Subject::start();
        let dashboard = subject.dashboard(&[]);
        open(browser, &dashboard);
        browser.wait_for("document.getElementById('attention-list').innerText.includes('down')");
        let attention = browser.text("attention-list");
        assert!(attention.contains("Connection refused"), "{attention}");
        let origins = browser.text("origins-table");
        assert!(
            origins.contains("down") && origins.contains("up"),
            "{origins}"
        );
        browser.wait_for("document.getElementById('error-lines').innerText.includes('refused')");
        assert_is_sound(browser);
    });
}

/// Names of the elements that Tab visits, in order.
fn focus_order(browser: &mut dyn Browser, count: usize) -> Vec<String> {
    let name = "(it => it.id || it.name || it.className || it.tagName)(document.activeElement)";
    let visits = (0..count).map(|_| {
        browser.press("Tab");
        let visited = browser.evaluate(name);
        visited.as_str().unwrap_or_default().to_owned()
    });
    visits.collect()
}

#[test]
fn the_page_works_by_keyboard() {
    in_each_browser("the page works by keyboard", |browser| {
        let subject = Subject::start();
        let dashboard = subject.dashboard(&[]);
        open(browser, &dashboard);
        browser.wait_for("document.getElementById('attention-list').children.length === 1");
        let order = focus_order(browser, 8);
        let expected = [
            "skip",
            "pause",
            "A",
            "span",
            "sites-table",
            "origins-table",
            "hot-urls-table",
            "url",
        ];
        assert_eq!(order, expected, "{}", browser.name());
        // Enter in the URL field requests the explanation.
        let url = format!("http://{}/", subject.server.address());
        browser.evaluate(&format!("document.getElementById('url').value = '{url}'"));
        browser.press("Enter");
        browser.wait_for("document.getElementById('url-result').innerText.includes('200 OK')");
        let order = focus_order(browser, 3);
        assert_eq!(order, ["url-field", "explain", "purge"]);
        browser.press("Enter");
        browser.wait_for("document.getElementById('url-result').innerText.includes('purged')");
        assert_is_sound(browser);
    });
}

#[test]
fn a_purge_of_everything_is_confirmed() {
    in_each_browser("a purge of everything is confirmed", |browser| {
        let subject = Subject::start();
        let dashboard = subject.dashboard(&[]);
        open(browser, &dashboard);
        browser.evaluate("document.getElementById('url').value = 'all'");
        browser.evaluate("document.getElementById('purge').click()");
        browser.wait_for("document.getElementById('purge-dialog').open");
        browser.evaluate("document.getElementById('purge-confirm').click()");
        browser.wait_for("document.getElementById('url-result').innerText.includes('purged')");
        let purges = "document.getElementById('cache-facts').innerText.replace(/\\s+/g, ' ')";
        browser.wait_for(&format!("{purges}.includes('Purges 1')"));
        assert_is_sound(browser);
    });
}

#[test]
fn a_hot_url_is_explained_and_purged() {
    in_each_browser("a hot URL is explained and purged", |browser| {
        let subject = Subject::start();
        let dashboard = subject.dashboard(&[]);
        let mut client = TestClient::connect(subject.server.address());
        // The address as the host, so that the URLs can be explained.
        let mut get = |target: &str| {
            let host = subject.server.address();
            client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(client.response().status, 200);
        };
        (0..10).for_each(|_| get("/index.html?q=1"));
        get("/?<b>");
        open(browser, &dashboard);
        browser.wait_for("document.querySelector('#hot-urls-table button')");
        let row = browser.text("hot-urls-table");
        assert!(row.contains("/index.html?q=1"), "{row}");
        assert!(row.contains("/?<b>"), "{row}");
        assert!(row.contains("worker"), "{row}");
        let label = "document.querySelector('#hot-urls-table button').getAttribute('aria-label')";
        let label = browser.evaluate(label);
        assert!(
            label
                .as_str()
                .is_some_and(|it| it.starts_with("Explain http://")),
            "{label}"
        );
        // By keyboard: the focus moves to the result.
        browser.evaluate("document.querySelector('#hot-urls-table button').focus()");
        browser.press("Enter");
        browser.wait_for("document.getElementById('url-result').innerText.includes('200 OK')");
        browser.wait_for("document.activeElement.id === 'url-result'");
        browser.evaluate("document.querySelectorAll('#hot-urls-table button')[1].click()");
        browser.wait_for("document.getElementById('purge-dialog').open");
        let question = browser.text("purge-question");
        assert!(question.contains("/index.html?q=1"), "{question}");
        browser.evaluate("document.getElementById('purge-confirm').click()");
        browser.wait_for("document.getElementById('url-result').innerText.includes('purged')");
        browser.wait_for("document.activeElement.id === 'url-result'");
        browser.resize(390, 844);
        browser.wait_for("innerWidth < 600");
        let width = browser.evaluate("document.documentElement.scrollWidth <= innerWidth");
        assert_eq!(width, Value::Bool(true), "{}", browser.name());
        assert_is_sound(browser);
    });
}

#[test]
fn a_read_only_page_offers_no_purge() {
    in_each_browser("a read-only page offers no purge", |browser| {
        let subject = Subject::start();
        let dashboard = subject.dashboard(&["--read-only"]);
        open(browser, &dashboard);
        let mut client = TestClient::connect(subject.server.address());
        assert_eq!(client.get("/", "").status, 200);
        browser.wait_for("document.getElementById('purge').disabled");
        browser.wait_for("document.querySelectorAll('#hot-urls-table button')[1].disabled");
        assert!(whole_text(browser).contains("This dashboard is read-only"));
        assert_is_sound(browser);
    });
}

#[test]
fn scripts_that_are_not_of_the_page_do_not_run() {
    in_each_browser("scripts that are not of the page do not run", |browser| {
        let subject = Subject::start();
        let dashboard = subject.dashboard(&[]);
        open(browser, &dashboard);
        browser.evaluate(
            "(() => { const it = document.createElement('script');
                it.textContent = 'document.title = \"foreign\"'; document.body.append(it); })()",
        );
        assert_eq!(browser.evaluate("document.title"), "Lowroad");
        let problems = browser.problems();
        let is_reported = problems
            .iter()
            .any(|it| it.contains("Content") && it.contains("Policy"));
        assert!(is_reported, "{}: {problems:?}", browser.name());
    });
}

#[test]
fn the_page_fits_a_phone() {
    in_each_browser("the page fits a phone", |browser| {
        let subject = Subject::start();
        let dashboard = subject.dashboard(&[]);
        open(browser, &dashboard);
        browser.resize(390, 844);
        browser.wait_for("innerWidth < 600");
        let width = browser.evaluate("document.documentElement.scrollWidth <= innerWidth");
        assert_eq!(width, Value::Bool(true), "{}", browser.name());
        // No value of a table is beyond the edge, where only scrolling would show it.
        let cells = "[...document.querySelectorAll('tbody th, tbody td')]";
        let fits = format!("{cells}.every(it => it.getBoundingClientRect().right <= innerWidth)");
        assert_eq!(
            browser.evaluate(&fits),
            Value::Bool(true),
            "{}",
            browser.name()
        );
        let count = browser.evaluate(&format!("{cells}.length > 10"));
        assert_eq!(count, Value::Bool(true), "{}", browser.name());
        assert_is_sound(browser);
    });
}

#[test]
fn an_ended_server_is_noticed() {
    in_each_browser("an ended server is noticed", |browser| {
        let mut subject = Subject::start();
        let dashboard = subject.dashboard(&[]);
        open(browser, &dashboard);
        subject.server.signal("TERM");
        subject.server.wait_for_end();
        browser.wait_for("document.querySelector('#state[data-state=lost]')");
        assert!(whole_text(browser).contains("Connection lost"));
        // The last numbers stay, marked as old.
        assert!(whole_text(browser).contains("Numbers of "));
        browser.wait_for("document.body.matches('.stale')");
    });
}
