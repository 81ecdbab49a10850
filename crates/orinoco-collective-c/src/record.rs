//! The flight record of a group as JSON.

use std::time::Duration;

use orinoco_api::{FlightRecordJson, LongestWaitJson, OperationJson, OperationStateJson, RankWaitsJson};
use orinoco_collective::{FlightRecord, OperationRecord, OperationState, RankWaits};

/// Describes a record as one JSON object. Times are in ms.
pub(crate) fn json(record: &FlightRecord) -> String {
    let object = FlightRecordJson {
        failure: record.failure.clone(),
        operations: record.operations.iter().map(operation).collect(),
        rank: record.rank,
        waits: record.statistics.waits.iter().map(waits).collect(),
    };
    serde_json::to_string(&object).expect("a record has only strings and finite numbers")
}

fn operation(operation: &OperationRecord) -> OperationJson {
    let (state, ended) = match operation.state {
        OperationState::UnderWay => (OperationStateJson::UnderWay, None),
        OperationState::Done { ended } => (OperationStateJson::Done, Some(ended)),
        OperationState::Failed { ended } => (OperationStateJson::Failed, Some(ended)),
    };
    let longest = operation.longest.map(|(rank, waited)| LongestWaitJson { rank, waited_ms: millis(waited) });
    OperationJson {
        began_ms: millis(operation.began),
        call: operation.call.to_string(),
        ended_ms: ended.map(millis),
        longest,
        number: operation.number,
        state,
        waited_ms: millis(operation.waited),
    }
}

fn waits(waits: &RankWaits) -> RankWaitsJson {
    RankWaitsJson { count: waits.count, longest_ms: millis(waits.longest), waited_ms: millis(waits.waited) }
}

/// Milliseconds, to the microsecond.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}
