//! Error codes of every kind of fault, with the page that `orinoco explain CODE` prints. A code never changes its
//! meaning; new ones are added at the end of their hundred.

use crate::{Code, Exit};

macro_rules! codes {
    ($($name:ident $id:literal $exit:ident $title:literal $page:literal)*) => {
        $(
            #[doc = $title]
            pub static $name: Code = Code { id: $id, exit: Exit::$exit, title: $title, page: $page };
        )*
        /// All codes, in order.
        pub static ALL: &[&Code] = &[$(&$name),*];
    };
}

codes! {
    FILE_MISSING "E0101" Configuration "a file is missing or cannot be read"
        "A file that you named, or that such a file refers to, does not exist, is not readable for this user, or is not a \
         regular file (a folder, pipe or device). In a board file, paths in inherit, ort_library and model (if it has a /) \
         are relative to that file; paths of sources and sinks, and on the command line, are relative to the working \
         directory. ${dir} stands for the folder of the board file or model.toml that has it."
    SYNTAX "E0102" Configuration "a file is not valid TOML"
        "Board and model files are TOML 1.0. The message shows the line where parsing failed; the mistake is often on the \
         line before: a missing quote or bracket."
    KEY_UNKNOWN "E0103" Configuration "an unknown key"
        "Keys are checked strictly, so that a misspelt setting is not silently ignored. The message suggests the nearest \
         known key; docs/board-files.md and docs/model-files.md list them all."
    KEY_MISSING "E0104" Configuration "a required key is missing"
        "The key has no sensible default. If the file inherits from others, none of them sets it either."
    KEY_TYPE "E0105" Configuration "a value of the wrong type"
        "The key needs another type of TOML value: a string in quotes, a number, true or false, or an array in brackets."
    KEY_RANGE "E0106" Configuration "a value outside its range"
        "The value is of the right type but outside what the key allows; the message names the range or the choices."
    REFERENCE "E0107" Configuration "an unknown or repeated name"
        "A stream names its models and sinks, a secondary model names the model on whose objects it operates, and a require list \
         names engines. All these names must be defined in the same board file; the message lists those that are. The error is also \
         reported if two entries have the same name, if two outputs write to the same file, or if ${name} is not defined."
    INHERIT "E0108" Configuration "files that inherit from each other"
        "The inherit entries form a cycle, are deeper than 8 files, or are more than 256 in total. The message shows the \
         entry, and for a cycle all of its files."
    VERSION "E0109" Configuration "a file of another version"
        "Board and model files have version = 1. A higher version needs a newer Orinoco: update it."
    RELOAD "E0110" Configuration "a change that a running board cannot apply"
        "On `systemctl reload orinocod` (SIGHUP) the daemon reads its board file again: it starts new streams, stops removed ones, \
         replaces changed models and leaves the rest running. `lanes` and the sections [memory], [inference], [control], [sensors], \
         [otlp], [cluster] and [governor] need `systemctl restart orinocod`. If the log says `not reloaded`, nothing changed. If it \
         says `reloaded joined=...`, everything was applied except the streams or models that the messages name; reload again for those."
    BOARD_PROFILE "E0111" Configuration "no such board profile"
        "A profile describes a kind of board (rails, sensors, power modes) from public sources. `orinoco board list` lists all profiles; \
         `orinoco board detect` says which one fits this machine."
    MODEL_NOT_FOUND "E0201" Configuration "no such model"
        "--model takes a name in the model repository (models/<name>), a folder, a model.toml, or an .onnx file. \
         `orinoco models list` shows the names; --models DIR or ORINOCO_MODELS chooses the repository."
    MODEL_PARSE "E0202" Configuration "an ONNX file that cannot be read"
        "The engine could not parse the file as ONNX. It may be truncated, be a Git LFS pointer, or be another format. \
         Compare its size and sha256 with the original."
    MODEL_HASH "E0203" Configuration "an ONNX file with the wrong sha256"
        "model.toml carries the sha256 of the file it was written for. A different file may be truncated or a \
         different model: fetch it again, or update sha256 if the change is meant."
    MODEL_DISAGREES "E0204" Configuration "model.toml disagrees with the model"
        "The inputs or outputs that model.toml describes are not those of the ONNX graph. The message names both. \
         `orinoco models show` prints what the graph really has."
    MODEL_UNKNOWN "E0205" Configuration "a model that needs a model.toml"
        "Layout, colour order and head can be guessed from an .onnx file only for graphs of known shapes. Write a model.toml \
         next to it; docs/model-files.md lists all heads."
    MODEL_UNSUPPORTED "E0206" Configuration "a model the engine cannot run"
        "The engine read the file but has no kernel for one of its operators or types, or has one that is known to give wrong \
         results. Another engine may run it: `orinoco models check` tries them all."
    IMPORT "E0207" Configuration "a DeepStream or Triton configuration that cannot be converted"
        "`orinoco models import` reads nvinfer's configuration files (key file or YAML) and Triton's config.pbtxt. The \
         message names the line or key that cannot be read, or what the file lacks."
    OUTPUT_NOT_FINITE "E0208" RunFailed "a model whose outputs are not finite numbers"
        "An output held NaN or infinite values. Results computed from such values are dropped and counted as not_finite in \
         the model's summary; raw tensors keep them, and JSON has null in their place. The run goes on. Usual causes: a model \
         in 16-bit floats whose values leave their range (export it with 32-bit floats), a mean or scale in model.toml that \
         is not the one of training, or a corrupt file."
    ENGINE_UNKNOWN "E0301" Configuration "no such engine"
        "Engines are ort-cuda and ort-cpu (ONNX Runtime on a GPU and on the CPU) and tract (built in)."
    ENGINE_UNAVAILABLE "E0302" RunFailed "no engine can run the model"
        "One inference was tried on each engine of the list, and all failed. The message has the reason for each; `orinoco \
         models check --verbose` shows it in full. ONNX Runtime's library is looked for at ort_library of the board file, \
         else at $ORT_DYLIB_PATH, else in the user's cache (cross/onnxruntime.sh puts it there), else in the system's library \
         folders."
    ENGINE_REQUIRED "E0303" RunFailed "a required engine was refused"
        "require in the board file turns a fallback into an error. The message says why the engine refused."
    ENGINE_RUN "E0304" RunFailed "an inference failed"
        "The engine returned an error while running; the message is the engine's own. If it says that a thread panicked, that is \
         a bug in Orinoco: report it with the message."
    MEMORY_BUDGET "E0305" Configuration "a board that does not fit its memory budget"
        "The planned memory of all models and streams is more than [memory] budget; nothing was loaded. The table shows each \
         part, and the message shows the smallest single change that fits. `orinoco memory --board FILE` shows the same for a \
         board that fits. During a reload, the old and the new models and streams count at the same time, and so does the \
         memory for loading the new models. If what the new file describes fits by itself, restart the daemon, or reload in two steps: first \
         remove the old streams, then add the new ones. Until then the daemon runs unchanged."
    MEMORY_MEASURE "E0306" RunFailed "a model whose memory cannot be measured"
        "A model's memory is measured by running it once in a separate process; that process failed. The message has its last \
         output. If memory was too small, it names the limit: the machine, a cgroup, `ulimit`, or the kernel \
         (vm.overcommit_memory = 2)."
    SOURCE_URI "E0401" Configuration "a source URI that cannot be used"
        "Sources are file://PATH (video, image, numbered images such as img_%04i.jpg, or a folder of images), \
         v4l2:///dev/video0 (a USB or other V4L2 camera), csi://0 (a Jetson CSI camera), rtsp://HOST/PATH, http://HOST/PATH \
         (an MJPEG camera, or a video file by its extension), stdin://?format=FORMAT (raw video) and test://ball. A plain \
         path is taken as file://."
    SOURCE_OPEN "E0402" RunFailed "a source that cannot be opened"
        "The file or stream could not be opened or has no demuxer or decoder here. `gst-discoverer-1.0 URI` shows what \
         GStreamer makes of it."
    SOURCE_NO_VIDEO "E0403" RunFailed "a source without video"
        "The source was opened, but it holds no video track that can be decoded."
    SOURCE_TRUNCATED "E0404" RunFailed "a file that ends early"
        "The container promises more than the file holds: it was cut off while being written or copied. Frames before \
         the cut were processed."
    SOURCE_UNREACHABLE "E0405" RunFailed "a live source that cannot be reached"
        "The camera or server did not answer, refused, or sent nothing in time. `orinoco run --source` gives up after a few \
         attempts if the source never delivered a frame; with a board file it retries without limit, unless \
         reconnect_attempts is set."
    SOURCE_DECODE "E0406" RunFailed "a source that failed while running"
        "The decoder or demuxer reported an error in the middle of the stream. Frames before it were processed."
    IMAGE_DECODE "E0407" Configuration "an image that cannot be decoded"
        "The file is not a PNG, JPEG or WebP image, or it is corrupt."
    SINK_OPEN "E0501" Configuration "an output that cannot be written"
        "The output's folder does not exist or cannot be created, is not writable for this user, or the encoder for this \
         output is not installed. The message says which."
    SINK_WRITE "E0502" RunFailed "an output that failed while running"
        "Writing failed in the middle of the run: the disk may be full, or the reader of a pipe went away."
    FEATURE_MISSING "E0503" Configuration "a feature missing in this build"
        "The binary was built without the named feature. Build it again with that feature."
    CHECK_FAILED "E0601" CheckFailed "a check did not pass"
        "`models check` found a model that no engine can run; its last column has the reason. Or `bench memory` found \
         that models gave other outputs in shared memory than each in its own, or asked for more memory than was planned; its table \
         shows which."
    DATASET "E0602" Configuration "a dataset that cannot be read"
        "A dataset is a folder: images/ with labels/*.txt (YOLO), instances.json with images/ (COCO), images/ with \
         masks/*.png, labels.csv with rows of file,label, or a folder of images for each class. For tracking, a sequence in \
         the MOTChallenge layout has img1/000001.jpg and so on, gt/gt.txt and usually seqinfo.ini; a folder of sequences is \
         evaluated together."
    CARD "E0603" Configuration "a model card that cannot be compared"
        "`orinoco bench model --compare` takes two files that `orinoco bench model --output` wrote: card.json, with the schema \
         orinoco.model-card/1. The message says what the file is instead. A card of a later version needs a newer Orinoco."
    UNKNOWN_CODE "E0701" Configuration "no such code"
        "Codes are written E0101 and so on; `orinoco explain` without a code lists them."
    STOPPED "E0702" Interrupted "a board that was stopped before it ran"
        "Ctrl-C or SIGTERM came while models were loaded: no source was opened, and nothing was written."
    NO_TERMINAL "E0703" Configuration "a screen without a terminal"
        "`orinoco top` draws on a terminal. In a script, a pipe or a service, use `orinoco top --json`: one JSON object each second, \
         or only one with --once. Over SSH, `ssh -t` gives the command a terminal."
    REQUEST_INVALID "E0801" Configuration "a request that the model cannot take"
        "A request has one tensor per model input, with the input's name, data type and shape; if the model has a batch axis, \
         fewer items than its batch size are allowed. Inputs that model.toml sets ([[constant]], [[state]]) are not sent. The \
         message names the tensor. Stateful models, and models on a GPU engine, do not take requests, only frames. Programs \
         send requests through Orinoco's Rust crates; there is no request server yet."
    REQUEST_OVERLOAD "E0802" RunFailed "a request refused by a full queue"
        "The model's request queue is full, so this request was refused; or the client read a multi-part answer too slowly. \
         Send fewer requests at a time, or read answers while they arrive."
    REQUEST_EXPIRED "E0803" RunFailed "a request whose deadline has passed"
        "The model was busy until the request's deadline; the request was not executed. Give it more time, or a higher \
         priority."
    REQUEST_CANCELLED "E0804" RunFailed "a request that was cancelled"
        "The client cancelled the request, and gets no further part of its answer."
    REQUEST_UNANSWERED "E0805" RunFailed "a request without an answer"
        "The request was accepted but not answered: the model was removed, the daemon was stopped, or an engine failed. Send \
         it again."
    CONTROL_LISTEN "E0901" Configuration "a control socket that cannot be opened"
        "The daemon serves its status on a Unix socket and, if the board file's [control] names an address, on loopback TCP. The \
         socket's folder must exist and be writable for the daemon's user, no other file may have the socket's path, and no other \
         daemon may use the socket or the port. `socket = false` switches the socket off. If the default socket, which the board \
         file does not name, cannot be opened, the daemon only warns, and runs without it."
    CONTROL_REQUEST "E0902" Configuration "a request that the control socket refuses"
        "The control socket answers GET and HEAD, and POST for /v1/dump. Over TCP, /v1/dump is refused, and so is a Host \
         header that is not localhost or the listening address with its port, so that a web page cannot reach the daemon \
         through a DNS name that the attacker controls (DNS rebinding). Request bodies are refused. docs/control-socket.md has all paths."
    CONTROL_UNAVAILABLE "E0903" RunFailed "a status that is not available"
        "The daemon is still starting, its pipeline did not answer in time, or too many clients are connected. Try again; if the pipeline \
         does not answer, the daemon's log (`journalctl -u orinocod`) says what it does."
    DAEMON_ABSENT "E0911" RunFailed "no daemon runs here"
        "Nobody listens at the daemon's control socket. `systemctl status orinocod` says whether the daemon runs, and `journalctl -u \
         orinocod` why it does not. The socket is /run/orinoco/orinoco.sock unless the board file or ORINOCO_SOCKET names another; \
         --socket takes its path, and --address the daemon's address on loopback TCP, if the board file sets [control] listen."
    DAEMON_DENIED "E0912" RunFailed "a control socket that this user may not use"
        "The control socket is for its owner and the members of its group, orinoco. `sudo usermod -aG orinoco \"$USER\"` adds you to it; \
         the change holds from your next login on. `id -nG` lists your groups."
    DAEMON_SILENT "E0913" RunFailed "a daemon that does not answer in time"
        "The connection was made, but no complete answer came within 5 s. The board may be overloaded, or the daemon hangs: its log \
         (`journalctl -u orinocod`) has the last events. systemd restarts a daemon whose lanes make no progress."
    DAEMON_ANSWER "E0914" RunFailed "an answer that is not the daemon's status"
        "Something answered, but not with a status that this program reads: another program has the socket or the port, or the daemon \
         is of another version. `orinoco --version` and `orinocod --version` must be the same."
    GOVERNOR_HELPER "E0921" RunFailed "a governor without its helper"
        "The board file has [governor], and the daemon has no privileges: orinoco-helper, a small program that runs as root, sets power \
         mode and clocks for it. `sudo systemctl enable --now orinoco-helper.socket` starts it. If systemd says that the unit does not \
         exist, install it (docs/governor.md, `The helper`). `journalctl -u orinoco-helper` has its log, and `orinoco doctor --board FILE` \
         checks it. Without it the daemon keeps running, but without the governor. The helper accepts one client at a time, as the user \
         orinoco or root."
    GOVERNOR_STEP "E0922" RunFailed "a power setting that could not be changed"
        "The helper refused a change that the governor asked for, or the board did not accept the value; the message says which. Nothing \
         was changed, and the governor tries again later. There are two common causes. The kernel may be throttling: this hides the \
         original settings, which the helper must save before its first change, so it waits until the throttling ends. Or the board has \
         none of the power modes and clocks that [governor] allows: change `modes` or `actuators` there. `journalctl -u orinoco-helper` \
         has more."
    GOVERNOR_BLIND "E0923" RunFailed "a governor without readings"
        "A sensor that the governor needs gives no values: the input power if power_limit is set, or the temperatures. A missing \
         reading counts as a possible overload, not as 0: the governor lowers the power step by step until the sensor is back. `orinoco \
         status` shows all sensors with the reasons why some cannot be read. If the sensor stays missing, remove the limit that needs it \
         and restart the daemon. A board without a power sensor cannot have a power_limit."
    GOVERNOR_LIMIT "E0924" RunFailed "a power or temperature limit that cannot be met"
        "Power or temperature is above its limit at the lowest levels of all actuators that the governor may change. Add modes or \
         actuators in [governor], give the board less to do, cool it better, or raise the limit."
    OTLP_SETTINGS "E0931" Configuration "an OTLP export that cannot be set up"
        "A board file with [otlp] sends metrics and traces to an OpenTelemetry collector. What the section leaves out comes from \
         OpenTelemetry's environment variables (OTEL_...), and one of those, or the headers file, is wrong. The message names the \
         variable, or the line of the headers file; correct it and start the daemon again. The headers file may hold a token, so only its \
         owner may read it, and no message shows its values. docs/otlp.md has all keys and variables."
    GROUP_JOIN "E1001" RunFailed "ranks that did not join their group"
        "The message names the ranks that did not join a collective group, or what is wrong. On one machine, ranks meet through a file \
         in /dev/shm: check that every rank is still running, that all have the same number of ranks, and that /dev/shm is not full \
         (`df -h /dev/shm`; in a container, raise `--shm-size`). Between machines, also check that the addresses of the ranks can be \
         reached (firewall, ports), and that every rank has the same key file and the same version of Orinoco."
    COLLECTIVE_FAILED "E1002" RunFailed "a collective operation that failed"
        "All ranks of a group call the same operations in the same order. The message names the rank that failed and why: it exited, \
         stopped responding, did not make the call before the deadline, or made a different call. If it exited or stopped responding, \
         look at that rank's own output first. After a failure, every later call on every rank of the group returns an error: restart \
         all ranks. With `orinoco perf --hosts`, ranks connect to the first host's IP address, port 4712: if they cannot reach it, name \
         another address with `--address`, and allow TCP between the hosts in their firewalls."
    GROUP_KEY "E1003" Configuration "a key file that cannot be used"
        "The key file is missing, has the wrong content, or can be opened by other users. With `orinoco perf --address`, all ranks share \
         a secret key. Its file has one line, `orinoco-group-key` and 64 hexadecimal digits, and only its owner may be able to open it \
         (`chmod 600 FILE`). To make a new one: `(umask 077; echo orinoco-group-key $(openssl rand -hex 32) > new.key)`. Copy it to \
         each machine with `scp -p`. If others could open the file, make a new one: whoever has the key can join as any rank."
    CLUSTER_SEAT "E1004" Configuration "a board that cannot join its cluster"
        "[cluster] of the board file names the signed member list, the operator's public key with which it is checked, and the key pair \
         of this board. The list must be signed by that operator. One of its [[seat]] entries (name, addresses and public key of a \
         board) must have the public key of this board, and an address at which the board can listen. `orinoco cluster keygen` makes a board's key pair, `orinoco cluster sign` signs a list, and `orinoco \
         cluster check` shows one. After a change, copy the same list to all boards, then restart their daemons: boards with \
         different lists do not connect, and a daemon refuses a list with a lower serial number than one that it has used. A model's `seat` in the board file must be the name of another seat in the list. The folder of \
         `program_socket` must exist and be writable for the daemon's user, and no other file may have the socket's path."
    SEAT_OFFLINE "E1005" RunFailed "the seat of a model is offline"
        "The board file has a model with `seat`, and that board of the cluster cannot be reached, is starting, or left the cluster before \
         it answered. Until it is back, frames go on without results of the model, or this board executes the model (`fallback = \
         \"local\"`). This board uses the seat again by itself. `orinoco status` shows the seats of the cluster, and for each model \
         how many images its seat did not infer, by cause."
    SEAT_FAILED "E1006" RunFailed "the seat of a model refused it, or failed"
        "This board sent images to another board of the cluster, which executes the model. That board refused them, or the model failed \
         there; the message has the reason. The board file of that seat needs a [[model]] of the same name, and a [[stream]] with `source = \
         \"cluster://\"` that lists it. Head (output parser) and labels of the model must be the same on both boards. This board tries \
         again after one second."
    HOST_LOGIN "E1007" RunFailed "a host on which no rank could be started"
        "`orinoco perf --hosts` logs in to each host with `ssh`, and runs `orinoco` there. The message is that of ssh or of the shell on that \
         host. `ssh HOST orinoco --version` must work without a prompt: use a key without a passphrase or an agent, and log in once by \
         hand so that the host's key is known. If `orinoco` is not in the PATH of such a session, name its path with --program."
    MODEL_COPY "E1008" RunFailed "a model that cannot be copied from another board"
        "`orinoco models pull` copies the files of a model from another board of the cluster, through the daemons of both. That board must be \
         in the cluster's epoch (`orinoco status`), run the model, and have `share_models = true` in [cluster] of its board file. `orinoco \
         models list --cluster` shows what the boards share. `pull` first copies all files and compares their \
         SHA-256 hashes with those of the other board; until then, the model in the repository stays as it was."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        assert!(ALL.windows(2).all(|pair| pair[0].id < pair[1].id));
    }

    #[test]
    fn every_page_says_something() {
        for code in ALL {
            assert!(code.page.len() > 40 && code.title.len() > 5, "{}", code.id);
        }
    }
}
