//! Settings of this network namespace on which a handover of connections hangs. The kernel refuses
//! connections that agreed to what it would not have agreed to, and those in whose place it has another
//! in TIME_WAIT, which it may not let the programs end.

use std::fs;

use crate::layout;
use crate::machine::netlink;

/// What they are; `None` is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSettings {
    /// `net.ipv4.tcp_syncookies`
    pub cookies: Option<u32>,
    /// `net.ipv4.tcp_sack`
    pub sack: Option<u32>,
    /// `net.ipv4.tcp_window_scaling`
    pub scaling: Option<u32>,
    /// `net.ipv4.tcp_timestamps`
    pub timestamps: Option<u32>,
    /// `net.netfilter.nf_conntrack_tcp_loose`: 0, connections whose SYN was not seen are invalid to
    /// the firewall.
    pub loose: Option<u32>,
    /// `net.ipv4.tcp_rfc1337`: 1, the kernel takes no RST for what is in TIME_WAIT.
    pub rfc1337: Option<u32>,
    /// The firewall tracks connections, by `net.netfilter.nf_conntrack_count`.
    pub are_tracked: bool,
    /// The kernel can't end a connection for us (`CONFIG_INET_DIAG_DESTROY`).
    pub no_destroy: bool,
}

impl TcpSettings {
    /// Those of the thread's namespace.
    #[must_use]
    pub fn read() -> TcpSettings {
        TcpSettings {
            cookies: number("ipv4/tcp_syncookies"),
            sack: number("ipv4/tcp_sack"),
            scaling: number("ipv4/tcp_window_scaling"),
            timestamps: number("ipv4/tcp_timestamps"),
            loose: number("netfilter/nf_conntrack_tcp_loose"),
            rfc1337: number("ipv4/tcp_rfc1337"),
            are_tracked: number("netfilter/nf_conntrack_count").is_some_and(|count| count > 0),
            no_destroy: !netlink::can_destroy(),
        }
    }

    /// The level's settings that follow.
    #[must_use]
    pub fn bits(&self) -> u32 {
        let when = |is_so: bool, bit| if is_so { bit } else { 0 };
        // Who tracks them has one as old as what is in TIME_WAIT, and goes on with it when it sees the SYN;
        // else what is handed up is invalid to it.
        let keeps = self.are_tracked || self.rfc1337.is_some_and(|value| value != 0);
        when(self.sack == Some(0), layout::SETTING_NO_SACK)
            | when(self.scaling == Some(0), layout::SETTING_NO_SCALE)
            | when(
                self.timestamps == Some(0),
                layout::SETTING_NO_TIMESTAMPS,
            )
            | when(keeps, layout::SETTING_KEEP_TIME_WAIT)
            // Whose numbers are translated could not be ended with the level.
            | when(self.no_destroy, layout::SETTING_STAY_UP)
    }
}

/// All settings of the level that come from the kernel's.
pub const BITS: u32 = layout::SETTING_NO_SACK
    | layout::SETTING_NO_SCALE
    | layout::SETTING_NO_TIMESTAMPS
    | layout::SETTING_KEEP_TIME_WAIT
    | layout::SETTING_STAY_UP;

fn number(name: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?;
    text.trim().parse().ok()
}
