//! HTTP/2 in clear text with prior knowledge, over real sockets: independent clients, concurrent streams, and floods.
//! The meaning of frames is tested in `lowroad-http`, all orders of events in the engine's simulator.

mod bodies;
mod clients;
mod ends;
mod floods;
mod grpc;
mod h2_origin;
mod origin_attacks;
mod origin_limits;
mod origins;
mod peer;
mod place;
mod refusals;
mod tunnels;
mod variants;
