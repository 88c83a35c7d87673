//! The templates of a site: loaded on demand, and cached in compiled form. When a file changes, `sites` replaces the
//! whole set. This module is independent of requests and databases.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use lowroad_file_stamp::FileStamp;
use lowroad_page::CompiledPage;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, escape_formatter};

use super::{budget_guards, constant, functions, template_budget};

/// The suffix of template files.
pub const SUFFIX: &str = ".lrp";

/// The maximum number of template engine steps per page, which take some tenths of a second.
const FUEL: u64 = 5_000_000;

/// The maximum length of a template in bytes.
const SOURCE_LEN_MAX: u64 = 1 << 20;

/// The templates of a site, for one version of its files.
pub struct TemplateSet {
    /// The template engine, with the templates loaded so far.
    pub environment: Environment<'static>,
    /// The folder of the site.
    pub root: Arc<Path>,
    files: Arc<Mutex<HashMap<PathBuf, FileStamp>>>,
    /// Pages that took long to render.
    heavy: Mutex<HashSet<String>>,
    /// Pages compiled for rendering without the engine; `None` for pages that need the engine.
    direct: RwLock<HashMap<String, Option<Arc<CompiledPage>>>>,
}

/// An error in a template that the engine itself does not detect.
#[derive(Debug)]
pub struct TemplateFault {
    /// The name of the template.
    pub name: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The error.
    pub reason: String,
}

impl std::fmt::Display for TemplateFault {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}:{}: {}", self.name, self.line, self.reason)
    }
}

impl std::error::Error for TemplateFault {}

impl TemplateSet {
    /// The templates in a folder; they are loaded on demand.
    pub fn new(root: Arc<Path>) -> TemplateSet {
        let files = Arc::new(Mutex::new(HashMap::new()));
        let mut environment = Environment::new();
        let (folder, loader_files) = (root.clone(), files.clone());
        // Included templates are loaded by the engine, so the loader checks and records every file.
        environment.set_loader(move |name| load(&folder, name, &loader_files));
        environment.set_path_join_callback(|name, parent| resolve_name(name, parent).into());
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment.set_formatter(|out, state, value| match value.is_none() {
            true => Ok(()),
            false => {
                budget_guards::emit(value)?;
                escape_formatter(out, state, value)
            }
        });
        environment.set_fuel(Some(FUEL));
        functions::add_to(&mut environment);
        budget_guards::add_to(&mut environment);
        TemplateSet {
            environment,
            root,
            files,
            heavy: Mutex::default(),
            direct: RwLock::default(),
        }
    }

    /// Whether a loaded file has changed.
    pub fn have_changed(&self) -> bool {
        let current_stamp = |path: &Path| FileStamp::from_path(path).ok();
        lock(&self.files)
            .iter()
            .any(|(path, stamp)| current_stamp(path) != Some(*stamp))
    }

    /// Whether an earlier rendering of the page took long.
    pub fn is_heavy(&self, name: &str) -> bool {
        lock(&self.heavy).contains(name)
    }

    /// Marks a page as slow, for rendering on separate threads.
    pub fn mark_heavy(&self, name: &str) {
        // The set only grows, but contains only names of existing pages.
        lock(&self.heavy).insert(name.to_string());
        // Slow pages are rendered by the engine only, which has threads for them.
        self.store_direct(name, None);
    }

    /// The page compiled for rendering without the engine; `None` if the page needs the engine.
    pub fn direct(&self, name: &str) -> Option<Arc<CompiledPage>> {
        let pages = self.direct.read().unwrap_or_else(PoisonError::into_inner);
        // The result `None` is cached, too.
        if let Some(page) = pages.get(name) {
            return page.clone();
        }
        // The page is compiled without the lock; if another thread does the same, the result is equal.
        drop(pages);
        let page = self.parse_direct(name).map(Arc::new);
        self.store_direct(name, page.clone());
        page
    }

