//! Pages with MariaDB.

use lowroad_testkit::TempFolder;

use crate::authority::Authority;
use crate::harness::{Site, database};
use crate::mariadb_tls::serve;
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
    Site::with(TempFolder::new(), &files, vec![configured])
}

#[tokio::test(flavor = "multi_thread")]
async fn types_parameters_and_pooled_connections() {
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
            "bad.lrp:1: database main reports: Unknown column 'nothing_such'",
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

/// Values of many types.
const ALIKE: &str = "{% for name, value in row('SELECT TIME\"01:02:03\" AS a, TIME\"-01:02:03.50\" AS b, \
    TIMESTAMP\"2026-11-21 12:30:00.120000\" AS c, TIMESTAMP\"2026-11-21 12:30:00.000\" AS d, \
    CAST(\"2026-11-21 12:30:00.1234\" AS DATETIME(4)) AS e, z.day AS f, z.at AS g, UNHEX(\"ff00\") AS h, 18446744073709551615 AS i, \
    CAST(-5 AS SIGNED) AS j, 0.10 AS k, 1e10 AS l, ? AS m, ? AS n, ? AS o FROM z', true, 2.5, none) | items \
    %}{{ value }};{% endfor %}{{ query('SELECT day FROM z') | length }}{{ query('SELECT day FROM z')[0].day is none }}";

#[tokio::test(flavor = "multi_thread")]
async fn values_are_equal_with_all_connection_settings() {
    let Some(mut server) = Server::start(Kind::MariaDb, "mariadb::alike") else {
        return;
    };
    let files = [
        (
            "setup.lrp",
            "{% do execute('CREATE TABLE z (day DATE, at DATETIME(6))') %}\
             {% do execute('INSERT INTO z VALUES (\"0000-00-00\", \"0000-00-00\")') %}\
             {% do execute('CREATE PROCEDURE two() BEGIN SELECT 1 AS a; SELECT \"x\" AS a, 3 AS b; END') %}\
             {% do execute('CREATE PROCEDURE none() DO 1') %}",
        ),
        ("alike.lrp", ALIKE),
        (
            "call.lrp",
            "{{ query('CALL two()')[0].a }}{% do execute('CALL none()') %}{{ query('CALL two()')[0].a }}\
             {% do execute('CALL two()') %}{{ row('SELECT 7 AS a').a }}",
        ),
        FORM,
    ];
    let mut texts = Vec::new();
    let authority = Authority::new();
    serve(&authority, &mut server, &["localhost"], &[]);
    for more in ["", "&charset=utf8mb4", "&ssl-mode=required"] {
        let site = Site::with(
            TempFolder::new(),
            &files,
            vec![database(&format!("{}{more}", server.url))],
        );
        if more.is_empty() {
            site.send_form("/form.lrp", "/setup.lrp", "").await;
        }
        for _ in 0..2 {
            let text = site.send_form("/form.lrp", "/call.lrp", "").await.text;
            assert_eq!(text, "117", "{more}");
        }
        texts.push(site.get("/alike.lrp").ok().await.text);
    }
    assert_eq!(
        texts[0],
        "1:02:03;-1:02:03.5;2026-11-21 12:30:00.120;2026-11-21 12:30:00;2026-11-21 12:30:00.123400;;;\u{fffd}\0;18446744073709551615;-5;0.10;10000000000.0;1;2.5;;1True"
    );
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
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
async fn slow_or_dead_database_fails_in_time_and_recovers() {
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
    // The server restarts while a connection is idle.
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
