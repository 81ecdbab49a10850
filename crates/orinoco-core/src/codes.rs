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
        "A file that you named, or that a file you named refers to, is not there or may not be read by this user, \
         or is a folder, pipe or device where only a file can be read as a whole. \
         In a board file, inherit, ort_library and a model with a / start at that file; sources and sinks start at the \
         working folder, as paths on the command line do. ${dir} stands for that file's folder."
    SYNTAX "E0102" Configuration "a file is not valid TOML"
        "Board and model files are TOML 1.0. The line named is where reading stopped making sense; the mistake is \
         often on the line before: a missing quote or bracket."
    KEY_UNKNOWN "E0103" Configuration "an unknown key"
        "Keys are checked strictly, so that a misspelt setting cannot be ignored in silence. The message suggests the \
         nearest known key; docs/board-files.md and docs/model-files.md list them all."
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
        "A chain of inherit entries came back to its start, or is deeper than 8 files, or a file and all that it inherits have \
         more than 256 inherit entries. The message shows the entry, and for a circle every file of it."
    VERSION "E0109" Configuration "a file of another version"
        "Board and model files carry version = 1. A newer number means a newer Orinoco wrote it: update this one."
    RELOAD "E0110" Configuration "a board that cannot become another while it runs"
        "On SIGHUP (`systemctl reload orinocod`) the daemon reads its board file again: it starts new streams, stops removed \
         ones, and leaves the others running. Lanes, memory budget and engines cannot change while the board runs. If this error is \
         reported alone, nothing has changed. If a line `reloaded` follows, only the streams in the message could not be \
         started or changed: reload again."
    BOARD_PROFILE "E0111" Configuration "no such board profile"
        "A profile is what is publicly known of a kind of board. `orinoco board list` shows the names of all; `orinoco board detect` \
         says which one this machine has."
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
    MODEL_UNKNOWN "E0205" Configuration "a model whose use cannot be inferred"
        "From an .onnx file alone, layout, colour order and output head can be inferred only for graphs of a known \
         shape. Write a model.toml beside it; docs/model-files.md lists every head, with an example of one."
    MODEL_UNSUPPORTED "E0206" Configuration "a model the engine cannot run"
        "The engine read the file but has no kernel for one of its operators or types. Another engine may: \
         `orinoco models check` tries them all."
    IMPORT "E0207" Configuration "a description of another runtime that cannot be carried over"
        "`orinoco models import` reads nvinfer's configuration files (key file or YAML) and Triton's config.pbtxt. The \
         message names the line or key that cannot be read, or what the file lacks."
    OUTPUT_NOT_FINITE "E0208" RunFailed "a model whose outputs are not finite numbers"
        "An output held NaN or infinite values. Results computed from such values are dropped and counted as not_finite in \
         the model's summary; raw tensors keep them, and JSON has null in their place. The run goes on. Usual causes: a model \
         in 16-bit floats whose values leave their range (export it with 32-bit floats), a mean or scale in model.toml that \
         is not the one of training, or a damaged file."
    ENGINE_UNKNOWN "E0301" Configuration "no such engine"
        "Engines are ort-cuda and ort-cpu (ONNX Runtime on a GPU and on the CPU) and tract (built in)."
    ENGINE_UNAVAILABLE "E0302" RunFailed "no engine can run the model"
        "Each engine of the list was tried with one inference on this machine, and none succeeded; the message has each \
         one's reason, `orinoco models check --verbose` shows it in full. ONNX Runtime's library is looked for at ort_library of the board file, else at $ORT_DYLIB_PATH, else \
         in the user's cache (cross/onnxruntime.sh puts it there), else in the system's library folders."
    ENGINE_REQUIRED "E0303" RunFailed "a required engine was refused"
        "require in the board file turns a fallback into an error. The message says why the engine refused."
    ENGINE_RUN "E0304" RunFailed "an inference failed"
        "The engine returned an error while running. The message is the engine's own."
    MEMORY_BUDGET "E0305" Configuration "a board that does not fit its memory budget"
        "Every model and stream was added up before anything was loaded, and is more than [memory] budget. The table names \
         each need, and the message the smallest single change that fits. `orinoco memory --board FILE` shows the same \
         for a board that fits. On a reload, what runs counts until it has ended, and what loading new models takes for a \
         while counts as well: if the board fits by itself, reload it in two steps (first without what leaves), or restart \
         the daemon. Until then the daemon runs on as before."
    MEMORY_MEASURE "E0306" RunFailed "a model whose memory cannot be measured"
        "A model is run once in a process of its own to learn what it needs; that process failed. Its last message is \
         repeated. Where memory is too small, the message names what bounds it: the machine, a control group, `ulimit`, or \
         the kernel (vm.overcommit_memory = 2)."
    SOURCE_URI "E0401" Configuration "a source URI that cannot be used"
        "Sources are file://PATH (video, image, numbered images such as img_%04i.jpg, or a folder of images), \
         v4l2:///dev/video0 (a camera of the kernel), csi://0 (a camera at a Jetson's connector), \
         rtsp://HOST/PATH, http://HOST/PATH (an MJPEG camera, or a video file by its extension), \
         stdin://?format=FORMAT (raw video) and test://ball. A plain path is taken as file://."
    SOURCE_OPEN "E0402" RunFailed "a source that cannot be opened"
        "The file or stream could not be opened or has no demuxer or decoder here. `gst-discoverer-1.0 URI` shows what \
         GStreamer makes of it."
    SOURCE_NO_VIDEO "E0403" RunFailed "a source without video"
        "The source was opened, but it holds no video track that can be decoded."
    SOURCE_TRUNCATED "E0404" RunFailed "a file that ends early"
        "The container promises more than the file holds: it was cut off while being written or copied. Frames before \
         the cut were processed."
    SOURCE_UNREACHABLE "E0405" RunFailed "a live source that cannot be reached"
        "The camera or server did not answer, refused, or sent nothing in time. On the command line a live source that \
         never delivered is given up after a few attempts; in a daemon it is retried for ever."
    SOURCE_DECODE "E0406" RunFailed "a source that broke while running"
        "The decoder or demuxer reported an error in the middle of the stream. Frames before it were processed."
    IMAGE_DECODE "E0407" Configuration "an image that cannot be decoded"
        "The file is not a PNG, JPEG or WebP image, or it is damaged."
    SINK_OPEN "E0501" Configuration "an output that cannot be written"
        "The output's folder cannot be made or is not there, this user may not write in it, or what writes such an \
         output is not installed. The message says which."
    SINK_WRITE "E0502" RunFailed "an output that broke while running"
        "Writing failed in the middle of the run: the disk may be full, or the reader of a pipe went away."
    FEATURE_MISSING "E0503" Configuration "a part that this binary was built without"
        "The binary was built without the named feature. Build it again with that feature."
    CHECK_FAILED "E0601" CheckFailed "a check did not pass"
        "`models check` found a model that no engine can run; its last column has the reason. Or `bench memory` found \
         outputs that differ, or allocations that did not fit in the shared area; its table shows which."
    DATASET "E0602" Configuration "a dataset that cannot be read"
        "A dataset is a folder: images/ with labels/*.txt (YOLO), instances.json with images/ (COCO), images/ with \
         masks/*.png, labels.csv with rows of file,label, or a folder of pictures for each class. A sequence of \
         MOTChallenge's layout, on which tracking is judged, has img1/000001.jpg and so on, gt/gt.txt and mostly a \
         seqinfo.ini; a folder of such sequences is judged as a whole."
    UNKNOWN_CODE "E0701" Configuration "no such code"
        "Codes are written E0101 and so on; `orinoco explain` without a code lists them."
    STOPPED "E0702" Interrupted "a board that was stopped before it ran"
        "Ctrl-C or SIGTERM came while models were loaded: no source was opened, and nothing was written."
    REQUEST_INVALID "E0801" Configuration "a request that the model cannot take"
        "A request brings one tensor for each input of the model, by the input's name, with its element type and shape; of \
         a model with a batch axis it may bring fewer items than the model is bound for. Inputs that the model's file fills \
         are not part of a request. The message names the tensor. Models that keep a state between frames, and plans on a \
         GPU, take frames only."
    REQUEST_OVERLOAD "E0802" RunFailed "a request that met a full queue"
        "As many requests wait for the model as may, and this one was refused. Or its answer has several parts, and they \
         were not received as fast as they came. Send fewer requests at a time, or receive answers while they come."
    REQUEST_EXPIRED "E0803" RunFailed "a request whose deadline has passed"
        "The model was busy until the request's deadline; the request was not executed. Give it more time, or a higher \
         priority."
    REQUEST_CANCELLED "E0804" RunFailed "a request that was cancelled"
        "The client cancelled the request, and gets no further part of its answer."
    REQUEST_UNANSWERED "E0805" RunFailed "a request without an answer"
        "The request was accepted, and what was to answer it has ended: the model was removed, the board was stopped, or an \
         engine failed. Send it again."
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