    fn store_direct(&self, name: &str, page: Option<Arc<CompiledPage>>) {
        let mut pages = self.direct.write().unwrap_or_else(PoisonError::into_inner);
        pages.insert(name.to_string(), page);
    }

    fn parse_direct(&self, name: &str) -> Option<CompiledPage> {
        // The parser cannot load files, so parsing is repeated with one more included template until none is missing.
        let mut sources = HashMap::from([(name.to_string(), self.source(name)?)]);
        loop {
            let mut missing = None;
            let parsed = CompiledPage::parse_with(name, &sources[name], &mut |part| {
                let source = sources.get(part).map(String::as_str);
                if source.is_none() {
                    missing = Some(part.to_string());
                }
                source
            });
            match (parsed, missing) {
                (Ok(page), _) => return Some(page),
                (Err(_), Some(part)) => {
                    let source = self.source(&part)?;
                    sources.insert(part, source);
                }
                (Err(_), None) => return None,
            }
        }
    }

    /// The source text of a template, if the engine accepts it.
    fn source(&self, name: &str) -> Option<String> {
        let source = source(&self.root, name, &self.files).ok()??;
        check_source(name, source.clone()).ok()?;
        Some(source)
    }
}

/// The template name for a request path; `None` if the path cannot be that of a page.
pub fn page_name(path: &[u8]) -> Option<String> {
    let path = std::str::from_utf8(path).ok()?.strip_prefix('/')?;
    let index = if path.is_empty() || path.ends_with('/') {
        "index.lrp"
    } else {
        ""
    };
    let name = format!("{path}{index}");
    // Templates and folders with names that begin with `_` are only for inclusion.
    let is_page = !name.split('/').any(|part| part.starts_with('_'));
    (is_page && is_name(&name)).then_some(name)
}

/// Whether a name is that of a template within the folder, and not of a hidden file.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.contains(|c: char| c == '\\' || c.is_control())
    };
    name.ends_with(SUFFIX) && name.split('/').all(is_part)
}

/// Resolves the name by which a template refers to another template: relative to the site's folder if it begins with
/// `/`, otherwise relative to the folder of the referring template. A name that leads outside is returned unchanged,
/// and is later refused.
fn resolve_name(name: &str, parent: &str) -> String {
    let mut parts: Vec<&str> = match name.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => parent
            .split('/')
            .rev()
            .skip(1)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect(),
    };
    for part in name.trim_start_matches('/').split('/') {
        // The unchanged name contains `..`, which `is_name` refuses.
        match part {
            "." => {}
            ".." if parts.pop().is_none() => return name.to_string(),
            ".." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

type TemplateFiles = Mutex<HashMap<PathBuf, FileStamp>>;

fn load(root: &Path, name: &str, files: &TemplateFiles) -> Result<Option<String>, Error> {
    match source(root, name, files)? {
        Some(source) => check_source(name, source).map(Some),
        None => Ok(None),
    }
}

/// The source text of a template; `None` if it does not exist.
fn source(root: &Path, name: &str, files: &TemplateFiles) -> Result<Option<String>, Error> {
    if !is_name(name) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!(
                "{name:?} is not a template of this site: names end in {SUFFIX}, are not hidden, \
                 and stay in the site's folder"
            ),
        ));
    }
    let path = root.join(name);
    // `canonicalize` resolves symbolic links.
    let Ok(real) = path.canonicalize() else {
        return Ok(None);
    };
    // A symbolic link must not lead outside of the site's folder.
    if !real.starts_with(root) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("{name:?} leads out of the site's folder"),
        ));
    }
    read(&path, files).map_err(|error| {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("can't read {}: {error}", path.display()),
        )
    })
}

/// The text of a file; `None` if the path is not a regular file.
fn read(path: &Path, files: &TemplateFiles) -> std::io::Result<Option<String>> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Ok(None);
    }
    if metadata.len() > SOURCE_LEN_MAX {
        let reason = format!("it is longer than {SOURCE_LEN_MAX} bytes");
        return Err(std::io::Error::other(reason));
    }
    // The stamp is recorded before the read, so that the next check detects a change in between. The engine and the
    // direct renderer may both read the file; the first stamp counts.
    lock(files)
        .entry(path.to_path_buf())
        .or_insert(FileStamp::from(&metadata));
    std::fs::read_to_string(path).map(Some)
}

