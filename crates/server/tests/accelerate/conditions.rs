//! Routes that want more of a request than a path.

use lowroad_testkit::origin::Origin;
use lowroad_testkit::{Folder, Server};

use crate::front::{PROGRAM, response};

fn named(name: &'static str) -> Origin {
    Origin::saying(move |_| response("200 OK", "Cache-Control: max-age=60\r\n", name))
}

fn route(origin: &Origin, lines: &str) -> String {
    format!(
        "[[site.route]]\npattern = \"/**\"\norigin = \"{}\"\n{lines}\n",
        origin.url()
    )
}

fn front(routes: &[String]) -> (Server, Folder) {
    let folder = Folder::new();
    let config = format!(
        "[server]\nworkers = 1\n[[site]]\nroot = \".\"\nlisten = \"127.0.0.1:0\"\n{}",
        routes.concat()
    );
    (Server::run(PROGRAM, &folder, &config), folder)
}

#[test]
fn fields_and_cookies_say_who_answers_and_stored_responses_keep_to_it() {
    let (beta, group, others) = (named("beta"), named("group"), named("others"));
    let (server, _folder) = front(&[
        route(&beta, "header = \"X-Beta: yes\""),
        route(&group, "cookie = \"group\""),
        route(&others, ""),
    ]);
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/", "").text(), "others");
        assert_eq!(client.get("/", "x-beta: yes\r\n").text(), "beta");
        assert_eq!(client.get("/", "X-Beta: no\r\n").text(), "others");
        assert_eq!(client.get("/", "Cookie: a=b; group=1\r\n").text(), "group");
        assert_eq!(client.get("/", "Cookie: groups=1\r\n").text(), "others");
    }
    let got = client.get("/", "");
    assert_eq!(
        got.field("vary"),
        Some("X-Beta, Cookie"),
        "for caches before this one"
    );
    assert_eq!((beta.count(), group.count()), (1, 1), "each is stored");
}

#[test]
fn methods_say_who_answers() {
    let (reads, writes) = (named("reads"), named("writes"));
    let (server, _folder) = front(&[
        route(&reads, "methods = [\"GET\", \"HEAD\"]"),
        route(&writes, "methods = [\"POST\"]"),
    ]);
    let mut client = server.connect();
    let post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(client.get("/", "").text(), "reads");
    client.send(post);
    assert_eq!(client.response().text(), "writes");
    client.send("DELETE / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().status, 404);
}

#[test]
fn a_path_of_a_route_is_no_file_s_whoever_asks() {
    let beta = named("beta");
    let (server, folder) = front(&[route(&beta, "header = \"X-Beta\"")]);
    folder.file("secret.php", "the source");
    let mut client = server.connect();
    let got = client.get("/secret.php", "");
    assert_eq!(got.status, 404);
    assert_eq!(client.get("/secret.php", "X-Beta: 1\r\n").text(), "beta");
}
