//! Pages with SQLite: values of all types, and no SQL injection.

use crate::harness::Site;

const SETUP: &str = "{% do execute('CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, data BLOB)') %}\
    {% do execute('INSERT INTO item (name, price, data) VALUES (?, ?, NULL), (?, ?, ?)', \
    'spade', 9.5, 'rake', 7, 'bytes') %}";

/// Runs a page that writes, through a form.
async fn run(site: &Site, page: &str) {
    site.write("_form.lrp", "");
    site.write("form.lrp", "{{ csrf_field() }}");
    site.write("run.lrp", page);
    site.send_form("/form.lrp", "/run.lrp", "").await;
}

#[tokio::test]
async fn rows_have_their_column_types() {
    let site = Site::new(&[(
        "list.lrp",
        "{% for item in query('SELECT * FROM item ORDER BY name') %}\
         {{ item.id }} {{ item.name }} {{ item.price + 1 }} [{{ item.data }}];{% endfor %}\
         {{ row('SELECT count(*) AS n FROM item').n }} \
         {{ row('SELECT id FROM item WHERE id = ?', 99) is none }}",
    )]);
    run(&site, SETUP).await;
    let got = site.get("/list.lrp").ok().await;
    assert_eq!(got.text, "2 rake 8.0 [bytes];1 spade 10.5 [];2 True");
    assert_eq!(got.field("Content-Type"), "text/html; charset=utf-8");
    assert_eq!(got.field("Cache-Control"), "no-cache");
}

#[tokio::test]
async fn client_data_is_never_part_of_a_statement() {
    let site = Site::new(&[(
        "find.lrp",
        "{% for item in query('SELECT name FROM item WHERE name = ? OR name = ? OR name = ?', \
         request.params.name, request.cookies.name, request.fields['x-name']) %}{{ item.name }};{% endfor %}",
    )]);
    run(&site, SETUP).await;
    let attacks = [
        "'%20OR%201=1%20--%20",
        "%27%20OR%20%271%27=%271",
        "%22%20OR%201=1",
        "x'%3B%20DROP%20TABLE%20item%3B--",
        "%5C%27%20OR%201=1%20--",
        "%00'%20OR%201=1",
        "%EF%BC%87%20OR%201=1",
    ];
    for attack in attacks {
        let ask = site.get(&format!("/find.lrp?name={attack}"));
        let got = ask
            .field("Cookie", &format!("name={attack}"))
            .field("X-Name", attack)
            .ok()
            .await;
        assert_eq!(got.text, "", "{attack}");
    }
    assert_eq!(site.get("/find.lrp?name=rake").ok().await.text, "rake;");
    let got = site
        .get("/find.lrp")
        .field("Cookie", "a=b; name=spade")
        .ok()
        .await;
    assert_eq!(got.text, "spade;");
}

#[tokio::test]
async fn failed_page_rolls_back_its_writes() {
    let site = Site::new(&[
        ("count.lrp", "{{ row('SELECT count(*) AS n FROM item').n }}"),
        (
            "add.lrp",
            "{% set done = execute('INSERT INTO item (name) VALUES (?)', request.form.name) %}\
             {{ done.count }} {{ done.id }}{% if request.form.name == 'bad' %}{{ 1 / 0 }}{% endif %}",
        ),
    ]);
    run(&site, SETUP).await;
    let got = site.send_form("/form.lrp", "/add.lrp", "name=hoe").await;
    assert_eq!(got.text, "1 3");
    let page = site.get("/form.lrp").ok().await;
    let (cookie, token) = crate::harness::tokens(&page);
    let bad = site.post("/add.lrp", &format!("csrf={token}&name=bad"));
    bad.field("Cookie", &cookie).fails(500, "add.lrp:1: ").await;
    assert_eq!(site.get("/count.lrp").ok().await.text, "3");
}

