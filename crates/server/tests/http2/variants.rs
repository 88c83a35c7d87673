//! As over HTTP/1, fields that a client forges do not select a stored response.

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestClient, TestServer};

use crate::peer::Peer;
use crate::place::PROGRAM;

#[test]
fn forged_user_field_does_not_select_stored_response() {
    let origin = TestOrigin::with_response(|request| {
        let user = request.field("x-forwarded-user").unwrap_or("-");
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
        String::from_utf8_lossy(&peer.receive_response(stream).body).into_owned()
    };
    let alice = "X-Forwarded-User: alice\r\n";
    assert_eq!(proxy.get("/read", alice).text(), "alice");
    assert_eq!(forged("/read"), "-");
    assert_eq!(forged("/poisoned"), "-");
    assert_eq!(proxy.get("/poisoned", alice).text(), "alice");
}
