//! Modules in every native form: each feature once, with a built-in module in Rust and an equal library in C, then the
//! features of libraries only.

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
    OTHER, answer, answer_when, body, forms, forms_in_process, listening, request, text,
};

/// The fields of a response as a client gets them.
fn lines(response: &HandlerResponse) -> Vec<u8> {
    let mut lines = Vec::new();
    lowroad_http::h1::put_fields(&response.fields, &mut lines);
    lines
}

#[tokio::test]
async fn values_of_the_request_are_given() {
    for (form, handler) in forms(CallLimits::default()) {
        let expected = "GET\n/values?a=b+c\n/values\na=b+c\nexample.com\n192.0.2.1\nvalue\n7\nb c\n\
                        /srv/site\nset\n1\nnone\n";
        assert_eq!(text(&handler, "/values?a=b+c").await, expected, "{form}");
    }
}

#[tokio::test]
async fn what_needs_no_waiting_is_answered_at_once() {
    for (form, handler) in forms(CallLimits::default()) {
        let (answer, at_once) = answer_when(&handler, request("/nothing")).await;
        let response = answer.expect("it is answered");
        assert_eq!(at_once, form != "separate", "{form}");
        assert_eq!(response.status, StatusCode::NOT_FOUND, "{form}");
        assert_eq!(lines(&response), b"Content-Type: text/plain\r\n", "{form}");
        assert_eq!(body(response).await, b"nothing here\n", "{form}");
    }
}

#[tokio::test]
async fn a_stored_object_does_not_pass_through() {
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
async fn redirects_and_cacheable_responses_are_fields() {
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
async fn bodies_come_in_parts() {
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
async fn a_body_that_is_there_is_answered_at_once() {
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
        let (answer, at_once) = answer_when(&handler, request).await;
        assert_eq!(at_once, form != "separate", "{form}");
        assert_eq!(
            body(answer.expect("it is answered")).await,
            b"abc",
            "{form}"
        );
    }
}

#[tokio::test]
async fn fetches_from_memory_are_answered_at_once() {
    for (form, handler) in forms(CallLimits::default()) {
        let (answer, at_once) = answer_when(&handler, request("/fetch?of=/now.html")).await;
        assert_eq!(at_once, form != "separate", "{form}");
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
async fn fetches_from_other_servers() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = OTHER.try_clone().expect("a socket");
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
        // No server listens at port 1.
        assert_eq!(
            text(&handler, "/fetch?of=http://127.0.0.1:1/").await,
            "0",
            "{form}"
        );
    }
}

#[tokio::test]
async fn what_is_not_listed_is_not_fetched() {
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
async fn what_is_not_listed_is_told_in_the_log() {
    let (lines, identity) = listening("features");
    let entry = linked::<features::Features>("features");
    let code = LinkedCode::start(&entry, &identity, 2).expect("it starts");
    let code = Arc::new(code);
    let handler: Arc<dyn Handler> =
        Arc::new(ModuleHandler::new(code, identity, CallLimits::default()));
    let target = "/fetch?of=http://169.254.169.254/latest";
    assert_eq!(text(&handler, target).await, "0");
    let lines = lines.lock().expect("nobody panicked");
    let told: Vec<_> = lines.iter().filter(|line| line.contains("fetch")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("fetch = [\"169.254.169.254:80\"]"),
        "{told:?}"
    );
}

#[tokio::test]
async fn timers_come() {
    for (form, handler) in forms(CallLimits::default()) {
        assert_eq!(text(&handler, "/timer").await, "late", "{form}");
    }
}

#[tokio::test]
async fn a_long_response_is_streamed_as_there_is_room() {
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
async fn any_thread_can_continue_a_call() {
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
async fn failures_are_told() {
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
async fn what_is_wrong_is_refused() {
    for (form, handler) in forms(CallLimits::default()) {
        assert_eq!(text(&handler, "/refused").await, "1111111", "{form}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_ever_is_ended_and_the_module_told() {
    for (form, handler) in forms_in_process(CallLimits::default()) {
        let before: u32 = text(&handler, "/gone").await.parse().expect("a number");
        let failure = answer(&handler, "/forever").await.err().expect("it fails");
        assert_eq!(failure.status, StatusCode::GATEWAY_TIMEOUT, "{form}");
        let after: u32 = text(&handler, "/gone").await.parse().expect("a number");
        assert!(after > before, "{form}: {before}, {after}");
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_is_told_to_the_module() {
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
async fn a_response_without_end_is_refused() {
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
