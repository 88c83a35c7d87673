//! The softirq level: eBPF programs (`bpf/`) that answer requests for small cached responses directly in response to
//! the segment that carries the request, and a user space part that loads and attaches the programs, learns which
//! responses are worth publishing, publishes them, and reads events.
//!
//! The level is independent of the server behind it, which is simply the process that listens on the port.
//!
//! Each module uses only modules above it in this list, and its own children:
//!
//! | module | purpose |
//! |---|---|
//! | `layout`, `pattern`, `clock`, `error` | the types of the maps; patterns of response keys |
//! | `response` | a fetched response, and the bytes published from it |
//! | `learner` | decides on fetching, publication, eviction and level bypass; pure |
//! | `machine` | queries the kernel for interfaces, sockets, settings and filters |
//! | `programs` | loads the programs and attaches them |
//! | `level` | the maps of one level: published responses, events, counters |
//! | `fetch` | sends requests to the server |
//! | `migration` | watches whether the kernel accepts migrated connections |
//! | `trial` | runs the programs on a request without sending anything |
//! | `daemon`, `doctor` | the running daemon; checks before it starts |

mod clock;
pub mod daemon;
pub mod doctor;
pub mod error;
pub mod fetch;
pub mod layout;
pub mod learner;
pub mod level;
pub mod machine;
pub mod migration;
pub mod pattern;
pub mod programs;
pub mod response;

pub mod trial;

pub use clock::now_ns;
pub use error::LevelError;
pub use level::SoftirqLevel;
pub use lowroad_wire::{key, width};
