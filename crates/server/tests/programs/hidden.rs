//! The server's secrets must be inaccessible to programs that run as the same user, as under the systemd unit.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use lowroad_testkit::{TempFolder, TestServer, skip};

use crate::host::PROGRAM;
use crate::talk::ask;

/// The user nobody, by number, since it may have no entry in passwd.
const NOBODY: u32 = 65_534;

/// A program that reads the /proc files of its parent.
const LOOK: &str = "#!/bin/sh
printf 'Content-Type: text/plain\\n\\n'
for file in environ mem maps fd/0 exe; do
    cat /proc/$PPID/$file >/dev/null 2>&1 && echo \"$file can be read\"
done
tr '\\0' '\\n' </proc/$PPID/environ 2>/dev/null | grep PASSWORD
echo end
";

/// A program that prints its environment.
const ENVIRONMENT: &str = "#!/bin/sh
printf 'Content-Type: text/plain\\n\\n'
tr '\\0' '\\n' </proc/$$/environ
";

/// A server started by a user other than root, with the password of its database in the environment.
fn start(folder: &TempFolder) -> TestServer {
    let all = |path: &std::path::Path| {
        fs::set_permissions(path, Permissions::from_mode(0o777)).expect("a mode");
    };
    for name in ["", "cgi", "root", "state"] {
        let path = folder.path().join(name);
        fs::create_dir_all(&path).expect("a folder");
        all(&path);
    }
    all(&folder.file("cgi/look", LOOK));
    all(&folder.file("cgi/environment", ENVIRONMENT));
    folder.file("root/page.lrp", "{{ row('SELECT 6 * 7 AS n').n }}");
    let text = "[server]\nworkers = 1\nadmin = \"DIR/state/admin\"\n\
        [[database]]\nname = \"db\"\nurl = \"sqlite:DIR/state/${DB_PASSWORD}\"\n\
        [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"DIR/root\"\n\
        [[site.route]]\npattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\n\
        [[site.route]]\npattern = \"*.lrp\"\npages = \"db\"\n";
    let text = text.replace("DIR", &folder.path().display().to_string());
    let config = folder.file("lowroad.toml", text);
    let mut command = Command::new(PROGRAM);
    command.args(["run", "-c"]).arg(config);
    command.env("DB_PASSWORD", "swordfish");
    // Root could read any process.
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    TestServer::spawn(command)
}

#[test]
fn program_of_the_same_user_cannot_read_server_memory() {
    let folder = TempFolder::new();
    let server = start(&folder);
    let (got, _) = ask(server.address(), "GET", "/cgi/look", "");
    assert_eq!((got.status, got.text()), (200, "end\n".into()));
    // The server still knows the password, with which the page connects to the database.
    let (got, _) = ask(server.address(), "GET", "/page.lrp", "");
    assert_eq!(got.text(), "42");
    assert!(folder.path().join("state/swordfish").exists());
    // Also after a reload.
    server.signal("HUP");
    server.wait_for_error_line("is in force");
    let (got, _) = ask(server.address(), "GET", "/page.lrp", "");
    assert_eq!(got.text(), "42");
}