#[tokio::test]
async fn get_requests_cannot_write() {
    let site = Site::new(&[
        ("a.lrp", "{% do execute('CREATE TABLE t (a)') %}"),
        ("b.lrp", "{% do query('CREATE TABLE t (a)') %}"),
        ("c.lrp", "{% do query('/* SELECT */ DELETE FROM t') %}"),
    ]);
    for page in ["/a.lrp", "/b.lrp", "/c.lrp"] {
        site.get(page)
            .fails(500, "GET and HEAD requests can only read")
            .await;
    }
}

#[tokio::test]
async fn statements_that_may_write_run_read_only_in_get() {
    let site = Site::new(&[
        ("count.lrp", "{{ row('SELECT count(*) AS n FROM item').n }}"),
        (
            "read.lrp",
            "{{ row('WITH a AS (SELECT name FROM item) SELECT count(*) AS n FROM a').n }}",
        ),
        (
            "with.lrp",
            "{% do query('WITH a AS (SELECT 1) DELETE FROM item') %}",
        ),
        ("empty.lrp", "{% do execute('DELETE FROM item') %}"),
        ("two.lrp", "{% do query('SELECT 1; DELETE FROM item') %}"),
        (
            "form_with.lrp",
            "{% do query('WITH a AS (SELECT 1) DELETE FROM item') %}{{ 1 / 0 }}",
        ),
    ]);
    run(&site, SETUP).await;
    assert_eq!(site.get("/read.lrp").ok().await.text, "2");
    for page in ["/with.lrp", "/two.lrp"] {
        site.get(page).fails(500, "readonly database").await;
    }
    // In response to a form, the statement may write; its transaction is all or nothing.
    let page = site.get("/form.lrp").ok().await;
    let (cookie, token) = crate::harness::tokens(&page);
    let failing = site.post("/form_with.lrp", &format!("csrf={token}"));
    failing
        .field("Cookie", &cookie)
        .fails(500, "form_with.lrp")
        .await;
    assert_eq!(site.get("/count.lrp").ok().await.text, "2");
    // Connections that were read-only before can write again.
    site.send_form("/form.lrp", "/empty.lrp", "").await;
    assert_eq!(site.get("/count.lrp").ok().await.text, "0");
}

#[tokio::test]
async fn errors_have_file_line_and_reason() {
    let site = Site::new(&[
        (
            "sql.lrp",
            "\n\n{% set x = query('SELECT * FROM absent\nWHERE 1') %}",
        ),
        ("deep.lrp", "a\n{% include 'sub/_part.lrp' %}"),
        ("sub/_part.lrp", "\n{% set x = query('SELEC') %}"),
        ("few.lrp", "{{ query('SELECT ?') }}"),
        ("syntax.lrp", "a\nb\n{% if %}"),
        ("none.lrp", "{{ query('SELECT 1', db='other') }}"),
        ("text.lrp", "\n{{ query('SELECT ' ~ request.params.x) }}"),
        (
            "column.lrp",
            "{% set r = row('SELECT 1 AS a') %}\n{{ r.b }}",
        ),
        ("list.lrp", "{{ query('SELECT ?', [1]) }}"),
    ]);
    for (page, detail) in [
        (
            "/sql.lrp",
            "/root/sql.lrp:3: database main reports: no such table: absent [SELECT * FROM absent]",
        ),
        (
            "/few.lrp",
            "few.lrp:1: the statement has 1 placeholders (?), but 0 values",
        ),
        ("/syntax.lrp", "/root/syntax.lrp:3: syntax error"),
        ("/none.lrp", "none.lrp:1: no database is named \"other\""),
        (
            "/text.lrp",
            "/root/text.lrp:2: the first argument of query must be a literal text",
        ),
        ("/column.lrp", "column.lrp:2: undefined value"),
        (
            "/list.lrp",
            "list.lrp:1: value 1 is a list; a list is allowed only",
        ),
    ] {
        site.get(page).fails(500, detail).await;
    }
    // An included template that writes is refused before its statement runs.
    site.get("/deep.lrp")
        .fails(
            500,
            "/root/sub/_part.lrp:2: GET and HEAD requests can only read",
        )
        .await;
}
