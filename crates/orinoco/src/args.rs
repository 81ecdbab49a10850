//! The command line.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand};
use orinoco_core::{Choice, Resize};
use orinoco_vision::Fit;

/// An edge-first inference runtime for NVIDIA Jetson boards.
#[derive(Debug, Parser)]
#[command(name = "orinoco", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print JSON instead of tables
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a board file, or one model on one source, and print what it saw and what it cost
    Run(RunArgs),
    /// Run a model on images or sound
    Infer(InferArgs),
    /// Look at models
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Measure a model's accuracy, or its tracking, on a labelled dataset
    Eval(EvalArgs),
    /// Show what a board's models and streams need, and where it would lie
    Memory(MemoryArgs),
    /// Say what this machine has for Orinoco (engines, video hardware, cameras), and why it lacks the rest
    Doctor,
    /// List the cameras of this machine, their formats and settings
    Cameras,
    /// Measure a part beside the limit of this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Explain an error code; without one, list them
    Explain {
        /// The code, as E0107
        code: Option<String>,
    },
    /// Print a shell's completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List the model repository
    List(WhereArgs),
    /// Show a model's description and its graph's real inputs and outputs
    Show(ModelArgs),
    /// Prove models on every engine by a real inference
    Check(CheckArgs),
    /// Write a first description of an ONNX file, guessed from its graph
    Init(InitArgs),
    /// Turn a description for DeepStream (nvinfer) or Triton (config.pbtxt) into one for Orinoco
    Import(ImportArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// nvinfer's key file (.txt) or YAML (.yml), or Triton's config.pbtxt
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The ONNX file, where the description names none or is somewhere else
    #[arg(long, value_name = "FILE.onnx")]
    pub(crate) onnx: Option<PathBuf>,
    /// Write the description here instead of to standard output; an existing file is never overwritten
    #[arg(long, short, value_name = "model.toml")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// The ONNX file
    #[arg(value_name = "FILE.onnx")]
    pub(crate) file: PathBuf,
    /// Write the description here instead of to standard output; an existing file is never overwritten
    #[arg(long, short, value_name = "model.toml")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// Where models are looked for.
#[derive(Args, Clone, Debug)]
pub(crate) struct WhereArgs {
    /// Model repository: folders of NAME/model.toml [default: $ORINOCO_MODELS, else models and /var/lib/orinoco/models]
    #[arg(long, value_name = "DIR")]
    pub(crate) models: Option<PathBuf>,
    /// Folder of shared data that model.toml files refer to [default: $ORINOCO_DATA, else data, /var/lib/orinoco/data and ../shared/data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

/// Which engines, and how they run.
#[derive(Args, Clone, Debug)]
pub(crate) struct EngineArgs {
    /// Engine to use, or several in order of preference: ort-cuda, ort-cpu, tract
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) engine: Vec<String>,
    /// Threads of one inference
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: Option<u16>,
}

/// Settings in place of the model description's.
#[derive(Args, Clone, Debug)]
pub(crate) struct TuneArgs {
    /// Drop results at or below this score (0 to 1)
    #[arg(long, value_name = "SCORE", value_parser = ratio)]
    pub(crate) score: Option<f32>,
    /// Drop boxes that overlap a better one of their class by more than this (0 to 1)
    #[arg(long, value_name = "IOU", value_parser = ratio)]
    pub(crate) iou: Option<f32>,
    /// How frames are brought to the model's size
    #[arg(long, value_name = "FILTER", value_parser = choice::<Resize>())]
    pub(crate) resize: Option<Resize>,
}

/// What a board file says itself.
const SAID_BY_A_BOARD: [&str; 9] =
    ["model", "output", "results", "track", "sinks", "batch", "score", "iou", "resize"];

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").args(["board", "source"]).required(true))]
pub(crate) struct RunArgs {
    /// Board file, or else --source
    #[arg(long, value_name = "FILE", conflicts_with_all = SAID_BY_A_BOARD)]
    pub(crate) board: Option<PathBuf>,
    /// Model: a name in the repository, a folder, a model.toml or an .onnx; without it frames are only read
    #[arg(long, value_name = "MODEL", requires = "source")]
    pub(crate) model: Option<String>,
    /// Source, or else --board: file://PATH (video, image, img_%04i.jpg, folder), v4l2:///dev/video0, csi://0, rtsp://,
    /// http:// (MJPEG), stdin://?format=, test://ball
    #[arg(long, value_name = "URI")]
    pub(crate) source: Option<String>,
    /// Write the annotated video here
    #[arg(long, value_name = "FILE.mp4", requires = "source")]
    pub(crate) output: Option<PathBuf>,
    /// Write detections here, one JSON object a line
    #[arg(long, value_name = "FILE.jsonl", requires = "source")]
    pub(crate) results: Option<PathBuf>,
    /// Follow objects from frame to frame: detections get a track_id
    #[arg(long, requires = "source")]
    pub(crate) track: bool,
    /// Another sink: jsonl, mp4, mp4-h265 or framemd5, with =PATH or to standard output
    #[arg(long = "sink", value_name = "KIND[=PATH]", requires = "source")]
    pub(crate) sinks: Vec<String>,
    /// Write the summary here as JSON
    #[arg(long, value_name = "FILE.json")]
    pub(crate) summary: Option<PathBuf>,
    /// End after this many frames of each stream
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
    /// Frames of one inference
    #[arg(long, value_name = "N", requires = "source", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) batch: Option<u16>,
    /// Attempts to reach a live source that never delivered [default: 3, in a board file for ever]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) reconnect_attempts: Option<u32>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) tune: TuneArgs,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

#[derive(Args, Debug)]
pub(crate) struct InferArgs {
    /// Model: a name in the repository, a folder, a model.toml or an .onnx
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,
    /// PNG, JPEG or WebP files; WAV files for a model of sound
    #[arg(value_name = "FILE", required = true)]
    pub(crate) inputs: Vec<PathBuf>,
    /// Name what is seen: pictures of known people or things, as DIR/NAME.jpg or DIR/NAME/*.jpg. For models whose head is
    /// `embedding`; matches at or below --score are dropped
    #[arg(long, value_name = "DIR")]
    pub(crate) gallery: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) tune: TuneArgs,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ModelArgs {
    /// Model: a name in the repository, a folder, a model.toml or an .onnx
    #[arg(value_name = "MODEL")]
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Models; all of the repository when none is named
    #[arg(value_name = "MODEL")]
    pub(crate) names: Vec<String>,
    /// Show each reason in full, in the engine's own words
    #[arg(long, short)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

/// What means nothing to `eval` where no model runs.
const RUNS_A_MODEL: [&str; 11] = [
    "model",
    "save_results",
    "against",
    "single_label",
    "at",
    "plots",
    "engine",
    "threads",
    "score",
    "iou",
    "resize",
];

#[derive(Args, Debug)]
pub(crate) struct EvalArgs {
    /// Model: a name in the repository, a folder, a model.toml or an .onnx
    #[arg(long, value_name = "MODEL", required_unless_present = "results")]
    pub(crate) model: Option<String>,
    /// Dataset: a folder with images/ and labels/ (YOLO), instances.json (COCO), masks/, labels.csv, or a folder a class;
    /// for tracking a sequence of MOTChallenge's layout (img1/, gt/gt.txt), or a folder of such sequences
    #[arg(long, value_name = "DIR")]
    pub(crate) dataset: PathBuf,
    /// Judge what another tracker found in a sequence, written as MOTChallenge's text; of several sequences a folder
    /// with NAME.txt for each
    #[arg(long, value_name = "FILE.txt|DIR", conflicts_with_all = RUNS_A_MODEL)]
    pub(crate) results: Option<PathBuf>,
    /// Write what was followed in a sequence as MOTChallenge's text; of several sequences into a folder, as NAME.txt
    #[arg(long, value_name = "FILE.txt|DIR")]
    pub(crate) save_results: Option<PathBuf>,
    /// Compare with another engine (by name) or another model, picture by picture
    #[arg(long, value_name = "ENGINE|MODEL")]
    pub(crate) against: Option<String>,
    /// Count only the best class of each box, instead of every class above the score
    #[arg(long)]
    pub(crate) single_label: bool,
    /// Read recall, precision and confusion at this score [default: 0.25]
    #[arg(long, value_name = "SCORE", value_parser = ratio)]
    pub(crate) at: Option<f32>,
    /// Draw precision-recall curves and the confusion matrix into this folder, as SVG
    #[arg(long, value_name = "DIR")]
    pub(crate) plots: Option<PathBuf>,
    /// Use only the first N pictures, of each sequence where there are several
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) tune: TuneArgs,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// A pipeline beside its engine alone
    Pipeline(BenchPipelineArgs),
    /// Several streams at once, beside what the processor time of their stages lets the cores do
    ///
    /// The bound is how many frames a second the cores could decode, and the lanes run through the model, if they did nothing
    /// else. The processor time of both is measured by itself, and once more with both beside each other and nothing handed
    /// from one to the other: cores share caches, so that each takes longer then. What all streams did is counted while all
    /// of them ran, between the first and the last tenth of their frames. Every stream opens the source and ends with it: a
    /// file shorter than --frames wants ?loop=1.
    Streams(BenchStreamsArgs),
    /// A frame into a tensor, on one thread, beside copying memory
    Preprocess(BenchPreprocessArgs),
    /// Models that share one scratch area, beside the same with memory of their own
    Memory(BenchMemoryArgs),
    /// A captured plan beside its launches, on the GPU
    #[cfg(feature = "cuda")]
    Graph(BenchGraphArgs),
    /// What `memory` starts
    #[command(hide = true)]
    MemoryChild(BenchMemoryChildArgs),
}

#[cfg(feature = "cuda")]
#[derive(Args, Debug)]
pub(crate) struct BenchGraphArgs {
    /// Which GPU, from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) gpu: u32,
}

#[derive(Args, Debug)]
pub(crate) struct MemoryArgs {
    /// Board file
    #[arg(long, value_name = "FILE")]
    pub(crate) board: PathBuf,
    /// In place of the board file's, as 3GiB
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| orinoco_memory::parse_size(text))]
    pub(crate) budget: Option<u64>,
    /// Run the board for so many frames of each stream, without its outputs, and show beside the plan what was used
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

#[derive(Args, Debug)]
pub(crate) struct BenchMemoryArgs {
    /// Model, as for run; several
    #[arg(long, value_name = "MODEL", required = true, num_args = 1..)]
    pub(crate) model: Vec<String>,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
    /// Threads of one inference
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: u16,
    /// Rounds; medians are reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
}

#[derive(Args, Debug)]
pub(crate) struct BenchMemoryChildArgs {
    #[arg(long)]
    pub(crate) model: Vec<String>,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
    #[arg(long)]
    pub(crate) threads: u16,
    #[arg(long, value_enum)]
    pub(crate) mode: MemoryMode,
    #[arg(long)]
    pub(crate) scratch: usize,
}

/// Whose memory engines compute in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MemoryMode {
    /// Each its own.
    Separate,
    /// One area of ours.
    Shared,
}

