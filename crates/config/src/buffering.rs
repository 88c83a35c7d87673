//! Reads `[buffering]`: the buffers in memory and on disk for bodies between clients and programs.
//!
//! Keys and ranges are defined here; their meaning and defaults are in [`crate::schema`]. Whether temporary files can
//! be created in the folder is checked by the server, not here.

use crate::BufferConfig;
use crate::reader::ConfigSection;

/// The minimum length of a buffer: a smaller one would write to the file for nearly every packet.
const BUFFER_LEN_MIN: u64 = 4 << 10;
const BUFFER_LEN_MAX: u64 = 16 << 20;
const FILE_LEN_MIN: u64 = 64 << 10;
const TIB: u64 = 1 << 40;

pub(crate) fn buffering(section: ConfigSection<'_>) -> BufferConfig {
    let default = BufferConfig::default();
    let buffer = |key, default| section.size(key, default, BUFFER_LEN_MIN..=BUFFER_LEN_MAX);
    // 0 turns temporary files off.
    let file = |key, default| section.size_or_zero(key, default, FILE_LEN_MIN..=TIB);
    let buffering = BufferConfig {
        temp_path: section.item("temp_path").and_then(|item| item.path()),
        request_buffer_len: buffer("request_buffer", default.request_buffer_len),
        response_buffer_len: buffer("response_buffer", default.response_buffer_len),
        temp_file_len_max: file("temp_file_max", default.temp_file_len_max),
        temp_total_len_max: file("temp_total_max", default.temp_total_len_max),
    };
    section.finish();
    buffering
}
