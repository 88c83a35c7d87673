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
pub const IN_PROGRESS: &str =
    "an upgrade is in progress, so nothing was changed; try again when it has ended";

/// Starts upgrades.
pub struct UpgradeControl {
    /// `None`: this server can't be upgraded, for the reason in the error.
    program: Result<Arc<ProgramStart>, String>,
    events: Sender<MainEvent>,
    state: UpgradeState,
    /// The number of the latest upgrade. It makes each message unique, because the log suppresses repeated ones.
    number: u64,
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
    /// The successor takes over, and this process drains.
    HandingOver {
        /// As in `Starting`, until the result is sent.
        reply: Option<CommandReply>,
        /// The result.
        text: String,
    },
}

impl UpgradeControl {
    /// Starts `program` in upgrades; the threads send their events to `events`.
    pub fn new(program: Result<ProgramStart, String>, events: Sender<MainEvent>) -> UpgradeControl {
        UpgradeControl {
            program: program.map(Arc::new),
            events,
            state: UpgradeState::Idle,
            number: 0,
        }
    }

    /// Whether a successor is starting, or takes over.
    pub fn is_in_progress(&self) -> bool {
        !matches!(self.state, UpgradeState::Idle)
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
        passed: std::io::Result<PassedDescriptors>,
        reply: Option<CommandReply>,
    ) {
        let logger = lock(running).logger.clone();
        self.number += 1;
        let number = self.number;
        let refuse = |reason: String| {
            lock(running).upgrades_failed += 1;
            let reason = format!("this process goes on: {reason}");
            logger.error(format_args!("upgrade {number}: {reason}"));
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
        let passed = match passed {
            Ok(passed) => passed,
            Err(error) => return refuse(successor::not_shared(&error)),
        };
        logger.info(format_args!(
            "upgrade {number}: starting {}",
            program.path().display()
        ));
        let attempt = Arc::<UpgradeAttempt>::default();
        // Before the thread reads the state, so that the successor knows each change that is made.
        lock(running).is_handing_over = true;
        let started = successor::start(
            running.clone(),
            program,
            passed,
            attempt.clone(),
            self.events.clone(),
        );
        match started {
            Ok(()) => self.state = UpgradeState::Starting { reply, attempt },
            Err(error) => {
                lock(running).is_handing_over = false;
                refuse(format!("no thread: {error}"));
            }
        }
    }

    /// Ends the start of the successor. Returns the successor that takes over, or `None` if this server continues. The client
    /// gets the result of a failure now, otherwise by [`UpgradeControl::confirm`].
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
        let (logger, number) = (lock(running).logger.clone(), self.number);
        let result = result.and_then(|successor| {
            // The successor takes the lock as soon as it may proceed. Meanwhile this process saves no changes.
            if let Some(changes) = &lock(running).changes_lock {
                changes.release();
            }
            successor.proceed(init).map(|()| successor)
        });
        match result {
            Ok(successor) => {
                let report = &successor.report;
                let text = format!(
                    "process {} (lowroad {}) has taken over; process {} ends after its last requests",
                    report.process,
                    report.version,
                    std::process::id()
                );
                logger.info(format_args!("upgrade {number}: {text}"));
                self.state = UpgradeState::HandingOver { reply, text };
                Some(successor)
            }
            Err(reason) => {
                continue_serving(&mut lock(running));
                let text = format!("this process goes on: {reason}");
                logger.error(format_args!("upgrade {number}: {text}"));
                if let Some(reply) = reply {
                    // The client may have closed its connection.
                    let _ = reply.send(Err(text));
                }
                None
            }
        }
    }

    /// Sends the result of a successful upgrade. Called when this process accepts no more commands, so that the client's next
    /// one reaches the successor.
    pub fn confirm(&mut self) {
        if let UpgradeState::HandingOver { reply, text } = &mut self.state
            && let Some(reply) = reply.take()
        {
            // The client may have closed its connection.
            let _ = reply.send(Ok(std::mem::take(text)));
        }
    }
}

/// Ends the state of an upgrade that has failed.
fn continue_serving(running: &mut RunningServer) {
    running.upgrades_failed += 1;
    running.is_handing_over = false;
    // Lists were held back for the successor.
    if let Some(forwarder) = &running.deny_forwarder {
        forwarder.notify();
    }
    running.lock_changes();
    for mailbox in &running.workers {
        mailbox.post(MailboxMessage::EndSharing);
    }
}
