//! `proxy_pass` in an `if`: a route with conditions in front of that of the location.

use super::layout::takes_all;
use super::origins::PassUrl;
use crate::nginx::level::Translation;
use crate::nginx::locations::Location;
use crate::nginx::servers::Server;
use crate::nginx::settings::{ConditionalPass, ConditionalRefusal, LocationContent, Sourced};
use crate::report::DirectiveOutcome;

/// Refuses the requests of such blocks where a route would take the other requests, too, from the files of the location.
pub fn close_conditional_passes(server: &mut Server, translation: &mut Translation) {
    for (index, location) in server.locations.iter_mut().enumerate() {
        let is_handled = takes_all(location) && location.kept_folder(index).is_none();
        let passes = std::mem::take(&mut location.content.conditional_passes);
        for pass in passes {
            if is_handled && has_plain_url(&pass) {
                location.content.conditional_passes.push(pass);
                continue;
            }
            let way = "its requests are refused until then: write a route with the condition, and one for the other requests";
            let outcome = DirectiveOutcome::ByHand(way.to_string());
            translation.report.change(pass.entry, outcome);
            location
                .settings
                .access
                .conditional_refusals
                .push(ConditionalRefusal {
                    conditions: pass.conditions,
                    status: 503,
                });
        }
    }
}

fn has_plain_url(pass: &ConditionalPass) -> bool {
    PassUrl::parse(&pass.url).is_some_and(|it| it.path.is_none())
}

impl ConditionalPass {
    /// The location with this origin in place of its handler.
    pub fn handler(&self, location: &Location) -> Location {
        Location {
            content: LocationContent {
                proxy: Some(Sourced {
                    value: self.url.clone(),
                    entry: self.entry,
                }),
                fastcgi: None,
                ..location.content.clone()
            },
            ..location.clone()
        }
    }
}