fn check_source(name: &str, source: String) -> Result<String, Error> {
    if template_budget::uses_reserved_names(&source) {
        let reason = format!(
            "names that begin with {} are the server's",
            template_budget::PREFIX
        );
        return Err(Error::new(ErrorKind::SyntaxError, reason));
    }
    // The rule is checked before the budget's checks are inserted, so that lines and tokens are those of the author.
    match constant::check(&source) {
        Ok(()) => Ok(template_budget::instrument(name, &source)),
        Err(breach) => {
            let fault = TemplateFault {
                name: name.to_string(),
                line: breach.line,
                reason: breach.reason,
            };
            let error = Error::new(ErrorKind::SyntaxError, fault.to_string());
            Err(error.with_source(fault))
        }
    }
}

/// Locks a mutex, even if it is poisoned: the data are consistent at any time.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_path_is_mapped_to_page_name() {
        assert_eq!(page_name(b"/a/b.lrp").as_deref(), Some("a/b.lrp"));
        assert_eq!(page_name(b"/").as_deref(), Some("index.lrp"));
        assert_eq!(page_name(b"/a/").as_deref(), Some("a/index.lrp"));
        for path in [
            "/a",
            "/_a.lrp",
            "/_a/b.lrp",
            "/.a.lrp",
            "/.git/a.lrp",
            "/a/../b.lrp",
            "/a\\b.lrp",
            "//a.lrp",
        ] {
            assert_eq!(page_name(path.as_bytes()), None, "{path}");
        }
        assert_eq!(page_name(b"/\xff.lrp"), None);
    }

    #[test]
    fn direct_rendering_excludes_unsupported_and_slow_pages() {
        let folder = lowroad_testkit::TempFolder::new();
        for (name, text) in [
            ("plain.lrp", "{% include 'x/_part.lrp' %}{{ request.path }}"),
            ("x/_part.lrp", "{% include '/_other.lrp' %}"),
            ("_other.lrp", "{{ query('SELECT ?', 1) | length }}"),
            ("more.lrp", "{% macro m() %}{% endmacro %}"),
            ("lost.lrp", "{% include '_nothing.lrp' %}"),
            ("bound.lrp", "{{ query('SELECT 1' ~ request.path) }}"),
            ("ours.lrp", "{% set _lowroad_x = 1 %}"),
        ] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        let root = folder.path().canonicalize().expect("a folder");
        let templates = TemplateSet::new(root.clone().into());
        for _ in 0..2 {
            assert!(templates.direct("plain.lrp").is_some());
            for name in ["more.lrp", "lost.lrp", "bound.lrp", "ours.lrp", "none.lrp"] {
                assert!(templates.direct(name).is_none(), "{name}");
            }
        }
        assert!(!templates.have_changed());
        std::fs::write(root.join("_other.lrp"), "longer than it was before").expect("a file");
        assert!(templates.have_changed(), "a part is a part of the page");
        templates.mark_heavy("plain.lrp");
        assert!(templates.direct("plain.lrp").is_none());
    }

    #[test]
    fn template_names_are_relative_to_referring_template() {
        assert_eq!(resolve_name("_b.lrp", "x/a.lrp"), "x/_b.lrp");
        assert_eq!(resolve_name("/_b.lrp", "x/a.lrp"), "_b.lrp");
        assert_eq!(resolve_name("../_b.lrp", "x/a.lrp"), "_b.lrp");
        assert_eq!(resolve_name("./_b.lrp", "a.lrp"), "_b.lrp");
        for out in ["../../b.lrp", "/../b.lrp", "../x/../../b.lrp"] {
            assert!(!is_name(&resolve_name(out, "x/a.lrp")), "{out}");
        }
    }
}
