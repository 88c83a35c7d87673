//! Active health checks of origin servers by GET requests. `lowroad_origin::checks` schedules them.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use lowroad_config::{OriginCheck, OriginHost, ProxyProtocol};
use lowroad_engine::WorkerHandle;
use lowroad_engine::tasks::TaskHandle;
use lowroad_handler::operator_notice::OperatorNotice;
use lowroad_http::fields::FieldLines;
use lowroad_http::h1::BodyLen;
use lowroad_http::h2::{OutgoingRequest, put_lines};
use lowroad_http::method::Method;
use lowroad_http::proxy_protocol::{ProxyAddresses, write_v1, write_v2};
use lowroad_http::status::StatusCode;
use lowroad_origin::checks::{self, CheckSettings, HealthChange, HealthCheck};
use lowroad_origin::group::MemberId;
use lowroad_origin::{AcquireTimeouts, MultiplexedConnection, Upstream};

use super::connect_errors::unavailable_text;
use super::h2::{H2Link, LinkOwner, RequestHead};
use super::link::{OriginLink, ResponseEvent};
use super::servers::{OriginEndpoint, mixed};

/// The health checks of the servers of an origin.
pub struct HealthChecks {
    settings: OriginCheck,
    host: OriginHost,
    proxy_protocol: Option<ProxyProtocol>,
    upstream: Weak<Upstream<Arc<OriginEndpoint>>>,
    workers: Arc<[WorkerHandle]>,
    notice: OperatorNotice,
    tasks: Mutex<HashMap<MemberId, TaskHandle>>,
    /// The number of checks started so far, which distributes them over the workers.
    count: AtomicU64,
}

/// The health check of one server.
struct HealthProbe {
    worker: usize,
    timeouts: AcquireTimeouts,
    settings: OriginCheck,
    head: Vec<u8>,
    lines: Vec<u8>,
    host: Box<[u8]>,
}

const USER_AGENT: &[u8] = b"User-Agent: lowroad (check)\r\n";

impl HealthChecks {
    /// Prepares checks for the members of `upstream`; no check is started yet. `notice` is called when a member's
    /// health changes.
    pub fn new(
        origin: &lowroad_config::OriginConfig,
        settings: &OriginCheck,
        upstream: &Arc<Upstream<Arc<OriginEndpoint>>>,
        workers: Arc<[WorkerHandle]>,
        notice: OperatorNotice,
    ) -> HealthChecks {
        HealthChecks {
            settings: settings.clone(),
            host: origin.host.clone(),
            proxy_protocol: origin.proxy_protocol,
            upstream: Arc::downgrade(upstream),
            workers,
            notice,
            tasks: Mutex::default(),
            count: AtomicU64::new(0),
        }
    }

    /// Starts the health checks of a member.
    pub fn begin(&self, member: MemberId) {
        let Some(upstream) = self.upstream.upgrade() else {
            return;
        };
        let Some(endpoint) = upstream.with(|group| group.target(member).cloned()) else {
            return;
        };
        // Workers are chosen round-robin.
        let worker = self.count.fetch_add(1, Relaxed) as usize % self.workers.len();
        let check_settings = CheckSettings {
            interval: Duration::from_millis(self.settings.interval_ms),
            timeout: Duration::from_millis(self.settings.timeout_ms),
            ..CheckSettings::default()
        };
        // Each member has its own random sequence, so that checks of several members are spread in time.
        let random_counter = AtomicU64::new(self.count.load(Relaxed) << 32);
        let random = move || mixed(random_counter.fetch_add(1, Relaxed));
        let probe = Arc::new(self.build_probe(worker, &endpoint));
        let notice = self.notice.clone();
        let on_result = move |has_passed, change| {
            endpoint.counters.count_check(has_passed);
            match change {
                None => {}
                Some(HealthChange::Up) => {
                    notice(&format!("{} is healthy again", endpoint.name), None)
                }
                Some(HealthChange::Down(reason)) => {
                    notice(&format!("{} is unhealthy: {reason}", endpoint.name), None);
                    endpoint.record_failure(&reason);
                }
            }
        };
        // The handle is kept in `tasks`, because dropping it ends the checks.
        let task = checks::begin(
            &upstream,
            member,
            probe,
            check_settings,
            &self.workers[worker],
            Arc::new(random),
            on_result,
        );
        self.tasks().insert(member, task);
    }

