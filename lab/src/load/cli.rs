//! The command `load`: its options and their translation to a [`LoadRun`]. `print` writes the results.

use std::io::IsTerminal;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use lowroad_http::method::Method;

use super::url::TargetUrl;
use super::{
    LoadResult, LoadRun, LoadTarget, OfferedTls, RequestPace, TlsSettings, expect, plot, print,
    said, several,
};
use crate::workload::script::{ScriptConnection, ScriptWorkload};
use crate::workload::urls::{UrlSpec, UrlWorkload};
use crate::workload::{self, PerConnection, TrafficWorkload, WorkloadVersion};

/// Generate load and measure
///
/// Without --rate each connection sends the next request after each answer (closed loop). With it, requests
/// are due at fixed times, and latencies count from then (open loop).
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Exit status: 0 if every answer was right, 1 if something went wrong, 130 if \
                  ended by Ctrl-C.\nlab/README.md explains each figure."
)]
pub struct LoadArgs {
    /// The URLs; a weight may follow (http://host/path@3). With --workload only the host is used
    #[arg(required_unless_present = "urls_of")]
    urls: Vec<String>,
    /// More URLs, from a file with one on each line
    #[arg(long = "urls", value_name = "FILE")]
    urls_of: Option<PathBuf>,
    /// A workload instead of the URLs' paths: see `lowroad-lab files --help`
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// A script with the steps of each client, instead of the URLs' paths: a file, see lab/README.md
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "urls_of", "rate", "sweep", "method", "headers", "user", "body", "cookies", "status", "root"])]
    script: Option<PathBuf>,
    /// A setting of the workload; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Simulated clients, each with one connection
    #[arg(short, long, default_value_t = 64)]
    connections: u32,
    /// Threads that the clients are divided among
    #[arg(short, long, default_value_t = 1)]
    threads: u32,
    /// Duration of the measurement: 10s, 500ms, 2m
    #[arg(short, long, default_value = "10s", value_parser = said::duration)]
    duration: Duration,
    /// End after this many requests, if that is earlier
    #[arg(short = 'n', long, value_name = "N")]
    requests: Option<u64>,
    /// Open loop: requests a second: 500, 1k
    #[arg(short, long, value_name = "R", value_parser = said::rate)]
    rate: Option<f64>,
    /// Open loop: new connections a second, at most --connections at a time
    #[arg(long, value_name = "R", conflicts_with = "rate", value_parser = said::rate)]
    connection_rate: Option<f64>,
    /// Open loop at each of these rates, one after the other: 500,1k,2k
    #[arg(long, value_name = "R,..", value_delimiter = ',', value_parser = said::rate, conflicts_with_all = ["rate", "connection_rate", "against"])]
    sweep: Vec<f64>,
    /// Send the same requests to another server, in turn, and compare
    #[arg(long, value_name = "URL", conflicts_with_all = ["workload", "urls_of"])]
    against: Option<String>,
    /// Runs of each server that is compared
    #[arg(long, value_name = "N", default_value_t = 10, requires = "against", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Time before the measurement begins
    #[arg(long, default_value = "0s", value_parser = said::duration)]
    warmup: Duration,
    /// Time in which the connections (or the rate) grow to their number, before the measurement begins
    #[arg(long, default_value = "0s", value_parser = said::duration)]
    ramp: Duration,
    /// Timeout of a connection attempt, and of the next bytes of an answer
    #[arg(long, default_value = "10s", value_parser = said::duration)]
    timeout: Duration,
    /// Requests on one connection: inf (default), 5, geometric:MEAN, uniform:LEAST-MOST. With
    /// --connection-rate the default is 1
    #[arg(long, value_name = "HOW MANY")]
    per_connection: Option<PerConnection>,
    /// Requests in progress on one connection; with HTTP/2 and 3 each is a stream
    #[arg(long, visible_alias = "streams", default_value_t = 1)]
    pipeline: u32,
    /// HTTP version: 3 (https only), 2 (over TLS by ALPN, else by prior knowledge), 1.1, 1.0 (a connection a request), 1.0-keep-alive
    #[arg(long, default_value = "1.1", value_parser = version)]
    http: WorkloadVersion,
    /// The same as --http 2
    #[arg(long, conflicts_with = "http")]
    http2: bool,
    /// The same as --http 3
    #[arg(long, conflicts_with_all = ["http", "http2"])]
    http3: bool,
    /// A method other than GET
    #[arg(short = 'X', long)]
    method: Option<String>,
    /// A field to send, "Name: value"; may be given several times
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    headers: Vec<String>,
    /// User name and password, NAME:PASSWORD
    #[arg(short, long, value_name = "NAME:PASSWORD")]
    user: Option<String>,
    /// A body to send; @FILE for that of a file. Makes it a POST
    #[arg(short = 'b', long, value_name = "TEXT")]
    body: Option<String>,
    /// Send back the cookies that answers set
    #[arg(long)]
    cookies: bool,
    /// Limit each client's line to this many bits a second: 400k, 10M
    #[arg(long, value_name = "BITS", value_parser = bits)]
    line: Option<u64>,
    /// The only status that is right (otherwise: any 2xx or 3xx)
    #[arg(long)]
    status: Option<u16>,
    /// The folder that the server serves: answers must have length and checksum of its files
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Accept any certificate
    #[arg(short = 'k', long)]
    insecure: bool,
    /// Trusted authorities instead of the system's, PEM
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Seed of the traffic: equal seeds, equal requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// CPUs to pin the threads to: 0,1
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
    /// Also plot the latencies
    #[arg(long, conflicts_with_all = ["json", "sweep", "against"])]
    plot: bool,
    /// Draw the latencies into this SVG file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sweep", "against"])]
    picture: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the command.
