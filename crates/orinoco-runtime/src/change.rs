//! Difference between a running board and a wanted one, as a pure function of the two. Files are checked before, and
//! threads are started afterwards.
//!
//! A start is the change from a board without streams and models.

use std::collections::BTreeSet;

use orinoco_board::{Board, BoardModel, BoardStream};

/// Facts about the models of the running board that its file does not have, by their indices.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelFacts {
    /// Models whose file or description has changed since they were loaded.
    pub(crate) changed: BTreeSet<usize>,
    /// Models that cannot be replaced while streams use them: what is wanted in their place joins with streams of its own.
    pub(crate) irreplaceable: BTreeSet<usize>,
    /// Models with implicit state from frame to frame: a stream that joins needs its own instance.
    pub(crate) stateful: BTreeSet<usize>,
}

/// Difference between two boards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Keys of the board file that differ, but can be changed only by a restart.
    pub(crate) fixed_keys: Vec<&'static str>,
    /// Difference of the models. Those that are replaced are in none of its lists.
    pub(crate) models: Difference,
    /// Models that are replaced while streams use them. Such a model keeps its id, and its streams stay.
    pub(crate) replaced: Vec<StayingEntry>,
    /// Difference of the streams. A stream that has changed leaves and joins, and so does one of whose models one has
    /// changed and is not replaced.
    pub(crate) streams: Difference,
}

/// Difference between two lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Indices into the wanted list, of entries that are new.
    pub(crate) joining: Vec<usize>,
    /// Indices into the running list, of entries that are gone.
    pub(crate) leaving: Vec<usize>,
    /// Entries that are in both lists.
    pub(crate) staying: Vec<StayingEntry>,
}

/// Entry that is in both lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StayingEntry {
    /// Index into the running list.
    pub(crate) running: usize,
    /// Index into the wanted list.
    pub(crate) wanted: usize,
}

impl Change {
    /// Compares the running board with the wanted one.
    pub(crate) fn between(running: &Board, wanted: &Board, facts: &ModelFacts) -> Self {
        let fixed = [
            ("lanes", running.lanes != wanted.lanes),
            ("[memory]", running.memory != wanted.memory),
            ("[inference]", running.inference != wanted.inference),
            ("[control]", running.control != wanted.control),
            ("[sensors]", running.sensors != wanted.sensors),
            ("[otlp]", running.otlp != wanted.otlp),
            ("[cluster]", running.cluster != wanted.cluster),
            ("[governor]", running.governor != wanted.governor),
        ];
        let mut models = same_models(running, wanted, facts);
        let mut replaced = replaceable_models(running, wanted, facts, &models);
        let streams = loop {
            let kept = first_of(&models, &replaced);
            let streams = same_streams(running, wanted, &kept);
            if !renew_states(&streams, wanted, facts, &mut models) {
                break streams;
            }
        };
        keep_used(&mut replaced, wanted, &streams);
        let known = first_of(&models, &replaced);
        let is_replaced = |wanted: &usize| replaced[*wanted].is_some();
        let mut models = Difference::of(running.models.len(), &known);
        let entries = models.staying.extract_if(.., |entry| is_replaced(&entry.wanted)).collect();
        Self {
            fixed_keys: fixed.into_iter().filter_map(|(key, differs)| differs.then_some(key)).collect(),
            models,
            replaced: entries,
            streams: Difference::of(running.streams.len(), &streams),
        }
    }

    /// Returns the models of the running board, by their indices, that the wanted board has otherwise, and because of which
    /// streams leave and join.
    pub(crate) fn restarting_models(&self, running: &Board, wanted: &Board) -> BTreeSet<usize> {
        let leaving = self.streams.leaving.iter().flat_map(|stream| &running.streams[*stream].models);
        let used: BTreeSet<usize> = leaving.copied().collect();
        let is_wanted = |model: &usize| {
            let name = &running.models[*model].name;
            used.contains(model) && wanted.models.iter().any(|wanted| wanted.name == *name)
        };
        self.models.leaving.iter().copied().filter(is_wanted).collect()
    }
}

impl Difference {
    /// Makes the difference. `same` has, for each wanted entry, the index of the same running entry.
    fn of(running: usize, same: &[Option<usize>]) -> Self {
        let pairs = || same.iter().enumerate();
        Self {
            joining: pairs().filter(|(_, running)| running.is_none()).map(|(wanted, _)| wanted).collect(),
            leaving: (0..running).filter(|index| !same.contains(&Some(*index))).collect(),
            staying: pairs()
                .filter_map(|(wanted, running)| Some(StayingEntry { running: (*running)?, wanted }))
                .collect(),
        }
    }
}