/// Programs do not inherit descriptors that the server itself inherited.
#[test]
fn programs_do_not_inherit_descriptors() {
    let folder = TempFolder::new();
    let list = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n\
        for fd in /proc/$$/fd/*; do readlink $fd; done | grep secret\necho end\n";
    let path = folder.file("cgi/list", list);
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a mode");
    folder.file("root/file", "");
    folder.file("secret", "");
    let text = "[server]\nworkers = 1\nadmin = \"DIR/admin\"\n[[site]]\n\
        listen = \"127.0.0.1:0\"\nroot = \"DIR/root\"\n[[site.route]]\n\
        pattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\nuser = \"root\"\n";
    let text = match rustix::process::geteuid().is_root() {
        true => text.replace("[server]", "[server]\nuser = \"root\""),
        false => text.replace("user = \"root\"\n", ""),
    };
    let text = text.replace("DIR", &folder.path().display().to_string());
    let config = folder.file("lowroad.toml", text);
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$1\" run -c \"$2\" 9<\"$3\"", "sh", PROGRAM]);
    command.arg(config).arg(folder.path().join("secret"));
    let server = TestServer::spawn(command);
    let (got, _) = ask(server.address(), "GET", "/cgi/list", "");
    assert_eq!((got.status, got.text()), (200, "end\n".into()));
}

#[test]
fn secrets_are_erased_from_environment_memory() {
    if !rustix::process::geteuid().is_root() {
        return skip(
            "secrets_are_erased_from_environment_memory",
            "only root may look into the server",
        );
    }
    let folder = TempFolder::new();
    let server = start(&folder);
    let path = format!("/proc/{}/environ", server.pid());
    let block = fs::read(path).expect("root reads it");
    let text = String::from_utf8_lossy(&block);
    assert!(text.contains("DB_PASSWORD=\0\0"), "{text:?}");
    assert!(!text.contains("swordfish"));
}

#[test]
fn programs_of_a_root_server_run_unprivileged() {
    let test = "programs_of_a_root_server_run_unprivileged";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root may be somebody else");
    }
    for (own, expected) in [("", "65534 65534"), ("user = \"daemon\"", "1 1")] {
        let folder = TempFolder::new();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("a mode");
        let who = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\necho $(id -u) $(id -G)\n";
        let path = folder.file("cgi/who", who);
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a mode");
        folder.file("root/file", "");
        let text = format!(
            "[server]\nworkers = 1\nuser = \"root\"\nadmin = \"DIR/admin\"\n[[site]]\n\
             listen = \"127.0.0.1:0\"\nroot = \"DIR/root\"\n[[site.route]]\n\
             pattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\n{own}\n"
        );
        let text = text.replace("DIR", &folder.path().display().to_string());
        let server = TestServer::run(PROGRAM, &folder, &text);
        let (got, _) = ask(server.address(), "GET", "/cgi/who", "");
        assert_eq!(got.text().trim(), expected);
    }
}

#[test]
fn program_environment_has_exactly_the_cgi_variables() {
    const EXPECTED: &[&str] = &[
        "DOCUMENT_ROOT",
        "GATEWAY_INTERFACE",
        "HTTP_HOST",
        "PATH",
        "QUERY_STRING",
        "REDIRECT_STATUS",
        "REMOTE_ADDR",
        "REMOTE_PORT",
        "REQUEST_METHOD",
        "REQUEST_SCHEME",
        "REQUEST_URI",
        "SCRIPT_FILENAME",
        "SCRIPT_NAME",
        "SERVER_ADDR",
        "SERVER_NAME",
        "SERVER_PORT",
        "SERVER_PROTOCOL",
        "SERVER_SOFTWARE",
    ];
    let folder = TempFolder::new();
    let server = start(&folder);
    let (got, _) = ask(server.address(), "GET", "/cgi/environment", "");
    let text = got.text();
    let names = text.lines().filter_map(|line| line.split_once('='));
    let mut names: Vec<_> = names.map(|(name, _)| name).collect();
    names.sort_unstable();
    assert_eq!(names, EXPECTED);
    assert!(text.contains("\nPATH=/usr/local/bin:/usr/bin:/bin\n") || text.starts_with("PATH="));
}

#[test]
fn programs_have_the_original_descriptor_limit() {
    let folder = TempFolder::new();
    let limit = "#!/bin/sh\nsaid=\"$(ulimit -Sn)\"\n\
        printf 'Content-Type: text/plain\\nContent-Length: %d\\n\\n%s' ${#said} \"$said\"\n";
    let file = folder.file("cgi/limit", limit);
    fs::set_permissions(file, Permissions::from_mode(0o755)).expect("a mode");
    let text = format!(
        "[server]\nworkers = 1\n[[application]]\nname = \"app\"\ncommand = [\"sh\", \"-c\", \"ulimit -Sn; exec sleep 1000\"]\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{0}\"\n\
         [[site.route]]\npattern = \"/cgi/**\"\ncgi = \"{0}/cgi\"\n",
        folder.path().display()
    );
    let config = folder.file("lowroad.toml", text);
    let mut command = Command::new("sh");
    let start = "ulimit -Sn 700 && exec \"$0\" run -c \"$1\"";
    command.args(["-c", start, PROGRAM]).arg(config);
    let server = TestServer::spawn(command);
    server.wait_for_error_line("app: 700");
    assert_eq!(server.get("/cgi/limit").text(), "700");
    let own = fs::read_to_string(format!("/proc/{}/limits", server.pid())).expect("its limits");
    let own = own.lines().find(|line| line.starts_with("Max open files"));
    assert!(!own.expect("a line").contains(" 700 "), "{own:?}");
}
