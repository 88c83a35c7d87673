//! The spawner process, which has a single thread. It reaps an exited program only after the server has released it:
//! until then the PID cannot be reused, so no signal can reach an unrelated process group.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lowroad_child_processes::limits::limit;
use lowroad_child_processes::message::{MessageError, PacketChannel, SendMode, decode, encode};
use lowroad_child_processes::process::ChildProcess;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::Signal;

use super::messages::{ExitOutcome, SpawnOrder, SpawnerReply, ToSpawner};

/// Retries of starting a program while its file is open for writing (ETXTBSY), and the pause between them.
const BUSY_TRIES_MAX: usize = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// The epoll token of the server's socket.
const SERVER: u64 = u64::MAX;

/// Starts programs on request of the server, until the server closes the channel; then kills all remaining programs.
///
/// # Errors
/// A system resource is missing.
pub fn serve(channel: PacketChannel) -> io::Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let server = epoll::EventData::new_u64(SERVER);
    epoll::add(&poll, &channel, server, epoll::EventFlags::IN)?;
    let mut spawn_server = SpawnServer {
        channel,
        poll,
        programs: HashMap::new(),
        pending_starts: Vec::new(),
    };
    let mut buffer = Vec::new();
    let mut events = Vec::with_capacity(64);
    loop {
        // The wait has a timeout only while a start is to be retried; otherwise it is unlimited.
        let pause = (!spawn_server.pending_starts.is_empty()).then_some(Timespec {
            tv_sec: 0,
            tv_nsec: BUSY_PAUSE.as_nanos() as i64,
        });
        events.clear();
        match epoll::wait(
            &spawn_server.poll,
            rustix::buffer::spare_capacity(&mut events),
            pause.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut has_message = false;
        for event in &events {
            match event.data.u64() {
                SERVER => has_message = true,
                id => spawn_server.record_exit(id)?,
            }
        }
        if has_message {
            // The server has closed the socket, or died: dropping `spawn_server` kills all programs.
            let Ok(ends) = spawn_server.channel.receive(&mut buffer) else {
                return Ok(());
            };
            match decode(&buffer) {
                Ok(ToSpawner::Start(id, order)) => spawn_server.accept_order(id, order, ends)?,
                Ok(ToSpawner::Terminate(id)) => spawn_server.terminate(id),
                Ok(ToSpawner::Release(id, kill)) => spawn_server.release(id, kill)?,
                Err(_) => return Ok(()),
            }
        }
        spawn_server.start_pending()?;
    }
}

struct SpawnServer {
    channel: PacketChannel,
    poll: OwnedFd,
    programs: HashMap<u64, SpawnedProgram>,
    /// Programs with their file open for writing, and the time of the next attempt to start each.
    pending_starts: Vec<(Instant, PendingStart)>,
}

/// A program that is to be started.
struct PendingStart {
    id: u64,
    order: Box<SpawnOrder>,
    ends: [OwnedFd; 3],
    tries: usize,
}

/// A program that was started and has not been reaped.
struct SpawnedProgram {
    leader: ChildProcess,
    has_ended: bool,
    is_released: bool,
}

impl SpawnServer {
    fn accept_order(
        &mut self,
        id: u64,
        order: Box<SpawnOrder>,
        ends: Vec<OwnedFd>,
    ) -> io::Result<()> {
        match ends.try_into() {
            Ok(ends) => self.start(PendingStart {
                id,
                order,
                ends,
                tries: 0,
            }),
            // The pipes were not received: this process has reached its descriptor limit.
            Err(_) => self.report_outcome(id, not_started(Errno::MFILE)),
        }
    }