/// Finds each wanted model among the running ones. If several have the same settings, the latest is taken. Another inference
/// interval makes no other model, because lanes change it by themselves.
fn same_models(running: &Board, wanted: &Board, facts: &ModelFacts) -> Vec<Option<usize>> {
    let find = |spec| {
        let latest = running.models.iter().rposition(|model: &BoardModel| model.has_same_plan(spec))?;
        (!facts.changed.contains(&latest) && !facts.irreplaceable.contains(&latest)).then_some(latest)
    };
    wanted.models.iter().map(find).collect()
}

/// Finds for each wanted model that is not among the `same` ones the running model that it may replace: the latest of its
/// name, if streams run it on the same frames or objects, and it has no state to lose.
fn replaceable_models(
    running: &Board,
    wanted: &Board,
    facts: &ModelFacts,
    same: &[Option<usize>],
) -> Vec<Option<usize>> {
    let find = |(spec, same): (&BoardModel, &Option<usize>)| {
        let latest = running.models.iter().rposition(|model| model.name == spec.name);
        let latest = latest.filter(|_| same.is_none())?;
        let old = &running.models[latest];
        let is_kept = facts.stateful.contains(&latest) || facts.irreplaceable.contains(&latest);
        (!is_kept && old.on == spec.on).then_some(latest)
    };
    wanted.models.iter().zip(same).map(find).collect()
}

/// Returns for each wanted model the same running one, else the one that it replaces.
fn first_of(same: &[Option<usize>], replaced: &[Option<usize>]) -> Vec<Option<usize>> {
    same.iter().zip(replaced).map(|(same, replaced)| same.or(*replaced)).collect()
}

/// Keeps only the replacements of models that a staying stream uses. Any other model joins with its streams.
fn keep_used(replaced: &mut [Option<usize>], wanted: &Board, streams: &[Option<usize>]) {
    let staying = wanted.streams.iter().zip(streams).filter(|(_, running)| running.is_some());
    let used: BTreeSet<usize> = staying.flat_map(|(stream, _)| stream.models.iter().copied()).collect();
    for (wanted, replaced) in replaced.iter_mut().enumerate() {
        replaced.take_if(|_| !used.contains(&wanted));
    }
}

/// Finds each wanted stream among the running ones. A stream is the same if it has not changed, and each of its models is
/// the same or replaced.
fn same_streams(running: &Board, wanted: &Board, models: &[Option<usize>]) -> Vec<Option<usize>> {
    let find = |stream: &BoardStream| {
        let models = stream.models.iter().map(|model| models[*model]).collect::<Option<_>>()?;
        let placed = BoardStream { models, ..stream.clone() };
        running.streams.iter().position(|stream| *stream == placed)
    };
    wanted.streams.iter().map(find).collect()
}

