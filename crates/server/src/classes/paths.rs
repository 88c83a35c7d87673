//! Candidate classes of a path: the patterns of all classes are matched together.

use lowroad_config as config;
use lowroad_config::{MatchScope, PatternSet, PatternSetBuilder};

/// Finds the candidate classes of a path.
pub(super) struct ClassPaths {
    patterns: PatternSet,
    /// The class of each pattern.
    owners: Vec<usize>,
    /// Classes without a path pattern.
    pathless: Vec<usize>,
}

impl ClassPaths {
    /// For classes in the order in which they are tried.
    pub(super) fn new(classes: &[&config::Class]) -> ClassPaths {
        let mut patterns = PatternSetBuilder::default();
        let (mut owners, mut pathless) = (Vec::new(), Vec::new());
        for (number, class) in classes.iter().enumerate() {
            for pattern in &class.members.routes {
                patterns.add(pattern, MatchScope::Script);
                owners.push(number);
            }
            if class.members.routes.is_empty() {
                pathless.push(number);
            }
        }
        ClassPaths {
            patterns: patterns.build([]),
            owners,
            pathless,
        }
    }

    /// The numbers of the candidate classes of a decoded path, in their order.
    pub(super) fn classes(&self, path: &[u8]) -> Vec<usize> {
        let found = self.patterns.matches(path);
        let mut classes = self.pathless.clone();
        classes.extend(found.iter().map(|number| self.owners[*number as usize]));
        classes.sort_unstable();
        classes.dedup();
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_config::{Members, Pattern};

    #[test]
    fn a_path_may_be_in_classes_with_its_pattern_and_in_those_without_any() {
        let class = |patterns: &[&str]| {
            let pattern = |text: &&str| Pattern::parse(text).expect("a pattern");
            config::Class {
                members: Members {
                    routes: patterns.iter().map(pattern).collect(),
                    ..Members::default()
                },
                ..config::Class::new(String::new())
            }
        };
        let classes = [
            class(&["/api/**", "*.php"]),
            class(&[]),
            class(&["/api/v2/**"]),
        ];
        let paths = ClassPaths::new(&classes.each_ref());
        assert_eq!(paths.classes(b"/api/v2/x"), [0, 1, 2]);
        assert_eq!(paths.classes(b"/api/v2/x.php/y"), [0, 1, 2]);
        assert_eq!(paths.classes(b"/x.php/y"), [0, 1]);
        assert_eq!(paths.classes(b"/"), [1]);
    }
}
