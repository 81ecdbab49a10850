//! Model files between the boards of an epoch, by one-sided transfers: a board registers the files of its models as regions, and a list of
//! them as one more ([`LIST`]). The others read regions without its taking part.

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use orinoco_api::{SeatModels, SharedModel};
use orinoco_collective::TcpGroup;
use orinoco_collective::transfer::{
    Access, Region, RegionHandle, RegionInfo, TransferAgent, TransferError, TransferOptions,
};
use orinoco_core::{Clock, Diagnosis, Nanos, codes};
use orinoco_model::is_portable;
use orinoco_server::ModelPart;
use serde::{Deserialize, Serialize};

use super::own_models::HashedModels;

/// Beginning of the name of the region with the list of a board's models, as JSON. The generation follows.
const LIST: &str = "models ";
/// Version of the list's format.
const LIST_VERSION: u32 = 1;
/// Maximum size of a list: [`FILES_MAX`](super::own_models::FILES_MAX) files with paths of 1 KiB.
const LIST_BYTES_MAX: u64 = 2 << 20;
/// Longest wait for another board. The control socket waits for 3 s.
const WAIT_MAX: Duration = Duration::from_millis(2500);

/// Transfers of one epoch. Dropping it ends them.
pub(super) struct Transfers {
    agent: TransferAgent,
    /// Names of the seats, by rank.
    seats: Vec<String>,
    own: Mutex<OwnRegions>,
    /// Lists of the other boards that were read last, by rank.
    lists: Mutex<Vec<Option<Arc<List>>>>,
    clock: Arc<dyn Clock>,
}

/// Regions of this board.
#[derive(Default)]
struct OwnRegions {
    /// Generation of the models, from 1.
    generation: u32,
    _handles: Vec<RegionHandle>,
}

/// Models of a board, as it shares them.
#[derive(Serialize, Deserialize)]
struct List {
    version: u32,
    /// Raised with each list, so that files of two lists have regions of different names.
    generation: u32,
    models: Vec<SharedModel>,
}

