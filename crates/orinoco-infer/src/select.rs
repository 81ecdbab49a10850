//! Selection of a model's engine: the first one, in order of preference, whose probe inference succeeds on this
//! machine.

use std::path::Path;

use orinoco_core::{Diagnosis, TensorDesc, codes};

use crate::context::EngineContext;
use crate::engine::{Engine, Prepared, Session, SessionSpec};
use crate::engine_error::EngineError;
use crate::engines::{engines, find};
use crate::scratch::Scratch;
use crate::states::ProbeInputs;
use crate::tensor::TensorMemory;

/// Engines in order of preference, looked up by name once.
#[derive(Clone)]
pub struct EngineOrder {
    candidates: Vec<Candidate>,
}

/// Engine in the order of preference.
#[derive(Clone, Copy)]
struct Candidate {
    engine: &'static dyn Engine,
    /// Whether its refusal is an error instead of a fallback to the next engine.
    is_required: bool,
}

impl EngineOrder {
    /// Looks up the engines of this build that are named in `order`. If an engine in `require` is refused, that is an
    /// error.
    ///
    /// # Errors
    /// `E0301` for a name that no engine has, `E0303` for a required engine that is not in the order.
    pub fn parse(order: &[String], require: &[String]) -> Result<Self, Diagnosis> {
        Self::among(&engines(), order, require)
    }

    /// Looks up the engines among `engines` that are named in `order`, like [`EngineOrder::parse`].
    ///
    /// # Errors
    /// Those of [`EngineOrder::parse`].
    pub fn among(
        engines: &[&'static dyn Engine],
        order: &[String],
        require: &[String],
    ) -> Result<Self, Diagnosis> {
        let candidate = |name: &String| {
            Ok(Candidate { engine: find(engines, name)?, is_required: require.contains(name) })
        };
        let candidates = order.iter().map(candidate).collect::<Result<Vec<_>, Diagnosis>>()?;
        for name in require {
            let engine = find(engines, name)?;
            if !order.contains(name) {
                return Err(required(engine.name(), "it is not listed in `engines`"));
            }
        }
        Ok(Self { candidates })
    }

    /// Returns the engines in order of preference.
    pub fn engines(&self) -> impl Iterator<Item = &'static dyn Engine> {
        self.candidates.iter().map(|candidate| candidate.engine)
    }
}

/// Engine that was tried and refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedEngine {
    /// Name of the engine.
    pub engine: String,
    /// Reason for the refusal, in one sentence.
    pub why: String,
    /// Full message of the engine, if `why` is shortened.
    pub detail: Option<String>,
}

/// Engine that was selected for a model, with the prepared model.
pub struct ChosenEngine {
    /// Prepared model, which binds sessions.
    pub prepared: Box<dyn Prepared>,
    /// Name of the engine.
    pub name: &'static str,
    /// Full version of the engine.
    pub version: String,
    /// Engines before it in the order of preference, with the reasons for their refusal.
    pub refused: Vec<RefusedEngine>,
    /// Context that the engine shares with others.
    pub context: EngineContext,
    inputs: ProbeInputs,
    probe: Option<Box<dyn Session>>,
}

impl ChosenEngine {
    /// Returns a session with the shapes and constants of the probe inference, with its tensors in the `wanted` memory
    /// if the engine supports that, computing in `scratch` on the account of the named model: see [`SessionSpec`]. The
    /// first session with tensors in the host's memory is the one of the probe inference, unless it has to compute in a
    /// scratch.
    ///
    /// # Errors
    /// Those of [`Prepared::session`].
    pub fn session(
        &mut self,
        wanted: TensorMemory,
        scratch: Option<(&Scratch, &str)>,
    ) -> Result<Box<dyn Session>, EngineError> {
        let probe = self.probe.take();
        let is_on_host = [wanted, self.prepared.memory()].contains(&TensorMemory::Host);
        match probe {
            Some(probe) if is_on_host && scratch.is_none() => return Ok(probe),
            Some(probe) if is_on_host => probe.recycle(),
            // The wanted session needs the memory that the probe's session holds on the GPU.
            probe => drop(probe),
        }
        let mut session =
            self.prepared.session(&SessionSpec { shapes: &self.inputs.shapes, memory: wanted, scratch })?;
        if session.memory() == TensorMemory::Host {
            self.inputs.write_constants(session.as_mut());
        }
        Ok(session)
    }

