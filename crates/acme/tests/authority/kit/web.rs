//! A small HTTP server: one request per connection, without TLS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use lowroad_acme::{ChallengeTokens, PATH_PREFIX};

/// A response.
pub struct Answer {
    pub status: u16,
    pub fields: Vec<(&'static str, String)>,
    pub content: String,
}

impl Answer {
    pub fn new(status: u16, content: impl Into<String>) -> Answer {
        Answer {
            status,
            fields: Vec::new(),
            content: content.into(),
        }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.fields.push((name, value.into()));
        self
    }
}

/// Serves requests until the process ends. The arguments of the handler are method and target.
pub fn serve(
    listener: TcpListener,
    handler: impl Fn(&str, &str) -> Answer + Send + Sync + 'static,
) -> SocketAddr {
    let addr = listener.local_addr().expect("an address");
    let handler = Arc::new(handler);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handler = handler.clone();
            thread::spawn(move || answer(stream, &*handler));
        }
    });
    addr
}

/// Listens on a free port of the loopback address.
pub fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port")
}

/// Answers `http-01` validations, as a worker does.
pub fn serve_tokens(listener: TcpListener, tokens: ChallengeTokens) {
    TokensSlot::serve(listener).set(tokens);
}

/// Answers `http-01` validations with the tokens of the current one of several managers.
#[derive(Clone, Default)]
pub struct TokensSlot(Arc<Mutex<Option<ChallengeTokens>>>);

impl TokensSlot {
    /// Starts to serve; all requests get 404 until tokens are set.
    pub fn serve(listener: TcpListener) -> TokensSlot {
        let slot = TokensSlot::default();
        let own = slot.clone();
        serve(listener, move |_, target| {
            let tokens = own.0.lock().expect("tokens").clone();
            let token = target.strip_prefix(PATH_PREFIX);
            let answer = tokens.and_then(|tokens| tokens.find(token?));
            match answer {
                Some(answer) => Answer::new(200, &*answer),
                None => Answer::new(404, "not here"),
            }
        });
        slot
    }

    pub fn set(&self, tokens: ChallengeTokens) {
        *self.0.lock().expect("tokens") = Some(tokens);
    }
}

fn answer(stream: TcpStream, handler: &dyn Fn(&str, &str) -> Answer) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut parts = line.split(' ');
    let (method, target) = (parts.next()?, parts.next()?);
    let mut len = 0;
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).ok()?;
        let field = field.trim().to_ascii_lowercase();
        if field.is_empty() {
            break;
        }
        if let Some(value) = field.strip_prefix("content-length:") {
            len = value.trim().parse().ok()?;
        }
    }
    let mut content = vec![0; len];
    reader.read_exact(&mut content).ok()?;
    let answer = handler(method, target);
    let mut head = format!(
        "HTTP/1.1 {} X\r\nconnection: close\r\ncontent-length: {}\r\n",
        answer.status,
        answer.content.len()
    );
    for (name, value) in &answer.fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut stream = reader.into_inner();
    stream.write_all(head.as_bytes()).ok()?;
    if method != "HEAD" {
        stream.write_all(answer.content.as_bytes()).ok()?;
    }
    Some(())
}
