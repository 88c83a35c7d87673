//! Lists as statement values, and sorting chosen by the client, as in `docs/pages.md`.

use lowroad_testkit::TempFolder;

use crate::harness::{Site, database};
use crate::servers::{Kind, Server};

const SETUP: &str = "{% do execute('CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(9), price INT)') %}\
    {% do execute(\"INSERT INTO item VALUES (1, 'c', 30), (2, 'a', 20), (3, 'b', 10)\") %}{{ csrf_field() }}";
const SHOWN: &str = "{% for item in items %}{{ item.name }}{% endfor %}";
const LIST: &str = "{% set ids = request.params.all('id') %}\
    {% set items = query('SELECT name FROM item WHERE id IN (?) AND price < ? ORDER BY id', ids, 100) %}";
const OTHERS: &str =
    "{% set items = query('SELECT name FROM item WHERE id NOT IN (?) ORDER BY id', [1, 2, 2]) %}";
const ORDER: &str = "{% set sort = request.params.sort %}\
    {% set items = query(\"SELECT name FROM item ORDER BY CASE WHEN ? = 'price' THEN price END, \
    CASE WHEN ? = 'new' THEN id END DESC, name\", sort, sort) %}";
const BRANCHES: &str = "{% if request.params.sort == 'price' %}\
    {% set items = query('SELECT name FROM item ORDER BY price') %}\
    {% else %}{% set items = query('SELECT name FROM item ORDER BY name') %}{% endif %}";

/// MariaDB's alternative to `IN (?)`; also works without the template engine, and in the image (`docs/image.md`).
const SET: &str = "{% set items = query('SELECT name FROM item WHERE FIND_IN_SET(id, ?) ORDER BY id', \
    request.params.ids or '') %}";

/// A target, and the names in its response.
const ANSWERS: [(&str, &str); 10] = [
    ("/list.lrp?id=3", "b"),
    ("/list.lrp?id=3&id=1", "cb"),
    ("/list.lrp?id=1&id=2&id=3&id=9&id=9", "cab"),
    ("/list.lrp", ""),
    ("/others.lrp", "b"),
    ("/order.lrp", "abc"),
    ("/order.lrp?sort=price", "bac"),
    ("/order.lrp?sort=new", "bac"),
    ("/branches.lrp", "abc"),
    ("/branches.lrp?sort=price", "bac"),
];

async fn shows(site: &Site) {
    site.write("form.lrp", "{{ csrf_field() }}");
    site.write("setup.lrp", SETUP);
    site.send_form("/form.lrp", "/setup.lrp", "").await;
    for (name, page) in [
        ("list", LIST),
        ("others", OTHERS),
        ("order", ORDER),
        ("branches", BRANCHES),
    ] {
        site.write(&format!("{name}.lrp"), &format!("{page}{SHOWN}"));
    }
    for (target, wanted) in ANSWERS {
        assert_eq!(site.get(target).ok().await.text, wanted, "{target}");
    }
}

#[tokio::test]
async fn sqlite() {
    let site = Site::new(&[]);
    shows(&site).await;
    site.write(
        "elsewhere.lrp",
        "{{ query('SELECT ?', request.params.all('id')) }}",
    );
    site.get("/elsewhere.lrp?id=1")
        .fails(500, "value 1 is a list; a list is allowed only in IN (?)")
        .await;
    // As many values as a client can send are accepted; a list of lists is not.
    let ids = "id=3&".repeat(1_200);
    let target = format!("/list.lrp?{ids}");
    assert_eq!(site.get(&target).ok().await.text, "b");
    site.write(
        "nested.lrp",
        "{{ query('SELECT 1 WHERE 1 IN (?)', [[1]]) }}",
    );
    site.get("/nested.lrp")
        .fails(500, "only single values")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers() {
    for kind in [Kind::MariaDb, Kind::Postgres] {
        let Some(server) = Server::start(kind, "lists::servers") else {
            return;
        };
        let site = Site::with(TempFolder::new(), &[], vec![database(&server.url)]);
        shows(&site).await;
        if kind == Kind::MariaDb {
            site.write("set.lrp", &format!("{SET}{SHOWN}"));
            assert_eq!(site.get("/set.lrp?ids=1,3").ok().await.text, "cb");
            assert_eq!(site.get("/set.lrp").ok().await.text, "");
        }
    }
}
