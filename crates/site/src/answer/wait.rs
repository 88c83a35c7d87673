//! Waits of deferred requests. Each kind of wait ends with one kind of outcome.

use std::sync::Arc;

use lowroad_access_control::passwords::Checked;
use lowroad_engine::stream::Receiver;
use lowroad_files::load::Loaded;
use lowroad_handler::Failure;
use lowroad_response_cache::outcome::Outcome;
use lowroad_response_cache::reply::Reply;
use lowroad_response_cache::storing::Stored;
use lowroad_routes::routes::Route;
use lowroad_store::disk_cache::Recalled;

/// The event that a deferred request waits for.
pub enum WaitsFor {
    /// A helper that loads a file. If there is no file, a handler may get the body.
    File {
        /// The request's body.
        body: Option<Receiver>,
    },
    /// A handler's response.
    Program {
        /// Its drop cancels the call, unless other requests wait for it.
        _work: Box<dyn Send>,
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
        body: Option<Receiver>,
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
        turn: Turn,
    },
    /// The end of a body that is discarded.
    Body,
}

/// The progress of a request's disk look-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// None yet: equal requests share one look-up by the key alone.
    First,
    /// One; its response varies and may be for other request fields, so one more look-up uses the fields.
    ForFields,
    /// No more look-ups.
    Over,
}

impl Turn {
    /// The progress after a look-up with this outcome.
    pub fn next(self, recalled: Recalled) -> Turn {
        match self {
            Turn::First if recalled.varies => Turn::ForFields,
            _ => Turn::Over,
        }
    }
}

/// The end of a wait, with its outcome.
pub enum WaitEnd<'w> {
    /// A helper has loaded the file or found none.
    File {
        /// The request's body.
        body: Option<Receiver>,
        /// The file, or its absence.
        loaded: Loaded,
    },
    /// A handler has responded or failed.
    Reply {
        /// Its route.
        route: &'w Arc<Route>,
        /// Its response.
        reply: Result<Box<Reply>, Failure>,
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
        stored: Stored,
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
        next: Turn,
    },
    /// The password of a rule was verified.
    Password {
        /// The request's body.
        body: Option<Receiver>,
        /// The number of the rule.
        rule: usize,
        /// The result.
        checked: Checked,
    },
    /// A purge was written to disk.
    Purge {
        /// Whether the purge is durable.
        are_kept: bool,
    },
    /// The body was read and dropped.
    Body,
}

impl WaitsFor {
    /// Ends this wait with an outcome; without one, a body has ended. `None`: the outcome is for another kind of wait.
    pub fn end(&mut self, outcome: Option<Outcome>) -> Option<WaitEnd<'_>> {
        Some(match (self, outcome) {
            (WaitsFor::File { body }, Some(Outcome::Loaded(loaded))) => WaitEnd::File {
                body: body.take(),
                loaded,
            },
            (WaitsFor::Program { route, .. }, Some(Outcome::Reply(reply))) => {
                WaitEnd::Reply { route, reply }
            }
            (
                WaitsFor::Program {
                    route,
                    path,
                    is_variant,
                    ..
                },
                Some(Outcome::Stored(stored)),
            ) => WaitEnd::Stored {
                route,
                path,
                is_variant: *is_variant,
                stored,
            },
            (WaitsFor::Program { route, path, .. }, Some(Outcome::Alone)) => {
                WaitEnd::Unshared { route, path }
            }
            (WaitsFor::Disk { route, path, turn }, Some(Outcome::Recalled(recalled))) => {
                WaitEnd::Disk {
                    route,
                    path,
                    next: turn.next(recalled),
                }
            }
            (WaitsFor::Password { body, rule }, Some(Outcome::Checked(checked))) => {
                WaitEnd::Password {
                    body: body.take(),
                    rule: *rule,
                    checked,
                }
            }
            (WaitsFor::Purge, Some(Outcome::Purged { are_kept })) => WaitEnd::Purge { are_kept },
            (WaitsFor::Body, None) => WaitEnd::Body,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_outcome_ends_a_wait() {
        let purged = || Some(Outcome::Purged { are_kept: true });
        let mut password = WaitsFor::Password {
            body: None,
            rule: 1,
        };
        for other in [None, Some(Outcome::Alone), purged()] {
            assert!(password.end(other).is_none());
        }
        let checked = Some(Outcome::Checked(Checked::Right));
        assert!(matches!(
            password.end(checked),
            Some(WaitEnd::Password {
                rule: 1,
                checked: Checked::Right,
                ..
            })
        ));
        assert!(WaitsFor::Body.end(purged()).is_none());
        assert!(matches!(WaitsFor::Body.end(None), Some(WaitEnd::Body)));
        assert!(matches!(
            WaitsFor::Purge.end(purged()),
            Some(WaitEnd::Purge { are_kept: true })
        ));
    }
}
