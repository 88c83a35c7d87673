//! Gives handlers access to the stored objects of their site (files). Finds and loads files in the same way as the
//! `decision` module of `site`.

use std::sync::Arc;

use bytes::Bytes;
use lowroad_files::file_fetcher::FileFetcher;
use lowroad_files::file_loader::LoadRequest;
use lowroad_handler::{
    HandlerFailure, HandlerResponse, ResponseContent, SubrequestLoad, SubrequestSource,
};
use lowroad_http::content_coding::ContentCoding;
use lowroad_site_rules::SiteRules;
use lowroad_store::clock;
use lowroad_store::{ObjectArc, SharedStore, key};
use tokio::sync::oneshot;

use crate::handler_outcome::HandlerOutcome;
use crate::handler_outcome::OutcomeWaiter;
use crate::reply::HandlerReply;

/// The objects of one site, for one host.
#[derive(Clone)]
pub struct SiteObjects {
    pub rules: Arc<SiteRules>,
    pub store: Arc<SharedStore>,
    pub fetcher: Arc<FileFetcher<OutcomeWaiter>>,
    /// The normalised host name, if each host of the site has its own folder; otherwise empty.
    pub host: Box<[u8]>,
}

impl SiteObjects {
    /// The valid stored object of a path, or else the request to load it.
    fn find(&self, path: &[u8]) -> Result<ObjectArc, LoadRequest> {
        let mut key = Vec::new();
        key::write_file_key(&mut key, self.rules.id, &self.host, path);
        let hash = self.store.hash(&key);
        let base = match self.store.find(hash, &key) {
            Some(entry) if entry.base.validity.is_valid(clock::now_ms()) => return Ok(entry.base),
            stale => stale.map(|entry| entry.base),
        };
        Err(LoadRequest {
            rules: self.rules.clone(),
            host: self.host.clone(),
            path: path.into(),
            encoding: ContentCoding::Identity,
            base,
            key: key.into(),
            hash,
        })
    }

    /// Whether a path belongs to a route of a handler: a file there is a script, and its source must not be disclosed.
    fn is_routed(&self, path: &[u8]) -> bool {
        self.rules.has_route(path)
    }

    /// The valid stored object of a path, if no handler's route matches the path.
    fn in_memory(&self, path: &[u8]) -> Option<ObjectArc> {
        match self.is_routed(path) {
            true => None,
            false => self.find(path).ok(),
        }
    }

    async fn load_object(&self, path: &[u8]) -> Option<ObjectArc> {
        // A script is run, not sent as a file.
        if self.is_routed(path) {
            return None;
        }
        let load_request = match self.find(path) {
            Ok(stored) => return Some(stored),
            Err(load_request) => load_request,
        };
        let (sender, loaded) = oneshot::channel();
        // The callback must be `Fn`, but a oneshot sender is consumed by its only use.
        let sender = std::sync::Mutex::new(Some(sender));
        let reply = move |_, outcome| {
            let mut sender = sender
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            if let (Some(sender), HandlerOutcome::Loaded(loaded)) = (sender.take(), outcome) {
                // The receiver may have been dropped.
                let _ = sender.send(loaded.base);
            }
        };
        let no_exchange = lowroad_engine::ExchangeId::NONE;
        let waiter = OutcomeWaiter::new(Arc::new(reply), no_exchange);
        self.fetcher.fetch(load_request, waiter).ok()?;
        loaded.await.ok()
    }

    /// Adds the stored object that a response refers to, if the object is in memory.
    pub fn complete_now(
        &self,
        response: HandlerResponse,
    ) -> Result<HandlerReply, Box<HandlerResponse>> {
        let ResponseContent::Stored(around) = &response.content else {
            return Ok(HandlerReply::new(response, None));
        };
        match self.in_memory(&around.path) {
            Some(stored) if stored.representation().is_some() => {
                Ok(HandlerReply::new(response, Some(stored)))
            }
            // The file must be loaded, which takes time.
            _ => Err(Box::new(response)),
        }
    }

    /// Adds the stored object that a response refers to, and loads it if necessary.
    pub async fn complete(
        &self,
        response: HandlerResponse,
    ) -> Result<HandlerReply, HandlerFailure> {
        let ResponseContent::Stored(around) = &response.content else {
            return Ok(HandlerReply::new(response, None));
        };
        // Boxed, since few responses refer to an object, and the future should be small for the other responses.
        let stored = Box::pin(self.load_object(&around.path)).await;
        match stored.filter(|stored| stored.representation().is_some()) {
            Some(stored) => Ok(HandlerReply::new(response, Some(stored))),
            None => Err(HandlerFailure::not_found()),
        }
    }
}

impl SubrequestSource for SiteObjects {
    fn find_in_memory(&self, path: &[u8]) -> Option<Bytes> {
        self.in_memory(path).and_then(bytes_of)
    }

    fn load(&self, path: &[u8]) -> SubrequestLoad {
        let (objects, path) = (self.clone(), path.to_vec());
        Box::pin(async move { objects.load_object(&path).await.and_then(bytes_of) })
    }
}

/// The bytes of a stored object, without copying them.
fn bytes_of(stored: ObjectArc) -> Option<Bytes> {
    let representation = stored.representation()?;
    let len = usize::try_from(representation.len()).ok()?;
    // Checked here, since `as_ref` can't report an error.
    representation.body(0..len)?;
    Some(Bytes::from_owner(PinnedBytes(stored, len)))
}

/// Bytes that keep their stored object alive.
struct PinnedBytes(ObjectArc, usize);

impl AsRef<[u8]> for PinnedBytes {
    fn as_ref(&self) -> &[u8] {
        let representation = self.0.representation();
        representation
            .and_then(|representation| representation.body(0..self.1))
            .unwrap_or_default()
    }
}
