//! The attempts at upstream servers as values of variables: one value for each attempt, separated by commas as in nginx.

use std::io::Write;

use lowroad_engine::upstream_tries::UpstreamTry;
use lowroad_log::UpstreamTexts;
use lowroad_log::decimal::{decimal, thousandths};

/// The values of the variables.
#[derive(Default)]
pub(crate) struct UpstreamColumns {
    address: Vec<u8>,
    status: Vec<u8>,
    connect_time: Vec<u8>,
    header_time: Vec<u8>,
    response_time: Vec<u8>,
}

impl UpstreamColumns {
    /// The values for these attempts.
    pub(crate) fn new(tries: &[UpstreamTry]) -> UpstreamColumns {
        UpstreamColumns {
            address: column(tries, |it, out| {
                out.extend_from_slice(it.address.as_bytes());
            }),
            status: column(tries, |it, out| match it.status {
                0 => out.push(b'-'),
                // Writing into memory cannot fail.
                status => drop(write!(out, "{status}")),
            }),
            connect_time: column(tries, |it, out| seconds(it.connect_us, out)),
            header_time: column(tries, |it, out| seconds(it.header_us, out)),
            response_time: column(tries, |it, out| seconds(Some(it.response_us), out)),
        }
    }

    pub(crate) fn texts(&self) -> UpstreamTexts<'_> {
        UpstreamTexts {
            address: &self.address,
            status: &self.status,
            connect_time: &self.connect_time,
            header_time: &self.header_time,
            response_time: &self.response_time,
        }
    }
}

fn column(tries: &[UpstreamTry], write: impl Fn(&UpstreamTry, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, upstream_try) in tries.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        write(upstream_try, &mut out);
    }
    out
}

fn seconds(time_us: Option<u64>, out: &mut Vec<u8>) {
    match time_us {
        Some(time_us) => {
            decimal(time_us / 1_000_000, out);
            out.push(b'.');
            thousandths(time_us / 1000, out);
        }
        None => out.push(b'-'),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lowroad_engine::upstream_tries::UpstreamTries;

    use super::*;

    #[test]
    fn every_attempt_has_a_value_in_each_column() {
        let tries = Arc::new(UpstreamTries::default());
        tries.begin("192.0.2.1:80").failed(502);
        tries.begin("unix:/run/app").connected(true);
        let mut all = tries.snapshot();
        (all[0].response_us, all[1].response_us) = (1_234_567, 89);
        let columns = UpstreamColumns::new(&all);
        let texts = columns.texts();
        assert_eq!(texts.address, b"192.0.2.1:80, unix:/run/app");
        assert_eq!(texts.status, b"502, -");
        assert_eq!(texts.connect_time, b"-, 0.000");
        assert_eq!(texts.header_time, b"-, -");
        assert_eq!(texts.response_time, b"1.234, 0.000");
    }
}
