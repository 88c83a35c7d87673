//! Active health checks of origin servers by GET. The schedule is in `lowroad_origin::checks`.

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
use lowroad_http::h1::BodyLen;
use lowroad_http::method::Method;
use lowroad_http::proxy_protocol::{ProxyAddresses, write_v1, write_v2};
use lowroad_origin::checks::{self, CheckSettings, HealthChange, HealthCheck};
use lowroad_origin::group::MemberId;
use lowroad_origin::{AcquireTimeouts, Upstream};

use super::connect_errors::unavailable_text;
use super::link::ResponseEvent;
use super::servers::{OriginEndpoint, mixed};

/// The health checks of an origin's servers.
pub struct HealthChecks {
    settings: OriginCheck,
    host: OriginHost,
    proxy_protocol: Option<ProxyProtocol>,
    upstream: Weak<Upstream<Arc<OriginEndpoint>>>,
    workers: Arc<[WorkerHandle]>,
    notice: OperatorNotice,
    tasks: Mutex<HashMap<MemberId, TaskHandle>>,
    /// Checks started so far: spreads them over the workers.
    count: AtomicU64,
}

/// The check of one server.
struct HealthProbe {
    worker: usize,
    patience: AcquireTimeouts,
    settings: OriginCheck,
    head: Vec<u8>,
    lines: Vec<u8>,
}

impl HealthChecks {
    /// Checks for the members of `upstream`; none is started yet. `operator_notice` is called when a member's health changes.
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

    /// Starts the checks of a member.
    pub fn begin(&self, member: MemberId) {
        let Some(upstream) = self.upstream.upgrade() else {
            return;
        };
        let Some(place) = upstream.with(|group| group.place(member).cloned()) else {
            return;
        };
        // Round robin over the workers.
        let worker = self.count.fetch_add(1, Relaxed) as usize % self.workers.len();
        let checking = CheckSettings {
            interval: Duration::from_millis(self.settings.interval_ms),
            timeout: Duration::from_millis(self.settings.timeout_ms),
            ..CheckSettings::default()
        };
        // Each member has its own sequence, so that the checks of several members spread.
        let drawn = AtomicU64::new(self.count.load(Relaxed) << 32);
        let random = move || mixed(drawn.fetch_add(1, Relaxed));
        let question = Arc::new(self.question(worker, &place));
        let notice = self.notice.clone();
        let changed = move |_, changed| match changed {
            HealthChange::Up => notice(&format!("{} is healthy again", place.name)),
            HealthChange::Down(why) => {
                notice(&format!("{} is unhealthy: {why}", place.name));
                place.failed(&why);
            }
        };
        // The handle is kept in `tasks`: dropping it ends the checks.
        let task = checks::begin(
            &upstream,
            member,
            question,
            checking,
            &self.workers[worker],
            Arc::new(random),
            changed,
        );
        self.tasks().insert(member, task);
    }

    /// Ends the checks of a member.
    pub fn end(&self, member: MemberId) {
        let task = self.tasks().remove(&member);
        drop(task);
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, HashMap<MemberId, TaskHandle>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn question(&self, worker: usize, place: &OriginEndpoint) -> HealthProbe {
        let mut head = Vec::new();
        // A health check has no client: UNKNOWN in version 1, LOCAL in version 2 of the PROXY protocol.
        match self.proxy_protocol {
            None => {}
            Some(ProxyProtocol::V1) => write_v1(&mut head, ProxyAddresses::Unknown),
            Some(ProxyProtocol::V2) => write_v2(&mut head, ProxyAddresses::Local),
        }
        let host = match &self.host {
            OriginHost::Name(name) => name.as_bytes(),
            OriginHost::Client | OriginHost::Origin => &place.host,
        };
        let lines = [
            b"Host: ",
            host,
            // Each check uses a new connection, so the origin need not keep it.
            b"\r\nUser-Agent: lowroad (check)\r\nConnection: close\r\n",
        ];
        HealthProbe {
            worker,
            patience: AcquireTimeouts::from_total(Duration::from_millis(self.settings.timeout_ms)),
            settings: self.settings.clone(),
            head,
            lines: lines.concat(),
        }
    }
}

impl HealthCheck<Arc<OriginEndpoint>> for HealthProbe {
    async fn check(&self, place: &Arc<OriginEndpoint>, _: &WorkerHandle) -> Result<(), String> {
        // Not from the pool: a reused connection does not show whether new ones are accepted.
        let link = place.pool.connect(self.worker, self.patience).await;
        let mut link = link.map_err(|why| unavailable_text(&why, self.patience, ""))?;
        let mut out = self.head.clone();
        let (path, lines) = (self.settings.path.as_bytes(), &self.lines);
        let asked = link
            .http
            .request(Method::Get, path, lines, BodyLen::None, &mut out);
        asked.map_err(|_| "the connection was not ready")?;
        let mut at = 0;
        // The request is short, so the response need not be read meanwhile.
        while at < out.len() {
            let piece = [IoSlice::new(&out[at..])];
            let len = poll_fn(|context| link.poll_write(context, &piece)).await;
            at += len.map_err(|error| error.to_string())?;
        }
        loop {
            let said = poll_fn(|context| link.poll_said(context)).await;
            // Interim responses are skipped.
            let ResponseEvent::Head(status, ..) = said.map_err(|broken| broken.to_string())? else {
                continue;
            };
            let code = status.code();
            let mut good = self.settings.statuses.iter();
            return match good.any(|(first, last)| (*first..=*last).contains(&code)) {
                true => Ok(()),
                false => Err(format!("the health check got status {code}")),
            };
        }
    }
}
