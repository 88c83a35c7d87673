//! Modules in each native form (built in, library, separate process): each feature is tested with the same module in
//! Rust and in C; then follow the features that only libraries have.

#[path = "module/busy.rs"]
mod busy;
#[path = "module/features.rs"]
mod features;
#[path = "module/library.rs"]
mod library;
#[path = "module/separate.rs"]
mod separate;
#[path = "module/support.rs"]
mod support;

use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use lowroad_engine::stream::{StreamItem, stream};
use lowroad_handler::{Handler, HandlerResponse, HandlerResult, RequestBody, ResponseContent};
use lowroad_http::status::StatusCode;
use lowroad_module::builtin::linked;
use lowroad_module_host::module::builtin::LinkedCode;
use lowroad_module_host::module::{CallLimits, ModuleHandler, resume_call};

use support::{
    OTHER_SERVER, answer, answer_when, body, forms, forms_in_process, recording_identity, request,
    text,
};

/// The field lines of a response, as a client receives them.
fn lines(response: &HandlerResponse) -> Vec<u8> {
    let mut lines = Vec::new();
    lowroad_http::h1::put_fields(&response.fields, &mut lines);
    lines
}

#[tokio::test]
async fn module_reads_request_values() {
    for (form, handler) in forms(CallLimits::default()) {
        let expected = "GET\n/values?a=b+c\n/values\na=b+c\nexample.com\n192.0.2.1\nvalue\n7\nb c\n\
                        /srv/site\nset\n1\nnone\n";
        assert_eq!(text(&handler, "/values?a=b+c").await, expected, "{form}");
    }
}

#[tokio::test]
async fn call_without_wait_is_answered_on_worker() {
    for (form, handler) in forms(CallLimits::default()) {
        let (answer, on_worker) = answer_when(&handler, request("/nothing")).await;
        let response = answer.expect("it is answered");
        assert_eq!(on_worker, form != "separate", "{form}");
        assert_eq!(response.status, StatusCode::NOT_FOUND, "{form}");
        assert_eq!(lines(&response), b"Content-Type: text/plain\r\n", "{form}");
        assert_eq!(body(response).await, b"nothing here\n", "{form}");
    }
}

#[tokio::test]
async fn stored_object_bypasses_module() {
    for (form, handler) in forms(CallLimits::default()) {
        let response = answer(&handler, "/stored").await.expect("it is answered");
        match response.content {
            ResponseContent::Stored(around) => {
                assert_eq!(around.before, "before ", "{form}");
                assert_eq!(around.path, "/page.html", "{form}");
                assert_eq!(around.after, " after", "{form}");
            }
            _ => panic!("{form}: it is not stored"),
        }
    }
}

#[tokio::test]
async fn redirect_and_cache_set_fields() {
    for (form, handler) in forms(CallLimits::default()) {
        let response = answer(&handler, "/redirect").await.expect("it is answered");
        assert_eq!(response.status, StatusCode::SEE_OTHER, "{form}");
        assert_eq!(lines(&response), b"Location: /elsewhere\r\n", "{form}");
        let response = answer(&handler, "/cache").await.expect("it is answered");
        let expected = b"Cache-Control: public, max-age=3600\r\n";
        assert_eq!(lines(&response), expected, "{form}");
    }
}

#[tokio::test]
async fn body_arrives_in_parts() {
    for (form, handler) in forms(CallLimits::default()) {
        let (sender, receiver) = stream(16);
        let mut request = request("/echo");
        request.body = RequestBody {
            len: None,
            stream: Some(receiver),
        };
        sender
            .push(Bytes::from_static(b"the first part "))
            .expect("it is taken");
        let HandlerResult::OnRuntime(answer) = handler.clone().begin(0, request) else {
            panic!("{form}: the body is not there yet");
        };
        let answer = tokio::spawn(answer);
        sender
            .send(Bytes::from_static(b"and the second"))
            .await
            .expect("it is taken");
        sender.end();
        let response = answer.await.expect("no panic").expect("it is answered");
        assert_eq!(
            body(response).await,
            b"the first part and the second",
            "{form}"
        );
    }
}

