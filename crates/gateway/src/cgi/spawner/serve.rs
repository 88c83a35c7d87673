//! The process that starts programs: one thread, which does nothing else. It reaps a program only once the server is done
//! with it: till then its number is no other group's, so that no signal hits a stranger.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lowroad_children::limits::limit;
use lowroad_children::message::{Channel, MessageError, SendMode, decode, encode};
use lowroad_children::process::ChildProcess;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::Signal;

use super::wire::{Order, Outcome, ToServer, ToSpawner};

/// How often, and after what pause, a file that is being written is tried again.
const BUSY_TRIES_MAX: usize = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// What stands for the server among those that have news.
const SERVER: u64 = u64::MAX;

/// Starts what the server says at the other end of this channel, until that is gone; then ends all that is left.
///
/// # Errors
/// What this process needs is not to be had.
pub fn serve(channel: Channel) -> io::Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let server = epoll::EventData::new_u64(SERVER);
    epoll::add(&poll, &channel, server, epoll::EventFlags::IN)?;
    let mut spawning = Spawning {
        channel,
        poll,
        programs: HashMap::new(),
        late: Vec::new(),
    };
    let mut buffer = Vec::new();
    let mut events = Vec::with_capacity(64);
    loop {
        let pause = (!spawning.late.is_empty()).then_some(Timespec {
            tv_sec: 0,
            tv_nsec: BUSY_PAUSE.as_nanos() as i64,
        });
        events.clear();
        match epoll::wait(
            &spawning.poll,
            rustix::buffer::spare_capacity(&mut events),
            pause.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut is_asked = false;
        for event in &events {
            match event.data.u64() {
                SERVER => is_asked = true,
                id => spawning.ended(id)?,
            }
        }
        if is_asked {
            let Ok(ends) = spawning.channel.receive(&mut buffer) else {
                return Ok(());
            };
            match decode(&buffer) {
                Ok(ToSpawner::Start(id, order)) => spawning.take_order(id, order, ends)?,
                Ok(ToSpawner::Terminate(id)) => spawning.terminate(id),
                Ok(ToSpawner::Release(id, kill)) => spawning.release(id, kill)?,
                Err(_) => return Ok(()),
            }
        }
        spawning.start_late()?;
    }
}

struct Spawning {
    channel: Channel,
    poll: OwnedFd,
    programs: HashMap<u64, Program>,
    /// Those whose files are being written, and when they are tried again.
    late: Vec<(Instant, PendingStart)>,
}

/// A program that is to be started.
struct PendingStart {
    id: u64,
    order: Box<Order>,
    ends: [OwnedFd; 3],
    tries: usize,
}

/// A program that was started and is not reaped.
struct Program {
    leader: ChildProcess,
    has_ended: bool,
    is_released: bool,
}

impl Spawning {
    fn take_order(&mut self, id: u64, order: Box<Order>, ends: Vec<OwnedFd>) -> io::Result<()> {
        match ends.try_into() {
            Ok(ends) => self.start(PendingStart {
                id,
                order,
                ends,
                tries: 0,
            }),
            // This process has no descriptors left.
            Err(_) => self.tell(id, not_started(Errno::MFILE)),
        }
    }

    fn start(&mut self, mut start: PendingStart) -> io::Result<()> {
        match spawn(&start).and_then(|leader| self.watch(start.id, leader)) {
            Ok(program) => drop(self.programs.insert(start.id, program)),
            // Another process writes the file.
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && start.tries < BUSY_TRIES_MAX =>
            {
                start.tries += 1;
                self.late.push((Instant::now() + BUSY_PAUSE, start));
            }
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
                self.tell(start.id, not_started(errno))?;
            }
        }
        Ok(())
    }

    fn watch(&self, id: u64, mut leader: ChildProcess) -> io::Result<Program> {
        let data = epoll::EventData::new_u64(id);
        match epoll::add(&self.poll, &leader, data, epoll::EventFlags::IN) {
            Ok(()) => Ok(Program {
                leader,
                has_ended: false,
                is_released: false,
            }),
            Err(error) => {
                leader.signal_group(Signal::KILL);
                let _ = leader.reap();
                Err(error.into())
            }
        }
    }

    fn start_late(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let due: Vec<_> = self.late.extract_if(.., |late| late.0 <= now).collect();
        for (_, start) in due {
            self.start(start)?;
        }
        Ok(())
    }

    fn ended(&mut self, id: u64) -> io::Result<()> {
        let Some(program) = self.programs.get_mut(&id) else {
            return Ok(());
        };
        program.has_ended = true;
        epoll::delete(&self.poll, &program.leader)?;
        let status = program.leader.peek_status()?;
        let signal = status.as_ref().and_then(|it| it.terminating_signal());
        let outcome = match signal {
            Some(signal) => Outcome::Signaled(signal),
            None => Outcome::Exited(status.and_then(|it| it.exit_status()).unwrap_or_default()),
        };
        if program.is_released {
            self.reap(id);
        }
        self.tell(id, outcome)
    }

    fn terminate(&mut self, id: u64) {
        if let Some(program) = self.programs.get(&id) {
            program.leader.signal_group(Signal::TERM);
        }
    }

    fn release(&mut self, id: u64, kill: bool) -> io::Result<()> {
        if let Some(at) = self.late.iter().position(|late| late.1.id == id) {
            self.late.swap_remove(at);
            return self.tell(id, not_started(Errno::CANCELED));
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

    /// Waits for room.
    fn tell(&self, id: u64, outcome: Outcome) -> io::Result<()> {
        let message = encode(&ToServer { id, outcome })?;
        match self.channel.send(&message, &[], SendMode::Wait) {
            // It is gone, which is noticed next.
            Err(MessageError::Closed) => Ok(()),
            sent => Ok(sent?),
        }
    }
}

/// The server is gone, or this process is of no use any more.
impl Drop for Spawning {
    fn drop(&mut self) {
        for program in self.programs.values() {
            program.leader.signal_group(Signal::KILL);
        }
    }
}

fn not_started(error: Errno) -> Outcome {
    Outcome::NotStarted(error.raw_os_error())
}

fn spawn(PendingStart { order, ends, .. }: &PendingStart) -> io::Result<ChildProcess> {
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
        .process_group(0);
    limit(&mut command, order.limits);
    ChildProcess::spawn(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_children::limits::Limits;

    fn order() -> Order {
        Order {
            file: "/bin/true".into(),
            folder: "/".into(),
            environment: Vec::new(),
            limits: Limits::default(),
        }
    }

    /// Without its pipes, as where this process has no descriptors left.
    #[test]
    fn an_incomplete_order_is_refused_alone() {
        let (server, other) = Channel::pair().expect("a pair");
        let serving = std::thread::spawn(move || serve(other.into()));
        let mut buffer = Vec::new();
        for id in [8, 9] {
            let start = encode(&ToSpawner::Start(id, Box::new(order()))).expect("short");
            server.send(&start, &[], SendMode::Wait).expect("it serves");
            server.receive(&mut buffer).expect("an outcome");
            let outcome = not_started(Errno::MFILE);
            assert_eq!(decode(&buffer), Ok(ToServer { id, outcome }));
        }
        drop(server);
        assert!(serving.join().expect("no panic").is_ok());
    }
}
