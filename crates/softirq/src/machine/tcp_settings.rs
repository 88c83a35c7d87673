//! Settings of this network namespace that affect migration. The kernel refuses connections with options that it would
//! not have negotiated, and those with a socket in TIME_WAIT, which it may not let the programs end.

use std::fs;

use crate::layout;
use crate::machine::netlink;

/// The settings; `None`: not present.
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
    /// `net.netfilter.nf_conntrack_tcp_loose`: 0, the firewall treats connections as invalid if it has not seen their SYN.
    pub loose: Option<u32>,
    /// `net.ipv4.tcp_rfc1337`: 1, the kernel ignores RST in TIME_WAIT.
    pub rfc1337: Option<u32>,
    /// Whether the firewall tracks connections, by `net.netfilter.nf_conntrack_count`.
    pub is_tracking: bool,
    /// The kernel can't destroy a socket for us (`CONFIG_INET_DIAG_DESTROY`).
    pub no_destroy: bool,
}

impl TcpSettings {
    /// Reads those of the thread's namespace.
    #[must_use]
    pub fn read() -> TcpSettings {
        TcpSettings {
            cookies: number("ipv4/tcp_syncookies"),
            sack: number("ipv4/tcp_sack"),
            scaling: number("ipv4/tcp_window_scaling"),
            timestamps: number("ipv4/tcp_timestamps"),
            loose: number("netfilter/nf_conntrack_tcp_loose"),
            rfc1337: number("ipv4/tcp_rfc1337"),
            is_tracking: number("netfilter/nf_conntrack_count").is_some_and(|count| count > 0),
            no_destroy: !netlink::can_destroy(),
        }
    }

    /// The level's settings that follow.
    #[must_use]
    pub fn bits(&self) -> u32 {
        let bit_if = |condition: bool, bit| if condition { bit } else { 0 };
        // Connection tracking has an entry for the socket in TIME_WAIT, and reopens it with the SYN; if the SYN
        // bypasses it, the migrated connection is invalid to it.
        let keeps_time_wait = self.is_tracking || self.rfc1337.is_some_and(|value| value != 0);
        bit_if(self.sack == Some(0), layout::SETTING_NO_SACK)
            | bit_if(self.scaling == Some(0), layout::SETTING_NO_SCALE)
            | bit_if(
                self.timestamps == Some(0),
                layout::SETTING_NO_TIMESTAMPS,
            )
            | bit_if(keeps_time_wait, layout::SETTING_KEEP_TIME_WAIT)
            // Sockets with translated numbers could not be closed when the level is detached.
            | bit_if(self.no_destroy, layout::SETTING_STAY_UP)
    }
}

/// All settings of the level that follow from the kernel's.
pub const BITS: u32 = layout::SETTING_NO_SACK
    | layout::SETTING_NO_SCALE
    | layout::SETTING_NO_TIMESTAMPS
    | layout::SETTING_KEEP_TIME_WAIT
    | layout::SETTING_STAY_UP;

fn number(name: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?;
    text.trim().parse().ok()
}
