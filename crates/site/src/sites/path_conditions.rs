//! The conditions of a site's redirects, rewrites and rules for fields.

use lowroad_config as config;
use lowroad_request_conditions::{ConditionInput, ConditionSet, FindSwitch};
use lowroad_routes::response_dependence::ResponseDependence;
use lowroad_site_rules::PathMatches;
use lowroad_variables::Template;

/// The conditions of a site's redirects, rewrites and rules for fields, in the configured order.
pub struct PathConditions {
    redirects: Vec<TargetCondition>,
    rewrites: Vec<TargetCondition>,
    headers: Vec<ConditionSet>,
}

/// The condition of a redirect or rewrite.
struct TargetCondition {
    conditions: ConditionSet,
    /// Whether the target depends on the content of a file.
    depends_on_file: bool,
    /// The dependence of responses for the paths of the rule.
    dependence: ResponseDependence,
}

impl TargetCondition {
    fn new(
        conditions: &config::RequestConditions,
        to: &Template,
        find_switch: FindSwitch<'_>,
    ) -> TargetCondition {
        let depends_on_file = to.depends_on_file();
        let dependence = ResponseDependence::from_conditions(conditions);
        TargetCondition {
            conditions: ConditionSet::new(conditions, find_switch),
            depends_on_file,
            dependence,
        }
    }

    /// The condition of a rewrite. The response to a rewritten path depends on the file, too. A redirect by a file does
    /// not make other responses depend on the file: they are those without a redirect, and the redirect is not stored.
    fn for_rewrite(rule: &config::RewriteConfig, find_switch: FindSwitch<'_>) -> TargetCondition {
        let mut condition = TargetCondition::new(&rule.conditions, &rule.to, find_switch);
        // A cache in front does not learn of a change of the file.
        condition.dependence.is_private |= condition.depends_on_file;
        condition
    }

    /// Whether another request for the same URL may have another target.
    fn is_conditional(&self) -> bool {
        self.depends_on_file || !self.conditions.is_empty()
    }
}

impl PathConditions {
    /// Prepares the conditions; `None` without conditions.
    pub fn new(site: &config::SiteConfig, find_switch: FindSwitch<'_>) -> Option<PathConditions> {
        let redirects = site.redirects.iter();
        let redirects = redirects
            .map(|rule| TargetCondition::new(&rule.conditions, &rule.to, find_switch))
            .collect::<Vec<_>>();
        let rewrites = site.rewrites.iter();
        let rewrites = rewrites
            .map(|rule| TargetCondition::for_rewrite(rule, find_switch))
            .collect::<Vec<_>>();
        // Rules without conditions have empty sets, so that numbers are those of the configuration.
        let headers = site.headers.iter();
        let headers = headers
            .map(|rule| ConditionSet::new(&rule.conditions, find_switch))
            .collect::<Vec<_>>();
        let mut all = redirects.iter().chain(&rewrites);
        let has_any =
            all.any(TargetCondition::is_conditional) || headers.iter().any(|set| !set.is_empty());
        has_any.then_some(PathConditions {
            redirects,
            rewrites,
            headers,
        })
    }

    /// Whether a redirect or rewrite with conditions may match a path.
    pub fn may_apply(&self, matches: &PathMatches<'_>) -> bool {
        let is_conditional = |rules: &[TargetCondition], number: usize| {
            rules
                .get(number)
                .is_some_and(TargetCondition::is_conditional)
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
        rewrites.any(TargetCondition::is_conditional)
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

    /// Whether the conditions of the rule for fields with this number hold.
    pub fn header_is_met(&self, number: usize, facts: &ConditionInput<'_>) -> bool {
        self.headers
            .get(number)
            .is_some_and(|set| set.is_met(facts))
    }

    /// Whether the conditions of redirect `number` hold.
    pub fn redirect_is_met(&self, number: usize, facts: &ConditionInput<'_>) -> bool {
        self.redirects
            .get(number)
            .is_some_and(|rule| rule.conditions.is_met(facts))
    }

    /// Whether the conditions of rewrite `number` hold.
    pub fn rewrite_is_met(&self, number: usize, facts: &ConditionInput<'_>) -> bool {
        self.rewrites
            .get(number)
            .is_some_and(|rule| rule.conditions.is_met(facts))
    }
}
