//! A running board becomes another one: streams join and leave, and those that stay do not notice.
//!
//! [`Running::reload`] compares, [`Reload::prepare`] loads models and opens outputs, on any thread and for as long as that
//! takes, and [`Running::apply`] lets streams join and leave, at once. A stream stays if nothing about it has changed, its
//! models and their files included.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use orinoco_board::{Board, BoardModel, BoardStream};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, ModelId, codes};
use orinoco_infer::Scratch;
use orinoco_model::{Model, Repository};
use orinoco_pipeline::{BoundPlan, Hold, LaneEntry};

use crate::LoadedModel;
use crate::outputs::{Earlier, TakenFiles, open_sinks};
use crate::planning::{Room, plan_with_rooms};
use crate::process::give_back_freed;
use crate::run::{KnownModel, OpenStream, Plans, Running, Shared, check_states, collect};

/// A change that is wanted.
pub struct Reload {
    board: Board,
    /// The models known so far, and for each model of the board which of them it is, once that has been looked up.
    models: Vec<KnownModel>,
    same: Vec<Option<usize>>,
    /// The streams that ran when this was asked for.
    running: Vec<Seen>,
    lanes: Vec<Option<LaneSeen>>,
    /// Files that this run writes or has written, and those that the caller writes.
    written: TakenFiles,
    own: TakenFiles,
    shared: Shared,
}

/// A stream that has not been asked to leave.
struct Seen {
    index: usize,
    spec: BoardStream,
    /// Where it runs; `None` when it has ended.
    lane: Option<usize>,
}

/// A lane that has not ended.
struct LaneSeen {
    entry: LaneEntry,
    scratch: Option<Scratch>,
    /// Those that stay, and those that join.
    streams: usize,
}

/// A change whose models are proved and whose outputs are open.
pub struct Ready {
    board: Board,
    models: Vec<KnownModel>,
    pub(crate) joining: Vec<OpenStream>,
    /// By lane.
    plans: Vec<Plans>,
    /// Models that lanes have already, so that they are there when the streams join.
    _holds: Vec<Hold>,
    leaving: Vec<usize>,
}

/// What became of a reload.
#[derive(Clone, Debug, Default)]
pub struct Reloaded {
    /// Names of the streams that joined.
    pub joined: Vec<String>,
    /// Names of the streams that were asked to leave. One that has changed leaves and joins.
    pub left: Vec<String>,
    /// How many streams stayed.
    pub stayed: usize,
    /// Why streams could not join.
    pub faults: Vec<Diagnosis>,
}

impl Running {
    /// Compares a board with the one that runs. What only a restart can change is refused.
    pub fn reload(&self, board: Board) -> Result<Reload, Diagnosis> {
        let fixed = [
            ("lanes", board.lanes != self.board.lanes),
            ("[memory]", board.memory != self.board.memory),
            ("[inference]", board.inference != self.board.inference),
        ];
        if let Some((key, _)) = fixed.iter().find(|(_, changed)| *changed) {
            let cause = format!("`{key}` has changed, and holds for a whole run");
            let next = "restart the daemon, or change it back";
            return Err(Diagnosis::new(&codes::RELOAD, format!("board {}", board.name), cause, next));
        }
        let scratch = |lane: usize| self.memory.as_ref().map(|memory| memory.scratches[lane].clone());
        let lanes = self.lanes.iter().enumerate().map(|(index, lane)| {
            let entry = lane.entry.clone();
            (!lane.has_ended()).then(|| LaneSeen { entry, scratch: scratch(index), streams: 0 })
        });
        let running = self.streams.iter().enumerate().filter(|(_, stream)| !stream.left);
        let running = running.map(|(index, stream)| {
            let (spec, lane) = (stream.spec.clone(), stream.runs_on());
            Seen { index, spec, lane }
        });
        Ok(Reload {
            board,
            models: self.models.clone(),
            same: Vec::new(),
            running: running.collect(),
            lanes: lanes.collect(),
            written: self.written(),
            own: self.own.clone(),
            shared: self.shared.clone(),
        })
    }

