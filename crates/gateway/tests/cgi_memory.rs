//! A long body is sent to and received from a CGI program at the same time. The test has a separate process, because it
//! measures memory.

mod cgi_support;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use lowroad_config::SymlinkPolicy;
use lowroad_engine::stream::StreamItem;
use lowroad_gateway::cgi::CgiHandler;
use lowroad_handler::ResponseContent;
use lowroad_testkit::TempFolder;

use cgi_support::{Notices, cgi_route, memory_peak_kib, runtime, send_request, spawner, upload};

#[test]
fn streaming_100_mib_through_cgi_needs_little_memory() {
    let folder = TempFolder::new();
    let program = folder.file("cat", "#!/bin/sh\nprintf 'Status: 200\\n\\n'\nexec cat\n");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(program, mode).expect("a mode");
    let (route, cgi) = cgi_route("/cgi-bin/**", folder.path());
    let notice = Notices::default().notice();
    let handler = CgiHandler::new(&route, &cgi, SymlinkPolicy::Beneath, spawner(), notice);
    let handler = Arc::new(handler.expect("the folder is there"));
    let len: u64 = 100 << 20;
    let before = memory_peak_kib();
    let got = runtime().block_on(async {
        let request = upload(folder.path(), "/cgi-bin/cat", len);
        let response = send_request(&handler, request).await;
        let ResponseContent::Stream { stream, .. } = response.expect("an answer").content else {
            panic!("not streamed");
        };
        let mut got = 0;
        loop {
            match stream.next().await {
                StreamItem::Bytes(bytes) => got += bytes.len() as u64,
                StreamItem::End => return got,
                StreamItem::Cut => panic!("cut after {got}"),
            }
        }
    });
    assert_eq!(got, len);
    let grown = memory_peak_kib().saturating_sub(before);
    eprintln!("grown by {grown} KiB");
    assert!(grown < 16 << 10, "{grown} KiB");
}
