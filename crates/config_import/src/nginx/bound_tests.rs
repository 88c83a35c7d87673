//! The size of a configuration is bounded, and so is the work that it causes.

use std::path::{Path, PathBuf};

use super::{import, import_text};

/// A folder of this test's own, which the test removes.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn message(result: Result<crate::ConfigImport, super::SyntaxError>) -> String {
    result.err().map(|it| it.message).unwrap_or_default()
}

#[test]
fn values_of_variables_do_not_grow_exponentially() {
    let mut lines = "set $a0 0123456789;".to_string();
    for number in 1..64 {
        lines.push_str(&format!("set $a{number} \"$a{0}${{a{0}}}\";", number - 1));
    }
    let text = format!("server {{ listen 80; {lines} location / {{ return 301 /$a63; }} }}");
    let import = import_text(&text, Path::new("nginx.conf")).expect("a configuration");
    assert!(import.text.len() < 10_000, "{}", import.text.len());
    assert!(
        import.report.to_string().contains("more than 8192 bytes"),
        "{}",
        import.report
    );
    // A text with many references keeps them, and is left to do by hand.
    let text = format!(
        "server {{ listen 80; set $a {}; add_header X \"{}\"; }}",
        "x".repeat(8000),
        "$a".repeat(1000)
    );
    let import = import_text(&text, Path::new("nginx.conf")).expect("a configuration");
    assert!(import.text.len() < 100_000, "{}", import.text.len());
}

#[test]
fn variables_are_replaced_by_their_whole_name() {
    let (name, text) = ("set $a 1; set $ab 2;", "/$a-$ab-${a}b");
    let config = format!("server {{ listen 80; {name} location = /x {{ return 301 {text}; }} }}");
    let import = import_text(&config, Path::new("nginx.conf")).expect("a configuration");
    assert!(import.text.contains("to = \"/1-2-1b?\""), "{}", import.text);
}

#[test]
fn locations_of_a_server_are_counted() {
    let server = |count: usize| {
        let locations =
            (0..count).map(|it| format!("location /{it}/ {{ location /{it}/x/ {{ }} }}"));
        format!(
            "server {{ listen 80; root /srv; {} }}",
            locations.collect::<String>()
        )
    };
    let too_many = import_text(&server(2501), Path::new("nginx.conf"));
    assert_eq!(message(too_many), "the server has more than 5000 locations");
    let some = format!("http {{ {0} {0} }}", server(100));
    assert_eq!(message(import_text(&some, Path::new("nginx.conf"))), "");
}

#[test]
fn included_files_are_files_of_a_bounded_size() {
    let folder = Folder::new("import-bounds");
    let device = folder.file("device.conf", "http { include /dev/null; }");
    assert_eq!(message(import(&device, None)), "is not a file");
    folder.file("large.inc", &format!("# {}\n", "x".repeat(1 << 20)));
    let includes = |count: usize| "include large.inc;\n".repeat(count) + "server { listen 80; }";
    let large = folder.file("large.conf", &includes(16));
    let expected = "the files have more than 16777216 bytes together";
    assert_eq!(message(import(&large, None)), expected);
    let fitting = folder.file("fitting.conf", &includes(2));
    assert_eq!(message(import(&fitting, None)), "");
}

#[test]
fn other_encodings_are_refused_outside_of_comments() {
    let folder = Folder::new("lowroad-latin");
    let file = folder.0.join("nginx.conf");
    let site = |comment: &[u8], path: &[u8]| {
        [
            b"# caf",
            comment,
            b"\nserver {\n location ",
            path,
            b" { deny all; }\n}\n",
        ]
        .concat()
    };
    let import = |bytes: &[u8]| {
        std::fs::write(&file, bytes).expect("a file");
        super::import(&file, None)
    };
    assert!(import(&site(b"\xe9", b"/a")).is_ok());
    for path in [&b"/\xe9t"[..], b"~ \"/\xe9t\""] {
        let error = import(&site(b"e", path)).expect_err("Latin-1");
        assert!(error.to_string().contains(":3:"), "{error}");
        assert!(error.to_string().contains("is not UTF-8"), "{error}");
    }
}