impl MemoryMode {
    /// As the command line writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Separate => "separate",
            Self::Shared => "shared",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct BenchPreprocessArgs {
    /// Size of the frames
    #[arg(long, value_name = "WxH", default_value = "1920x1080", value_parser = size)]
    pub(crate) from: (u32, u32),
    /// Size of the model's input
    #[arg(long, value_name = "WxH", default_value = "640x640", value_parser = size)]
    pub(crate) to: (u32, u32),
    /// Pixel format of the frames
    #[arg(long, default_value = "nv12", value_parser = ["nv12", "i420", "rgb"])]
    pub(crate) format: String,
    /// How the shape is fitted
    #[arg(long, default_value = Fit::Letterbox.name(), value_parser = fit())]
    pub(crate) fit: Fit,
    /// Filter
    #[arg(long, value_name = "FILTER", default_value = Resize::Bilinear.name(), value_parser = choice::<Resize>())]
    pub(crate) resize: Resize,
    /// Frames of each round
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: u64,
    /// Rounds; medians are reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
}

#[derive(Args, Debug)]
pub(crate) struct BenchPipelineArgs {
    /// Model: a name in the repository, a folder, a model.toml or an .onnx
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,
    /// Source, as for run
    #[arg(long, value_name = "URI")]
    pub(crate) source: String,
    /// Frames of each round
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: u64,
    /// Rounds; engine and pipeline take turns, and medians are reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

#[derive(Args, Debug)]
pub(crate) struct BenchStreamsArgs {
    /// Model: a name in the repository, a folder, a model.toml or an .onnx
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,
    /// Source of every stream, as for run
    #[arg(long, value_name = "URI")]
    pub(crate) source: String,
    /// How many streams
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) streams: u16,
    /// Lanes (executing threads) [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) lanes: Option<u16>,
    /// Frames of one inference
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) batch: u16,
    /// Frames of each stream and round
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: u64,
    /// Rounds; stages and streams take turns, and medians are reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

/// Takes the name of a value of a closed set.
fn choice<T: Choice + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let names = T::ALL.iter().map(|value| value.name());
    PossibleValuesParser::new(names).map(|name| T::from_name(&name).expect("clap refuses other names"))
}

/// Takes the name of a fit that has no settings of its own.
fn fit() -> impl TypedValueParser<Value = Fit> {
    const FITS: [Fit; 2] = [Fit::Letterbox, Fit::Stretch];
    PossibleValuesParser::new(FITS.map(Fit::name))
        .map(|name| FITS.into_iter().find(|fit| fit.name() == name).expect("clap refuses other names"))
}

fn ratio(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("give a number from 0 to 1".to_owned()),
    }
}

/// Both sides from 1 to 8192.
fn size(text: &str) -> Result<(u32, u32), String> {
    let side = |text: &str| text.parse::<u32>().ok().filter(|side| (1..=8192).contains(side));
    let sides = text.split_once('x').and_then(|(width, height)| Some((side(width)?, side(height)?)));
    sides.ok_or_else(|| "give a size as 1920x1080, sides from 1 to 8192".to_owned())
}
