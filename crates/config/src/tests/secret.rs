//! Secrets in files, variables and credentials.

use super::include::MemoryFiles;
use super::*;

fn files(text: &str) -> MemoryFiles {
    let mut files = MemoryFiles::new(&[("/c/lowroad.toml", &in_site(text))]);
    for (source, text) in [
        ("/c/token", "0123456789abcdef"),
        ("the variable TOKEN", "fedcba9876543210"),
        ("the credential db", "mysql://u:p@h/n"),
        ("/c/otlp", "Bearer abc"),
        ("/c/lines", "a\nb"),
        ("/c/nonsense", "hunter2"),
        ("/c/invisible", "hunter\u{e9}"),
    ] {
        files.secrets.insert(source.into(), text.into());
    }
    files
}

#[test]
fn secrets_are_read_from_files_variables_and_credentials() {
    let config = files(
        "[admin]\nlisten = \"127.0.0.1:1\"\ntoken = { file = \"token\" }\nread_token = { env = \"TOKEN\" }\n\
         [[database]]\nname = \"d\"\nurl = { credential = \"db\" }\n\
         [traces.headers]\nAuthorization = { file = \"otlp\" }\nplain = \"x\"\n\
         [[application]]\nname = \"a\"\ncommand = [\"/a\"]\nenv = { A = { env = \"TOKEN\" }, B = \"b\" }\n\
         [[module]]\nname = \"m\"\nlinked = \"m\"\nsettings = { key = { file = \"/c/token\" } }\n\
         [acme]\nterms_agreed = true\n[[acme.authority]]\ndirectory = \"https://a/\"\nkey_id = \"k\"\nkey = { file = \"token\" }\n",
    )
    .good();
    let token = SecretText::new("0123456789abcdef");
    assert_eq!(config.admin.token, Some(token.clone()));
    assert_eq!(
        config.admin.read_token,
        Some(SecretText::new("fedcba9876543210"))
    );
    assert_eq!(config.databases[0].url, "mysql://u:p@h/n");
    let headers = config.traces.expect("traces").headers;
    assert!(headers.contains(&("Authorization".into(), "Bearer abc".into())));
    assert_eq!(config.applications[0].env[0].1, "fedcba9876543210");
    assert_eq!(config.modules[0].settings[0].1, "0123456789abcdef");
    let external = &config.acme.expect("acme").authorities[0].external;
    assert_eq!(*external, Some(("k".into(), ExternalKey::Text(token))));
    assert_eq!(config.document.secret_sources.len(), 7);
    let mut files = config.document.secret_files();
    assert!(files.all(|path| path.starts_with("/c")));
}

#[test]
fn unusable_secrets_are_problems_without_their_text() {
    for (text, expected) in [
        (
            "token_file = \"t\"\n[[site]]\nnames = \"a\"\n[[site.route]]\npattern = \"/**\"\norigin = \"http://a\"\nrequest.set = { A = { file = \"invisible\" } }",
            "11:21: site[1].route[0].request.set.A: not the value of a field (allowed: visible ASCII",
        ),
        (
            "token = { file = \"none\" }",
            "5:9: admin.token: /c/none can't be used: missing (allowed: { file",
        ),
        (
            "token = { env = \"1\" }",
            "5:17: admin.token.env: \"1\" is not a name (allowed: letters, digits and _, no digit in front)",
        ),
        (
            "token = { credential = \"../x\" }",
            "5:24: admin.token.credential: \"../x\" is not a name (allowed: the name of a file, without /)",
        ),
        (
            "token = { file = \"a\", env = \"B\" }",
            "5:9: admin.token: not one place of a secret (allowed: { file",
        ),
        ("token = {}", "5:9: admin.token: not one place of a secret"),
        (
            "token = { fil = \"a\" }",
            "5:9: admin.token: not one place of a secret",
        ),
        (
            "token = \"0123456789abcdef\"",
            "5:9: admin.token: a secret must not be in the configuration itself (allowed: { file",
        ),
        (
            "token = { file = \"token\" }\ntoken_file = \"t\"",
            "3:1: admin: token and token_file are two tokens (allowed: one of both)",
        ),
        (
            "token_file = \"t\"\n[[database]]\nname = \"d\"\nurl = { file = \"nonsense\" }",
            "8:7: database[0].url: the URL does not name the kind of database",
        ),
        (
            "token_file = \"t\"\n[traces.headers]\na = { file = \"lines\" }",
            "7:5: traces.headers.a: not the value of a field (allowed: ASCII, on one line)",
        ),
    ] {
        let problems = files(&format!("[admin]\nlisten = \"127.0.0.1:1\"\n{text}"))
            .problems()
            .join("\n");
        let problems = problems.replace("/c/lowroad.toml:", "");
        assert!(problems.starts_with(expected), "{text}: {problems}");
        assert!(!problems.contains("hunter"), "{problems}");
    }
}

#[test]
fn fields_of_requests_to_origins_may_be_secrets() {
    let config = files(
        "[[site.route]]\npattern = \"/\"\norigin = \"http://a\"\n[site.route.request]\n\
         set = { Authorization = { file = \"otlp\" }, A = \"$host\" }\nappend = { B = { env = \"TOKEN\" } }\n",
    )
    .good();
    let rule = &config.sites[0].routes[0].request;
    let set: Vec<_> = rule
        .set
        .iter()
        .map(|(_, it)| (it.constant(), it.is_secret()))
        .collect();
    assert!(set.contains(&(Some("Bearer abc"), true)) && set.contains(&(None, false)));
    assert!(rule.append[0].1.is_secret());
    let shown =
        config.document.effective.to_toml() + &config.document.effective.to_json().to_string();
    assert!(shown.contains("otlp") && shown.contains("$host"), "{shown}");
    assert!(
        !shown.contains("abc") && !shown.contains("fedcba"),
        "{shown}"
    );
}

#[test]
fn secrets_are_not_read_by_a_reader_without_access() {
    let config = good(&in_site(
        "[[database]]\nname = \"d\"\nurl = { env = \"URL\" }\n[traces.headers]\na = { file = \"a\" }\n\
         [admin]\nlisten = \"127.0.0.1:1\"\ntoken = { file = \"t\" }",
    ));
    assert_eq!(config.databases[0].url, "");
}
