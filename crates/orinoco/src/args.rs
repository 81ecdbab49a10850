//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand};
use orinoco_board::SinkKind;
use orinoco_core::{Choice, Resize};
use orinoco_runtime::SINKS;
use orinoco_vision::Fit;

use crate::client::DaemonArgs;
use crate::commands::board::RecordArgs;

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
    /// Run a board file, or one model on one source, and print the results and their cost
    Run(RunArgs),
    /// Run a model on image or audio files
    Infer(InferArgs),
    /// List, inspect, check and describe models
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Measure the accuracy of a model, or of tracking, on a labelled dataset
    Eval(EvalArgs),
    /// Show the memory plan of a board: the size of each area, for each model, lane and stream
    Memory(MemoryArgs),
    /// Show the state of a running daemon: its streams, models, memory, sensors and energy
    Status(DaemonArgs),
    /// Show the power, heat and load of a board, its streams and its models on a screen that is updated every second
    Top(TopArgs),
    /// Check this machine (board, engines, sources, sensors), or whether a board file can run here, and print the commands that fix what does not work
    Doctor(DoctorArgs),
    /// List the cameras of this machine with their formats and controls
    Cameras,
    /// Detect the board, and list and show what is publicly known of boards
    #[command(subcommand)]
    Board(BoardCommand),
    /// Make keys and signed member lists, with which boards form a cluster
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show the links between the boards of a cluster: interfaces, measured figures, and why a link is not used
    Links(DaemonArgs),
    /// Benchmark one stage against this machine's limit
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Measure collective operations among ranks, by size: time, bandwidth, and percentage of the measured limit
    ///
    /// Sizes, counts and bandwidths are defined as in nccl-tests; times are the median and the 99th percentile. Before each call, ranks
    /// wait at a barrier, which is not timed. The time of a call is that of its slowest rank. % OF LIMIT compares it with an estimated
    /// minimum: the latency of a bare exchange, or the time to copy (shared memory) or send (TCP) the data, whichever is larger.
    ///
    /// Ranks are processes on this machine, or on several machines, where --hosts starts them over SSH. Without SSH, run the command on each
    /// machine with --address, --rank and --key.
    Perf(PerfArgs),
    /// Explain an error code, or list all of them
    Explain {
        /// Error code, such as E0107 [default: list all codes]
        code: Option<String>,
    },
    /// Print the completion script of a shell
    Completions {
        /// Shell to complete in
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Make a board's key pair, and print its public key for the member list
    Keygen {
        /// New file for the key pair; it must stay on the board
        #[arg(value_name = "FILE")]
        key: PathBuf,
    },
    /// Sign a member list, and print the operator's public key for the board files
    Sign {
        /// Member list: lines `orinoco-cluster 1`, `name`, `serial`, perhaps `witness`, and a line `seat NAME ADDRESS PUBLIC-KEY` for each board
        #[arg(value_name = "LIST")]
        list: PathBuf,
        /// File with the operator's signing key; it is made if it is not there. Keep it off the boards
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// New file for the signed list, to be copied to all boards
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Check the signature of a member list, and show its seats
    Check {
        /// Signed member list
        #[arg(value_name = "LIST")]
        list: PathBuf,
        /// Operator's public key (64 hexadecimal digits)
        #[arg(long, value_name = "KEY")]
        operator_key: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// List the models of the repository, or those that other boards of the cluster share
    List(ListArgs),
    /// Copy a model that another board of the cluster runs into the repository
    Pull(PullArgs),
    /// Show a model's description, and the inputs and outputs that its file really has
    Show(ModelArgs),
    /// Run one inference of each model on every engine, and report which engines can run it
    Check(CheckArgs),
    /// Write a first model.toml for an ONNX file, inferred from its graph
    Init(InitArgs),
    /// Convert a DeepStream (nvinfer) or Triton (config.pbtxt) configuration into a model.toml
    Import(ImportArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) place: WhereArgs,
    /// List the models that other boards of the cluster share (`share_models` in their board files), not those of the repository
    #[arg(long, conflicts_with_all = ["models", "data"])]
    pub(crate) cluster: bool,
    /// Control socket of the daemon, with --cluster [default: $ORINOCO_SOCKET, else /run/orinoco/orinoco.sock]
    #[arg(long, value_name = "PATH", requires = "cluster")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct PullArgs {
    /// Name of the model, as `orinoco models list --cluster` shows it
    #[arg(value_name = "MODEL")]
    pub(crate) model: String,
    /// Seat to copy from; needed only if seats share different files of this model
    #[arg(long, value_name = "SEAT")]
    pub(crate) seat: Option<String>,
    /// Model repository to copy to [default: $ORINOCO_MODELS, else models or /var/lib/orinoco/models if it has the model, else the latter]
    #[arg(long, value_name = "DIR")]
    pub(crate) models: Option<PathBuf>,
    /// Control socket of the daemon [default: $ORINOCO_SOCKET, else /run/orinoco/orinoco.sock]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// Configuration file: nvinfer's key file (.txt) or YAML (.yml), or Triton's config.pbtxt
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// ONNX file of the model, if the configuration does not name it or it has moved
    #[arg(long, value_name = "FILE.onnx")]
    pub(crate) onnx: Option<PathBuf>,
    /// File to write instead of standard output; an existing file is never overwritten
    #[arg(long, short, value_name = "model.toml")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// ONNX file to describe
    #[arg(value_name = "FILE.onnx")]
    pub(crate) file: PathBuf,
    /// File to write instead of standard output; an existing file is never overwritten
    #[arg(long, short, value_name = "model.toml")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// Folders in which models are searched.
#[derive(Args, Clone, Debug)]
pub(crate) struct WhereArgs {
    /// Model repository: a folder with NAME/model.toml for each model [default: $ORINOCO_MODELS, else models and /var/lib/orinoco/models]
    #[arg(long, value_name = "DIR")]
    pub(crate) models: Option<PathBuf>,
    /// Folder for model and label files that a model.toml names but that are not next to it [default: $ORINOCO_DATA, else data, /var/lib/orinoco/data and ../shared/data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

/// Engines, and the settings with which they run.
#[derive(Args, Clone, Debug)]
pub(crate) struct EngineArgs {
    /// Engine, or several in order of preference, separated by commas: ort-cuda and ort-cpu (ONNX Runtime on the GPU and on the
    /// CPU), tract (built in, on the CPU)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) engine: Vec<String>,
    /// Threads that one inference uses
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: Option<u16>,
}

/// Settings that override the model description's.
#[derive(Args, Clone, Debug)]
pub(crate) struct TuneArgs {
    /// Score threshold: results at or below it are dropped (0 to 1)
    #[arg(long, value_name = "SCORE", value_parser = ratio)]
    pub(crate) score: Option<f32>,
    /// IoU threshold of non-maximum suppression: a box that overlaps a better one of its class by more is dropped (0 to 1)
    #[arg(long, value_name = "IOU", value_parser = ratio)]
    pub(crate) iou: Option<f32>,
    /// Filter for resizing frames to the model's input
    #[arg(long, value_name = "FILTER", value_parser = choice::<Resize>())]
    pub(crate) resize: Option<Resize>,
}

/// Options whose values a board file has itself.
const SAID_BY_A_BOARD: [&str; 9] =
    ["model", "output", "results", "track", "sinks", "batch", "score", "iou", "resize"];

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").args(["board", "source"]).required(true))]
pub(crate) struct RunArgs {
    /// Board file to run; use this or --source
    #[arg(long, value_name = "FILE", conflicts_with_all = SAID_BY_A_BOARD)]
    pub(crate) board: Option<PathBuf>,
    /// Model: a name in the repository, a folder, a model.toml or an .onnx file; without a model, frames are only read
    #[arg(long, value_name = "MODEL", requires = "source")]
    pub(crate) model: Option<String>,
    /// Source to run; use this or --board: file://PATH (video, image, img_%04i.jpg, folder), v4l2:///dev/video0, csi://0, rtsp://,
    /// http:// (MJPEG), stdin://?format=, test://ball
    #[arg(long, value_name = "URI")]
    pub(crate) source: Option<String>,
    /// Write the video with its annotations to this file
    #[arg(long, value_name = "FILE.mp4", requires = "source")]
    pub(crate) output: Option<PathBuf>,
    /// Write the results to this file, one JSON object per line
    #[arg(long, value_name = "FILE.jsonl", requires = "source")]
    pub(crate) results: Option<PathBuf>,
    /// Track objects from frame to frame: detections get a track_id
    #[arg(long, requires = "source")]
    pub(crate) track: bool,
    #[arg(long = "sink", value_name = "KIND[=PATH]", requires = "source", help = sink_help())]
    pub(crate) sinks: Vec<String>,
    /// Write the summary to this file as JSON
    #[arg(long, value_name = "FILE.json")]
    pub(crate) summary: Option<PathBuf>,
    /// Maximum number of frames of each stream; frames lost at the source do not count
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
    /// Maximum batch size of an inference, in frames
    #[arg(long, value_name = "N", requires = "source", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) batch: Option<u16>,
    /// Connection attempts before giving up on a live source [default: 3; unlimited with a board file]
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
    /// Model: a name in the repository, a folder, a model.toml or an .onnx file
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,
    /// PNG, JPEG or WebP files, or WAV files for an audio model
    #[arg(value_name = "FILE", required = true)]
    pub(crate) inputs: Vec<PathBuf>,
    /// Folder of known people or things, as DIR/NAME.jpg or DIR/NAME/*.jpg: each input is given the name of the most similar
    /// image. For models whose head (output parser) is `embedding`; matches at or below --score are dropped
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
    /// Model: a name in the repository, a folder, a model.toml or an .onnx file
    #[arg(value_name = "MODEL")]
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Models to check; all models of the repository if none is given
    #[arg(value_name = "MODEL")]
    pub(crate) names: Vec<String>,
    /// Show the engine's full error message for each failure
    #[arg(long, short)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

/// Options of `eval` that need a model.
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
    /// Model: a name in the repository, a folder, a model.toml or an .onnx file
    #[arg(long, value_name = "MODEL", required_unless_present = "results")]
    pub(crate) model: Option<String>,
    /// Dataset: a folder with images/ and labels/ (YOLO), instances.json (COCO), masks/, labels.csv, or one folder per class;
    /// for tracking, a sequence in the MOTChallenge layout (img1/, gt/gt.txt), or a folder of sequences
    #[arg(long, value_name = "DIR")]
    pub(crate) dataset: PathBuf,
    /// Read the tracks of any tracker and evaluate them, instead of running a model: a file in the MOTChallenge format, or for
    /// several sequences a folder with NAME.txt for each
    #[arg(long, value_name = "FILE.txt|DIR", conflicts_with_all = RUNS_A_MODEL)]
    pub(crate) results: Option<PathBuf>,
    /// Write the tracks in the MOTChallenge format: to a file, or for several sequences to a folder, as NAME.txt
    #[arg(long, value_name = "FILE.txt|DIR")]
    pub(crate) save_results: Option<PathBuf>,
    /// Engine (by name) or model to compare with, image by image
    #[arg(long, value_name = "ENGINE|MODEL")]
    pub(crate) against: Option<String>,
    /// Count only the best class of each box instead of every class above the score threshold
    #[arg(long)]
    pub(crate) single_label: bool,
    /// Score at which recall, precision and the confusion matrix are computed [default: 0.25]
    #[arg(long, value_name = "SCORE", value_parser = ratio)]
    pub(crate) at: Option<f32>,
    /// Folder for plots of the precision-recall curves and the confusion matrix, as SVG
    #[arg(long, value_name = "DIR")]
    pub(crate) plots: Option<PathBuf>,
    /// Use only the first N images, or the first N of each sequence
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
pub(crate) enum BoardCommand {
    /// Detect which board this machine is: module, carrier, software, power mode, rails; each answer with its source
    Detect {
        /// Folder or recording with the files of another board (/proc, /sys, /etc) [default: this machine]
        #[arg(long, value_name = "ROOT")]
        sysroot: Option<PathBuf>,
    },
    /// List the boards of which there is a profile
    List,
    /// Show a profile: everything that is publicly known of a board, with its sources
    Show {
        /// Name of the profile, as `orinoco board list` shows it
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Record the files and sensor values of a board into an archive, to send with a report
    Record(RecordArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Compare a whole pipeline with its engine alone
    Pipeline(BenchPipelineArgs),
    /// Compare the frame rate of several streams with the upper bound from their stages' CPU time
    ///
    /// The upper bound is the frame rate that the cores would reach if decoding and inference cost nothing but their own
    /// processor time. That time is measured twice: for each stage alone, and for both at the same time but unconnected. The
    /// second is longer, because cores share caches. Frames of the streams are counted while all streams run: the first and the
    /// last tenth do not count. Every stream opens the source and ends with it, so a file that is shorter than --frames needs
    /// ?loop=1.
    Streams(BenchStreamsArgs),
    /// Compare the throughput of preprocessing (frame to tensor, one thread) with a memory copy
    Preprocess(BenchPreprocessArgs),
    /// Compare models that share one scratch area with models that allocate their own memory
    Memory(BenchMemoryArgs),
    /// Compare a captured CUDA graph with separate kernel launches
    #[cfg(feature = "cuda")]
    Graph(BenchGraphArgs),
    /// Measure one mode, in a process that `bench memory` starts
    #[command(hide = true)]
    MemoryChild(BenchMemoryChildArgs),
    /// Measure a model's card: accuracy, latency, throughput, memory, power and energy; or compare cards
    ///
    /// Several engines are measured alternately and compared. The latency is that of one inference without
    /// pauses: preprocessing, inference and postprocessing. Energy per inference is above the power of the idle board, which is
    /// measured first. It needs a power sensor: on a machine without one the card says why it is not measured. Images of the
    /// dataset are the input, or else a frame of noise.
    Model(BenchModelArgs),
    /// Measure the memory of a model, in a process that `bench model` starts
    #[command(hide = true)]
    ModelChild(BenchModelArgs),
}

#[derive(Args, Debug)]
pub(crate) struct PerfArgs {
    /// Collective operation
    #[arg(value_name = "OPERATION", value_parser = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "reduce", "scatter", "gather"])]
    pub(crate) operation: String,
    /// Smallest size, in bytes, or with K, M or G (1024 each)
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "8", value_parser = binary_size)]
    pub(crate) begin: usize,
    /// Largest size
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "64M", value_parser = binary_size)]
    pub(crate) end: usize,
    /// Factor from one size to the next
    #[arg(short = 'f', long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) factor: u32,
    /// Number of timed calls per size, reduced so that each size takes about 2 s at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) iterations: u32,
    /// Check every result, bit for bit, against a reference that each rank computes locally; exit with 1 if any element is wrong
    #[arg(short, long)]
    pub(crate) check: bool,
    /// Also measure the energy per gigabyte above idle power: each size takes this long idle, as long at work, and pauses in between (10 s if no number is given). With --rank, each rank is taken as a board of its own
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "10", value_parser = seconds)]
    pub(crate) energy: Option<f64>,
    /// Folder or recording with the files of another board (/proc, /sys, /etc), from which its sensors are read [with --energy; default: this machine]
    #[arg(long, value_name = "ROOT", requires = "energy", conflicts_with = "hosts")]
    pub(crate) sysroot: Option<PathBuf>,
    /// Measure the links between the ranks first, and use the results to choose the algorithm for each size [not over shared memory]
    #[arg(long)]
    pub(crate) tune: bool,
    /// Print for each size the chosen algorithm, its predicted time, and the lower bound as a share of the measured time; includes --tune [not over shared memory]
    #[arg(long)]
    pub(crate) explain: bool,
    /// Algorithm of the operation for every size, instead of one chosen by size [not over shared memory]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(orinoco_collective::Algorithm::ALL.map(orinoco_collective::Algorithm::name)))]
    pub(crate) algorithm: Option<String>,
    /// Order in which reductions combine values: reproducible gives the same bits for every size, algorithm and transport; fast allows any order, and more algorithms [fast: not over shared memory]
    #[arg(long, value_name = "ORDER", default_value = "reproducible", value_parser = ["reproducible", "fast"])]
    pub(crate) order: String,
    /// Data type
    #[arg(short, long, value_name = "TYPE", default_value = "f32", value_parser = ["f32", "f64", "f16", "bf16", "i8", "u8", "i32", "u32", "i64", "u64"])]
    pub(crate) datatype: String,
    /// Reduction
    #[arg(short = 'o', long, value_name = "REDUCTION", default_value = "sum", value_parser = ["sum", "product", "min", "max", "average"])]
    pub(crate) redop: String,
    /// Number of ranks: processes on this machine, or with --rank the size of the whole group [not with --hosts, which starts one rank on each host]
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) ranks: u8,
    /// Transport: shared memory (shm), TCP with encryption (tcp) or without (tcp-plaintext), RDMA (rdma), or PCIe
    /// (pcie: a shared PCI BAR with --window, else a file in /dev/shm) [default: shm; tcp with --address, pcie with --window]
    #[arg(long, value_name = "NAME", value_parser = ["shm", "tcp", "tcp-plaintext", "rdma", "pcie"])]
    pub(crate) transport: Option<String>,
    /// TCP connections for the messages between each two ranks [with tcp and tcp-plaintext]
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(orinoco_collective::TCP_CONNECTIONS_MAX)))]
    pub(crate) tcp_connections: u16,
    /// Hosts (such as nano-1,admin@10.0.0.2) on which to start one rank each over SSH, for tcp, tcp-plaintext or rdma; prints the report. Needs SSH logins without prompts and known host keys
    #[arg(long, value_name = "HOST,...", value_delimiter = ',', value_parser = host, conflicts_with_all = ["window", "rank", "key", "ranks"])]
    pub(crate) hosts: Vec<String>,
    /// Path of orinoco on the hosts [with --hosts]
    #[arg(long, value_name = "PATH", default_value = "orinoco", value_parser = remote_path)]
    pub(crate) program: String,
    /// SSH command with its options, such as "ssh -F lab.config" [with --hosts]
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    pub(crate) ssh: String,
    /// Measure between machines, over tcp, tcp-plaintext or rdma: IP address and port at which rank 0 listens. Run the command once for each rank with equal options; rank 0 prints the report. With --hosts: address of the first host [default: its IP address as this machine resolves it, port 4712]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) address: Option<std::net::SocketAddr>,
    /// Measure between machines, over pcie: BAR file that all ranks can map, such as /sys/bus/pci/devices/0000:01:00.0/resource2_wc. Run the command once for each rank, as with --address
    #[arg(long, value_name = "FILE", requires_all = ["rank", "key"], conflicts_with = "address")]
    pub(crate) window: Option<PathBuf>,
    /// This process's rank, from 0 [with --address or --window]
    #[arg(long, value_name = "N", requires = "key")]
    pub(crate) rank: Option<usize>,
    /// Key file that all ranks share, or - to read its 64 hexadecimal digits from standard input. The key authenticates the ranks; only `--transport tcp` also encrypts the data [with --address or --window; see `orinoco explain E1003`]
    #[arg(long, value_name = "FILE", requires = "rank")]
    pub(crate) key: Option<PathBuf>,
    /// File through which the ranks meet that `orinoco perf` starts
    #[arg(long, hide = true)]
    pub(crate) group: Option<PathBuf>,
    /// Rank of a process that `orinoco perf` starts
    #[arg(long, hide = true, requires = "group")]
    pub(crate) spawned_rank: Option<usize>,
}

