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
    pub fn bind(
        &self,
        inputs: &[TensorDesc],
        outputs: &[TensorDesc],
        batch: usize,
    ) -> Result<Binding, Diagnosis> {
        let index = self.find_input(inputs)?;
        let main = &inputs[index];
        self.check_carried(inputs, outputs)?;
        if let Some(promised) = self.input_element.filter(|promised| main.element != Some(*promised)) {
            let promised = promised.name();
            return Err(self.disagrees(format!("its input is {main}, but dtype is {promised}")));
        }
        let batch = match (main.shape.len(), main.shape.first()) {
            // The input is an image without a batch axis.
            (3, _) if self.input.image().is_some() => 1,
            (_, Some(Dim::Fixed(fixed))) => *fixed,
            _ => batch,
        };
        if batch == 0 {
            return Err(self.disagrees(format!("its input is {main}, but a batch of 0 is empty")));
        }
        let wanted = self.main_shape(main, batch);
        let agrees =
            main.shape.len() == wanted.len() && main.shape.iter().zip(&wanted).all(|(a, n)| a.accepts(*n));
        if !agrees {
            let wanted: Vec<Dim> = wanted.into_iter().map(Dim::Fixed).collect();
            let wanted = shape_text(&wanted);
            return Err(
                self.disagrees(format!("its input is {main}, but model.toml describes it as {wanted}"))
            );
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
        heads::build(&self.head, &self.head_input(), &self.declared(outputs))
            .map_err(|cause| self.disagrees(cause))?;
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
    ) -> Result<(usize, Vec<usize>, Option<usize>), Diagnosis> {
        let place = find(inputs, &extra_input.input).ok_or_else(|| {
            self.disagrees(format!(
                "it has no input `{}`; its inputs are {}",
                extra_input.input,
                names(inputs)
            ))
        })?;
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
        let shape = open.collect::<Option<Vec<usize>>>().filter(|_| agrees).ok_or_else(|| {
            let given = &extra_input.shape;
            self.disagrees(format!(
                "its input is {input}, for which the shape {given:?} in model.toml is wrong or missing"
            ))
        })?;
        let elements: usize = shape.iter().product();
        match &extra_input.value {
            ExtraInputValue::Constant(values) if values.len() != 1 && values.len() != elements => Err(self
                .disagrees(format!(
                    "its input `{}` takes {elements} numbers, but model.toml gives {}",
                    extra_input.input,
                    values.len()
                ))),
            ExtraInputValue::Constant(_) => Ok((place, shape, None)),
            ExtraInputValue::State(output) => {
                let state = find(outputs, output).ok_or_else(|| {
                    self.disagrees(format!("it has no output `{output}`; its outputs are {}", names(outputs)))
                })?;
                Ok((place, shape, Some(state)))
            }
        }
    }

    /// Returns the index of the main input: the one that the description names, else the one that no feed fills.
    fn find_input(&self, inputs: &[TensorDesc]) -> Result<usize, Diagnosis> {
        let fed =
            |input: &TensorDesc| self.extra_inputs.iter().any(|extra_input| extra_input.input == input.name);
        let free: Vec<usize> = (0..inputs.len()).filter(|index| !fed(&inputs[*index])).collect();
        let named = self.input_name.as_ref().map(|name| {
            find(inputs, name).ok_or_else(|| {
                self.disagrees(format!("it has no input `{name}`; its inputs are {}", names(inputs)))
            })
        });
        let index = match (named, &free[..]) {
            (Some(named), _) => named?,
            (None, [only]) => *only,
            (None, _) => {
                return Err(self.disagrees(format!(
                    "it has inputs {}, but model.toml does not name the main one",
                    names(inputs)
                )));
            }
        };
        match free.iter().find(|free| **free != index) {
            Some(unfed) => Err(self.disagrees(format!(
                "its input {} has no value; add a [[constant]] or a [[state]] for it",
                inputs[*unfed]
            ))),
            None => Ok(index),
        }
    }

    fn check_carried(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Result<(), Diagnosis> {
        let odd = inputs
            .iter()
            .chain(outputs)
            .find(|tensor| matches!(tensor.element, None | Some(ElementType::Bool)));
        match odd {
            Some(odd) => {
                let cause = format!("its tensor {odd} has an unsupported data type");
                let next = "export it with inputs and outputs of f32, f16, u8, i8, i32 or i64";
                Err(Diagnosis { next: next.to_owned(), ..self.disagrees(cause) })
            }
            None => Ok(()),
        }
    }

    fn disagrees(&self, cause: String) -> Diagnosis {
        let next = match &self.described_by {
            Some(path) => format!("correct {} (`orinoco models show` prints the graph)", path.display()),
            None => "write a model.toml for it (see docs/model-files.md)".to_owned(),
        };
        Diagnosis::new(&codes::MODEL_DISAGREES, self.file.display(), cause, next)
    }
}

fn find(tensors: &[TensorDesc], name: &str) -> Option<usize> {
    tensors.iter().position(|tensor| tensor.name == name)
}

fn names(tensors: &[TensorDesc]) -> String {
    tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>().join(", ")
}
