//! Traffic classes over real sockets. The origin answers only as many requests as the test permits.

use std::sync::{Arc, Condvar, Mutex};

use lowroad_testkit::origin::{OriginRequest, TestOrigin};
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TempFolder, TestClient, TestServer, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// Counts the requests that the origin may still answer.
#[derive(Default)]
struct Gate {
    open: Mutex<usize>,
    more: Condvar,
}

impl Gate {
    fn pass(&self) {
        let open = self.open.lock().expect("nobody panics with it");
        let mut open = self
            .more
            .wait_while(open, |open| *open == 0)
            .expect("nobody panics with it");
        *open -= 1;
    }

    fn open(&self, more: usize) {
        *self.open.lock().expect("nobody panics with it") += more;
        self.more.notify_all();
    }
}

/// A server with traffic classes, and its origin behind a gate.
struct Front {
    folder: TempFolder,
    server: TestServer,
    origin: TestOrigin,
    gate: Arc<Gate>,
}

impl Front {
    /// Starts a server with these tables before the site.
    fn of(classes: &str) -> Front {
        let gate = Arc::new(Gate::default());
        let at_origin = gate.clone();
        let origin = TestOrigin::with_response(move |request: &OriginRequest| {
            at_origin.pass();
            let body = &request.target;
            let caching = match body.contains("stored") {
                true => "max-age=1, stale-if-error=600",
                false => "no-store",
            };
            let len = body.len();
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nCache-Control: {caching}\r\n\r\n{body}"
            )
        });
        let folder = TempFolder::new();
        folder.file("root/file", "a file");
        let config = config(&folder, classes, &origin);
        Front {
            server: TestServer::run(PROGRAM, &folder, &config),
            folder,
            origin,
            gate,
        }
    }

    /// Sends a request on a new connection.
    fn ask(&self, path: &str) -> TestClient {
        let mut client = self.server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client
    }

    /// Sends a request, and waits until `waiting` requests of the class are queued.
    fn wait(&self, path: &str, class: &str, waiting: u64) -> TestClient {
        let client = self.ask(path);
        self.is(class, "waiting", waiting);
        client
    }

    fn status(&self) -> StatusClient {
        StatusClient::new(PROGRAM, self.folder.path().join("admin.sock"))
    }

    /// Waits until a counter of a class has this value.
    fn is(&self, class: &str, name: &str, value: u64) {
        self.status()
            .wait_for(&format!("class.{class}.{name}"), value);
    }

    /// Waits until the origin has received this many requests.
    fn is_asked(&self, count: usize) {
        wait_until(&format!("the origin to be asked {count} times"), || {
            (self.origin.count() >= count).then_some(())
        });
        assert_eq!(self.origin.count(), count);
    }
}

fn config(folder: &TempFolder, classes: &str, origin: &TestOrigin) -> String {
    let (folder, origin) = (folder.path().display(), origin.url());
    format!(
        "[server]\nworkers = 2\nadmin = \"{folder}/admin.sock\"\n{classes}\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{folder}/root\"\n\
         [[site.route]]\npattern = \"/app/**\"\norigin = \"{origin}\"\n"
    )
}

/// The configuration of these limits and of a class `gold`, selected by path, with three times the weight of the
/// others.
fn gold_and_bronze(calls_max: usize, calls_waiting_max: usize) -> String {
    format!(
        "[limits]\ncalls_max = {calls_max}\ncalls_waiting_max = {calls_waiting_max}\n\
         [[class]]\nname = \"gold\"\nweight = 30\ndeadline = \"1h\"\nroutes = \"/app/gold/**\"\n\
         [[class]]\nname = \"bronze\"\nweight = 10\ndeadline = \"1h\"\n"
    )
}

fn assert_shed(client: &mut TestClient) {
    let got = client.response();
    assert_eq!((got.status, got.field("retry-after")), (503, Some("1")));
    assert_eq!(got.field("cache-control"), Some("no-store"));
}

