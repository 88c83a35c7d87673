//! SQL pages of the hosted image with a real MariaDB, which is also restarted.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use lowroad_testkit::net::{NetNamespace, is_installed};
use lowroad_testkit::{ClientResponse, TempFolder, TestClient, skip, wait_until};

use crate::hosted::{Hosted, IMAGE, can_run};
use crate::servers::{Kind, Server};

/// The database URL for images.
pub const URL: &str = "mysql://page:secret@198.18.0.1:3390/test";
const PAGE: &str = include_str!("../../../../examples/pages/www/bare.lrp");
const DATA: &str = include_str!("../../../../examples/pages/bare.sql");
const LENS: [(&str, usize); 3] = [
    ("/bare.lrp", 211),
    ("/bare.lrp?size=10217", 10_217),
    ("/bare.lrp?size=19248", 19_248),
];

/// A MariaDB in the network of a test, with the data of the example.
pub struct Database(Server);

impl Database {
    /// Starts MariaDB, and waits until the running image has rendered a page with its data. Returns `None`, with a skip
    /// message, if MariaDB is not installed.
    pub fn start(test: &str, namespace: &NetNamespace) -> Option<Database> {
        if !is_installed("mariadb") {
            skip(test, "mariadb is missing (Debian: mariadb-client)");
            return None;
        }
        let server = namespace.enter(|| Server::start_at(Kind::MariaDb, test, Some(3390)))?;
        let database = Database(server);
        database.run(DATA);
        database
            .run("CREATE USER page@'%' IDENTIFIED BY 'secret'; GRANT SELECT ON test.* TO page@'%'");
        let mut client = namespace.enter(|| TestClient::connect(IMAGE));
        wait_until("a page", || {
            (client.get("/bare.lrp", "").status == 200).then_some(())
        });
        Some(database)
    }

    fn run(&self, statements: &str) {
        let socket = self.0.url.split_once("socket=").expect("a socket").1;
        let mut command = Command::new("mariadb");
        let done = command
            .args(["--no-defaults", "--user=root", "--socket", socket, "test"])
            .args(["--execute", statements])
            .stdin(Stdio::null())
            .output()
            .expect("it starts");
        assert!(done.status.success(), "{done:?}");
    }
}

/// A site that contains only the example's page.
pub fn site() -> TempFolder {
    let site = TempFolder::new();
    site.file("bare.lrp", PAGE);
    site
}

fn assert_page(page: &ClientResponse, fact: &str, len: usize) {
    let text = page.text();
    assert_eq!((page.status, text.len()), (200, len), "{text}");
    assert!(text.contains(fact) && text.ends_with("</html>"), "{text}");
}

#[test]
fn pages_show_current_data() {
    let test = "pages_show_current_data";
    if !can_run(test) {
        return;
    }
    let hosted = Hosted::start(&site(), &["--database", URL]);
    let Some(database) = Database::start(test, &hosted.namespace) else {
        return;
    };
    let mut client = hosted.connect();
    for (path, len) in LENS.into_iter().cycle().take(9) {
        assert_page(&client.get(path, ""), "<td>bare metal!</td>", len);
    }
    for fact in ["first change", "other change"] {
        database.run(&format!(
            "UPDATE bare SET text = '{fact}' WHERE size = 211 AND line = 1"
        ));
        let fact = format!("<td>{fact}</td>");
        assert_page(&client.get("/bare.lrp", ""), &fact, 212);
    }
}

#[test]
fn fifty_clients_get_pages_concurrently() {
    let test = "fifty_clients_get_pages_concurrently";
    if !can_run(test) {
        return;
    }
    let hosted = Hosted::start(&site(), &["--database", URL]);
    let Some(_database) = Database::start(test, &hosted.namespace) else {
        return;
    };
    let clients: Vec<TestClient> = (0..50).map(|_| hosted.connect()).collect();
    thread::scope(|scope| {
        for (at, mut client) in clients.into_iter().enumerate() {
            scope.spawn(move || {
                for (path, len) in LENS.into_iter().cycle().skip(at).take(9) {
                    assert_page(&client.get(path, ""), "<td>bare metal!</td>", len);
                }
            });
        }
    });
}

#[test]
fn lost_database_is_reported_and_reconnected() {
    let test = "lost_database_is_reported_and_reconnected";
    if !can_run(test) {
        return;
    }
    let hosted = Hosted::start(&site(), &["--database", URL]);
    let Some(mut database) = Database::start(test, &hosted.namespace) else {
        return;
    };
    let (is_over, statuses) = (AtomicBool::new(false), Mutex::new(BTreeMap::new()));
    let mut clients: Vec<TestClient> = (0..5).map(|_| hosted.connect()).collect();
    let mut own = clients.pop().expect("five");
    assert_page(&own.get("/bare.lrp", ""), "<td>bare metal!</td>", 211);
    thread::scope(|scope| {
        for mut client in clients {
            let (is_over, statuses) = (&is_over, &statuses);
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    let page = client.get("/bare.lrp?size=10217", "");
                    if page.status == 200 {
                        assert_page(&page, "<td>bare metal!</td>", 10_217);
                    }
                    let mut statuses = statuses.lock().expect("no holder panics");
                    *statuses.entry(page.status).or_insert(0) += 1;
                }
            });
        }
        let has = |status: u16| {
            let statuses = statuses.lock().expect("no holder panics");
            statuses.contains_key(&status).then_some(())
        };
        wait_until("pages", || has(200));
        database.0.kill();
        wait_until("503", || has(503));
        assert_eq!(own.get("/bare.lrp", "").status, 503);
        hosted.namespace.enter(|| database.0.launch());
        wait_until("pages again", || {
            (own.get("/bare.lrp", "").status == 200).then_some(())
        });
        is_over.store(true, Relaxed);
    });
    let statuses = statuses.into_inner().expect("no holder panics");
    let others = statuses
        .keys()
        .filter(|&&status| ![200, 503].contains(&status));
    assert_eq!(others.count(), 0, "{statuses:?}");
    for (path, len) in LENS {
        assert_page(&own.get(path, ""), "<td>bare metal!</td>", len);
    }
}
