//! Globs by example, and compared with a naive matcher.

use super::*;

fn pattern(text: &str) -> PathPattern {
    PathPattern::parse(text).expect("a pattern")
}

/// The capture of a pattern in a path, as text.
fn captured<'a>(text: &str, path: &'a str) -> Option<&'a str> {
    pattern(text)
        .capture(path.as_bytes())
        .map(|bytes| str::from_utf8(bytes).expect("UTF-8"))
}

#[test]
fn patterns_match_and_capture_examples() {
    for (text, path, expected) in [
        ("/", "/", Some("")),
        ("/", "/a", None),
        ("/a.html", "/a.html", Some("")),
        ("/a.html", "/A.html", None),
        ("/a.html", "/a_html", None),
        ("/old/**", "/old/", Some("")),
        ("/old/**", "/old/x/y", Some("x/y")),
        ("/old/**", "/old", None),
        ("/old**", "/old/x", Some("/x")),
        ("/old/*", "/old/x", Some("x")),
        ("/old/*", "/old/x/y", None),
        ("/*/end", "/x/end", Some("")),
        ("/*/end", "/x/y/end", None),
        ("/**/end", "/x/y/end", Some("")),
        ("/**/end", "/end", None),
        ("/a/*/c/*", "/a/b/c/d", Some("d")),
        ("/a/*/c/*", "/a/b/c/d/e", None),
        ("/**/img/**", "/x/img/y/img/z", Some("y/img/z")),
        ("/**/img/**", "/x/imgs/z", None),
        ("/**.css", "/x/y.css", Some("")),
        ("/**/*.css", "/x/y.css", Some("")),
        ("/***", "/x/y", Some("x/y")),
        ("*.css", "/x/y.css", Some("")),
        ("*.css", "/.css", Some("")),
        ("*.css", "/x.css/y", None),
        ("report-*", "/x/report-7", Some("7")),
        ("*", "/x/y", Some("y")),
        ("*", "/x/", Some("")),
        ("robots.txt", "/robots.txt", Some("")),
        ("robots.txt", "/x/robots.txt.bak", None),
        ("*a*b*", "/xaybz", Some("z")),
        ("/ü*", "/üx", Some("x")),
        ("/a?[b]", "/a?[b]", Some("")),
        ("/**", "", None),
    ] {
        assert_eq!(captured(text, path), expected, "{text} on {path}");
        assert_eq!(
            pattern(text).matches(path.as_bytes()),
            expected.is_some(),
            "{text} on {path}"
        );
    }
}

#[test]
fn pattern_captures_invalid_utf_8() {
    assert_eq!(
        pattern("/a/*").capture(b"/a/\xff\xfe"),
        Some(&b"\xff\xfe"[..])
    );
}

#[test]
fn invalid_patterns_are_refused() {
    let (long, wild) = (
        format!("/{}", "a".repeat(1024)),
        format!("/{}", "*a".repeat(17)),
    );
    for (text, error) in [
        ("", PathPatternError::Empty),
        ("a/b", PathPatternError::NotAbsolute),
        ("a/", PathPatternError::NotAbsolute),
        ("**/x", PathPatternError::NotAbsolute),
        (long.as_str(), PathPatternError::TooLong),
        (wild.as_str(), PathPatternError::TooLong),
    ] {
        assert_eq!(PathPattern::parse(text), Err(error), "{text}");
    }
    assert!(PathPattern::parse(&long[..1024]).is_ok() && PathPattern::parse(&wild[..33]).is_ok());
}

#[test]
fn pattern_displays_original_text_and_reports_captures() {
    assert_eq!(pattern("/a/***/b").to_string(), "/a/***/b");
    assert_eq!(PathPattern::everything(), pattern("/**"));
    let ends = ["/a*", "/**", "*", "/a*b", "/a"].map(|text| pattern(text).has_capture());
    assert_eq!(ends, [true, true, true, false, false]);
}

/// The definition of a match as naive recursion, which may take exponential time.
fn naive(pattern: &[u8], path: &[u8]) -> bool {
    match pattern {
        [] => path.is_empty(),
        [b'*', b'*', b'*', ..] => naive(&pattern[1..], path),
        [b'*', b'*', rest @ ..] => (0..=path.len()).any(|len| naive(rest, &path[len..])),
        [b'*', rest @ ..] => {
            let segment = path.iter().take_while(|&&byte| byte != b'/').count();
            (0..=segment).any(|len| naive(rest, &path[len..]))
        }
        [first, rest @ ..] => path.first() == Some(first) && naive(rest, &path[1..]),
    }
}

#[test]
fn random_patterns_agree_with_the_naive_matcher() {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).expect("small")
    };
    let mut word = |alphabet: &[u8], len_max: usize| -> Vec<u8> {
        let len = random(len_max);
        (0..len).map(|_| alphabet[random(alphabet.len())]).collect()
    };
    let mut matched = 0;
    for _ in 0..20_000 {
        let text = [b"/".to_vec(), word(b"ab/***", 8)].concat();
        let path = [b"/".to_vec(), word(b"ab/", 9)].concat();
        let shown = str::from_utf8(&text).expect("ASCII");
        let found = pattern(shown).capture(&path);
        assert_eq!(
            found.is_some(),
            naive(&text, &path),
            "{shown} on {}",
            path.escape_ascii()
        );
        let Some(rest) = found else { continue };
        matched += 1;
        assert!(path.ends_with(rest), "{shown} on {}", path.escape_ascii());
        if text.ends_with(b"*") {
            let front = &path[..path.len() - rest.len()];
            let literal = text
                .iter()
                .rposition(|&byte| byte != b'*')
                .map_or(0, |at| at + 1);
            assert!(
                naive(&text[..literal], front),
                "{shown} on {}: {rest:?}",
                path.escape_ascii()
            );
        }
    }
    assert!(matched > 1000, "{matched} matches prove nothing");
}

