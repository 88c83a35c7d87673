//! The reasons for verdicts on segments, with the names of their counters in `lowroad-softirq`.

macro_rules! reasons {
    ($($name:ident $text:literal $what:literal),* $(,)?) => {
        /// The reason for the verdict on a segment.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum SegmentReason { $(#[doc = $what] $name),* }

        impl SegmentReason {
            /// The name of the reason's counter.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(SegmentReason::$name => $text),* }
            }
        }
    };
}

reasons! {
    AnswerHit "answer_hit" "A stored response.",
    AnswerAgain "answer_again" "A retransmission of a response.",
    UpMiss "up_miss" "No matching response is stored.",
    UpExpired "up_expired" "The response is no longer fresh.",
    UpLarge "up_large" "The response is too long for the client, the path, or this level.",
    UpWindow "up_window" "The client's window is too small.",
    UpCut "up_cut" "The segment does not contain the whole head.",
    UpMore "up_more" "Bytes follow the head.",
    UpMethod "up_method" "Neither GET nor HEAD.",
    UpTarget "up_target" "The target is not a plain path.",
    UpHost "up_host" "No Host.",
    UpField "up_field" "A field that only the server evaluates.",
    UpCookie "up_cookie" "A Cookie.",
    UpSyntax "up_syntax" "A head with obsolete or invalid syntax.",
    UpLong "up_long" "The key or the head is too long.",
    UpDrain "up_drain" "This level is being detached.",
    UpDaemon "up_daemon" "The daemon has sent no heartbeat for too long.",
    UpFlags "up_flags" "FIN or URG with data.",
    UpDenied "up_denied" "The client is in the list of denied prefixes.",
    UpUnadmitted "up_unadmitted" "The firewall's rules have changed since the kernel accepted the client.",
    TcpSyn "tcp_syn" "A SYN was answered with a cookie.",
    TcpReused "tcp_reused" "A new connection replaced one in TIME_WAIT.",
    TcpOpen "tcp_open" "A handshake completed, its SYN remembered.",
    TcpOpenCookie "tcp_open_cookie" "A handshake completed, by its cookie alone.",
    TcpAck "tcp_ack" "An acknowledgement.",
    TcpFin "tcp_fin" "The client closes.",
    TcpReset "tcp_reset" "The client resets.",
    TcpChallenge "tcp_challenge" "A reset with an inexact sequence number, or a SYN of a live \
                                  connection, got a challenge ACK (RFC 5961).",
    TcpProbe "tcp_probe" "A keep-alive probe was answered.",
    TcpOld "tcp_old" "An old segment was acknowledged.",
    TcpEarly "tcp_early" "A segment beyond a gap was acknowledged.",
    TcpGone "tcp_gone" "Reset: the response in progress can't be retransmitted.",
    TcpClosed "tcp_closed" "Reset: data after the end.",
    TcpHanded "tcp_handed" "A retransmission of the segment that is being migrated.",
    TcpKept "tcp_kept" "The server has the connection now.",
    TcpNoListener "tcp_no_listener" "Nothing has listened for seconds: the kernel resets the connection.",
    TcpAdmitted "tcp_admitted" "The kernel has accepted a client.",
    DropPipelined "drop_pipelined" "A request before the last response was acknowledged; buffered \
                                    until then if there is room.",
    DropCookie "drop_cookie" "No valid SYN cookie, although SYNs were answered.",
    DropEarly "drop_early" "Arrived before the handshake was complete, or while a listener's backlog was full.",
    DropNoListener "drop_no_listener" "Nothing listens at the moment: the client retries.",
    DropTimeWait "drop_time_wait" "A segment to migrate, before the connection in TIME_WAIT has ended.",
    DropOdd "drop_odd" "Without the required ACK.",
    DropSum "drop_sum" "A wrong checksum.",
    PassOther "pass_other" "Not TCP to one of the ports.",
    PassFragment "pass_fragment" "A fragment, or IP options.",
    PassKernel "pass_kernel" "Of a connection of the server.",
    PassUnknown "pass_unknown" "Of no known connection.",
    PassSynOff "pass_syn_off" "A SYN while off, draining, or without responses.",
    PassSynSocket "pass_syn_socket" "A SYN for which there is a socket, or no listener.",
    PassSynUnusual "pass_syn_unusual" "A SYN with data, a tiny MSS, or from an exempt port.",
    PassSynForeign "pass_syn_foreign" "A SYN for an address of another machine.",
    PassDenied "pass_denied" "A SYN from a denied prefix.",
    PassUnadmitted "pass_unadmitted" "A SYN of a client that the kernel has not accepted recently.",
}
