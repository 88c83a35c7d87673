//! The template language: escaping, included templates, control of the response, changed files.

use crate::harness::Site;

const ATTACK: &str = "%3Cscript%3E%22'%26%3C/script%3E";

#[tokio::test]
async fn values_are_escaped_in_text_and_attributes() {
    let site = Site::new(&[
        (
            "a.lrp",
            "<p title=\"{{ request.params.x }}\">{{ request.params.x }}</p>",
        ),
        (
            "b.lrp",
            "<script>let x = {{ request.params.x | tojson }};</script>",
        ),
        ("c.lrp", "{{ row('SELECT ? AS x', request.params.x).x }}"),
        (
            "d.lrp",
            "{{ query('SELECT 1 AS a, ? AS b', request.params.x) | tojson }}",
        ),
    ]);
    let safe = "&lt;script&gt;&quot;&#x27;&amp;&lt;&#x2f;script&gt;";
    let text = site.get(&format!("/a.lrp?x={ATTACK}")).ok().await.text;
    assert_eq!(text, format!("<p title=\"{safe}\">{safe}</p>"));
    let text = site.get(&format!("/b.lrp?x={ATTACK}")).ok().await.text;
    assert_eq!(
        text,
        r#"<script>let x = "\u003cscript\u003e\"\u0027\u0026\u003c/script\u003e";</script>"#
    );
    let text = site.get(&format!("/c.lrp?x={ATTACK}")).ok().await.text;
    assert_eq!(text, safe);
    let text = site.get("/d.lrp?x=y").ok().await.text;
    assert_eq!(text.replace(' ', ""), r#"[{"a":1,"b":"y"}]"#);
}

#[tokio::test]
async fn request_object_has_all_parts() {
    let site = Site::new(&[(
        "a.lrp",
        "{{ request.method }} {{ request.path }} {{ request.host }} {{ request.peer }} \
         {{ request.params.a }} {{ request.params.all('a') | join('+') }} [{{ request.params.none }}] \
         {{ request.cookies.c }} {{ request.fields['user-agent'] }}",
    )]);
    let ask = site
        .get("/a.lrp?a=1&a=2")
        .field("Cookie", "c=d%3B")
        .field("User-Agent", "me");
    let text = ask.ok().await.text;
    assert_eq!(text, "GET &#x2f;a.lrp localhost 127.0.0.1 1 1+2 [] d; me");
}

#[tokio::test]
async fn invalid_number_gets_400() {
    let site = Site::new(&[
        ("int.lrp", "{{ request.params.n | int + 1 }}"),
        ("float.lrp", "{{ request.params.n | float }}"),
        ("default.lrp", "{{ request.params.n | int(7) }}"),
        ("own.lrp", "{{ [1] | int }}"),
    ]);
    assert_eq!(site.get("/int.lrp?n=41").ok().await.text, "42");
    assert_eq!(site.get("/float.lrp?n=1.5").ok().await.text, "1.5");
    assert_eq!(site.get("/default.lrp?n=x").ok().await.text, "7");
    for bad in ["/int.lrp?n=x", "/int.lrp?n=", "/float.lrp?n=1,5"] {
        let words = "lrp:1: a text was given, which is not";
        site.get(bad).fails(400, words).await;
    }
    site.get("/own.lrp").fails(500, "int").await;
}

#[tokio::test]
async fn templates_outside_the_site_are_refused() {
    let site = Site::new(&[
        (
            "_layout.lrp",
            "<title>{% block title %}{% endblock %}</title>{% block body %}{% endblock %}",
        ),
        (
            "sub/a.lrp",
            "{% extends '../_layout.lrp' %}{% block title %}A{% endblock %}\
            {% block body %}{% include '_part.lrp' %}{% include '/_whole.lrp' %}{% endblock %}",
        ),
        (
            "sub/_part.lrp",
            "{% from '/_macros.lrp' import twice %}{{ twice('x') }}",
        ),
        (
            "_macros.lrp",
            "{% macro twice(x) %}{{ row('SELECT ? AS v', x ~ x).v }}{% endmacro %}",
        ),
        ("_whole.lrp", "{{ request.path }}"),
        ("out.lrp", "{% include request.params.f %}"),
    ]);
    std::fs::write(site.folder.path().join("secret.lrp"), "secret").expect("a file");
    std::fs::create_dir(site.root().join(".git")).expect("a folder");
    site.write(".git/a.lrp", "hidden");
    site.write("plain.txt", "plain");
    let link = site.root().join("link.lrp");
    std::os::unix::fs::symlink("../secret.lrp", link).expect("a link");
    let text = site.get("/sub/a.lrp").ok().await.text;
    assert_eq!(text, "<title>A</title>xx&#x2f;sub&#x2f;a.lrp");
    for out in [
        "../secret.lrp",
        "/../secret.lrp",
        "sub/../../secret.lrp",
        ".git/a.lrp",
        "plain.txt",
        "/etc/passwd",
    ] {
        let ask = site.get(&format!("/out.lrp?f={out}"));
        ask.fails(500, "is not a template of this site").await;
    }
    site.get("/out.lrp?f=link.lrp")
        .fails(500, "leads out of the site's folder")
        .await;
    site.get("/link.lrp")
        .fails(500, "leads out of the site's folder")
        .await;
    for missing in [
        "/none.lrp",
        "/_layout.lrp",
        "/sub/_part.lrp",
        "/.git/a.lrp",
        "/plain.txt",
        "/sub",
    ] {
        site.get(missing).fails(404, "").await;
    }
}

#[tokio::test]
async fn pages_control_status_fields_and_caching() {
    let site = Site::new(&[
        ("gone.lrp", "{{ status(410) }}{{ header('X-A', 'b') }}gone"),
        (
            "away.lrp",
            "text{{ redirect('/gone.lrp?a=b c') }}{{ 1 / 0 }}",
        ),
        ("open.lrp", "{{ redirect(request.params.to) }}"),
        (
            "json.lrp",
            "{{ header('Content-Type', 'application/json') }}{{ {'a': 1} | tojson }}",
        ),
        ("cookie.lrp", "{{ cookie('a', 'b; c', max_age=60) }}"),
        ("split.lrp", "{{ header('X-A', request.params.x) }}"),
        ("kept.lrp", "{{ cache(60, tags=['items']) }}kept"),
        ("own.lrp", "{{ cache(60) }}{{ request.cookies.a }}"),
        ("mixed.lrp", "{{ cache(60) }}{{ csrf_field() }}"),
    ]);
    let got = site.get("/gone.lrp").ok().await;
    assert_eq!((got.status, got.field("X-A")), (410, "b"));
    let got = site.get("/away.lrp").ok().await;
    assert_eq!(
        (got.status, got.field("Location"), &*got.text),
        (303, "/gone.lrp?a=b%20c", "")
    );
    site.get("/open.lrp?to=//evil.example/")
        .fails(500, "requires a path of this site")
        .await;
    assert_eq!(
        site.get("/json.lrp").ok().await.field("Content-Type"),
        "application/json"
    );
    let got = site.get("/cookie.lrp").ok().await;
    assert_eq!(
        got.field("Set-Cookie"),
        "a=b%3B%20c; Path=/; Max-Age=60; SameSite=Lax; HttpOnly"
    );
    site.get("/split.lrp?x=a%0D%0AX-B:c")
        .fails(500, "control characters")
        .await;
    let got = site.get("/kept.lrp").ok().await;
    assert_eq!(
        (got.field("Cache-Control"), got.field("Cache-Tag")),
        ("max-age=60", "items")
    );
    assert_eq!(
        site.get("/own.lrp").ok().await.field("Cache-Control"),
        "private, max-age=60"
    );
    site.get("/mixed.lrp")
        .fails(500, "contains a form token")
        .await;
}

#[tokio::test]
async fn changed_templates_are_reloaded() {
    let site = Site::new(&[("a.lrp", "{% include '_b.lrp' %}"), ("_b.lrp", "one")]);
    assert_eq!(site.get("/a.lrp").ok().await.text, "one");
    site.write("_b.lrp", "three");
    // Files are checked periodically; until then, the old text is also correct.
    let end = std::time::Instant::now() + lowroad_testkit::TEST_TIMEOUT;
    loop {
        let text = site.get("/a.lrp").ok().await.text;
        if text == "three" {
            break;
        }
        assert_eq!(text, "one");
        assert!(std::time::Instant::now() < end, "the change was never seen");
        std::thread::yield_now();
    }
}
