//! The reasons for the treatment of segments, with the names of the counters in `lowroad-softirq`.

macro_rules! reasons {
    ($($name:ident $text:literal $what:literal),* $(,)?) => {
        /// Why a segment was treated as it was.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum SegmentReason { $(#[doc = $what] $name),* }

        impl SegmentReason {
            /// The name of its counter.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(SegmentReason::$name => $text),* }
            }
        }
    };
}

reasons! {
    AnswerHit "answer_hit" "A stored response.",
    AnswerAgain "answer_again" "The same once more: the client had not got all of it.",
    UpMiss "up_miss" "No such response is stored.",
    UpExpired "up_expired" "The response is no longer fresh.",
    UpLarge "up_large" "Longer than the client or the path takes, or than is worth it, in segments of this level.",
    UpWindow "up_window" "The client's window is too small.",
    UpCut "up_cut" "The segment does not hold the whole head.",
    UpMore "up_more" "Bytes follow the head.",
    UpMethod "up_method" "Neither GET nor HEAD.",
    UpTarget "up_target" "No plain target.",
    UpHost "up_host" "No Host.",
    UpField "up_field" "A field that another level understands.",
    UpCookie "up_cookie" "A Cookie.",
    UpSyntax "up_syntax" "A head that is not as simple as it could be, or wrong.",
    UpLong "up_long" "A key or a head too long.",
    UpDrain "up_drain" "This level is being taken off.",
    UpDaemon "up_daemon" "Who keeps the responses has not been heard of.",
    UpFlags "up_flags" "FIN or URG with data.",
    UpDenied "up_denied" "The client is in the list of denied prefixes.",
    UpUnadmitted "up_unadmitted" "The rules by which the client was let in have changed.",
    TcpSyn "tcp_syn" "A SYN was answered with a cookie.",
    TcpReused "tcp_reused" "A new connection took the place of one in TIME_WAIT.",
    TcpOpen "tcp_open" "A handshake completed, its SYN remembered.",
    TcpOpenCookie "tcp_open_cookie" "A handshake completed, by its cookie alone.",
    TcpAck "tcp_ack" "An acknowledgement.",
    TcpFin "tcp_fin" "The client closes.",
    TcpReset "tcp_reset" "The client resets.",
    TcpChallenge "tcp_challenge" "A reset beside the mark, or a SYN of a live connection, was answered with an acknowledgement (RFC 5961).",
    TcpProbe "tcp_probe" "A keep-alive probe was answered.",
    TcpOld "tcp_old" "A segment from the past was acknowledged.",
    TcpEarly "tcp_early" "A segment from the future was answered with an acknowledgement.",
    TcpGone "tcp_gone" "Reset: the answer under way can't be sent again.",
    TcpClosed "tcp_closed" "Reset: data after the end.",
    TcpHanded "tcp_handed" "The segment that is being handed up, once more.",
    TcpKept "tcp_kept" "The server above has the connection now.",
    TcpNoListener "tcp_no_listener" "Nobody has listened for seconds: whoever is above resets.",
    TcpAdmitted "tcp_admitted" "The server above has let a client in.",
    DropPipelined "drop_pipelined" "A request before the last answer was acknowledged; held until then if there is room.",
    DropCookie "drop_cookie" "No handshake's number, where a SYN or a flood of them was answered.",
    DropEarly "drop_early" "Overtook what completes the handshake, or what a listener had no room for.",
    DropNoListener "drop_no_listener" "Nobody listens at the moment: the client tries again.",
    DropTimeWait "drop_time_wait" "What is handed up, before the connection in TIME_WAIT had ended.",
    DropOdd "drop_odd" "Without ACK, where there must be one.",
    DropSum "drop_sum" "A wrong checksum.",
    PassOther "pass_other" "Not TCP to one of the ports.",
    PassFragment "pass_fragment" "A fragment, or IP options.",
    PassKernel "pass_kernel" "Of a connection of the server above.",
    PassUnknown "pass_unknown" "Of no connection that is known.",
    PassSynOff "pass_syn_off" "A SYN, while off, drained, or without responses.",
    PassSynSocket "pass_syn_socket" "A SYN for which there is a socket, or no listener.",
    PassSynUnusual "pass_syn_unusual" "A SYN with data, a tiny MSS, or from an exempt port.",
    PassSynForeign "pass_syn_foreign" "A SYN that is not for an address of this machine.",
    PassDenied "pass_denied" "A SYN from a denied prefix.",
    PassUnadmitted "pass_unadmitted" "A SYN of a client that the server above has not let in of late.",
}
