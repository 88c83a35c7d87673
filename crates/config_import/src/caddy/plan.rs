//! A site of Caddy as a list of steps, in the order in which Caddy applies them.

use crate::origin_tables::{OriginGroup, TableKeys};
use crate::request_selector::RequestSelector;

/// A part of the answer to requests.
#[derive(Clone, Debug)]
pub struct SiteStep {
    /// The requests, by the path that the client sent.
    pub selector: RequestSelector,
    /// The action on them.
    pub action: StepAction,
    /// The directive in the report.
    pub entry: usize,
    /// A comment on its table; may be empty.
    pub comment: String,
}

/// The action on requests.
#[derive(Clone, Debug)]
pub enum StepAction {
    /// A rule with this action; `is_final` if it answers instead of only admitting.
    Rule {
        /// Keys of the rule.
        keys: TableKeys,
        /// Whether it answers.
        is_final: bool,
    },
    /// A redirect.
    Redirect {
        /// Target, in the notation of Lowroad.
        to: String,
        /// Status.
        status: u16,
        /// The expression for the captures in the target.
        regex: Option<String>,
    },
    /// Another path or query.
    Rewrite {
        /// Target, in the notation of Lowroad.
        to: String,
        /// The expression for the captures in the target.
        regex: Option<String>,
        /// Only for missing files.
        is_missing: bool,
    },
    /// Another file for missing ones.
    Fallback(String),
    /// Response fields.
    Fields(FieldChanges),
    /// An origin.
    Proxy(Box<ProxyAction>),
    /// Scripts.
    Program(ProgramAction),
    /// Files.
    Files(FilesAction),
}

impl StepAction {
    /// The stage at which Lowroad applies it, if it answers.
    pub fn stage(&self) -> Option<AnswerStage> {
        match self {
            // A password only admits; it answers nothing.
            StepAction::Rule { is_final: true, .. } => Some(AnswerStage::Rule),
            StepAction::Redirect { .. } => Some(AnswerStage::Redirect),
            StepAction::Proxy(_) | StepAction::Program(_) => Some(AnswerStage::Route),
            StepAction::Files(_) => Some(AnswerStage::Files),
            _ => None,
        }
    }

    /// Whether it answers all requests of its selector, so that Caddy applies no later step to them.
    pub fn answers_all(&self) -> bool {
        match self {
            StepAction::Files(files) => !files.is_optional,
            StepAction::Proxy(proxy) => !proxy.is_missing,
            StepAction::Program(program) => !program.has_files,
            _ => self.stage().is_some(),
        }
    }

    /// Whether it answers all requests of its selector at this stage.
    pub fn answers_all_at(&self, stage: AnswerStage) -> bool {
        self.stage() == Some(stage) && self.answers_all()
    }
}

/// The stages of a request in Lowroad that answer it, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerStage {
    /// `[[site.rule]]`
    Rule,
    /// `[[site.redirect]]`
    Redirect,
    /// `[[site.route]]`
    Route,
    /// Files.
    Files,
}

/// Changes of response fields: names and values.
#[derive(Clone, Debug, Default)]
pub struct FieldChanges {
    /// Replaced fields.
    pub set: Vec<(String, String)>,
    /// Added fields.
    pub append: Vec<(String, String)>,
    /// Fields for responses without them.
    pub default: Vec<(String, String)>,
    /// Removed fields.
    pub remove: Vec<String>,
}

/// A route to an origin.
#[derive(Clone, Debug, Default)]
pub struct ProxyAction {
    /// Its URL, if that suffices.
    pub url: Option<String>,
    /// The group, without a URL.
    pub group: OriginGroup,
    /// The address from which the name of the group is made.
    pub authority: String,
    /// Keys of the route.
    pub keys: TableKeys,
    /// Changed fields of requests: the key, the name and the value; `remove` has no value.
    pub fields: Vec<(&'static str, String, String)>,
    /// The part of the path that is removed.
    pub strip: String,
    /// The part that is added.
    pub add: String,
    /// Only for missing files.
    pub is_missing: bool,
}

/// Routes to a FastCGI server.
#[derive(Clone, Debug, Default)]
pub struct ProgramAction {
    /// Addresses.
    pub servers: Vec<String>,
    /// The front controller.
    pub index: String,
    /// Keys of the routes.
    pub keys: TableKeys,
    /// `[site.route.env]`
    pub env: Vec<(String, String)>,
    /// The folder.
    pub root: Option<String>,
    /// The part of the path that is removed.
    pub strip: String,
    /// Whether files beside the scripts are sent.
    pub has_files: bool,
}

/// Files of a folder.
#[derive(Clone, Debug, Default)]
pub struct FilesAction {
    /// The folder.
    pub root: Option<String>,
    /// The part of the path that is removed.
    pub strip: String,
    /// Whether requests for missing files are answered by later steps.
    pub is_optional: bool,
}