#[cfg(feature = "cuda")]
#[derive(Args, Debug)]
pub(crate) struct BenchGraphArgs {
    /// Index of the GPU, from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) gpu: u32,
}

/// Shows the daemon that answers at its socket. If none does, shows the sensors of this machine only.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
    /// Show the sensors of this machine, without a daemon
    #[arg(long, conflicts_with_all = ["socket", "address"])]
    pub(crate) local: bool,
    /// Show the sensors of another board, without a daemon: a folder or recording with its files (/proc, /sys, /etc)
    #[arg(long, value_name = "ROOT", conflicts_with_all = ["socket", "address", "local"])]
    pub(crate) sysroot: Option<PathBuf>,
    /// Time between two updates, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Print the status once and end; needs --json
    #[arg(long, requires = "json")]
    pub(crate) once: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Board file to check: exit code 0 if it can run here, 1 if not, 2 if the file is faulty
    #[arg(long, value_name = "FILE")]
    pub(crate) board: Option<PathBuf>,
    /// Folder or recording with the files of another board (/proc, /sys, /etc, /dev); its engines and sources are not checked [default: this machine]
    #[arg(long, value_name = "ROOT", conflicts_with = "board")]
    pub(crate) sysroot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

#[derive(Args, Debug)]
pub(crate) struct MemoryArgs {
    /// Board file to plan
    #[arg(long, value_name = "FILE")]
    pub(crate) board: PathBuf,
    /// Memory budget instead of the board file's, such as 3GiB
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| orinoco_memory::parse_size(text))]
    pub(crate) budget: Option<u64>,
    /// Run the board without its outputs for this many frames of each stream, and show the memory used next to the plan
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: Option<u64>,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

