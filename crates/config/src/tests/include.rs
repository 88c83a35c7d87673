//! Configurations of several files: their order, their positions, and the problem for each mistake.

use super::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;

/// Files in memory, and secrets by the display of their source.
#[derive(Default)]
pub(super) struct MemoryFiles {
    files: BTreeMap<PathBuf, Vec<u8>>,
    pub(super) secrets: BTreeMap<String, String>,
    reads: RefCell<usize>,
}

impl MemoryFiles {
    pub(super) fn new(files: &[(&str, &str)]) -> MemoryFiles {
        let files = files.iter();
        MemoryFiles {
            files: files
                .map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec()))
                .collect(),
            ..MemoryFiles::default()
        }
    }

    /// The configuration of `/c/lowroad.toml`.
    pub(super) fn config(&self) -> Result<Config, Vec<ConfigProblem>> {
        let file = Path::new("/c/lowroad.toml");
        let text = self.files.get(file).cloned().unwrap_or_default();
        let text = String::from_utf8(text).expect("UTF-8");
        parse_with(&text, file, self)
    }

    pub(super) fn good(&self) -> Config {
        self.config()
            .unwrap_or_else(|problems| panic!("{}", lines(&problems)))
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let problems = self.config().expect_err("the files are wrong");
        problems.iter().map(ToString::to_string).collect()
    }
}

impl ConfigFiles for MemoryFiles {
    fn read(&self, file: &Path, len_max: usize) -> io::Result<Vec<u8>> {
        *self.reads.borrow_mut() += 1;
        let bytes = self.files.get(file).ok_or(io::ErrorKind::NotFound)?;
        Ok(bytes[..bytes.len().min(len_max + 1)].to_vec())
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let names = self.files.keys().rev();
        let within = names.filter(|path| path.parent() == Some(folder));
        let names: Vec<OsString> = within
            .filter_map(|path| Some(path.file_name()?.to_owned()))
            .collect();
        match names.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(names),
        }
    }

    fn secret(&self, source: &SecretSource) -> Result<Option<String>, String> {
        let text = self.secrets.get(&source.to_string()).cloned();
        text.map(Some).ok_or_else(|| "missing".to_owned())
    }
}

fn site(name: &str) -> String {
    format!("[[site]]\nnames = \"{name}\"\nroot = \"www\"\n")
}

#[test]
fn tables_of_included_files_are_appended_in_order() {
    let main = format!(
        "include = [\"sites/*.toml\", \"z.toml\"]\n[log]\nlevel = \"warn\"\n[[log.access]]\nto = \"a.log\"\n{}",
        site("main.example")
    );
    let files = MemoryFiles::new(&[
        ("/c/lowroad.toml", &main),
        ("/c/sites/b.toml", &site("b.example")),
        (
            "/c/sites/a.toml",
            &format!("include = \"../deep/x.toml\"\n{}", site("a.example")),
        ),
        ("/c/sites/.hidden.toml", "broken"),
        ("/c/sites/a.toml.bak", "broken"),
        ("/c/sites/../deep/x.toml", &site("x.example")),
        (
            "/c/z.toml",
            "[log]\nerror = \"e.log\"\n[[log.access]]\nto = \"b.log\"\n[server]\nworkers = 2\n",
        ),
    ]);
    let config = files.good();
    let names = config.sites.iter().map(|it| it.names[0].clone());
    let expected = ["main.example", "a.example", "x.example", "b.example"];
    assert!(names.eq(expected.map(|it| SiteName::Exact(it.into()))));
    // A path is relative to the folder of the file that contains it.
    let roots = config.sites.iter().map(|it| it.root.clone());
    let folders = [
        "/c/www",
        "/c/sites/www",
        "/c/sites/../deep/www",
        "/c/sites/www",
    ];
    assert!(roots.eq(folders.map(|it| SiteRoot::Folder(it.into()))));
    let logs = config.log.access.iter().map(|it| it.path.clone());
    assert!(logs.eq(["/c/a.log", "/c/b.log"].map(|it| LogTarget::File(it.into()))));
    assert_eq!(config.log.error, LogTarget::File("/c/e.log".into()));
    assert_eq!(
        (config.log.level, config.server.workers),
        (ErrorLogLevel::Warn, 2)
    );
    let read = [
        "/c/lowroad.toml",
        "/c/sites/a.toml",
        "/c/sites/../deep/x.toml",
        "/c/sites/b.toml",
        "/c/z.toml",
    ];
    assert!(
        config
            .document
            .files
            .iter()
            .eq(read.map(PathBuf::from).iter())
    );
    assert_eq!(config.document.warnings, []);
}