#[tokio::test]
async fn available_body_is_answered_on_worker() {
    for (form, handler) in forms(CallLimits::default()) {
        let (sender, receiver) = stream(16);
        let mut request = request("/echo");
        request.body = RequestBody {
            len: Some(3),
            stream: Some(receiver),
        };
        sender
            .push(Bytes::from_static(b"abc"))
            .expect("it is taken");
        sender.end();
        let (answer, on_worker) = answer_when(&handler, request).await;
        assert_eq!(on_worker, form != "separate", "{form}");
        assert_eq!(
            body(answer.expect("it is answered")).await,
            b"abc",
            "{form}"
        );
    }
}

#[tokio::test]
async fn fetch_from_memory_is_answered_on_worker() {
    for (form, handler) in forms(CallLimits::default()) {
        let (answer, on_worker) = answer_when(&handler, request("/fetch?of=/now.html")).await;
        assert_eq!(on_worker, form != "separate", "{form}");
        assert_eq!(
            body(answer.expect("it is answered")).await,
            b"2from memory",
            "{form}"
        );
        assert_eq!(
            text(&handler, "/fetch?of=/later.html").await,
            "2from disk",
            "{form}"
        );
        assert_eq!(text(&handler, "/fetch?of=/none.html").await, "4", "{form}");
    }
}

#[tokio::test]
async fn fetch_from_allowed_server_returns_content() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = OTHER_SERVER.try_clone().expect("a socket");
    server.set_nonblocking(true).expect("it is a socket");
    let server = tokio::net::TcpListener::from_std(server).expect("it is a socket");
    let port = server.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = server.accept().await {
            let _ = client.read(&mut [0; 4096]).await;
            let answer = b"HTTP/1.1 201 Made\r\nContent-Length: 4\r\nConnection: close\r\n\r\nover";
            let _ = client.write_all(answer).await;
        }
    });
    for (form, handler) in forms(CallLimits::default()) {
        let target = format!("/fetch?of=http://127.0.0.1:{port}/a");
        assert_eq!(text(&handler, &target).await, "2over", "{form}");
        // No server listens on port 1.
        assert_eq!(
            text(&handler, "/fetch?of=http://127.0.0.1:1/").await,
            "0",
            "{form}"
        );
    }
}

#[tokio::test]
async fn fetch_from_other_server_is_refused() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    server.set_nonblocking(true).expect("it is a socket");
    let port = server.local_addr().expect("an address").port();
    for (form, handler) in forms(CallLimits::default()) {
        let target = format!("/fetch?of=http://127.0.0.1:{port}/a");
        assert_eq!(text(&handler, &target).await, "0", "{form}");
        assert!(server.accept().is_err(), "{form}: nobody connected");
    }
}

#[tokio::test]
async fn refused_fetch_is_logged() {
    let (lines, identity) = recording_identity("features");
    let entry = linked::<features::Features>("features");
    let code = LinkedCode::start(&entry, &identity, 2).expect("it starts");
    let code = Arc::new(code);
    let handler: Arc<dyn Handler> =
        Arc::new(ModuleHandler::new(code, identity, CallLimits::default()));
    let target = "/fetch?of=http://169.254.169.254/latest";
    assert_eq!(text(&handler, target).await, "0");
    let lines = lines.lock().expect("nobody panicked");
    let log_lines: Vec<_> = lines.iter().filter(|line| line.contains("fetch")).collect();
    assert_eq!(log_lines.len(), 1, "{log_lines:?}");
    assert!(
        log_lines[0].contains("fetch = [\"169.254.169.254:80\"]"),
        "{log_lines:?}"
    );
}

#[tokio::test]
async fn timer_event_arrives() {
    for (form, handler) in forms(CallLimits::default()) {
        assert_eq!(text(&handler, "/timer").await, "late", "{form}");
    }
}

