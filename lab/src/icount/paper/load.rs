//! What a guest is asked: files and pages in given shares, over connections that are kept or not.

use std::sync::Arc;

use super::super::drive::{ConnectionMode, DriveRequest};
use super::deck::TrafficDeck;
use super::page::{self, STATIC_PATH};
use super::subject::ComparedServer;
use crate::workload::urls::{UrlSpec, UrlWorkload};

/// Traffic, of which one figure comes.
#[derive(Debug)]
pub struct PaperLoad {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// At the head of its line.
    pub title: &'static str,
    /// What is asked for, and how many of each.
    pub parts: &'static [(LoadPart, u32)],
    /// What becomes of the client's connections.
    pub mode: ConnectionMode,
    /// What pages do with their connection to the database, the first that a server has.
    pub database: &'static [DatabaseUse],
    /// So many times fewer requests than usual, as each is long.
    pub divided_by: u64,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadPart {
    /// The page of 3,593 bytes, a file.
    Static,
    /// A page of so many bytes, out of rows.
    Rows(u64),
}

/// What a page does with its connection to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseUse {
    /// Other pages use it afterwards.
    Kept,
    /// It ends with the page.
    EachPage,
}

impl PaperLoad {
    /// The lengths of the pages that it asks for.
    pub fn sizes(&self) -> impl Iterator<Item = u64> {
        self.parts.iter().filter_map(|(part, _)| match part {
            LoadPart::Static => None,
            LoadPart::Rows(size) => Some(*size),
        })
    }

    /// What is to come back, by the path that is asked: for a look at each before it is counted.
    ///
    /// # Errors
    /// The server has no such page.
    pub fn expected(&self, subject: &ComparedServer) -> Result<Vec<(String, Vec<u8>)>, String> {
        let expected = |(part, _): &(LoadPart, u32)| match part {
            LoadPart::Static => Ok((STATIC_PATH.to_owned(), page::static_page())),
            LoadPart::Rows(size) => {
                let path = subject.page(self.database, *size);
                let path = path.ok_or_else(|| format!("{} has no such page", subject.name))?;
                Ok((path, page::of_rows(*size)?.into_bytes()))
            }
        };
        self.parts.iter().map(expected).collect()
    }

    /// The traffic; `host` is the value of the `Host` field. Every answer is compared with what is
    /// expected, by status, length and checksum.
    ///
    /// # Errors
    /// The server has no such page.
    pub fn asked(&self, subject: &ComparedServer, host: &str) -> Result<DriveRequest, String> {
        let (version, per_connection) = self.mode.connections();
        let expected = self.expected(subject)?;
        let mut parts = Vec::new();
        for ((path, body), (_, count)) in expected.into_iter().zip(self.parts) {
            let spec = UrlSpec {
                expected_status: Some(200),
                expected_len: Some(body.len() as u64),
                crc32: Some(crc32fast::hash(&body)),
                ..UrlSpec::get(path)
            };
            let urls = UrlWorkload::new(vec![spec], host, version, per_connection, false)?;
            parts.push((urls, *count));
        }
        Ok(DriveRequest::Workload(
            self.title,
            Arc::new(TrafficDeck::new(parts)),
        ))
    }
}
