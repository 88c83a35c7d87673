//! The pages in `examples/pages`: each one works unchanged, with its tables.

use std::path::Path;

use lowroad_testkit::TempFolder;
use sqlx::Connection;

use crate::harness::{Site, database};
use crate::servers::{Kind, Server};

fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pages");
    std::fs::read_to_string(folder.join(name)).expect("an example")
}

fn page_example(name: &str) -> String {
    example(&format!("www/{name}"))
}

#[test]
fn example_root_contains_pages_only() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pages/lowroad.toml");
    let config = lowroad_config::load(&file, &[]).expect("a configuration");
    let lowroad_config::SiteRoot::Folder(root) = &config.sites[0].root else {
        panic!("the root depends on the host");
    };
    let database = config.databases[0].url.trim_start_matches("sqlite:");
    assert!(!Path::new(database).starts_with(root), "{database}");
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(path.extension().expect("an ending"), "lrp", "{path:?}");
            }
        }
    }
}

/// A site with some of the pages, and an SQLite database.
async fn site(sql: &str, pages: &[&str]) -> Site {
    let folder = TempFolder::new();
    let url = format!(
        "sqlite:{}?mode=rwc",
        folder.path().join("site.db").display()
    );
    let mut link = sqlx::SqliteConnection::connect(&url)
        .await
        .expect("a database");
    sqlx::raw_sql(&example(sql))
        .execute(&mut link)
        .await
        .expect("tables");
    link.close().await.expect("an end");
    let texts = pages.iter().map(|name| (*name, page_example(name)));
    let texts: Vec<_> = texts.collect();
    let files: Vec<_> = texts.iter().map(|(name, text)| (*name, &**text)).collect();
    let mut configured = database(&url);
    configured.rows_max = 10_000;
    Site::with(folder, &files, vec![configured])
}

async fn check_sizes(site: &Site) {
    assert_eq!(site.get("/bare.lrp").ok().await.text.len(), 211);
    for size in [211, 10_217, 19_248] {
        let text = site.get(&format!("/bare.lrp?size={size}")).ok().await.text;
        assert_eq!(text.len(), size);
    }
}

#[tokio::test]
async fn bare_page_has_expected_sizes() {
    check_sizes(&site("bare.sql", &["bare.lrp"]).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bare_page_has_expected_sizes_with_servers() {
    for (kind, test) in [
        (Kind::MariaDb, "examples::mariadb"),
        (Kind::Postgres, "examples::postgres"),
    ] {
        let Some(server) = Server::start(kind, test) else {
            return;
        };
        match kind {
            Kind::MariaDb => {
                let setup = database(&server.url);
                let site = Site::with(TempFolder::new(), &[], vec![setup]);
                site.write("form.lrp", "{{ csrf_field() }}");
                let sql = example("bare.sql");
                let statements = sql
                    .split_terminator(";\n")
                    .filter(|it| !it.trim().is_empty());
                for (at, statement) in statements.enumerate() {
                    let page = format!("{{% do execute(\"{statement}\") %}}");
                    site.write(&format!("{at}.lrp"), &page);
                    site.send_form("/form.lrp", &format!("/{at}.lrp"), "").await;
                }
            }
            Kind::Postgres => {
                let mut link = sqlx::PgConnection::connect(&server.url)
                    .await
                    .expect("a link");
                sqlx::raw_sql(&example("bare.sql"))
                    .execute(&mut link)
                    .await
                    .expect("tables");
            }
        }
        let mut configured = database(&server.url);
        configured.rows_max = 10_000;
        let page = page_example("bare.lrp");
        let site = Site::with(TempFolder::new(), &[("bare.lrp", &page)], vec![configured]);
        check_sizes(&site).await;
        if std::env::var_os("LOWROAD_COST").is_some() {
            crate::cost::print_cost(kind, &site).await;
        }
    }
}

#[tokio::test]
async fn guestbook_accepts_and_escapes_entries() {
    let site = site(
        "guestbook.sql",
        &["guestbook/index.lrp", "guestbook/_layout.lrp"],
    )
    .await;
    let page = "/guestbook/index.lrp";
    assert!(
        site.get(page)
            .ok()
            .await
            .text
            .contains("Nobody has written yet.")
    );
    let got = site
        .send_form(page, page, "name=%3CO%27Neil%3E&text=%3Cscript%3E').--")
        .await;
    assert_eq!((got.status, got.field("Location")), (303, page));
    let text = site.get(page).ok().await.text;
    assert!(
        text.contains("<b>&lt;O&#x27;Neil&gt;</b>") && text.contains("&lt;script&gt;&#x27;).--"),
        "{text}"
    );
    let got = site.send_form(page, page, "name=me&text=+").await;
    assert_eq!(got.status, 422);
    assert!(got.text.contains("value=\"me\"") && !got.text.contains("<b>me</b>"));
}