#[tokio::test]
async fn long_response_is_streamed_with_back_pressure() {
    for (form, handler) in forms(CallLimits::default()) {
        let response = answer(&handler, "/stream").await.expect("it is answered");
        assert!(
            matches!(response.content, ResponseContent::Stream { len: None, .. }),
            "{form}"
        );
        assert_eq!(body(response).await.len(), 10_000_000, "{form}");
    }
}

#[tokio::test]
async fn any_thread_can_resume_a_call() {
    for (form, handler) in forms_in_process(CallLimits::default()) {
        let response = answer(&handler, "/hold").await.expect("it is answered");
        let ResponseContent::Stream { stream, .. } = response.content else {
            panic!("{form}: it is a stream");
        };
        let StreamItem::Bytes(ticket) = stream.next().await else {
            panic!("{form}: the ticket comes first");
        };
        let ticket = u64::from_ne_bytes(ticket[..].try_into().expect("8 bytes"));
        let continued = std::thread::spawn(move || resume_call(ticket))
            .join()
            .expect("no panic");
        assert!(continued, "{form}");
        assert_eq!(
            stream.next().await,
            StreamItem::Bytes(Bytes::from_static(b"continued")),
            "{form}"
        );
        assert_eq!(stream.next().await, StreamItem::End, "{form}");
    }
}

#[tokio::test]
async fn module_failure_gets_500() {
    for (form, handler) in forms(CallLimits::default()) {
        for target in ["/fail", "/nonsense"] {
            let failure = answer(&handler, target).await.err().expect("it fails");
            assert_eq!(failure.status, StatusCode::INTERNAL_ERROR, "{form}");
            assert!(
                failure.detail.contains("module features"),
                "{form}: {}",
                failure.detail
            );
        }
    }
}

#[tokio::test]
async fn invalid_operations_are_refused() {
    for (form, handler) in forms(CallLimits::default()) {
        assert_eq!(text(&handler, "/refused").await, "1111111", "{form}");
    }
}

#[tokio::test(start_paused = true)]
async fn call_over_time_limit_is_abandoned_and_reported() {
    for (form, handler) in forms_in_process(CallLimits::default()) {
        let before: u32 = text(&handler, "/gone").await.parse().expect("a number");
        let failure = answer(&handler, "/forever").await.err().expect("it fails");
        assert_eq!(failure.status, StatusCode::GATEWAY_TIMEOUT, "{form}");
        let after: u32 = text(&handler, "/gone").await.parse().expect("a number");
        assert!(after > before, "{form}: {before}, {after}");
    }
}

#[tokio::test]
async fn dropped_call_is_reported_to_module() {
    for (form, handler) in forms(CallLimits::default()) {
        let before: u32 = text(&handler, "/gone").await.parse().expect("a number");
        let HandlerResult::OnRuntime(mut answer) = handler.clone().begin(1, request("/forever"))
        else {
            panic!("{form}: it waits");
        };
        let mut context = Context::from_waker(Waker::noop());
        assert!(answer.as_mut().poll(&mut context).is_pending());
        drop(answer);
        let after: u32 = text(&handler, "/gone").await.parse().expect("a number");
        assert!(after > before, "{form}: {before}, {after}");
    }
}

#[tokio::test]
async fn more_calls_than_allowed_get_503() {
    let limits = CallLimits {
        concurrency_max: 2,
        ..CallLimits::default()
    };
    for (form, handler) in forms(limits) {
        let held: Vec<_> = (0..2)
            .map(|_| handler.clone().begin(0, request("/forever")))
            .collect();
        let failure = answer(&handler, "/timer")
            .await
            .err()
            .expect("it is refused");
        assert_eq!(failure.status, StatusCode::SERVICE_UNAVAILABLE, "{form}");
        drop(held);
        assert_eq!(text(&handler, "/timer").await, "late", "{form}");
    }
}

#[tokio::test]
async fn response_over_limit_is_refused() {
    let limits = CallLimits {
        response_len_max: 1000,
        ..CallLimits::default()
    };
    for (form, handler) in forms_in_process(limits) {
        assert_eq!(
            text(&handler, "/long").await,
            "1",
            "{form}: the rest is refused"
        );
    }
}
