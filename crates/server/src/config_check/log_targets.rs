//! `lowroad check`: receivers of logs and traces that are not there now. They may come later, so these are warnings.

use std::net::ToSocketAddrs;
use std::path::Path;

use lowroad_config::{Config, LogTarget, OriginUrl, TracesConfig};
use lowroad_log::syslog::{JOURNAL_SOCKET, MessageTarget};

/// The port of OTLP over gRPC.
const OTLP_GRPC_PORT: u16 = 4317;

/// Finds access logs with a receiver that can't be reached now.
pub fn missing_receivers(config: &Config) -> Vec<String> {
    let targets = config.log.access.iter().filter_map(|log| match &log.path {
        LogTarget::Messages(target) => Some(target),
        LogTarget::Stdout | LogTarget::Stderr | LogTarget::File(_) => None,
    });
    targets.filter_map(missing_receiver).collect()
}

fn missing_receiver(target: &MessageTarget) -> Option<String> {
    let problem = match target {
        MessageTarget::SyslogUdp(host, port) | MessageTarget::SyslogTcp(host, port) => {
            let error = (&**host, *port).to_socket_addrs().err()?;
            format!("the host {host} can't be resolved: {error}")
        }
        MessageTarget::SyslogUnix(path) => missing_socket(path)?,
        MessageTarget::Journal => missing_socket(Path::new(JOURNAL_SOCKET))?,
    };
    Some(format!(
        "log: entries for {target} would be dropped now: {problem}"
    ))
}

fn missing_socket(path: &Path) -> Option<String> {
    let error = path.metadata().err()?;
    Some(format!("there is no socket {}: {error}", path.display()))
}

/// Finds a collector of traces at the port of another protocol.
pub fn other_protocol(traces: &TracesConfig) -> Option<String> {
    let is_grpc = matches!(
        traces.endpoint.server,
        OriginUrl::Http {
            port: OTLP_GRPC_PORT,
            ..
        }
    );
    is_grpc.then(|| {
        format!(
            "traces: port {OTLP_GRPC_PORT} of the endpoint is that of OTLP over gRPC; this server sends http/protobuf, \
             which collectors receive at port 4318"
        )
    })
}
