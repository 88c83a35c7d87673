//! HTTP/2 over real sockets, in clear text by prior knowledge: clients that others have written, streams beside each other,
//! and floods. What a frame means is tested in `lowroad-http`, and every order of events in the engine's simulator.

mod bodies;
mod clients;
mod ends;
mod floods;
mod peer;
mod place;
mod refusals;
mod tunnels;
mod variants;
