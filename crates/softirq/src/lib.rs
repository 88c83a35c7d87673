//! The soft-interrupt level: eBPF programs that answer hot small responses from the segment that asks
//! (`bpf/`), and what user space does for them: it loads and attaches them, publishes responses to
//! them, learns what is asked for, and hears what was answered.
//!
//! It knows nothing of the server above: that is whatever listens on the port.
//!
//! Modules use only those above them in this list, beside their own children:
//!
//! | module | is |
//! |---|---|
//! | `layout`, `pattern`, `clock`, `error` | the types of the maps; names of responses |
//! | `response` | what a server has answered, and what is made of it |
//! | `learn` | decides what is fetched, published and given up, and when the level rests; pure |
//! | `machine` | what the kernel says of interfaces, sockets, settings and filters |
//! | `programs` | loads the programs and attaches them |
//! | `level` | the maps of one level: what is published, asked for, counted |
//! | `fetch` | asks the server above |
//! | `handover` | watches whether the kernel takes connections over |
//! | `trial` | what the programs would do with a request |
//! | `daemon`, `doctor` | what runs, and what is judged before that |

mod clock;
pub mod daemon;
pub mod doctor;
pub mod error;
pub mod fetch;
pub mod handover;
pub mod layout;
pub mod learn;
pub mod level;
pub mod machine;
pub mod pattern;
pub mod programs;
pub mod response;

pub mod trial;

pub use clock::now_ns;
pub use error::Error;
pub use level::Level;
pub use lowroad_wire::{key, width};
