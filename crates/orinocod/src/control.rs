//! Control socket of the daemon: opened as the board file says, and connected with the run.

use std::path::Path;
use std::sync::Arc;

use orinoco_api::{CLUSTER_MODELS_SCHEMA, ClusterModels, Dump, EventJson, Status};
use orinoco_board::{ControlSpec, SocketSpec};
use orinoco_core::{Clock, Diagnosis, codes};
use orinoco_otlp::Counts;
use orinoco_runtime::Monitor;
use orinoco_server::{
    Limits, Listeners, LocalSocket, LoopbackListener, ModelPart, Monitored, Server, SocketSetting,
};
use orinoco_telemetry::Metric;

use crate::cluster::ClusterView;
use crate::journal::{self, Level};
use crate::seats::SeatLinks;

/// Opens the control socket and the TCP listener that the board file has, and starts their server; `None` if there are
/// neither. A socket that the board file does not name and that cannot be created is a warning: the board runs without it.
///
/// # Errors
///
/// The socket or address that the board file names cannot be used.
pub(crate) fn open(control: &ControlSpec, clock: Arc<dyn Clock>) -> Result<Option<Server>, Diagnosis> {
    let socket = match &control.socket {
        SocketSpec::Off => None,
        SocketSpec::At(path) => Some(LocalSocket::bind(path, SocketSetting::CONTROL)?),
        SocketSpec::Usual => {
            LocalSocket::bind(Path::new(SocketSpec::USUAL_PATH), SocketSetting::CONTROL).map_err(warn).ok()
        }
    };
    let tcp = control.listen.map(LoopbackListener::bind).transpose()?;
    if socket.is_none() && tcp.is_none() {
        return Ok(None);
    }
    let path = socket.as_ref().map_or_else(|| "-".to_owned(), |socket| socket.path().display().to_string());
    let address = tcp.as_ref().map_or_else(|| "-".to_owned(), |tcp| tcp.address().to_string());
    let server = Server::start(Listeners { socket, tcp }, Limits::default(), clock)?;
    journal::log(Level::Info, &format!("control socket={path} listen={address}"));
    Ok(Some(server))
}

fn warn(fault: Diagnosis) {
    journal::log(Level::Warning, &format!("running without a control socket: {} {fault}", fault.code.id));
}

/// Run that a control socket reports on.
pub(crate) struct MonitoredRun {
    monitor: Monitor,
    /// The board's seat in a cluster, where it has one.
    cluster: Option<ClusterView>,
    links: Arc<SeatLinks>,
    /// Counts of the OTLP exporter, where there is one.
    otlp: Option<Arc<Counts>>,
    /// Whether metrics have the names of Triton Inference Server, too.
    nv_inference: bool,
}

impl MonitoredRun {
    /// Creates the view of a run for its control socket.
    pub(crate) fn new(
        monitor: Monitor,
        cluster: Option<ClusterView>,
        links: Arc<SeatLinks>,
        otlp: Option<Arc<Counts>>,
        nv_inference: bool,
    ) -> Self {
        Self { monitor, cluster, links, otlp, nv_inference }
    }
}

impl Monitored for MonitoredRun {
    fn status(&self) -> Status {
        let cluster = self.cluster.as_ref().map(|cluster| {
            let mut status = cluster.status();
            for seat in &mut status.seats {
                seat.answers = self.links.waits().of(&seat.name);
            }
            status
        });
        Status { cluster, ..self.monitor.status() }
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = self.monitor.metrics(self.nv_inference);
        metrics.extend(self.otlp.iter().flat_map(|counts| counts.metrics()));
        metrics.extend(self.links.waits().metrics());
        metrics
    }

    fn events_after(&self, number: u64) -> Vec<EventJson> {
        self.monitor.events_after(number)
    }

    fn on_event(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.monitor.on_event(wake);
    }

    fn dump(&self) -> Dump {
        self.monitor.dump("request")
    }

    fn cluster_models(&self) -> Result<ClusterModels, Diagnosis> {
        let view = self.cluster.as_ref().ok_or_else(|| {
            let cause = "the daemon's board file has no section [cluster]";
            Diagnosis::new(&codes::MODEL_COPY, "the board", cause, "see docs/collectives.md, \"Clusters\"")
        })?;
        Ok(ClusterModels {
            schema: CLUSTER_MODELS_SCHEMA.to_owned(),
            cluster: view.cluster_name().to_owned(),
            seat: view.name().to_owned(),
            seats: self.links.models(),
        })
    }

    fn model_data(&self, part: &ModelPart) -> Result<Vec<u8>, Diagnosis> {
        self.links.model_data(part)
    }
}
