//! Gateway handlers: pass requests to CGI programs, FastCGI servers, and HTTP origins (reverse proxy).

#![forbid(unsafe_code)]

mod address;
pub mod cgi;
pub mod fastcgi;
mod head;
pub mod proxy;
pub mod script;