    /// Lets streams join, then asks those to leave that are gone from the board or have changed. One that could not join
    /// leaves the others as they are, and itself as it was before.
    pub fn apply(&mut self, ready: Ready) -> Reloaded {
        let Ready { board, models, joining, mut plans, mut leaving, _holds } = ready;
        self.models = models;
        self.shared.count(&self.models);
        let mut done = Reloaded::default();
        for stream in joining {
            let (lane, name) = (stream.lane, stream.spec.name.clone());
            let entry = self.lanes[lane].entry.clone();
            match self.start_stream(stream, &mut plans[lane], &entry) {
                Ok(()) => done.joined.push(name),
                Err(why) => {
                    leaving.retain(|&index| self.streams[index].spec.name != name);
                    done.faults.push(why);
                }
            }
        }
        for index in leaving {
            self.leave(index);
            done.left.push(self.streams[index].spec.name.clone());
        }
        done.stayed = self.streams.iter().filter(|stream| !stream.left).count() - done.joined.len();
        self.board = board;
        done
    }
}

impl Reload {
    /// Plans memory, loads the models that are new, and opens the outputs of the streams that join. Takes as long as loading
    /// models takes; the board runs on meanwhile.
    pub fn prepare(mut self, repository: &Repository) -> Result<Ready, Faults> {
        let rooms = self.check_memory(repository)?;
        self.same = self.find_known(repository)?;
        self.forget_states();
        let mut loaded = self.load_new(repository)?;
        let rooms: BTreeMap<usize, Room> = self.same.iter().copied().flatten().zip(rooms).collect();
        let placed = self.board.streams.iter().map(|stream| self.placed(stream));
        let streams = placed.collect::<Option<Vec<BoardStream>>>().expect("new models are known by now");
        check_states(&streams, &self.models)?;
        let stays = |seen: &&Seen| streams.contains(&seen.spec);
        let (stay, leave): (Vec<&Seen>, Vec<&Seen>) = self.running.iter().partition(stays);
        let leaving = leave.iter().map(|seen| seen.index).collect();
        let new: Vec<BoardStream> =
            streams.iter().filter(|stream| !stay.iter().any(|seen| seen.spec == **stream)).cloned().collect();
        for lane in stay.iter().filter_map(|seen| seen.lane) {
            self.lanes[lane].iter_mut().for_each(|lane| lane.streams += 1);
        }
        let mut plans: Vec<Plans> = self.lanes.iter().map(|_| Plans::new()).collect();
        let mut taken = TakenFiles::of_board(&self.board, repository);
        taken.extend(&self.own);
        taken.extend(&self.written);
        let outputs = open_sinks(&new, &mut taken, &self.written, Earlier::Kept)?;
        let (mut holds, mut joining) = (Vec::new(), Vec::new());
        for (stream, outputs) in new.into_iter().zip(outputs) {
            let needed = stream.models.iter().map(|model| rooms[model]).fold(Room::default(), Room::or);
            let lane = self.lane_for(&stream, needed)?;
            holds.extend(self.bring(&stream, lane, &mut plans[lane], &mut loaded, repository)?);
            joining.push((stream, outputs, lane));
        }
        // Last, since it begins the outputs: what fails before leaves none behind.
        let open = |(stream, outputs, lane)| OpenStream::new(&stream, outputs, lane, &self.models);
        let joining = collect(joining.into_iter().map(open))?;
        give_back_freed();
        Ok(Ready { board: self.board, models: self.models, joining, plans, leaving, _holds: holds })
    }

