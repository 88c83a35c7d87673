//! Fuzz target: configurations of several files. NUL separates the files `lowroad.toml`, `1.toml`, `2.toml`, …, which may
//! include each other and use each other's templates.
//!
//! Checks, besides the absence of panics: problems and warnings are within their files; the values in force, shown as TOML
//! without hidden ones, are TOML; a formatted file keeps its form.

#![no_main]

use std::ffi::OsString;
use std::io;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use lowroad_config::{ConfigFiles, ConfigProblem, SecretSource};

struct InputFiles<'i>(Vec<&'i str>);

impl InputFiles<'_> {
    fn find(&self, file: &Path) -> Option<&str> {
        let name = file.file_stem()?.to_str()?;
        let index = if name == "lowroad" {
            0
        } else {
            name.parse().ok()?
        };
        self.0.get(index).copied()
    }

    fn check_place(&self, problem: &ConfigProblem) {
        let text = self.find(&problem.file).expect("one of the files");
        let line_count = text.matches('\n').count() + 1;
        assert!((1..=line_count).contains(&problem.line), "{problem}");
    }
}

impl ConfigFiles for InputFiles<'_> {
    fn read(&self, file: &Path, _: usize) -> io::Result<Vec<u8>> {
        let text = self.find(file).ok_or(io::ErrorKind::NotFound)?;
        Ok(text.into())
    }

    fn names(&self, _: &Path) -> io::Result<Vec<OsString>> {
        Ok((1..self.0.len())
            .map(|index| format!("{index}.toml").into())
            .collect())
    }

    fn secret(&self, _: &SecretSource) -> Result<Option<String>, String> {
        Ok(None)
    }
}

fuzz_target!(|input: &str| {
    let files = InputFiles(input.split('\0').collect());
    let main = files.0[0];
    match lowroad_config::parse_with(main, Path::new("lowroad.toml"), &files) {
        Ok(config) => {
            config
                .document
                .warnings
                .iter()
                .for_each(|it| files.check_place(it));
            let shown = config.document.effective.to_toml();
            assert!(
                lowroad_config::toml_text_to_json(&shown).is_some(),
                "{shown}"
            );
        }
        Err(problems) => problems.iter().for_each(|it| files.check_place(it)),
    }
    if let Ok(formatted) = lowroad_config::format(main) {
        assert_eq!(lowroad_config::format(&formatted).as_ref(), Ok(&formatted));
    }
});
