//! `lowroad serve` and `lowroad accelerate`: build the configuration of one site from command-line options. The option
//! values have the syntax of the configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use lowroad_config::{
    self as config, AddressPrefix, ApplicationConfig, BuildFeature, Config, OriginConfig,
    PathPattern, RouteConfig, RouteTo, SiteRoot, TlsConfig, value,
};

use crate::features;

/// `lowroad serve`.
#[derive(Args)]
pub struct ServeArgs {
    /// The folder
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// List folders that have no index.html
    #[arg(long)]
    listing: bool,
    /// Also serve names that begin with a dot
    #[arg(long)]
    hidden: bool,
    #[command(flatten)]
    server: ListenArgs,
}

/// `lowroad accelerate`.
#[derive(Args)]
pub struct AccelerateArgs {
    /// The server: http://HOST:PORT, https://HOST or unix:/PATH
    #[arg(value_name = "URL")]
    origin: String,
    /// Clients that may purge by the method PURGE: ADDRESS or ADDRESS/BITS [default: none]
    #[arg(long, value_name = "PREFIX")]
    purge_from: Vec<String>,
    /// The application to start and supervise: -- PROGRAM ARGUMENT…
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// The maximum length of a request body, such as an upload; longer ones get 413
    #[arg(long, value_name = "SIZE", default_value = "1M")]
    body_max: String,
    /// A folder on disk for stored responses, also those that don't fit in memory; they survive a restart
    #[arg(long, value_name = "DIR")]
    disk_cache: Option<PathBuf>,
    /// The size limit of that folder
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "10G",
        requires = "disk_cache"
    )]
    disk_cache_max: String,
    #[command(flatten)]
    server: ListenArgs,
}

/// Options of both commands.
#[derive(Args)]
struct ListenArgs {
    /// The listener: ADDR:PORT, PORT (this machine only) or *:PORT (all addresses)
    #[arg(
        short,
        long,
        value_name = "ADDR:PORT",
        default_value = "127.0.0.1:8080"
    )]
    listen: Vec<String>,
    /// Write an access log to standard output: combined, extended (with the cache status) or json
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "combined",
          value_parser = ["combined", "extended", "json"])]
    log: Option<String>,
    /// Event loops, each a thread; 0 for one per CPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    workers: usize,
    /// Bind each event loop to a CPU
    #[arg(long)]
    affinity: bool,
    /// Connections accepted per wake-up: one, all, or a number
    #[arg(long, value_name = "N", default_value = "32")]
    accept: String,
    /// Memory for stored responses; 0 for none [default: 256M, or a quarter of the memory if less]
    #[arg(long, value_name = "SIZE")]
    cache: Option<String>,
    /// Answer hot small responses in the kernel's soft interrupt: auto, off, or an interface
    #[arg(long, value_name = "WHERE", default_value = "off")]
    softirq: String,
    /// Proxies in front, as ADDRESS or ADDRESS/BITS: their connections begin with a PROXY header that names the client
    #[arg(long, value_name = "PREFIX")]
    proxy_protocol: Vec<String>,
    /// Proxies in front, as ADDRESS or ADDRESS/BITS, that report the client and its request in X-Forwarded-… fields;
    /// they append to X-Forwarded-For and set the others
    #[arg(long, value_name = "PREFIX")]
    trusted_proxies: Vec<String>,
    /// Serve over TLS, with a certificate that this machine's own authority signs: see lowroad trust
    #[arg(long)]
    tls: bool,
    /// Switch to this user after a start as root [default: lowroad or nobody, if all users can read the files]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

impl ServeArgs {
    /// Builds the configuration from the options.
    ///
    /// # Errors
    /// A message with the option, its value and the allowed values.
    pub fn config(&self) -> Result<Config, String> {
        let mut site = config::site_for_folder(self.dir.clone());
        site.listing = self.listing;
        site.hidden = self.hidden;
        // Static site generators write this file, and hosting services send it in place of missing pages.
        if self.dir.join("404.html").is_file() {
            site.error_pages.insert(404, "/404.html".into());
        }
        self.server.config(site)
    }
}

/// Moves the listeners of a site without TLS to its TLS settings, with a certificate of the local authority.
fn enable_tls(site: &mut config::SiteConfig) {
    site.tls = Some(TlsConfig {
        // The listeners move to the TLS settings: the site has no listener without TLS.
        listen: std::mem::take(&mut site.listen),
        local: true,
        ..TlsConfig::default()
    });
}

