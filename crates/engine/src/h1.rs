//! HTTP/1 connections: one request at a time; pipelined requests wait until the response before them was sent. Parsing
//! and framing are in [`lowroad_http::h1`].

mod deadlines;
mod input;
mod output;
mod pass_through;
mod tunnels;
