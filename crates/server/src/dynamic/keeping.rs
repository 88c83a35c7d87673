//! Keeps what a program answers, at once or once its last part has passed. Which responses may be
//! kept is `kept`'s to say.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use lowroad_dynamic::Content;
use lowroad_engine::stream::stream;
use tokio::runtime::Handle;

use crate::clock;
use crate::dynamic::kept::{BODY_LEN_MAX, Draft, Key};
use crate::dynamic::passing::{self, WAITING_LEN_MAX};
use crate::dynamic::reply::Reply;
use crate::dynamic::routes::Route;
use crate::store::SharedStore;

/// A longer body is kept as it is.
const COPIED_LEN_MAX: usize = 64 << 10;

/// What it takes to keep the answer to one request.
pub struct Keeping {
    /// Where.
    pub key: Key,
    /// In what.
    pub store: Arc<SharedStore>,
    /// Whose it is.
    pub route: Arc<Route>,
}

impl Keeping {
    /// Keeps a response if it says that it may be kept. One that comes in parts passes through a
    /// task on the runtime from now on.
    pub fn keep(self, reply: &mut Reply, runtime: &Handle) {
        let Some(draft) = self.key.draft(&reply.response, clock::now_ms()) else {
            return;
        };
        match &mut reply.response.content {
            Content::Bytes(body) => self.whole(draft, body.clone()),
            Content::Stream { len, stream: parts } if len.is_none_or(is_short) => {
                let (to, rest) = stream(WAITING_LEN_MAX);
                let from = std::mem::replace(parts, rest);
                runtime.spawn(async move {
                    let whole = |body| self.whole(draft, body);
                    passing::pass(from, to, BODY_LEN_MAX, whole).await;
                });
            }
            Content::Stream { .. } | Content::Stored(_) => {}
        }
    }

    fn whole(&self, draft: Draft, body: Bytes) {
        // A short body may lie in more memory than it has bytes.
        let body = match body.len() {
            ..COPIED_LEN_MAX => Bytes::copy_from_slice(&body),
            _ => body,
        };
        if draft.keep(&self.store, body) {
            self.route.keeps.store(true, Relaxed);
        }
    }
}

fn is_short(len: u64) -> bool {
    len <= BODY_LEN_MAX as u64
}
