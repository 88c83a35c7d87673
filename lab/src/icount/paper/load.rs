//! The traffic for a guest: files and pages in fixed shares, over persistent or single-use connections.

use std::sync::Arc;

use super::super::drive::{ConnectionMode, DriveRequest};
use super::deck::TrafficDeck;
use super::page::{self, STATIC_PATH};
use super::subject::ComparedServer;
use crate::workload::urls::{UrlSpec, UrlWorkload};

/// The traffic behind one figure.
#[derive(Debug)]
pub struct PaperLoad {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// The title of the load's line in the table.
    pub title: &'static str,
    /// The requested pages, and the number of each.
    pub parts: &'static [(LoadPart, u32)],
    /// How requests use connections.
    pub mode: ConnectionMode,
    /// How pages may use database connections, in order of preference: the first that the server supports is used.
    pub database: &'static [DatabaseUse],
    /// The number of requests is divided by this, if each request takes long.
    pub divided_by: u64,
}

/// A requested page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadPart {
    /// The page of 3,593 bytes, a file.
    Static,
    /// A page of this many bytes, made of database rows.
    Rows(u64),
}

/// How a page uses its database connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseUse {
    /// The connection is kept and reused by later pages.
    Kept,
    /// The connection is closed at the end of the page.
    EachPage,
}

impl PaperLoad {
    /// The lengths of the requested row pages.
    pub fn sizes(&self) -> impl Iterator<Item = u64> {
        self.parts.iter().filter_map(|(part, _)| match part {
            LoadPart::Static => None,
            LoadPart::Rows(size) => Some(*size),
        })
    }

    /// The expected bodies by path, for a check before counting.
    ///
    /// # Errors
    /// The server has no such page.
    pub fn expected(&self, subject: &ComparedServer) -> Result<Vec<(String, Vec<u8>)>, String> {
        let expected = |(part, _): &(LoadPart, u32)| match part {
            LoadPart::Static => Ok((STATIC_PATH.to_owned(), page::static_page())),
            LoadPart::Rows(size) => {
                let path = subject.page(self.database, *size);
                let path = path.ok_or_else(|| format!("{} has no such page", subject.name))?;
                Ok((path, page::rows_path(*size)?.into_bytes()))
            }
        };
        self.parts.iter().map(expected).collect()
    }

    /// The traffic; `host` is the value of the `Host` field. Every response is compared by status, length and checksum.
    ///
    /// # Errors
    /// The server has no such page.
    pub fn drive_request(
        &self,
        subject: &ComparedServer,
        host: &str,
    ) -> Result<DriveRequest, String> {
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