    /// Drops the session of the probe inference, if one on the GPU is going to replace it. Otherwise the GPU would hold
    /// each model twice until all models of a board are bound.
    pub fn drop_probe(&mut self) {
        self.probe = None;
    }
}

/// Function that returns the inputs of a probe inference for a graph's inputs and outputs, or the error in the graph.
pub type InputsFor<'a> = &'a dyn Fn(&[TensorDesc], &[TensorDesc]) -> Result<ProbeInputs, Diagnosis>;

/// Selects the first engine of `order` that executes the model in `file` once, with the shapes and constants of
/// `inputs_for` and zeros in every other input. The constants are needed because one may select the branch that a graph
/// takes.
///
/// # Errors
/// A required engine that is refused, or that this machine cannot run, is an error. A file that no engine can read, or
/// that `inputs_for` rejects, is one too.
pub fn choose(
    order: &EngineOrder,
    file: &Path,
    context: &EngineContext,
    inputs_for: InputsFor<'_>,
) -> Result<ChosenEngine, Diagnosis> {
    for Candidate { engine, .. } in order.candidates.iter().filter(|candidate| candidate.is_required) {
        engine.check(context).map_err(|why| required(engine.name(), &why))?;
    }
    let mut refused = Vec::new();
    let mut verdicts = Vec::new();
    for Candidate { engine, is_required } in order.candidates.iter().copied() {
        let (why, detail) = match run_probe(engine, file, context, inputs_for) {
            Ok(chosen) => return Ok(ChosenEngine { refused, ..chosen }),
            Err(RefusalReason::Absent(why)) => (why, None),
            Err(RefusalReason::Inputs(fault)) => return Err(fault),
            Err(RefusalReason::Engine(error)) => {
                let fault = error.diagnosis(file);
                match error {
                    // Every other engine would report the same.
                    EngineError::File(_) | EngineError::Shapes(_) => return Err(fault),
                    EngineError::Unreadable(_) if is_required => return Err(fault),
                    _ if is_required => {
                        let detail = fault.detail.unwrap_or_default();
                        return Err(required(engine.name(), &fault.cause).with_detail(&detail));
                    }
                    _ => verdicts.push(error),
                }
                (fault.cause, fault.detail)
            }
        };
        refused.push(RefusedEngine { engine: engine.name().to_owned(), why, detail });
    }
    // If every engine on this machine fails to read the file, the file is at fault.
    let is_unreadable = |error: &EngineError| matches!(error, EngineError::Unreadable(_));
    match verdicts.last() {
        Some(error) if verdicts.iter().all(is_unreadable) => Err(error.diagnosis(file)),
        _ => Err(nobody(file, &refused)),
    }
}

/// Reason why an engine was refused.
enum RefusalReason {
    /// Engine that cannot run on this machine.
    Absent(String),
    /// The engine, which can run here, failed on the model.
    Engine(EngineError),
    /// The graph has no inputs that can be probed.
    Inputs(Diagnosis),
}

