//! If a database rejects data of the client, the status is 400 for values that do not fit their column and 409 for
//! conflicts with other rows. Errors of the page remain 500.

use lowroad_testkit::TempFolder;

use crate::harness::{Site, database, tokens};
use crate::servers::{Kind, Server};

/// `TAIL` is replaced by the end of CREATE TABLE.
const SETUP: &str = "{% do execute('CREATE TABLE parent (id INT PRIMARY KEY)TAIL') %}\
    {% do execute('CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(5) NOT NULL UNIQUE, day DATE, small SMALLINT, \
    parent INT, CHECK (id < 1000), FOREIGN KEY (parent) REFERENCES parent (id))TAIL') %}\
    {% do execute('INSERT INTO parent VALUES (1)') %}\
    {% do execute('INSERT INTO item VALUES (1, ?, NULL, NULL, 1)', 'one') %}";

const ADD: &str = "{% set f = request.form %}{% if f.wrong %}{% do execute('INSERT INTO item (nothing) VALUES (1)') %}\
    {% elif f.gone %}{% do execute('DELETE FROM parent') %}\
    {% else %}{% do execute('INSERT INTO item VALUES (?, ?, ?, ?, ?)', f.id, f.name or none, f.day or none, f.small or none, \
    f.parent or none) %}{% endif %}added";

/// A form, the expected status, and whether a database with untyped columns (SQLite) accepts the values.
const FORMS: [(&str, u16, bool); 11] = [
    ("id=1&name=a", 409, false),
    ("id=2&name=one", 409, false),
    ("id=2&name=a&parent=9", 409, false),
    ("gone=1", 409, false),
    ("id=2&name=", 400, false),
    ("id=1000&name=a", 400, false),
    ("id=2&name=longer", 400, true),
    ("id=3&name=b&day=2026-02-31", 400, true),
    ("id=4&name=c&day=today", 400, true),
    ("id=5&name=d&small=40000", 400, true),
    ("wrong=1", 500, false),
];

async fn faults_have_their_status(site: &Site, tail: &str, has_types: bool) {
    site.write("form.lrp", "{{ csrf_field() }}");
    site.write("setup.lrp", &SETUP.replace("TAIL", tail));
    site.write("add.lrp", ADD);
    site.send_form("/form.lrp", "/setup.lrp", "").await;
    for (form, status, is_untyped) in FORMS {
        let page = site.get("/form.lrp").ok().await;
        let (cookie, token) = tokens(&page);
        let form = format!("csrf={token}&{form}");
        let ask = site.post("/add.lrp", &form).field("Cookie", &cookie);
        match is_untyped && !has_types {
            true => assert_eq!(ask.ok().await.text, "added", "{form}"),
            false => ask.fails(status, "").await,
        }
    }
}

#[tokio::test]
async fn sqlite() {
    faults_have_their_status(&Site::new(&[]), "", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers() {
    for (kind, tail) in [(Kind::MariaDb, " ENGINE=InnoDB"), (Kind::Postgres, "")] {
        let Some(server) = Server::start(kind, "data_faults::servers") else {
            return;
        };
        let site = Site::with(TempFolder::new(), &[], vec![database(&server.url)]);
        faults_have_their_status(&site, tail, true).await;
    }
}
