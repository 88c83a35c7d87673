use super::*;

fn tree(text: &str) -> Result<String, String> {
    fn show(directives: &[Directive]) -> String {
        let texts = directives.iter().map(|it| match &it.block {
            None => it.to_text(),
            Some(block) => format!("{} {{{}}}", it.to_text(), show(block)),
        });
        texts.collect::<Vec<_>>().join("; ")
    }
    parse(text, Path::new("f"))
        .map(|directives| show(&directives))
        .map_err(|error| error.to_string())
}

#[test]
fn words_quotes_and_blocks_are_read_as_nginx_does() {
    for (text, expected) in [
        ("a b;c;", "a b; c"),
        ("a { b c; } # end\nd;", "a {b c}; d"),
        (r#"a "b c" 'd;e';"#, r#"a "b c" "d;e""#),
        (r"location ~ \.php$ { }", r"location ~ \.php$ {}"),
        (
            "return 301 https://${host}/x;",
            "return 301 \"https://${host}/x\"",
        ),
        ("a b#c;", "a b#c"),
        ("a\n  b\n  c;", "a b c"),
        (r#"if ($a = "b") { c; }"#, "if ($a = b) {c}"),
        (
            "content_by_lua_block { x = {} } a;",
            "content_by_lua_block {}; a",
        ),
        ("", ""),
    ] {
        assert_eq!(tree(text).as_deref(), Ok(expected), "{text}");
    }
    let directives = parse(r#"a "\"x\"" "b\.c";"#, Path::new("f")).expect("a directive");
    assert_eq!(directives[0].args, ["\"x\"", "b\\.c"]);
}

#[test]
fn mistakes_have_their_place() {
    for (text, expected) in [
        ("a {\n b;", "f:2:4: a block is not closed: } is missing"),
        ("a;\n}", "f:2:1: this } closes no block"),
        ("a b", "f:1:1: a has no ; at its end"),
        ("a { b }", "f:1:7: b has no ; before this }"),
        ("a 'b;", "f:1:3: a quote is not closed"),
        (
            "a 'b'c;",
            "f:1:3: a space or ; must follow the closing quote",
        ),
        (";", "f:1:1: a directive is missing before ;"),
        (
            "x_by_lua_block { {",
            "f:1:16: a block is not closed: } is missing",
        ),
    ] {
        assert_eq!(tree(text), Err(expected.to_string()), "{text}");
    }
    assert!(
        tree(&"a {".repeat(100))
            .expect_err("deep")
            .contains("nested more than")
    );
}
