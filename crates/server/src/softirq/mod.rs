//! The soft-interrupt level as operators see it: put in front of a port, taken off again, looked at.
//! What it does and how is in the crate `lowroad-softirq`.

mod above;
mod advice;
pub mod attach;
mod doctor;
mod drain;
mod explain;
mod follow;
mod heard;
mod hold;
mod keep;
mod levels;
mod log;
mod look;
mod offers;
mod origin;
pub mod own;
mod place;
mod privileges;
mod purge;
mod shares;
mod status;
mod terminal;
mod top;
mod view;

pub use attach::{Attach, attach};
pub use doctor::{Doctor, doctor};
pub use drain::{Detach, detach};
pub use explain::explain;
pub use heard::Health;
pub use origin::may_ask_from;
pub use purge::{Purge, purge};
pub use status::{Status, status};
pub use top::{Top, top};
