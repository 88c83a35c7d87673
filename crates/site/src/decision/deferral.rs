//! Why requests are deferred. Each reason ends with one kind of outcome.

use std::sync::Arc;

use lowroad_access_control::passwords::PasswordOutcome;
use lowroad_engine::stream::BodyReceiver;
use lowroad_files::file_loader::LoadOutcome;
use lowroad_handler::HandlerFailure;
use lowroad_http::method::Method;
use lowroad_http::request::Request;
use lowroad_response_cache::handler_outcome::HandlerOutcome;
use lowroad_response_cache::reply::HandlerReply;
use lowroad_response_cache::storage::{HitKind, StoredResponse};
use lowroad_routes::routes::Route;
use lowroad_store::disk_cache::RecallOutcome;

use super::file_candidates::FileCandidate;
use crate::access::RequestOutcome;

/// The event for which a deferred request waits.
pub enum WaitReason {
    /// A helper loads a file. If there is no file, a handler may get the body.
    File {
        /// The request's body.
        body: Option<BodyReceiver>,
    },
    /// A helper looks for a file at the target of a rewrite.
    Candidate {
        /// The request's body.
        body: Option<BodyReceiver>,
        /// The target.
        candidate: FileCandidate,
    },
    /// A handler's response.
    Program {
        /// Dropping it cancels the call, unless other requests wait for the same call.
        _call_guard: Box<dyn Send>,
        /// Whether the variant of the request is known.
        is_variant: bool,
        /// The route of the called handler.
        route: Arc<Route>,
        /// The decoded path of the call: the requested path, or that of the folder's index file.
        path: Box<[u8]>,
    },
    /// A helper verifies the request's password.
    Password {
        /// The request's body, for a handler if the password is right.
        body: Option<BodyReceiver>,
        /// The number of the rule that requires the password.
        rule: usize,
    },
    /// A server decides whether the request is admitted.
    Auth {
        /// Dropping it cancels the request to the server.
        _call_guard: Box<dyn Send>,
        /// The request's body, for a handler if the request is admitted.
        body: Option<BodyReceiver>,
        /// The number of the rule that requires the decision.
        rule: usize,
    },
    /// A purge is being written to disk.
    Purge,
    /// A helper searches the disk cache.
    Disk {
        /// The route to call if the disk cache has no response.
        route: Arc<Route>,
        /// The decoded path of the call.
        path: Box<[u8]>,
        /// The progress of the disk look-ups.
        progress: DiskLookups,
    },
    /// A body is being read and discarded.
    Body,
}

/// The progress of a request's disk look-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskLookups {
    /// No look-up yet. Equal requests share the first look-up, which uses the key alone.
    First,
    /// After one look-up: the response that it found varies and may not match the request fields, so a second look-up
    /// uses the fields.
    ForFields,
    /// No further look-ups.
    Finished,
}

impl DiskLookups {
    /// The progress after a look-up with outcome `recalled`.
    pub fn next(self, recalled: RecallOutcome) -> DiskLookups {
        match self {
            DiskLookups::First if recalled.varies => DiskLookups::ForFields,
            _ => DiskLookups::Finished,
        }
    }
}