#[derive(Args, Debug)]
pub(crate) struct BenchMemoryArgs {
    /// Models, as for `orinoco run`
    #[arg(long, value_name = "MODEL", required = true, num_args = 1..)]
    pub(crate) model: Vec<String>,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
    /// Threads that one inference uses
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: u16,
    /// Number of rounds; medians are reported
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

/// Owner of the memory in which engines compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MemoryMode {
    /// Each engine allocates its own.
    Separate,
    /// All engines share one area of Orinoco's.
    Shared,
}

impl MemoryMode {
    /// Name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Separate => "separate",
            Self::Shared => "shared",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct BenchModelArgs {
    /// Model: a name in the repository, a folder, a model.toml or an .onnx file
    #[arg(value_name = "MODEL", required_unless_present = "compare")]
    pub(crate) model: Option<String>,
    /// Engine to measure; repeat it for a card of each engine and their comparison [default: the first that can run the model]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) engine: Vec<String>,
    /// Threads that one inference uses
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: Option<u16>,
    /// Labelled dataset for the accuracy, as for `orinoco eval` [default: reference outputs in refs/NAME of the data folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dataset: Option<PathBuf>,
    /// Duration of each measurement of an engine, in seconds
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of inferences that are discarded before the measurements
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) warm_up: u16,
    /// Maximum batch size for the throughput [default: the model's, at most 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) batch_max: Option<u16>,
    /// Folder for the card as card.json, card.md and card.svg; with several engines card-NAME.json and so on for each engine, and comparison.*
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Compare two cards that were written before, instead of measuring
    #[arg(long, value_names = ["A.json", "B.json"], num_args = 2, conflicts_with_all = MEASURES_A_MODEL)]
    pub(crate) compare: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

/// Options of `bench model` that need a model.
const MEASURES_A_MODEL: [&str; 7] =
    ["model", "engine", "threads", "dataset", "seconds", "warm_up", "batch_max"];

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
    /// Method of fitting the frame into the model's input
    #[arg(long, default_value = Fit::Letterbox.name(), value_parser = fit())]
    pub(crate) fit: Fit,
    /// Resize filter
    #[arg(long, value_name = "FILTER", default_value = Resize::Bilinear.name(), value_parser = choice::<Resize>())]
    pub(crate) resize: Resize,
    /// Number of frames in each round
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: u64,
    /// Number of rounds; medians are reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
}

