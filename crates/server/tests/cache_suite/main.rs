//! Runs the public tests for HTTP caches by the editor of RFC 9111 (<https://cache-tests.fyi>, npm: http-cache-tests)
//! against `lowroad accelerate`, with and without a disk cache. Exactly the tests listed in `expected.txt`, with
//! reasons, must fail.
//!
//! The test is skipped with a message if node or the package, which `tools/cache-suite.sh` fetches, is missing.
//! `LOWROAD_CACHE_TEST=ID` runs one test alone, and prints the messages that the client and the origin received.
//!
//! # Counts
//!
//! A test counts as in the published tables: it passes if it and all tests that it depends on pass; its edition makes
//! it required, optional (`optimal`) or a question (`check`). npm has only edition 0.4.5, with 157 required and 86
//! optional tests for caches other than browsers. The published tables use later editions, from
//! <https://github.com/http-tests/cache-tests>: these made some questions optional or required (`Expires`), reversed
//! some tests (`Age`, `Content-MD5`), corrected others (`stale-close-…`), and have new ones (interim responses,
//! `CDN-Cache-Control`, `stale-while-revalidate`): 160 required and 105 optional. `LOWROAD_CACHE_SUITE=FOLDER` runs
//! the edition checked out there. Then only listed tests may fail; listed ones may also pass.

mod expected;
mod run;

use std::env;
use std::io::{Write, stderr};

use lowroad_testkit::{TempFolder, TestServer, skip};

use expected::Expected;
use run::{Kind, Run, Tested, Tests};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

#[test]
fn public_cache_tests() {
    if let Some(missing) = run::missing() {
        return skip("public_cache_tests", &missing);
    }
    match env::var("LOWROAD_CACHE_TEST") {
        Ok(id) => say(&lines_of(&tested(Tests::Shown(&id), &[]))),
        Err(_) => test_all(&[]),
    }
}

#[test]
fn public_cache_tests_with_disk_cache() {
    let one = env::var("LOWROAD_CACHE_TEST").ok();
    let shown = one.map(|id| format!("{id} is shown without a disk"));
    if let Some(reason) = run::missing().or(shown) {
        return skip("public_cache_tests_with_disk_cache", &reason);
    }
    let folder = TempFolder::new();
    let disk = folder.path().display().to_string();
    test_all(&["--disk-cache", &disk]);
}

/// Runs all tests, and asserts that the results are the expected ones.
fn test_all(options: &[&str]) {
    let expected = Expected::read();
    let mut results = tested(Tests::All, options);
    again(&mut results, &expected, options);
    judge(&results, &expected);
}

/// Runs tests against a server in front of the suite's origin.
fn tested(tests: Tests<'_>, options: &[&str]) -> Vec<Tested> {
    let run = Run::start(tests);
    let own = ["--listen", "127.0.0.1:0", "--workers", "1"];
    let server = TestServer::start(
        PROGRAM,
        &[&["accelerate", &run.origin], &own[..], options].concat(),
    );
    run.results(server.address())
}

/// Repeats tests with unexpected results if these may have a rare cause: on a slow machine, `Age` includes the delay;
/// and the store may refuse a response that arrives while it forgets other keys (`SharedStore::may_be_deleted`).
fn again(results: &mut [Tested], expected: &Expected, options: &[&str]) {
    let is_unexpected = |test: &&Tested| match expected.has(&test.id) {
        true => test.is_passed() && run::is_pinned(),
        false => test.is_repeatable() && test.kind != Kind::Check,
    };
    let unexpected = results.iter().filter(is_unexpected);
    let ids: Vec<String> = unexpected.map(|test| test.id.clone()).collect();
    if ids.is_empty() {
        return;
    }
    say(&format!("once more: {}\n", ids.join(", ")));
    let second = tested(Tests::These(&ids), options).into_iter();
    for second in second.filter(|test| ids.contains(&test.id)) {
        let first = results.iter_mut().find(|test| test.id == second.id);
        *first.expect("it was run before") = second;
    }
}

/// Fails if a test failed that is not expected to.
fn judge(tested: &[Tested], expected: &Expected) {
    say(&summary(tested));
    let of_weight = || tested.iter().filter(|test| test.kind != Kind::Check);
    let known = |test: &&Tested| expected.has(&test.id);
    let worse = of_weight().filter(|test| !test.is_passed() && !known(test));
    let better = of_weight().filter(|test| run::is_pinned() && test.is_passed() && known(test));
    let is_unknown = |id: &&&'static str| tested.iter().all(|test| test.id != **id);
    let unheard = expected
        .ids()
        .filter(|id| run::is_pinned() && is_unknown(id));
    let complaints: Vec<String> = worse
        .map(|test| format!("not passed: {test}"))
        .chain(better.map(|test| format!("passed, so it can leave the list: {}", test.id)))
        .chain(unheard.map(|id| format!("listed, but there is no such test: {id}")))
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn summary(tested: &[Tested]) -> String {
    let of = |kind| tested.iter().filter(move |test| test.kind == kind);
    let count = |kind| {
        (
            of(kind).filter(|test| test.is_passed()).count(),
            of(kind).count(),
        )
    };
    let (required, optional, checks) = (
        count(Kind::Required),
        count(Kind::Optional),
        count(Kind::Check),
    );
    format!(
        "{}: required {} of {}, optional {} of {}; answered yes {} of {} questions\n",
        run::edition(),
        required.0,
        required.1,
        optional.0,
        optional.1,
        checks.0,
        checks.1
    )
}

fn lines_of(tested: &[Tested]) -> String {
    tested.iter().map(|test| format!("{test}\n")).collect()
}

/// Writes to standard error directly, because the test harness captures the output of macros.
fn say(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}
