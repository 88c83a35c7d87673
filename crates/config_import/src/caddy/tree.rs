//! The tree of a Caddyfile, with its environment variables, snippets and imports replaced.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::lexer::{Token, Word, tokenize};

/// The deepest nesting of blocks and imports.
const DEPTH_MAX: usize = 32;
/// The largest number of directives, after imports: snippets may import each other in many ways.
const DIRECTIVES_MAX: usize = 100_000;
/// The largest size of all words in bytes, after imports: an argument may be in a word many times.
const TEXT_LEN_MAX: usize = 16 << 20;

/// A mistake in a file, or a file that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaddySyntaxError {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The mistake.
    pub message: String,
}

impl fmt::Display for CaddySyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.message)
    }
}

impl std::error::Error for CaddySyntaxError {}

/// One directive, option or site, with its block.
#[derive(Clone, Debug)]
pub struct CaddyDirective {
    /// The words; none for the block of global options.
    pub words: Vec<Word>,
    /// The directives of its block.
    pub block: Option<Vec<CaddyDirective>>,
    /// The file.
    pub file: Rc<Path>,
    /// The line.
    pub line: usize,
    /// Its index in the report.
    pub id: usize,
}

impl CaddyDirective {
    /// The first word.
    pub fn name(&self) -> &str {
        self.words.first().map_or("", |it| it.text.as_str())
    }

    /// The argument with this index, counted from 0; empty if there is none.
    pub fn arg(&self, index: usize) -> &str {
        self.words.get(index + 1).map_or("", |it| it.text.as_str())
    }

    /// The words after the name.
    pub fn args(&self) -> &[Word] {
        self.words.get(1..).unwrap_or_default()
    }

    /// The directives of the block.
    pub fn children(&self) -> &[CaddyDirective] {
        self.block.as_deref().unwrap_or_default()
    }

    /// The words in one line.
    pub fn to_text(&self) -> String {
        let words = self.words.iter().map(|word| match word.is_quoted {
            true => format!("{:?}", word.text),
            false => word.text.clone(),
        });
        match words.collect::<Vec<_>>().join(" ") {
            text if text.is_empty() => "global options".to_string(),
            text => text,
        }
    }
}

/// Reads a file with its imports: the top level of the result are global options and sites.
///
/// # Errors
/// The first mistake.
pub fn read_file(file: &Path) -> Result<Vec<CaddyDirective>, CaddySyntaxError> {
    let mut reader = TreeReader::default();
    let top = reader.parse_file(file)?;
    reader.expand(top, Importer::default(), 0)
}

/// Reads a text. Relative imports begin at the folder of `file`.
///
/// # Errors
/// The first mistake.
pub fn read_text(text: &str, file: &Path) -> Result<Vec<CaddyDirective>, CaddySyntaxError> {
    let mut reader = TreeReader::default();
    let top = reader.parse(text, file)?;
    reader.expand(top, Importer::default(), 0)
}

/// The arguments of an `import`.
#[derive(Clone, Copy, Default)]
struct Importer<'i> {
    /// `{args[0]}`
    args: &'i [String],
    /// `{block}`
    block: &'i [CaddyDirective],
}

#[derive(Default)]
struct TreeReader {
    snippets: BTreeMap<String, Vec<CaddyDirective>>,
    count: usize,
    text_len: usize,
}