#[test]
fn requests_are_started_in_proportion_to_weights() {
    let front = Front::of(&gold_and_bronze(4, 1000));
    let mut clients: Vec<TestClient> = Vec::new();
    for number in 0..64 {
        clients.push(front.ask(&format!("/app/bronze/{number}")));
        clients.push(front.ask(&format!("/app/gold/{number}")));
    }
    let status = front.status();
    let now = |name: &str| {
        status.value(&format!("class.gold.{name}")) + status.value(&format!("class.bronze.{name}"))
    };
    wait_until("all to wait", || (now("waiting") == 124).then_some(()));
    assert_eq!(now("under_way"), 4);
    front.is_asked(4);
    // When a request ends, a queued one starts, of a class selected in proportion to the weights.
    for begun in 1..=60 {
        front.gate.open(1);
        front.is_asked(4 + begun);
        let requests = front.origin.requests();
        let later = &requests[4..];
        let gold = later
            .iter()
            .filter(|request| request.target.contains("gold"));
        let (gold, due) = (gold.count() as f64, begun as f64 * 0.75);
        assert!((gold - due).abs() <= 2.0, "{gold} of {begun}");
    }
    // When one class has no more requests, the other gets all the capacity.
    front.gate.open(1000);
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    front.is("gold", "calls", 64);
    front.is("bronze", "calls", 64);
    assert_eq!((now("under_way"), now("shed")), (0, 0));
}

