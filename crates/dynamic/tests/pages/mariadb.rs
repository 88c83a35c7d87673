//! Pages with MariaDB.

use lowroad_testkit::Folder;

use crate::harness::{Site, database};
use crate::servers::{Kind, Server};

const FORM: (&str, &str) = ("form.lrp", "{{ csrf_field() }}");

const TYPES: &str = "{% do execute('CREATE TABLE t (i INT, u BIGINT UNSIGNED, n DECIMAL(10,2), d DOUBLE, f FLOAT, \
    s VARCHAR(20), b VARCHAR(20) COLLATE utf8mb4_bin, x BLOB, day DATE, at TIME, moment DATETIME, ok BOOLEAN, \
    year YEAR, nothing INT, e ENUM(\"one\", \"two\"))') %}\
    {% do execute('INSERT INTO t VALUES (?, 18446744073709551615, ?, ?, 1.5, ?, ?, ?, \"2026-11-21\", \
    \"-30:00:01\", \"2026-11-21 12:30:00\", ?, 2026, ?, \"two\")', \
    -7, '12.50', 0.25, \"O'Neil ☃\", 'bin', 'bytes', true, none) %}";

fn site(server: &Server, files: &[(&str, &str)], timeout_ms: u64) -> Site {
    let mut configured = database(&server.url);
    configured.timeout_ms = timeout_ms;
    let files: Vec<_> = files.iter().copied().chain([FORM]).collect();
    Site::with(Folder::new(), &files, vec![configured])
}

#[tokio::test(flavor = "multi_thread")]
async fn types_parameters_and_kept_connections() {
    let Some(server) = Server::start(Kind::MariaDb, "mariadb::types") else {
        return;
    };
    let files = [
        ("setup.lrp", TYPES),
        (
            "all.lrp",
            "{% for name, value in row('SELECT * FROM t') | items %}{{ value }};{% endfor %}",
        ),
        (
            "find.lrp",
            "{{ query('SELECT i FROM t WHERE s = ?', request.params.s) | length }}",
        ),
        (
            "with.lrp",
            "{{ row('WITH a AS (SELECT i FROM t) SELECT i FROM a').i }}",
        ),
        ("id.lrp", "{{ row('SELECT CONNECTION_ID() AS id').id }}"),
        ("bad.lrp", "{{ row('SELECT nothing_such') }}"),
        (
            "add.lrp",
            "{% set done = execute('INSERT INTO t (s) VALUES (?)', request.form.s) %}{{ done.count }}{{ 1 / (request.form.d | int) }}",
        ),
    ];
    let site = site(&server, &files, 10_000);
    site.send_form("/form.lrp", "/setup.lrp", "").await;
    let text = site.get("/all.lrp").ok().await.text;
    assert_eq!(
        text,
        "-7;18446744073709551615;12.50;0.25;1.5;O&#x27;Neil ☃;bin;bytes;2026-11-21;-30:00:01;\
         2026-11-21 12:30:00;1;2026;;two;"
    );
    assert_eq!(site.get("/with.lrp").ok().await.text, "-7");
    for (s, found) in [
        ("O'Neil%20%E2%98%83", "1"),
        ("'%20OR%201=1%20--%20", "0"),
        ("%5C'%20OR%201=1%20%23", "0"),
    ] {
        let text = site.get(&format!("/find.lrp?s={s}")).ok().await.text;
        assert_eq!(text, found, "{s}");
    }
    let id = site.get("/id.lrp").ok().await.text;
    site.get("/bad.lrp")
        .fails(
            500,
            "bad.lrp:1: database main says: Unknown column 'nothing_such'",
        )
        .await;
    assert_eq!(
        site.get("/id.lrp").ok().await.text,
        id,
        "the connection is kept"
    );
    let added = site
        .send_form("/form.lrp", "/add.lrp", "s=new&d=1")
        .await
        .text;
    assert_eq!(added, "11.0");
    let page = site.get("/form.lrp").ok().await;
    let (cookie, token) = crate::harness::tokens(&page);
    let broken = site.post("/add.lrp", &format!("csrf={token}&s=lost&d=0"));
    broken
        .field("Cookie", &cookie)
        .fails(500, "unable to calculate 1 / 0")
        .await;
    assert_eq!(
        site.get("/find.lrp?s=lost").ok().await.text,
        "0",
        "all or nothing"
    );
    assert_eq!(site.get("/find.lrp?s=new").ok().await.text, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pages_share_few_connections() {
    let Some(server) = Server::start(Kind::MariaDb, "mariadb::many") else {
        return;
    };
    let site = site(
        &server,
        &[(
            "id.lrp",
            "{{ row('SELECT CONNECTION_ID() AS id, SLEEP(0.001) AS s').id }}",
        )],
        10_000,
    );
    let asked = (0..100).map(|_| site.get("/id.lrp").ok());
    let mut ids: Vec<_> = futures_util::future::join_all(asked)
        .await
        .into_iter()
        .map(|got| got.text)
        .collect();
    ids.sort();
    ids.dedup();
    assert!(ids.len() <= 4, "{ids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_dead_databases_are_errors_in_time_and_come_back() {
    let Some(mut server) = Server::start(Kind::MariaDb, "mariadb::slow_and_dead") else {
        return;
    };
    let files = [
        ("slow.lrp", "\n{{ row('SELECT SLEEP(10) AS s').s }}"),
        (
            "write.lrp",
            "{% do execute('CREATE TABLE IF NOT EXISTS w (a INT)') %}written",
        ),
        ("quick.lrp", "{{ row('SELECT 7 AS a').a }}"),
    ];
    let site = site(&server, &files, 300);
    for _ in 0..6 {
        site.get("/slow.lrp")
            .fails(
                504,
                "slow.lrp:2: database main took longer than its timeout of 300 ms",
            )
            .await;
    }
    assert_eq!(
        site.get("/quick.lrp").ok().await.text,
        "7",
        "no connection stays behind"
    );
    server.kill();
    for _ in 0..3 {
        site.get("/quick.lrp")
            .fails(503, "quick.lrp:1: database main can't be used")
            .await;
    }
    server.launch();
    assert_eq!(site.get("/quick.lrp").ok().await.text, "7");
    // Now it goes away while a connection is idle, and nobody asks before it is back.
    server.kill();
    server.launch();
    assert_eq!(site.get("/quick.lrp").ok().await.text, "7");
    server.kill();
    server.launch();
    assert_eq!(
        site.send_form("/form.lrp", "/write.lrp", "").await.text,
        "written"
    );
}
