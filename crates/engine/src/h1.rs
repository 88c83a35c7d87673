//! Connections that speak HTTP/1: one request at a time. What follows a request waits until its response has left. How bytes
//! are read and framed is decided in [`lowroad_http::h1`].

mod deadlines;
mod input;
mod output;
mod pass_through;
mod tunnels;
