//! Opens a log's destination, and writes to it in a way that keeps lines whole or counts them as lost.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::time::Instant;

use super::{EntryOutput, LogDestination, OpenOtherwise};
use crate::loss_report::LossReport;

/// The most bytes of one write, unless a single line is longer.
const WRITE_LEN_MAX: usize = 64 * 1024;

/// An event for the error log. [`LineEvent::Dropping`] is reported once, until [`LineEvent::WrittenAgain`]: after some
/// seconds without an error.
#[derive(Debug)]
pub enum LineEvent {
    /// Lines are dropped, because the file can't be written.
    Dropping(io::Error),
    /// Lines are written again.
    WrittenAgain {
        /// The number of lines that were lost before.
        lost: u64,
    },
}

/// Receives events, on the log's thread.
pub type OnLineEvent = Box<dyn FnMut(LineEvent) + Send>;

/// Lines in a file.
pub struct LineOutput {
    target: LogDestination,
    output: LogOutput<File>,
    report: LossReport,
    on_event: OnLineEvent,
}

impl LineOutput {
    /// Writes to the target's file, which is open.
    pub fn new(target: LogDestination, file: File, on_event: OnLineEvent) -> LineOutput {
        LineOutput {
            target,
            output: LogOutput::new(file),
            report: LossReport::default(),
            on_event,
        }
    }

    /// Reports the beginning and the end of losses.
    fn note_outcome(&mut self, lost: u64, error: Option<io::Error>, now: Instant) {
        let Some(error) = error else {
            if let Some(lost) = self.report.note_success(now) {
                (self.on_event)(LineEvent::WrittenAgain { lost });
            }
            return;
        };
        if self.report.note_failure() {
            (self.on_event)(LineEvent::Dropping(error));
        }
        self.report.count_lost(lost);
    }

    /// Creates the file again if it was deleted: its lines would be lost at the end of the process. A renamed file is
    /// written until a signal, as logrotate expects.
    fn replace_deleted(&mut self) {
        let is_file = matches!(self.target, LogDestination::File(_));
        let meta = self.output.file.metadata();
        if is_file
            && meta.is_ok_and(|meta| meta.is_file() && meta.nlink() == 0)
            // If this process may not create it, lines go to the deleted file until a signal.
            && let Ok(file) = open(&self.target)
        {
            self.output = LogOutput::new(file);
        }
    }
}

impl EntryOutput for LineOutput {
    const IS_GATHERING: bool = false;

    fn part_len(&self, entries: &[u8]) -> usize {
        chunk_len(entries)
    }

    fn write(&mut self, entries: &[u8]) -> u64 {
        self.replace_deleted();
        let (lost, error) = self.output.write(entries);
        self.note_outcome(lost, error, Instant::now());
        lost
    }

    fn end_round(&mut self) -> u64 {
        0
    }

    fn reopen(&mut self, open_otherwise: OpenOtherwise) -> io::Result<()> {
        let opened = open(&self.target).or_else(|error| match &self.target {
            LogDestination::File(path) => open_otherwise(path, error),
            LogDestination::Stdout | LogDestination::Stderr => Err(error),
        });
        self.output = LogOutput::new(opened?);
        Ok(())
    }
}

/// Opens a log's destination. For standard output and error, the file descriptors are duplicated: the usual handles
/// have locks, so the rest of the program would wait while the writer thread blocks in a write.
pub fn open(target: &LogDestination) -> io::Result<File> {
    match target {
        LogDestination::Stdout => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        LogDestination::Stderr => io::stderr().as_fd().try_clone_to_owned().map(File::from),
        LogDestination::File(path) => {
            // Opening a FIFO for writing waits for a reader, unless it is opened for reading too.
            let fifo = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
            // Logs contain client addresses, so other users must not be able to read them.
            OpenOptions::new()
                .read(fifo)
                .append(true)
                .create(true)
                .mode(0o640)
                .open(path)
        }
    }
}

/// The file that lines are written to.
pub struct LogOutput<W> {
    file: W,
    /// A failed write has left an incomplete line.
    is_mid_line: bool,
}

impl<W: Write> LogOutput<W> {
    /// Writes to `file`, which must be at the beginning of a line.
    pub fn new(file: W) -> LogOutput<W> {
        LogOutput {
            file,
            is_mid_line: false,
        }
    }

    /// Writes whole lines; returns the number of lost lines, and the error. A line truncated by a full disk is terminated
    /// before the next line is written, so that the two do not merge.
    pub fn write(&mut self, lines: &[u8]) -> (u64, Option<io::Error>) {
        // If there is still no room, new lines would be appended to the incomplete line.
        if self.is_mid_line
            && let (_, Some(error)) = self.write_bytes(b"\n")
        {
            return (line_count(lines), Some(error));
        }
        self.is_mid_line = false;
        let (rest, error) = self.write_bytes(lines);
        let written = &lines[..lines.len() - rest.len()];
        self.is_mid_line = written.last().is_some_and(|byte| *byte != b'\n');
        (line_count(rest), error)
    }

