//! The limits at which requests are refused, as metrics name them.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident => $text:literal;)*) => {
        /// The limit at which a request was refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum RefusalReason { $($(#[doc = $doc])+ $name,)* }

        impl RefusalReason {
            /// All reasons, in the order of declaration.
            pub const ALL: &[RefusalReason] = &[$(RefusalReason::$name,)*];

            /// The name in metrics, if there is one the key of the configuration.
            pub const fn as_str(self) -> &'static str {
                match self { $(RefusalReason::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// The route's requests in progress.
    Concurrency => "concurrency";
    /// The client's share of the route's requests or tunnels in progress.
    ClientShare => "client_share";
    /// The route's tunnels.
    Tunnels => "tunnels";
    /// The rate of an access rule or of a traffic class.
    Rate => "rate";
    /// The wrong or pending passwords of a client.
    Passwords => "passwords";
    /// The queue of a traffic class, or for a connection to an upstream server.
    Queue => "queue";
    /// The requests in progress at all healthy servers of an upstream group.
    ServerConnections => "server_connections";
    /// The time in such a queue.
    QueueTimeout => "queue_timeout";
    /// The time for a connection to an upstream server.
    ConnectTimeout => "connect_timeout";
    /// The time until a handler's response.
    Timeout => "timeout";
    /// The temporary files of bodies.
    TempFiles => "temp_files";
    /// The length of the request's body.
    BodyLen => "body_len";
    /// The length of the request's head or trailers, or the number of its fields.
    HeadLen => "head_len";
    /// The length of the request's target.
    TargetLen => "target_len";
}

impl RefusalReason {
    /// The position in [`RefusalReason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_indexed_by_position_and_have_distinct_names() {
        for (index, reason) in RefusalReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), index);
            let before = &RefusalReason::ALL[..index];
            assert!(before.iter().all(|it| it.as_str() != reason.as_str()));
        }
    }
}
