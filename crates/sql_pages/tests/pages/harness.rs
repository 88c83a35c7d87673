//! A site with pages in a temporary folder, and requests to it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use lowroad_config::schema;
use lowroad_engine::stream::stream;
use lowroad_handler::request::{RawTarget, RequestHead};
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest, HandlerResponse, HandlerResult, RequestBody,
    ResponseContent, SubrequestLoad, SubrequestSource,
};
use lowroad_http::method::Method;
use lowroad_http::version::HttpVersion;
use lowroad_sql_pages::{CsrfKey, DatabaseSet, PagesHandler};
use lowroad_testkit::TempFolder;

/// A site with one database.
pub struct Site {
    pub folder: TempFolder,
    root: Arc<Path>,
    pub pages: Arc<PagesHandler>,
    key: CsrfKey,
    databases: Vec<schema::DatabaseConfig>,
}

/// A request that is being built.
pub struct Ask<'s> {
    site: &'s Site,
    method: Method,
    target: String,
    host: &'static str,
    lines: String,
    body: Vec<u8>,
}

/// A response.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub text: String,
    pub fields: Vec<(String, String)>,
}

impl Got {
    pub fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }
}

/// The configuration of a database.
pub fn database(url: &str) -> schema::DatabaseConfig {
    schema::DatabaseConfig {
        name: "main".into(),
        url: url.into(),
        connections_max: 4,
        timeout_ms: 10_000,
        rows_max: 100,
    }
}

impl Site {
    /// A site with these files and its own SQLite database.
    pub fn new(files: &[(&str, &str)]) -> Site {
        let folder = TempFolder::new();
        let url = format!("sqlite:{}", folder.path().join("main.db").display());
        Site::with(folder, files, vec![database(&url)])
    }

    /// A site with these files and databases; the first database is the route's.
    pub fn with(
        folder: TempFolder,
        files: &[(&str, &str)],
        databases: Vec<schema::DatabaseConfig>,
    ) -> Site {
        let key = CsrfKey::random().expect("random bytes");
        let pages = pages(&databases, &key);
        let root = folder.path().join("root");
        std::fs::create_dir_all(&root).expect("a folder");
        let site = Site {
            root: root.canonicalize().expect("a folder").into(),
            folder,
            pages,
            key,
            databases,
        };
        for (name, text) in files {
            site.write(name, text);
        }
        site
    }

    /// Replaces the pages handler, like a reload of the configuration.
    pub fn reload(&mut self) {
        self.pages = pages(&self.databases, &self.key);
    }

    pub fn root(&self) -> Arc<Path> {
        self.root.clone()
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.root().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }

    pub fn get(&self, target: &str) -> Ask<'_> {
        Ask {
            site: self,
            method: Method::Get,
            target: target.into(),
            host: "localhost",
            lines: String::new(),
            body: Vec::new(),
        }
    }

    /// A form without a token.
    pub fn post(&self, target: &str, form: &str) -> Ask<'_> {
        let mut ask = self.get(target);
        ask.method = Method::Post;
        ask.body = form.into();
        ask.field("Content-Type", "application/x-www-form-urlencoded")
    }

    /// Sends a form, as a browser does after it has loaded the page `from`.
    pub async fn send_form(&self, from: &str, target: &str, form: &str) -> Got {
        let page = self.get(from).ok().await;
        let (cookie, token) = tokens(&page);
        let form = format!("csrf={token}&{form}");
        self.post(target, &form).field("Cookie", &cookie).ok().await
    }
}

/// The cookie and the token from a page with a form.
pub fn tokens(page: &Got) -> (String, String) {
    let cookie = page
        .field("Set-Cookie")
        .split(';')
        .next()
        .unwrap_or_default();
    let token = page.text.split("name=\"csrf\" value=\"").nth(1);
    let token = token
        .and_then(|rest| rest.split('"').next())
        .expect("a token");
    (cookie.into(), token.into())
}

fn pages(databases: &[schema::DatabaseConfig], key: &CsrfKey) -> Arc<PagesHandler> {
    let database = databases.first().map(|database| database.name.clone());
    let configured = schema::PagesConfig::new(database);
    let databases = DatabaseSet::new(databases).expect("databases");
    let pages = PagesHandler::new(
        &configured,
        Arc::new(databases),
        key.clone(),
        Arc::default(),
    );
    Arc::new(pages.expect("pages"))
}

impl Ask<'_> {
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.lines.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub fn host(mut self, host: &'static str) -> Self {
        self.host = host;
        self
    }

    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends the request.
    pub async fn send(self) -> Result<Got, HandlerFailure> {
        let pages = self.site.pages.clone();
        let HandlerResult::OnRuntime(answer) = pages.begin(0, self.request()) else {
            panic!("pages take their time");
        };
        answer.await.map(got)
    }

    /// Sends the request, and expects a response.
    pub async fn ok(self) -> Got {
        let target = self.target.clone();
        self.send()
            .await
            .unwrap_or_else(|failure| panic!("{target}: {failure:?}"))
    }

    /// Sends the request, and expects a failure with this status and log detail.
    pub async fn fails(self, status: u16, detail: &str) {
        let target = self.target.clone();
        let failure = self.send().await.expect_err(&target);
        assert_eq!(failure.status.code(), status, "{target}: {failure:?}");
        assert!(failure.detail.contains(detail), "{target}: {failure:?}");
    }

    fn request(self) -> HandlerRequest {
        let (path, query) = match self.target.split_once('?') {
            Some((path, query)) => (path.as_bytes(), Some(query.as_bytes())),
            None => (self.target.as_bytes(), None),
        };
        let (sender, receiver) = stream(1 << 16);
        let len = self.body.len() as u64;
        let _ = sender.push(self.body.into());
        sender.end();
        HandlerRequest {
            method: self.method,
            version: HttpVersion::Http11,
            head: RequestHead::new(
                RawTarget { path, query },
                path,
                self.host.as_bytes(),
                self.lines.as_bytes(),
            ),
            peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
            peer_port: 40_000,
            local: SocketAddr::from((Ipv4Addr::LOCALHOST, 80)),
            tls: None,
            forwarded: None,
            root: self.site.root(),
            objects: Arc::new(Nothing),
            body: RequestBody {
                len: Some(len),
                stream: Some(receiver),
            },
            interims: Default::default(),
            extra: Default::default(),
        }
    }
}

fn got(response: HandlerResponse) -> Got {
    let ResponseContent::Bytes(body) = response.content else {
        panic!("a page is bytes");
    };
    let field = |(name, value): (&str, &[u8])| {
        let value = String::from_utf8(value.into()).expect("text");
        (name.into(), value)
    };
    Got {
        status: response.status.code(),
        text: String::from_utf8(body.into()).expect("text"),
        fields: response.fields.iter().map(field).collect(),
    }
}

struct Nothing;

impl SubrequestSource for Nothing {
    fn find_in_memory(&self, _: &[u8]) -> Option<Bytes> {
        None
    }

    fn load(&self, _: &[u8]) -> SubrequestLoad {
        Box::pin(async { None })
    }
}