    /// Ends the health checks of a member.
    pub fn end(&self, member: MemberId) {
        // Dropped after unlocking, because ending a check may close its socket.
        let task = self.tasks().remove(&member);
        drop(task);
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, HashMap<MemberId, TaskHandle>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn build_probe(&self, worker: usize, endpoint: &OriginEndpoint) -> HealthProbe {
        let mut head = Vec::new();
        // A health check has no client: the PROXY header is UNKNOWN (version 1) or LOCAL (version 2).
        match self.proxy_protocol {
            None => {}
            Some(ProxyProtocol::V1) => write_v1(&mut head, ProxyAddresses::Unknown),
            Some(ProxyProtocol::V2) => write_v2(&mut head, ProxyAddresses::Local),
        }
        let host = match &self.host {
            OriginHost::Name(name) => name.as_bytes(),
            OriginHost::Client | OriginHost::Origin => &endpoint.host,
        };
        let lines: [&[u8]; 5] = [
            b"Host: ",
            host,
            // Each check uses a new connection, which the origin need not keep.
            b"\r\n",
            USER_AGENT,
            b"Connection: close\r\n",
        ];
        HealthProbe {
            worker,
            timeouts: AcquireTimeouts::from_total(Duration::from_millis(self.settings.timeout_ms)),
            settings: self.settings.clone(),
            head,
            lines: lines.concat(),
            host: host.into(),
        }
    }
}

impl HealthCheck<Arc<OriginEndpoint>> for HealthProbe {
    async fn check(&self, endpoint: &Arc<OriginEndpoint>, _: &WorkerHandle) -> Result<(), String> {
        // The check uses a new connection, since a pooled one would not show whether the server accepts connections.
        let link = endpoint.pool().connect(self.worker, self.timeouts).await;
        let mut link =
            link.map_err(|unavailable| unavailable_text(&unavailable, self.timeouts, ""))?;
        if link.is_h2 {
            return self.check_h2(endpoint, link).await;
        }
        let mut out = self.head.clone();
        let (path, lines) = (self.settings.path.as_bytes(), &self.lines);
        let encoded = link
            .http
            .request(Method::Get, path, lines, BodyLen::None, &mut out);
        encoded.map_err(|_| "the connection was not ready")?;
        let mut written = 0;
        // The request is short, so it can be sent completely before the response is read.
        while written < out.len() {
            let piece = [IoSlice::new(&out[written..])];
            let len = poll_fn(|context| link.poll_write(context, &piece)).await;
            written += len.map_err(|error| error.to_string())?;
        }
        loop {
            let event = poll_fn(|context| link.poll_event(context)).await;
            // Skips interim responses.
            let ResponseEvent::Head(status, ..) = event.map_err(|fault| fault.to_string())? else {
                continue;
            };
            return self.check_status(status);
        }
    }
}

impl HealthProbe {
    /// The check over a new connection with HTTP/2.
    async fn check_h2(
        &self,
        endpoint: &OriginEndpoint,
        link: Box<OriginLink>,
    ) -> Result<(), String> {
        let worker_handle = endpoint.pool().worker_handle(self.worker);
        let link = H2Link::start(LinkOwner::Own(link), self.worker, worker_handle);
        link.settle().await;
        let mut exchange = link.begin(self.h2_head(endpoint.scheme == "https"));
        let status = loop {
            let event = poll_fn(|context| exchange.poll_event(context)).await;
            if let ResponseEvent::Head(status, ..) = event.map_err(|fault| fault.to_string())? {
                break status;
            }
        };
        drop(exchange);
        // The connection would otherwise stay open until it has been idle for a while.
        link.close_soon();
        self.check_status(status)
    }

    fn h2_head(&self, is_https: bool) -> RequestHead {
        let pseudo = OutgoingRequest {
            method: Method::Get,
            is_https,
            authority: &self.host,
            path: self.settings.path.as_bytes(),
            protocol: None,
        };
        let mut block = Vec::new();
        pseudo.put_pseudo_fields(&mut block);
        put_lines(FieldLines::new(USER_AGENT), &mut block);
        RequestHead {
            block,
            method: Method::Get,
            len: BodyLen::None,
        }
    }

    fn check_status(&self, status: StatusCode) -> Result<(), String> {
        let code = status.code();
        let mut accepted = self.settings.statuses.iter();
        match accepted.any(|(first, last)| (*first..=*last).contains(&code)) {
            true => Ok(()),
            false => Err(format!("the health check got status {code}")),
        }
    }
}
