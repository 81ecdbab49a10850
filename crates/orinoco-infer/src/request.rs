//! A client's tensors into the inputs that a session on the host lends, and its outputs out.

use orinoco_core::{Diagnosis, Dim, ElementType, Tensor, TensorDesc, codes};
use orinoco_model::{Binding, Model};

use crate::engine::Session;

/// The way of a request through a bound model.
pub(crate) struct RequestAdapter {
    /// The model's file, for faults.
    file: String,
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
            file: model.file.display().to_string(),
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
    /// `E0801` for tensors that are not the model's.
    pub(crate) fn write(&self, tensors: &[Tensor], session: &mut dyn Session) -> Result<usize, Diagnosis> {
        self.refuse_state()?;
        let next = "see `orinoco models show` for its inputs";
        if let Some(stray) =
            tensors.iter().find(|tensor| self.inputs.iter().all(|input| input.name != tensor.name()))
        {
            let cause = format!(
                "the request has a tensor `{}`, which is not one of the inputs to send",
                stray.name()
            );
            return Err(self.invalid(cause, next));
        }
        let mut items = None;
        let mut filled = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let mut of_input = tensors.iter().filter(|tensor| tensor.name() == input.name);
            let (Some(tensor), None) = (of_input.next(), of_input.next()) else {
                return Err(
                    self.invalid(format!("a request has 1 tensor for the input `{}`", input.name), next)
                );
            };
            let of_tensor = input.items(tensor, self.batch);
            if of_tensor.is_none() || *items.get_or_insert(of_tensor) != of_tensor {
                let (name, shape, element) = (&input.name, &input.shape, input.element);
                let element = element.map_or("unknown", ElementType::name);
                let (sent, of) = (tensor.shape(), tensor.element().name());
                let cause = format!("input `{name}` is {element} {shape:?}, but got {of} {sent:?}");
                return Err(self.invalid(cause, next));
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
    /// `E0801` if those items cannot be told from the rest of the batch.
    pub(crate) fn read(&self, items: usize, session: &dyn Session) -> Result<Vec<Tensor>, Diagnosis> {
        let output = |(index, Output { name, is_fixed }): (usize, &Output)| {
            let tensor = session.output(index).host();
            let mut shape = tensor.shape.to_vec();
            match shape.first_mut() {
                _ if items == self.batch => {}
                Some(first) if *first == self.batch && !is_fixed => *first = items,
                _ => {
                    let cause = format!("output `{name}` has no batch axis");
                    return Err(self.invalid(cause, format!("send {} items at a time", self.batch)));
                }
            }
            let data = tensor.data;
            let bytes = data.to_bytes(shape.iter().product());
            Tensor::new(name, data.element(), shape, bytes)
        };
        self.outputs.iter().enumerate().map(output).collect()
    }

    /// Refuses every request if the model has implicit state.
    pub(crate) fn refuse_state(&self) -> Result<(), Diagnosis> {
        if self.has_state {
            let cause = "it keeps a state from frame to frame, which a request would change";
            return Err(self.invalid(cause, "send frames through a stream"));
        }
        Ok(())
    }

    /// Returns the fault of tensors for a model that is bound to a GPU.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_device(&self) -> Diagnosis {
        self.invalid("on a GPU it takes images only", "run this model on a CPU engine")
    }

    fn invalid(&self, cause: impl std::fmt::Display, next: impl std::fmt::Display) -> Diagnosis {
        Diagnosis::new(&codes::REQUEST_INVALID, &self.file, cause, next)
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
