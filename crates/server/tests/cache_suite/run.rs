//! Runs the suite in a node process, which contains its origin and client, and parses the output. Does not depend on
//! the cache or on the expected results.

use std::env;
use std::fmt;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The package, and the folder into which it is unpacked. `tools/cache-suite.sh` contains the same values.
const PACKAGE: &str = "http-cache-tests 0.4.5";
const FOLDER: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/http-cache-tests-0.4.5");
const SUITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cache_suite/suite.mjs");

/// The kind of a test, by the package's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RFC 9111 requires it.
    Required,
    /// `optimal`: a good cache passes it.
    Optional,
    /// A question without a wrong answer.
    Check,
}

/// The tests to run. The tests on which they depend also run.
#[derive(Clone, Copy)]
pub enum Tests<'t> {
    /// All tests.
    All,
    /// The tests with these IDs.
    These(&'t [String]),
    /// The test with this ID; the messages at its client and origin are printed.
    Shown(&'t str),
}

/// A test and its result.
pub struct Tested {
    /// The ID of the test.
    pub id: String,
    /// Its kind.
    pub kind: Kind,
    /// `pass`, or the kind of failure: of the test itself, of its setup, or of a test on which it depends.
    outcome: String,
    /// The message of the package.
    said: String,
}

/// The node process while it waits for the cache's address.
pub struct Run {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The URL of the suite's origin.
    pub origin: String,
}

/// The folder of another edition to be used instead of the package.
fn other_edition() -> Option<PathBuf> {
    env::var_os("LOWROAD_CACHE_SUITE").map(PathBuf::from)
}

/// Whether `expected.txt` applies to the edition.
pub fn is_pinned() -> bool {
    other_edition().is_none()
}

/// The name of the edition.
pub fn edition() -> String {
    other_edition().map_or_else(|| PACKAGE.into(), |folder| folder.display().to_string())
}

fn folder() -> PathBuf {
    other_edition().unwrap_or_else(|| PathBuf::from(FOLDER))
}

/// The requirement that this system does not meet, if there is one.
pub fn missing() -> Option<String> {
    let node = Command::new("node").arg("--version").output();
    if node.is_err() {
        return Some("no node".into());
    }
    let is_there = folder().is_dir();
    (!is_there).then(|| format!("no {}; tools/cache-suite.sh fetches {PACKAGE}", edition()))
}

impl Run {
    /// Starts the node process.
    pub fn start(tests: Tests<'_>) -> Run {
        let mut command = Command::new("node");
        command.args([Path::new(SUITE), &folder()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        match tests {
            Tests::All => command.stderr(Stdio::piped()),
            Tests::These(ids) => command.args(ids).stderr(Stdio::piped()),
            Tests::Shown(id) => command.args(["--show", id]),
        };
        let mut child = command.spawn().expect("node starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let Some(Ok(origin)) = lines.next() else {
            panic!(
                "the tests' origin did not start: {}",
                complaints(&mut child)
            );
        };
        Run {
            child,
            lines,
            origin,
        }
    }

    /// Runs the tests with the cache at this address.
    pub fn results(mut self, cache: SocketAddr) -> Vec<Tested> {
        let mut stdin = self.child.stdin.take().expect("piped");
        writeln!(stdin, "http://{cache}").expect("it listens");
        let lines = self.lines.by_ref().map(|line| line.expect("text"));
        let tested: Vec<Tested> = lines.map(|line| Tested::read(&line)).collect();
        let status = self.child.wait().expect("a child of ours");
        let complaints = complaints(&mut self.child);
        assert!(status.success(), "{status}: {complaints}");
        tested
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The error output of the node process, unless it is already printed.
fn complaints(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut text).expect("text");
    }
    text
}

impl Tested {
    fn read(line: &str) -> Tested {
        let [id, kind, outcome, said] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?} is no result");
        };
        let kind = match kind {
            "required" => Kind::Required,
            "optimal" => Kind::Optional,
            "check" => Kind::Check,
            other => panic!("{id} is of the kind {other}"),
        };
        Tested {
            id: id.into(),
            kind,
            outcome: outcome.into(),
            said: said.into(),
        }
    }

    /// Whether the test and the tests on which it depends pass.
    pub fn is_passed(&self) -> bool {
        self.outcome == "pass"
    }

    /// Whether the message reports that a response was not stored, or that its age was higher than expected.
    pub fn is_repeatable(&self) -> bool {
        let said = |text| self.said.contains(text);
        let is_absent = said("does not come from cache") || said("should have been conditional");
        let is_delayed = said("header Age is");
        self.outcome == "dependency failed" || (!self.is_passed() && (is_absent || is_delayed))
    }
}

impl fmt::Display for Tested {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Required => "required",
            Kind::Optional => "optional",
            Kind::Check => "question",
        };
        write!(to, "{} ({kind}): {} {}", self.id, self.outcome, self.said)
    }
}
