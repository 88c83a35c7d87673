//! What is counted: each drop, limit and refusal. It knows nobody who counts.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Numbers since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Names and numbers.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }
        }
    };
}

counters! {
    /// Frames that have come.
    frames_received,
    /// Frames that were sent.
    frames_sent,
    /// Frames for other machines or groups, or neither IPv4 nor ARP.
    frames_other,
    /// Frames whose lengths do not fit together.
    frames_malformed,
    /// IPv4, TCP or UDP sums that are wrong.
    sums_wrong,
    /// Fragments: nobody sends them to a web server.
    fragments_dropped,
    /// Packets for another address.
    packets_not_ours,
    /// Protocols and UDP ports that nobody serves.
    packets_unserved,
    /// ARP requests for us that were answered.
    arp_answered,
    /// ARP requests that came too fast.
    arp_limited,
    /// ARP requests of ours.
    arp_asked,
    /// Echo requests that were answered.
    echo_answered,
    /// Echo requests that came too fast or were too long.
    echo_limited,
    /// "Fragmentation needed" that lowered a connection's MSS.
    mss_lowered,
    /// ICMP that was not believed or not for us to act on.
    icmp_ignored,
    /// Leases that were got by DHCP.
    dhcp_bound,
    /// DHCP messages of ours.
    dhcp_sent,
    /// DHCP messages that were not an answer to ours, malformed, or with an impossible address or mask.
    dhcp_ignored,
    /// Leases that ended without a new one.
    dhcp_lost,
    /// SYNs that were answered.
    syns_answered,
    /// SYNs for ports that nobody listens on, or while no new ones are taken.
    syns_refused,
    /// SYNs that were dropped since all connections are in use.
    syns_dropped_full,
    /// SYNs with FIN.
    syns_malformed,
    /// Handshakes that were forgotten for others and live in their cookie only.
    half_open_displaced,
    /// Connections opened by a cookie.
    cookies_good,
    /// Numbers that could have been a cookie and were none.
    cookies_wrong,
    /// Connections opened by others.
    opened_passive,
    /// Connections opened by us.
    opened_active,
    /// Connections that we could not open: no place, no port or no address.
    connect_refused,
    /// Idle connections that were ended for new ones.
    evicted_idle,
    /// Connections on which nothing moved that went for others, or for their buffers.
    evicted_stalled,
    /// Handshakes that were complete while all connections were in use.
    accept_dropped_full,
    /// Connections that ended with FINs.
    ended_closed,
    /// Connections that the peer has reset.
    ended_reset,
    /// Connections on which nothing came for too long.
    ended_timed_out,
    /// Connections that the service has reset.
    ended_aborted,
    /// RSTs to segments of no connection.
    resets_sent,
    /// RSTs not sent since there were too many.
    resets_limited,
    /// RSTs that did not have exactly the next number.
    resets_ignored,
    /// Challenge ACKs (RFC 5961).
    challenges_sent,
    /// Challenge ACKs not sent since there were too many.
    challenges_limited,
    /// Segments outside of the window.
    segments_outside,
    /// Segments whose ACK makes no sense.
    acks_unacceptable,
    /// Segments out of order that were kept.
    out_of_order_kept,
    /// Segments out of order that were dropped.
    out_of_order_dropped,
    /// Input that was not kept: no buffer, or enough waits.
    input_dropped,
    /// Pieces that found no buffer.
    send_no_buffer,
    /// Pieces that found no place in the connection's queue.
    send_queue_full,
    /// Segments that were sent again.
    retransmitted,
    /// Recoveries by duplicate or selective ACKs.
    recoveries,
    /// Retransmission timeouts.
    timeouts,
    /// Probes of a closed window.
    window_probes,
    /// ACKs that waited until their time was over.
    acks_delayed,
    /// Connections in TIME_WAIT that went for others.
    time_wait_displaced,
    /// Connections that replaced one in TIME_WAIT.
    time_wait_reused,
    /// Connections in TIME_WAIT that a reset ended.
    time_wait_reset,
    /// Closed connections that were reset since data came long after the close.
    data_after_close,
}
