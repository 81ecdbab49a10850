//! Whether the daemon could export to the collector that `[otlp]` names.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use orinoco_api::{MachinePart, PartState};
use orinoco_board::OtlpSpec;
use orinoco_otlp::Settings;

use super::check::{Fix, Group, part, with_fix};

/// Maximum time for a connection to a collector.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Checks the settings as the daemon does, and returns one part if they are wrong: such a daemon does not start. Else there is one
/// part for each collector, which may be away when the daemon starts.
///
/// `variable` returns variables of this environment. The daemon's may differ.
pub(super) fn check(spec: &OtlpSpec, variable: &dyn Fn(&str) -> Option<String>) -> Vec<MachinePart> {
    match Settings::new(spec, variable) {
        Err(faults) => {
            let fault = faults.first();
            let says = format!("{}: {}", fault.subject, fault.cause);
            let part = part(Group::BoardFile, "otlp", "settings", PartState::Broken, says);
            vec![with_fix(part, Fix::words(&fault.next))]
        }
        Ok(settings) => collectors(settings.as_ref()).into_iter().map(collector).collect(),
    }
}

/// Returns the hosts and ports of the collectors, each once.
fn collectors(settings: Option<&Settings>) -> Vec<(String, u16)> {
    let metrics = settings.and_then(|settings| settings.metrics.as_ref()).map(|metrics| &metrics.target);
    let traces = settings.and_then(|settings| settings.traces.as_ref()).map(|traces| &traces.target);
    let targets = metrics.into_iter().chain(traces);
    let mut all: Vec<(String, u16)> =
        targets.map(|target| (target.endpoint.host().to_owned(), target.endpoint.port())).collect();
    all.dedup();
    all
}

/// Connects to a collector.
fn collector((host, port): (String, u16)) -> MachinePart {
    let report = |state, says: String| {
        part(Group::BoardFile, "otlp", format!("collector {host} port {port}"), state, says)
    };
    let connected = (host.as_str(), port).to_socket_addrs().and_then(|mut addresses| {
        let address = addresses.next().ok_or_else(|| std::io::Error::other("the name has no address"))?;
        TcpStream::connect_timeout(&address, CONNECT_MAX)
    });
    match connected {
        Ok(_) => report(PartState::Ok, "it accepts connections".to_owned()),
        Err(why) => {
            let says = format!(
                "no connection: {why}. The board can run; its telemetry is kept for a while and then lost"
            );
            let next = "start the collector, or correct `endpoint` in [otlp]";
            with_fix(report(PartState::Missing, says), Fix::words(next))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_config::Faults;
    use std::net::TcpListener;

    fn spec(port: u16) -> OtlpSpec {
        let endpoint = orinoco_uri::HttpEndpoint::parse(&format!("http://127.0.0.1:{port}")).ok();
        OtlpSpec { endpoint, ..OtlpSpec::default() }
    }

    #[test]
    fn a_collector_is_tried_once_for_both_signals() -> Result<(), Faults> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let states = || -> Vec<PartState> {
            check(&spec(port), &|_| None).into_iter().map(|part| part.state).collect()
        };
        assert_eq!(states(), [PartState::Ok]);
        drop(listener);
        assert_eq!(states(), [PartState::Missing]);
        Ok(())
    }

    #[test]
    fn a_wrong_variable_keeps_the_daemon_from_starting() {
        let variable = |name: &str| (name == "OTEL_TRACES_SAMPLER_ARG").then(|| "2".to_owned());
        let parts = check(&spec(9), &variable);
        assert_eq!((parts.len(), parts[0].state), (1, PartState::Broken));
        assert!(
            parts[0].says.contains("OTEL_TRACES_SAMPLER_ARG") && parts[0].next.is_some(),
            "{:?}",
            parts[0]
        );
        let off = |name: &str| (name == "OTEL_SDK_DISABLED").then(|| "true".to_owned());
        assert!(check(&spec(9), &off).is_empty());
    }
}
