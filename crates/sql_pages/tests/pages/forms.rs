//! CSRF tokens: only forms of the site itself are accepted.

use lowroad_http::method::Method;

use crate::harness::{Site, tokens};

fn site() -> Site {
    Site::new(&[
        (
            "form.lrp",
            "<form method=\"post\">{{ csrf_field() }}</form>",
        ),
        (
            "to.lrp",
            "{{ request.form.a }}|{{ request.body | length > 0 }}|{{ csrf_token() | length }}",
        ),
    ])
}

#[tokio::test]
async fn form_with_valid_token_is_accepted() {
    let mut site = site();
    let got = site.send_form("/form.lrp", "/to.lrp", "a=%3Cb%3E").await;
    assert_eq!(got.text, "&lt;b&gt;|True|64");
    let page = site.get("/form.lrp").ok().await;
    assert_eq!(page.field("Cache-Control"), "private, no-store");
    assert!(
        page.field("Set-Cookie")
            .ends_with("; Path=/; SameSite=Lax; HttpOnly")
    );
    let (cookie, token) = tokens(&page);
    let again = site.get("/form.lrp").field("Cookie", &cookie).ok().await;
    assert_eq!(
        again.field("Set-Cookie"),
        "",
        "one cookie does for all forms"
    );
    let script = site.post("/to.lrp", "a=b").method(Method::Delete);
    let script = script
        .field("X-CSRF-Token", &token)
        .field("Cookie", &cookie);
    assert!(script.ok().await.text.starts_with("b|"));
    site.reload();
    let repeated_cookie = site
        .post("/to.lrp", &format!("csrf={token}"))
        .field("Cookie", &cookie);
    assert_eq!(repeated_cookie.ok().await.status, 200);
}

#[tokio::test]
async fn form_without_valid_token_is_refused() {
    let site = site();
    let (cookie, token) = tokens(&site.get("/form.lrp").ok().await);
    let (other_cookie, other_token) = tokens(&site.get("/form.lrp").ok().await);
    let with = |token: &str| format!("csrf={token}&a=b");
    let wrong = "0".repeat(64);
    for (form, cookies) in [
        ("a=b".to_string(), &*cookie),
        (with(""), &cookie),
        (with(&wrong), &cookie),
        (with(&other_token), &cookie),
        (with(&token), &other_cookie),
        (with(&token), "a=b"),
        (with(&token), "lowroad_csrf="),
    ] {
        let ask = site.post("/to.lrp", &form).field("Cookie", cookies);
        ask.fails(403, "csrf_field()").await;
    }
    for method in [Method::Put, Method::Patch, Method::Delete] {
        let ask = site.get("/to.lrp").method(method).field("Cookie", &cookie);
        ask.fails(403, "csrf_field()").await;
    }
    let plain = site
        .get("/to.lrp")
        .method(Method::Post)
        .field("Content-Type", "text/plain");
    plain
        .field("Cookie", &cookie)
        .body(with(&token))
        .fails(403, "")
        .await;
    site.post("/none.lrp", "").fails(404, "").await;
}

#[tokio::test]
async fn token_is_bound_to_host_and_sec_fetch_site_is_checked() {
    let site = site();
    let page = site.get("/form.lrp").host("a.example").ok().await;
    let (cookie, token) = tokens(&page);
    let form = format!("csrf={token}&a=b");
    let ask = || site.post("/to.lrp", &form).field("Cookie", &cookie);
    assert_eq!(ask().host("a.example").ok().await.status, 200);
    ask().host("b.example").fails(403, "csrf_field()").await;
    for (from, refused) in [
        ("same-origin", false),
        ("none", false),
        ("cross-site", true),
    ] {
        let ask = ask().host("a.example").field("Sec-Fetch-Site", from);
        match refused {
            true => ask.fails(403, "another site").await,
            false => assert_eq!(ask.ok().await.status, 200),
        }
    }
    let link = site.get("/form.lrp").field("Sec-Fetch-Site", "cross-site");
    assert_eq!(link.ok().await.status, 200, "links may lead here");
}

#[tokio::test]
async fn personal_pages_are_not_cached_by_shared_caches() {
    let control = "{{ header('Cache-Control', 'public, max-age=60') }}";
    let site = Site::new(&[
        ("token.lrp", &format!("{control}{{{{ csrf_token() }}}}")),
        ("set.lrp", &format!("{control}{{{{ cookie('a', 'b') }}}}")),
        (
            "cookies.lrp",
            &format!("{control}{{{{ request.cookies.a }}}}"),
        ),
        ("all.lrp", control),
    ]);
    let cookie = format!("lowroad_csrf={}", "0".repeat(32));
    for (page, want) in [
        ("/token.lrp", "private, no-store"),
        ("/set.lrp", "private, no-store"),
        ("/cookies.lrp", "private, max-age=60"),
        ("/all.lrp", "public, max-age=60"),
    ] {
        let got = site.get(page).field("Cookie", &cookie).ok().await;
        assert_eq!(got.field("Cache-Control"), want, "{page}");
    }
}

#[tokio::test]
async fn multipart_forms_are_accepted() {
    let site = site();
    let (cookie, token) = tokens(&site.get("/form.lrp").ok().await);
    let part = |name: &str, value: &str| {
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let body = part("csrf", &token) + &part("a", "<é>") + "--x--\r\n";
    let ask = site
        .get("/to.lrp")
        .method(Method::Post)
        .body(body)
        .field("Cookie", &cookie);
    let ask = ask.field("Content-Type", "multipart/form-data; boundary=x");
    assert!(ask.ok().await.text.starts_with("&lt;é&gt;|"));
    let broken = site.get("/to.lrp").method(Method::Post).body("--x\r\n");
    let broken = broken.field("Content-Type", "multipart/form-data; boundary=x");
    broken.fails(400, "the form is malformed").await;
}
