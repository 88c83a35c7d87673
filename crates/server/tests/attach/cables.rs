//! A client and a server that are connected by a link or a router. Frames have partial checksums, as kernels with
//! checksum offload send them.

use lowroad_testkit::net::{CLIENT, CableEnd, DEVICE, NetNamespace, SERVER, pair};

/// A client and a server on one link.
pub struct Cable {
    /// The client, at [`CLIENT`].
    pub client: NetNamespace,
    /// The server, at [`SERVER`].
    pub server: NetNamespace,
}

impl Cable {
    /// Creates the namespaces and the link.
    pub fn new() -> Cable {
        let [client, server] = ["client", "server"].map(namespace);
        let end = |namespace, addresses| CableEnd {
            namespace,
            device: DEVICE,
            addresses: Some(addresses),
        };
        pair(&end(&client, CLIENT), &end(&server, SERVER), 1500).expect("a cable");
        Cable { client, server }
    }
}

/// A client and a server with a router in between. The router's device on the side of the client is `near`.
pub struct Routed {
    /// The client, at 10.78.0.1 and fd78::1.
    pub client: NetNamespace,
    /// The router.
    pub router: NetNamespace,
    /// The server, at [`SERVER`].
    pub server: NetNamespace,
}

impl Routed {
    /// Creates the namespaces and links.
    pub fn new() -> Routed {
        let [client, router, server] = ["client", "router", "server"].map(namespace);
        let end = |namespace, device, addresses: (&str, &str)| CableEnd {
            namespace,
            device,
            addresses: Some((
                addresses.0.parse().expect("IPv4"),
                addresses.1.parse().expect("IPv6"),
            )),
        };
        let near = end(&router, "near", ("10.78.0.254", "fd78::fe"));
        pair(&end(&client, DEVICE, ("10.78.0.1", "fd78::1")), &near, 1500).expect("a cable");
        let far = end(&router, "far", ("10.77.0.254", "fd77::fe"));
        let server_end = CableEnd {
            namespace: &server,
            device: DEVICE,
            addresses: Some(SERVER),
        };
        pair(&server_end, &far, 1500).expect("a cable");
        for (namespace, v4, v6) in [
            (&client, "10.78.0.254", "fd78::fe"),
            (&server, "10.77.0.254", "fd77::fe"),
        ] {
            ip(namespace, &format!("route add default via {v4}"));
            ip(namespace, &format!("-6 route add default via {v6}"));
        }
        for family in ["ipv4", "ipv6"] {
            let all = format!("{family}/conf/all/forwarding");
            router.set(&all, "1").expect("a router");
        }
        Routed {
            client,
            router,
            server,
        }
    }
}

/// Runs `ip` in a namespace.
pub fn ip(namespace: &NetNamespace, words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    namespace.run("ip", &words).expect("ip does it");
}

fn namespace(name: &str) -> NetNamespace {
    NetNamespace::new(name).expect("root")
}
