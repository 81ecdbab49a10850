//! Checks a description against its graph: every input gets a shape, and each disagreement becomes a fault.

use orinoco_core::{ColorOrder, Diagnosis, Dim, ElementType, Layout, TensorDesc, codes, shape_text};
use orinoco_vision::{InputSpec, heads};

use crate::Model;
use crate::input::{AudioFeatures, ExtraInput, ExtraInputValue, ModelInput};

/// Inputs, outputs and shapes of a model in its graph, found by [`Model::bind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Index of the main input.
    pub input: usize,
    /// Shape of every input for the requested batch size.
    pub shapes: Vec<Vec<usize>>,
    /// Batch size of one run, in images: the requested one, or the graph's if it is fixed.
    pub batch: usize,
    /// Index of the input of each of the model's feeds.
    pub extra_inputs: Vec<usize>,
    /// Index of the output that each of the model's feeds reads (implicit state); `None` for a constant.
    pub states: Vec<Option<usize>>,
}

impl Model {
    /// Checks the description against the graph, and fixes every shape for `batch` images (or for the graph's own batch
    /// size, if it is fixed).
    ///
    /// # Errors
    /// `E0204`.
    pub fn bind(
        &self,
        inputs: &[TensorDesc],
        outputs: &[TensorDesc],
        batch: usize,
    ) -> Result<Binding, Diagnosis> {
        self.bind_all(inputs, outputs, batch).map_err(|why| why.diagnosis(self))
    }

    fn bind_all(
        &self,
        inputs: &[TensorDesc],
        outputs: &[TensorDesc],
        batch: usize,
    ) -> Result<Binding, BindError> {
        let index = self.find_main(inputs)?;
        let main = &inputs[index];
        check_carried(inputs, outputs)?;
        if let Some(promised) = self.input_element.filter(|promised| main.element != Some(*promised)) {
            return Err(BindError::Element { input: main.clone(), promised });
        }
        let batch = match (main.shape.len(), main.shape.first()) {
            // The input is an image without a batch axis.
            (3, _) if self.input.image().is_some() => 1,
            (_, Some(Dim::Fixed(fixed))) => *fixed,
            _ => batch,
        };
        if batch == 0 {
            return Err(BindError::EmptyBatch { input: main.clone() });
        }
        let wanted = self.main_shape(main, batch);
        let agrees =
            main.shape.len() == wanted.len() && main.shape.iter().zip(&wanted).all(|(a, n)| a.accepts(*n));
        if !agrees {
            return Err(BindError::Shape { input: main.clone(), described: wanted });
        }
        let mut binding = Binding {
            input: index,
            shapes: vec![Vec::new(); inputs.len()],
            batch,
            extra_inputs: Vec::with_capacity(self.extra_inputs.len()),
            states: Vec::with_capacity(self.extra_inputs.len()),
        };
        binding.shapes[index] = wanted;
        for extra_input in &self.extra_inputs {
            let (place, shape, state) = self.bind_extra_input(extra_input, inputs, outputs, batch)?;
            binding.shapes[place] = shape;
            binding.extra_inputs.push(place);
            binding.states.push(state);
        }
        heads::build(&self.head, &self.head_input(), &self.declared(outputs)).map_err(BindError::Head)?;
        Ok(binding)
    }

    /// Returns the image in whose coordinates the head's boxes are. A model of sound gets a placeholder; a head that
    /// needs an image rejects it.
    pub fn head_input(&self) -> InputSpec {
        self.input.image().cloned().unwrap_or(InputSpec::plain(Layout::Nchw, 1, 1, ColorOrder::Gray))
    }

    /// Returns the outputs that the head reads: those that are not fed back as state.
    pub(crate) fn declared(&self, outputs: &[TensorDesc]) -> Vec<TensorDesc> {
        outputs.iter().filter(|output| !self.is_state(&output.name)).cloned().collect()
    }

    /// Whether results depend on earlier inputs, because an output is fed back.
    pub fn has_state(&self) -> bool {
        self.extra_inputs.iter().any(|extra_input| matches!(extra_input.value, ExtraInputValue::State(_)))
    }

