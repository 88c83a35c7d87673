//! Whether a request belongs to a class. Knows nothing of what classes may have.

use std::net::IpAddr;

use lowroad_config::{FieldLine, Members, Name};
use lowroad_http::host;
use lowroad_http::request::Request;

/// What classes look at of a request.
pub struct Asked<'a> {
    request: &'a Request<'a>,
    /// Normalised; empty if none was named.
    host: &'a [u8],
    peer: IpAddr,
}

impl<'a> Asked<'a> {
    /// Prepares a request; the buffer is for the host.
    pub fn new(request: &'a Request<'a>, peer: IpAddr, buffer: &'a mut [u8; 256]) -> Asked<'a> {
        let authority = request.authority.unwrap_or_default();
        Asked {
            request,
            host: host::normalize(authority, buffer).unwrap_or_default(),
            peer,
        }
    }

    /// Whether the request matches each list that is not empty, except paths.
    pub fn is_in(&self, members: &Members) -> bool {
        one_of(&members.hosts, |name| is_named(name, self.host))
            && one_of(&members.addresses, |prefix| prefix.has(self.peer))
            && one_of(&members.headers, |line| self.has(line))
    }

    fn has(&self, line: &FieldLine) -> bool {
        let value = line.value.as_ref().map(|value| value.as_bytes());
        self.request.fields().any(|(name, found)| {
            name.eq_ignore_ascii_case(line.name.as_bytes())
                && value.is_none_or(|value| value == found.trim_ascii())
        })
    }
}

/// Whether a list says nothing, or one of it is met.
fn one_of<T>(list: &[T], is_met: impl FnMut(&T) -> bool) -> bool {
    list.is_empty() || list.iter().any(is_met)
}

fn is_named(name: &Name, host: &[u8]) -> bool {
    match name {
        Name::Exact(name) => host == name.as_bytes(),
        Name::Wildcard(suffix) => {
            let labels = host.strip_suffix(suffix.as_bytes());
            let labels = labels.and_then(|labels| labels.strip_suffix(b"."));
            labels.is_some_and(|labels| !labels.is_empty())
        }
        Name::Default => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_config::Prefix;
    use lowroad_http::h1::parse;
    use lowroad_http::limits::Limits;

    fn is_in(members: &Members, head: &str, peer: &str) -> bool {
        let head = head.replace('\n', "\r\n");
        let Ok(Some(head)) = parse(head.as_bytes(), &Limits::default()) else {
            panic!("it is a request");
        };
        let peer = peer.parse().expect("an address");
        let mut buffer = [0; 256];
        Asked::new(&head.request, peer, &mut buffer).is_in(members)
    }

    const HEAD: &str = "GET /api/x HTTP/1.1\nHost: A.example.com:81\nX-Tier:  gold \n\n";

    fn api(head: &str, members: &Members) -> bool {
        is_in(members, head, "192.0.2.1")
    }

    #[test]
    fn each_list_counts_and_of_a_list_one_is_enough() {
        let all = Members {
            hosts: vec![
                Name::Exact("b".into()),
                Name::Wildcard("example.com".into()),
            ],
            routes: Vec::new(),
            addresses: vec![Prefix::parse("192.0.2.0/24").expect("a prefix")],
            headers: vec![FieldLine {
                name: "x-tier".into(),
                value: Some("gold".into()),
            }],
        };
        assert!(is_in(&all, HEAD, "192.0.2.1"));
        assert!(!is_in(&all, HEAD, "192.0.3.1"));
        assert!(!api(&HEAD.replace("gold", "Gold"), &all));
        assert!(!api(&HEAD.replace("X-Tier", "X-Tie"), &all));
        assert!(!api(&HEAD.replace("A.example", "example"), &all));
        assert!(api(&HEAD.replace("A.example.com", "b"), &all));
        assert!(api("GET / HTTP/1.0\n\n", &Members::default()));
        assert!(!api("GET / HTTP/1.0\n\n", &all));
    }

    #[test]
    fn a_field_without_a_value_is_enough_by_its_name() {
        let members = Members {
            headers: vec![FieldLine {
                name: "Authorization".into(),
                value: None,
            }],
            ..Members::default()
        };
        assert!(api(
            "GET / HTTP/1.1\nHost: a\nauthorization: x\n\n",
            &members
        ));
        assert!(!api(HEAD, &members));
    }
}