    /// Checks the board against its budget, and returns what each of its models needs to compute in.
    fn check_memory(&self, repository: &Repository) -> Result<Vec<Room>, Faults> {
        let planned = plan_with_rooms(
            &self.board,
            &self.shared.engines,
            repository,
            &*self.shared.events,
            &self.shared.stop,
        )?;
        Ok(planned.map_or_else(|| vec![Room::default(); self.board.models.len()], |(_, rooms)| rooms))
    }

    /// Which of the known models each of the board's is. One whose file or description has changed since is another.
    fn find_known(&self, repository: &Repository) -> Result<Vec<Option<usize>>, Faults> {
        let find = |spec: &BoardModel| {
            let latest = self.models.iter().rposition(|known| known.spec == *spec);
            let Some(latest) = latest else { return Ok(None) };
            let is_same = Origin::of(spec, repository)? == self.models[latest].origin;
            Ok(is_same.then_some(latest))
        };
        collect(self.board.models.iter().map(find))
    }

    /// A stream that joins begins with a state of its own: a model that carries one goes on only where its stream does.
    fn forget_states(&mut self) {
        let stays = |stream: &BoardStream| {
            let placed = self.placed(stream);
            self.running.iter().any(|seen| placed.as_ref() == Some(&seen.spec))
        };
        let joining = self.board.streams.iter().filter(|stream| !stays(stream));
        let models: Vec<usize> = joining.flat_map(|stream| stream.models.iter().copied()).collect();
        for model in models {
            let known = &mut self.same[model];
            *known = known.filter(|&known| !self.models[known].has_state);
        }
    }

    /// Loads the models that are not known, and makes them known.
    fn load_new(&mut self, repository: &Repository) -> Result<Vec<Option<LoadedModel>>, Faults> {
        let mut loaded: Vec<Option<LoadedModel>> = self.models.iter().map(|_| None).collect();
        for (spec, same) in self.board.models.iter().zip(&mut self.same) {
            if same.is_none() {
                self.shared.check_stop(&self.board)?;
                let events = &*self.shared.events;
                let (known, model) = KnownModel::load(spec, &self.shared.engines, repository, events)?;
                *same = Some(self.models.len());
                self.models.push(known);
                loaded.push(Some(model));
            }
        }
        Ok(loaded)
    }

    /// A stream of the new board, whose models are places in the list of known ones; `None` if one is not known.
    fn placed(&self, stream: &BoardStream) -> Option<BoardStream> {
        let models = stream.models.iter().map(|model| self.same[*model]).collect::<Option<_>>()?;
        Some(BoardStream { models, ..stream.clone() })
    }

    /// The lane that a stream names, else the one with the fewest streams. The areas of a run are mapped once: the stream's
    /// models must fit into that of its lane.
    fn lane_for(&mut self, stream: &BoardStream, needed: Room) -> Result<usize, Diagnosis> {
        let lanes = self.lanes.iter_mut().enumerate();
        let running = lanes.filter_map(|(index, lane)| Some((index, lane.as_mut()?)));
        let wanted = running.filter(|(index, _)| stream.lane.is_none_or(|wanted| wanted == *index));
        let (fit, small): (Vec<_>, Vec<_>) = wanted.partition(|(_, lane)| needed.fits(lane.room()));
        let fewest = fit.into_iter().min_by_key(|(index, lane)| (lane.streams, *index));
        let (index, lane) = fewest.ok_or_else(|| {
            let rooms = small.iter().map(|(_, lane)| lane.room());
            let largest = rooms.max_by_key(|room| (room.device_bytes, room.host_bytes));
            let cause = match (largest, stream.lane) {
                (Some(there), _) => needed.why_not(there),
                (None, Some(lane)) => format!("lane {lane} has ended with its last stream, or never had one"),
                (None, None) => "the run has ended".to_owned(),
            };
            let next = "restart the daemon: it plans anew";
            Diagnosis::new(&codes::RELOAD, format!("stream {}", stream.name), cause, next)
        })?;
        lane.streams += 1;
        Ok(index)
    }

