//! Applications that the server starts, keeps alive and stops: the origins that are its own. Knows nothing of what they
//! speak.
//!
//! Each has a thread of its own. When an application ends, it is started again, after a pause that grows while it does not
//! live long ([`life`]). It is the leader of a process group, which ends with it, and with the server however that ends.

mod left;
mod life;
mod output;
mod program;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use self::left::Mark;
use self::life::{Life, Step};
use self::output::Listening;
use crate::limits::{Limits, limit};
use crate::{Notice, descriptors};

/// What is started.
#[derive(Clone, Debug)]
pub struct Application {
    /// The program and its arguments; never empty.
    pub command: Vec<String>,
    /// Where it runs; `None`: where the server does.
    pub folder: Option<PathBuf>,
    /// Variables besides those of the server.
    pub env: Vec<(String, String)>,
    /// User and group that it runs as; `None`: those of the server.
    pub user: Option<(u32, u32)>,
    /// How long it may take to end once it was told to.
    pub stop_timeout: Duration,
}

/// Whether an application could be started with the rights of this process. Starts nothing.
///
/// # Errors
/// What its start would log.
pub fn check(application: &Application) -> Result<(), String> {
    program::find(application).map_err(|error| start_failure(&application.command[0], &error))
}

fn start_failure(program: &str, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "; may the server's user run it?",
        _ => "",
    };
    format!("{program} can't be started: {error}{hint}")
}

/// An application that is kept alive. Dropped, it is stopped, in order.
pub struct Supervisor {
    news: Sender<News>,
    thread: Option<JoinHandle<()>>,
    begins: Begins,
}

/// Whether an application begins at all.
#[derive(Clone, Default)]
pub struct Begins(Arc<AtomicBool>);

impl Begins {
    /// There is no such program, or it is not for the server to run, as far as was found at the last try. Waiting is of no
    /// use then.
    pub fn never(&self) -> bool {
        self.0.load(Relaxed)
    }
}

enum News {
    /// The one with this number has ended.
    Ended(u64),
    /// It is no longer wanted.
    End,
}

impl Supervisor {
    /// Starts an application, and again whenever it ends. What it writes and how it ends goes to `notice`, a line each.
    ///
    /// # Errors
    /// The machine gives no thread.
    pub fn start(application: Application, notice: Notice) -> io::Result<Supervisor> {
        let (news, told) = channel();
        let own = news.clone();
        let begins = Begins::default();
        let told_of = begins.clone();
        let supervising = move || {
            Supervising::new(application, notice, (own, told_of)).run(&told);
        };
        let thread = thread::Builder::new()
            .name("supervise".into())
            .spawn(supervising)?;
        Ok(Supervisor {
            news,
            thread: Some(thread),
            begins,
        })
    }

    /// Whether it begins at all.
    pub fn begins(&self) -> Begins {
        self.begins.clone()
    }

