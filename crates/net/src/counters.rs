//! Counters of drops, limits and refusals.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counters since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct StackCounters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl StackCounters {
            /// Names and values.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }
        }
    };
}

counters! {
    /// Received frames.
    frames_received,
    /// Sent frames.
    frames_sent,
    /// Frames for other MAC addresses, and frames that are neither IPv4 nor ARP.
    frames_other,
    /// Frames with inconsistent lengths.
    frames_malformed,
    /// Wrong checksums of IPv4, TCP, UDP or ICMP.
    sums_wrong,
    /// Dropped IP fragments, which are not reassembled.
    fragments_dropped,
    /// Packets to other IP addresses.
    packets_not_ours,
    /// Packets of unsupported protocols, or to unsupported UDP ports.
    packets_unserved,
    /// ARP requests that were answered.
    arp_answered,
    /// ARP requests above the rate limit.
    arp_limited,
    /// ARP requests that were sent.
    arp_asked,
    /// Echo requests that were answered.
    echo_answered,
    /// Echo requests above the rate limit, or too long.
    echo_limited,
    /// "Fragmentation needed" messages that lowered a connection's MSS.
    mss_lowered,
    /// Ignored ICMP messages.
    icmp_ignored,
    /// Leases obtained or renewed by DHCP.
    dhcp_bound,
    /// Sent DHCP messages.
    dhcp_sent,
    /// Received DHCP messages that were unexpected, malformed, or had an impossible address or mask.
    dhcp_ignored,
    /// Leases that expired or were revoked.
    dhcp_lost,
    /// SYNs that were answered.
    syns_answered,
    /// Refused SYNs: no listener on the port, or the stack is draining.
    syns_refused,
    /// SYNs dropped because the connection table was full.
    syns_dropped_full,
    /// SYNs with FIN, and segments from impossible addresses.
    syns_malformed,
    /// Half-open connections that were evicted, so that only their SYN cookie can complete them.
    half_open_displaced,
    /// Connections opened by a SYN cookie.
    cookies_good,
    /// ACKs without a valid SYN cookie while cookies were accepted.
    cookies_wrong,
    /// Incoming connections.
    opened_passive,
    /// Outgoing connections.
    opened_active,
    /// Outgoing connections that failed: no free slot, port or address.
    connect_refused,
    /// Idle connections evicted for new ones.
    evicted_idle,
    /// Stalled connections evicted for new ones, or for their buffers.
    evicted_stalled,
    /// Completed handshakes dropped because the connection table was full.
    accept_dropped_full,
    /// Connections closed by FINs of both sides.
    ended_closed,
    /// Connections reset by the peer.
    ended_reset,
    /// Connections ended by a timeout.
    ended_timed_out,
    /// Connections reset by the service.
    ended_aborted,
    /// Resets sent for segments without a connection.
    resets_sent,
    /// Resets suppressed by the rate limit.
    resets_limited,
    /// Received resets with a sequence number other than exactly the next one.
    resets_ignored,
    /// Sent challenge ACKs (RFC 5961).
    challenges_sent,
    /// Challenge ACKs suppressed by the limit.
    challenges_limited,
    /// Segments outside the window.
    segments_outside,
    /// Segments with an unacceptable acknowledgement number: above all sent data, or older than a window.
    acks_unacceptable,
    /// Out-of-order segments that were kept.
    out_of_order_kept,
    /// Out-of-order segments that were dropped.
    out_of_order_dropped,
    /// Input dropped for lack of a buffer or of free space in it.
    input_dropped,
    /// Data refused by `send` for lack of a buffer.
    send_no_buffer,
    /// Data refused by `send` because the send queue was full.
    send_queue_full,
    /// Retransmitted segments.
    retransmitted,
    /// Recoveries by duplicate or selective ACKs.
    recoveries,
    /// Retransmission timeouts.
    timeouts,
    /// Probes of a closed window.
    window_probes,
    /// ACKs sent by the delay timer.
    acks_delayed,
    /// Connections in TIME_WAIT evicted by newer ones.
    time_wait_displaced,
    /// Connections in TIME_WAIT whose four-tuple was reused by a new connection.
    time_wait_reused,
    /// Connections in TIME_WAIT ended by a reset.
    time_wait_reset,
    /// Closed connections that were reset because data arrived long after the close.
    data_after_close,
}