/// The end of a wait, with its outcome.
pub enum WaitEnd<'w> {
    /// A helper has loaded the file, or found none.
    File {
        /// The request's body.
        body: Option<BodyReceiver>,
        /// The file, or its absence.
        loaded: LoadOutcome,
    },
    /// A helper has looked for a file at the target of a rewrite.
    Candidate {
        /// The request's body.
        body: Option<BodyReceiver>,
        /// The target.
        candidate: FileCandidate,
        /// The file, or its absence.
        loaded: LoadOutcome,
    },
    /// A handler has responded or failed.
    Reply {
        /// The route of the handler.
        route: &'w Arc<Route>,
        /// The handler's response.
        reply: Result<Box<HandlerReply>, HandlerFailure>,
    },
    /// The handler's response has been stored.
    Stored {
        /// The route of the handler.
        route: &'w Arc<Route>,
        /// The path of the call.
        path: &'w [u8],
        /// Whether the variant of the request is known.
        is_variant: bool,
        /// The response.
        stored: StoredResponse,
    },
    /// The response to an equal request cannot be shared, so the handler must be called for this request.
    Unshared {
        /// The route of the handler.
        route: &'w Arc<Route>,
        /// The path of the call.
        path: &'w [u8],
    },
    /// A helper has searched the disk cache.
    Disk {
        /// The route to call if the disk cache has no response.
        route: &'w Arc<Route>,
        /// The path of the call.
        path: &'w [u8],
        /// The progress of the look-ups.
        next: DiskLookups,
    },
    /// A password has been verified.
    Password {
        /// The request's body.
        body: Option<BodyReceiver>,
        /// The number of the rule that required the password.
        rule: usize,
        /// The outcome of the verification.
        checked: PasswordOutcome,
    },
    /// A server has decided whether the request is admitted, or failed.
    Auth {
        /// The request's body.
        body: Option<BodyReceiver>,
        /// The number of the rule that required the decision.
        rule: usize,
        /// The server's response.
        reply: Result<Box<HandlerReply>, HandlerFailure>,
    },
    /// A purge was written to disk.
    Purge {
        /// Whether the write succeeded.
        is_durable: bool,
    },
    /// The body was read and discarded.
    Body,
}

impl WaitReason {
    /// The outcome that is logged if the client disconnects during this wait: that of the part that was working.
    pub fn abandoned(&self, request: &Request<'_>) -> RequestOutcome {
        match self {
            WaitReason::File { .. } | WaitReason::Candidate { .. } | WaitReason::Disk { .. } => {
                RequestOutcome::Miss
            }
            WaitReason::Program { route, .. } if !route.is_origin => RequestOutcome::Program,
            // The response to another method is never stored.
            WaitReason::Program { route, .. }
                if route.never_stores || !matches!(request.method, Method::Get | Method::Head) =>
            {
                RequestOutcome::Passed
            }
            WaitReason::Program { .. } => RequestOutcome::Stored(HitKind::Fetched),
            // The request was not admitted yet, so no handler has seen it.
            WaitReason::Password { .. }
            | WaitReason::Auth { .. }
            | WaitReason::Purge
            | WaitReason::Body => RequestOutcome::Generated,
        }
    }

    /// Converts an outcome to the end of this wait; without an outcome, a body has ended. Returns `None` if the outcome
    /// belongs to another kind of wait.
    pub fn end(&mut self, outcome: Option<HandlerOutcome>) -> Option<WaitEnd<'_>> {
        Some(match (self, outcome) {
            (WaitReason::File { body }, Some(HandlerOutcome::Loaded(loaded))) => WaitEnd::File {
                body: body.take(),
                loaded,
            },
            (WaitReason::Candidate { body, candidate }, Some(HandlerOutcome::Loaded(loaded))) => {
                WaitEnd::Candidate {
                    body: body.take(),
                    candidate: candidate.clone(),
                    loaded,
                }
            }
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
                // The response was found in the store, or stored by the call of an equal request.
                Some(HandlerOutcome::Stored(stored)),
            ) => WaitEnd::Stored {
                route,
                path,
                is_variant: *is_variant,
                stored,
            },
            (WaitReason::Program { route, path, .. }, Some(HandlerOutcome::NotShareable)) => {
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
            (
                WaitReason::Password { body, rule },
                Some(HandlerOutcome::PasswordChecked(checked)),
            ) => WaitEnd::Password {
                body: body.take(),
                rule: *rule,
                checked,
            },
            (WaitReason::Auth { body, rule, .. }, Some(HandlerOutcome::Reply(reply))) => {
                WaitEnd::Auth {
                    body: body.take(),
                    rule: *rule,
                    reply,
                }
            }
            (WaitReason::Purge, Some(HandlerOutcome::PurgeSaved { is_durable })) => {
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
    fn wait_ends_only_with_outcome_of_its_kind() {
        let purged = || Some(HandlerOutcome::PurgeSaved { is_durable: true });
        let mut password = WaitReason::Password {
            body: None,
            rule: 1,
        };
        for other in [None, Some(HandlerOutcome::NotShareable), purged()] {
            assert!(password.end(other).is_none());
        }
        let checked = Some(HandlerOutcome::PasswordChecked(PasswordOutcome::Right));
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
