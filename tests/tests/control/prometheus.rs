//! A real Prometheus server that scrapes a daemon, with the alert rules and the queries of the dashboard in `docs/`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orinoco_tests::{free_address, root};
use serde_json::Value;

use super::{Daemon, WAIT_MAX, socket_key};

/// Figures without a series here: those of sensors that not every machine has, and drops by cause, of which there are none.
const NOT_HERE: [&str; 5] =
    ["orinoco_rail_", "_energy_", "orinoco_temperature_", "orinoco_clock_", "by (cause)"];
/// Scrapes after which rates are known.
const SCRAPES: f64 = 4.0;

/// Prometheus server that is killed with its value.
struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts a server that scrapes an address each second. `None`, with a line "skipped", if none is installed.
    fn start(dir: &Path, scraped: &str) -> Option<Self> {
        let address = free_address([127, 0, 0, 1]);
        let rules = root().join("docs/prometheus/alerts.yml");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\n\
             scrape_configs: [{{job_name: orinoco, static_configs: [{{targets: ['{scraped}']}}]}}]\n",
            rules.display()
        );
        let file = dir.join("prometheus.yml");
        fs::write(&file, config).expect("written");
        let mut server = Command::new("prometheus");
        server.arg(format!("--config.file={}", file.display()));
        server.arg(format!("--storage.tsdb.path={}", dir.join("data").display()));
        server.arg(format!("--web.listen-address={address}"));
        let Ok(child) = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            println!("skipped: prometheus is not installed (Debian: prometheus)");
            return None;
        };
        Some(Self { child, address })
    }

    /// Answer to a request of its HTTP interface, once there is one.
    fn get(&self, path: &str) -> Value {
        let begin = Instant::now();
        loop {
            let answer = TcpStream::connect(self.address).ok().and_then(|mut stream| {
                write!(stream, "GET /api/v1/{path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address).ok()?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).ok()?;
                serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
            });
            if let Some(answer) = answer {
                return answer;
            }
            assert!(begin.elapsed() < WAIT_MAX, "Prometheus does not answer {path}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Series that answer a query.
    fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.get(&format!("query?query={encoded}"));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().expect("a list").clone()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // If it has ended by itself, the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Queries of the dashboard's panels, for all boards.
fn queries_of_the_dashboard() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/grafana/orinoco.json")).expect("readable");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("a list").iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().expect("a query").replace("$instance", ".*")).collect()
}

#[test]
fn a_prometheus_answers_the_dashboard_and_knows_the_alerts() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let control = socket_key(dir.path()) + "listen = '127.0.0.1:0'\n";
    let board = format!(
        "version = 1\n[memory]\nbudget = '1 GiB'\n[control]\n{control}\n[[model]]\nname = 'people'\nmodel = 'person-nano'\n\
         [[stream]]\nname = 'gate'\nsource = 'test://ball?pace=pts'\nmodels = ['people']\n"
    );
    fs::write(dir.path().join("board.toml"), board).expect("written");
    let mut daemon = Daemon::run(dir.path(), &[]);
    let line = daemon.hear("control socket=");
    let address = line.trim().rsplit_once("listen=").expect("its address").1.to_owned();
    daemon.hear("running");
    let Some(prometheus) = Prometheus::start(dir.path(), &address) else { return daemon.stop() };
    let begin = Instant::now();
    loop {
        let scrapes = prometheus.query("sum(count_over_time(orinoco_stream_live[1m]))");
        let count = scrapes.first().map(|series| series["value"][1].as_str().expect("text").parse());
        if count.is_some_and(|count: Result<f64, _>| count.expect("a number") >= SCRAPES) {
            break;
        }
        let targets = prometheus.get("targets");
        assert!(begin.elapsed() < WAIT_MAX, "too few scrapes: {targets}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let queries = queries_of_the_dashboard();
    assert!(queries.len() > 20, "{queries:?}");
    for query in queries {
        let is_optional = NOT_HERE.iter().any(|figure| query.contains(figure));
        assert!(!prometheus.query(&query).is_empty() || is_optional, "no series answers {query}");
    }
    let rules = prometheus.get("rules");
    let rules = rules["data"]["groups"][0]["rules"].as_array().expect("a list");
    assert!(!rules.is_empty());
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    daemon.stop();
}
