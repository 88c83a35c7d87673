//! The cost of a reload, and of finding the lines of problems in a configuration, grows linearly with the number of
//! sites.

use std::path::Path;

use lowroad_routes::route_builder::HandlerRuntime;

use super::protocols::ProtocolInput;
use crate::config_check;
use crate::simulation::accelerator::{self, logger};

/// The largest number of sites that is tested.
const SITES: usize = 2000;

pub(super) const INPUTS: &[(&str, usize, ProtocolInput)] = &[
    ("sites that are read again", SITES, reload),
    ("problems of sites", SITES, locate_site_problems),
];

/// Builds all sites again, as a reload does. The sites are distinct.
fn reload(count: usize) -> Box<dyn FnMut()> {
    let site = |number: usize| {
        format!(
            "[[site]]\nlisten = \"192.0.2.1:80\"\nnames = [\"{number}.example\"]\nroot = \"/\"\nindex = [\"{number}\"]\n\
             [[site.rule]]\npattern = \"/private/**\"\ndeny = 403\n"
        )
    };
    let text: String = (0..count).map(site).collect();
    let config = lowroad_config::parse(&text, Path::new("/simulated.toml")).expect(&text);
    let programs = HandlerRuntime::start(logger(), Vec::new()).expect("threads");
    let before = accelerator::sites(&config, &programs, None);
    Box::new(move || {
        accelerator::sites(&config, &programs, Some(&before));
    })
}

/// Finds the line of one problem for each site.
fn locate_site_problems(count: usize) -> Box<dyn FnMut()> {
    let lines = (0..count).map(|number| format!("certificate = \"/etc/{number}.pem\"\n"));
    let text: String = lines.collect();
    let problems = (0..count).map(|number| format!("/etc/{number}.pem: can't be read\n"));
    let problems: String = problems.collect();
    Box::new(move || {
        let file = Path::new("/etc/lowroad.toml");
        let lines = config_check::PathLines::new([(file, text.clone())].into_iter());
        lines.locate(&problems);
    })
}
