//! Handlers that pass requests on to other processes and servers: CGI programs, FastCGI servers, and origins over HTTP
//! (reverse proxy). `supervise` keeps applications running.

mod address;
pub mod cgi;
pub mod fastcgi;
mod head;
pub mod proxy;
pub mod script;
pub mod supervise;
