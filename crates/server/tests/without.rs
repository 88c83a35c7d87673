//! A server built without any optional feature reports missing features where they are needed. `tools/static.sh` builds
//! one and sets its path.

use std::process::{Command, Output};

use lowroad_testkit::{PROGRAM, TempFolder};

fn lowroad(arguments: &[&str]) -> Output {
    let program = std::env::var_os(PROGRAM).expect("its path");
    let output = Command::new(program).args(arguments).output();
    output.expect("it runs")
}

fn refusal(arguments: &[&str]) -> String {
    let output = lowroad(arguments);
    assert!(!output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
#[ignore = "by tools/static.sh"]
fn commands_of_missing_features_are_explained() {
    for (arguments, feature) in [
        (&["attach", "80", "--interface", "lo"][..], "softirq"),
        (&["detach", "80"], "softirq"),
        (&["doctor"], "softirq"),
        (&["top", "-n", "1"], "softirq"),
        (&["serve", "/", "--softirq", "auto"], "softirq"),
        (&["image", "build", "/srv", "-o", "site.img"], "image"),
        (&["module-host"], "modules"),
        (&["spawner"], "programs"),
    ] {
        let said = refusal(arguments);
        let lacking = format!("this lowroad was built without {feature}");
        assert!(said.contains(&lacking), "{arguments:?}: {said}");
    }
}

#[test]
#[ignore = "by tools/static.sh"]
fn routes_of_missing_features_name_their_location() {
    let folder = TempFolder::new();
    folder.file("a.wasm", "");
    let config = "[[module]]\n\
        name = \"a\"\n\
        wasm = \"a.wasm\"\n\
        [[site]]\n\
        root = \".\"\n\
        listen = \"127.0.0.1:0\"\n\
        [[site.route]]\n\
        pattern = \"*.php\"\n\
        fastcgi = \"unix:/run/php.sock\"\n\
        [[site.route]]\n\
        pattern = \"*.lrp\"\n\
        pages = true\n";
    let file = folder.file("lowroad.toml", config).display().to_string();
    for command in ["check", "run"] {
        let said = refusal(&[command, "-c", &file]);
        for place in [
            ":3:8: module[0].wasm: this lowroad was built without wasm",
            ":9:11: site[0].route[0].fastcgi: this lowroad was built without programs",
            ":12:9: site[0].route[1].pages: this lowroad was built without sql",
        ] {
            assert!(said.contains(place), "{command}: {said}");
        }
    }
}
