//! Extra inputs of a model: constants, and implicit states that it carries from run to run.

use orinoco_model::{Binding, ExtraInputValue, Model};

use crate::engine::Session;

/// Shapes and constants that a model's inputs are bound with before its first run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeInputs {
    /// Shape of each input.
    pub shapes: Vec<Vec<usize>>,
    /// Inputs with constant values, by index; a single value fills the whole tensor. All other inputs start as zeros.
    pub constants: Vec<(usize, Vec<f32>)>,
}

impl ProbeInputs {
    /// Returns the shapes and constants of `model` for the inputs that `binding` names.
    pub fn new(model: &Model, binding: &Binding) -> Self {
        let extra_inputs = model.extra_inputs.iter().zip(&binding.extra_inputs);
        let constants = extra_inputs.filter_map(|(extra_input, input)| match &extra_input.value {
            ExtraInputValue::Constant(values) => Some((*input, values.clone())),
            ExtraInputValue::State(_) => None,
        });
        Self { shapes: binding.shapes.clone(), constants: constants.collect() }
    }

    /// Writes the constants into the inputs of a session. Panics if these are not in the host's memory.
    pub fn write_constants(&self, session: &mut dyn Session) {
        self.constants.iter().for_each(|(input, values)| fill(session, *input, values));
    }
}

/// Outputs that are copied back into inputs after each run (implicit state).
#[derive(Default)]
pub(crate) struct States(Vec<State>);

struct State {
    input: usize,
    output: usize,
    carried: Vec<f32>,
}

impl States {
    /// Returns the states of a model, with the inputs and outputs that `binding` names.
    pub(crate) fn new(binding: &Binding) -> Self {
        let states = binding.extra_inputs.iter().zip(&binding.states).filter_map(|(input, output)| {
            output.map(|output| State { input: *input, output, carried: Vec::new() })
        });
        Self(states.collect())
    }

    /// Copies the outputs of the latest run into their inputs.
    pub(crate) fn carry(&mut self, session: &mut dyn Session) {
        for state in &mut self.0 {
            session.output(state.output).host().data.to_f32(&mut state.carried);
            session.input(state.input).host().data.copy_from_f32(&state.carried);
        }
    }

    /// Resets the states to zero.
    pub(crate) fn reset(&mut self, session: &mut dyn Session) {
        self.0.iter().for_each(|state| fill(session, state.input, &[0.0]));
    }
}

/// Writes `values` into an input; a single value fills the whole tensor.
fn fill(session: &mut dyn Session, input: usize, values: &[f32]) {
    let mut tensor = session.input(input).host().data;
    match values {
        [one] => tensor.copy_from_f32(&vec![*one; tensor.len()]),
        all => tensor.copy_from_f32(all),
    }
}
