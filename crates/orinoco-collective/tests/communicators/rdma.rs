//! RDMA: what ranks say about devices. The suite runs where a device is.

use orinoco_collective::{JoinError, RdmaError, RdmaGroup, RdmaSettings, Rendezvous, Security, rdma_ports};

use crate::name;

/// Reason for which groups over RDMA cannot be tested on this machine.
pub(crate) fn missing() -> Option<String> {
    let ports = match rdma_ports() {
        Ok(ports) => ports,
        Err(error) => return Some(format!("no RDMA device: {error}")),
    };
    let is_fit = ports.iter().any(|port| port.is_active && !port.addresses.is_empty());
    (!is_fit).then(|| format!("no RDMA device with a link for RoCE v2: {ports:?}"))
}

#[test]
fn a_machine_without_a_device_says_what_is_missing() {
    let Err(expected) = rdma_ports() else { return a_device_that_does_not_exist_is_refused() };
    let path = name();
    let settings = || RdmaSettings::new(Security::FileKey);
    let join = |rank| RdmaGroup::join(&Rendezvous::File(path.clone()), rank, 2, settings()).err();
    let errors = std::thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| scope.spawn(move || join(rank).expect("no device")));
        ranks.map(|rank| rank.join().expect("no rank panics"))
    });
    let said = expected.to_string();
    for error in errors {
        let JoinError::Rdma(error) = error else { panic!("{error}") };
        assert_eq!(error.to_string(), said);
    }
    let names_what_to_do = ["install the packages", "load the kernel's module", "`rdma link add"];
    assert!(names_what_to_do.iter().any(|text| said.contains(text)), "{said}");
}

fn a_device_that_does_not_exist_is_refused() {
    let device = Some("none".to_owned());
    let settings = RdmaSettings { device, ..RdmaSettings::new(Security::FileKey) };
    let error = RdmaGroup::join(&Rendezvous::File(name()), 0, 1, settings).err().expect("no such device");
    let JoinError::Rdma(RdmaError::NoPort { refused, .. }) = &error else { panic!("{error}") };
    assert!(refused.iter().all(|port| port.to_string().ends_with("the settings name")), "{refused:?}");
}