/// Gives each joining stream new instances of its models with state. Returns whether that changed any model.
fn renew_states(
    streams: &[Option<usize>],
    wanted: &Board,
    facts: &ModelFacts,
    models: &mut [Option<usize>],
) -> bool {
    let joining = wanted.streams.iter().zip(streams).filter(|(_, running)| running.is_none());
    let mut changed = false;
    for &model in joining.flat_map(|(stream, _)| &stream.models) {
        changed |= models[model].take_if(|running| facts.stateful.contains(running)).is_some();
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::uri;
    use orinoco_board::{
        ClusterSpec, ControlSpec, Inference, ObjectSelectionSpec, OtlpSpec, RdmaUse, SensorsSpec,
    };
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    /// Makes a board from small numbers: each model has a name, a batch size and an interval, each stream a name, a latency and models.
    fn board(models: &BTreeMap<u8, u8>, streams: &BTreeMap<u8, (u8, Vec<usize>)>) -> Board {
        let model = |(name, gene): (&u8, &u8)| {
            let (batch, interval) = (usize::from(gene % 2) + 1, u32::from(gene / 2) + 1);
            BoardModel { batch, interval, ..BoardModel::new(format!("m{name}"), format!("f{name}")) }
        };
        let stream = |(name, (latency, used)): (&u8, &(u8, Vec<usize>))| {
            let mut used: Vec<usize> =
                used.iter().filter(|_| !models.is_empty()).map(|m| m % models.len()).collect();
            used.dedup();
            let latency_max = Some(Duration::from_secs(u64::from(*latency)));
            BoardStream { latency_max, ..BoardStream::new(format!("s{name}"), uri("test://ball"), used) }
        };
        Board {
            name: "test".to_owned(),
            inference: Inference::new(Vec::new()),
            memory: None,
            control: ControlSpec::default(),
            sensors: SensorsSpec::default(),
            otlp: None,
            cluster: None,
            governor: None,
            lanes: 1,
            models: models.iter().map(model).collect(),
            streams: streams.iter().map(stream).collect(),
            files: Vec::new(),
        }
    }

    fn boards() -> impl Strategy<Value = Board> {
        let models = prop::collection::btree_map(0..4u8, 0..4u8, 0..4);
        let streams =
            prop::collection::btree_map(0..5u8, (0..2u8, prop::collection::vec(0..4usize, 0..3)), 0..5);
        (models, streams).prop_map(|(models, streams)| board(&models, &streams))
    }

    fn facts() -> impl Strategy<Value = ModelFacts> {
        let set = || prop::collection::btree_set(0..4usize, 0..3);
        let facts = |(changed, irreplaceable, stateful)| ModelFacts { changed, irreplaceable, stateful };
        (set(), set(), set()).prop_map(facts)
    }

    /// Shows a stream so that it can be compared between boards, with its models by their settings.
    fn shown(board: &Board, stream: usize) -> String {
        let stream = &board.streams[stream];
        let models: Vec<&BoardModel> = stream.models.iter().map(|model| &board.models[*model]).collect();
        format!("{} {:?} {models:?}", stream.name, stream.latency_max)
    }

    fn all_shown(board: &Board) -> Vec<String> {
        let mut shown: Vec<String> = (0..board.streams.len()).map(|stream| shown(board, stream)).collect();
        shown.sort();
        shown
    }

    proptest! {
        #[test]
        fn a_board_does_not_differ_from_itself(board in boards()) {
            let change = Change::between(&board, &board, &ModelFacts::default());
            prop_assert!(change.fixed_keys.is_empty());
            for difference in [&change.models, &change.streams] {
                prop_assert!(difference.joining.is_empty() && difference.leaving.is_empty(), "{change:?}");
            }
        }

        #[test]
        fn what_stays_and_what_joins_is_what_is_wanted(from in boards(), to in boards(), facts in facts()) {
            let change = Change::between(&from, &to, &facts);
            // A stream that stays is as it was, but for the models that are replaced.
            let mut renewed = from.clone();
            for model in change.replaced.iter().chain(&change.models.staying) {
                renewed.models[model.running] = to.models[model.wanted].clone();
            }
            let staying = change.streams.staying.iter().map(|stream| shown(&renewed, stream.running));
            let mut result: Vec<String> = staying.collect();
            result.extend(change.streams.joining.iter().map(|stream| shown(&to, *stream)));
            result.sort();
            prop_assert_eq!(result, all_shown(&to));
            let mut models: Vec<usize> = change.models.staying.iter().map(|model| model.wanted).collect();
            models.extend(&change.models.joining);
            models.extend(change.replaced.iter().map(|model| model.wanted));
            models.sort();
            prop_assert_eq!(models, (0..to.models.len()).collect::<Vec<_>>());
            for model in &change.models.staying {
                prop_assert!(from.models[model.running].has_same_plan(&to.models[model.wanted]));
                prop_assert!(!facts.changed.contains(&model.running));
            }
        }

        #[test]
        fn a_model_is_replaced_only_where_a_stream_stays_with_it(from in boards(), to in boards(), facts in facts()) {
            let change = Change::between(&from, &to, &facts);
            let staying = change.streams.staying.iter().flat_map(|stream| &to.streams[stream.wanted].models);
            let used: BTreeSet<usize> = staying.copied().collect();
            for model in &change.replaced {
                let (old, new) = (&from.models[model.running], &to.models[model.wanted]);
                prop_assert!(!old.has_same_plan(new) || facts.changed.contains(&model.running), "it has not changed");
                prop_assert_eq!((&old.name, &old.on), (&new.name, &new.on));
                prop_assert!(!facts.stateful.contains(&model.running), "its state would be lost");
                prop_assert!(!facts.irreplaceable.contains(&model.running));
                prop_assert!(used.contains(&model.wanted), "no stream stays with it");
            }
        }

        #[test]
        fn nothing_both_stays_and_leaves(from in boards(), to in boards(), facts in facts()) {
            let change = Change::between(&from, &to, &facts);
            let none = &Vec::new();
            for (difference, replaced, running) in [
                (&change.models, &change.replaced, from.models.len()),
                (&change.streams, none, from.streams.len()),
            ] {
                let staying = difference.staying.iter().chain(replaced);
                let mut all: Vec<usize> = staying.map(|entry| entry.running).collect();
                all.extend(&difference.leaving);
                all.sort();
                prop_assert_eq!(all, (0..running).collect::<Vec<_>>());
            }
        }

        #[test]
        fn a_state_stays_only_with_its_stream(from in boards(), to in boards(), facts in facts()) {
            let change = Change::between(&from, &to, &facts);
            let joining = || change.streams.joining.iter().flat_map(|stream| &to.streams[*stream].models);
            for model in change.models.staying.iter().filter(|model| facts.stateful.contains(&model.running)) {
                prop_assert!(!joining().any(|joining| *joining == model.wanted), "{change:?}");
            }
        }

        #[test]
        fn the_order_of_streams_in_the_file_does_not_matter(from in boards(), to in boards(), facts in facts()) {
            let mut reversed = to.clone();
            reversed.streams.reverse();
            let names = |board: &Board| {
                let change = Change::between(&from, board, &facts);
                let mut joining: Vec<String> =
                    change.streams.joining.iter().map(|stream| board.streams[*stream].name.clone()).collect();
                joining.sort();
                (joining, change.streams.leaving, change.models, change.replaced)
            };
            prop_assert_eq!(names(&to), names(&reversed));
        }
    }

    #[test]
    fn what_only_a_restart_can_change_is_named() {
        let from = board(&BTreeMap::new(), &BTreeMap::new());
        let keys = |to: &Board| Change::between(&from, to, &ModelFacts::default()).fixed_keys;
        assert_eq!(keys(&Board { lanes: 2, ..from.clone() }), ["lanes"]);
        assert_eq!(keys(&Board { memory: Some(1), ..from.clone() }), ["[memory]"]);
        let control = ControlSpec { nv_inference_metrics: true, ..ControlSpec::default() };
        assert_eq!(keys(&Board { control, ..from.clone() }), ["[control]"]);
        let sensors = SensorsSpec { enabled: false, ..SensorsSpec::default() };
        assert_eq!(keys(&Board { sensors, ..from.clone() }), ["[sensors]"]);
        let otlp = Some(OtlpSpec::default());
        assert_eq!(keys(&Board { otlp, ..from.clone() }), ["[otlp]"]);
        let (list, key) = ("members".into(), "seat.key".into());
        let (rdma, rdma_device) = (RdmaUse::Off, None);
        let operator_key = "0f".repeat(32);
        let (listen, tcp_connections, tcp_encryption) = (None, 1, true);
        let spec = ClusterSpec {
            list,
            key,
            operator_key,
            listen,
            rdma,
            rdma_device,
            tcp_connections,
            tcp_encryption,
            program_socket: None,
            share_models: false,
        };
        let cluster = Some(spec);
        assert_eq!(keys(&Board { cluster, ..from.clone() }), ["[cluster]"]);
        let inference = Inference { threads: 7, ..Inference::new(Vec::new()) };
        assert_eq!(keys(&Board { lanes: 2, inference, ..from.clone() }), ["lanes", "[inference]"]);
        assert!(keys(&Board { name: "other".to_owned(), ..from.clone() }).is_empty());
    }

    #[test]
    fn a_model_that_changed_is_replaced_while_its_stream_stays() {
        let models = BTreeMap::from([(0, 0), (1, 0)]);
        let from = board(&models, &BTreeMap::from([(0, (0, vec![0])), (1, (0, vec![1]))]));
        let on_disk = ModelFacts { changed: BTreeSet::from([1]), ..ModelFacts::default() };
        let change = Change::between(&from, &from, &on_disk);
        let second = StayingEntry { running: 1, wanted: 1 };
        assert_eq!((change.replaced, change.streams.staying.len()), (vec![second], 2));
        assert!(change.models.joining.is_empty() && change.models.leaving.is_empty());

        let mut to = from.clone();
        to.models[1].score_threshold = Some(0.25);
        assert_eq!(Change::between(&from, &to, &ModelFacts::default()).replaced, [second]);
        to.streams.pop();
        let change = Change::between(&from, &to, &ModelFacts::default());
        assert_eq!((change.replaced, change.models.joining), (Vec::new(), vec![1]), "nobody uses it");
    }

    #[test]
    fn a_stream_whose_model_cannot_be_replaced_leaves_and_joins() {
        let models = BTreeMap::from([(0, 0), (1, 0)]);
        let from = board(&models, &BTreeMap::from([(0, (0, vec![0])), (1, (0, vec![1]))]));
        let check = |to: &Board, facts: &ModelFacts| {
            let change = Change::between(&from, to, facts);
            assert_eq!((change.models.joining, change.models.leaving), (vec![1], vec![1]));
            assert_eq!((change.streams.joining, change.streams.leaving), (vec![1], vec![1]));
            assert_eq!(change.streams.staying, [StayingEntry { running: 0, wanted: 0 }]);
            assert!(change.replaced.is_empty());
        };
        let second = || BTreeSet::from([1]);
        check(&from, &ModelFacts { irreplaceable: second(), ..ModelFacts::default() });
        check(&from, &ModelFacts { changed: second(), stateful: second(), ..ModelFacts::default() });
        let mut to = from.clone();
        to.models[1].on = Some(ObjectSelectionSpec {
            model: "m0".to_owned(),
            classes: Vec::new(),
            side_min: 1,
            count_max: 1,
        });
        check(&to, &ModelFacts::default());
        let restarting =
            |to: &Board| Change::between(&from, to, &ModelFacts::default()).restarting_models(&from, to);
        assert_eq!(restarting(&to), second());
        assert!(restarting(&from).is_empty());
        to.streams.pop();
        to.models.pop();
        assert!(restarting(&to).is_empty(), "it is not wanted any more");
    }

    #[test]
    fn a_model_stays_with_another_interval() {
        let models = BTreeMap::from([(0, 0)]);
        let from = board(&models, &BTreeMap::from([(0, (0, vec![0]))]));
        let mut to = from.clone();
        to.models[0].interval = 7;
        let facts = ModelFacts { stateful: BTreeSet::from([0]), ..ModelFacts::default() };
        let change = Change::between(&from, &to, &facts);
        let stays = vec![StayingEntry { running: 0, wanted: 0 }];
        assert_eq!((change.models.staying, change.streams.staying), (stays.clone(), stays));
        to.models[0].score_threshold = Some(0.25);
        let change = Change::between(&from, &to, &ModelFacts::default());
        assert_eq!(change.replaced.len(), 1, "it is replaced, with that interval");
    }

    #[test]
    fn a_stream_does_not_stay_without_the_model_that_it_stays_with() {
        let models = BTreeMap::from([(0, 0), (1, 0)]);
        let both = board(&models, &BTreeMap::from([(0, (0, vec![0, 1]))]));
        let wanted = board(&models, &BTreeMap::from([(0, (0, vec![0, 1])), (1, (0, vec![0, 1]))]));
        // Stream 1 joins with new instances of both models, of which one has a state: so stream 0 joins with them, too.
        for stateful in 0..2 {
            let facts = ModelFacts { stateful: BTreeSet::from([stateful]), ..ModelFacts::default() };
            let change = Change::between(&both, &wanted, &facts);
            let streams = (&change.streams.joining, &change.streams.leaving, change.streams.staying.len());
            assert_eq!(streams, (&vec![0, 1], &vec![0], 0));
        }
    }

    #[test]
    fn a_state_goes_on_only_where_its_stream_does() {
        let models = BTreeMap::from([(0, 0)]);
        let from = board(&models, &BTreeMap::from([(0, (0, vec![0]))]));
        let slower = board(&models, &BTreeMap::from([(0, (1, vec![0]))]));
        let facts = ModelFacts { stateful: BTreeSet::from([0]), ..ModelFacts::default() };
        assert!(Change::between(&from, &from, &facts).models.joining.is_empty(), "it stays");
        assert_eq!(Change::between(&from, &slower, &facts).models.joining, [0], "it starts again");
        assert!(Change::between(&from, &slower, &ModelFacts::default()).models.joining.is_empty());
    }
}
