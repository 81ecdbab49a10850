use std::sync::Mutex;

use expect_test::{Expect, expect};
use orinoco_board::{BoardModel, BoardStream};
use orinoco_infer::Scratch;
use orinoco_telemetry::Event;

use super::*;
use crate::placement::LaneView;
use crate::testing::{board, uri};

const MIB: u64 = 1 << 20;

/// Source with 16 slots of 192 KiB each, which is 3 MiB.
const SOURCE: &str = "test://ball?width=512&height=256";

/// Run of a board with a budget, whose changes are admitted and applied step by step.
struct Run {
    board: Board,
    memory: RunMemory,
    /// Areas of its lanes, in MiB.
    areas: BTreeMap<usize, u64>,
    /// Running streams, with their lane.
    streams: BTreeMap<String, (StreamId, usize)>,
    next: u32,
    table: Table,
}

/// Table of the latest refusal.
#[derive(Default)]
struct Table(Mutex<String>);

impl EventSink for Table {
    fn emit(&self, event: Event) {
        if let Event::MemoryRefused { refused, .. } = event {
            *self.0.lock().expect("not poisoned") = refused.to_string();
        }
    }
}

/// Number of models of the test's boards. Model N has N MiB of weights, needs N/2 MiB of scratch memory, and 2 N MiB to
/// build.
const MODELS: usize = 20;

impl Run {
    fn new(lanes: usize, budget_mebibytes: u64) -> Self {
        let models = (0..MODELS).map(|model| BoardModel::new(format!("m{model}"), "m"));
        let board =
            Board { memory: Some(budget_mebibytes * MIB), models: models.collect(), ..board(lanes, &[]) };
        let memory = RunMemory::new(budget_mebibytes * MIB, lanes);
        let (areas, streams, table) = (BTreeMap::new(), BTreeMap::new(), Table::default());
        Self { board, memory, areas, streams, next: 0, table }
    }

    /// Requests a board of streams, each with a model. Returns the lanes of the streams that join, or the reason of the
    /// refusal.
    fn reload(&mut self, wanted: &[(&str, usize)]) -> Result<Vec<usize>, String> {
        let streams = wanted.iter().map(|(name, model)| BoardStream::new(*name, uri(SOURCE), vec![*model]));
        self.board.streams = streams.collect();
        let is_joining = |index: &usize| !self.streams.contains_key(wanted[*index].0);
        let joining: Vec<usize> = (0..wanted.len()).filter(is_joining).collect();
        let staying = wanted.iter().filter_map(|(name, _)| self.streams.get(*name));
        let (staying, on): (Vec<StreamId>, Vec<usize>) = staying.copied().unzip();
        let measured =
            (0..MODELS as u64).map(|model| Measured::on_host(model * MIB, model * MIB / 2, 2 * model * MIB));
        let measured: Vec<Arc<Measured>> = measured.map(Arc::new).collect();
        let revisions: Vec<String> = (0..MODELS).map(|model| format!("model {model}")).collect();
        let asked = AdmissionRequest {
            board: &self.board,
            joining: &joining,
            staying: &staying,
            memory: Some(MemoryRequest {
                run: &self.memory,
                measured: &measured,
                revisions: &revisions,
                loaded: &[],
                stale: &[],
            }),
        };
        let view = |lane: usize| LaneView {
            entry: None,
            scratch: self.areas.get(&lane).map(|mib| Scratch::new((mib * MIB) as usize).expect("mapped")),
            streams: on.iter().filter(|of| **of == lane).count(),
        };
        let lanes = LaneViews { lanes: (0..self.board.lanes).map(view).collect() };
        let admission = match self.next {
            0 => admit_start(&asked, &self.table),
            _ => admit_reload(&asked, &lanes, &self.table),
        };
        let Admission { lanes, memory } = admission.map_err(|why| why.to_string())?;
        let admitted = memory.expect("the board has a budget");
        for (lane, scratch_size) in &admitted.areas {
            self.areas.insert(*lane, scratch_size.host_bytes.div_ceil(MIB));
        }
        let mut joined = Vec::new();
        for (index, lane) in joining.iter().zip(&lanes) {
            let id = StreamId(self.next);
            self.next += 1;
            self.streams.insert(wanted[*index].0.to_owned(), (id, *lane));
            joined.push((id, wanted[*index].0));
        }
        let on_board = wanted.iter().map(|(name, _)| *name);
        self.memory.apply(admitted, joined.into_iter(), on_board.clone(), std::iter::empty());
        self.streams.retain(|name, _| on_board.clone().any(|wanted| wanted == name));
        Ok(lanes)
    }

    /// Requests a board without some streams, and lets those end.
    fn leave(&mut self, left: &[&str], stay: &[(&str, usize)]) {
        let ids: Vec<StreamId> = left.iter().map(|name| self.streams[*name].0).collect();
        self.reload(stay).expect("less fits");
        ids.into_iter().for_each(|id| self.memory.release(id));
        self.areas.retain(|lane, _| self.memory.area(*lane).is_some());
    }

    fn check_refused(&mut self, wanted: &[(&str, usize)], expected: Expect) {
        let why = self.reload(wanted).expect_err("it does not fit");
        let table = std::mem::take(&mut *self.table.0.lock().expect("not poisoned"));
        expected.assert_eq(&format!("{why}\n{table}\n"));
    }
}

