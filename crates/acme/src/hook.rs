//! `dns-01`: runs the operator's command, which adds and removes DNS records.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::plan::AcmeFailure;
use crate::settings::DnsHook;

/// The number of bytes of a command's output, from its end, that are kept for messages.
const OUTPUT_LEN_MAX: usize = 2000;

/// The action that the command is run for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HookAction {
    /// Add the record, and return when it is publicly visible.
    Present,
    /// Remove the record.
    Cleanup,
}

impl HookAction {
    fn name(self) -> &'static str {
        match self {
            HookAction::Present => "present",
            HookAction::Cleanup => "cleanup",
        }
    }
}

/// A DNS record of type TXT.
#[derive(Clone, Debug)]
pub(crate) struct TxtRecord {
    /// The name to be validated, without `*.`.
    pub domain: String,
    pub value: String,
    /// The directory URL of the authority that validates the name.
    pub authority: String,
}

impl TxtRecord {
    fn name(&self) -> String {
        format!("_acme-challenge.{}", self.domain)
    }
}

/// Runs the command and waits until it ends.
pub(crate) async fn run(
    hook: &DnsHook,
    action: HookAction,
    record: &TxtRecord,
) -> Result<(), AcmeFailure> {
    let (program, first) = hook.command.split_first().unwrap_or((&EMPTY, &[]));
    let failed = |reason: String| {
        AcmeFailure::local(format!(
            "{program} {} {}: {reason}",
            action.name(),
            record.name()
        ))
    };
    let mut child = Command::new(program)
        .args(first)
        .args([action.name(), &record.name(), &record.value])
        .env("LOWROAD_ACME_ACTION", action.name())
        .env("LOWROAD_ACME_DOMAIN", &record.domain)
        .env("LOWROAD_ACME_RECORD", record.name())
        .env("LOWROAD_ACME_VALUE", &record.value)
        .env("LOWROAD_ACME_AUTHORITY", &record.authority)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // The command gets its own process group, so that a timeout also kills the command's child processes.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let mut group = HookProcess(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let mut output = Vec::new();
    let end = async {
        // The pipes close only when the command and its child processes, which may inherit them, have ended. Both pipes
        // are read while waiting, since a full pipe would block the command.
        let ((mut output_tail, error_tail), status) =
            tokio::join!(read_output(out, err), child.wait());
        output_tail.extend(error_tail);
        output = output_tail;
        status
    };
    let status = match tokio::time::timeout(Duration::from_secs(hook.timeout_s), end).await {
        Ok(status) => status.map_err(|error| failed(error.to_string()))?,
        Err(_) => return Err(failed(format!("killed after {} s", hook.timeout_s))),
    };
    // The command has been reaped, so its process id may be reused.
    group.0 = None;
    match status.success() {
        true => Ok(()),
        false => Err(failed(status_text(status, &output))),
    }
}

static EMPTY: String = String::new();

/// The process group of the command; killed on drop.
struct HookProcess(Option<Pid>);

impl Drop for HookProcess {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

async fn read_output(
    out: Option<impl AsyncRead + Unpin>,
    err: Option<impl AsyncRead + Unpin>,
) -> (Vec<u8>, Vec<u8>) {
    tokio::join!(read_tail(err), read_tail(out))
}

/// The last bytes written to a pipe.
async fn read_tail(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut tail = Vec::new();
    let Some(mut pipe) = pipe else {
        return tail;
    };
    let mut piece = [0; 4096];
    while let Ok(len @ 1..) = pipe.read(&mut piece).await {
        tail.extend_from_slice(&piece[..len]);
        // Only the end is kept, since errors are printed last.
        tail.drain(..tail.len().saturating_sub(OUTPUT_LEN_MAX));
    }
    tail
}

fn status_text(status: ExitStatus, output: &[u8]) -> String {
    let output = String::from_utf8_lossy(output);
    let lines: Vec<&str> = output.lines().map(str::trim).collect();
    match lines.join(" | ").trim() {
        "" => format!("{status}, without output"),
        output => format!("{status}: {output}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(script: &str, timeout_s: u64) -> DnsHook {
        DnsHook {
            command: ["/bin/sh", "-c", script, "hook"]
                .map(str::to_owned)
                .to_vec(),
            timeout_s,
        }
    }

    async fn result(script: &str, timeout_s: u64) -> Result<(), String> {
        let record = TxtRecord {
            domain: "example.org".into(),
            value: "value".into(),
            authority: "https://ca.example/".into(),
        };
        let ran = run(&hook(script, timeout_s), HookAction::Present, &record).await;
        ran.map_err(|failure| failure.text)
    }

    #[tokio::test]
    async fn hook_gets_record_as_arguments_and_environment() {
        let script = r#"test "$1 $2 $3" = "present _acme-challenge.example.org value" || exit 1
            test "$LOWROAD_ACME_ACTION $LOWROAD_ACME_RECORD $LOWROAD_ACME_VALUE" = "$1 $2 $3" || exit 2
            test "$LOWROAD_ACME_DOMAIN $LOWROAD_ACME_AUTHORITY" = "example.org https://ca.example/""#;
        assert_eq!(result(script, 60).await, Ok(()));
    }

    #[tokio::test]
    async fn failure_contains_exit_status_and_output() {
        let error = result("echo before; echo no such zone >&2; exit 3", 60).await;
        let error = error.expect_err("an error");
        assert!(
            error.contains("present _acme-challenge.example.org"),
            "{error}"
        );
        assert!(
            error.contains("exit status: 3: no such zone | before"),
            "{error}"
        );
        let error = result("exit 1", 60).await.expect_err("an error");
        assert!(error.contains("without output"), "{error}");
    }

    #[tokio::test]
    async fn timeout_kills_the_process_group() {
        let file = std::env::temp_dir().join(format!("lowroad-hook-{}", std::process::id()));
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let error = result(&script, 1).await.expect_err("an error");
        assert!(error.contains("killed after 1 s"), "{error}");
        let sleeper = std::fs::read_to_string(&file).expect("a number");
        let status = format!("/proc/{}/stat", sleeper.trim());
        lowroad_testkit::wait_until("its end", || match std::fs::read_to_string(&status) {
            Ok(stat) if !stat.contains(") Z ") => None,
            _ => Some(()),
        });
        let _ = std::fs::remove_file(&file);
    }
}