impl Transfers {
    /// Starts the transfers of a group, whose ranks have the seats with these names.
    pub(super) fn start(
        group: TcpGroup,
        seats: Vec<String>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TransferError> {
        let agent = TransferAgent::start(group)?;
        let lists = Mutex::new((0..seats.len()).map(|_| None).collect());
        Ok(Self { agent, seats, own: Mutex::default(), lists, clock })
    }

    /// Whether files can no longer be copied from a seat, or to it.
    pub(super) fn have_failed(&self) -> bool {
        (0..self.seats.len()).any(|rank| self.agent.failure(rank).is_some())
    }

    /// Shares these models with the other boards, instead of those before.
    pub(super) fn share(&self, generation: u32, own: &HashedModels) -> Result<(), TransferError> {
        let mut regions = lock(&self.own);
        if generation <= regions.generation {
            return Ok(());
        }
        let list = List { version: LIST_VERSION, generation, models: own.models.clone() };
        let json = serde_json::to_vec(&list).expect("a list has only text keys");
        let mut handles = Vec::new();
        for (model, (shared, files)) in own.models.iter().zip(&own.files).enumerate() {
            for (number, (about, file)) in shared.files.iter().zip(files).enumerate() {
                let region = region_of(file, about.bytes)?;
                let name = file_region(generation, model, number);
                handles.push(self.agent.register(&name, region, Access::Read)?);
            }
        }
        // The regions before are there until the new list is, so that a reader always finds one.
        let name = format!("{LIST}{generation}");
        handles.push(self.agent.register(&name, Region::from(json), Access::Read)?);
        *regions = OwnRegions { generation, _handles: handles };
        Ok(())
    }

    /// Asks the other boards for the models that they share.
    pub(super) fn models(&self) -> Vec<SeatModels> {
        let until = self.clock.now() + WAIT_MAX;
        let others = (0..self.seats.len()).filter(|rank| *rank != self.agent.rank());
        let ask = |rank: usize| {
            let asked = self.read_list(rank, until);
            let seat = self.seats[rank].clone();
            match asked {
                Ok(list) => SeatModels {
                    seat,
                    models: list.map_or_else(Vec::new, |list| list.models.clone()),
                    fault: None,
                },
                Err(why) => SeatModels { seat, models: Vec::new(), fault: Some(why) },
            }
        };
        // All at once, so that one that does not answer holds up no other.
        thread::scope(|scope| {
            let asked: Vec<_> = others.map(|rank| scope.spawn(move || ask(rank))).collect();
            asked.into_iter().map(|asked| asked.join().expect("no panic")).collect()
        })
    }

    /// Reads a part of a file of another board's model: [`ModelPart::bytes_max`] bytes, fewer at the end of the file, none after it.
    pub(super) fn read(&self, part: &ModelPart) -> Result<Vec<u8>, CopyError> {
        let until = self.clock.now() + WAIT_MAX;
        let others = |rank: &usize| *rank != self.agent.rank();
        let rank = self.seats.iter().position(|seat| *seat == part.seat).filter(others);
        let rank = rank.ok_or(CopyError::NoSeat)?;
        let known = lock(&self.lists)[rank].clone();
        if let Some(list) = known {
            match self.read_file(rank, &list, part, until) {
                Some(Err(TransferError::Refused { .. })) | None => {}
                Some(read) => return read.map_err(|why| CopyError::Failed(cause_of(why))),
            }
        }
        // It shares other models since.
        let list = self.read_list(rank, until).map_err(CopyError::Failed)?;
        let read = list.and_then(|list| self.read_file(rank, &list, part, until));
        read.ok_or(CopyError::NoFile)?.map_err(|why| CopyError::Failed(cause_of(why)))
    }

    /// Reads the list of another board; none if that board shares nothing.
    fn read_list(&self, rank: usize, until: Nanos) -> Result<Option<Arc<List>>, String> {
        let regions = self.agent.regions(rank, self.rest(until)).map_err(cause_of)?;
        let generation = |region: &&RegionInfo| region.name.strip_prefix(LIST)?.parse::<u32>().ok();
        let newest = regions.iter().filter(|region| generation(region).is_some()).max_by_key(generation);
        let Some(region) = newest else { return Ok(None) };
        if region.bytes > LIST_BYTES_MAX {
            return Err("its list of models is too long".to_owned());
        }
        let mut json = vec![0; usize::try_from(region.bytes).expect("2 MiB at most")];
        self.agent.get(rank, &region.name, 0, &mut json, self.options(until)).map_err(cause_of)?;
        let list: List = serde_json::from_slice(&json)
            .map_err(|why| format!("its list of models cannot be read: {why}"))?;
        if list.version != LIST_VERSION {
            return Err(format!("its list of models has version {}, not {LIST_VERSION}", list.version));
        }
        let names = list
            .models
            .iter()
            .flat_map(|model| std::iter::once(&model.name).chain(model.files.iter().map(|file| &file.path)));
        if let Some(wrong) = names.into_iter().find(|name| !is_portable(name)) {
            return Err(format!("its list of models has {wrong:?}, which is no path in a model's folder"));
        }
        let list = Arc::new(list);
        lock(&self.lists)[rank] = Some(Arc::clone(&list));
        Ok(Some(list))
    }

    /// Reads a part of a file; `None` if the list does not have it.
    fn read_file(
        &self,
        rank: usize,
        list: &List,
        part: &ModelPart,
        until: Nanos,
    ) -> Option<Result<Vec<u8>, TransferError>> {
        let model = list.models.iter().position(|model| model.name == part.model)?;
        let number = list.models[model].files.iter().position(|file| file.path == part.file)?;
        let rest = list.models[model].files[number].bytes.saturating_sub(part.offset);
        let bytes = rest.min(part.bytes_max());
        if bytes == 0 {
            return Some(Ok(Vec::new()));
        }
        let mut data = vec![0; usize::try_from(bytes).expect("1 MiB at most")];
        let region = file_region(list.generation, model, number);
        Some(self.agent.get(rank, &region, part.offset, &mut data, self.options(until)).map(|()| data))
    }

    fn rest(&self, until: Nanos) -> Duration {
        until.since(self.clock.now())
    }

    fn options(&self, until: Nanos) -> TransferOptions {
        TransferOptions { deadline: self.rest(until), ..TransferOptions::default() }
    }
}

/// The words of a fault, without the rank: the subject is the seat.
fn cause_of(why: TransferError) -> String {
    match why {
        TransferError::RankFailed { cause, .. } => format!("its daemon {cause}"),
        TransferError::Late { waited, .. } => {
            format!("its daemon did not answer within {} ms", waited.as_millis())
        }
        TransferError::Refused { why, .. } => format!("its daemon refuses to send it: {why}"),
        other => other.to_string(),
    }
}

/// Reason why a file of another board's model cannot be read (`E1008`).
#[derive(Debug)]
pub(super) enum CopyError {
    /// This board is in no epoch in which a board shares models.
    NoTransfers,
    /// No other board of the epoch has the seat.
    NoSeat,
    /// The seat shares no such file.
    NoFile,
    /// The transfer failed, for this reason. The next one may succeed.
    Failed(String),
}

impl CopyError {
    /// Returns the fault of the file `part` that a user sees.
    pub(super) fn diagnosis(&self, part: &ModelPart) -> Diagnosis {
        let file = || format!("seat {}, model {}, file {}", part.seat, part.model, part.file);
        let (subject, cause, next) = match self {
            Self::NoTransfers => (
                format!("seat {}", part.seat),
                "this board is in no epoch in which a board shares models",
                "see `orinoco status`, and set `share_models = true` in [cluster] on the board that has the model",
            ),
            Self::NoSeat => (
                file(),
                "no connected board of the cluster has this seat",
                "see with `orinoco status` which boards are connected",
            ),
            Self::NoFile => (
                file(),
                "the seat shares no such file",
                "see what is shared with `orinoco models list --cluster`",
            ),
            Self::Failed(why) => (
                file(),
                why.as_str(),
                "try again; if it fails again, see `orinoco status` here, and `journalctl -u orinocod` on that board",
            ),
        };
        Diagnosis::new(&codes::MODEL_COPY, subject, cause, next)
    }
}

fn region_of(file: &File, bytes: u64) -> Result<Region, TransferError> {
    Region::file(file.try_clone().map_err(TransferError::File)?, bytes)
}

fn file_region(generation: u32, model: usize, file: usize) -> String {
    format!("{generation}/{model}/{file}")
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
