//! Pages with PostgreSQL.

use lowroad_testkit::TempFolder;

use crate::harness::{Site, database};
use crate::servers::{Kind, Server};

const TYPES: &str = "{% do execute('CREATE TABLE t (i INT, b BIGINT, n NUMERIC, d DOUBLE PRECISION, f REAL, s TEXT, c CHAR(3), \
    x BYTEA, day DATE, at TIME, moment TIMESTAMP, zoned TIMESTAMPTZ, ok BOOLEAN, u UUID, j JSONB, nothing INT)') %}\
    {% do execute('INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, CAST(CAST(? AS text) AS uuid), \
    CAST(CAST(? AS text) AS jsonb), ?)', '-7', 9007199254740993, '12.50', 0.25, 1.5, \"O'Neil ☃\", 'abc', 'bytes', '2026-11-21', \
    '12:30:00', '2026-11-21T12:30', '2026-11-21 12:30:00', 'true', '00112233-4455-6677-8899-aabbccddeeff', '{\"a\": 1}', none) %}";

#[tokio::test(flavor = "multi_thread")]
async fn types_parameters_timeouts_and_lost_connections() {
    let Some(mut server) = Server::start(Kind::Postgres, "postgres::types") else {
        return;
    };
    let mut other = database(&server.url);
    other.name = "other".into();
    let mut quick = database(&server.url);
    quick.name = "quick".into();
    quick.timeout_ms = 300;
    let files = [
        ("form.lrp", "{{ csrf_field() }}"),
        ("setup.lrp", TYPES),
        (
            "all.lrp",
            "{% for name, value in row('SELECT * FROM t') | items %}{{ value }};{% endfor %}",
        ),
        (
            "find.lrp",
            "{{ query('SELECT i FROM t WHERE i = ? AND s <> ?', request.params.i, request.params.s) | length }}",
        ),
        ("pid.lrp", "{{ row('SELECT pg_backend_pid() AS pid').pid }}"),
        (
            "end.lrp",
            "{{ row('SELECT pg_terminate_backend(?) AS ok', request.params.pid, db='other').ok }}",
        ),
        ("slow.lrp", "{{ row('SELECT pg_sleep(10)', db='quick') }}"),
        (
            "strange.lrp",
            "{{ row(\"SELECT '10.0.0.1'::inet AS a\").a }}",
        ),
        (
            "with.lrp",
            "{% do query('WITH gone AS (DELETE FROM t RETURNING i) SELECT i FROM gone') %}",
        ),
        ("into.lrp", "{% do query('SELECT i INTO copy FROM t') %}"),
        (
            "explain.lrp",
            "{% do query('EXPLAIN ANALYZE DELETE FROM t') %}",
        ),
        (
            "read.lrp",
            "{{ row('WITH a AS (SELECT i FROM t) SELECT i FROM a').i }}",
        ),
        (
            "json.lrp",
            "{{ row(\"SELECT j ?? 'a' AS a, j ->> ? AS b FROM t\", 'a') | tojson }}",
        ),
    ];
    let site = Site::with(
        TempFolder::new(),
        &files,
        vec![database(&server.url), other, quick],
    );
    site.send_form("/form.lrp", "/setup.lrp", "").await;
    let text = site.get("/all.lrp").ok().await.text;
    assert_eq!(
        text,
        "-7;9007199254740993;12.50;0.25;1.5;O&#x27;Neil ☃;abc;bytes;2026-11-21;12:30:00;2026-11-21 12:30:00;\
         2026-11-21 12:30:00;True;00112233-4455-6677-8899-aabbccddeeff;{&quot;a&quot;: 1};;"
    );
    assert_eq!(site.get("/find.lrp?i=-7&s=x").ok().await.text, "1");
    assert_eq!(
        site.get("/find.lrp?i=-7&s='%20OR%201=1--").ok().await.text,
        "1"
    );
    site.get("/find.lrp?i=1%20OR%201=1&s=x")
        .fails(
            400,
            "find.lrp:1: parameter 1 of the statement: a text was given, which is not INT4",
        )
        .await;
    site.get("/find.lrp?i=1&s=a%00b")
        .fails(400, "invalid byte sequence")
        .await;
    assert_eq!(site.get("/find.lrp?i=-7&s=x").ok().await.text, "1");
    for page in ["/with.lrp", "/into.lrp", "/explain.lrp"] {
        site.get(page).fails(500, "read-only transaction").await;
        assert_eq!(site.get("/read.lrp").ok().await.text, "-7", "{page}");
    }
    site.get("/slow.lrp")
        .fails(504, "slow.lrp:1: database quick took longer")
        .await;
    site.get("/strange.lrp")
        .fails(
            500,
            "column a can't be read: its type INET is not supported; write CAST(a AS text)",
        )
        .await;
    assert_eq!(
        site.get("/json.lrp").ok().await.text.replace(' ', ""),
        r#"{"a":true,"b":"1"}"#
    );
    let pid = site.get("/pid.lrp").ok().await.text;
    assert_eq!(
        site.get("/pid.lrp").ok().await.text,
        pid,
        "the connection is kept"
    );
    assert_eq!(
        site.get(&format!("/end.lrp?pid={pid}")).ok().await.text,
        "True"
    );
    assert_ne!(
        site.get("/pid.lrp").ok().await.text,
        pid,
        "and made anew when it is lost"
    );
    server.kill();
    site.get("/pid.lrp")
        .fails(503, "pid.lrp:1: database main can't be used")
        .await;
    server.launch();
    site.get("/pid.lrp").ok().await;
}
