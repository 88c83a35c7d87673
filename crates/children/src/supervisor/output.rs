//! What an application writes, to its end or the application's: a process that it leaves behind may hold the other end for
//! ever. Knows nothing of what becomes of the lines.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Notice;

/// Longer lines are cut into several.
const LINE_LEN_MAX: usize = 4096;
/// How often is read once the application has ended: more than a pipe holds.
const READS_LAST: usize = 64;

/// Held as long as output is waited for.
pub struct Listening {
    _alive: PipeWriter,
}

/// One of the streams.
struct Stream<R> {
    from: R,
    line: Vec<u8>,
    is_over: bool,
}

/// Passes lines of both streams on, by a thread, as long as they come or the result is held.
///
/// # Errors
/// The machine gives no thread or no pipe.
pub fn pass_on<O, E>(output: O, errors: E, notice: Notice) -> io::Result<Listening>
where
    O: Read + AsFd + Send + 'static,
    E: Read + AsFd + Send + 'static,
{
    let (ended, alive) = io::pipe()?;
    let (mut output, mut errors) = (Stream::of(output), Stream::of(errors));
    let passing = move || {
        // Counts down once nobody listens any more: what was written before that is read.
        let mut left = None;
        while !(output.is_over && errors.is_over) && left != Some(0) {
            let [has_output, has_errors, is_last] = wait(&output, &errors, &ended, left.is_some());
            if has_output {
                output.read(&notice);
            }
            if has_errors {
                errors.read(&notice);
            }
            left = match left {
                Some(_) if !has_output && !has_errors => break,
                Some(left) => Some(left - 1),
                None => is_last.then_some(READS_LAST),
            };
        }
        output.end(&notice);
        errors.end(&notice);
    };
    let thread = thread::Builder::new().name("supervise".into());
    thread.spawn(passing)?;
    Ok(Listening { _alive: alive })
}

/// Which have something, or their end; does not wait if nobody listens any more.
fn wait<O: AsFd, E: AsFd>(
    output: &Stream<O>,
    errors: &Stream<E>,
    ended: &PipeReader,
    is_last: bool,
) -> [bool; 3] {
    let fds = [
        (!output.is_over).then(|| output.from.as_fd()),
        (!errors.is_over).then(|| errors.from.as_fd()),
        (!is_last).then(|| ended.as_fd()),
    ];
    let open = fds.iter().flatten();
    let mut open: Vec<PollFd<'_>> = open
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let at_once = Timespec::default();
    // Interrupted, it finds nothing, and is asked again.
    let _ = poll(&mut open, is_last.then_some(&at_once));
    let mut ready = open.iter().map(|it| !it.revents().is_empty());
    fds.map(|fd| fd.is_some() && ready.next().unwrap_or(false))
}

impl<R: Read> Stream<R> {
    fn of(from: R) -> Stream<R> {
        Stream {
            from,
            line: Vec::new(),
            is_over: false,
        }
    }

    /// Reads what is there, and passes on the lines that are whole.
    fn read(&mut self, notice: &Notice) {
        let mut bytes = [0; LINE_LEN_MAX];
        let len = match self.from.read(&mut bytes) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(_) => 0,
        };
        self.is_over = len == 0;
        for piece in bytes[..len].split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LINE_LEN_MAX {
                self.end(notice);
            }
        }
    }

    /// Passes on what there is of a line.
    fn end(&mut self, notice: &Notice) {
        if !self.line.is_empty() {
            notice(String::from_utf8_lossy(&self.line).trim_end());
            self.line.clear();
        }
    }
}
