//! `docs/openapi.json`: it has every path, and what the server answers is what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use orinoco_server::{Limits, ROUTES, Route};
use serde_json::Value;

use crate::client::Answer;
use crate::fake::{Served, target};

fn docs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn openapi() -> Value {
    let text = std::fs::read_to_string(docs().join("openapi.json")).expect("docs/openapi.json");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_file_has_every_path_with_its_methods() {
    let document = openapi();
    let paths = document["paths"].as_object().expect("paths");
    let written: BTreeMap<&str, BTreeSet<String>> = paths
        .iter()
        .map(|(path, methods)| {
            let methods = methods.as_object().expect("methods").keys();
            (path.as_str(), methods.map(|method| method.to_uppercase()).collect())
        })
        .collect();
    // HEAD is served wherever GET is, and is not written.
    let methods = |route: &Route| {
        route.methods.iter().filter(|method| **method != "HEAD").map(|&method| method.to_owned()).collect()
    };
    let served = ROUTES.iter().map(|route| (route.path, methods(route))).collect();
    assert_eq!(written, served);
}

/// Returns the reason why an answer is not one that the document has for this path and method.
fn refused(document: &Value, path: &str, method: &str, answer: &Answer) -> Option<String> {
    let responses = &document["paths"][path][method.to_lowercase()]["responses"];
    let response = &responses[answer.status.to_string()];
    let content_type = &answer.headers["content-type"];
    let content = &response["content"][content_type];
    if content.is_null() {
        return Some(format!("{} with {content_type} is not in the document", answer.status));
    }
    let Some(file) = content["schema"]["$ref"].as_str() else {
        // Bytes.
        return (content_type == "application/json").then(|| "it has no schema".to_owned());
    };
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let place = docs().join(file).canonicalize().expect("the schema's file").display().to_string();
    let schema = compiler.compile(&place, &mut schemas).expect("a schema of draft 2020-12");
    schemas.validate(&answer.json(), schema).err().map(|why| why.to_string())
}

#[test]
fn answers_are_as_the_file_says() {
    let document = openapi();
    let check = |method: &str, path: &str, status: u16, answer: Answer| {
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(refused(&document, path, method, &answer), None, "{method} {path} {status}");
    };
    let starting = Served::starting(Limits::default());
    let running = Served::new(Limits::default());
    for (path, at_start) in
        [("/healthz", 200), ("/readyz", 503), ("/metrics", 200), ("/v1/status", 503), ("/v1/dump", 503)]
    {
        check("GET", path, at_start, starting.unix().get(path));
        check("GET", path, 200, running.unix().get(path));
    }
    check("POST", "/v1/dump", 200, running.unix().request("POST", "/v1/dump", "Host: localhost\r\n"));
    for path in ["/v1/cluster/models", "/v1/cluster/model-data"] {
        let check_query = |status: u16, answer: Answer| check("GET", path, status, answer);
        check_query(503, starting.unix().get(&target(path)));
        check_query(200, running.unix().get(&target(path)));
        check_query(403, running.tcp().request("GET", &target(path), &running.host()));
    }
    let absent = target("/v1/cluster/model-data").replace("east", "west");
    check("GET", "/v1/cluster/model-data", 502, running.unix().get(&absent));
    check("GET", "/v1/cluster/model-data", 400, running.unix().get("/v1/cluster/model-data"));
    for route in ROUTES {
        let body = "Host: localhost\r\nContent-Length: 7\r\n";
        check("GET", route.path, 413, running.unix().request("GET", route.path, body));
        check("GET", route.path, 403, running.tcp().request("GET", route.path, "Host: evil.example\r\n"));
    }
    check("GET", "/v1/dump", 403, running.tcp().request("GET", "/v1/dump", &running.host()));
    let full = Served::new(Limits { event_streams_max: 0, ..Limits::default() });
    check("GET", "/v1/events", 503, full.unix().get("/v1/events"));
    let mut events = running.unix();
    events.send("GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (status, headers) = events.head().expect("an answer");
    check("GET", "/v1/events", 200, Answer { status, headers, body: String::new() });
}

#[test]
fn an_event_is_of_its_schema() {
    let served = Served::new(Limits::default());
    served.board.emit("one");
    let mut client = served.unix();
    client.send("GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let data = loop {
        let line = client.line().expect("an event");
        if let Some(data) = line.strip_prefix("data: ") {
            break serde_json::from_str(data).expect("JSON");
        }
    };
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let place = docs().join("schemas/orinoco.event-1.schema.json").canonicalize().expect("the schema's file");
    let schema = compiler.compile(&place.display().to_string(), &mut schemas).expect("a schema");
    assert_eq!(schemas.validate(&data, schema).err().map(|why| why.to_string()), None);
}