    /// Holds those of a stream's models that its lane has, and adds plans of the others.
    fn bring(
        &self,
        stream: &BoardStream,
        lane: usize,
        plans: &mut Plans,
        loaded: &mut [Option<LoadedModel>],
        repository: &Repository,
    ) -> Result<Vec<Hold>, Faults> {
        let mut holds = Vec::new();
        for &model in &stream.models {
            let there =
                self.lanes[lane].as_ref().and_then(|seen| seen.entry.hold(ModelId::from_index(model)));
            if there.is_none() && !plans.contains_key(&model) {
                plans.insert(model, self.plan(model, lane, &mut loaded[model], repository)?);
            }
            holds.extend(there);
        }
        Ok(holds)
    }

    /// A plan of `model` for a lane that has none.
    fn plan(
        &self,
        model: usize,
        lane: usize,
        loaded: &mut Option<LoadedModel>,
        repository: &Repository,
    ) -> Result<BoundPlan, Faults> {
        if loaded.is_none() {
            let (known, events) = (&self.models[model], &*self.shared.events);
            let (now, again) = KnownModel::load(&known.spec, &self.shared.engines, repository, events)?;
            if now.origin != known.origin {
                let subject = format!("model {}", known.names.name);
                let cause = "its files have changed just now";
                let next = "reload the board file again";
                return Err(Diagnosis::new(&codes::RELOAD, subject, cause, next).into());
            }
            *loaded = Some(again);
        }
        let loaded = loaded.as_mut().expect("it was loaded above");
        let scratch = self.lanes[lane].as_ref().and_then(|seen| seen.scratch.as_ref());
        Ok(self.shared.bind(model, loaded, scratch)?)
    }
}

impl LaneSeen {
    /// What its models have to compute in; without a plan, as much as they want.
    fn room(&self) -> Room {
        self.scratch.as_ref().map_or(Room { host_bytes: u64::MAX, device_bytes: u64::MAX }, Room::of)
    }
}

/// What a model was made from.
#[derive(Clone, PartialEq)]
pub(crate) struct Origin {
    /// Its description with its labels; `None` where it was guessed from the file.
    described: Option<Model>,
    /// Length of the ONNX file, and when it was written.
    stamp: Option<(u64, SystemTime)>,
}

