//! The conditions of a site's redirects and rewrites.

use lowroad_config as config;
use lowroad_request_conditions::{ConditionInput, ConditionSet, FindSwitch};
use lowroad_routes::response_dependence::ResponseDependence;
use lowroad_site_rules::PathMatches;

/// The conditions of a site's redirects and rewrites, in the configured order.
pub struct PathConditions {
    redirects: Vec<PathCondition>,
    rewrites: Vec<PathCondition>,
}

/// The conditions of one rule.
struct PathCondition {
    set: ConditionSet,
    /// The dependence of responses for the paths of the rule.
    dependence: ResponseDependence,
}

impl PathConditions {
    /// Prepares the conditions; `None` if no redirect and no rewrite has any.
    pub fn new(site: &config::SiteConfig, find_switch: FindSwitch<'_>) -> Option<PathConditions> {
        let redirects = site.redirects.iter().map(|rule| &rule.conditions);
        let rewrites = site.rewrites.iter().map(|rule| &rule.conditions);
        if redirects
            .clone()
            .chain(rewrites.clone())
            .all(|it| it.is_empty())
        {
            return None;
        }
        let prepare = |conditions| PathCondition {
            set: ConditionSet::new(conditions, find_switch),
            dependence: ResponseDependence::from_conditions(conditions),
        };
        Some(PathConditions {
            redirects: redirects.map(prepare).collect(),
            rewrites: rewrites.map(prepare).collect(),
        })
    }

    /// Whether a redirect or rewrite with conditions may match a path.
    pub fn may_apply(&self, matches: &PathMatches<'_>) -> bool {
        let is_conditional = |rules: &[PathCondition], number: usize| {
            rules.get(number).is_some_and(|rule| !rule.set.is_empty())
        };
        matches
            .redirects()
            .any(|number| is_conditional(&self.redirects, number))
            || matches
                .rewrites()
                .any(|number| is_conditional(&self.rewrites, number))
    }

    /// Whether a rewrite with conditions may match a path.
    pub fn may_rewrite(&self, matches: &PathMatches<'_>) -> bool {
        let mut rewrites = matches
            .rewrites()
            .filter_map(|number| self.rewrites.get(number));
        rewrites.any(|rule| !rule.set.is_empty())
    }

    /// The dependence of responses for a path, whether or not the conditions hold.
    pub fn dependence(&self, matches: &PathMatches<'_>) -> ResponseDependence {
        let redirects = matches.redirects().filter_map(|it| self.redirects.get(it));
        let rewrites = matches.rewrites().filter_map(|it| self.rewrites.get(it));
        let mut found = ResponseDependence::default();
        for rule in redirects.chain(rewrites) {
            found.add(&rule.dependence);
        }
        found
    }

    /// Whether the conditions of redirect `number` hold.
    pub fn redirect_is_met(&self, number: usize, facts: &ConditionInput<'_>) -> bool {
        self.redirects
            .get(number)
            .is_some_and(|rule| rule.set.is_met(facts))
    }

    /// Whether the conditions of rewrite `number` hold.
    pub fn rewrite_is_met(&self, number: usize, facts: &ConditionInput<'_>) -> bool {
        self.rewrites
            .get(number)
            .is_some_and(|rule| rule.set.is_met(facts))
    }
}