    /// Whether the output `name` is fed back into an input.
    pub fn is_state(&self, name: &str) -> bool {
        self.extra_inputs
            .iter()
            .any(|extra_input| matches!(&extra_input.value, ExtraInputValue::State(output) if output == name))
    }

    fn main_shape(&self, main: &TensorDesc, batch: usize) -> Vec<usize> {
        match &self.input {
            ModelInput::Image(spec) => {
                let shape = spec.shape(batch);
                if main.shape.len() == 3 { shape[1..].to_vec() } else { shape }
            }
            ModelInput::Audio(spec) => match &spec.features {
                AudioFeatures::Samples { window, context } => vec![batch, window + context],
                AudioFeatures::Mfcc(mfcc) if main.shape.len() == 4 => {
                    vec![batch, mfcc.frames, mfcc.coefficients, 1]
                }
                AudioFeatures::Mfcc(mfcc) => vec![batch, mfcc.frames, mfcc.coefficients],
            },
        }
    }

    fn bind_extra_input(
        &self,
        extra_input: &ExtraInput,
        inputs: &[TensorDesc],
        outputs: &[TensorDesc],
        batch: usize,
    ) -> Result<(usize, Vec<usize>, Option<usize>), BindError> {
        let place = find_input(inputs, &extra_input.input)?;
        let input = &inputs[place];
        let open = input.shape.iter().enumerate().map(|(axis, dim)| match dim {
            Dim::Fixed(size) => Some(*size),
            // The first axis is the batch, unless the description has a shape.
            Dim::Dynamic if extra_input.shape.is_empty() && axis == 0 => Some(batch),
            Dim::Dynamic => extra_input.shape.get(axis).copied(),
        });
        let agrees = extra_input.shape.is_empty()
            || (extra_input.shape.len() == input.shape.len()
                && input.shape.iter().zip(&extra_input.shape).all(|(axis, size)| axis.accepts(*size)));
        let shape = open.collect::<Option<Vec<usize>>>().filter(|_| agrees);
        let shape = shape.ok_or_else(|| BindError::ExtraShape {
            input: input.clone(),
            described: extra_input.shape.clone(),
        })?;
        let elements: usize = shape.iter().product();
        match &extra_input.value {
            ExtraInputValue::Constant(values) if values.len() != 1 && values.len() != elements => {
                let (input, values) = (extra_input.input.clone(), values.len());
                Err(BindError::Constant { input, elements, values })
            }
            ExtraInputValue::Constant(_) => Ok((place, shape, None)),
            ExtraInputValue::State(output) => {
                let none = || BindError::NoOutput { output: output.clone(), outputs: names(outputs) };
                Ok((place, shape, Some(find(outputs, output).ok_or_else(none)?)))
            }
        }
    }

    /// Returns the index of the main input: the one that the description names, else the one that no feed fills.
    fn find_main(&self, inputs: &[TensorDesc]) -> Result<usize, BindError> {
        let fed =
            |input: &TensorDesc| self.extra_inputs.iter().any(|extra_input| extra_input.input == input.name);
        let free: Vec<usize> = (0..inputs.len()).filter(|index| !fed(&inputs[*index])).collect();
        let named = self.input_name.as_ref().map(|name| find_input(inputs, name));
        let index = match (named, &free[..]) {
            (Some(named), _) => named?,
            (None, [only]) => *only,
            (None, _) => return Err(BindError::MainUnnamed { inputs: names(inputs) }),
        };
        match free.iter().find(|free| **free != index) {
            Some(unfed) => Err(BindError::NoValue { input: inputs[*unfed].clone() }),
            None => Ok(index),
        }
    }
}

