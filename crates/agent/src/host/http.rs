//! The metrics' HTTP server: one path, on the loopback unless the configuration says otherwise.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use super::crowd::Crowd;
use super::error::HostError;

/// Connections at once.
const CONNECTIONS: usize = 64;
/// How long a client may take to ask.
const TIMEOUT: Duration = Duration::from_secs(10);
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Binds the address, so that a bad one is found before anything else is done.
///
/// # Errors
/// [`HostError::Io`]
pub async fn bind(address: SocketAddr) -> Result<TcpListener, HostError> {
    TcpListener::bind(address)
        .await
        .map_err(|error| HostError::io(format!("cannot listen for metrics on {address} (metrics.listen)"), error))
}

/// Answers until it is dropped. `text` makes the metrics, anew each time.
pub async fn serve(listener: TcpListener, text: Rc<dyn Fn() -> Result<String, HostError>>) {
    let crowd = Crowd::new(CONNECTIONS);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Mostly this process is out of descriptors: other clients need time to close theirs.
                tracing::warn!(%error, "cannot take a connection for metrics");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let text = Rc::clone(&text);
        crowd.admit(|place| async move {
            let service = service_fn(|request| {
                place.is_heard();
                let response = answer(&request, &*text);
                async { Ok::<_, Infallible>(response) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(TIMEOUT).keep_alive(false);
            let connection = http.serve_connection(TokioIo::new(stream), service);
            // A client that goes away or says nonsense is its own affair.
            let _ = tokio::time::timeout(TIMEOUT * 2, connection).await;
        });
    }
}

fn answer(request: &Request<Incoming>, text: &dyn Fn() -> Result<String, HostError>) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match text() {
        Ok(text) => {
            let mut response = Response::new(Full::from(text));
            response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(OPENMETRICS));
            response
        }
        Err(error) => {
            tracing::warn!(%error, "cannot read the metrics");
            plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the datapath's counters cannot be read; the agent's log says why\n",
            )
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}