    /// Writes bytes; returns those that were not written, and the error.
    fn write_bytes<'b>(&mut self, mut bytes: &'b [u8]) -> (&'b [u8], Option<io::Error>) {
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return (bytes, Some(ErrorKind::WriteZero.into())),
                Ok(len) => bytes = &bytes[len..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (bytes, Some(error)),
            }
        }
        (bytes, None)
    }
}

/// The length of the lines for one write: as many whole lines as fit into [`WRITE_LEN_MAX`].
fn chunk_len(lines: &[u8]) -> usize {
    let Some(first) = lines.get(..WRITE_LEN_MAX) else {
        return lines.len();
    };
    let is_end = |byte: &u8| *byte == b'\n';
    if let Some(end) = first.iter().rposition(is_end) {
        return end + 1;
    }
    // A single line is longer than the limit of a write.
    let rest = lines[WRITE_LEN_MAX..].iter().position(is_end);
    rest.map_or(lines.len(), |end| WRITE_LEN_MAX + end + 1)
}

/// The number of lines that end in these bytes.
pub fn line_count(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss_report::RECOVERY;

    fn output(
        target: &LogDestination,
        on_event: impl FnMut(LineEvent) + Send + 'static,
    ) -> LineOutput {
        let file = open(target).expect("a file");
        LineOutput::new(target.clone(), file, Box::new(on_event))
    }

    #[test]
    fn losses_are_reported_at_their_beginning_and_end() {
        // /dev/full fails each write with ENOSPC.
        let target = LogDestination::File("/dev/full".into());
        let (sender, events) = std::sync::mpsc::channel();
        let mut output = output(&target, move |event| {
            let text = match event {
                LineEvent::Dropping(error) => error.kind().to_string(),
                LineEvent::WrittenAgain { lost } => format!("again: {lost}"),
            };
            sender.send(text).expect("a receiver");
        });
        assert_eq!(output.write(b"one\ntwo\n"), 2);
        assert_eq!(output.write(b"three\n"), 1);
        let texts = || events.try_iter().collect::<Vec<_>>();
        assert_eq!(texts(), ["no storage space"]);
        let now = Instant::now();
        output.note_outcome(0, None, now);
        assert_eq!(texts(), [""; 0]);
        output.note_outcome(0, None, now + RECOVERY);
        assert_eq!(texts(), ["again: 3"]);
    }

    #[test]
    fn deleted_file_is_created_again_and_a_renamed_one_is_not() {
        let name = format!("lowroad-log-deleted-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let renamed = path.with_extension("1");
        let target = LogDestination::File(path.clone());
        let mut output = output(&target, |event| panic!("{event:?}"));
        assert_eq!(output.write(b"one\n"), 0);
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(output.write(b"two\n"), 0);
        std::fs::rename(&path, &renamed).expect("renamed");
        assert_eq!(output.write(b"three\n"), 0);
        assert!(!path.exists());
        let text = std::fs::read_to_string(&renamed).expect("a log");
        assert_eq!(text, "two\nthree\n");
        std::fs::remove_file(&renamed).expect("removed");
    }

    /// A disk with this many free bytes.
    struct SmallDisk {
        written: Vec<u8>,
        room: usize,
    }

    impl Write for SmallDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len = bytes.len().min(self.room);
            if len == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= len;
            self.written.extend_from_slice(&bytes[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn full_disk_loses_only_whole_counted_lines() {
        // Each `room` truncates the output at another byte.
        for room in 0..=12 {
            let disk = SmallDisk {
                written: Vec::new(),
                room,
            };
            let mut output = LogOutput::new(disk);
            let mut lost = output.write(b"one\ntwo\nsix\n").0;
            lost += output.write(b"ten\n").0;
            output.file.room = 100;
            lost += output.write(b"last\n").0;
            let text = String::from_utf8_lossy(&output.file.written).into_owned();
            let is_whole = |line: &&str| ["one", "two", "six", "ten", "last"].contains(line);
            let whole = text.lines().filter(is_whole).count() as u64;
            assert!(text.ends_with("\nlast\n") || text == "last\n", "{text}");
            // A line truncated at its line end counts as lost, although it is terminated by the next write.
            let ended_later = u64::from([3, 7, 11].contains(&room));
            assert_eq!(whole + lost, 5 + ended_later, "room {room}: {text}");
        }
    }

    #[test]
    fn chunks_end_at_line_ends() {
        let line = |len: usize| [&vec![b'x'; len - 1][..], b"\n"].concat();
        let lens = |lines: &[usize]| -> Vec<usize> {
            let mut rest: Vec<u8> = lines.iter().flat_map(|len| line(*len)).collect();
            let mut lens = Vec::new();
            while !rest.is_empty() {
                lens.push(chunk_len(&rest));
                rest.drain(..chunk_len(&rest));
            }
            lens
        };
        assert_eq!(lens(&[]), []);
        assert_eq!(lens(&[10, 20]), [30]);
        assert_eq!(lens(&[10, WRITE_LEN_MAX - 10, 1]), [WRITE_LEN_MAX, 1]);
        assert_eq!(lens(&[10, WRITE_LEN_MAX]), [10, WRITE_LEN_MAX]);
        assert_eq!(lens(&[WRITE_LEN_MAX + 1, 2, 3]), [WRITE_LEN_MAX + 1, 5]);
    }
}
