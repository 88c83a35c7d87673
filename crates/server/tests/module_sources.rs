//! Modules can read the files of their site, but not the sources of its programs.

use std::path::Path;
use std::process::Command;

use lowroad_testkit::{TempFolder, TestServer};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// A module that reads a file of the site. The query contains the path, and the function to use.
const MODULE: &str = r#"
#include <lowroad.h>

int lowroad_handle(void *state, lowroad_call *call, int event, uint32_t number)
{
    static char text[65536];
    (void)state;
    if (event == LOWROAD_FETCHED) {
        lowroad_status(call, (uint32_t)lowroad_fetched(call, number));
        lowroad_send(call, text, (size_t)lowroad_read(call, number, text, sizeof text));
        return LOWROAD_DONE;
    }
    if (event != LOWROAD_REQUEST)
        return LOWROAD_WAIT;
    if (lowroad_get(call, LOWROAD_PARAMETER, "fetch", text, sizeof text) > 0)
        return lowroad_fetch(call, text) > 0 ? LOWROAD_WAIT : LOWROAD_FAILED;
    lowroad_get(call, LOWROAD_PARAMETER, "stored", text, sizeof text);
    return lowroad_send_stored(call, text) == 0 ? LOWROAD_DONE : LOWROAD_FAILED;
}
"#;

fn build(folder: &TempFolder) {
    let source = folder.file("module.c", MODULE);
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../module/include");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(headers)
        .arg("-o")
        .arg(folder.path().join("module.so"))
        .arg(source)
        .status();
    assert!(status.expect("cc runs").success(), "it compiles");
}

#[test]
fn modules_get_files_but_not_program_sources() {
    let folder = TempFolder::new();
    build(&folder);
    folder.file("www/a.txt", "a file");
    folder.file("www/page.lrp", "the source of a page");
    folder.file("www/bin/run.sh", "the source of a program");
    folder.file("www/start/index.lrp", "the source of a page");
    let base = folder.path().display();
    let config = format!(
        r#"
        [[module]]
        name = "m"
        library = "{base}/module.so"
        [[site]]
        listen = "127.0.0.1:0"
        root = "{base}/www"
        index = ["index.html", "index.lrp"]
        [[site.route]]
        pattern = "/m"
        module = "m"
        [[site.route]]
        pattern = "*.lrp"
        pages = true
        [[site.route]]
        pattern = "/bin/*"
        cgi = "{base}/www/bin"
        "#
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    for way in ["fetch", "stored"] {
        // The first response comes from the disk, the second one from memory.
        for _ in 0..2 {
            let got = server.get(&format!("/m?{way}=/a.txt"));
            assert_eq!((got.status, got.text().as_str()), (200, "a file"), "{way}");
        }
        for source in [
            "/page.lrp",
            "/page.lrp/more",
            "/bin/run.sh",
            "/start/",
            "/m",
        ] {
            for _ in 0..2 {
                let got = server.get(&format!("/m?{way}={source}"));
                assert_eq!(got.status, 404, "{way} {source}");
                assert!(!got.text().contains("the source"), "{way} {source}");
            }
        }
        for source in ["//bin/run.sh", "/bin//run.sh", "/a/../bin/run.sh"] {
            let got = server.get(&format!("/m?{way}={source}"));
            assert_eq!(got.status, 500, "{way} {source}");
        }
    }
}