impl From<EngineError> for RefusalReason {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

/// Prepares the model, and executes it once with the constants and with zeros in every other input.
fn run_probe(
    engine: &dyn Engine,
    file: &Path,
    context: &EngineContext,
    inputs_for: InputsFor<'_>,
) -> Result<ChosenEngine, RefusalReason> {
    let info = engine.check(context).map_err(RefusalReason::Absent)?;
    let prepared = engine.prepare(file, context)?;
    let inputs = inputs_for(prepared.inputs(), prepared.outputs()).map_err(RefusalReason::Inputs)?;
    let mut session = prepared.session(&SessionSpec::new(&inputs.shapes))?;
    inputs.write_constants(session.as_mut());
    session.run()?;
    let (name, version) = (engine.name(), info.version);
    let (context, refused) = (context.clone(), Vec::new());
    Ok(ChosenEngine { prepared, name, version, refused, context, inputs, probe: Some(session) })
}

fn required(name: &str, why: &str) -> Diagnosis {
    let next = "fix that, or remove it from the required engines";
    Diagnosis::new(&codes::ENGINE_REQUIRED, name, format!("it is required, but was refused: {why}"), next)
}

fn nobody(file: &Path, refused: &[RefusedEngine]) -> Diagnosis {
    let reasons: Vec<String> = refused.iter().map(|r| format!("{} refused ({})", r.engine, r.why)).collect();
    let cause =
        if reasons.is_empty() { "the list of engines is empty".to_owned() } else { reasons.join(", ") };
    let full = |r: &RefusedEngine| format!("{} refused: {}", r.engine, r.detail.as_ref().unwrap_or(&r.why));
    let shortened = refused.iter().any(|r| r.detail.is_some());
    let detail =
        if shortened { refused.iter().map(full).collect::<Vec<_>>().join("\n") } else { String::new() };
    Diagnosis::new(&codes::ENGINE_UNAVAILABLE, file.display(), cause, "see `orinoco explain E0302`")
        .with_detail(&detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::ExecutionStream;
    use crate::tensor::{ElementsMut, TensorMut, TensorRef, TensorViewMut};

    /// Engine whose name determines its behaviour: `absent`, `parse`, `lacking` and `broken` fail in that way.
    struct Fake(&'static str);

    /// Session with one input. Its graph selects a branch that fails unless the input is 16000.
    struct Choosy {
        sample_rate: [f32; 1],
    }

    impl Session for Choosy {
        fn input(&mut self, _: usize) -> TensorMut<'_> {
            let data = ElementsMut::F32(&mut self.sample_rate);
            TensorMut::Host(TensorViewMut { shape: &[1], data })
        }

        fn enqueue(&mut self, _: &ExecutionStream) -> Result<(), EngineError> {
            match self.sample_rate {
                [16_000.0] => Ok(()),
                [other] => Err(EngineError::run(format!("no branch for {other}"))),
            }
        }

        fn output(&self, _: usize) -> TensorRef<'_> {
            unreachable!("it has no outputs")
        }
    }

    impl Engine for Fake {
        fn name(&self) -> &'static str {
            self.0
        }

        fn check(&self, _: &EngineContext) -> Result<crate::engine::EngineInfo, String> {
            match self.0 {
                "absent" => Err("its library is not here".into()),
                _ => Ok(crate::engine::EngineInfo { version: "1.2".into(), library: None }),
            }
        }

        fn prepare(&self, _: &Path, _: &EngineContext) -> Result<Box<dyn Prepared>, EngineError> {
            match self.0 {
                "parse" => Err(EngineError::Unreadable("not ONNX".into())),
                "lacking" => Err(EngineError::Unsupported("no Foo".into())),
                _ => Ok(Box::new(Fake(self.0))),
            }
        }
    }

    impl Prepared for Fake {
        fn inputs(&self) -> &[TensorDesc] {
            &[]
        }

        fn outputs(&self) -> &[TensorDesc] {
            &[]
        }

        fn session(&self, _: &SessionSpec<'_>) -> Result<Box<dyn Session>, EngineError> {
            Ok(match self.0 {
                "choosy" => Box::new(Choosy { sample_rate: [0.0] }),
                name => Box::new(Fake(name)),
            })
        }
    }

    impl Session for Fake {
        fn input(&mut self, _: usize) -> TensorMut<'_> {
            unreachable!("it has no inputs")
        }

        fn enqueue(&mut self, _: &ExecutionStream) -> Result<(), EngineError> {
            match self.0 {
                "broken" => Err(EngineError::run("it broke")),
                _ => Ok(()),
            }
        }

