//! Waits of deferred requests. Each kind of wait ends with one kind of outcome.

use std::sync::Arc;

use lowroad_access_control::passwords::PasswordOutcome;
use lowroad_engine::stream::BodyReceiver;
use lowroad_files::file_loader::LoadOutcome;
use lowroad_handler::HandlerFailure;
use lowroad_response_cache::handler_outcome::HandlerOutcome;
use lowroad_response_cache::reply::HandlerReply;
use lowroad_response_cache::storage::StoredResponse;
use lowroad_routes::routes::Route;
use lowroad_store::disk_cache::RecallOutcome;

/// The event that a deferred request waits for.
pub enum WaitReason {
    /// A helper that loads a file. If there is no file, a handler may get the body.
    File {
        /// The request's body.
        body: Option<BodyReceiver>,
    },
    /// A handler's response.
    Program {
        /// Its drop cancels the call, unless other requests wait for it.
        _call_guard: Box<dyn Send>,
        /// The variant of the request is known.
        is_variant: bool,
        /// Its route.
        route: Arc<Route>,
        /// The decoded path of the call: the requested one, or its folder's index file.
        path: Box<[u8]>,
    },
    /// The verification of the request's password.
    Password {
        /// The request's body, for a handler if the request passes.
        body: Option<BodyReceiver>,
        /// The number of the rule that requires the password.
        rule: usize,
    },
    /// The report that a purge is durable.
    Purge,
    /// A helper that searches the disk cache.
    Disk {
        /// The route to call if the disk has no response.
        route: Arc<Route>,
        /// The decoded path of the call.
        path: Box<[u8]>,
        /// The progress of the disk look-ups.
        progress: DiskLookups,
    },
    /// The end of a body that is discarded.
    Body,
}

/// The progress of a request's disk look-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskLookups {
    /// None yet: equal requests share one look-up by the key alone.
    First,
    /// One; its response varies and may be for other request fields, so one more look-up uses the fields.
    ForFields,
    /// No more look-ups.
    Over,
}

impl DiskLookups {
    /// The progress after a look-up with this outcome.
    pub fn next(self, recalled: RecallOutcome) -> DiskLookups {
        match self {
            DiskLookups::First if recalled.varies => DiskLookups::ForFields,
            _ => DiskLookups::Over,
        }
    }
}

/// The end of a wait, with its outcome.
pub enum WaitEnd<'w> {
    /// A helper has loaded the file or found none.
    File {
        /// The request's body.
        body: Option<BodyReceiver>,
        /// The file, or its absence.
        loaded: LoadOutcome,
    },
    /// A handler has responded or failed.
    Reply {
        /// Its route.
        route: &'w Arc<Route>,
        /// Its response.
        reply: Result<Box<HandlerReply>, HandlerFailure>,
    },
    /// A handler's response is in the store.
    Stored {
        /// Its route.
        route: &'w Arc<Route>,
        /// The path of the call.
        path: &'w [u8],
        /// Whether the variant of the request is known.
        is_variant: bool,
        /// The response.
        stored: StoredResponse,
    },
    /// The response to an equal request can't be shared; this request needs its own.
    Unshared {
        /// Its route.
        route: &'w Arc<Route>,
        /// The path of the call.
        path: &'w [u8],
    },
    /// A helper has searched the disk.
    Disk {
        /// The route to call if the disk has no response.
        route: &'w Arc<Route>,
        /// The path of the call.
        path: &'w [u8],
        /// The next state of the look-ups.
        next: DiskLookups,
    },
    /// The password of a rule was verified.
    Password {
        /// The request's body.
        body: Option<BodyReceiver>,
        /// The number of the rule.
        rule: usize,
        /// The result.
        checked: PasswordOutcome,
    },
    /// A purge was written to disk.
    Purge {
        /// Whether the purge is durable.
        is_durable: bool,
    },
    /// The body was read and dropped.
    Body,
}

impl WaitReason {
    /// Ends this wait with an outcome; without one, a body has ended. `None`: the outcome is for another kind of wait.
    pub fn end(&mut self, outcome: Option<HandlerOutcome>) -> Option<WaitEnd<'_>> {
        Some(match (self, outcome) {
            (WaitReason::File { body }, Some(HandlerOutcome::Loaded(loaded))) => WaitEnd::File {
                body: body.take(),
                loaded,
            },
            (WaitReason::Program { route, .. }, Some(HandlerOutcome::Reply(reply))) => {
                WaitEnd::Reply { route, reply }
            }
            (
                WaitReason::Program {
                    route,
                    path,
                    is_variant,
                    ..
                },
                // From the store, or from the call of an equal request.
                Some(HandlerOutcome::Stored(stored)),
            ) => WaitEnd::Stored {
                route,
                path,
                is_variant: *is_variant,
                stored,
            },
            (WaitReason::Program { route, path, .. }, Some(HandlerOutcome::Alone)) => {
                WaitEnd::Unshared { route, path }
            }
            (
                WaitReason::Disk {
                    route,
                    path,
                    progress,
                },
                Some(HandlerOutcome::Recalled(recalled)),
            ) => WaitEnd::Disk {
                route,
                path,
                next: progress.next(recalled),
            },
            (WaitReason::Password { body, rule }, Some(HandlerOutcome::Checked(checked))) => {
                WaitEnd::Password {
                    body: body.take(),
                    rule: *rule,
                    checked,
                }
            }
            (WaitReason::Purge, Some(HandlerOutcome::Purged { is_durable })) => {
                WaitEnd::Purge { is_durable }
            }
            (WaitReason::Body, None) => WaitEnd::Body,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_outcome_ends_a_wait() {
        let purged = || Some(HandlerOutcome::Purged { is_durable: true });
        let mut password = WaitReason::Password {
            body: None,
            rule: 1,
        };
        for other in [None, Some(HandlerOutcome::Alone), purged()] {
            assert!(password.end(other).is_none());
        }
        let checked = Some(HandlerOutcome::Checked(PasswordOutcome::Right));
        assert!(matches!(
            password.end(checked),
            Some(WaitEnd::Password {
                rule: 1,
                checked: PasswordOutcome::Right,
                ..
            })
        ));
        assert!(WaitReason::Body.end(purged()).is_none());
        assert!(matches!(WaitReason::Body.end(None), Some(WaitEnd::Body)));
        assert!(matches!(
            WaitReason::Purge.end(purged()),
            Some(WaitEnd::Purge { is_durable: true })
        ));
    }
}