#[derive(Args, Debug)]
pub(crate) struct BenchPipelineArgs {
    /// Model: a name in the repository, a folder, a model.toml or an .onnx file
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,
    /// Source, as for `orinoco run`
    #[arg(long, value_name = "URI")]
    pub(crate) source: String,
    /// Number of frames in each round
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: u64,
    /// Number of rounds; engine and pipeline alternate, and medians are reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

#[derive(Args, Debug)]
pub(crate) struct BenchStreamsArgs {
    /// Model: a name in the repository, a folder, a model.toml or an .onnx file
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,
    /// Source of every stream, as for `orinoco run`
    #[arg(long, value_name = "URI")]
    pub(crate) source: String,
    /// Number of streams
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) streams: u16,
    /// Number of lanes, the threads that run models [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) lanes: Option<u16>,
    /// Maximum batch size of an inference, in frames
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) batch: u16,
    /// Number of frames of each stream in each round
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frames: u64,
    /// Number of rounds; stages and streams alternate, and medians are reported
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
/// Text of `--sink`: its kinds are those that this build has.
fn sink_help() -> String {
    format!("Additional sink: {}, with =PATH or to standard output", SinkKind::names_of(SINKS))
}

fn fit() -> impl TypedValueParser<Value = Fit> {
    const FITS: [Fit; 2] = [Fit::Letterbox, Fit::Stretch];
    PossibleValuesParser::new(FITS.map(Fit::name))
        .map(|name| FITS.into_iter().find(|fit| fit.name() == name).expect("clap refuses other names"))
}