    fn start(&mut self, mut start: PendingStart) -> io::Result<()> {
        match spawn(&start).and_then(|leader| self.watch(start.id, leader)) {
            Ok(program) => drop(self.programs.insert(start.id, program)),
            // ETXTBSY: the file is open for writing in another process, possibly only for a moment.
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && start.tries < BUSY_TRIES_MAX =>
            {
                start.tries += 1;
                self.pending_starts
                    .push((Instant::now() + BUSY_PAUSE, start));
            }
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
                self.report_outcome(start.id, not_started(errno))?;
            }
        }
        Ok(())
    }

    fn watch(&self, id: u64, mut leader: ChildProcess) -> io::Result<SpawnedProgram> {
        let data = epoll::EventData::new_u64(id);
        match epoll::add(&self.poll, &leader, data, epoll::EventFlags::IN) {
            Ok(()) => Ok(SpawnedProgram {
                leader,
                has_ended: false,
                is_released: false,
            }),
            Err(error) => {
                // An unwatched program would never be reaped.
                leader.signal_group(Signal::KILL);
                let _ = leader.reap();
                Err(error.into())
            }
        }
    }

    fn start_pending(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let due: Vec<_> = self
            .pending_starts
            .extract_if(.., |pending| pending.0 <= now)
            .collect();
        for (_, start) in due {
            self.start(start)?;
        }
        Ok(())
    }

    fn record_exit(&mut self, id: u64) -> io::Result<()> {
        let Some(program) = self.programs.get_mut(&id) else {
            return Ok(());
        };
        program.has_ended = true;
        // The pidfd of an exited process stays readable, which would wake the loop forever.
        epoll::delete(&self.poll, &program.leader)?;
        // The status is read without reaping: the zombie keeps the PID in use.
        let status = program.leader.peek_status()?;
        let signal = status.as_ref().and_then(|it| it.terminating_signal());
        let outcome = match signal {
            Some(signal) => ExitOutcome::Signaled(signal),
            None => ExitOutcome::Exited(status.and_then(|it| it.exit_status()).unwrap_or_default()),
        };
        if program.is_released {
            self.reap(id);
        }
        self.report_outcome(id, outcome)
    }

    fn terminate(&mut self, id: u64) {
        if let Some(program) = self.programs.get(&id) {
            program.leader.signal_group(Signal::TERM);
        }
    }

    fn release(&mut self, id: u64, kill: bool) -> io::Result<()> {
        // The program may be cancelled while it still waits to be started.
        if let Some(index) = self
            .pending_starts
            .iter()
            .position(|pending| pending.1.id == id)
        {
            self.pending_starts.swap_remove(index);
            return self.report_outcome(id, not_started(Errno::CANCELED));
        }
        let Some(program) = self.programs.get_mut(&id) else {
            return Ok(());
        };
        if kill {
            program.leader.signal_group(Signal::KILL);
        }
        program.is_released = true;
        if program.has_ended {
            self.reap(id);
        }
        Ok(())
    }

    fn reap(&mut self, id: u64) {
        if let Some(mut program) = self.programs.remove(&id) {
            let _ = program.leader.reap();
        }
    }

    /// Reports an outcome. Blocks while the socket is full.
    fn report_outcome(&self, id: u64, outcome: ExitOutcome) -> io::Result<()> {
        let message = encode(&SpawnerReply { id, outcome })?;
        match self.channel.send(&message, &[], SendMode::Wait) {
            // The server has ended; the main loop notices it next.
            Err(MessageError::Closed) => Ok(()),
            sent => Ok(sent?),
        }
    }
}

/// Kills all programs, since the server has ended or this process has failed.
impl Drop for SpawnServer {
    fn drop(&mut self) {
        for program in self.programs.values() {
            program.leader.signal_group(Signal::KILL);
        }
    }
}

fn not_started(error: Errno) -> ExitOutcome {
    ExitOutcome::NotStarted(error.raw_os_error())
}

fn spawn(PendingStart { order, ends, .. }: &PendingStart) -> io::Result<ChildProcess> {
    // The pipes are cloned, so that a start that fails with ETXTBSY can be repeated.
    let [input, output, errors] = ends;
    let variables = order.environment.iter();
    let mut command = Command::new(&order.file);
    command
        .current_dir(&order.folder)
        .env_clear()
        .envs(variables.map(|(name, value)| (OsStr::from_bytes(name), OsStr::from_bytes(value))))
        .stdin(Stdio::from(input.try_clone()?))
        .stdout(Stdio::from(output.try_clone()?))
        .stderr(Stdio::from(errors.try_clone()?))
        // A separate group, so that signals also reach the children of the program.
        .process_group(0);
    limit(&mut command, order.limits);
    ChildProcess::spawn(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_child_processes::limits::ProcessLimits;

    fn order() -> SpawnOrder {
        SpawnOrder {
            file: "/bin/true".into(),
            folder: "/".into(),
            environment: Vec::new(),
            limits: ProcessLimits::default(),
        }
    }

    /// An order that arrives without its pipes, as happens at the descriptor limit.
    #[test]
    fn spawn_order_without_pipes_is_answered_with_emfile() {
        let (server, other) = PacketChannel::pair().expect("a pair");
        let serving = std::thread::spawn(move || serve(other.into()));
        let mut buffer = Vec::new();
        for id in [8, 9] {
            let start = encode(&ToSpawner::Start(id, Box::new(order()))).expect("short");
            server.send(&start, &[], SendMode::Wait).expect("it serves");
            server.receive(&mut buffer).expect("an outcome");
            let outcome = not_started(Errno::MFILE);
            assert_eq!(decode(&buffer), Ok(SpawnerReply { id, outcome }));
        }
        drop(server);
        assert!(serving.join().expect("no panic").is_ok());
    }
}
