//! Attributes of the machine and the program, which hold for everything that is sent.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::attributes::text;

/// Name of the program where nobody gives another.
const SERVICE_NAME: &str = "orinoco";

/// Returns the resource: the program, then what is known of the machine, then what the environment says. The last wins.
pub(crate) fn resource(
    of_machine: &[(&'static str, String)],
    of_environment: &[(String, String)],
) -> Resource {
    let program = [("service.name", SERVICE_NAME), ("service.version", env!("CARGO_PKG_VERSION"))];
    let mut attributes: BTreeMap<&str, &str> = program.into();
    attributes.extend(of_machine.iter().map(|(key, value)| (*key, value.as_str())));
    attributes.extend(of_environment.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    let attributes = attributes.into_iter().map(|(key, value)| text(key, value)).collect();
    Resource { attributes, ..Resource::default() }
}

/// Returns the scope of all metrics and spans.
pub(crate) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "orinoco".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_wins_over_the_machine() {
        let machine = [("host.name", "gate-3".to_owned()), ("service.instance.id", "gate-3".to_owned())];
        let environment =
            [("service.name".to_owned(), "yard".to_owned()), ("host.name".to_owned(), "x".to_owned())];
        let expected = [
            text("host.name", "x"),
            text("service.instance.id", "gate-3"),
            text("service.name", "yard"),
            text("service.version", env!("CARGO_PKG_VERSION")),
        ];
        assert_eq!(resource(&machine, &environment).attributes, expected);
    }
}