#[test]
fn problems_name_the_file_they_are_in() {
    let main = format!(
        "include = [\"a.toml\", \"none/*.toml\"]\n{}",
        site("m.example")
    );
    let files = MemoryFiles::new(&[
        ("/c/lowroad.toml", &format!("{main}listing = 1\n")),
        (
            "/c/a.toml",
            &format!(
                "\n{}lisen = 1\n[[site.route]]\npattern = \"ü*{{\"\n",
                site("a.example")
            ),
        ),
    ]);
    let problems = files.problems();
    assert_eq!(problems.len(), 4, "{problems:?}");
    for (problem, start) in problems.iter().zip([
        "/c/lowroad.toml:5:11: site[0].listing: 1 is not a boolean",
        "/c/a.toml:5:1: site[1].lisen: unknown key; did you mean listen?",
        "/c/a.toml:6:1: site[1].route[0]: ",
        "/c/a.toml:7:11: site[1].route[0].pattern: ",
    ]) {
        assert!(problem.starts_with(start), "{problem}");
    }
    // A glob without matches is a warning.
    let main = main.replace("\"a.toml\"", "\"*.conf\"");
    let files = MemoryFiles::new(&[("/c/lowroad.toml", &main)]);
    assert_eq!(
        lines(&files.good().document.warnings),
        "/c/lowroad.toml:1:12: include: /c/*.conf matches no file\n\
         /c/lowroad.toml:1:22: include: /c/none does not exist\n"
    );
}

#[test]
fn key_in_two_files_is_a_problem_with_both_places() {
    let main = format!(
        "include = \"a.toml\"\n{}[server]\nworkers = 2\n[log]\naccess = \"a\"\n",
        site("m")
    );
    let files = MemoryFiles::new(&[
        (
            "/c/lowroad.toml",
            &format!("{main}[template.t]\nroot = \"r\"\n"),
        ),
        (
            "/c/a.toml",
            "[server]\naffinity = true\n  workers = 3\n[[log.access]]\nto = \"b\"\n[template.t]\nindex = \"i\"\n",
        ),
    ]);
    let problems = files.problems();
    assert_eq!(
        problems,
        [
            "/c/a.toml:3:3: server.workers: is already set at /c/lowroad.toml:6:11 (allowed: each key once in all files)",
            "/c/a.toml:4:7: log.access: is already set at /c/lowroad.toml:8:10 (allowed: each key once in all files)",
            "/c/a.toml:6:11: template.t: is already set at /c/lowroad.toml:9:1 (allowed: each key once in all files)",
        ]
    );
}

