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

/// What a request waits for.
pub enum WaitsFor {
    /// A helper that loads a file. Without a file the body may be for a program.
    File {
        /// The request's.
        body: Option<Receiver>,
    },
    /// A program.
    Program {
        /// Its drop ends the call, if no other request waits for it.
        _work: Box<dyn Send>,
        /// It is known which variant it asks for.
        is_variant: bool,
        /// Its route.
        route: Arc<Route>,
        /// The decoded path of the call: the requested one, or its folder's index file.
        path: Box<[u8]>,
    },
    /// The verification of its password.
    Password {
        /// The request's; for a program, perhaps.
        body: Option<Receiver>,
        /// The number of the rule that wants it.
        rule: usize,
    },
    /// Word that a purge outlives the process.
    Purge,
    /// A helper that looks into the disk cache.
    Disk {
        /// The route to call if the disk has nothing.
        route: Arc<Route>,
        /// As for a program.
        path: Box<[u8]>,
        /// Which look it is.
        turn: Turn,
    },
    /// The end of a body that is not used.
    Body,
}

/// The number of looks into the disk cache so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Never: equal requests wait for one look together.
    First,
    /// Once, and the response varies: the one that came may be for other request fields.
    ForFields,
    /// Often enough.
    Over,
}

impl Turn {
    /// The next, after this one gave that.
    pub fn next(self, recalled: Recalled) -> Turn {
        match self {
            Turn::First if recalled.varies => Turn::ForFields,
            _ => Turn::Over,
        }
    }
}

/// The end of a wait, with its outcome.
pub enum WaitEnd<'w> {
    /// A helper has loaded what there is.
    File {
        /// The request's body.
        body: Option<Receiver>,
        /// The file, or its absence.
        loaded: Loaded,
    },
    /// A program has answered, or has failed.
    Reply {
        /// Its route.
        route: &'w Arc<Route>,
        /// Its response.
        reply: Result<Box<Reply>, Failure>,
    },
    /// A program's response is stored.
    Stored {
        /// Its route.
        route: &'w Arc<Route>,
        /// The path of the call.
        path: &'w [u8],
        /// Whether it is known which variant the request asks for.
        is_variant: bool,
        /// The response.
        stored: Stored,
    },
    /// The response to an equal request is of no use to this one, which needs its own.
    Unshared {
        /// Its route.
        route: &'w Arc<Route>,
        /// The path of the call.
        path: &'w [u8],
    },
    /// A helper has looked on the disk.
    Disk {
        /// The route to call if the disk has nothing.
        route: &'w Arc<Route>,
        /// The path of the call.
        path: &'w [u8],
        /// The look that comes after it.
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
    /// A purge was written to the disk.
    Purge {
        /// Whether it outlives the process.
        are_kept: bool,
    },
    /// The body was read and dropped.
    Body,
}

impl WaitsFor {
    /// The end of this wait by an outcome; without one, a body has ended. `None`: the outcome is of another kind.
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
