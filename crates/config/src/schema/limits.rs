//! Limits for clients, and buffers between clients and programs.

use std::path::PathBuf;

/// Limits for each client and for all clients together. `[limits]`
///
/// Every wait is bounded: timeouts are 1 ms to 24 hours, an unlimited one is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// From the first byte of a request to the end of its head, milliseconds. Default 15 000.
    pub header_timeout_ms: u64,
    /// Between two reads of a request body, milliseconds. Default 30 000.
    pub body_timeout_ms: u64,
    /// Idle timeout: a connection without a request in progress, milliseconds. Default 60 000.
    pub idle_timeout_ms: u64,
    /// Between two writes of a response that made progress, milliseconds. Default 30 000.
    pub send_timeout_ms: u64,
    /// The minimum of bytes a second in either direction during a request or response; 0 = no minimum. At most 1 GiB.
    /// Default 128.
    pub rate_min: u64,
    /// How long a client may stay below `rate_min`, milliseconds. 0 to 1 hour. Default 10 000.
    pub rate_grace_ms: u64,
    /// Connections at one time in all, 1 to 1 048 576. Default 65 536.
    ///
    /// Memory, worst case: 80 KiB for each that pipelines requests and does not read the responses,
    /// `head_len_max` for each in the middle of a head, about 100 bytes for an idle one.
    pub connections_max: usize,
    /// Connections at one time from one address, 1 to 1 048 576. Default 16 384.
    pub connections_per_address_max: usize,
    /// Requests on one connection before it is closed; 0 = no limit. Default 0.
    pub requests_per_connection_max: u64,
    /// Concurrent streams of an HTTP/2 connection, 1 to 32 767. Default 128.
    pub streams_per_connection_max: u64,
    /// Bytes of a request head (request line and fields), 512 to 1 MiB. Default 16 KiB.
    pub head_len_max: usize,
    /// Bytes of a request target, 64 to `head_len_max`. Default 8 KiB, or `head_len_max` where
    /// that is less.
    pub target_len_max: usize,
    /// Field lines of a request, 8 to 4096. Default 100.
    pub fields_max: usize,
    /// Bytes of a request body, 0 to 1 TiB. Default 1 MiB. A site of files reads and discards
    /// bodies, so this bounds work, not memory.
    pub body_len_max: u64,
    /// Concurrent calls of programs and origins, if there are classes; 1 to 65 536. Default 256.
    pub calls_max: usize,
    /// Queued calls of all classes; 0 to 1 048 576. Default 1024.
    pub calls_waiting_max: usize,
    /// Responses of programs that are compressed concurrently, 1 to 65 536; beyond that, responses are sent
    /// uncompressed. Each takes 0.4 to 1.2 MiB. Default 128.
    pub compressors_max: usize,
}

impl LimitsConfig {
    /// The default of the longest request target: 8 KiB, or the whole of a smaller head.
    pub fn target_len_default(head_len_max: usize) -> usize {
        head_len_max.min(8 << 10)
    }
}

impl Default for LimitsConfig {
    fn default() -> LimitsConfig {
        let head_len_max = 16 << 10;
        LimitsConfig {
            header_timeout_ms: 15_000,
            body_timeout_ms: 30_000,
            idle_timeout_ms: 60_000,
            send_timeout_ms: 30_000,
            rate_min: 128,
            rate_grace_ms: 10_000,
            connections_max: 65_536,
            connections_per_address_max: 16_384,
            requests_per_connection_max: 0,
            streams_per_connection_max: 128,
            head_len_max,
            target_len_max: LimitsConfig::target_len_default(head_len_max),
            fields_max: 100,
            body_len_max: 1 << 20,
            calls_max: 256,
            calls_waiting_max: 1024,
            compressors_max: 128,
        }
    }
}

/// Buffers in memory and files between clients and programs, for routes that buffer. `[buffering]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferConfig {
    /// The folder of the spool files, which have no names. Default None: `/var/tmp`, or `/tmp` if no
    /// files can be created there. Key `temp_path`.
    pub temp_path: Option<PathBuf>,
    /// Bytes of a request body that are buffered in memory; more goes to a file. 4 KiB to 16 MiB. Default
    /// 16 KiB. Key `request_buffer`.
    pub request_buffer_len: u64,
    /// Bytes of a response that are buffered in memory for a slow client; more goes to a file. 4 KiB to 16 MiB.
    /// Default 64 KiB. Key `response_buffer`.
    pub response_buffer_len: u64,
    /// Bytes of the file of one response, 64 KiB to 1 TiB; beyond that the program waits for the client. 0 =
    /// responses have no files. Default 1 GiB. Key `temp_file_max`.
    pub temp_file_len_max: u64,
    /// Bytes of all files together, 64 KiB to 1 TiB; 0 = there are none. Default 4 GiB. Key
    /// `temp_total_max`.
    pub temp_total_len_max: u64,
}

impl Default for BufferConfig {
    fn default() -> BufferConfig {
        BufferConfig {
            temp_path: None,
            request_buffer_len: 16 << 10,
            response_buffer_len: 64 << 10,
            temp_file_len_max: 1 << 30,
            temp_total_len_max: 4 << 30,
        }
    }
}

/// A limit of the bandwidth of each response. Keys `rate` and `after` of sites, routes and rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandwidthLimit {
    /// Bytes of the body per second, at least 1024. Key `rate`.
    pub bytes_per_s: u64,
    /// The number of bytes at the start of the body that are sent without the limit. Default 0. Key `after`.
    pub after: u64,
}
