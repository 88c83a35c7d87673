//! Howl: the server of paper `002` with four system calls per request, an upper bound for servers in user space.
//!
//! Files are read into memory once, with their heads in front, and each worker serves one request at a time:
//! `accept4`, `read`, `write`, `close` on blocking sockets ([`one`]). With `--keep-alive` connections stay open and a
//! request costs `epoll_wait`, `read`, `write` ([`many`]). It supports only GET and HEAD, and a request must arrive in
//! one piece. It has no limits, conditions, ranges or changing files: it is a measuring aid, not a real server.

mod many;
mod one;
mod site;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use site::HowlSite;

/// Length of the accept queue; the kernel caps it (`somaxconn`).
const BACKLOG: i32 = 4096;

/// Time limit of a socket: a client that neither sends nor reads for this long is dropped, because it would block a
/// worker for ever. Accepted sockets inherit the limit from the listener, so setting it costs no system call.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Maximum length of a request.
const REQUEST_MAX: usize = 16 * 1024;

/// Serve a folder with accept, read, write and close alone
#[derive(Debug, clap::Args)]
pub struct HowlArgs {
    /// The folder; its files are read once, at the start
    #[arg(value_name = "DIR")]
    root: PathBuf,
    /// The listener; port 0 picks a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Threads, each with its own listening socket (SO_REUSEPORT)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// Keep connections open: epoll_wait, read, write
    #[arg(long)]
    keep_alive: bool,
    /// Write the port into this file when ready
    #[arg(long, value_name = "FILE")]
    port_file: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// With a text for the user.
pub fn run(args: &HowlArgs) -> anyhow::Result<ExitCode> {
    let site = HowlSite::load(&args.root, args.keep_alive)?;
    let first = listen(args.listen)
        .with_context(|| format!("cannot listen on {}; is it in use?", args.listen))?;
    // With port 0, the kernel chooses the port of the first socket, and the other sockets use the same port.
    let address = SocketAddr::try_from(rustix::net::getsockname(&first)?)?;
    let mut other_listeners = Vec::new();
    for _ in 1..args.workers {
        other_listeners
            .push(listen(address).with_context(|| format!("cannot listen on {address}"))?);
    }
    println!(
        "howl: {} files on http://{address}/, Ctrl-C ends",
        site.len()
    );
    if let Some(file) = &args.port_file {
        write_port(file, address.port())?;
    }
    run_worker(first, other_listeners, Arc::new(site), args.keep_alive)
}

/// Runs the workers; the first one runs on the main thread. In a process with a single thread the kernel skips the
/// locking of the descriptor table, and the bound includes this gain.
fn run_worker(
    first: OwnedFd,
    other_listeners: Vec<OwnedFd>,
    site: Arc<HowlSite>,
    keep_alive: bool,
) -> anyhow::Result<ExitCode> {
    let serve = if keep_alive { many::serve } else { one::serve };
    for listener in other_listeners {
        let site = Arc::clone(&site);
        std::thread::Builder::new()
            .name("howl".into())
            .spawn(move || {
                if let Err(error) = serve(&listener, &site) {
                    eprintln!("howl: a worker ended: {error}");
                    // Measurements with one worker fewer would be wrong.
                    std::process::exit(1);
                }
            })?;
    }
    serve(&first, &site)?;
    Ok(ExitCode::SUCCESS)
}

fn listen(address: SocketAddr) -> std::io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // SO_REUSEPORT: the kernel distributes connections over the workers' sockets.
    sockopt::set_socket_reuseport(&socket, true)?;
    // Accepted sockets inherit these three options.
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(SILENCE_MAX))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(SILENCE_MAX))?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Writes the port to a new file and renames it, so that readers never see an incomplete file.
fn write_port(file: &std::path::Path, port: u16) -> anyhow::Result<()> {
    let temp_path = file.with_extension("new");
    std::fs::write(&temp_path, format!("{port}\n"))
        .and_then(|()| std::fs::rename(&temp_path, file))
        .with_context(|| format!("cannot write the port into {}", file.display()))
}
