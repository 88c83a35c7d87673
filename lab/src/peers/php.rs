//! PHP for servers that need another program for dynamic pages: php-fpm behind a Unix socket, or a module in each
//! process of Apache.

use std::fs;
use std::path::PathBuf;

use super::job::JobStep;
use super::plan::{PeerPlan, PeerRun};
use super::servers::APACHE_MODULES;

const NGINX: &str = include_str!("../../peers/nginx-php.part");
const APACHE: &str = include_str!("../../peers/apache-php.part");
const MODULE: &str = include_str!("../../peers/apache-mod-php.part");
const PHP_FPM: &str = include_str!("../../peers/php-fpm.conf");

/// The part of nginx's configuration for the FPM processes.
pub fn behind_nginx(run: &PeerRun<'_>) -> String {
    run.fill(NGINX, &[])
}

/// The part of Apache's configuration for the FPM processes.
pub fn behind_apache(run: &PeerRun<'_>) -> String {
    run.fill(APACHE, &[("modules", APACHE_MODULES)])
}

/// The part of Apache's configuration with PHP in each of its processes.
///
/// # Errors
/// The module is not installed.
pub fn in_apache(run: &PeerRun<'_>) -> Result<String, String> {
    let module = module()?.display().to_string();
    // Scripts within the served folder need no alias.
    let alias = match run.settings.text("php_root") {
        "" => String::new(),
        root => format!(
            "LoadModule alias_module {APACHE_MODULES}/mod_alias.so\n\
             AliasMatch \"^/(.*\\.php)$\" \"{root}/$1\""
        ),
    };
    let values = [
        ("modules", APACHE_MODULES),
        ("php_module", module.as_str()),
        ("alias", &alias),
    ];
    Ok(run.fill(MODULE, &values))
}

/// Apache's module of the newest PHP that is installed.
///
/// # Errors
/// No module is installed; the text names the package.
pub fn module() -> Result<PathBuf, String> {
    let entries = fs::read_dir(APACHE_MODULES).into_iter().flatten().flatten();
    let is_php = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libphp") && name.ends_with(".so")
    };
    // The file names differ only in the version, so the greatest is the newest.
    let newest = entries.map(|entry| entry.path()).filter(is_php).max();
    newest.ok_or_else(|| {
        "apache-mod-php is not installed (PHP as a module of Apache is missing): `lowroad-lab peers \
         install apache-mod-php` installs it (Debian: libapache2-mod-php)"
            .to_owned()
    })
}

/// Starts the FPM processes.
pub fn fpm(plan: &mut PeerPlan, run: &PeerRun<'_>) {
    let user = if run.as_root {
        "user = root\ngroup = root"
    } else {
        ""
    };
    let environment = environment(run);
    let values = [("user", user), ("environment", &environment)];
    plan.file("php-fpm.conf", run.fill(PHP_FPM, &values));
    let program = super::servers::program("php-fpm");
    let config = run.path("php-fpm.conf");
    let mut words = vec![program.as_str(), "--nodaemonize", "--fpm-config", &config];
    // php-fpm refuses to run pools as root without this option.
    if run.as_root {
        words.push("--allow-to-run-as-root");
    }
    plan.start(&words);
    plan.steps.push(JobStep::Await(run.folder.join("php.sock")));
}

/// The environment variables of scripts. php-fpm accepts no empty values.
fn environment(run: &PeerRun<'_>) -> String {
    [("SPECWEB99_DATA", "specweb99_data"), ("LAB_DB", "db")]
        .iter()
        .map(|(variable, setting)| (variable, run.settings.text(setting)))
        .filter(|(_, value)| !value.is_empty())
        .map(|(variable, value)| format!("env[{variable}] = \"{value}\"\n"))
        .collect()
}

/// Debian's folder of PHP extensions, with one subfolder for each version of the extension interface, named by a date.
const EXTENSION_FOLDERS: &str = "/usr/lib/php";

/// The extensions that the lab's programs need, in the order in which they are loaded: file, directive, and Debian
/// package.
const EXTENSIONS: [(&str, &str, &str); 5] = [
    ("opcache.so", "zend_extension", "php-opcache"),
    ("mysqlnd.so", "extension", "php-mysql"),
    ("mysqli.so", "extension", "php-mysql"),
    ("pdo.so", "extension", "php-common"),
    ("pdo_mysql.so", "extension", "php-mysql"),
];

/// A PHP configuration for a machine that has none: only the opcode cache and the database clients. The cache ignores
/// file dates, because it would not cache files dated 1970.
///
/// # Errors
/// An extension is not installed; the text names its package.
pub fn ini() -> Result<String, String> {
    let folder = extensions()?;
    let mut text = String::new();
    for (name, directive, package) in EXTENSIONS {
        let file = folder.join(name);
        if !file.is_file() {
            return Err(format!("PHP's {name} is not installed (Debian: {package})"));
        }
        text.push_str(&format!("{directive}={}\n", file.display()));
    }
    // Scripts do not change during a measurement, so PHP need not look at their files for each request.
    let cache =
        "opcache.enable=1\nopcache.validate_timestamps=0\nopcache.file_update_protection=0\n";
    Ok(text + cache)
}

fn extensions() -> Result<PathBuf, String> {
    let entries = fs::read_dir(EXTENSION_FOLDERS)
        .into_iter()
        .flatten()
        .flatten();
    let is_dated = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("20") && path.is_dir()
    };
    let newest = entries.map(|entry| entry.path()).filter(is_dated).max();
    newest.ok_or_else(|| "PHP has no extensions here (Debian: php-mysql)".to_owned())
}