#[test]
fn unusable_includes_are_problems() {
    let including = |include: &str| {
        let files = MemoryFiles::new(&[
            (
                "/c/lowroad.toml",
                &format!("include = {include}\n{}", site("m")),
            ),
            ("/c/self.toml", "include = \"./self.toml\""),
            ("/c/one.toml", "include = \"sub/../lowroad.toml\""),
            ("/c/bad.toml", "a = 1\nb = \n"),
        ]);
        files.problems().join("\n")
    };
    for (include, expected) in [
        (
            "\"none.toml\"",
            "/c/lowroad.toml:1:11: include: /c/none.toml cannot be read: entity not found (allowed: a file that exists)",
        ),
        (
            "[\"self.toml\"]",
            "/c/self.toml:1:11: include: /c/./self.toml includes itself (allowed: each file once)",
        ),
        (
            "[\"one.toml\"]",
            "/c/one.toml:1:11: include: /c/sub/../lowroad.toml includes itself (allowed: each file once)",
        ),
        (
            "[\"bad.toml\", \"bad.toml\"]",
            "/c/bad.toml:2:5: string values must be quoted, expected literal string\n/c/lowroad.toml:1:24: include: /c/bad.toml is already included at /c/lowroad.toml:1:12 (allowed: each file once)",
        ),
        (
            "1",
            "/c/lowroad.toml:1:11: include: not a path (allowed: a path, or a path with * ? [ ] in the file name: [\"sites/*.toml\"])",
        ),
        (
            "[\"\"]",
            "/c/lowroad.toml:1:12: include: not a path (allowed: a path, or a path with * ? [ ] in the file name: [\"sites/*.toml\"])",
        ),
        (
            "\"..\"",
            "/c/lowroad.toml:1:11: include: names no file (allowed: a path, or a path with * ? [ ] in the file name: [\"sites/*.toml\"])",
        ),
        (
            "\"*/a.toml\"",
            "/c/lowroad.toml:1:11: include: has a wildcard in the name of a folder (allowed: a path, or a path with * ? [ ] in the file name: [\"sites/*.toml\"])",
        ),
        (
            "\"a[.toml\"",
            "/c/lowroad.toml:1:11: include: invalid range pattern (allowed: a path, or a path with * ? [ ] in the file name: [\"sites/*.toml\"])",
        ),
    ] {
        assert_eq!(including(include), expected, "{include}");
    }
}

#[test]
fn includes_are_bounded_in_depth_number_and_length() {
    let chain: Vec<(String, String)> = (0..=INCLUDE_DEPTH_MAX + 1)
        .map(|depth| {
            (
                format!("/c/{depth}.toml"),
                format!("include = \"{}.toml\"", depth + 1),
            )
        })
        .collect();
    let mut files: Vec<(&str, &str)> = chain
        .iter()
        .map(|(path, text)| (&**path, &**text))
        .collect();
    files.push(("/c/lowroad.toml", "include = \"0.toml\""));
    assert_eq!(
        MemoryFiles::new(&files).problems(),
        [
            "/c/7.toml:1:11: include: the files include each other more than 8 deep (allowed: fewer levels)"
        ]
    );

    let many: Vec<String> = (0..10_000)
        .map(|index| format!("/c/many/{index}.toml"))
        .collect();
    let mut files: Vec<(&str, &str)> = many.iter().map(|path| (&**path, "")).collect();
    files.push(("/c/lowroad.toml", "include = \"many/*\""));
    let files = MemoryFiles::new(&files);
    assert_eq!(
        files.problems(),
        [
            "/c/lowroad.toml:1:11: include: the configuration has more than 4096 files (allowed: fewer files)"
        ]
    );
    assert_eq!(*files.reads.borrow(), FILES_MAX - 1);

    let long = format!("#{}", "x".repeat(TEXT_LEN_MAX));
    let files = MemoryFiles::new(&[
        ("/c/lowroad.toml", "include = \"long\""),
        ("/c/long", &long),
    ]);
    assert_eq!(
        files.problems(),
        [
            "/c/lowroad.toml:1:11: include: the configuration is longer than 67108864 bytes in all (allowed: shorter files)"
        ]
    );
}

#[test]
fn files_that_are_no_text_are_problems() {
    let mut files = MemoryFiles::new(&[("/c/lowroad.toml", "include = [\"binary\", \"nul\"]")]);
    files
        .files
        .insert("/c/binary".into(), b"# \xc3\xbc\n\x7fELF\xff\xfe".to_vec());
    files.files.insert("/c/nul".into(), b"a = \"\0\"".to_vec());
    let problems = files.problems();
    assert_eq!(problems[0], "/c/binary:2:5: is not UTF-8 from here on");
    assert!(problems[1].starts_with("/c/nul:1:6: "), "{problems:?}");
}
