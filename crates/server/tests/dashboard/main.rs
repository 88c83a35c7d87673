//! The dashboard: the page in Chromium and Firefox, the relay of `lowroad dashboard`, and the page's build.

mod browser;
mod build;
mod chromium;
mod firefox;
mod page;
mod relay;
mod subject;