impl Origin {
    pub(crate) fn of(spec: &BoardModel, repository: &Repository) -> Result<Self, Faults> {
        // The ONNX file is not read: loading the model checks its hash, and the stamp says whether it has changed since.
        let described = repository.read_description(&spec.model)?;
        let file = described.as_ref().map_or(Path::new(&spec.model), |model| &model.file);
        let metadata = file.metadata().ok();
        let stamp = metadata.and_then(|metadata| Some((metadata.len(), metadata.modified().ok()?)));
        Ok(Self { described, stamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::{board, demo_model, known, repository, shared};
    use orinoco_pipeline::Lane;
    use std::fs;
    use std::path::PathBuf;

    /// A reload to a board of one stream that runs through one model, which is known.
    fn reload(folder: &str) -> Reload {
        let mut board = board(2, &[("a", "test://ball")]);
        board.models.push(BoardModel::new("m", folder));
        board.streams[0].models.push(0);
        let (written, own) = (TakenFiles::default(), TakenFiles::default());
        let (models, running) = (vec![known(folder)], Vec::new());
        Reload { board, models, same: Vec::new(), running, lanes: Vec::new(), written, own, shared: shared() }
    }

    #[test]
    fn every_change_of_a_model_is_noticed() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let (folder, demo) = (dir.path().display().to_string(), PathBuf::from(demo_model()));
        let put = |version: &str| {
            fs::create_dir(dir.path().join(version)).expect("made");
            let to = dir.path().join(version).join("model.onnx");
            fs::copy(demo.join("1/model.onnx"), to).expect("copied");
        };
        let text = fs::read_to_string(demo.join("model.toml")).expect("readable");
        let toml = dir.path().join("model.toml");
        put("1");
        fs::write(&toml, &text).expect("written");
        let reload = reload(&folder);
        let find = || reload.find_known(&repository()).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(find(), [Some(0)]);
        assert!(text.contains("[\"person\"]"));
        fs::write(&toml, text.replace("[\"person\"]", "[\"human\"]")).expect("written");
        assert_eq!(find(), [None], "other labels");
        fs::write(&toml, &text).expect("written");
        assert_eq!(find(), [Some(0)]);
        put("2");
        assert_eq!(find(), [None], "a newer version");
    }

    #[test]
    fn only_loading_a_model_checks_its_hash() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let demo = PathBuf::from(demo_model());
        fs::create_dir(dir.path().join("1")).expect("made");
        fs::copy(demo.join("1/model.onnx"), dir.path().join("1/model.onnx")).expect("copied");
        let text = fs::read_to_string(demo.join("model.toml")).expect("readable");
        let other = text.lines().filter(|line| !line.starts_with("sha256"));
        let text = format!("sha256 = '00'\n{}\n", other.collect::<Vec<_>>().join("\n"));
        fs::write(dir.path().join("model.toml"), text).expect("written");
        let spec = BoardModel::new("m", dir.path().display().to_string());
        assert!(Origin::of(&spec, &repository()).is_ok(), "it is not read");
        let refused = KnownModel::load(&spec, &shared().engines, &repository(), &*shared().events);
        let faults = refused.map(drop).expect_err("it is another file");
        assert_eq!(faults.as_slice()[0].code.id, codes::MODEL_HASH.id);
    }

    #[test]
    fn a_state_goes_on_only_where_its_stream_does() {
        let mut reload = reload(&demo_model());
        reload.models[0].has_state = true;
        let spec = reload.board.streams[0].clone();
        reload.running.push(Seen { index: 0, spec, lane: Some(0) });
        reload.same = vec![Some(0)];
        reload.forget_states();
        assert_eq!(reload.same, [Some(0)], "it stays");
        reload.board.streams[0].queue_frames = 9;
        reload.forget_states();
        assert_eq!(reload.same, [None], "it starts anew");
    }

    #[test]
    fn a_stream_joins_a_lane_that_has_room_for_its_models() {
        let mut reload = reload(&demo_model());
        let shared = shared();
        let lane = |bytes: usize, streams: usize| {
            let (_, entry) = Lane::new(shared.clock.clone(), shared.events.clone(), shared.stats.clone());
            Some(LaneSeen { entry, scratch: Some(Scratch::new(bytes).expect("there is room")), streams })
        };
        reload.lanes = vec![lane(1 << 20, 3), lane(1 << 12, 0), None];
        let mut stream = reload.board.streams[0].clone();
        let host = |host_bytes| Room { host_bytes, device_bytes: 0 };
        assert_eq!(reload.lane_for(&stream, host(1 << 12)).expect("both have room"), 1, "the fewest streams");
        assert_eq!(reload.lane_for(&stream, host(1 << 20)).expect("one has room"), 0);
        let mut refused = |lane, needed| {
            stream.lane = lane;
            reload.lane_for(&stream, needed).expect_err("no lane has room").cause
        };
        let host_short = refused(None, host(3 << 20));
        assert!(host_short.contains("needs 2.0 MiB more to compute in than the 1.0 MiB"), "{host_short}");
        assert!(refused(None, host((1 << 20) + 1)).contains("needs less than 0.1 MiB more"));
        assert!(refused(Some(1), host(1 << 20)).contains("than the less than 0.1 MiB"));
        let on_device = refused(None, Room { host_bytes: 0, device_bytes: 1 });
        assert!(on_device.contains("less than 0.1 MiB more on the GPU"), "{on_device}");
        assert!(refused(Some(2), host(0)).contains("has ended"));
    }
}