    /// Tells it to end; the drop waits for that.
    pub fn end(&self) {
        let _ = self.news.send(News::End);
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Supervising {
    application: Application,
    notice: Notice,
    news: Sender<News>,
    begins: Begins,
    began: Instant,
    life: Life,
    /// It, while it runs.
    child: Option<Child>,
    /// What it writes is heard as long as this is here.
    output: Option<Listening>,
    /// By which its descendants are known.
    mark: Mark,
    /// How many were started.
    started: u64,
}

impl Supervising {
    fn new(
        application: Application,
        notice: Notice,
        (news, begins): (Sender<News>, Begins),
    ) -> Supervising {
        Supervising {
            life: Life::new(application.stop_timeout),
            application,
            notice,
            news,
            begins,
            began: Instant::now(),
            child: None,
            output: None,
            mark: Mark::new(),
            started: 0,
        }
    }

    fn run(mut self, told: &Receiver<News>) {
        loop {
            let wait = match self.life.step(self.began.elapsed()) {
                Step::Start => {
                    self.start();
                    continue;
                }
                Step::Signal(signal) => {
                    self.signal(signal);
                    continue;
                }
                Step::Wait(until) => until,
                Step::Over => return,
            };
            let now = self.began.elapsed();
            let news = match wait {
                Some(until) => told.recv_timeout(until.saturating_sub(now)),
                None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match news {
                Ok(News::Ended(number)) if number == self.started => self.ended(),
                Ok(News::Ended(_)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(News::End) | Err(RecvTimeoutError::Disconnected) => {
                    self.life.stop(self.began.elapsed());
                }
            }
        }
    }

    fn start(&mut self) {
        let now = self.began.elapsed();
        match self.spawn() {
            Ok(child) => {
                self.started += 1;
                self.tell_of_end(&child);
                self.child = Some(child);
                self.begins.0.store(false, Relaxed);
                self.life.started(now);
            }
            Err(error) => {
                let name = &self.application.command[0];
                let pause = self.life.failed(now);
                self.begins.0.store(is_hopeless(&error), Relaxed);
                let failure = start_failure(name, &error);
                (self.notice)(&format!(
                    "{failure}; tried again in {} ms",
                    pause.as_millis()
                ));
            }
        }
    }

    fn spawn(&mut self) -> io::Result<Child> {
        let application = &self.application;
        let mut command = Command::new(&application.command[0]);
        command
            .args(&application.command[1..])
            .envs(application.env.iter().map(|(name, value)| (name, value)))
            .env(left::VARIABLE, self.mark.value())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(folder) = &application.folder {
            command.current_dir(folder);
        }
        limit(
            &mut command,
            Limits {
                memory_len_max: 0,
                cpu_s_max: 0,
                processes_max: 0,
                user: application.user,
                descriptors: descriptors::of_programs(),
                ends_with_parent: true,
            },
        );
        let mut child = command.spawn()?;
        if let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) {
            self.output = Some(output::pass_on(output, errors, self.notice.clone())?);
        }
        Ok(child)
    }

    /// Hears of its end, without reaping it: until that is done, its number is no other process's.
    fn tell_of_end(&self, child: &Child) {
        let (pid, number, news) = (Pid::from_child(child), self.started, self.news.clone());
        let waiting = move || {
            let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), how) {}
            let _ = news.send(News::Ended(number));
        };
        let thread = thread::Builder::new().name("supervise".into());
        if thread.spawn(waiting).is_err() {
            // Nobody would hear of its end: it counts as ended, and is started again.
            let _ = self.news.send(News::Ended(self.started));
        }
    }

    fn ended(&mut self) {
        // What is left of its group ends with it.
        self.signal(Signal::KILL);
        let Some(mut child) = self.child.take() else {
            return;
        };
        let how = child.wait();
        self.kill_what_is_left();
        self.output = None;
        let now = self.began.elapsed();
        let Some(pause) = self.life.ended(now) else {
            return;
        };
        let name = &self.application.command[0];
        let how = how.map_or_else(|error| error.to_string(), |status| status.to_string());
        (self.notice)(&format!(
            "{name} ended ({how}); it is started again in {} ms",
            pause.as_millis()
        ));
    }

    fn kill_what_is_left(&self) {
        let count = self.mark.kill_all();
        if count > 0 {
            let name = &self.application.command[0];
            (self.notice)(&format!(
                "{name} had left {count} processes of other groups, which were killed"
            ));
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            // A group that is no more needs no signal.
            let _ = kill_process_group(Pid::from_child(child), signal);
        }
    }
}

/// Whether a program that could not be started for this won't be a moment later either.
fn is_hopeless(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(
            Errno::NOENT
                | Errno::ACCESS
                | Errno::PERM
                | Errno::NOEXEC
                | Errno::NOTDIR
                | Errno::ISDIR
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    type Lines = Arc<Mutex<Vec<String>>>;

    fn supervised(script: &str) -> (Supervisor, Lines) {
        let lines = Lines::default();
        let to = lines.clone();
        let notice: Notice = Arc::new(move |line| to.lock().expect("a lock").push(line.into()));
        let application = Application {
            command: ["sh", "-c", script].map(String::from).into(),
            folder: None,
            env: vec![("WORD".into(), "hello".into())],
            user: None,
            stop_timeout: Duration::from_secs(5),
        };
        let supervisor = Supervisor::start(application, notice).expect("a thread");
        (supervisor, lines)
    }

    fn wait_for(lines: &Lines, text: &str, count: usize) {
        lowroad_testkit::wait_until(text, || {
            let lines = lines.lock().expect("a lock");
            let found = lines.iter().filter(|line| line.contains(text)).count();
            (found >= count).then_some(())
        });
    }

    #[test]
    fn what_ends_is_started_again_and_heard() {
        let (supervisor, lines) = supervised("echo $WORD; exit 3");
        wait_for(&lines, "hello", 2);
        wait_for(&lines, "exit status: 3", 2);
        drop(supervisor);
    }

    #[test]
    fn it_is_stopped_in_order() {
        let script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done";
        let (supervisor, lines) = supervised(script);
        wait_for(&lines, "up", 1);
        assert!(!supervisor.begins().never());
        drop(supervisor);
        wait_for(&lines, "bye", 1);
        let lines = lines.lock().expect("a lock");
        assert!(
            !lines.iter().any(|line| line.contains("started again")),
            "{lines:?}"
        );
    }

    #[test]
    fn what_can_not_be_started_is_tried_again() {
        for (command, says) in [
            ("/nonexistent/application", "can't be started: No such file"),
            // A folder may be run by nobody.
            ("/", "may the server's user run it?"),
        ] {
            let lines = Lines::default();
            let to = lines.clone();
            let notice: Notice = Arc::new(move |line| to.lock().expect("a lock").push(line.into()));
            let application = Application {
                command: vec![command.into()],
                folder: None,
                env: Vec::new(),
                user: None,
                stop_timeout: Duration::from_secs(5),
            };
            let supervisor = Supervisor::start(application, notice).expect("a thread");
            wait_for(&lines, says, 2);
            assert!(supervisor.begins().never(), "{command}");
            drop(supervisor);
        }
    }
}