#[test]
fn lowest_class_is_shed_first() {
    let front = Front::of(&gold_and_bronze(1, 4));
    let mut first = front.ask("/app/bronze/0");
    front.is_asked(1);
    let mut bronze: Vec<TestClient> = (1..=4)
        .map(|number| front.wait(&format!("/app/bronze/{number}"), "bronze", number))
        .collect();
    let mut gold: Vec<TestClient> = Vec::new();
    for number in 1..=3 {
        gold.push(front.wait(&format!("/app/gold/{number}"), "gold", number));
        // The youngest request of the lowest class is shed.
        assert_shed(&mut bronze.pop().expect("four wait"));
        front.is("bronze", "shed", number);
    }
    // Both classes have used their shares, so every further request is shed.
    assert_shed(&mut front.ask("/app/gold/4"));
    assert_shed(&mut front.ask("/app/bronze/5"));
    front.gate.open(1000);
    for client in gold.iter_mut().chain(&mut bronze).chain([&mut first]) {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(front.origin.count(), 5);
}

#[test]
fn queued_request_is_shed_at_its_timeout() {
    let front = Front::of(
        "[[class]]\nname = \"a\"\nconcurrency = 1\nqueue = 1\ndeadline = \"300ms\"\nroutes = \"/app/a/**\"\n",
    );
    let mut first = front.ask("/app/a/0");
    front.is_asked(1);
    // The request is queued until its timeout.
    assert_shed(&mut front.ask("/app/a/1"));
    front.is("a", "too_late", 1);
    front.is("a", "waiting", 0);
    // The queued request does not block other classes.
    let mut other = front.ask("/app/b");
    front.is_asked(2);
    front.is("others", "under_way", 1);
    front.gate.open(2);
    assert_eq!(first.response().status, 200);
    assert_eq!(other.response().status, 200);
    front.is("a", "under_way", 0);
}

#[test]
fn request_to_full_queue_is_shed_immediately() {
    let front =
        Front::of("[[class]]\nname = \"a\"\nconcurrency = 1\nqueue = 1\ndeadline = \"1h\"\n");
    let mut first = front.ask("/app/0");
    front.is_asked(1);
    let mut second = front.wait("/app/1", "a", 1);
    assert_shed(&mut front.ask("/app/2"));
    front.gate.open(2);
    assert_eq!(first.response().status, 200);
    assert_eq!(second.response().status, 200);
    front.is("a", "waited", 1);
    front.is("a", "shed", 1);
}

#[test]
fn stale_response_answers_a_shed_request() {
    let front = Front::of("[[class]]\nname = \"a\"\nconcurrency = 1\nqueue = 0\n");
    front.gate.open(1);
    assert_eq!(front.ask("/app/stored").response().status, 200);
    front.is("a", "under_way", 0);
    let mut first = front.ask("/app/0");
    front.is_asked(2);
    wait_until("a call that is shed", || {
        let got = front.ask("/app/stored").response();
        assert_eq!((got.status, got.text().as_str()), (200, "/app/stored"));
        (front.status().value("class.a.shed") > 0).then_some(())
    });
    front.gate.open(1);
    assert_eq!(first.response().status, 200);
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn disconnected_client_releases_its_permit() {
    let front = Front::of(&gold_and_bronze(1, 9));
    let first = front.ask("/app/gold/0");
    front.is_asked(1);
    let second = front.wait("/app/gold/1", "gold", 1);
    let mut third = front.wait("/app/gold/2", "gold", 2);
    second.reset();
    front.is("gold", "waiting", 1);
    first.reset();
    // The disconnected client's request ends, so the third request starts.
    front.is_asked(2);
    front.gate.open(2);
    assert_eq!(third.response().text(), "/app/gold/2");
    front.is("gold", "under_way", 0);
}

#[test]
fn class_rate_limits_all_requests() {
    let front = Front::of(
        "[[class]]\nname = \"slow\"\nrate = \"2/h\"\nburst = 3\nheaders = \"X-Slow: yes\"\n\
         [[class]]\nname = \"rest\"\n",
    );
    front.gate.open(1000);
    let get = |path: &str, fields: &str| front.server.connect().get(path, fields);
    let slow = |path: &str| get(path, "X-Slow: yes\r\n");
    assert_eq!(slow("/file").status, 200);
    assert_eq!(slow("/file").status, 200);
    assert_eq!(slow("/app/x").status, 200);
    for path in ["/file", "/app/x"] {
        let got = slow(path);
        assert_eq!(got.status, 503);
        let seconds = got.field("retry-after").and_then(|text| text.parse().ok());
        assert!((1700..=1800).contains(&seconds.unwrap_or(0)), "{seconds:?}");
    }
    assert_eq!(get("/file", "X-Slow: no\r\n").status, 200);
    assert_eq!(get("/app/x", "").status, 200);
    front.is("slow", "requests", 5);
    front.is("slow", "beyond_rate", 2);
    front.is("rest", "requests", 2);
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn explain_shows_the_class_without_counting() {
    let front =
        Front::of("[[class]]\nname = \"api\"\nweight = 7\nrate = \"1/h\"\nroutes = \"/app/**\"\n");
    let admin = front.folder.path().join("admin.sock");
    let explained = |path: &str| {
        let url = format!("http://{}{path}", front.server.address());
        let output = std::process::Command::new(PROGRAM)
            .args(["explain", &url, "--admin"])
            .arg(&admin)
            .output()
            .expect("the explain command");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let class = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("class"));
        class.expect(&text).trim().to_string()
    };
    for _ in 0..3 {
        assert_eq!(
            explained("/app/x"),
            "api, weight 7; 0 calls in progress, 0 waiting"
        );
    }
    assert_eq!(
        explained("/file"),
        "others, weight 10; 0 calls in progress, 0 waiting"
    );
    front.is("api", "requests", 0);
}

#[test]
fn reload_keeps_unchanged_classes() {
    let classes = gold_and_bronze(1, 9);
    let front = Front::of(&classes);
    let mut first = front.ask("/app/gold/0");
    front.is_asked(1);
    let reload = |classes: &str| {
        let config = config(&front.folder, classes, &front.origin);
        front.folder.file("lowroad.toml", config);
        front.server.signal("HUP");
        front.server.wait_for_error_line(" is in force");
    };
    reload(&format!("[log]\nlevel = \"info\"\n{classes}"));
    front.is("gold", "under_way", 1);
    reload(&classes.replace("weight = 30", "weight = 40"));
    front.is("gold", "under_way", 0);
    // Requests that started with the previous classes end with them.
    front.gate.open(9);
    assert_eq!(first.response().status, 200);
    assert_eq!(front.ask("/app/gold/1").response().status, 200);
    front.is("gold", "calls", 1);
}
