//! A client's tensors into the inputs that a session on the host lends, and its outputs out.

use std::path::Path;

use orinoco_core::{Diagnosis, Dim, ElementType, Tensor, TensorDesc, codes};
use orinoco_model::{Binding, Model};

use crate::engine::Session;

/// The way of a request through a bound model.
pub(crate) struct RequestAdapter {
    /// Inputs that a request fills: all that are not constants or states.
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    /// Items that the model is bound for.
    batch: usize,
    has_state: bool,
}

/// An input of the model, as it is bound.
struct Input {
    index: usize,
    name: String,
    element: Option<ElementType>,
    shape: Vec<usize>,
    /// Its first axis is the batch's, so that a request may bring fewer items.
    has_batch_axis: bool,
}

/// An output of the model.
struct Output {
    name: String,
    /// Whether the model says that its first axis has a fixed length, which is then not the batch's.
    is_fixed: bool,
}

impl RequestAdapter {
    pub(crate) fn new(
        model: &Model,
        binding: &Binding,
        inputs: &[TensorDesc],
        outputs: &[TensorDesc],
    ) -> Self {
        let by_request = inputs.iter().enumerate().filter(|(index, _)| !binding.extra_inputs.contains(index));
        let input = |(index, desc): (usize, &TensorDesc)| Input {
            index,
            name: desc.name.clone(),
            element: desc.element,
            shape: binding.shapes[index].clone(),
            has_batch_axis: desc.shape.first() == Some(&Dim::Dynamic)
                && binding.shapes[index].first() == Some(&binding.batch),
        };
        let output = |desc: &TensorDesc| Output {
            name: desc.name.clone(),
            is_fixed: matches!(desc.shape.first(), Some(Dim::Fixed(_))),
        };
        Self {
            inputs: by_request.map(input).collect(),
            outputs: outputs.iter().map(output).collect(),
            batch: binding.batch,
            has_state: model.has_state(),
        }
    }

    /// Leaves the tensors of a request in the inputs of `session`, and returns how many items they have. Nothing is written
    /// unless all of them fit. A request of fewer items than the batch leaves the rest as it was.
    ///
    /// # Errors
    /// Tensors that are not the model's, and a model with implicit state.
    pub(crate) fn write(&self, tensors: &[Tensor], session: &mut dyn Session) -> Result<usize, RequestError> {
        self.refuse_state()?;
        if let Some(stray) =
            tensors.iter().find(|tensor| self.inputs.iter().all(|input| input.name != tensor.name()))
        {
            return Err(RequestError::Stray { tensor: stray.name().to_owned() });
        }
        let mut items = None;
        let mut filled = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let mut of_input = tensors.iter().filter(|tensor| tensor.name() == input.name);
            let (Some(tensor), None) = (of_input.next(), of_input.next()) else {
                return Err(RequestError::NotOne { input: input.name.clone() });
            };
            let of_tensor = input.items(tensor, self.batch);
            if of_tensor.is_none() || *items.get_or_insert(of_tensor) != of_tensor {
                return Err(RequestError::Disagrees {
                    input: input.name.clone(),
                    expected: (input.element, input.shape.clone()),
                    found: (tensor.element(), tensor.shape().to_vec()),
                });
            }
            filled.push((input.index, tensor));
        }
        for (index, tensor) in filled {
            session.input(index).host().data.copy_from_bytes(tensor.bytes());
        }
        Ok(items.flatten().unwrap_or(self.batch))
    }

    /// Copies the outputs of the latest run, which was of so many items.
    ///
    /// # Errors
    /// [`RequestError::NoBatchAxis`], if those items cannot be told from the rest of the batch.
    pub(crate) fn read(&self, items: usize, session: &dyn Session) -> Result<Vec<Tensor>, RequestError> {
        let output = |(index, Output { name, is_fixed }): (usize, &Output)| {
            let tensor = session.output(index).host();
            let mut shape = tensor.shape.to_vec();
            match shape.first_mut() {
                _ if items == self.batch => {}
                Some(first) if *first == self.batch && !is_fixed => *first = items,
                _ => {
                    return Err(RequestError::NoBatchAxis { output: name.clone(), batch: self.batch });
                }
            }
            let data = tensor.data;
            let bytes = data.to_bytes(shape.iter().product());
            Ok(Tensor::new(name, data.element(), shape, bytes).expect("its shape has as many bytes"))
        };
        self.outputs.iter().enumerate().map(output).collect()
    }

    /// Refuses every request if the model has implicit state.
    pub(crate) fn refuse_state(&self) -> Result<(), RequestError> {
        if self.has_state { Err(RequestError::HasState) } else { Ok(()) }
    }
}

impl Input {
    /// Number of items that `tensor` has for this input; `None` if it does not fit.
    fn items(&self, tensor: &Tensor, batch: usize) -> Option<usize> {
        if self.element != Some(tensor.element()) || self.shape.len() != tensor.shape().len() {
            return None;
        }
        let differs = |axis: &usize| self.shape[*axis] != tensor.shape()[*axis];
        match (0..self.shape.len()).find(differs) {
            None => Some(batch),
            Some(0) if self.has_batch_axis && self.shape[1..] == tensor.shape()[1..] => {
                Some(tensor.shape()[0]).filter(|items| (1..batch).contains(items))
            }
            Some(_) => None,
        }
    }
}

/// Reason why a model refuses a client's request (`E0801`).
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The model keeps a state from frame to frame, which a request would change.
    HasState,
    /// The model's tensors are on a GPU, where it takes images only.
    #[cfg(feature = "cuda")]
    OnGpu,
    /// A tensor has the name of no input that a request fills.
    Stray {
        /// Name of the tensor.
        tensor: String,
    },
    /// The request has no tensor for an input, or several.
    NotOne {
        /// Name of the input.
        input: String,
    },
    /// A tensor has another element type, shape or number of items than its input.
    Disagrees {
        /// Name of the input.
        input: String,
        /// Element type and shape of the input.
        expected: (Option<ElementType>, Vec<usize>),
        /// Element type and shape of the tensor.
        found: (ElementType, Vec<usize>),
    },
    /// The request has fewer items than the batch, and an output does not show which values are theirs.
    NoBatchAxis {
        /// Name of the output.
        output: String,
        /// Number of items in a batch.
        batch: usize,
    },
}

impl RequestError {
    /// Returns the fault of the model in `file` that a client sees.
    pub(crate) fn diagnosis(&self, file: &Path) -> Diagnosis {
        let next = "see `orinoco models show` for its inputs".to_owned();
        let (cause, next) = match self {
            Self::HasState => (
                "it keeps a state from frame to frame, which a request would change".to_owned(),
                "send frames through a stream".to_owned(),
            ),
            #[cfg(feature = "cuda")]
            Self::OnGpu => {
                ("on a GPU it takes images only".to_owned(), "run this model on a CPU engine".to_owned())
            }
            Self::Stray { tensor } => {
                (format!("the request has a tensor `{tensor}`, which is not one of the inputs to send"), next)
            }
            Self::NotOne { input } => (format!("a request has 1 tensor for the input `{input}`"), next),
            Self::Disagrees { input, expected: (element, shape), found: (of, sent) } => {
                let (element, of) = (element.map_or("unknown", ElementType::name), of.name());
                (format!("input `{input}` is {element} {shape:?}, but got {of} {sent:?}"), next)
            }
            Self::NoBatchAxis { output, batch } => {
                (format!("output `{output}` has no batch axis"), format!("send {batch} items at a time"))
            }
        };
        Diagnosis::new(&codes::REQUEST_INVALID, file.display(), cause, next)
    }
}
