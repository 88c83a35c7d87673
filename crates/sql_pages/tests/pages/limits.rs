//! Limits: on templates, bodies, rows, calls and time.

use lowroad_testkit::TempFolder;

use crate::harness::{Site, database};

#[tokio::test]
async fn endless_templates_are_aborted() {
    let ten = "{% for a in range(1000) %}";
    let end = "{% endfor %}";
    let site = Site::new(&[
        ("long.lrp", &format!("{ten}{ten}{ten}.{end}{end}{end}")),
        (
            "big.lrp",
            &format!("{{% set x = 'x' * 10000 %}}{ten}{{{{ x }}}}{end}"),
        ),
        ("deep.lrp", "{% include 'deep.lrp' %}"),
        (
            "macro.lrp",
            "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
        ),
        (
            "calls.lrp",
            &format!("{ten}{{% set x = row('SELECT 1 AS a') %}}{end}"),
        ),
        (
            "some.lrp",
            "{% for a in range(50) %}{{ row('SELECT ? AS a', a).a }} {% endfor %}",
        ),
        ("small.lrp", "small"),
    ]);
    // The second time, the page is known to be slow, and is rendered on a separate thread.
    for _ in 0..2 {
        site.get("/long.lrp")
            .fails(500, "long.lrp:1: the template takes too long")
            .await;
    }
    site.get("/big.lrp")
        .fails(500, "longer than 8388608 bytes")
        .await;
    site.get("/deep.lrp").fails(500, "deep.lrp:1: ").await;
    site.get("/macro.lrp").fails(500, "macro.lrp:1: ").await;
    site.get("/calls.lrp")
        .fails(500, "100 database calls")
        .await;
    assert!(site.get("/some.lrp").ok().await.text.ends_with("48 49 "));
    assert_eq!(site.get("/small.lrp").ok().await.text, "small");
}

#[tokio::test]
async fn request_body_is_limited() {
    let page = "{{ request.form.text | length }}";
    let site = Site::new(&[("form.lrp", "{{ csrf_field() }}"), ("a.lrp", page)]);
    let long = "a".repeat((4 << 20) + 1);
    site.post("/a.lrp", &long)
        .fails(
            413,
            "longer than 4194304 bytes, an eighth of the route's memory",
        )
        .await;
    // The limit is `body_len_max`, not the default for forms.
    let text = "a".repeat(3 << 20);
    let form = format!("text={text}");
    let got = site.send_form("/form.lrp", "/a.lrp", &form).await;
    assert_eq!(got.text, text.len().to_string());
}

const COUNT: &str = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 101)";

#[tokio::test]
async fn rows_are_limited() {
    let all = format!("{{{{ query('{COUNT} SELECT n FROM c') | length }}}}");
    let less = format!("{{{{ query('{COUNT} SELECT n FROM c LIMIT 100') | length }}}}");
    let site = Site::new(&[("all.lrp", &all), ("less.lrp", &less)]);
    site.get("/all.lrp").fails(500, "more than 100 rows").await;
    assert_eq!(site.get("/less.lrp").ok().await.text, "100");
}

#[tokio::test]
async fn endless_statements_time_out() {
    let folder = TempFolder::new();
    let url = format!("sqlite:{}", folder.path().join("main.db").display());
    let mut short = database(&url);
    short.timeout_ms = 200;
    short.connections_max = 1;
    let endless = "{{ row('WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) AS n FROM c').n }}";
    let files = [
        ("endless.lrp", endless),
        ("a.lrp", "{{ row('SELECT 7 AS a').a }}"),
    ];
    let site = Site::with(folder, &files, vec![short]);
    for _ in 0..2 {
        site.get("/endless.lrp")
            .fails(
                504,
                "endless.lrp:1: database main took longer than its timeout of 200 ms",
            )
            .await;
        assert_eq!(
            site.get("/a.lrp").ok().await.text,
            "7",
            "its connection is free again"
        );
    }
}
