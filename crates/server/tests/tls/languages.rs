//! Clients written with the standard libraries of Go and Python, which many programs use.

use std::process::Command;

use lowroad_testkit::{TestServer, skip};

use super::support::{Place, ProgramOutput, noise, run};

const ECHO: &str = "#!/bin/sh\nprintf 'Content-Type: application/octet-stream\\n\\n'\ncat\n";

/// A server with the files `small` and `large`, and the program `/cgi/echo`.
fn server(place: &Place) -> TestServer {
    use std::os::unix::fs::PermissionsExt;
    place.certify("a", &["a.example"]);
    place.folder.file("site/small", "hello");
    place.folder.file("site/large", noise(3 << 20));
    let script = place.folder.file("cgi/echo", ECHO);
    std::fs::set_permissions(script, PermissionsExt::from_mode(0o755)).expect("a script");
    let route = "[[site.route]]\npattern = \"/cgi/**\"\ncgi = \"cgi\"\n";
    let limits = "[limits]\nbody_len_max = \"64M\"\n";
    place.run_with(limits, &format!("{}{route}", place.site("a", "", "")))
}

/// Runs a client with the authority's certificate, the server's address, and the large file.
fn visit(place: &Place, server: &TestServer, program: &[&str], input: &str) -> ProgramOutput {
    let mut command = Command::new("timeout");
    command.arg("120").args(program).arg(place.ca());
    command.arg(server.address().to_string());
    command.arg(place.path("site/large"));
    run(&mut command, input.as_bytes())
}

/// Over HTTP/2 and HTTP/1.1: concurrent requests on few connections, bodies of unknown length, cancelled responses, and
/// resumed sessions.
const GO: &str = r#"
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
)

func check(good bool, what ...any) {
	if !good {
		fmt.Println(what...)
		os.Exit(1)
	}
}

func body(response *http.Response, err error) []byte {
	check(err == nil, err)
	check(response.StatusCode == 200, response.Status)
	body, err := io.ReadAll(response.Body)
	check(err == nil, err)
	response.Body.Close()
	return body
}

func visit(client *http.Client, protocol string, large []byte) {
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			response, err := client.Get("https://a.example/small")
			check(string(body(response, err)) == "hello", "small")
			check(response.Proto == protocol, response.Proto)
			check(bytes.Equal(body(client.Get("https://a.example/large")), large), "large")
		})
	}
	all.Wait()
	head, err := client.Head("https://a.example/large")
	check(err == nil && head.ContentLength == int64(len(large)), head, err)
	echoed := body(client.Post("https://a.example/cgi/echo", "text/plain", bytes.NewReader(large)))
	check(bytes.Equal(echoed, large), "echo", len(echoed))
	if protocol == "HTTP/2.0" {
		// Of a length that is not said.
		sent := io.MultiReader(bytes.NewReader(large))
		echoed := body(client.Post("https://a.example/cgi/echo", "text/plain", sent))
		check(bytes.Equal(echoed, large), "echo of unknown length", len(echoed))
	}
	for range 20 {
		given, giveUp := context.WithCancel(context.Background())
		request, _ := http.NewRequestWithContext(given, "GET", "https://a.example/large", nil)
		response, err := client.Do(request)
		check(err == nil, err)
		_, err = io.ReadFull(response.Body, make([]byte, 1000))
		check(err == nil, err)
		giveUp()
		response.Body.Close()
	}
	check(string(body(client.Get("https://a.example/small"))) == "hello", "after giving up")
}

func main() {
	pem, err := os.ReadFile(os.Args[1])
	check(err == nil, err)
	large, err := os.ReadFile(os.Args[3])
	check(err == nil, err)
	roots := x509.NewCertPool()
	check(roots.AppendCertsFromPEM(pem), "no certificate")
	dial := func(context context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(context, network, os.Args[2])
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, protocol := range []string{"HTTP/2.0", "HTTP/1.1"} {
			dialing := func(sessions tls.ClientSessionCache) *http.Client {
				return &http.Client{Transport: &http.Transport{
					DialContext: dial, ForceAttemptHTTP2: protocol == "HTTP/2.0",
					TLSClientConfig: &tls.Config{
						RootCAs: roots, MinVersion: version, MaxVersion: version,
						ClientSessionCache: sessions,
					},
				}}
			}
			visit(dialing(nil), protocol, large)
			// One connection after the other: a dial that Go gives up, because another came first, takes the
			// session out of the cache.
			sessions := tls.NewLRUClientSessionCache(8)
			for _, resumed := range []bool{false, true} {
				response, err := dialing(sessions).Get("https://a.example/small")
				check(string(body(response, err)) == "hello", "small")
				check(response.TLS.Version == version, response.TLS.Version)
				check(response.TLS.DidResume == resumed, resumed, version, protocol)
			}
		}
	}
	fmt.Println("done")
}
"#;

#[test]
fn go_client_is_served() {
    let place = Place::new();
    place.folder.file("go/main.go", GO);
    let program = place.path("go/program");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg("main.go");
    build
        .current_dir(place.path("go"))
        .env("GO111MODULE", "off");
    match build.output() {
        Ok(built) if built.status.success() => {}
        built => return skip("go_client_is_served", &format!("no go: {built:?}")),
    }
    let server = server(&place);
    let program = program.display().to_string();
    let said = visit(&place, &server, &[&program], "");
    assert_eq!(said.text(), "done\n", "{}", said.errors);
    assert_eq!(place.count("handshake_failures"), 0);
}

/// With `http.client`: several requests on a connection, bodies in both directions, and resumed sessions.
const PYTHON: &str = r#"
import http.client, socket, ssl, sys
large = open(sys.argv[3], "rb").read()
host, port = sys.argv[2].split(":")

class Connection(http.client.HTTPSConnection):
    session = None
    def connect(self):
        raw = socket.create_connection((host, int(port)))
        self.sock = self._context.wrap_socket(
            raw, server_hostname="a.example", session=self.session)

def ask(connection, method, path, body=None, **more):
    connection.request(method, path, body, **more)
    response = connection.getresponse()
    assert response.status == 200, response.status
    return response.read()

for version in [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]:
    context = ssl.create_default_context(cafile=sys.argv[1])
    context.minimum_version = context.maximum_version = version
    connection = Connection("a.example", context=context)
    for _ in range(20):
        assert ask(connection, "GET", "/small") == b"hello"
    assert ask(connection, "GET", "/large") == large
    assert ask(connection, "HEAD", "/large") == b""
    assert ask(connection, "POST", "/cgi/echo", large) == large
    again = Connection("a.example", context=context)
    again.session = connection.sock.session
    assert ask(again, "GET", "/small") == b"hello"
    assert again.sock.session_reused, version
    connection.close()
    again.close()
print("done")
"#;

#[test]
fn python_client_is_served() {
    let place = Place::new();
    let server = server(&place);
    let said = visit(&place, &server, &["python3", "-"], PYTHON);
    if said.code == Some(127) {
        return skip("python_client_is_served", "no python3");
    }
    assert_eq!(said.text(), "done\n", "{}", said.errors);
    assert_eq!(place.count("handshake_failures"), 0);
}