impl TreeReader {
    fn parse_file(&mut self, file: &Path) -> Result<Vec<CaddyDirective>, CaddySyntaxError> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| mistake(file, 1, format!("cannot be read: {error}")))?;
        self.parse(&text, file)
    }

    fn parse(&mut self, text: &str, file: &Path) -> Result<Vec<CaddyDirective>, CaddySyntaxError> {
        // Editors may begin a file with a byte order mark, which Caddy skips.
        let text = text.trim_start_matches('\u{feff}');
        let text =
            with_environment(text).map_err(|(line, message)| mistake(file, line, message))?;
        let tokens = tokenize(&text).map_err(|(line, message)| mistake(file, line, message))?;
        let mut parser = BlockParser {
            tokens: &tokens,
            file: file.into(),
        };
        let top = parser.block(0)?;
        Ok(single_site(top))
    }

    /// Replaces imports, and removes the definitions of snippets.
    fn expand(
        &mut self,
        directives: Vec<CaddyDirective>,
        importer: Importer<'_>,
        depth: usize,
    ) -> Result<Vec<CaddyDirective>, CaddySyntaxError> {
        let mut expanded = Vec::new();
        for mut directive in directives {
            self.count += 1;
            if depth > DEPTH_MAX || self.count > DIRECTIVES_MAX {
                let message = "imports are nested too deep, or import each other".to_string();
                return Err(mistake(&directive.file, directive.line, message));
            }
            // Arguments are replaced before names are read: a snippet may have its directive as an argument.
            for word in &mut directive.words {
                let text = with_arguments(&word.text, importer.args);
                self.text_len += text.as_ref().map_or(TEXT_LEN_MAX, String::len);
                word.text = text.unwrap_or_default();
            }
            if self.text_len >= TEXT_LEN_MAX {
                let message = "arguments of imports make a text of more than 16 MiB".to_string();
                return Err(mistake(&directive.file, directive.line, message));
            }
            let name = directive.name();
            if name == "{block}" {
                self.count += tree_len(importer.block);
                expanded.extend(importer.block.iter().cloned());
                continue;
            }
            if name.starts_with("{blocks.") {
                let message = "named blocks of an import are not read: write them in place";
                return Err(mistake(
                    &directive.file,
                    directive.line,
                    message.to_string(),
                ));
            }
            let is_snippet = name.starts_with('(') && name.ends_with(')');
            if is_snippet && directive.block.is_some() {
                let name = name.trim_matches(['(', ')']).to_string();
                self.snippets
                    .insert(name, directive.block.unwrap_or_default());
                continue;
            }
            if name == "import" {
                let imported = self.import(&directive)?;
                let words = directive.args().iter().skip(1);
                let args: Vec<String> = words.map(|it| it.text.clone()).collect();
                let block = directive.block.take().unwrap_or_default();
                let block = self.expand(block, importer, depth + 1)?;
                let inner = Importer {
                    args: &args,
                    block: &block,
                };
                expanded.extend(self.expand(imported, inner, depth + 1)?);
                continue;
            }
            if let Some(block) = directive.block.take() {
                directive.block = Some(self.expand(block, importer, depth + 1)?);
            }
            expanded.push(directive);
        }
        Ok(expanded)
    }

    fn import(
        &mut self,
        directive: &CaddyDirective,
    ) -> Result<Vec<CaddyDirective>, CaddySyntaxError> {
        let name = directive.arg(0);
        // A snippet has precedence over a file of its name.
        if let Some(snippet) = self.snippets.get(name) {
            return Ok(snippet.clone());
        }
        let folder = directive.file.parent().unwrap_or(Path::new("."));
        let pattern = folder.join(name).to_string_lossy().into_owned();
        let found = glob::glob(&pattern)
            .map_err(|error| mistake(&directive.file, directive.line, error.to_string()))?;
        let mut files: Vec<PathBuf> = found.flatten().filter(|it| it.is_file()).collect();
        // Caddy imports in the order of names.
        files.sort();
        // Only a pattern may match nothing.
        if files.is_empty() && !name.contains(['*', '?', '[']) {
            let message = format!("{name} is neither a snippet nor a file");
            return Err(mistake(&directive.file, directive.line, message));
        }
        let mut imported = Vec::new();
        for file in files {
            imported.extend(self.parse_file(&file)?);
        }
        Ok(imported)
    }
}

fn mistake(file: &Path, line: usize, message: String) -> CaddySyntaxError {
    CaddySyntaxError {
        file: file.to_path_buf(),
        line,
        message,
    }
}

/// A file with a single site needs no braces: its first line has the addresses.
fn single_site(mut top: Vec<CaddyDirective>) -> Vec<CaddyDirective> {
    let is_other = |it: &CaddyDirective| {
        let is_definition = it.name().starts_with(['(', '&']);
        it.words.is_empty() || is_definition || it.name() == "import"
    };
    let first = top.iter().position(|it| !is_other(it));
    let Some(first) = first.filter(|index| top[*index].block.is_none()) else {
        return top;
    };
    // An imported file of directives has no addresses.
    if !looks_like_address(top[first].name()) {
        return top;
    }
    // All that follows belongs to the only site.
    let block = top.split_off(first + 1);
    top[first].block = Some(block);
    top
}

fn looks_like_address(word: &str) -> bool {
    word.contains(['.', ':']) || word.starts_with("localhost")
}

