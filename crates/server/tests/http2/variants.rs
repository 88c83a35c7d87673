//! Fields that a client forges select no stored response, as over HTTP/1.

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestClient, TestServer};

use crate::peer::Peer;
use crate::place::PROGRAM;

#[test]
fn a_forged_user_gets_no_page_of_that_user() {
    let origin = TestOrigin::with_response(|asked| {
        let user = asked.field("x-forwarded-user").unwrap_or("-");
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nVary: X-Forwarded-User\r\n\
             Content-Length: {}\r\n\r\n{user}",
            user.len()
        )
    });
    let folder = TempFolder::new();
    let config = format!(
        "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\ntrusted_proxies = \"127.0.0.2\"\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"{}\"\n",
        origin.url()
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    let mut proxy = TestClient::connect_from([127, 0, 0, 2].into(), server.address());
    let mut peer = Peer::connect(server.address());
    let mut forged = |path: &str| {
        let stream = peer.get_with(path, b"x-forwarded-user: alice\r\n");
        String::from_utf8_lossy(&peer.whole(stream).body).into_owned()
    };
    let alice = "X-Forwarded-User: alice\r\n";
    assert_eq!(proxy.get("/read", alice).text(), "alice");
    assert_eq!(forged("/read"), "-");
    assert_eq!(forged("/poisoned"), "-");
    assert_eq!(proxy.get("/poisoned", alice).text(), "alice");
}
