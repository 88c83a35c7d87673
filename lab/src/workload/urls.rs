//! A weighted list of URLs: the traffic of the command `load`, and the base of the static workloads. All requests are
//! built in advance, so that sending one costs a draw and a copy.

mod cookies;
mod request;

use std::sync::Arc;

use super::draw::WeightedChoice;
use super::{
    ClientSession, ConnectionOpening, ExpectedResponse, PerConnection, ReceivedResponse,
    ResponseInterest, TrafficWorkload, WorkloadVersion,
};
use crate::random::SplitMix;
pub(super) use cookies::CookieJar;
use request::PreparedRequest;

/// One URL, and the expected response.
#[derive(Clone, Debug, PartialEq)]
pub struct UrlSpec {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The URL's share of the requests is this divided by the sum of all weights.
    pub weight: f64,
    /// Fields to send in addition to `Host`, `Content-Length` and `Connection`. A `Host` field here replaces the
    /// default one.
    pub fields: Vec<(String, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// The status; `None` for any 2xx or 3xx.
    pub expected_status: Option<u16>,
    /// The expected length of the response's body.
    pub expected_len: Option<u64>,
    /// CRC-32 (IEEE) of the response's body.
    pub crc32: Option<u32>,
}

impl UrlSpec {
    /// A plain GET.
    pub fn get(path: impl Into<String>) -> UrlSpec {
        UrlSpec {
            method: "GET".to_string(),
            path: path.into(),
            weight: 1.0,
            fields: Vec::new(),
            body: Vec::new(),
            expected_status: None,
            expected_len: None,
            crc32: None,
        }
    }
}

/// The common properties of all URLs of a list.
#[derive(Clone, Debug)]
pub(crate) struct UrlStyle {
    /// The value of `Host`.
    pub(crate) host: String,
    /// The HTTP version.
    pub(crate) version: WorkloadVersion,
    /// Requests per connection.
    pub(crate) per_connection: PerConnection,
    /// Whether cookies are stored and sent back.
    pub(crate) cookies: bool,
    /// Share of GET requests that are sent with the date of the files in an If-Modified-Since field.
    pub(crate) conditional: f64,
}

/// A list of URLs as a workload.
#[derive(Clone)]
pub struct UrlWorkload(Arc<UrlList>);

struct UrlList {
    requests: Vec<PreparedRequest>,
    weighted: WeightedChoice,
    classes: Vec<String>,
    style: UrlStyle,
}

impl UrlWorkload {
    /// Creates a weighted list.
    ///
    /// # Errors
    /// A part can't be sent; the text names the fault and a remedy.
    pub fn new(
        specs: Vec<UrlSpec>,
        host: &str,
        version: WorkloadVersion,
        per_connection: PerConnection,
        cookies: bool,
    ) -> Result<UrlWorkload, String> {
        let style = UrlStyle {
            host: host.to_string(),
            version,
            per_connection,
            cookies,
            conditional: 0.0,
        };
        // A class number is a byte, and a table of more classes would be unreadable.
        if specs.len() > 100 {
            let specs = specs.into_iter().map(|spec| (0, spec)).collect();
            return UrlWorkload::with_classes(vec!["all".to_string()], specs, style);
        }
        let classes = specs
            .iter()
            .map(|spec| format!("{} {}", spec.method, spec.path))
            .collect();
        let specs = specs
            .into_iter()
            .enumerate()
            .map(|(index, spec)| (index as u8, spec))
            .collect();
        UrlWorkload::with_classes(classes, specs, style)
    }

    /// Creates a list of URLs in operation classes; each URL has the index of its class in `classes`.
    pub(crate) fn with_classes(
        classes: Vec<String>,
        specs: Vec<(u8, UrlSpec)>,
        style: UrlStyle,
    ) -> Result<UrlWorkload, String> {
        super::wire::check_host(&style.host)?;
        if specs.is_empty() {
            return Err("no URL is given; give at least one".to_string());
        }
        if let Some((_, invalid)) = specs
            .iter()
            .find(|(_, spec)| !(spec.weight >= 0.0 && spec.weight < 1e15))
        {
            let (path, weight) = (&invalid.path, invalid.weight);
            return Err(format!(
                "{path}: {weight} is not a weight; give a number that is not negative"
            ));
        }
        let weights: Vec<f64> = specs.iter().map(|(_, spec)| spec.weight).collect();
        if weights.iter().sum::<f64>() <= 0.0 {
            return Err("all URLs have the weight 0; raise one of them".to_string());
        }
        let requests = specs
            .iter()
            .map(|(class, spec)| PreparedRequest::new(*class, spec, &style))
            .collect::<Result<_, _>>()?;
        Ok(UrlWorkload(Arc::new(UrlList {
            requests,
            weighted: WeightedChoice::new(&weights),
            classes,
            style,
        })))
    }
}

impl TrafficWorkload for UrlWorkload {
    fn classes(&self) -> &[String] {
        &self.0.classes
    }

    fn session(&self, number: u64, seed: u64) -> Box<dyn ClientSession> {
        Box::new(UrlSession {
            list: self.0.clone(),
            random: SplitMix::stream(seed, number),
            cookies: CookieJar::default(),
        })
    }
}

struct UrlSession {
    list: Arc<UrlList>,
    random: SplitMix,
    cookies: CookieJar,
}

impl ClientSession for UrlSession {
    fn open(&mut self) -> ConnectionOpening {
        let style = &self.list.style;
        // HTTP/1.0 without keep-alive closes after each response, regardless of the setting.
        let requests = match style.version {
            WorkloadVersion::Http10 => 1,
            _ => style.per_connection.draw(&mut self.random),
        };
        ConnectionOpening {
            version: style.version,
            requests,
        }
    }

    fn request(&mut self, last: bool, out: &mut Vec<u8>) -> ExpectedResponse {
        let list = &*self.list;
        // A list with a single request needs no random number, which would only cost time.
        let request = match &list.requests[..] {
            [only] => only,
            several => &several[list.weighted.pick(&mut self.random)],
        };
        let share = list.style.conditional;
        // If no conditions are requested, no number is drawn, so a seed gives the same sequence of requests as before.
        let conditional = share > 0.0 && request.can_be_conditional() && self.random.unit() < share;
        if conditional || !self.cookies.is_empty() {
            let extra = if conditional { request::CONDITION } else { "" };
            request.append_with(
                last,
                |out| {
                    out.extend_from_slice(extra.as_bytes());
                    self.cookies.append(out);
                },
                out,
            );
        } else {
            request.append(last, out);
        }
        request.expected(conditional)
    }

    fn handle_response(&mut self, answer: &ReceivedResponse<'_>) {
        if let (true, Some(field)) = (self.list.style.cookies, answer.set_cookie) {
            self.cookies.set(field);
        }
    }

    fn interest(&self) -> ResponseInterest {
        ResponseInterest {
            cookies: self.list.style.cookies,
            text: false,
        }
    }
}

#[cfg(test)]
mod tests;
