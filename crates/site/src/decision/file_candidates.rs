//! Rewrites that apply if there is a file at their target (`exists`, as `try_files $uri $uri.html` of nginx).
//!
//! The targets are looked up one after the other, as long as none is a file. Each look-up may have to wait for a helper.

use lowroad_files::file_loader::{LoadOutcome, LoadRequest};
use lowroad_http::content_coding::ContentCoding;
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_store::object::ObjectKind;
use lowroad_store::{ObjectArc, key};

use super::context::{RequestContext, RequestDecision, generated_response};
use super::deferral::WaitReason;
use super::effects::{Effects, LoadProgress};
use super::internal_redirect::{self, RewriteMatch};
use super::lookup::ResponseLookup;
use super::path::decode_path;
use crate::access::RequestOutcome as Logged;
use crate::responder::RequestResponder;

/// A target that is looked up.
#[derive(Clone)]
pub struct FileCandidate {
    /// The number of its rewrite.
    pub rewrite: usize,
    /// The object of the requested path: a folder, or nothing.
    pub original: ObjectArc,
}

/// The state of the look-up of a target.
enum CandidateState {
    File,
    Missing,
    Decided(RequestDecision),
}

impl<W: Effects> ResponseLookup<'_, W> {
    /// Answers with the first target, of rewrite `first` or a later one, that is a file. `None` if there is none.
    pub(super) fn answer_with_candidate(
        &mut self,
        context: &RequestContext<'_>,
        original: &ObjectArc,
        first: usize,
        responder: &mut RequestResponder<'_, '_>,
    ) -> Option<RequestDecision> {
        // A file can't answer other methods, but a handler of missing files can.
        if !matches!(responder.request.method, Method::Get | Method::Head) {
            return None;
        }
        let is_folder = matches!(original.kind, ObjectKind::Folder(_) | ObjectKind::Index(..));
        let mut next = first;
        while let Some((number, rewrite)) = context.file_rewrite(next, is_folder, responder) {
            let candidate = FileCandidate {
                rewrite: number,
                original: original.clone(),
            };
            match self.find_candidate(context, candidate, &rewrite, responder) {
                CandidateState::Decided(decision) => return Some(decision),
                CandidateState::Missing => next = number + 1,
                CandidateState::File => {
                    return Some(internal_redirect::continue_rewritten(
                        self, context, rewrite, responder,
                    ));
                }
            }
        }
        None
    }

    /// Resumes the request with the outcome of a look-up.
    pub fn on_candidate(
        mut self,
        context: &RequestContext<'_>,
        candidate: &FileCandidate,
        loaded: &LoadOutcome,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let FileCandidate { rewrite, original } = candidate;
        if loaded.base.representation().is_some()
            && let Some((_, rewrite)) = context.file_rewrite(*rewrite, false, responder)
        {
            return internal_redirect::continue_rewritten(&mut self, context, rewrite, responder);
        }
        self.answer_with_candidate(context, original, rewrite + 1, responder)
            .unwrap_or_else(|| {
                self.answer_missing(context, &original.kind, Logged::Miss, responder)
            })
    }

    fn find_candidate(
        &mut self,
        context: &RequestContext<'_>,
        candidate: FileCandidate,
        rewrite: &RewriteMatch<'_>,
        responder: &mut RequestResponder<'_, '_>,
    ) -> CandidateState {
        let site = context.site;
        let raw_path = rewrite.target.path();
        let mut scratch = vec![0; raw_path.len()];
        // No file has a path with encoded slashes.
        let Ok((path, true)) = decode_path(site, raw_path, &mut scratch) else {
            return CandidateState::Missing;
        };
        key::write_file_key(self.key, site.rules.id, context.host, path);
        let hash = self.effects.hash(self.key);
        let stored = self.effects.find(hash, self.key).map(|entry| entry.base);
        let now_ms = responder.exchange.now_ms;
        if let Some(base) = stored.as_ref().filter(|it| it.validity.is_valid(now_ms)) {
            return candidate_state(base);
        }
        let load_request = LoadRequest {
            rules: site.rules.clone(),
            host: context.host.into(),
            path: path.into(),
            encoding: ContentCoding::Identity,
            base: stored,
            key: self.key.as_slice().into(),
            hash,
        };
        match self.effects.fetch(load_request, responder.exchange.id) {
            LoadProgress::Loaded(loaded) => candidate_state(&loaded.base),
            LoadProgress::Pending => {
                // The body may still be needed after the look-up.
                let body = responder.exchange.body.take();
                responder.exchange.is_body_undecided = true;
                let reason = WaitReason::Candidate { body, candidate };
                CandidateState::Decided(context.wait(responder, reason))
            }
            LoadProgress::Refused => CandidateState::Decided(generated_response(
                responder.refuse(Some(context.site_path()), StatusCode::SERVICE_UNAVAILABLE),
            )),
        }
    }
}

fn candidate_state(base: &ObjectArc) -> CandidateState {
    match base.representation() {
        Some(_) => CandidateState::File,
        None => CandidateState::Missing,
    }
}
