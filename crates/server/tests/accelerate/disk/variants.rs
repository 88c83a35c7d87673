//! On disk, as in memory, fields that a client forges do not select a variant.

use std::net::IpAddr;

use lowroad_testkit::TestClient;
use lowroad_testkit::origin::{OriginRequest, TestOrigin};

use super::Host;
use crate::front::response;

#[test]
fn forged_user_field_does_not_select_variant_on_disk() {
    let origin = TestOrigin::with_response(|request: &OriginRequest| {
        let fields = match request.target.starts_with("/kept") {
            true => "Cache-Control: max-age=600\r\n",
            false => "Cache-Control: max-age=600\r\nVary: X-Forwarded-User\r\n",
        };
        let user = request.field("x-forwarded-user").unwrap_or("-");
        response("200 OK", fields, &format!("{} {user}", request.target))
    });
    let mut host = Host::with(origin, "1M", "trusted_proxies = \"127.0.0.2\"");
    let get = |host: &Host, from: [u8; 4], path: &str| {
        let mut client = TestClient::connect_from(IpAddr::from(from), host.server().address());
        client.get(path, "X-Forwarded-User: alice\r\n").text()
    };
    let (proxy, stranger) = ([127, 0, 0, 2], [127, 0, 0, 1]);
    for (number, path, first, second) in [
        (1, "/read", proxy, stranger),
        (2, "/poisoned", stranger, proxy),
    ] {
        let page = |from| match from == proxy {
            true => format!("{path} alice"),
            false => format!("{path} -"),
        };
        assert_eq!(get(&host, first, path), page(first));
        // When this page is stored, no other write is in progress.
        host.get_until_stored(&format!("/kept{path}"), number);
        host.start();
        assert_eq!(get(&host, second, path), page(second));
    }
}
