//! The public tests for HTTP caches, by the editor of RFC 9111 (<https://cache-tests.fyi>, npm: http-cache-tests), against
//! `lowroad accelerate`: those that are not passed are listed in `expected.txt` with the reason, and no others.
//!
//! Without node or the package, which `tools/cache-suite.sh` fetches, nothing is tested, and the test says so. With
//! `LOWROAD_CACHE_TEST=ID` this one is run alone, and what client and origin saw of it is shown.

mod expected;
mod run;

use std::env;
use std::io::{Write, stderr};

use lowroad_testkit::{Server, skip};

use expected::Expected;
use run::{Kind, Run, Tested, Tests};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

#[test]
fn the_public_tests_for_caches() {
    if let Some(missing) = run::missing() {
        return skip("the_public_tests_for_caches", &missing);
    }
    match env::var("LOWROAD_CACHE_TEST") {
        Ok(id) => say(&lines_of(&tested(Tests::Shown(&id)))),
        Err(_) => {
            let expected = Expected::read();
            let mut results = tested(Tests::All);
            again(&mut results, &expected);
            judge(&results, &expected);
        }
    }
}

/// Runs tests with the server in front of their origin.
fn tested(tests: Tests<'_>) -> Vec<Tested> {
    let run = Run::start(tests);
    let options = ["--listen", "127.0.0.1:0", "--workers", "1"];
    let server = Server::start(
        PROGRAM,
        &[&["accelerate", &run.origin], &options[..]].concat(),
    );
    run.results(server.address())
}

/// Runs those once more that are not as expected and may be so since a response was not stored. A store may forget at
/// any time, and refuses what came while something was changed whose key shares a counter (`SharedStore::forget`); that is
/// rare enough not to come twice.
fn again(results: &mut [Tested], expected: &Expected) {
    let is_unexpected = |test: &&Tested| match expected.has(&test.id) {
        true => test.is_passed(),
        false => test.is_lost() && test.kind != Kind::Check,
    };
    let unexpected = results.iter().filter(is_unexpected);
    let ids: Vec<String> = unexpected.map(|test| test.id.clone()).collect();
    if ids.is_empty() {
        return;
    }
    say(&format!("once more: {}\n", ids.join(", ")));
    let second = tested(Tests::These(&ids)).into_iter();
    for second in second.filter(|test| ids.contains(&test.id)) {
        let first = results.iter_mut().find(|test| test.id == second.id);
        *first.expect("it was run before") = second;
    }
}

/// Fails if others than the expected ones are not passed.
fn judge(tested: &[Tested], expected: &Expected) {
    say(&summary(tested));
    let of_weight = || tested.iter().filter(|test| test.kind != Kind::Check);
    let known = |test: &&Tested| expected.has(&test.id);
    let worse = of_weight().filter(|test| !test.is_passed() && !known(test));
    let better = of_weight().filter(|test| test.is_passed() && known(test));
    let unheard = expected
        .ids()
        .filter(|id| tested.iter().all(|test| test.id != **id));
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
        run::PACKAGE,
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

/// Not with the macros, which are heard only of tests that fail.
fn say(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}
