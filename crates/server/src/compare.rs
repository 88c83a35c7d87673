//! `lowroad compare`: sends the same requests to two servers and prints the differences of their responses, for example
//! of nginx and of Lowroad with a translated configuration.

mod difference;
mod exchange;
mod request_list;
mod server_stream;

use std::io::Read;
use std::time::{Duration, Instant};

use crate::cli::import::CompareArgs;
use crate::terminal_output;

use difference::{FieldFilter, differences};
use exchange::{HttpServer, exchange};
use request_list::{RequestList, parse_requests};

/// The longest list of requests, in bytes.
const LIST_LEN_MAX: u64 = 256 << 20;

/// Whether all responses are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOutcome {
    /// All are.
    Equal,
    /// Some are different, or missing.
    Different,
}

/// Compares two servers.
///
/// # Errors
/// The list can't be read, or an argument is wrong.
pub fn run(args: &CompareArgs) -> Result<CompareOutcome, String> {
    let from = HttpServer::parse(&args.from)?;
    let to = HttpServer::parse(&args.to)?;
    let list = read_list(args)?;
    if list.requests.is_empty() {
        return Err(format!("{}: no request was found", args.requests.display()));
    }
    let fields = request_fields(&args.headers)?;
    let filter = FieldFilter::new(&args.ignore);
    // With different hosts, the servers would select different sites.
    let host = args.host.clone().unwrap_or_else(|| from.authority.clone());
    let pause = Duration::from_secs(1) / args.rate;
    let (mut equal, mut different, mut failed) = (0, 0, 0);
    for request in &list.requests {
        let start = Instant::now();
        let host = request.host.as_ref().unwrap_or(&host);
        let responses = (
            exchange(&from, request, host, &fields),
            exchange(&to, request, host, &fields),
        );
        let (count, lines) = match responses {
            (Ok(expected), Ok(actual)) => {
                let lines = differences(&expected, &actual, &from.url_of(host), &filter);
                let is_equal = lines.is_empty();
                (if is_equal { &mut equal } else { &mut different }, lines)
            }
            (Err(error), _) => (&mut failed, vec![format!("{}: {error}", args.from)]),
            (_, Err(error)) => (&mut failed, vec![format!("{}: {error}", args.to)]),
        };
        *count += 1;
        if !lines.is_empty() {
            let method = request.method.as_str();
            // Of the same path, another site may answer equally.
            terminal_output::out(format_args!(
                "{method} {host}{}\n  {}\n",
                request.target,
                lines.join("\n  ")
            ))?;
        }
        // The servers may be in use, so the rate is bounded.
        std::thread::sleep(pause.saturating_sub(start.elapsed()));
    }
    terminal_output::out(format_args!(
        "{} requests: {equal} equal, {different} different, {failed} failed; {} lines skipped\n",
        list.requests.len(),
        list.skipped
    ))?;
    Ok(match different + failed {
        0 => CompareOutcome::Equal,
        _ => CompareOutcome::Different,
    })
}

fn read_list(args: &CompareArgs) -> Result<RequestList, String> {
    let path = &args.requests;
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().take(LIST_LEN_MAX).read_to_end(&mut bytes),
        false => std::fs::File::open(path)
            .and_then(|file| file.take(LIST_LEN_MAX).read_to_end(&mut bytes)),
    };
    read.map_err(|error| format!("{}: {error}", path.display()))?;
    if bytes.contains(&0) {
        return Err(format!(
            "{0}: this is no text; for a binary log, use lowroad log cat --format extended {0} | lowroad compare - …",
            path.display()
        ));
    }
    Ok(parse_requests(
        &String::from_utf8_lossy(&bytes),
        args.count,
        args.all_methods,
    ))
}

/// The field lines of all requests.
fn request_fields(fields: &[String]) -> Result<String, String> {
    let mut lines = String::new();
    for field in fields {
        // A line break would begin another field or request.
        let is_valid = field.contains(':') && !field.chars().any(char::is_control);
        if !is_valid {
            return Err(format!("{field:?} is not a field; allowed: NAME: VALUE"));
        }
        lines.extend([field, "\r\n"]);
    }
    Ok(lines)
}
