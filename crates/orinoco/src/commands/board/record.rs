//! `orinoco board record`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use orinoco_api::{BOARD_RECORDING_SCHEMA, BoardRecording};
use orinoco_board::readers::recorded_files;
use orinoco_config::{Existing, Faults, write_whole};
use orinoco_core::{Clock, Diagnosis, Exit, codes};
use orinoco_pipeline::MonotonicClock;
use orinoco_sysroot::{Packing, Recorded, Schedule, Sysroot, record};

use crate::output::{self, count, mebibytes};

#[derive(Args, Debug)]
pub(crate) struct RecordArgs {
    /// Archive to write; an existing file is never overwritten
    #[arg(value_name = "OUT.tar|OUT.tar.gz")]
    pub(crate) output: PathBuf,
    /// Duration of the recording, in seconds
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
    /// Number of times a second that values are read
    #[arg(long, value_name = "HZ", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rate: u32,
    /// Folder or recording with the files of another board (/proc, /sys, /etc) [default: this machine]
    #[arg(long, value_name = "ROOT")]
    pub(crate) sysroot: Option<PathBuf>,
}

/// Records a board's files and the values of its sensors into an archive.
pub(crate) fn run(args: &RecordArgs, json: bool) -> Result<Exit, Faults> {
    let packing = packing(&args.output)?;
    check_output(&args.output)?;
    let sysroot = super::sysroot_at(args.sysroot.as_deref())?;
    if !json {
        output::note(&format!("recording for {} s", args.seconds));
    }
    let recorded = record_now(&sysroot, args);
    let mut archive = Vec::new();
    recorded.recording.save(&mut archive, packing).map_err(|cause| cannot_write(&args.output, cause))?;
    write_whole(&args.output, &archive, Existing::Keep).map_err(|cause| cannot_write(&args.output, cause))?;
    report(&args.output, &recorded, archive.len(), json);
    Ok(Exit::Done)
}

fn record_now(sysroot: &Sysroot, args: &RecordArgs) -> Recorded {
    let schedule = Schedule { period: Duration::from_secs(1) / args.rate, rounds: args.seconds * args.rate };
    let clock = MonotonicClock::default();
    let (start, signal) = (clock.now(), clock.signal());
    let wait = |until| {
        while clock.now() < start + until {
            signal.wait(Some(start + until));
        }
        ControlFlow::Continue(())
    };
    record(sysroot, &recorded_files(sysroot), schedule, || clock.now().since(start), wait)
}

fn report(path: &Path, recorded: &Recorded, bytes: usize, json: bool) {
    let Recorded { recording, rounds, missed, is_cut_short } = recorded;
    if json {
        return output::print_json(&BoardRecording {
            schema: BOARD_RECORDING_SCHEMA.to_owned(),
            output: path.display().to_string(),
            bytes: bytes as u64,
            seconds: recording.duration().as_secs_f64(),
            rounds: *rounds,
            missed_rounds: *missed,
            files: recording.files(),
            contents: recording.changes(),
            cut_short: *is_cut_short,
            left_out: recording.left_out().to_vec(),
        });
    }
    let seconds = recording.duration().as_secs_f64();
    let files = count(recording.files() as u64, "file");
    output::print(&format!(
        "recorded {files} in {} over {seconds:.1} s ({} values)",
        count(u64::from(*rounds), "round"),
        recording.changes(),
    ));
    if *missed > 0 {
        output::print(&format!(
            "missed {}: reading took longer than a round",
            count(u64::from(*missed), "round")
        ));
    }
    if *is_cut_short {
        output::warn("the recording ended early because it reached its maximum size");
    }
    output::print(&format!("left out or replaced for privacy: {}", recording.left_out().len()));
    output::print(&format!("wrote {} ({})", path.display(), mebibytes(bytes as u64)));
    output::print("look through it before you send it: README.txt in it says what it holds");
}

fn packing(path: &Path) -> Result<Packing, Diagnosis> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(".tar.gz") || name.ends_with(".tgz") {
        return Ok(Packing::Gzip);
    }
    if name.ends_with(".tar") {
        return Ok(Packing::Plain);
    }
    let cause = "the name of an archive ends with .tar or .tar.gz";
    Err(Diagnosis::new(&codes::SINK_OPEN, path.display(), cause, "name the archive so"))
}

/// Fails at once, and not after the recording, if the archive cannot be written.
fn check_output(path: &Path) -> Result<(), Diagnosis> {
    if path.is_symlink() || path.exists() {
        let next = "choose another name, or remove the file";
        return Err(Diagnosis::new(&codes::SINK_OPEN, path.display(), "the file exists", next));
    }
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    if folder.is_dir() {
        return Ok(());
    }
    let cause = format!("there is no folder {}", folder.display());
    Err(Diagnosis::new(&codes::SINK_OPEN, path.display(), cause, "create the folder, or choose another"))
}

fn cannot_write(path: &Path, cause: std::io::Error) -> Diagnosis {
    Diagnosis::new(&codes::SINK_WRITE, path.display(), cause, "free space, or choose another folder")
}
