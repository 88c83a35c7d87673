//! The main thread's part of an upgrade: one at a time, without a change before the successor is ready.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use lowroad_engine::worker::MailboxMessage;
use lowroad_privileges::starter::ProgramStart;

use super::successor::{self, PassedDescriptors, ReadySuccessor, UpgradeAttempt};
use crate::events::{CommandReply, MainEvent};
use crate::init::InitLink;
use crate::running_server::{RunningServer, lock};

/// The refusal of a command that would change the server during an upgrade.
pub const IN_PROGRESS: &str = "an upgrade is in progress; try again when it has ended";

/// Starts upgrades.
pub struct UpgradeControl {
    /// `None`: this server can't be upgraded, for the reason in the error.
    program: Result<Arc<ProgramStart>, String>,
    events: Sender<MainEvent>,
    state: UpgradeState,
}

enum UpgradeState {
    /// No upgrade is in progress.
    Idle,
    /// The successor is starting.
    Starting {
        /// Receives the result, if a client has requested the upgrade.
        reply: Option<CommandReply>,
        attempt: Arc<UpgradeAttempt>,
    },
}

impl UpgradeControl {
    /// Starts `program` in upgrades; the threads send their events to `events`.
    pub fn new(program: Result<ProgramStart, String>, events: Sender<MainEvent>) -> UpgradeControl {
        UpgradeControl {
            program: program.map(Arc::new),
            events,
            state: UpgradeState::Idle,
        }
    }

    /// Whether a successor is starting.
    pub fn is_in_progress(&self) -> bool {
        matches!(self.state, UpgradeState::Starting { .. })
    }

    /// Ends the successor that is starting, because this process is ending.
    pub fn cancel(&self) {
        if let UpgradeState::Starting { attempt, .. } = &self.state {
            attempt.cancel();
        }
    }

    /// Starts an upgrade.
    pub fn request(
        &mut self,
        running: &Arc<Mutex<RunningServer>>,
        passed: PassedDescriptors,
        reply: Option<CommandReply>,
    ) {
        let logger = lock(running).logger.clone();
        let refuse = |reason: String| {
            lock(running).upgrades_failed += 1;
            logger.error(format_args!("upgrade: {reason}"));
            if let Some(reply) = &reply {
                // The client may have closed its connection.
                let _ = reply.send(Err(reason));
            }
        };
        if self.is_in_progress() {
            return refuse(IN_PROGRESS.to_owned());
        }
        let program = match &self.program {
            Ok(program) => program.clone(),
            Err(reason) => return refuse(reason.clone()),
        };
        logger.info(format_args!(
            "upgrade: starting {}",
            program.path().display()
        ));
        let attempt = Arc::<UpgradeAttempt>::default();
        let started = successor::start(
            running.clone(),
            program,
            passed,
            attempt.clone(),
            self.events.clone(),
        );
        match started {
            Ok(()) => self.state = UpgradeState::Starting { reply, attempt },
            Err(error) => refuse(format!("no thread: {error}")),
        }
    }

    /// Ends the start of the successor. Returns the successor that takes over, or `None` if this server continues.
    pub fn finish(
        &mut self,
        running: &Mutex<RunningServer>,
        init: Option<&InitLink>,
        result: Result<ReadySuccessor, String>,
    ) -> Option<ReadySuccessor> {
        let UpgradeState::Starting { reply, .. } =
            std::mem::replace(&mut self.state, UpgradeState::Idle)
        else {
            return None;
        };
        let logger = lock(running).logger.clone();
        let result = result.and_then(|successor| successor.proceed(init).map(|()| successor));
        let (text, successor) = match result {
            Ok(successor) => {
                let report = &successor.report;
                let text = format!(
                    "process {} (lowroad {}) has taken over; process {} ends after its last requests",
                    report.process,
                    report.version,
                    std::process::id()
                );
                logger.info(format_args!("upgrade: {text}"));
                (Ok(text), Some(successor))
            }
            Err(reason) => {
                let mut running = lock(running);
                running.upgrades_failed += 1;
                for mailbox in &running.workers {
                    mailbox.post(MailboxMessage::EndSharing);
                }
                drop(running);
                let text = format!("this process goes on: {reason}");
                logger.error(format_args!("upgrade: {text}"));
                (Err(text), None)
            }
        };
        if let Some(reply) = reply {
            // The client may have closed its connection.
            let _ = reply.send(text);
        }
        successor
    }
}
