//! The process that starts programs: one thread, which does nothing else. It reaps a program only once the server is done
//! with it: till then its number is no other group's, so that no signal hits a stranger.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lowroad_children::limits::limit;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use super::wire::{self, Heard, News, Order, ToServer, ToSpawner};

/// How often, and after what pause, a file that is being written is tried again.
const BUSY_TRIES_MAX: usize = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// What stands for the server among those that have news.
const SERVER: u64 = u64::MAX;

/// Starts what the server says at the other end of this socket, until that is gone; then ends all that is left.
///
/// # Errors
/// What this process needs is not to be had.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let server = epoll::EventData::new_u64(SERVER);
    epoll::add(&poll, &socket, server, epoll::EventFlags::IN)?;
    let mut spawning = Spawning {
        socket,
        poll,
        programs: HashMap::new(),
        late: Vec::new(),
    };
    let mut buffer = vec![0; wire::MESSAGE_LEN_MAX];
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
            match wire::hear(&spawning.socket, &mut buffer) {
                Some(Heard::Start(id, order)) => spawning.start(id, order, 0)?,
                Some(Heard::Incomplete(id)) => {
                    let news = News::NotStarted(Errno::MFILE.raw_os_error());
                    spawning.tell(id, news)?;
                }
                Some(Heard::Of(ToSpawner::Signal(id, signal))) => spawning.signal(id, signal),
                Some(Heard::Of(ToSpawner::Release(id, kill))) => spawning.release(id, kill)?,
                None => return Ok(()),
            }
        }
        spawning.start_late()?;
    }
}

struct Spawning {
    socket: OwnedFd,
    poll: OwnedFd,
    programs: HashMap<u64, Program>,
    /// Those whose files are being written, and when and for the how-manyth time they are tried.
    late: Vec<(Instant, usize, u64, Order)>,
}

/// A program that was started and is not reaped.
struct Program {
    leader: Child,
    pid: Pid,
    pidfd: OwnedFd,
    has_ended: bool,
    is_released: bool,
}

impl Spawning {
    fn start(&mut self, id: u64, order: Order, tries: usize) -> io::Result<()> {
        match spawn(&order).and_then(|leader| self.watch(id, leader)) {
            Ok(program) => drop(self.programs.insert(id, program)),
            // By whoever puts it there.
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES_MAX =>
            {
                let at = Instant::now() + BUSY_PAUSE;
                self.late.push((at, tries + 1, id, order));
            }
            Err(error) => {
                let number = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
                self.tell(id, News::NotStarted(number))?;
            }
        }
        Ok(())
    }

    fn watch(&self, id: u64, mut leader: Child) -> io::Result<Program> {
        let pid = Pid::from_child(&leader);
        let watched = pidfd_open(pid, PidfdFlags::empty()).and_then(|pidfd| {
            let data = epoll::EventData::new_u64(id);
            epoll::add(&self.poll, &pidfd, data, epoll::EventFlags::IN)?;
            Ok(pidfd)
        });
        match watched {
            Ok(pidfd) => Ok(Program {
                leader,
                pid,
                pidfd,
                has_ended: false,
                is_released: false,
            }),
            Err(error) => {
                signal(pid, Signal::KILL);
                let _ = leader.wait();
                Err(error.into())
            }
        }
    }

    fn start_late(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let due: Vec<_> = self.late.extract_if(.., |late| late.0 <= now).collect();
        for (_, tries, id, order) in due {
            self.start(id, order, tries)?;
        }
        Ok(())
    }

    fn ended(&mut self, id: u64) -> io::Result<()> {
        let Some(program) = self.programs.get_mut(&id) else {
            return Ok(());
        };
        program.has_ended = true;
        epoll::delete(&self.poll, &program.pidfd)?;
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(program.pidfd.as_fd()), how)?;
        let signal = status.as_ref().and_then(|it| it.terminating_signal());
        let news = match signal {
            Some(signal) => News::Signaled(signal),
            None => News::Exited(status.and_then(|it| it.exit_status()).unwrap_or_default()),
        };
        if program.is_released {
            self.reap(id);
        }
        self.tell(id, news)
    }

    fn signal(&mut self, id: u64, which: Signal) {
        if let Some(program) = self.programs.get(&id) {
            signal(program.pid, which);
        }
    }

    fn release(&mut self, id: u64, kill: bool) -> io::Result<()> {
        if let Some(at) = self.late.iter().position(|late| late.2 == id) {
            self.late.swap_remove(at);
            return self.tell(id, News::NotStarted(Errno::CANCELED.raw_os_error()));
        }
        let Some(program) = self.programs.get_mut(&id) else {
            return Ok(());
        };
        if kill {
            signal(program.pid, Signal::KILL);
        }
        program.is_released = true;
        if program.has_ended {
            self.reap(id);
        }
        Ok(())
    }

    fn reap(&mut self, id: u64) {
        if let Some(mut program) = self.programs.remove(&id) {
            let _ = program.leader.wait();
        }
    }

    fn tell(&self, id: u64, news: News) -> io::Result<()> {
        match wire::send_news(&self.socket, ToServer { id, news }) {
            // It is gone, which is noticed next.
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            sent => sent.map_err(io::Error::from),
        }
    }
}

/// The server is gone, or this process is of no use any more.
impl Drop for Spawning {
    fn drop(&mut self) {
        for program in self.programs.values() {
            signal(program.pid, Signal::KILL);
        }
    }
}

fn spawn(order: &Order) -> io::Result<Child> {
    let [input, output, errors] = &order.ends;
    let mut command = Command::new(&order.file);
    command
        .current_dir(&order.folder)
        .env_clear()
        .envs(order.variables())
        .stdin(Stdio::from(input.try_clone()?))
        .stdout(Stdio::from(output.try_clone()?))
        .stderr(Stdio::from(errors.try_clone()?))
        .process_group(0);
    limit(&mut command, order.limits);
    command.spawn()
}

/// A group that is no more needs no signal.
fn signal(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}