/// Replaces `{$NAME}` and `{$NAME:DEFAULT}`, as Caddy does when it reads a file.
///
/// # Errors
/// Line and message for a variable that is not set: without its value, a site could become global options.
fn with_environment(text: &str) -> Result<String, (usize, String)> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("{$") {
        let Some(len) = rest[start..].find('}') else {
            break;
        };
        let inner = &rest[start + 2..start + len];
        let (name, default) = match inner.split_once(':') {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        out.push_str(&rest[..start]);
        let line = out.rsplit('\n').next().unwrap_or_default();
        let is_comment = line.trim_start().starts_with('#');
        match (std::env::var(name), default) {
            (Ok(value), _) => out.push_str(&value),
            (Err(_), Some(default)) => out.push_str(default),
            (Err(_), None) if is_comment => {}
            (Err(_), None) => {
                let line = out.matches('\n').count() + 1;
                let message =
                    format!("the environment variable {name} is not set: set it for the import");
                return Err((line, message));
            }
        }
        rest = &rest[start + len + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The number of directives with those of blocks.
fn tree_len(directives: &[CaddyDirective]) -> usize {
    let blocks = directives.iter().map(|it| tree_len(it.children()));
    directives.len() + blocks.sum::<usize>()
}

/// Replaces `{args[0]}` and `{args.0}`; `None` if the text becomes too long.
fn with_arguments(text: &str, args: &[String]) -> Option<String> {
    let mut text = text.to_string();
    for (index, arg) in args.iter().enumerate() {
        for name in [format!("{{args[{index}]}}"), format!("{{args.{index}}}")] {
            let count = text.matches(&name).count();
            if count.saturating_mul(arg.len()) > TEXT_LEN_MAX {
                return None;
            }
            text = text.replace(&name, arg);
        }
    }
    Some(text)
}

struct BlockParser<'t> {
    tokens: &'t [Token],
    file: Rc<Path>,
}

impl BlockParser<'_> {
    /// Reads directives up to the closing brace, or at depth 0 up to the end.
    fn block(&mut self, depth: usize) -> Result<Vec<CaddyDirective>, CaddySyntaxError> {
        let mut directives = Vec::new();
        let mut words: Vec<Word> = Vec::new();
        let mut line = 1;
        while let Some((token, rest)) = self.tokens.split_first() {
            self.tokens = rest;
            let Token::Word(word) = token else {
                // A list of addresses continues after a comma.
                let continues = depth == 0 && words.last().is_some_and(|it| it.text.ends_with(','));
                if !continues {
                    self.finish(&mut words, None, line, &mut directives);
                }
                continue;
            };
            // Reports name the line on which a directive begins.
            if words.is_empty() {
                line = word.line;
            }
            match (word.is_quoted, &*word.text) {
                (false, "{") if depth >= DEPTH_MAX => {
                    return Err(mistake(
                        &self.file,
                        word.line,
                        "blocks are nested too deep".into(),
                    ));
                }
                (false, "{") => {
                    let block = self.block(depth + 1)?;
                    self.finish(&mut words, Some(block), line, &mut directives);
                }
                (false, "}") if depth == 0 => {
                    return Err(mistake(
                        &self.file,
                        word.line,
                        "this } closes no block".into(),
                    ));
                }
                (false, "}") => {
                    self.finish(&mut words, None, line, &mut directives);
                    return Ok(directives);
                }
                _ => words.push(word.clone()),
            }
        }
        self.finish(&mut words, None, line, &mut directives);
        match depth {
            0 => Ok(directives),
            _ => Err(mistake(
                &self.file,
                line,
                "a block is not closed: } is missing".into(),
            )),
        }
    }

    fn finish(
        &self,
        words: &mut Vec<Word>,
        block: Option<Vec<CaddyDirective>>,
        line: usize,
        directives: &mut Vec<CaddyDirective>,
    ) {
        if words.is_empty() && block.is_none() {
            return;
        }
        directives.push(CaddyDirective {
            words: std::mem::take(words),
            block,
            file: Rc::clone(&self.file),
            line,
            // Lines that are data are not in the report.
            id: usize::MAX,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<CaddyDirective>, CaddySyntaxError> {
        read_text(text, Path::new("Caddyfile"))
    }

    #[test]
    fn sites_snippets_and_single_sites_are_read() {
        let top = read("{\n email a@b\n}\n(s) {\n header X {args[0]}\n}\na.b,\nc.d {\n import s one\n root * /x\n}")
            .expect("a tree");
        assert_eq!(top.len(), 2);
        assert_eq!(top[1].to_text(), "a.b, c.d");
        assert_eq!(top[1].children()[0].to_text(), "header X one");
        let top =
            read("(s) {\n {block}\n x\n}\na.b {\n import s {\n basic_auth\n }\n}").expect("a tree");
        assert_eq!(top[0].children()[0].to_text(), "basic_auth");
        assert_eq!(top[0].children()[1].to_text(), "x");
        let top = read(":80\nroot * /x\nfile_server\n").expect("a tree");
        assert_eq!((top.len(), top[0].children().len()), (1, 2));
    }

    #[test]
    fn arguments_make_no_endless_text() {
        let mut text = String::from("(a30) {\n respond {args[0]}\n}\n");
        for number in (0..30).rev() {
            let arg = "{args[0]}".repeat(4);
            text += &format!("(a{number}) {{\n import a{} {arg}\n}}\n", number + 1);
        }
        text += "a.b {\n import a0 text\n}";
        let error = read(&text).expect_err("a text of 4^30 words");
        assert!(error.message.contains("16 MiB"), "{error}");
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, line) in [
            ("a {\n b\n", 2),
            ("a.b {\n}\n}", 3),
            ("a.b {\n import none\n}", 2),
        ] {
            assert_eq!(read(text).expect_err(text).line, line, "{text}");
        }
        let unset = "# {$LOWROAD_NONE}\na.b {\n respond {$LOWROAD_NONE}\n}";
        let error = read(unset).expect_err("a variable without a value");
        assert_eq!(error.line, 3);
        assert!(error.message.contains("LOWROAD_NONE"), "{error}");
        let named = "(a) {\n {blocks.x}\n}\na.b {\n import a {\n x {\n y\n }\n }\n}";
        assert_eq!(read(named).expect_err("named blocks").line, 2);
        let cycle = "(a) {\n import a\n}\na.b {\n import a\n}";
        assert!(read(cycle).is_err());
    }
}
