//! The report of an import: the outcome of each directive.

use std::fmt;

/// The outcome of a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectiveOutcome {
    /// The new configuration has an equal. The text describes a difference; mostly empty.
    Translated(String),
    /// The server does this anyway, or doesn't need it; the text is the reason.
    NotNeeded(String),
    /// The configuration has no equal; the text describes how to get the same.
    ByHand(String),
}

impl DirectiveOutcome {
    /// Translated without a difference.
    pub fn translated() -> DirectiveOutcome {
        DirectiveOutcome::Translated(String::new())
    }
}

/// The outcome of a directive that no function has read.
pub fn unread() -> DirectiveOutcome {
    DirectiveOutcome::ByHand("this directive is unknown to the import".to_string())
}

/// One directive of the report.
#[derive(Clone, Debug)]
pub struct ReportEntry {
    /// File and line.
    pub place: String,
    /// The directive.
    pub directive: String,
    /// Its outcome.
    pub outcome: DirectiveOutcome,
}

/// The outcomes of all directives, in the order of the files.
#[derive(Clone, Debug, Default)]
pub struct ImportReport {
    entries: Vec<ReportEntry>,
}

/// The number of directives by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Directives with an equal.
    pub translated: usize,
    /// Directives without need.
    pub not_needed: usize,
    /// Directives to translate by hand.
    pub by_hand: usize,
}

impl OutcomeCounts {
    /// All directives.
    pub fn total(&self) -> usize {
        self.translated + self.not_needed + self.by_hand
    }
}

impl ImportReport {
    /// Adds a directive; returns its index for [`ImportReport::change`].
    pub fn add(&mut self, entry: ReportEntry) -> usize {
        self.entries.push(entry);
        self.entries.len() - 1
    }

    /// Replaces the outcome of a directive.
    pub fn change(&mut self, index: usize, outcome: DirectiveOutcome) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.outcome = outcome;
        }
    }

    /// Whether no function has recorded an outcome yet, so that the directive is left to do by hand.
    pub fn is_open(&self, index: usize) -> bool {
        let entry = self.entries.get(index);
        entry.is_some_and(|it| it.outcome == unread())
    }

    /// Marks a translated directive as different; other outcomes stay.
    pub fn note_difference(&mut self, index: usize, difference: &str) {
        if let Some(ReportEntry {
            outcome: DirectiveOutcome::Translated(text),
            ..
        }) = self.entries.get_mut(index)
            && !text.contains(difference)
        {
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(difference);
        }
    }

    /// Marks a directive as one to translate by hand, because the configuration parser refuses its translation.
    /// Directives without need stay.
    pub fn refuse(&mut self, index: usize, reason: &str) {
        if let Some(ReportEntry { outcome, .. }) = self.entries.get_mut(index)
            && matches!(outcome, DirectiveOutcome::Translated(_))
        {
            *outcome = DirectiveOutcome::ByHand(reason.to_string());
        }
    }

    /// The directives, in the order of the files.
    pub fn entries(&self) -> &[ReportEntry] {
        &self.entries
    }

    /// The directives by outcome.
    pub fn counts(&self) -> OutcomeCounts {
        let mut counts = OutcomeCounts::default();
        for entry in &self.entries {
            match entry.outcome {
                DirectiveOutcome::Translated(_) => counts.translated += 1,
                DirectiveOutcome::NotNeeded(_) => counts.not_needed += 1,
                DirectiveOutcome::ByHand(_) => counts.by_hand += 1,
            }
        }
        counts
    }
}

impl fmt::Display for ImportReport {
    /// A line for each directive, and a summary.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.entries {
            let (word, text) = match &entry.outcome {
                DirectiveOutcome::Translated(text) => ("translated", text),
                DirectiveOutcome::NotNeeded(text) => ("not needed", text),
                DirectiveOutcome::ByHand(text) => ("by hand", text),
            };
            write!(f, "{}: {}: {word}", entry.place, entry.directive)?;
            if !text.is_empty() {
                write!(f, ": {text}")?;
            }
            writeln!(f)?;
        }
        let counts = self.counts();
        writeln!(
            f,
            "{} directives: {} translated, {} not needed, {} by hand",
            counts.total(),
            counts.translated,
            counts.not_needed,
            counts.by_hand
        )
    }
}
