//! The records of a DNS answer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use simple_dns::rdata::RData;
use simple_dns::{Name, Packet, PacketFlag, QTYPE, RCODE, TYPE};

/// The number of aliases in one answer.
const ALIASES_MAX: usize = 16;
/// The number of records of one answer that are used.
const RECORDS_MAX: usize = 256;

/// The addresses of a host.
pub struct AddressAnswer {
    pub addresses: Vec<IpAddr>,
    pub ttl: Duration,
}

/// A target of a service (RFC 2782).
#[derive(Debug, PartialEq, Eq)]
pub struct ServiceTarget {
    pub host: String,
    pub port: u16,
    pub priority: u16,
    pub weight: u16,
}

/// The answer to a query.
pub struct DnsReply<'p>(&'p Packet<'p>);

/// Checks whether a message is the answer to a query; `None` if it is not. Returns whether it is truncated.
///
/// # Errors
/// The name does not exist (`NotFound`), or the name server has failed.
pub fn check(bytes: &[u8], id: u16, name: &str, kind: TYPE) -> Option<io::Result<bool>> {
    use simple_dns::header_buffer;
    // Only the head of a truncated message is certainly well-formed.
    let is_answer = header_buffer::id(bytes).ok()? == id
        && header_buffer::has_flags(bytes, PacketFlag::RESPONSE).ok()?;
    if !is_answer {
        return None;
    }
    if header_buffer::has_flags(bytes, PacketFlag::TRUNCATION).ok()? {
        return Some(Ok(true));
    }
    // A malformed message is skipped like one of another query.
    let packet = Packet::parse(bytes).ok()?;
    let [question] = &packet.questions[..] else {
        return None;
    };
    if !is_name(&question.qname, name) || question.qtype != QTYPE::TYPE(kind) {
        return None;
    }
    Some(match packet.rcode() {
        RCODE::NoError => Ok(false),
        RCODE::NameError => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("{name} does not exist"),
        )),
        other => Err(io::Error::other(format!("{other:?}"))),
    })
}

fn is_name(name: &Name<'_>, text: &str) -> bool {
    name.to_string()
        .eq_ignore_ascii_case(text.trim_end_matches('.'))
}

impl<'p> DnsReply<'p> {
    pub fn new(packet: &'p Packet<'p>) -> DnsReply<'p> {
        DnsReply(packet)
    }

    /// The name at the end of the aliases (CNAME) of `name` in this answer.
    ///
    /// # Errors
    /// The aliases form a loop, or are too many.
    pub fn alias_end(&self, name: &str) -> io::Result<String> {
        let mut end = name.to_owned();
        for _ in 0..ALIASES_MAX {
            let alias = self.records().find_map(|record| match &record.rdata {
                RData::CNAME(target) if is_name(&record.name, &end) => Some(target.0.to_string()),
                _ => None,
            });
            match alias {
                Some(target) => end = target,
                None => return Ok(end),
            }
        }
        Err(io::Error::other(format!(
            "the aliases of {name} form a loop"
        )))
    }

    /// The addresses of a name.
    pub fn addresses(&self, name: &str) -> Vec<IpAddr> {
        let records = self.records().filter(|record| is_name(&record.name, name));
        records
            .filter_map(|record| match &record.rdata {
                RData::A(a) => Some(IpAddr::V4(Ipv4Addr::from(a.address))),
                RData::AAAA(aaaa) => Some(IpAddr::V6(Ipv6Addr::from(aaaa.address))),
                _ => None,
            })
            .collect()
    }

    /// The targets of a service.
    pub fn services(&self, name: &str) -> Vec<ServiceTarget> {
        let records = self.records().filter(|record| is_name(&record.name, name));
        records
            .filter_map(|record| match &record.rdata {
                RData::SRV(srv) => Some(ServiceTarget {
                    host: srv.target.to_string(),
                    port: srv.port,
                    priority: srv.priority,
                    weight: srv.weight,
                }),
                _ => None,
            })
            // The root as target: the service is not available (RFC 2782).
            .filter(|target| !target.host.is_empty() && target.port != 0)
            .collect()
    }

    /// The shortest time to live of the records.
    pub fn ttl(&self) -> Duration {
        // Aliases count, too: a new alias may name other servers.
        let ttls = self.records().map(|record| record.ttl);
        Duration::from_secs(ttls.min().unwrap_or(u32::MAX).into())
    }

    fn records(&self) -> impl Iterator<Item = &simple_dns::ResourceRecord<'p>> {
        self.0.answers.iter().take(RECORDS_MAX)
    }
}