#[test]
fn pattern_matching_has_no_exponential_backtracking() {
    let hard = pattern("/**a*a**a*a**a*a**b");
    assert!(!hard.matches("/".repeat(2000).as_bytes()));
    assert!(!hard.matches(format!("/{}", "a".repeat(8000)).as_bytes()));
}

#[test]
fn front_is_literal_text_before_first_wildcard() {
    for (text, front) in [
        ("/cgi-bin/**", "/cgi-bin/"),
        ("/a/b*/c", "/a/b"),
        ("/a", "/a"),
        ("/**", "/"),
        ("*.php", ""),
        ("index.php", ""),
    ] {
        let pattern = PathPattern::parse(text).expect("a pattern");
        assert_eq!(pattern.front(), front, "{text}");
    }
}

#[test]
fn trailing_star_is_matched_in_linear_time() {
    // Each `a` is a possible start of the last star, but the slash at the end prevents a match.
    let path = format!("/{}/", "a".repeat(200_000));
    assert_eq!(pattern("/**a*").capture(path.as_bytes()), None);
}

#[test]
fn alternatives_match_one_of_their_texts() {
    for (text, path, expected) in [
        ("*.{css,js}", "/a/x.css", Some("")),
        ("*.{css,js}", "/a/x.js", Some("")),
        ("*.{css,js}", "/a/x.json", None),
        ("*.{css,js}", "/a/x.{css,js}", None),
        ("/{wp-admin,wp-login.php}", "/wp-admin", Some("")),
        ("/{a,b}/**", "/b/x/y", Some("x/y")),
        ("/{a,b}/**", "/c/x", None),
        ("{a,b}{1,2}", "/x/b1", Some("")),
        ("{a,b}{1,2}", "/x/b3", None),
        ("/x{,/y}/z", "/x/z", Some("")),
        ("/x{,/y}/z", "/x/y/z", Some("")),
        ("/*{.br,.gz}", "/a.gz", Some("")),
        ("/*{-a,-b}-*", "/x-b-y", Some("y")),
    ] {
        assert_eq!(captured(text, path), expected, "{text} on {path}");
    }
    for (text, error) in [
        ("*.{css", PathPatternError::Braces),
        ("*.css}", PathPatternError::Braces),
        ("*.{css}", PathPatternError::Braces),
        ("*.{c*,js}", PathPatternError::Braces),
        ("*.{a,{b,c}}", PathPatternError::Braces),
        (
            "/{a,b,c,d,e}{a,b,c,d,e}{a,b,c,d,e}",
            PathPatternError::TooLong,
        ),
    ] {
        assert_eq!(PathPattern::parse(text), Err(error), "{text}");
    }
}

#[test]
fn case_of_ascii_letters_is_ignored_on_request() {
    for (text, path, expected) in [
        ("(?i)*.PhP", "/x/INDEX.php", Some("")),
        ("(?i)/Admin/**", "/aDMIN/Users", Some("Users")),
        ("(?i)/ü", "/Ü", None),
        ("(?i)*.{CSS,js}", "/a.JS", Some("")),
        ("*.php", "/x.PHP", None),
    ] {
        assert_eq!(captured(text, path), expected, "{text} on {path}");
    }
    assert_eq!(pattern("(?i)/a/**").front(), "");
    assert_eq!(pattern("(?i)/a/**").to_string(), "(?i)/a/**");
    assert_eq!(PathPattern::parse("(?i)"), Err(PathPatternError::Empty));
}

#[test]
fn alternatives_agree_with_their_expansion() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).expect("small")
    };
    let mut matched = 0;
    for _ in 0..20_000 {
        let mut word = |alphabet: &[u8], len_max: usize| -> String {
            let len = random(len_max);
            let letters = (0..len).map(|_| char::from(alphabet[random(alphabet.len())]));
            letters.collect()
        };
        let (front, middle, end) = (word(b"a/*", 4), word(b"ab*", 3), word(b"a*", 3));
        // Not empty: stars at both sides would become `**` in the expansion only.
        let choices = [word(b"ab", 3) + "a", word(b"ab/", 3) + "b"];
        let path = format!("/{}", word(b"ab/", 8));
        let text = format!("/{front}{{{},{}}}{middle}{end}", choices[0], choices[1]);
        let found = pattern(&text).matches(path.as_bytes());
        let expanded = choices.map(|choice| format!("/{front}{choice}{middle}{end}"));
        let expected = expanded
            .iter()
            .any(|it| pattern(it).matches(path.as_bytes()));
        assert_eq!(found, expected, "{text} on {path}");
        matched += usize::from(found);
    }
    assert!(matched > 500, "{matched} matches prove nothing");
}