#[test]
fn a_change_counts_what_runs_what_is_new_and_what_building_takes() {
    // The first stream takes 3 + 4 + 2 MiB and the second 3 + 6 + 3 MiB; building its model takes 12 MiB temporarily.
    let mut run = Run::new(2, 9 + 12 + 12);
    assert_eq!(run.reload(&[("a", 4)]), Ok(vec![0]));
    assert_eq!(run.reload(&[("a", 4), ("b", 6)]), Ok(vec![1]), "its lane is given an area");
    assert_eq!((run.memory.running().bytes(), &run.areas), (21 * MIB, &[(0, 2), (1, 3)].into()));
    run.leave(&["b"], &[("a", 4)]);
    assert_eq!((run.memory.running().bytes(), &run.areas), (9 * MIB, &[(0, 2)].into()));
    assert_eq!(run.reload(&[("a", 4), ("b", 6)]), Ok(vec![1]), "it fits again");

    let mut run = Run::new(2, 9 + 12 + 12 - 1);
    assert_eq!(run.reload(&[("a", 4)]), Ok(vec![0]));
    run.check_refused(
        &[("a", 4), ("b", 6)],
        expect![[r#"
            board test: it is 1.0 MiB over its memory budget of 32.0 MiB during the reload; remove model `m6@1`, or restart the daemon: the new board fits on its own
            the reload would exceed the memory budget while old and new are both loaded: 1.0 MiB over budget (board)
            NAME           KIND     DOMAIN   MIB     BYTES  CHANGE
            m4             weights  host     4.0   4194304  stays
            lane 0 (m4)    scratch  host     2.0   2097152  stays
            a              frames   host     3.0   3145728  stays
            m6@1           weights  host     6.0   6291456  added
            lane 1 (m6@1)  scratch  host     3.0   3145728  added
            b              frames   host     3.0   3145728  added
            building                board   12.0  12582912
            peak                    board   33.0  34603008
            budget                  board   32.0  33554432
            the smallest change that fits: remove model `m6@1`; then the peak is 24.0 MiB
            after the change the total is 21.0 MiB: restart the daemon to load the new board, or set a budget of at least 33 MiB (board)
        "#]],
    );
    assert_eq!(run.memory.running().bytes(), 9 * MIB, "what runs goes on");
    run.check_refused(
        &[("a", 4), ("b", 4), ("c", 12)],
        expect![[r#"
            board test: it is 5.0 MiB over its memory budget of 32.0 MiB; remove model `m4`, or restart the daemon: the new board fits on its own
            the memory budget is exceeded: 5.0 MiB over budget (board)
            NAME            KIND     DOMAIN   MIB     BYTES  BASIS
            m12@1           weights  host    12.0  12582912  measured
            m4              weights  host     4.0   4194304  measured
            m4@1            weights  host     4.0   4194304  measured
            lane 0 (m4)     scratch  host     2.0   2097152  measured
            lane 1 (m12@1)  scratch  host     6.0   6291456  measured
            a               frames   host     3.0   3145728  computed
            b               frames   host     3.0   3145728  computed
            c               frames   host     3.0   3145728  computed
            total                    board   37.0  38797312
            budget                   board   32.0  33554432
            too many                 board    5.0   5242880
            the smallest change that fits: remove model `m4`; then the total is 31.0 MiB
        "#]],
    );
}

#[test]
fn where_memory_is_short_a_stream_shares_a_lane() {
    // On a lane of its own, the model would be loaded twice, and building it takes 8 MiB.
    let mut run = Run::new(2, 9 + 9 + 8);
    assert_eq!(run.reload(&[("a", 4)]), Ok(vec![0]));
    assert_eq!(run.reload(&[("a", 4), ("b", 4)]), Ok(vec![1]));
    let mut run = Run::new(2, 9 + 9 + 8 - 1);
    assert_eq!(run.reload(&[("a", 4)]), Ok(vec![0]));
    assert_eq!(run.reload(&[("a", 4), ("b", 4)]), Ok(vec![0]));
    assert_eq!(run.memory.running().bytes(), 12 * MIB);
}

#[test]
fn a_start_is_admitted_by_its_plan_alone() {
    let mut run = Run::new(1, 9);
    assert_eq!(run.reload(&[("a", 4)]), Ok(vec![0]));
    let mut run = Run::new(1, 8);
    run.check_refused(
        &[("a", 4)],
        expect![[r#"
            board test: it is 1.0 MiB over its memory budget of 8.0 MiB; set budget = "9 MiB" or more
            the memory budget is exceeded: 1.0 MiB over budget (board)
            NAME         KIND     DOMAIN  MIB    BYTES  BASIS
            m4           weights  host    4.0  4194304  measured
            lane 0 (m4)  scratch  host    2.0  2097152  measured
            a            frames   host    3.0  3145728  computed
            total                 board   9.0  9437184
            budget                board   8.0  8388608
            too many              board   1.0  1048576
            no single change fits; the smallest sufficient budget is 9 MiB (board)
        "#]],
    );
}

#[test]
fn a_lane_that_failed_is_started_again_where_it_was() {
    let mut run = Run::new(3, 18);
    let wanted = [("a", 4), ("b", 4)];
    assert_eq!(run.reload(&wanted), Ok(vec![0, 1]));
    let (b, _) = run.streams.remove("b").expect("it runs");
    run.memory.lose(b);
    assert_eq!(run.reload(&wanted), Ok(vec![1]), "building it again takes no more than it had");
    assert_eq!(run.memory.running().bytes(), 18 * MIB);
}
