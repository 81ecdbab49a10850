//! The flight record of a group as JSON.

use std::time::Duration;

use orinoco_collective::{FlightRecord, OperationRecord, OperationState, RankWaits};
use serde_json::{Value, json};

/// Describes a record as one JSON object. Times are in ms.
pub(crate) fn json(record: &FlightRecord) -> String {
    let value = json!({
        "rank": record.rank,
        "operations": record.operations.iter().map(operation).collect::<Vec<_>>(),
        "waits": record.statistics.waits.iter().map(waits).collect::<Vec<_>>(),
        "failure": record.failure,
    });
    value.to_string()
}

fn operation(operation: &OperationRecord) -> Value {
    let (state, ended) = match operation.state {
        OperationState::UnderWay => ("under way", None),
        OperationState::Done { ended } => ("done", Some(ended)),
        OperationState::Failed { ended } => ("failed", Some(ended)),
    };
    let longest =
        operation.longest.map(|(rank, waited)| json!({ "rank": rank, "waited_ms": millis(waited) }));
    json!({
        "number": operation.number,
        "call": operation.call.to_string(),
        "state": state,
        "began_ms": millis(operation.began),
        "ended_ms": ended.map(millis),
        "waited_ms": millis(operation.waited),
        "longest": longest,
    })
}

fn waits(waits: &RankWaits) -> Value {
    json!({ "count": waits.count, "waited_ms": millis(waits.waited), "longest_ms": millis(waits.longest) })
}

/// Milliseconds, to the microsecond.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}