///
/// # Errors
/// With a text for the user.
pub fn run(args: &LoadArgs) -> anyhow::Result<ExitCode> {
    let load = load(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The first signal ends the run with the figures so far; a second one kills the process.
        signal_hook::flag::register_conditional_default(signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("can't handle signals")?;
    }
    if !args.sweep.is_empty() || args.against.is_some() {
        return run_several(args, &load, &stop);
    }
    let mut meter = print::LoadMeter::new(!args.quiet, std::io::stderr().is_terminal());
    let outcome = super::run(&load, &mut |snapshot| meter.show(snapshot), &stop)?;
    meter.end();
    if args.json {
        println!("{}", said::json(&outcome)?);
    } else {
        print!("{}", print::text(&load, &outcome));
    }
    if args.plot {
        print!("\n{}", plot::terminal(&outcome.latency_us));
    }
    if let Some(path) = &args.picture {
        let title = args.urls.first().map_or("", String::as_str);
        std::fs::write(path, plot::picture(&outcome.latency_us, title))
            .with_context(|| format!("--picture {}", path.display()))?;
    }
    for line in print::complaints(&load, &outcome) {
        eprintln!("lowroad-lab: {line}");
    }
    Ok(status(&outcome))
}

/// Runs a sweep of rates, or a comparison of two servers.
fn run_several(args: &LoadArgs, load: &LoadRun, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let mut run = |load: &LoadRun| Ok(super::run(load, &mut |_| {}, stop)?);
    let mut print_line = |text: &str| {
        if !args.json {
            println!("{text}");
        }
    };
    let outcomes = match &args.against {
        None => several::sweep(load, &args.sweep, &mut run, &mut print_line)?,
        Some(url) => {
            let (first, second) = (&args.urls[..1], std::slice::from_ref(url));
            let other_run = load_for_urls(args, second)?;
            let compared =
                several::compare([load, &other_run], args.repeats, &mut run, &mut print_line)?;
            print_line(&several::compared([&first[0], url], &compared));
            compared.into_iter().flatten().collect()
        }
    };
    if args.json {
        println!("{}", said::json(&outcomes)?);
    }
    // A single bad run decides the exit status.
    let worst = outcomes
        .iter()
        .find(|outcome| outcome.interrupted || outcome.errors > 0 || outcome.requests == 0);
    Ok(worst.map_or(ExitCode::SUCCESS, status))
}

fn status(outcome: &LoadResult) -> ExitCode {
    if outcome.interrupted {
        ExitCode::from(130)
    } else if outcome.errors > 0 || outcome.requests == 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn load(args: &LoadArgs) -> anyhow::Result<LoadRun> {
    let mut urls = args.urls.clone();
    if let Some(file) = &args.urls_of {
        urls.extend(said::read_urls(file)?);
    }
    if args.against.is_some() {
        ensure!(urls.len() == 1, "--against: compare one URL with one other");
    }
    load_for_urls(args, &urls)
}

fn load_for_urls(args: &LoadArgs, urls: &[String]) -> anyhow::Result<LoadRun> {
    let urls = urls.iter().map(|text| TargetUrl::parse(text));
    let urls: Vec<TargetUrl> = urls.collect::<Result<_, _>>().map_err(anyhow::Error::msg)?;
    let first = &urls[0];
    // Connections are shared by all URLs of a run.
    if let Some(different) = urls.iter().find(|url| url.origin() != first.origin()) {
        bail!(
            "all URLs of a run must be of one server, but {} is not {}: start a run for each",
            different.origin(),
            first.origin()
        );
    }
    let pace = match (args.rate, args.connection_rate) {
        (Some(rate), _) => RequestPace::Requests(rate),
        (None, Some(rate)) => RequestPace::Connections(rate),
        (None, None) => RequestPace::Closed,
    };
    Ok(LoadRun {
        target: target(args, first)?,
        workload: traffic(args, &urls)?,
        pace,
        connections: args.connections,
        threads: args.threads,
        cpus: args.cpus.clone(),
        pipeline: args.pipeline,
        line_bits_per_s: args.line,
        warmup: args.warmup,
        ramp: args.ramp,
        duration: args.duration,
        requests: args.requests,
        openings: None,
        timeout: args.timeout,
        seed: args.seed,
        time: None,
    })
}

fn target(args: &LoadArgs, url: &TargetUrl) -> anyhow::Result<LoadTarget> {
    let addresses = (url.name.as_str(), url.port).to_socket_addrs();
    let addresses: Vec<_> = addresses
        .with_context(|| {
            format!(
                "can't find {}: check the name, or give an address",
                url.name
            )
        })?
        .collect();
    // Only the first address is used: the system sorts the addresses of a name by preference.
    let addresses = addresses.into_iter().take(1).collect();
    let tls = url.tls.then(|| TlsSettings {
        name: url.name.clone(),
        insecure: args.insecure,
        authorities: args.ca.clone(),
        offered: OfferedTls::All,
    });
    Ok(LoadTarget { addresses, tls })
}

fn traffic(args: &LoadArgs, urls: &[TargetUrl]) -> anyhow::Result<Arc<dyn TrafficWorkload>> {
    let host = urls[0].host();
    let version = match (args.http2, args.http3) {
        (true, _) => WorkloadVersion::Http2,
        (_, true) => WorkloadVersion::Http3,
        _ => args.http,
    };
    ensure!(
        version != WorkloadVersion::Http3
            || (urls.iter().all(|url| url.tls) && args.line.is_none()),
        "HTTP/3 needs https URLs, and has no --line"
    );
    if let Some(name) = &args.workload {
        ensure!(
            !version.is_multiplexed(),
            "workloads choose the HTTP version themselves: give URLs for HTTP/2 and HTTP/3"
        );
        let settings = workload::cli::parse(&args.settings)?;
        return workload::named(name, &settings, &host).map_err(anyhow::Error::msg);
    }
    ensure!(
        args.settings.is_empty(),
        "--set requires a workload: name it with --workload"
    );
    if let Some(file) = &args.script {
        return script(args, file, &host, version);
    }
    ensure!(
        !version.is_multiplexed() || Method::parse(method(args).as_bytes()).is_some(),
        "HTTP/2 and HTTP/3 runs support only methods that HTTP defines, not {}",
        method(args)
    );
    let body = body(args)?;
    let mut fields = fields(&args.headers)?;
    let user = args.user.as_deref().map(said::authorization).transpose()?;
    fields.extend(user);
    let mut specs = Vec::new();
    for url in urls {
        let mut spec = UrlSpec::get(url.path.clone());
        spec.method = method(args);
        spec.weight = url.weight;
        spec.fields = fields.clone();
        spec.body = body.clone();
        spec.expected_status = args.status;
        if let Some(root) = &args.root {
            let expected_file = expect::file(root, &url.path)?;
            (spec.expected_len, spec.crc32) = (Some(expected_file.len), Some(expected_file.crc32));
        }
        specs.push(spec);
    }
    // HTTP/1.0 without keep-alive closes after each response.
    let per_connection = match version {
        WorkloadVersion::Http10 => PerConnection::Fixed(1),
        _ => per_connection(args),
    };
    let urls = UrlWorkload::new(specs, &host, version, per_connection, args.cookies);
    Ok(Arc::new(urls.map_err(anyhow::Error::msg)?))
}

fn script(
    args: &LoadArgs,
    file: &Path,
    host: &str,
    version: WorkloadVersion,
) -> anyhow::Result<Arc<dyn TrafficWorkload>> {
    ensure!(
        args.pipeline == 1,
        "--script: not with --pipeline, since a user has one request at a time"
    );
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("can't read the script {}", file.display()))?;
    let carries = match (args.per_connection, args.connection_rate) {
        (Some(requests_per_connection), _) => ScriptConnection::Requests(requests_per_connection),
        (None, Some(_)) => ScriptConnection::Once,
        (None, None) => ScriptConnection::All,
    };
    let script = ScriptWorkload::parse(&text, host, version, carries)
        .map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    Ok(Arc::new(script))
}

fn per_connection(args: &LoadArgs) -> PerConnection {
    // A connection that never ends would occupy its slot for ever and block the connections that are due.
    let usual = match args.connection_rate {
        Some(_) => PerConnection::Fixed(1),
        None => PerConnection::Unlimited,
    };
    args.per_connection.unwrap_or(usual)
}

fn method(args: &LoadArgs) -> String {
    match (&args.method, &args.body) {
        (Some(method), _) => method.clone(),
        (None, Some(_)) => "POST".into(),
        (None, None) => "GET".into(),
    }
}

fn body(args: &LoadArgs) -> anyhow::Result<Vec<u8>> {
    match args
        .body
        .as_deref()
        .map(|text| (text, text.strip_prefix('@')))
    {
        None => Ok(Vec::new()),
        Some((_, Some(path))) => {
            std::fs::read(path).with_context(|| format!("can't read the body from {path}"))
        }
        Some((text, None)) => Ok(text.as_bytes().to_vec()),
    }
}

fn fields(headers: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let split = |header: &String| {
        let (name, value) = header
            .split_once(':')
            .with_context(|| format!("{header:?} is not a field: give it as \"Name: value\""))?;
        Ok((name.trim().to_string(), value.trim().to_string()))
    };
    headers.iter().map(split).collect()
}

/// `400k`, `10M`, `56000`.
fn bits(text: &str) -> Result<u64, String> {
    let format_error = || "give bits a second, with k or M: 400k".to_string();
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1000),
        None => match text.strip_suffix('M') {
            Some(digits) => (digits, 1_000_000),
            None => (text, 1),
        },
    };
    let number: u64 = digits.parse().map_err(|_| format_error())?;
    number
        .checked_mul(unit)
        .filter(|bits| *bits > 0)
        .ok_or_else(format_error)
}

fn version(text: &str) -> Result<WorkloadVersion, String> {
    match text {
        "3" => Ok(WorkloadVersion::Http3),
        "2" => Ok(WorkloadVersion::Http2),
        "1.1" => Ok(WorkloadVersion::Http11),
        "1.0" => Ok(WorkloadVersion::Http10),
        "1.0-keep-alive" => Ok(WorkloadVersion::Http10KeepAlive),
        _ => Err("allowed: 3, 2, 1.1, 1.0, 1.0-keep-alive".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_rates_accept_k_and_m_prefixes() {
        assert_eq!(bits("400k"), Ok(400_000));
        assert_eq!(bits("10M"), Ok(10_000_000));
        for wrong in ["0", "k", "4x", "99999999999999999999M"] {
            assert!(bits(wrong).is_err(), "{wrong}");
        }
    }
}
