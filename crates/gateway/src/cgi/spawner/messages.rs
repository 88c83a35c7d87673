//! Messages between the server and the spawner process.

use std::ffi::OsString;

use lowroad_child_processes::limits::ProcessLimits;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The name and value of an environment variable.
pub type EnvVariable = (ByteBuf, ByteBuf);

/// The request to start a program.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnOrder {
    /// The program's file, which is executable.
    pub file: OsString,
    /// The program's working directory.
    pub folder: OsString,
    /// The program's complete environment.
    pub environment: Vec<EnvVariable>,
    /// The program's resource limits.
    pub limits: ProcessLimits,
}

/// A message from the server about the program with the given number.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSpawner {
    /// Starts the program; the descriptors of its stdin, stdout and stderr are passed with the message.
    Start(u64, Box<SpawnOrder>),
    /// Sends SIGTERM to the program's process group.
    Terminate(u64),
    /// Releases the program; with `true`, kills the rest of its process group.
    Release(u64, bool),
}

/// A message from the spawner: the outcome of a program.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnerReply {
    /// The number of the program.
    pub id: u64,
    /// The outcome of the program.
    pub outcome: ExitOutcome,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitOutcome {
    /// The program was not started; the value is the errno.
    NotStarted(i32),
    /// The program exited with this status.
    Exited(i32),
    /// The program was ended by this signal.
    Signaled(i32),
    /// The spawner died, so the outcome is unknown. Never sent as a message.
    Lost,
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_child_processes::message::{MessageError, PacketChannel, SendMode, decode, encode};
    use std::os::fd::{AsFd, OwnedFd};

    fn order(value_len: usize) -> SpawnOrder {
        let variable = |name: &[u8], value: &[u8]| (name.to_vec().into(), value.to_vec().into());
        SpawnOrder {
            file: "/a/b".into(),
            folder: "/a".into(),
            environment: vec![
                variable(b"A", b"one two"),
                variable(b"B", &vec![b'x'; value_len]),
            ],
            limits: ProcessLimits {
                memory_len_max: 1,
                cpu_s_max: 2,
                processes_max: 3,
                user: Some((4, 5)),
                descriptors: Some((Some(6), None)),
                ends_with_parent: true,
            },
        }
    }

    #[test]
    fn spawner_messages_round_trip() {
        let (ours, other) = PacketChannel::pair().expect("a pair");
        let other = PacketChannel::from(other);
        let null = OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
        let sent = || {
            [
                ToSpawner::Start(7, Box::new(order(0))),
                ToSpawner::Terminate(8),
                ToSpawner::Release(9, true),
            ]
        };
        let mut buffer = Vec::new();
        for message in sent() {
            let content = encode(&message).expect("short");
            ours.send(&content, &[null.as_fd(); 3], SendMode::Try)
                .expect("room");
        }
        for message in sent() {
            assert_eq!(other.receive(&mut buffer).expect("a message").len(), 3);
            assert_eq!(decode(&buffer), Ok(message));
        }
        for outcome in [
            ExitOutcome::NotStarted(2),
            ExitOutcome::Exited(3),
            ExitOutcome::Signaled(9),
        ] {
            let content = encode(&SpawnerReply { id: 1, outcome }).expect("short");
            assert_eq!(decode(&content), Ok(SpawnerReply { id: 1, outcome }));
        }
    }

    /// A message that is too long is rejected; the connection remains usable.
    #[test]
    fn too_long_spawn_order_is_rejected_without_closing_channel() {
        let (ours, other) = PacketChannel::pair().expect("a pair");
        let long = encode(&ToSpawner::Start(7, Box::new(order(4 << 20)))).expect("bytes");
        assert_eq!(
            ours.send(&long, &[], SendMode::Wait),
            Err(MessageError::TooLong)
        );
        let short = encode(&ToSpawner::Terminate(8)).expect("short");
        ours.send(&short, &[], SendMode::Try).expect("room");
        let mut buffer = Vec::new();
        PacketChannel::from(other).receive(&mut buffer).expect("it");
        assert_eq!(buffer, short);
    }
}
