//! HTTP/2 in clear text by prior knowledge over real sockets: independent clients, concurrent streams, and floods.
//! `lowroad-http` tests the meaning of frames, the engine's simulator all orders of events.

mod bodies;
mod clients;
mod ends;
mod floods;
mod peer;
mod place;
mod refusals;
mod tunnels;
mod variants;
