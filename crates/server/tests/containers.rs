//! What a container may lack: names that resolve.

use std::fs;
use std::process::Command;

use lowroad_testkit::origin::Origin;
use lowroad_testkit::{Folder, Server, skip, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// Whether namespaces can be made here; notes that the test is skipped if not.
fn can_unshare(test: &str) -> bool {
    let tried = Command::new("unshare")
        .args(["-m", "-p", "-f", "true"])
        .status();
    let is_able = tried.is_ok_and(|status| status.success());
    if !is_able {
        skip(test, "namespaces take root and util-linux");
    }
    is_able
}

#[test]
fn an_origin_whose_name_is_unknown_keeps_nothing_else_from_its_start() {
    if !can_unshare("an_origin_whose_name_is_unknown_keeps_nothing_else_from_its_start") {
        return;
    }
    let folder = Folder::new();
    let hosts = folder.file("hosts", "127.0.0.1 localhost\n");
    let switch = folder.file("nsswitch.conf", "hosts: files\n");
    folder.file("www/a.txt", "a");
    let origin = Origin::saying(|_| {
        "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\nhi".into()
    });
    let port = origin.url().rsplit(':').next().expect("a port").to_owned();
    let config = folder.file(
        "lowroad.toml",
        format!(
            "[server]\nworkers = 1\nuser = \"root\"\nadmin = \"{0}/admin\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{0}/www\"\n\
             [[site.route]]\npattern = \"/o/**\"\norigin = \"http://app.example:{port}\"\n\
             [[site.route]]\npattern = \"/f/**\"\nfastcgi = \"fpm.example:9000\"\nscript = \"/index.php\"\n",
            folder.path().display()
        ),
    );
    let script = format!(
        "mount --bind {} /etc/hosts && mount --bind {} /etc/nsswitch.conf && exec {PROGRAM} run -c {}",
        hosts.display(),
        switch.display(),
        config.display()
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    let server = Server::spawn(command);
    assert_eq!(server.get("/a.txt").text(), "a");
    for (path, line) in [
        ("/o/x", "origin http://app.example"),
        ("/f/x", "FastCGI server fpm.example:9000"),
    ] {
        assert_eq!(server.get(path).status, 503, "{path}");
        let line = server.wait_for_error_line(line);
        assert!(line.contains("can't be looked up"), "{line}");
    }
    fs::write(hosts, "127.0.0.1 localhost\n127.0.0.1 app.example\n").expect("a file");
    wait_until("the origin's answer", || {
        let response = server.get("/o/x");
        (response.status == 200).then(|| response.text())
    });
    server.wait_for_error_line("the name can be looked up again");
}
