//! Handlers that pass requests on to other processes and servers: CGI programs, FastCGI servers, and origins over HTTP
//! (reverse proxy).

#![forbid(unsafe_code)]

mod address;
pub mod cgi;
pub mod fastcgi;
mod head;
pub mod proxy;
pub mod script;