impl AccelerateArgs {
    /// Builds the configuration from the options.
    ///
    /// # Errors
    /// A message with the option, its value and the allowed values.
    pub fn config(&self) -> Result<Config, String> {
        features::need(BuildFeature::Programs, "accelerate")?;
        let url = value::origin_url(&self.origin)
            .map_err(|allowed| format!("{}: invalid (allowed: {allowed})", self.origin))?;
        if url.is_encrypted() {
            features::need(BuildFeature::Tls, &self.origin)?;
        }
        let mut site = config::site_for_folder(PathBuf::new());
        site.root = SiteRoot::None;
        site.purge_from = prefixes("--purge-from", &self.purge_from)?;
        let to = RouteTo::Origin(Box::new(OriginConfig::new(url.clone())));
        site.routes
            .push(RouteConfig::new(PathPattern::everything(), to));
        let mut config = self.server.config(site)?;
        config.limits.body_len_max = value::size(&self.body_max).map_err(|allowed| {
            format!("--body-max {}: invalid (allowed: {allowed})", self.body_max)
        })?;
        if !self.command.is_empty() {
            config.applications.push(ApplicationConfig {
                // The server accepts clients only after the application accepts connections at this URL.
                ready: Some(url),
                ..ApplicationConfig::new("application".into(), self.command.clone())
            });
        }
        self.set_disk_cache(&mut config.server)?;
        Ok(config)
    }

    fn set_disk_cache(&self, server: &mut config::ProcessConfig) -> Result<(), String> {
        server.disk_cache.clone_from(&self.disk_cache);
        let text = &self.disk_cache_max;
        server.disk_cache_len_max = value::size(text)
            .map_err(|allowed| format!("--disk-cache-max {text}: invalid (allowed: {allowed})"))?;
        if server.disk_cache_len_max < config::ProcessConfig::DISK_CACHE_LEN_MIN {
            return Err(format!("--disk-cache-max {text}: at least 64M"));
        }
        // A response on disk is loaded into the memory cache to be sent.
        if server.disk_cache.is_some() && server.cache_len_max == 0 {
            return Err("--disk-cache requires memory, but --cache is 0".into());
        }
        Ok(())
    }
}

impl ListenArgs {
    /// Builds a configuration with this site.
    fn config(&self, mut site: config::SiteConfig) -> Result<Config, String> {
        site.listen = self
            .listen
            .iter()
            .map(|text| address(text))
            .collect::<Result<_, _>>()?;
        site.proxy_protocol = prefixes("--proxy-protocol", &self.proxy_protocol)?;
        site.trusted_proxies.addresses = prefixes("--trusted-proxies", &self.trusted_proxies)?;
        // Checked below, because the softirq level can't parse PROXY headers.
        let has_proxy_header = !site.proxy_protocol.is_empty();
        let mut config = Config {
            sites: vec![site],
            ..Config::default()
        };
        config.server.workers = self.workers;
        config.server.affinity = self.affinity;
        config.server.accept = value::accept(&self.accept)
            .map_err(|allowed| format!("--accept {}: invalid (allowed: {allowed})", self.accept))?;
        if let Some(text) = &self.cache {
            let len = value::size(text)
                .map_err(|allowed| format!("--cache {text}: invalid (allowed: {allowed})"))?;
            config.server.choose_cache(len);
        }
        config.server.softirq = value::softirq(&self.softirq).map_err(|refused| {
            format!("--softirq {}: invalid (allowed: {refused})", self.softirq)
        })?;
        if config.server.softirq != config::SoftirqMode::Off {
            features::need(
                BuildFeature::Softirq,
                &format!("--softirq {}", self.softirq),
            )?;
            if has_proxy_header {
                return Err(format!("--proxy-protocol: {}", config::NO_SOFTIRQ));
            }
        }
        if self.tls {
            features::need(BuildFeature::Tls, "--tls")?;
            if config.server.softirq != config::SoftirqMode::Off {
                return Err(
                    "--tls: not with --softirq, which answers only unencrypted requests".into(),
                );
            }
            config.sites.iter_mut().for_each(enable_tls);
        }
        config.server.user.clone_from(&self.user);
        let format = self.log.as_deref().map(|format| match format {
            "json" => config::AccessLogFormat::Json,
            "extended" => config::AccessLogFormat::Extended,
            _ => config::AccessLogFormat::Combined,
        });
        let log =
            format.map(|format| config::AccessLogConfig::new(config::LogTarget::Stdout, format));
        config.log.access = log.into_iter().collect();
        Ok(config)
    }
}

fn prefixes(option: &str, texts: &[String]) -> Result<Vec<AddressPrefix>, String> {
    let prefix = |text: &String| {
        AddressPrefix::parse(text)
            .map_err(|allowed| format!("{option} {text}: invalid (allowed: {allowed})"))
    };
    texts.iter().map(prefix).collect()
}

fn address(text: &str) -> Result<SocketAddr, String> {
    value::address(text).map_err(|allowed| format!("--listen {text}: invalid (allowed: {allowed})"))
}
