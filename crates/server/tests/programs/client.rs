//! The client's address as programs see it, with and without proxies.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use lowroad_testkit::{TempFolder, TestClient, TestServer};

use crate::host::PROGRAM;

/// A server that expects PROXY headers from the addresses `introduced`, trusts proxies on this host, and runs a script
/// that returns the client's address.
fn start(folder: &TempFolder, introduced: &str) -> TestServer {
    let script = folder.file(
        "root/who.cgi",
        "#!/bin/sh\nsaid=\"$REMOTE_ADDR,${REMOTE_PORT-none}\"\n\
         printf 'Content-Type: text/plain\\nContent-Length: %d\\n\\n%s' ${#said} \"$said\"\n",
    );
    fs::set_permissions(script, Permissions::from_mode(0o755)).expect("a mode");
    let text = format!(
        "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{}/root\"\n{introduced}\
         trusted_proxies = \"127.0.0.1\"\n[[site.route]]\npattern = \"*.cgi\"\ncgi = true\n",
        folder.path().display()
    );
    TestServer::run(PROGRAM, folder, &text)
}

fn who(client: &mut TestClient, fields: &str) -> String {
    client.get("/who.cgi", fields).text()
}

#[test]
fn programs_get_the_client_port() {
    let folder = TempFolder::new();
    let server = start(&folder, "");
    let mut client = server.connect();
    let own = client.stream().local_addr().expect("it is connected");
    let own = format!("{},{}", own.ip(), own.port());
    assert_eq!(who(&mut client, ""), own);
    // If the proxy reports no port, the port of the proxy itself is not used instead.
    let named = "X-Forwarded-For: 192.0.2.7\r\n";
    assert_eq!(who(&mut client, named), "192.0.2.7,none");
    let named = "X-Forwarded-For: 192.0.2.7:4711\r\n";
    assert_eq!(who(&mut client, named), "192.0.2.7,4711");
    // A client that one request names does not apply to the next request of the connection.
    assert_eq!(who(&mut client, ""), own);
    client.send("POST /who.cgi HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: [2001:db8::7]:9\r\n");
    client.send("Content-Length: 5\r\n\r\nhel");
    client.send("lo");
    assert_eq!(client.response().text(), "2001:db8::7,9");
}

#[test]
fn proxy_header_gives_the_client_port() {
    let folder = TempFolder::new();
    let server = start(&folder, "proxy_protocol = \"127.0.0.1\"\n");
    for (header, told) in [
        (
            "PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n",
            "192.0.2.7,4711",
        ),
        (
            "PROXY TCP6 ::ffff:192.0.2.7 2001:db8::1 9 80\r\n",
            "192.0.2.7,9",
        ),
        ("PROXY TCP4 192.0.2.7 192.0.2.1 0 80\r\n", "192.0.2.7,none"),
    ] {
        let mut client = server.connect();
        client.send(header);
        assert_eq!(who(&mut client, ""), told, "{header}");
    }
    let mut client = server.connect();
    let own = client.stream().local_addr().expect("it is connected");
    client.send("PROXY UNKNOWN\r\n");
    assert_eq!(who(&mut client, ""), format!("127.0.0.1,{}", own.port()));
}