        fn output(&self, _: usize) -> TensorRef<'_> {
            unreachable!("it has no outputs")
        }
    }

    /// Selects an engine from `order` and `require`, and compares the selected and refused engines, or the error, with
    /// `expected`.
    fn check(order: &str, require: &str, expected: &str) {
        let engines: [&'static dyn Engine; 5] =
            [&Fake("absent"), &Fake("parse"), &Fake("lacking"), &Fake("broken"), &Fake("sound")];
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let inputs = |_: &[TensorDesc], _: &[TensorDesc]| Ok(ProbeInputs::default());
        let order = EngineOrder::among(&engines, &list(order), &list(require));
        let chosen =
            order.and_then(|order| choose(&order, Path::new("m"), &EngineContext::default(), &inputs));
        let text = match chosen {
            Ok(chosen) => {
                let refused: Vec<String> =
                    chosen.refused.iter().map(|r| format!(", not {}: {}", r.engine, r.why)).collect();
                format!("{} {}{}", chosen.name, chosen.version, refused.concat())
            }
            Err(fault) => format!("{fault:?}"),
        };
        assert_eq!(text, expected);
    }

    #[test]
    fn the_first_engine_that_proves_itself_is_chosen() {
        check("sound broken", "", "sound 1.2");
        let refused =
            "sound 1.2, not absent: its library is not here, not lacking: no Foo, not broken: it broke";
        check("absent lacking broken sound", "", refused);
        check("parse sound", "", "sound 1.2, not parse: not ONNX");
    }

    #[test]
    fn a_required_engine_may_not_be_refused() {
        let next = "fix that, or remove it from the required engines";
        check("sound", "sound", "sound 1.2");
        let absent =
            format!("E0303 absent: it is required, but was refused: its library is not here; {next}");
        check("absent sound", "absent", &absent);
        let elsewhere = "E0303 absent: it is required, but was refused: it is not listed in `engines`";
        check("sound", "absent", &format!("{elsewhere}; {next}"));
        check(
            "broken sound",
            "broken",
            &format!("E0303 broken: it is required, but was refused: it broke; {next}"),
        );
    }

    #[test]
    fn a_faulty_file_is_not_blamed_on_the_engines() {
        let fault = "E0202 m: not ONNX; compare its size and sha256 with the original";
        check("parse", "", fault);
        check("absent parse", "", fault);
        check("parse", "parse", fault);
        check("parse sound", "parse", fault);
        let both = "parse refused (not ONNX), lacking refused (no Foo)";
        check("parse lacking", "", &format!("E0302 m: {both}; see `orinoco explain E0302`"));
    }

    #[test]
    fn with_nobody_left_every_reason_is_given() {
        let both = "lacking refused (no Foo), broken refused (it broke)";
        check("lacking broken", "", &format!("E0302 m: {both}; see `orinoco explain E0302`"));
        check("", "", "E0302 m: the list of engines is empty; see `orinoco explain E0302`");
        let names = "use one of absent, parse, lacking, broken, sound";
        check("tensorflow", "", &format!("E0301 tensorflow: no engine has this name; {names}"));
    }

    #[test]
    fn a_probe_inference_has_the_constants() {
        let order = EngineOrder::among(&[&Fake("choosy")], &["choosy".to_owned()], &[]).expect("it is there");
        let choose = |constants: Vec<(usize, Vec<f32>)>| {
            let inputs = ProbeInputs { shapes: vec![vec![1]], constants };
            let given = |_: &[TensorDesc], _: &[TensorDesc]| Ok(inputs.clone());
            super::choose(&order, Path::new("m"), &EngineContext::default(), &given)
        };
        let fault = choose(Vec::new()).err().expect("zeros pick the branch that fails");
        assert_eq!(fault.cause, "choosy refused (no branch for 0)");
        let mut chosen = choose(vec![(0, vec![16_000.0])]).expect("the constant picks the other branch");
        for which in ["the probe's session", "a later one"] {
            chosen.session(TensorMemory::Host, None).and_then(|mut session| session.run()).expect(which);
        }
    }
}
