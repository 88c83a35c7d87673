//! Settings of this network namespace that affect migration. The kernel refuses a migrated connection with TCP options
//! that it would not have negotiated itself, and one with a tuple that has a socket in TIME_WAIT, which the programs
//! can't always end.

use std::fs;

use crate::layout;
use crate::machine::netlink;

/// The settings; `None` for a setting that this kernel does not have.
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
    /// `net.netfilter.nf_conntrack_tcp_loose`; 0: the firewall treats connections as invalid if it has not seen their
    /// SYN.
    pub loose: Option<u32>,
    /// `net.ipv4.tcp_rfc1337`; 1: the kernel ignores an RST in TIME_WAIT.
    pub rfc1337: Option<u32>,
    /// Whether the firewall tracks connections (`net.netfilter.nf_conntrack_count`).
    pub is_tracking: bool,
    /// The kernel can't destroy a socket on request (`CONFIG_INET_DIAG_DESTROY`).
    pub no_destroy: bool,
}

impl TcpSettings {
    /// Reads the settings of the thread's namespace.
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

    /// The level's setting bits that follow from these settings.
    #[must_use]
    pub fn bits(&self) -> u32 {
        let bit_if = |condition: bool, bit| if condition { bit } else { 0 };
        // Connection tracking still has an entry for the socket in TIME_WAIT, and reopens the entry at the SYN. If the
        // fast path answers the SYN, tracking does not see the SYN, and treats the migrated connection as invalid.
        let keeps_time_wait = self.is_tracking || self.rfc1337.is_some_and(|value| value != 0);
        bit_if(self.sack == Some(0), layout::SETTING_NO_SACK)
            | bit_if(self.scaling == Some(0), layout::SETTING_NO_SCALE)
            | bit_if(
                self.timestamps == Some(0),
                layout::SETTING_NO_TIMESTAMPS,
            )
            | bit_if(keeps_time_wait, layout::SETTING_KEEP_TIME_WAIT)
            // Without destruction, sockets with translated sequence numbers could not be closed when the level is
            // detached.
            | bit_if(self.no_destroy, layout::SETTING_STAY_UP)
    }
}

/// All bits of the level's settings that [`TcpSettings::bits`] controls.
pub const BITS: u32 = layout::SETTING_NO_SACK
    | layout::SETTING_NO_SCALE
    | layout::SETTING_NO_TIMESTAMPS
    | layout::SETTING_KEEP_TIME_WAIT
    | layout::SETTING_STAY_UP;

fn number(name: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?;
    text.trim().parse().ok()
}
