//! Receiver of OTLP over HTTP for tests: a real server on loopback that decodes what arrives, and answers as the test wants.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// Request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    /// Headers by their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// Answer of the receiver.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Status {
        status: &'static str,
        headers: &'static str,
        body: Vec<u8>,
    },
    /// None until the receiver ends.
    Silence,
}

impl Reply {
    pub(crate) fn status(status: &'static str) -> Self {
        Self::Status { status, headers: "", body: Vec::new() }
    }
}

/// Server on a port of its own. It ends when it is dropped.
pub(crate) struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    requests: Mutex<Vec<Request>>,
    came: Condvar,
    is_over: AtomicBool,
}

impl Receiver {
    /// Starts a receiver; `reply` gets each request with the number of those before it.
    pub(crate) fn start(reply: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"), reply)
    }

    pub(crate) fn start_at(
        address: SocketAddr,
        reply: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("bound");
        let (requests, came) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { requests, came, is_over: AtomicBool::new(false) });
        let of_server = Arc::clone(&shared);
        let reply = Arc::new(reply);
        let thread = thread::spawn(move || {
            for stream in listener.incoming().map(|stream| stream.expect("a connection")) {
                if of_server.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (shared, reply) = (Arc::clone(&of_server), Arc::clone(&reply));
                // A client that goes away ends its connection.
                thread::spawn(move || serve(stream, &shared, &*reply).unwrap_or_default());
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the requests are as wanted, and returns them.
    pub(crate) fn wait_until(&self, is_wanted: impl Fn(&[Request]) -> bool) -> Vec<Request> {
        let until = Instant::now() + Duration::from_secs(60);
        let mut requests = self.requests_locked();
        while !is_wanted(&requests) {
            let left = until.checked_duration_since(Instant::now()).expect("the requests came in time");
            requests = self.shared.came.wait_timeout(requests, left).expect("not poisoned").0;
        }
        requests.clone()
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests_locked().clone()
    }

    fn requests_locked(&self) -> MutexGuard<'_, Vec<Request>> {
        self.shared.requests.lock().expect("not poisoned")
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts connections, so that the port is free afterwards.
        let _ = TcpStream::connect(self.address);
        self.thread.take().map(JoinHandle::join).expect("it runs").expect("it did not panic");
    }
}

fn serve(
    stream: TcpStream,
    shared: &Shared,
    reply: &(dyn Fn(&Request, usize) -> Reply + Send + Sync),
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request = Request { path, headers, body };
    let mut requests = shared.requests.lock().expect("not poisoned");
    let answer = reply(&request, requests.len());
    requests.push(request);
    drop(requests);
    shared.came.notify_all();
    match answer {
        Reply::Status { status, headers, body } => {
            let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
            reader.get_mut().write_all(&[head.as_bytes(), &body].concat())
        }
        Reply::Silence => {
            // Until the client gives up.
            reader.read_to_end(&mut Vec::new()).map(|_| ())
        }
    }
}

/// Returns the requests of a path.
pub(crate) fn at<'a>(requests: &'a [Request], path: &str) -> Vec<&'a Request> {
    requests.iter().filter(|request| request.path == path).collect()
}

/// Returns the spans of all requests for traces.
pub(crate) fn spans(requests: &[Request]) -> Vec<Span> {
    let decode = |request: &Request| {
        ExportTraceServiceRequest::decode(&*request.body).expect("a request for traces").resource_spans
    };
    let of_scopes = at(requests, "/v1/traces").into_iter().flat_map(decode).flat_map(|it| it.scope_spans);
    of_scopes.flat_map(|it| it.spans).collect()
}

/// Returns the metrics of one request.
pub(crate) fn metrics(request: &Request) -> Vec<Metric> {
    let decoded = ExportMetricsServiceRequest::decode(&*request.body).expect("a request for metrics");
    let of_scopes = decoded.resource_metrics.into_iter().flat_map(|it| it.scope_metrics);
    of_scopes.flat_map(|it| it.metrics).collect()
}

/// Returns the attributes of the resource of a request for metrics.
pub(crate) fn resource(request: &Request) -> BTreeMap<String, String> {
    let decoded = ExportMetricsServiceRequest::decode(&*request.body).expect("a request for metrics");
    let resources = decoded.resource_metrics.into_iter().filter_map(|it| it.resource);
    let attributes: Vec<KeyValue> = resources.flat_map(|it| it.attributes).collect();
    attributes.iter().map(|it| (it.key.clone(), text(it).unwrap_or_default())).collect()
}

/// Returns the value of an attribute of a span as text.
pub(crate) fn attribute(span: &Span, key: &str) -> Option<String> {
    text(span.attributes.iter().find(|attribute| attribute.key == key)?)
}

fn text(attribute: &KeyValue) -> Option<String> {
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the spans of each trace, its root first, after a check that all others are below the root and within its time.
pub(crate) fn traces(spans: Vec<Span>) -> Vec<Vec<Span>> {
    let mut traces: BTreeMap<Vec<u8>, Vec<Span>> = BTreeMap::new();
    spans.into_iter().for_each(|span| traces.entry(span.trace_id.clone()).or_default().push(span));
    for trace in traces.values_mut() {
        trace.sort_by_key(|span| !span.parent_span_id.is_empty());
        let (root, parts) = trace.split_first().expect("it has a span");
        assert_eq!((root.name.as_str(), root.parent_span_id.len(), root.trace_id.len()), ("frame", 0, 16));
        for part in parts {
            assert_eq!(part.parent_span_id, root.span_id, "{part:?}");
            let is_within = root.start_time_unix_nano <= part.start_time_unix_nano
                && part.start_time_unix_nano <= part.end_time_unix_nano
                && part.end_time_unix_nano <= root.end_time_unix_nano;
            assert!(is_within, "{part:?} is not within {root:?}");
        }
    }
    traces.into_values().collect()
}
