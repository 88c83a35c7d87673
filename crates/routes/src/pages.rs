//! The pages of a configuration, and their databases.

use std::sync::Arc;

use lowroad_config::{Config, RouteTo};
use lowroad_handler::concurrency_bound::LimitedHandler;
use lowroad_sql_pages::{self as sql_pages, CsrfKey, DatabaseSet, PagesHandler, TemplateSites};
use lowroad_store::SharedStore;
use lowroad_store::change_feed::ChangeFeed;
use lowroad_store::purge_rules::{PurgeMode, PurgeRequest};

use crate::handler_kinds::{HandlerKind, LabelledHandler, OpenContext, OpenedKind, RouteContext};

/// State that the pages of all configurations share, since forms and stored pages outlive a configuration: the key that
/// signs form tokens, and the templates.
pub struct FormKeys {
    key: CsrfKey,
    sites: Arc<TemplateSites>,
}

/// The pages of a configuration.
struct OpenedForms {
    forms: Arc<FormKeys>,
    databases: Arc<DatabaseSet>,
}

impl FormKeys {
    /// Creates a new key, and an empty set of templates.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub fn new() -> Result<FormKeys, String> {
        Ok(FormKeys {
            key: CsrfKey::random()?,
            sites: Arc::default(),
        })
    }
}

impl HandlerKind for FormKeys {
    /// Opens the databases, without sending a query.
    fn open(
        self: Arc<Self>,
        config: &Config,
        _: &OpenContext<'_>,
    ) -> Result<Box<dyn OpenedKind>, String> {
        let databases = Arc::new(DatabaseSet::new(&config.databases)?);
        Ok(Box::new(OpenedForms {
            forms: self,
            databases,
        }))
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        sql_pages::counts()
    }

    /// Purges the stored responses of pages when their templates change.
    fn drop_changed(&self, store: &Arc<SharedStore>, changes: &Arc<ChangeFeed>) {
        let (store, changes) = (store.clone(), changes.clone());
        self.sites.set_listener(Box::new(move |name| {
            store.purge(&PurgeRequest::Tag(name.as_bytes()), PurgeMode::Hard);
            // Only URLs can be reported to the levels below, so these discard all copies.
            changes.notify();
        }));
    }
}

impl OpenedKind for OpenedForms {
    fn handler(&self, route: &RouteContext<'_>) -> Option<Result<LabelledHandler, String>> {
        let RouteTo::Pages(pages) = &route.rules.to else {
            return None;
        };
        let (key, sites) = (self.forms.key.clone(), self.forms.sites.clone());
        let (timeout_ms, max) = (route.rules.timeout_ms, route.rules.concurrency_max);
        let handler = PagesHandler::new(pages, self.databases.clone(), key, sites);
        Some(handler.map(|handler| {
            let handler = LimitedHandler::new(handler, timeout_ms, max);
            ("pages".into(), Arc::new(handler) as _)
        }))
    }
}