fn check_carried(inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Result<(), BindError> {
    let is_carried = |tensor: &TensorDesc| !matches!(tensor.element, None | Some(ElementType::Bool));
    match inputs.iter().chain(outputs).find(|tensor| !is_carried(tensor)) {
        Some(odd) => Err(BindError::NotCarried { tensor: odd.clone() }),
        None => Ok(()),
    }
}

fn find_input(inputs: &[TensorDesc], name: &str) -> Result<usize, BindError> {
    let none = || BindError::NoInput { input: name.to_owned(), inputs: names(inputs) };
    find(inputs, name).ok_or_else(none)
}

fn find(tensors: &[TensorDesc], name: &str) -> Option<usize> {
    tensors.iter().position(|tensor| tensor.name == name)
}

fn names(tensors: &[TensorDesc]) -> String {
    tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Disagreement between a description and its graph (`E0204`).
#[derive(Debug)]
enum BindError {
    /// The description names an input that the graph does not have.
    NoInput {
        /// Name in the description.
        input: String,
        /// Names of the graph's inputs.
        inputs: String,
    },
    /// The description names an output that the graph does not have.
    NoOutput {
        /// Name in the description.
        output: String,
        /// Names of the graph's outputs.
        outputs: String,
    },
    /// The graph has several inputs, and the description does not name the main one.
    MainUnnamed {
        /// Names of the graph's inputs.
        inputs: String,
    },
    /// The description gives no value for an input.
    NoValue {
        /// The input.
        input: TensorDesc,
    },
    /// A tensor has an element type that Orinoco does not carry.
    NotCarried {
        /// The tensor.
        tensor: TensorDesc,
    },
    /// The main input has another element type than the description.
    Element {
        /// The main input.
        input: TensorDesc,
        /// Element type in the description.
        promised: ElementType,
    },
    /// The batch would have no items.
    EmptyBatch {
        /// The main input.
        input: TensorDesc,
    },
    /// The main input has another shape than the description.
    Shape {
        /// The main input.
        input: TensorDesc,
        /// Shape in the description.
        described: Vec<usize>,
    },
    /// The description gives a wrong shape, or none, for another input.
    ExtraShape {
        /// The input.
        input: TensorDesc,
        /// Shape in the description; empty if it gives none.
        described: Vec<usize>,
    },
    /// A constant has the wrong number of values.
    Constant {
        /// Name of the input.
        input: String,
        /// Number of elements of the input.
        elements: usize,
        /// Number of values in the description.
        values: usize,
    },
    /// The outputs do not fit the head, for this reason.
    Head(String),
}

impl BindError {
    /// Returns the fault of `model` that a user sees.
    fn diagnosis(&self, model: &Model) -> Diagnosis {
        let cause = match self {
            Self::NoInput { input, inputs } => format!("it has no input `{input}`; its inputs are {inputs}"),
            Self::NoOutput { output, outputs } => {
                format!("it has no output `{output}`; its outputs are {outputs}")
            }
            Self::MainUnnamed { inputs } => {
                format!("it has inputs {inputs}, but model.toml does not name the main one")
            }
            Self::NoValue { input } => {
                format!("its input {input} has no value; add a [[constant]] or a [[state]] for it")
            }
            Self::NotCarried { tensor } => format!("its tensor {tensor} has an unsupported data type"),
            Self::Element { input, promised } => {
                format!("its input is {input}, but dtype is {}", promised.name())
            }
            Self::EmptyBatch { input } => format!("its input is {input}, but a batch of 0 is empty"),
            Self::Shape { input, described } => {
                let described: Vec<Dim> = described.iter().copied().map(Dim::Fixed).collect();
                format!("its input is {input}, but model.toml describes it as {}", shape_text(&described))
            }
            Self::ExtraShape { input, described } => format!(
                "its input is {input}, for which the shape {described:?} in model.toml is wrong or missing"
            ),
            Self::Constant { input, elements, values } => {
                format!("its input `{input}` takes {elements} numbers, but model.toml gives {values}")
            }
            Self::Head(why) => why.clone(),
        };
        let next = match (self, &model.described_by) {
            (Self::NotCarried { .. }, _) => {
                "export it with inputs and outputs of f32, f16, u8, i8, i32 or i64".to_owned()
            }
            (_, Some(path)) => {
                format!("correct {} (`orinoco models show` prints the graph)", path.display())
            }
            (_, None) => "write a model.toml for it (see docs/model-files.md)".to_owned(),
        };
        Diagnosis::new(&codes::MODEL_DISAGREES, model.file.display(), cause, next)
    }
}