fn ratio(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

/// Duration of a measurement, in seconds.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.1..=3600.0).contains(&value) => Ok(value),
        _ => Err("expected a number of seconds from 0.1 to 3600".to_owned()),
    }
}

/// Time between two updates.
fn interval(text: &str) -> Result<Duration, String> {
    seconds(text).map(Duration::from_secs_f64)
}

/// Both sides from 1 to 8192.
fn size(text: &str) -> Result<(u32, u32), String> {
    let side = |text: &str| text.parse::<u32>().ok().filter(|side| (1..=8192).contains(side));
    let sides = text.split_once('x').and_then(|(width, height)| Some((side(width)?, side(height)?)));
    sides.ok_or_else(|| "expected a size such as 1920x1080, with sides from 1 to 8192".to_owned())
}

/// Reads a host as ssh names it.
fn host(text: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_:@".contains(c);
    match !text.is_empty() && !text.starts_with('-') && text.chars().all(is_name) {
        true => Ok(text.to_owned()),
        false => Err("write a host as for ssh, such as nano-1 or admin@10.0.0.2".to_owned()),
    }
}

/// Reads a path on another host, which the shell there must read as one word.
fn remote_path(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "./-_+~".contains(c);
    match !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("write a path of letters, digits and ./-_+~".to_owned()),
    }
}

/// Reads a size in bytes, as nccl-tests writes it: K, M and G are powers of 1024.
fn binary_size(text: &str) -> Result<usize, String> {
    let (digits, unit) = text.split_at(text.trim_end_matches(|c: char| !c.is_ascii_digit()).len());
    let factor = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => Some(1),
        "K" | "KB" | "KIB" => Some(1 << 10),
        "M" | "MB" | "MIB" => Some(1 << 20),
        "G" | "GB" | "GIB" => Some(1 << 30),
        _ => None,
    };
    let size =
        digits.parse::<usize>().ok().zip(factor).and_then(|(digits, factor)| digits.checked_mul(factor));
    size.ok_or_else(|| "write a number of bytes, such as 8, 64K or 1M".to_owned())
}
